"""Compares and patches documents as the API server and the daemon do, in unit tests."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from capstan._json import Object
from capstan.errors import CallError
from capstan.operations import Comparison


def invalid(message: str) -> CallError:
    """Returns the error for a wrong argument."""
    return CallError("invalid", message)


def keys(pointer: str) -> list[str]:
    """Returns the keys of a JSON pointer."""
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]


def compare(by: Comparison, actual: Any, desired: Any, ignore: Sequence[str]) -> str | None:
    """Compares two documents, without the knowledge of managed fields that the daemon has; returns what differs."""
    if by == "by-verb":
        raise invalid("by-verb needs a write; name a comparison")
    actual, desired = copy.deepcopy(actual), copy.deepcopy(desired)
    for pointer in ignore:
        _cut(actual, pointer)
        _cut(desired, pointer)
    if by == "status-only":
        return _lacking(actual.get("status"), desired.get("status"), "/status")
    return _lacking(actual, desired, "") or (_lacking(desired, actual, "") if by == "equality" else None)


def masked(object: Object, pointers: Sequence[str]) -> Object:
    """Returns only the fields under these JSON pointers, and what says which object it is."""
    if not pointers:
        return object
    kept: Object = {}
    for pointer in ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name", *pointers]:
        *parents, last = keys(pointer)
        source: Any = object
        for key in [*parents, last]:
            source = source.get(key) if isinstance(source, dict) else None
        if source is not None:
            place = kept
            for key in parents:
                place = place.setdefault(key, {})
            place[last] = source
    return kept


def merge_patched(document: Any, patch: Any) -> Any:
    """Returns a document after a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patched(merged.get(key), value)
    return merged


def json_patched(document: Any, patch: Any) -> Any:
    """Returns a document after a JSON patch (RFC 6902)."""
    if not isinstance(patch, list):
        raise invalid("a JSON patch is a list of operations")
    root = {"": copy.deepcopy(document)}
    for operation in patch:
        try:
            _operate(root, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise invalid(f"the JSON patch can't do {operation}: {error!r}") from None
    return root[""]


def _operate(root: Object, operation: Object) -> None:
    verb, path = operation["op"], operation["path"]
    if verb == "add":
        _add(root, path, operation["value"])
    elif verb == "replace":
        _take(root, path)
        _add(root, path, operation["value"])
    elif verb == "remove":
        _take(root, path)
    elif verb == "move":
        _add(root, path, _take(root, operation["from"]))
    elif verb == "copy":
        _add(root, path, copy.deepcopy(_at(root, operation["from"])))
    elif verb == "test":
        if _at(root, path) != operation["value"]:
            raise ValueError(f"{path} is {_at(root, path)!r}")
    else:
        raise ValueError(f"there is no {verb}")


def _at(root: Object, path: str) -> Any:
    place: Any = root[""]
    for key in keys(path):
        place = place[_index(place, key)]
    return place


def _parent(root: Object, path: str) -> tuple[Any, str]:
    if not path:
        return root, ""
    head, _, _ = path.rpartition("/")
    return _at(root, head), keys(path)[-1]


def _add(root: Object, path: str, value: Any) -> None:
    place, key = _parent(root, path)
    if not isinstance(place, list):
        place[key] = value
    elif key == "-":
        place.append(value)
    elif int(key) > len(place):
        raise IndexError(key)
    else:
        place.insert(int(key), value)


def _take(root: Object, path: str) -> Any:
    place, key = _parent(root, path)
    return place.pop(_index(place, key))


def _index(place: Any, key: str) -> Any:
    return int(key) if isinstance(place, list) else key


def _cut(document: Any, pointer: str) -> None:
    *parents, last = keys(pointer)
    for key in parents:
        document = document.get(key) if isinstance(document, dict) else None
    if isinstance(document, dict):
        document.pop(last, None)


def _lacking(actual: Any, desired: Any, path: str) -> str | None:
    """Returns the first thing desired that is not there; additions are tolerated, but for elements of lists."""
    if isinstance(actual, dict) and isinstance(desired, dict):
        pairs: Any = ((key, actual.get(key), value) for key, value in desired.items())
    elif isinstance(actual, list) and isinstance(desired, list) and len(actual) == len(desired):
        pairs = ((index, *both) for index, both in enumerate(zip(actual, desired)))
    else:
        return None if actual == desired else f"{path or '/'}: found {actual!r}, wanted {desired!r}"
    return next((found for key, one, other in pairs if (found := _lacking(one, other, f"{path}/{key}"))), None)

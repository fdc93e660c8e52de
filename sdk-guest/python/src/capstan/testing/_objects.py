"""Decides which objects of a unit test a question for the cache means."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from capstan import _json
from capstan._json import Object
from capstan.cache import Everywhere, Indexed, Kind, Namespaced, Place, Primaries, Query, Related, Source
from capstan.errors import CallError
from capstan.operations import ObjectRef
from capstan.testing._documents import invalid, masked

Several = Mapping[str, "Object | Sequence[Object]"]
"""Objects by source, one or several."""

Accepts = Callable[[Mapping[str, str]], bool]
"""Says whether labels are as they should be."""


@dataclass
class Known:
    """An object, and where it is known."""

    home: Literal["secondary", "unrelated", "primary", "written", "thing"]
    """It belongs to the primary, it does not, it is a primary, it was written and no source is known to watch it, or it is a thing of the
    primary outside of the cluster."""
    source: str | None
    """The source that has it."""
    object: Object
    id: str | None = None
    """The id of a thing outside of the cluster."""


class Objects:
    """The caches of a test."""

    def __init__(
        self,
        secondaries: Several,
        unrelated: Several,
        primaries: Sequence[Object],
        indexes: Mapping[str, Mapping[str, Sequence[str]]],
        things: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self.all = [Known("primary", None, copy.deepcopy(object)) for object in primaries]
        self.all += [Known("secondary", source, object) for source, object in _each(secondaries)]
        self.all += [Known("unrelated", source, object) for source, object in _each(unrelated)]
        for source, by_id in things.items():
            self.all += [Known("thing", source, copy.deepcopy(thing), id) for id, thing in sorted(by_id.items())]
        self.indexes = indexes

    def get(self, target: ObjectRef) -> Object | None:
        """Returns an object wherever it is."""
        return next((known.object for known in self.all if _is(known.object, target)), None)

    def put(self, target: ObjectRef, object: Object) -> None:
        """Keeps a version of an object."""
        copies = [known for known in self.all if _is(known.object, target)]
        if not copies:
            self.all.append(Known("written", None, object))
        for known in copies:
            known.object = object

    def remove(self, target: ObjectRef) -> None:
        """Forgets an object."""
        self.all = [known for known in self.all if not _is(known.object, target)]

    def one(self, place: Place) -> str | None:
        """Returns the one object that belongs to the primary."""
        related = list(self._select(place, Related()))
        if len(related) > 1:
            raise CallError("ambiguous", f"{len(related)} objects belong to the primary")
        return _json.write(related[0], "an object") if related else None

    def named(self, place: Place, namespace: str | None, name: str) -> str | None:
        """Returns an object by its name, or a thing by its id."""
        for known in self.all:
            if _has(place, known) and known.home == "thing" and known.id == name:
                return _json.write(known.object, "a thing")
        for object in self._select(place, Everywhere()):
            if _key(object) == (namespace or "", name):
                return _json.write(object, "an object")
        return None

    def page(self, query: Query) -> tuple[list[str], str | None]:
        """Returns some objects, and where the next ones begin."""
        if isinstance(query.place, Primaries) and isinstance(query.selection, Related):
            raise CallError("misplaced", "primaries are not related to the primary")
        accepts = selector(query.labels or "")
        found = [object for object in self._select(query.place, query.selection) if accepts(_labels(object))]
        found.sort(key=_key)
        start = int(query.after or 0)
        end = len(found) if query.limit is None else min(start + query.limit, len(found))
        items = [_json.write(masked(object, query.fields), "an object") for object in found[start:end]]
        return items, str(end) if end < len(found) else None

    def _select(self, place: Place, selection: object) -> Iterator[Object]:
        for known in self.all:
            if _has(place, known) and self._selects(selection, known):
                yield known.object

    def _selects(self, selection: object, known: Known) -> bool:
        namespace, name = _key(known.object)
        if isinstance(selection, Related):
            return known.home in ("secondary", "thing")
        if isinstance(selection, Namespaced):
            return namespace == selection.namespace
        if isinstance(selection, Indexed):
            return name in self.indexes.get(selection.index, {}).get(selection.key, ())
        return True


def selector(text: str) -> Accepts:
    """Returns a function that says whether labels satisfy a selector as kubectl writes it."""
    requirements = [_requirement(part.strip()) for part in re.split(r",(?![^(]*\))", text)] if text.strip() else []
    return lambda labels: all(accepts(labels) for accepts in requirements)


def _requirement(text: str) -> Accepts:
    if found := re.fullmatch(r"(\S+)\s+(in|notin)\s*\(([^)]*)\)", text):
        key, verb, listed = found.groups()
        values = {value.strip() for value in listed.split(",")}
        return lambda labels: (labels.get(key) in values) == (verb == "in")
    if found := re.fullmatch(r"([^\s=!]+)\s*(!=|==?)\s*([^\s=!]*)", text):
        key, verb, value = found.groups()
        return lambda labels: (labels.get(key) == value) == (verb != "!=")
    if found := re.fullmatch(r"(!?)\s*([^\s=!]+)", text):
        absent, key = found.groups()
        return lambda labels: (key in labels) != bool(absent)
    raise invalid(f"`{text}` is no label selector")


def _each(several: Several) -> Iterator[tuple[str, Object]]:
    for source, objects in several.items():
        for object in [objects] if isinstance(objects, dict) else objects:
            # What a function changes in its copy is not changed here.
            yield source, copy.deepcopy(object)


def _has(place: Place, known: Known) -> bool:
    if isinstance(place, Source):
        return known.source == place.name
    if known.home == "thing":
        return False
    if isinstance(place, Kind):
        return (known.object.get("apiVersion"), known.object.get("kind")) == (place.api_version, place.kind)
    return known.home == "primary"


def _is(object: Object, target: ObjectRef) -> bool:
    if not isinstance(object, dict):
        return False
    kind = (object.get("apiVersion"), object.get("kind"))
    return kind == (target.api_version, target.kind) and _key(object) == (target.namespace or "", target.name)


def _key(object: Object) -> tuple[str, str]:
    # A thing outside of the cluster may be anything.
    metadata = object.get("metadata", {}) if isinstance(object, dict) else {}
    return metadata.get("namespace") or "", metadata.get("name", "")


def _labels(object: Object) -> dict[str, str]:
    labels: dict[str, str] = object.get("metadata", {}).get("labels", {}) if isinstance(object, dict) else {}
    return labels

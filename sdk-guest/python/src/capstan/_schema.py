"""Decides which JSON schema says what the classes of an author do, for `capstan crd`. It runs natively, where their source can be read."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Mapping, Sequence, Set
from datetime import date, datetime
from enum import Enum
from typing import Any

from capstan import _json, types
from capstan._json import Object
from capstan._typed import NOTHING, alternatives, bare, fields, spelled
from capstan.types import Limits, Metadata, Resource, Rule

_SCALARS: dict[Any, Object] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    Any: {},
    object: {},
    dict: {"type": "object"},
    list: {"type": "array"},
}


class TypesError(Exception):
    """Why types come to no schema."""


def said(resources: Sequence[Resource]) -> str:
    """Returns what the types of resources say, as a JSON document."""
    return _json.write([_resource(one) for one in resources], "what types say")


def _resource(resource: Resource) -> Object:
    definitions: dict[str, Object] = {}
    root = _Definitions(definitions).of_class(resource.type)
    facts = {"apiVersion": resource.api_version, "kind": resource.kind, **resource.facts}
    return {**facts, "schema": {**root, "$defs": definitions}}


class _Definitions:
    """The schemas of classes, by their names."""

    def __init__(self, known: dict[str, Object]) -> None:
        self.known = known

    def of(self, hint: Any, place: str) -> Object:
        """Returns the schema of a type."""
        limits = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, (Limits, Rule))]
        schema = self._of_bare(bare(hint), place)
        for one in limits:
            schema = {**schema, **_limits(one)}
        return schema

    def _of_bare(self, hint: Any, place: str) -> Object:
        kinds = [kind for kind in alternatives(hint) if kind is not type(None)]
        if len(kinds) > 1:
            return {"anyOf": [self.of(kind, place) for kind in kinds]}
        if not kinds:
            raise TypesError(f"{place} is None always; expected a type")
        kind = kinds[0]
        if kind is not hint:
            return self.of(kind, place)
        if kind in _SCALARS:
            return dict(_SCALARS[kind])
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Literal:
            return {"enum": list(inner)}
        if isinstance(origin, type) and issubclass(origin, Mapping):
            if bare(inner[0]) is not str:
                raise TypesError(f"{place} has keys that are no texts, which JSON does not have; expected dict[str, …]")
            return {"type": "object", "additionalProperties": self.of(inner[1], f"{place}.*")}
        if isinstance(origin, type) and issubclass(origin, Set):
            return {"type": "array", "uniqueItems": True, "items": self.of(inner[0], f"{place}[]")}
        if isinstance(origin, type) and issubclass(origin, Sequence) and origin is not tuple:
            return {"type": "array", "items": self.of(inner[0], f"{place}[]")}
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"enum": [one.value for one in kind]}
        if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or typing.is_typeddict(kind)):
            if kind.__name__ not in self.known:
                self.known[kind.__name__] = {}
                self.known[kind.__name__] = self.of_class(kind)
            return {"$ref": f"#/$defs/{kind.__name__}"}
        raise TypesError(f"{place} is {_shown(hint)}, of which there is no schema; expected a type as in JSON, a dataclass or a TypedDict")

    def of_class(self, cls: Any) -> Object:
        """Returns the schema of a class."""
        try:
            typing.get_type_hints(cls)
        except NameError as error:
            raise TypesError(f"{cls.__name__} has a field of a type that is not imported: {error}") from error
        docs, properties, required = _docs(cls), {}, []
        for name, key, hint, default, needed in _fields_of(cls):
            if bare(hint) is Metadata:
                continue
            schema = self.of(hint, f"{cls.__name__}.{name}")
            if name in docs:
                schema["description"] = docs[name]
            if default is not NOTHING:
                schema.setdefault("default", default)
            properties[key] = schema
            if needed:
                required.append(key)
        found: Object = {"type": "object", "properties": properties}
        if required:
            found["required"] = required
        doc = inspect.getdoc(cls) if cls.__doc__ else None
        # A dataclass without one has its signature there.
        if doc and not doc.startswith(f"{cls.__name__}(") and "__doc__" in vars(cls):
            found["description"] = doc
        for rule in getattr(cls, types.RULES, ()):
            found.setdefault("x-kubernetes-validations", []).append(_rule(rule))
        return found


def _fields_of(cls: Any) -> list[tuple[str, str, Any, Any, bool]]:
    """Returns name, key, type and default of each field, and whether it is required."""
    if typing.is_typeddict(cls):
        hints = typing.get_type_hints(cls, include_extras=True)
        return [(name, name, hint, NOTHING, name in cls.__required_keys__) for name, hint in hints.items()]
    found = []
    for field in fields(cls):
        default = field.default.value if isinstance(field.default, Enum) else field.default
        # Nothing, and empty lists, are what is not there.
        told = default if isinstance(default, (str, bool, int, float)) else NOTHING
        needed = default is NOTHING and type(None) not in alternatives(bare(field.hint))
        found.append((field.name, field.key, field.hint, told, needed))
    return found


def _limits(limits: Limits | Rule) -> Object:
    if isinstance(limits, Rule):
        return {"x-kubernetes-validations": [_rule(limits)]}
    said = {spelled(field.name): getattr(limits, field.name) for field in dataclasses.fields(limits)}
    rules, kind, keys = said.pop("rules"), said.pop("listType"), said.pop("listMapKeys")
    found = {name: value for name, value in said.items() if value is not None}
    if rules:
        found["x-kubernetes-validations"] = [_rule(rule) for rule in rules]
    if kind:
        found["x-kubernetes-list-type"] = kind
    if keys:
        found["x-kubernetes-list-map-keys"] = list(keys)
    return found


def _rule(rule: Rule) -> Object:
    return {"rule": rule.rule, **({"message": rule.message} if rule.message else {})}


def _docs(cls: Any) -> dict[str, str]:
    """Returns the texts that stand below fields, by the names of these; none if there is no source."""
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(one)))
        except (OSError, TypeError, SyntaxError):
            continue
        body = tree.body[0].body if tree.body and isinstance(tree.body[0], ast.ClassDef) else []
        for field, text in zip(body, body[1:]):
            is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
            if is_text and isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                found[field.target.id] = inspect.cleandoc(text.value.value)  # type: ignore[attr-defined]
    return found


def _shown(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)

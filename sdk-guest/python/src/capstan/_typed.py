"""Decides how the classes of an author become JSON and back: how fields are spelled, and which class an argument is of."""

from __future__ import annotations

import builtins
import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple, Union

NOTHING = object()
"""What stands for a default that is not there."""


class Name(str):
    """How a field is spelled, where it does not follow from its name: `Annotated[str, Name("apiURL")]`."""


class Field(NamedTuple):
    """A field of a class."""

    name: str
    """Its name in the class."""
    key: str
    """Its name in JSON."""
    hint: Any
    """Its type, with what is annotated."""
    default: Any
    """Its default, or `NOTHING`."""


def spelled(name: str) -> str:
    """Returns the name of a field as Kubernetes spells it: `are_we_good` is `areWeGood`, and `from_`, which Python keeps for itself, is `from`."""
    first, *others = name.rstrip("_").split("_")
    return first + "".join(other[:1].upper() + other[1:] for other in others)


@lru_cache(maxsize=None)
def fields(cls: type) -> tuple[Field, ...]:
    """Returns the fields of a dataclass."""
    known = vars(sys.modules.get(cls.__module__, builtins))
    hints = {one.name: _hint(one.type, known) for one in dataclasses.fields(cls)}
    return tuple(Field(one.name, _key(one.name, hints[one.name]), hints[one.name], _default(one)) for one in dataclasses.fields(cls))


def plain(value: Any) -> dict[str, Any]:
    """Returns a dataclass as an object. A field that is `None` is not there: in Kubernetes, that is what a field is that says nothing."""
    found = ((field.key, getattr(value, field.name)) for field in fields(type(value)))
    return {key: sorted(inner) if isinstance(inner, (set, frozenset)) else inner for key, inner in found if inner is not None}


def reader(hint: Any) -> Callable[[Any], Any] | None:
    """Returns what makes a value of this type of JSON; `None` if JSON is one as it is."""
    return (lambda value: _read(hint, value, "")) if _is_made(hint) else None


def arguments(function: Callable[..., Any], count: int) -> list[Callable[[Any], Any] | None]:
    """Returns what makes the arguments of a function, for as many as it takes."""
    parameters = list(inspect.signature(function).parameters.values())[:count]
    known = getattr(inspect.unwrap(function), "__globals__", {})
    return [reader(_hint(parameter.annotation, known)) for parameter in parameters]


def _hint(annotation: Any, known: dict[str, Any]) -> Any:
    """Returns the type that is annotated; what type checkers alone can find is any."""
    holder = type("Holder", (), {"__annotations__": {"value": annotation}})
    try:
        return typing.get_type_hints(holder, known, include_extras=True)["value"]
    except (NameError, TypeError, AttributeError):
        return Any


def bare(hint: Any) -> Any:
    """Returns a type without what is annotated."""
    while typing.get_origin(hint) is typing.Annotated:
        hint = hint.__origin__
    return getattr(hint, "__supertype__", hint)


def alternatives(hint: Any) -> tuple[Any, ...]:
    """Returns the types that a value may have."""
    if typing.get_origin(hint) in (Union, getattr(types, "UnionType", Union)):
        return typing.get_args(hint)
    return (hint,)


def _key(name: str, hint: Any) -> str:
    said = getattr(hint, "__metadata__", ())
    return next((str(one) for one in said if isinstance(one, Name)), spelled(name))


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return NOTHING if field.default_factory is dataclasses.MISSING else field.default_factory()


def _is_class(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def _is_made(hint: Any) -> bool:
    hint = bare(hint)
    if _is_class(hint) or (isinstance(hint, type) and issubclass(hint, (Enum, date))):
        return True
    if typing.get_origin(hint) in (set, frozenset):
        return True
    return any(_is_made(inner) for inner in typing.get_args(hint) if inner is not type(None))


def _read(hint: Any, value: Any, place: str) -> Any:
    hint = bare(hint)
    if value is None or not _is_made(hint):
        return value
    kinds = [kind for kind in alternatives(hint) if kind is not type(None)]
    if len(kinds) > 1:
        return value
    kind = bare(kinds[0])
    origin = typing.get_origin(kind)
    inner = typing.get_args(kind)
    if _is_class(kind):
        return _made(kind, value, place) if isinstance(value, Mapping) else value
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if isinstance(kind, type) and issubclass(kind, date):
        return _moment(kind, value)
    if isinstance(value, Mapping) and origin is not None and len(inner) == 2:
        return {key: _read(inner[1], one, f"{place}.{key}") for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str) and inner:
        read = [_read(inner[0], one, f"{place}[{n}]") for n, one in enumerate(value)]
        return set(read) if origin in (set, frozenset) else read
    return value


def _made(cls: Any, value: Mapping[str, Any], place: str) -> Any:
    known = fields(cls)
    # Where a field may not be None, null is the same as nothing, as in Kubernetes.
    said = (field for field in known if field.key in value and (value[field.key] is not None or _may_be_none(field.hint)))
    given = {field.name: _read(field.hint, value[field.key], f"{place}.{field.key}") for field in said}
    for field in known:
        if field.name not in given and field.default is NOTHING:
            if type(None) not in alternatives(bare(field.hint)):
                raise TypeError(f"{f'{place}.{field.key}'.lstrip('.')} is missing, which {cls.__name__} needs")
            given[field.name] = None
    return cls(**given)


def _may_be_none(hint: Any) -> bool:
    hint = bare(hint)
    words = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    return hint in (Any, object) or type(None) in alternatives(hint) or None in words


def _moment(kind: type, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return datetime.fromisoformat(value.replace("Z", "+00:00")) if issubclass(kind, datetime) else date.fromisoformat(value)

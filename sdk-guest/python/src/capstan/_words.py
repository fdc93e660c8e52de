"""Checks what an author hands over, in tests as in a component: the component's boundary would end the instance instead of complaining."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

from capstan._json import printable


def words(literal: Any) -> tuple[str, ...]:
    """Returns the words of a `Literal`."""
    return get_args(literal)


def one_of(literal: Any, word: str, what: str) -> str:
    """Returns the word if it is one of the literal's; otherwise raises a `ValueError` that says which there are."""
    if word in words(literal):
        return word
    raise ValueError(f"there is no {what} {word!r}; there are: {', '.join(words(literal))}")


def text(value: Any, what: str) -> str:
    """Returns a text as it can be handed over; otherwise raises a `TypeError` that says what `what` should be."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str, not {value!r}")
    return printable(value)


def optional_text(value: Any, what: str) -> str | None:
    """As `text`, or `None`."""
    return None if value is None else text(value, what)


def namespace_of(value: Any) -> str | None:
    """Returns a namespace as it can be handed over, or `None`; an empty one is none, too."""
    return optional_text(value, "the namespace") or None


def number(value: Any, what: str) -> int | None:
    """Returns a number that can be handed over, or `None`; otherwise raises an error as `text` does."""
    if value is None:
        return None
    if not isinstance(value, int):
        raise TypeError(f"{what} is an int, not {value!r}")
    if not 0 <= value < 2**32:
        raise ValueError(f"{what} is between 0 and 4294967295, and {value} is not")
    return value


class Checked:
    """A dataclass whose texts and numbers are checked when it is made, and are then as they can be handed over."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            check = _CHECKS.get(str(field.type))
            if check:
                self._become(field.name, check(getattr(self, field.name), f"{type(self).__name__}.{field.name}"))

    def _become(self, name: str, value: Any) -> None:
        """Sets a field, which is frozen once the dataclass is made."""
        object.__setattr__(self, name, value)


_CHECKS = {"str": text, "str | None": optional_text, "int | None": number}

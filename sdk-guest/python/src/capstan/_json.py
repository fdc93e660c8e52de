"""Decides how values cross the component's boundary: as JSON, read and written here and nowhere else."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import date, datetime, timezone
from enum import Enum
from typing import Any

from capstan import _typed

_HALF = re.compile("[\ud800-\udfff]")

Object = dict[str, Any]
"""A Kubernetes object, or any other JSON object."""


def read(text: str) -> Any:
    """Returns the value of a document that the daemon has written."""
    return json.loads(text)


def write(value: Any, what: str) -> str:
    """Returns a value as JSON; dataclasses, dates and enumerations are written too. A `TypeError` says what `what` is not."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{what} is not JSON: {error}") from error
    return printable(text)


def write_object(value: Any, what: str) -> str:
    """Returns a JSON object as a text. A `TypeError` says what else `what` is."""
    text = write(value, what)
    if not text.startswith("{"):
        raise TypeError(f"{what} is {_said(value)}, not an object (a dict)")
    return text


def printable(text: str) -> str:
    """Returns a text that can be written in UTF-8: half a surrogate pair, which is a character for Python, becomes U+FFFD."""
    return text if text.isascii() else _HALF.sub("\ufffd", text)


def timestamp(moment: datetime) -> str:
    """Returns a point in time as Kubernetes writes it: `2026-01-31T12:00:00Z`. Without a zone it is in UTC."""
    if moment.tzinfo is not None:
        moment = moment.astimezone(timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _typed.plain(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return timestamp(value)
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} is neither dict, list, str, number, bool nor None")


def _said(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"

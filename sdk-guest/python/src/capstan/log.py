"""Writes to the daemon's log. Plugin, controller and primary are added to each line.

    info("published", page=name, replicas=2)

Lines of Python's own `logging` reach the same log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal

from capstan._daemon import daemon
from capstan._json import printable
from capstan._stack import stack

Level = Literal["trace", "debug", "info", "warn", "error"]
"""How important a line is: each step, for finding faults, worth knowing, odd but it goes on, something failed."""


def write(level: Level, message: str, fields: Mapping[str, Any] | None = None) -> None:
    """Writes a line. The message says what happened, the fields have the facts."""
    texts = {printable(name): printable(str(value)) for name, value in (fields or {}).items()}
    daemon().log(level, printable(message), texts)


def trace(message: str, /, **fields: Any) -> None:
    """Writes a line of the level `trace`: each step."""
    write("trace", message, fields)


def debug(message: str, /, **fields: Any) -> None:
    """Writes a line of the level `debug`: for finding faults."""
    write("debug", message, fields)


def info(message: str, /, **fields: Any) -> None:
    """Writes a line of the level `info`: worth knowing."""
    write("info", message, fields)


def warn(message: str, /, **fields: Any) -> None:
    """Writes a line of the level `warn`: odd, but it goes on."""
    write("warn", message, fields)


def error(message: str, /, **fields: Any) -> None:
    """Writes a line of the level `error`: something failed."""
    write("error", message, fields)


class Handler(logging.Handler):
    """Hands lines of Python's `logging` over: their logger, what `extra` adds and the stack of an exception become fields."""

    _usual = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line."""
        try:
            fields = {name: value for name, value in vars(record).items() if name not in self._usual}
            fields["logger"] = record.name
            if record.exc_info and record.exc_info[1]:
                fields["stack"] = stack(record.exc_info[1])
            write(self._level_of(record.levelno), record.getMessage(), fields)
        except Exception:
            self.handleError(record)

    @staticmethod
    def _level_of(number: int) -> Level:
        if number >= logging.ERROR:
            return "error"
        if number >= logging.WARNING:
            return "warn"
        if number >= logging.INFO:
            return "info"
        return "debug" if number >= logging.DEBUG else "trace"

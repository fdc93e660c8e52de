"""Decides what a failure of the author's code says: a text for the daemon, and the stack for its log."""

from __future__ import annotations

import contextlib

from capstan import log
from capstan._json import printable
from capstan._stack import stack
from capstan.errors import Error


def report(failure: BaseException) -> str:
    """Writes the stack of a failure to the log, and returns its text."""
    text = message(failure)
    # Whatever else goes wrong here, the text has to arrive.
    with contextlib.suppress(Exception):
        log.write("warn" if isinstance(failure, Error) else "error", text, {"stack": stack(failure)})
    return text


def message(failure: BaseException) -> str:
    """Returns the text of a failure: with its type, unless it is an `Error`."""
    name = type(failure).__qualname__
    try:
        text = printable(str(failure))
    except Exception:
        return name
    if not text:
        return name
    if isinstance(failure, ModuleNotFoundError):
        text += " (a component has what is imported at the top of a file, and nothing else)"
    return text if isinstance(failure, Error) else f"{name}: {text}"

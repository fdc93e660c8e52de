"""Decides how a stack is told: the author's frames, with the lines of their files, which a component does not have."""

from __future__ import annotations

import contextlib
import importlib
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_ROOT = re.compile(r"^/\d+/")
"""Where a folder of the author is while a component is made: `/0`, `/1`, …"""

_PACKAGE = Path(__file__).parent
_GLUE = {str(_PACKAGE / name) for name in ("__main__.py", "_calls.py", "_daemon.py", "build.py", "registry.py")} | {importlib.__file__}


def stack(failure: BaseException) -> str:
    """Returns the stack of a failure and of what it came from."""
    told = traceback.TracebackException.from_exception(failure)
    for part in _parts(told):
        part.stack[:] = [frame for frame in part.stack if not _is_glue(frame.filename)]
        for frame in part.stack:
            frame.filename = _ROOT.sub("", frame.filename)
    return "".join(told.format()).rstrip()


def author_files() -> list[str]:
    """Returns the files of the author's modules, as they are called while a component is made."""
    paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return sorted(path for path in paths if path and _ROOT.match(path))


def remember_sources() -> None:
    """Keeps the text of the author's modules, so that a stack shows their lines where there are no files."""
    for path in author_files():
        if not path.endswith(".py"):
            continue
        with contextlib.suppress(OSError, SyntaxError, UnicodeDecodeError):
            lines = linecache.getlines(path)
            # Without a time it is not looked for again.
            linecache.cache[path] = (sum(map(len, lines)), None, lines, path)


def load_late_imports() -> None:
    """Makes `traceback` import what it otherwise imports when it is needed, which would be too late in a component."""
    nothing: dict[str, Any] = {}
    failing: tuple[Callable[[], Any], ...] = (
        lambda: nothing["a"],
        lambda: nothing.pup,  # type: ignore[attr-defined]
        lambda: undefined,  # type: ignore[name-defined] # noqa: F821
        lambda: __import__("colections"),
        lambda: compile("a b", "a", "exec"),
        lambda: (1 + 1) + (1 / 0),
    )
    for fail in failing:
        try:
            fail()
        except Exception as failure:
            stack(failure)


def _is_glue(path: str) -> bool:
    return path in _GLUE or path.startswith((f"{_PACKAGE}/_wit/", "<frozen importlib"))


def _parts(told: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """Goes through a failure and those that it came from or consists of."""
    waiting = [told]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += [other for other in (part.__cause__, part.__context__) if other is not None]
        waiting += getattr(part, "exceptions", None) or []

"""Prepares a component while it is made, so that its instances start ready: what is in memory then is in memory later."""

from __future__ import annotations

import encodings.idna  # noqa: F401 - looked for when a host is named, which would be too late in a component
import logging
from pathlib import Path

from capstan import _stack, registry
from capstan.log import Handler

IMPORTED = "imported"
"""The file that says, beside the module that a component is made from, which files it has imported."""


def before() -> None:
    """Comes before the author's module is imported."""
    # Everything: the daemon decides which levels are of interest.
    logging.basicConfig(level=1, handlers=[Handler()])


def after(main: str) -> None:
    """Comes after it; `main` is the file of the module that imports it."""
    Path(main).with_name(IMPORTED).write_text("\n".join(_stack.author_files()))
    _stack.remember_sources()
    _stack.load_late_imports()
    for entry in registry.registered:
        entry.prepare()

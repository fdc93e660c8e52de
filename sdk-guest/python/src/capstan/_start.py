"""Prepares a component while it is made, so that its instances start ready: what is in memory then is in memory later."""

from __future__ import annotations

import logging

from capstan import _stack, registry
from capstan.log import Handler


def before() -> None:
    """Comes before the author's module is imported."""
    # Everything: the daemon decides which levels are of interest.
    logging.basicConfig(level=1, handlers=[Handler()])


def after() -> None:
    """Comes after it."""
    _stack.remember_sources()
    _stack.load_late_imports()
    for entry in registry.registered:
        entry.prepare()

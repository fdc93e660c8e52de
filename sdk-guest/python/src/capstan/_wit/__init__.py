"""Joins an author's functions to the generated bindings: one module per interface, imported in a component only.

The world that they are generated from is made by `capstan.build`; `wit_world` is what they are called there.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

from componentize_py_types import Err

from capstan._daemon import answered_by
from capstan._report import report
from capstan._wit.imports import Imports

_imports = Imports()
_is_fresh = True


def export(function: Callable[..., Any]) -> Callable[..., Any]:
    """Lets the daemon answer during a call, and turns whatever is raised into the contract's failure: an exception that got through would
    end the instance, and nobody would learn why."""

    @functools.wraps(function)
    def call(self: Any, *arguments: Any) -> Any:
        with answered_by(_imports):
            try:
                _begin()
                return function(self, *arguments)
            except BaseException as failure:
                text = report(failure)
        # Out here, because an `Err` is frozen and cannot pass through a context manager.
        raise Err(text)

    return call


def _begin() -> None:
    global _is_fresh
    if _is_fresh:
        # All instances begin with the memory that the component was built with, and would have the same luck.
        random.seed()
        _is_fresh = False

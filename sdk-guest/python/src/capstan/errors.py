"""Decides what counts as a failure: what an author raises, what the daemon refuses, and what an error handler is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from capstan.context import Retry

Reason = Literal[
    "denied",
    "invalid",
    "misplaced",
    "missing",
    "ambiguous",
    "conflict",
    "rejected",
    "unreachable",
    "failed",
    "exhausted",
    "other",
]
"""Why a call was refused: what a program decides on.

denied: the manifest does not permit it. invalid: an argument is wrong. misplaced: not possible in this call. missing: source, kind,
index, workflow or object does not exist. ambiguous: there are several and one was asked for. conflict: somebody else was faster.
rejected: the API server said no. unreachable: it could not be reached, or failed. failed: a node of a workflow failed. exhausted: a
limit of the manifest is reached.
"""

Origin = Literal["reconciler", "workflow", "update", "trap", "timeout", "out-of-memory", "other"]
"""Where a failure comes from: `reconcile` raised it, the managed workflow, the write that `reconcile` asked for, or the component
itself broke down."""


FailureClass = Literal["returned", "workflow", "conflict", "rejected", "trap", "timeout", "out-of-memory", "other"]
"""The class of a failure, as under `retry.by` in the manifest: the component raised it, dependents of the managed workflow, a write met a
newer version, a write was refused, or the component itself broke down."""


class Error(Exception):
    """A failure whose text says everything: it is reported as it stands.

    Any exception will do; others are reported with their type, as in `KeyError: 'html'`.
    """


class CallError(Error):
    """The daemon or the API server refused what was asked of it."""

    reason: Reason
    """Why: what a program decides on."""
    code: int | None
    """The API server's HTTP status, if it was asked."""

    def __init__(self, reason: Reason, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.code = code

    def __repr__(self) -> str:
        return f"CallError({self.reason!r}, {str(self)!r}, {self.code!r})"


@dataclass(frozen=True)
class DependentFailure:
    """A dependent that failed."""

    name: str
    """The dependent's name."""
    message: str
    """The text of the failure."""
    refused: Reason | None = None
    """How the API server refused, or that it could not be asked, if that is why."""

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


@dataclass(frozen=True)
class Failure:
    """What failed, for a function with `@handle_error`."""

    origin: Origin
    """Where it comes from."""
    message: str
    """The text of the failure."""
    retry: Retry
    """The retry state."""
    dependents: list[DependentFailure] = field(default_factory=list)
    """The dependents that failed; empty unless the origin is `workflow`."""
    refused: Reason | None = None
    """How the API server refused, or that it could not be asked, if that is why; `conflict` if all dependents that failed did for that."""

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class FailedRun:
    """What failed, for a function with `@decide_retry`."""

    failure_class: FailureClass
    """The class of the failure."""
    message: str
    """The text of the failure."""
    retry: Retry
    """The retry state."""

    def __str__(self) -> str:
        return self.message

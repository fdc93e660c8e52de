"""Says what is known about the run that the current call belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from capstan import _json
from capstan._daemon import daemon
from capstan._json import Object


@dataclass(frozen=True)
class Retry:
    """How often the primary has failed in a row."""

    attempt: int = 0
    """The number of retries so far; 0 at the first failure."""
    last: bool = False
    """True if no retry follows a failure of this run."""


@dataclass(frozen=True)
class RunInfo:
    """What is known about a run from its start."""

    controller: str
    """The controller's name."""
    retry: Retry | None = None
    """The retry state; `None` on a fresh run."""
    primary_deleted: bool = False
    """In all-events mode: the primary is gone, and the object is the last one known."""
    final_state_unknown: bool = False
    """In all-events mode: the deletion was missed, so there may have been later versions."""


def run() -> RunInfo | None:
    """Returns the current run; `None` in a call outside a run."""
    return daemon().run()


def retry() -> Retry | None:
    """Returns the retry state; `None` on a fresh run."""
    info = run()
    return info.retry if info else None


def next_imminent() -> bool:
    """Says whether an event for this primary is waiting already, so that another run follows at once."""
    return daemon().next_imminent()


def time_left() -> float:
    """Returns how many seconds the current call may still take."""
    return daemon().time_left_ms() / 1000


def settings() -> Object:
    """Returns the settings in force: `controller` as in the manifest, and `daemon` with identity, namespace and version."""
    settings: Object = _json.read(daemon().settings())
    return settings

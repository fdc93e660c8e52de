"""Expects one thing of each primary to come true in time. The daemon keeps it; the component itself finds out whether it has.

    def is_ready():
        deployment = secondary("deployment")
        return deployment is not None and deployment["status"].get("readyReplicas") == 3

    @reconcile
    def webpage(page):
        outcome = expectations.check("ready", is_ready)
        if outcome is None and expectations.check_and_set("ready", 30, is_ready):
            return Update(reschedule=30)
        ...

Nothing calls the component when the time is over: reschedule. An expectation is lost when the daemon stops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from capstan._daemon import daemon
from capstan._words import text
from capstan.answers import Duration, millis

Outcome = Literal["fulfilled", "timed-out", "pending"]
"""What has become of an expectation. fulfilled: it has come true, and is expected no more. timed-out: its time is over; it is expected until
it is cleared or replaced. pending: it has not come true yet."""


@dataclass(frozen=True)
class Expectation:
    """What is expected."""

    name: str
    """Its name."""
    timed_out: bool = False
    """True once its time is over."""


def expect(name: str, timeout: Duration) -> None:
    """Expects something of the primary, in place of anything else. Refused as `invalid` for a name that is empty or longer than 253 bytes."""
    daemon().expect(text(name, "an expectation"), millis(timeout))


def pending() -> Expectation | None:
    """Returns what is expected of the primary."""
    return daemon().pending_expectation()


def clear(name: str) -> bool:
    """Expects this no more. Returns whether it was expected."""
    return daemon().clear_expectation(text(name, "an expectation"))


def check_and_set(name: str, timeout: Duration, is_so: Callable[[], bool]) -> bool:
    """Expects something, unless it is so already. Returns whether it is expected now."""
    if is_so():
        return False
    expect(name, timeout)
    return True


def check(name: str, is_so: Callable[[], bool]) -> Outcome | None:
    """Returns what has become of an expectation; `None` if nothing of this name is expected."""
    expected = pending()
    if expected is None or expected.name != name:
        return None
    if is_so():
        clear(name)
        return "fulfilled"
    return "timed-out" if expected.timed_out else "pending"

"""Records Kubernetes Events about the primary, which `kubectl describe` shows. Best effort.

recorder.normal("Published", "the page is online")
recorder.warning("NoTheme", "the theme is not there yet", key="theme")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypedDict

from capstan._daemon import daemon
from capstan._words import Checked, text

if TYPE_CHECKING:
    from typing_extensions import Unpack

Severity = Literal["normal", "warning"]
"""How serious it is."""


class Details(TypedDict, total=False):
    """What may be said about an Event beside its reason and message."""

    key: str | None
    """Events with the same key are counted as one; otherwise those with the same message."""
    action: str | None
    """What was being done."""
    component: str | None
    """Who reports it, kept as the annotation `capstan.dev/component`; the controller, if not given."""
    labels: Mapping[str, str]
    """Labels of the Event."""
    annotations: Mapping[str, str]
    """Annotations of the Event."""


@dataclass(frozen=True)
class Event(Checked):
    """A Kubernetes Event."""

    severity: Severity
    reason: str
    message: str
    key: str | None = None
    action: str | None = None
    component: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for of, what in (("labels", "label"), ("annotations", "annotation")):
            pairs = (getattr(self, of) or {}).items()
            self._become(of, {text(name, f"the name of a {what}"): text(value, f"the {what} {name}") for name, value in pairs})


def normal(reason: str, message: str, **details: Unpack[Details]) -> None:
    """Records that all is as it should be. The reason is one word in CamelCase, the message a sentence."""
    daemon().publish(Event("normal", reason, message, **details))


def warning(reason: str, message: str, **details: Unpack[Details]) -> None:
    """Records that somebody should look. The reason is one word in CamelCase, the message a sentence."""
    daemon().publish(Event("warning", reason, message, **details))

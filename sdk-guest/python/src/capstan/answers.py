"""Decides what an author's functions can answer."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, Union

from capstan import _json
from capstan._json import Object

Duration = Union[timedelta, float]
"""How long: a `timedelta`, or a number of seconds."""

_LONGEST = 2**32 - 1
_NO_DURATION = "is no duration; it is a timedelta, or a number of seconds, from 0 on"


@dataclass(frozen=True)
class Update:
    """What to write to the primary, and when to come back. `Update()` writes nothing, as does `None`.

    Kind, name and namespace are filled in by the daemon; what would change nothing is not sent.
    """

    status: Any = None
    """The status to write, a dict or a dataclass."""
    object: Any = None
    """The object to write, without its status. With server-side apply, which is the default: the fields that this controller owns and
    no others."""
    reschedule: Duration | None = None
    """Run again after so long, 49 days at most; otherwise at the next event."""
    only_at: str | None = None
    """Write only if the primary still has this `metadata.resourceVersion`; otherwise the run fails with a conflict."""

    def __post_init__(self) -> None:
        _check(self.reschedule)

    def document(self) -> str | None:
        """Returns the JSON to write, if any."""
        if self.status is None and self.object is None:
            return None
        document: Object = {}
        if self.object is not None:
            document = _json.read(_json.write_object(self.object, "Update.object"))
        if self.status is not None:
            document["status"] = _json.read(_json.write_object(self.status, "Update.status"))
        if self.only_at is not None:
            document["metadata"] = {**(document.get("metadata") or {}), "resourceVersion": self.only_at}
        return _json.write(document, "Update")


@dataclass(frozen=True)
class Deletion:
    """The answer of `@cleanup`. `Deletion()` says that the primary may go, as does `None`."""

    keep_finalizer: bool = False
    """It may not go yet: the function is called again at the next event."""
    reschedule: Duration | None = None
    """Call it again after so long, too, if the finalizer is kept."""

    def __post_init__(self) -> None:
        _check(self.reschedule)


@dataclass(frozen=True)
class Handled:
    """The answer of `@handle_error` that a failure is dealt with: it is logged once for each cause. `stop`, `reschedule` and `retry_after` exclude each other."""

    status: Any = None
    """The status to write, a dict or a dataclass."""
    stop: bool = False
    """Do not retry: wait for the next event. Otherwise it is retried as the manifest says."""
    reschedule: Duration | None = None
    """Do not retry, but run again after so long."""
    retry_after: Duration | None = None
    """Retry after so long, in place of the delay that the manifest says. It uses up an attempt, and none follows the last one."""

    def __post_init__(self) -> None:
        _check(self.reschedule, self.retry_after)
        if bool(self.stop) + (self.retry_after is not None) + (self.reschedule is not None) > 1:
            raise ValueError("Handled: stop, retry_after and reschedule exclude each other")

    def document(self) -> str | None:
        """Returns the JSON to write, if any."""
        if self.status is None:
            return None
        return '{"status":' + _json.write_object(self.status, "Handled.status") + "}"


@dataclass(frozen=True)
class NextRetry:
    """The answer of `@decide_retry`. `NextRetry()` is as the manifest says, as is `None`. `after` and `stop` exclude each other."""

    after: Duration | None = None
    """Retry after so long, in place of the delay that the manifest says. It uses up an attempt, and none follows the last one."""
    stop: bool = False
    """Do not retry: wait for the next event."""

    def __post_init__(self) -> None:
        _check(self.after)
        if self.stop and self.after is not None:
            raise ValueError("NextRetry: after and stop exclude each other")


@dataclass(frozen=True)
class Met:
    """The answer of `@condition` with something to remember. Without that, a bool will do."""

    met: bool
    """True if the condition is met."""
    detail: Any = None
    """Found in the result of the workflow; anything that is JSON. A text is shown in the status as well."""


@dataclass(frozen=True)
class Created:
    """The answer of `@create_external` with an object that remembers the id. Without that, the thing will do."""

    thing: Any
    """The thing as it is now, with its id where the source's `id` in the manifest says."""
    state: Any = None
    """The Kubernetes object that remembers the id, as `@desired` would return it; only with `state` in the manifest. It is written at once, and
    deleted together with the thing."""


@dataclass(frozen=True)
class Things:
    """The answer of `@poll_one` with a time. Without that, a list will do."""

    things: Sequence[Any] = ()
    """The things of the primary, each with an id where the manifest says."""
    again: Duration | None = None
    """Read them again after so long, in place of the manifest's period; 49 days at most."""

    def __post_init__(self) -> None:
        _check(self.again)


@dataclass(frozen=True)
class Request:
    """A request from outside, for `@receive`. The daemon has checked its sender as the manifest says."""

    path: str = ""
    """What follows the source's own address, with the query."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers, names in small letters; values of one name are joined by `, `."""
    body: str = ""
    """The body, as a text, or in base64 if the manifest says so."""

    def json(self) -> Any:
        """Returns the body, read as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Problem:
    """What is wrong with a primary, for `@validate`."""

    message: str
    """What was found, and what would be right: it is shown in the status and in an Event, so no secrets in it."""
    field: str | None = None
    """The field, as people write it: `spec.replicas`; `None` for the primary as a whole."""


@dataclass(frozen=True)
class Told:
    """What a request says of a primary: that it has a thing, that one is gone, or, without either, only that it should run. Where the manifest
    says `fetch`, the latter has `@poll_one` read its things, and it runs if they have changed."""

    namespace: str | None
    """The primary's namespace; `None` if it lives in none."""
    name: str
    """The primary's name."""
    present: Any = None
    """A thing that is new or has changed, with an id where the manifest says."""
    gone: str | int | None = None
    """The id of a thing that is gone."""


@dataclass(frozen=True)
class Received:
    """The answer of `@receive`, which is sent once the primaries that it concerns are in the queue."""

    events: Sequence[Told] = ()
    """What the request says of primaries, in order."""
    status: int = 202
    """The HTTP status, from 200 to 599."""
    text: str = ""
    """The body of the answer."""


Key = Union[str, tuple[Union[str, None], str]]
"""The name of an object, for `@to_primaries` and `@to_secondaries`: `"name"`, `"namespace/name"` or `(namespace, name)`. Without a
namespace it is in that of the object that the function is given, or it lives in none."""


@dataclass(frozen=True)
class Change:
    """What happened to an object, for `@accepts`."""

    sort: Literal["added", "updated", "deleted"]
    """The sort of change."""
    object: Object
    """The object as it is, or was last seen."""
    before: Object | None = None
    """The object as it was before an update."""
    final_state_unknown: bool = False
    """True if a deletion was missed, so that there may have been later versions."""


def millis(duration: Duration) -> int:
    """Returns the whole milliseconds that the contract can say. A `TypeError` or `ValueError` says what is no duration."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{duration!r} {_NO_DURATION}")
    if not 0 <= seconds or seconds == math.inf:
        raise ValueError(f"{duration!r} {_NO_DURATION}")
    return min(round(seconds * 1000), _LONGEST) if seconds < _LONGEST else _LONGEST


def _check(*durations: Duration | None) -> None:
    """Finds what is no duration where it is said, in the author's own function."""
    for duration in durations:
        if duration is not None:
            millis(duration)

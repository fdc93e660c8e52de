"""Decides what becomes of the conditions in a status when one of them is set."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from capstan import system
from capstan._words import one_of, text

Truth = Literal["True", "False", "Unknown"]
"""Whether a condition is so."""


class _Condition(TypedDict):
    type: str
    """What is or is not so, in CamelCase."""
    status: Truth
    """Whether it is."""


class StatusCondition(_Condition, total=False):
    """A condition in the status of a primary, as Kubernetes knows it."""

    observedGeneration: int
    """The generation of the primary of which that is known."""
    lastTransitionTime: str
    """Since when it is, in RFC 3339; set by `set_condition`."""
    reason: str
    """Why, as one word in CamelCase."""
    message: str
    """Why, for people."""


def set_condition(
    conditions: list[Any],
    type: str,
    status: bool | Truth,
    reason: str,
    message: str = "",
    *,
    generation: int | None = None,
) -> bool:
    """Puts a condition in the place of the one of its type, or behind the others. Its time is kept as long as its status is, else it is now.
    Returns whether anything is different.

        conditions = list(page.get("status", {}).get("conditions", []))
        set_condition(conditions, "Synced", True, "UpToDate", generation=page["metadata"]["generation"])
        return Update(status={"conditions": conditions})

    Where the manifest says `statusConditions: standard`, `Ready`, `Progressing` and `Degraded` are the daemon's, and what is answered in
    their place is left out.
    """
    kind = text(type, "the type of a condition")
    word = str(status) if isinstance(status, bool) else one_of(Truth, status, "status of a condition")
    old = next((one for one in conditions if one.get("type") == kind), None)
    since = old.get("lastTransitionTime") if old is not None and old.get("status") == word else None
    new: dict[str, Any] = {"type": kind, "status": word}
    if generation is not None:
        new["observedGeneration"] = generation
    new["lastTransitionTime"] = since or system.timestamp()
    new["reason"] = text(reason, "the reason of a condition")
    new["message"] = text(message, "the message of a condition")
    if old == new:
        return False
    if old is None:
        conditions.append(new)
    else:
        conditions[conditions.index(old)] = new
    return True

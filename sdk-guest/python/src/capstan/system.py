"""Time and chance, from the daemon, which can record and replay them."""

from __future__ import annotations

from datetime import datetime, timezone

from capstan._daemon import daemon
from capstan._json import timestamp as _written

_PIECE = 4096


class Time(datetime):
    """A point in time, which as a text is fit for a status: `2026-01-31T12:00:00Z`."""

    def __str__(self) -> str:
        return _written(self)


def now() -> Time:
    """Returns the time, in UTC."""
    return Time.fromtimestamp(daemon().now_ms() / 1000, timezone.utc)


def now_ms() -> float:
    """Returns the time in milliseconds since 1970, with fractions."""
    return daemon().now_ms()


def timestamp() -> str:
    """Returns the time as Kubernetes writes it: `2026-01-31T12:00:00Z`."""
    return daemon().now()


def random_bytes(length: int) -> bytes:
    """Returns random bytes."""
    pieces = (min(_PIECE, length - start) for start in range(0, length, _PIECE))
    return b"".join(daemon().random_bytes(piece) for piece in pieces)


def uuid() -> str:
    """Returns a random UUID (version 4)."""
    return daemon().uuid()

"""Keeps values in the daemon, because instances share nothing and do not last.

    memo.primary["seen"] = memo.primary.get("seen", 0) + 1

A value is anything that is JSON. What is read is a copy: change it and assign it again.
"""

from __future__ import annotations

from typing import Any, Literal

from capstan import _json
from capstan._daemon import daemon
from capstan._words import text

Lifetime = Literal["run", "primary", "plugin"]
"""How long a value is kept: as long as the run, the primary, or the loaded version of the plugin."""


class Memo:
    """Values of one lifetime, by key."""

    def __init__(self, lifetime: Lifetime) -> None:
        self._lifetime: Lifetime = lifetime

    def get(self, key: str, default: Any = None) -> Any:
        """Returns the value of a key, or the default."""
        document = self._document(key)
        return default if document is None else _json.read(document)

    def __getitem__(self, key: str) -> Any:
        document = self._document(key)
        if document is None:
            raise KeyError(key)
        return _json.read(document)

    def __setitem__(self, key: str, value: Any) -> None:
        document = _json.write(value, f"memo.{self._lifetime}[{key!r}]")
        daemon().memo_put(self._lifetime, text(key, "a key"), document)

    def __delitem__(self, key: str) -> None:
        daemon().memo_put(self._lifetime, text(key, "a key"), None)

    def __contains__(self, key: object) -> bool:
        return self._document(key) is not None

    # The daemon lists no keys: without this, `in` and `for` would try the keys 0, 1, 2, …
    __iter__ = None

    def _document(self, key: object) -> str | None:
        return daemon().memo_get(self._lifetime, text(key, "a key"))

    def __repr__(self) -> str:
        return f"<capstan.memo.{self._lifetime}>"


run = Memo("run")
"""Kept as long as the run: hands values from one call to another, such as from `reconcile` to `desired`."""
primary = Memo("primary")
"""Kept as long as the primary; lost when the daemon stops."""
plugin = Memo("plugin")
"""Kept as long as this version of the plugin is loaded. All its runs share it; the last writer wins."""

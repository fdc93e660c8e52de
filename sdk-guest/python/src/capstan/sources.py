"""Event sources that come and go while the controller runs.

    @reconcile
    def webpage(page):
        sources.register("keys", {"informer": {"apiVersion": "v1", "kind": "Secret"}})
        return Update(status={"keys": len(secondaries("keys"))})

A source is one of the controller: it wakes all primaries that its objects belong to. Register it in each run; where it is there already, that
costs nothing. The manifest has to permit `watch` on the kind.
"""

from __future__ import annotations

from capstan import _json
from capstan._daemon import daemon
from capstan._json import Object
from capstan._words import text


def register(name: str, declaration: Object) -> bool:
    """Starts a source, declared as in the manifest under `sources`, and waits until its cache is filled. Returns False if there is one of that
    name, which is then kept."""
    return daemon().register(text(name, "a source"), _json.write_object(declaration, "a declaration"))


def remember(name: str, actual: Object, replaced: Object | None = None) -> None:
    """Tells a source of things outside of the cluster that this run has made a thing for its primary, or put it in the place of `replaced`: it
    is read from now on, and the next poll does not undo it. Nothing happens if something newer is known already."""
    before = None if replaced is None else _json.write_object(replaced, "what it replaces")
    daemon().remember(text(name, "a source"), _json.write_object(actual, "a thing"), before)


def forget(name: str, id: str) -> None:
    """Tells a source of things outside of the cluster that this run has removed its primary's thing with this id."""
    daemon().forget(text(name, "a source"), text(id, "an id"))


def deregister(name: str) -> None:
    """Stops a source that was started by `register`, if there is one."""
    daemon().deregister(text(name, "a source"))

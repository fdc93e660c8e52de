"""Exports `poller`."""

from wit_world.exports import poller as wit
from wit_world.imports import types

from capstan import _calls
from capstan._wit import export


class Poller:
    """The daemon's view of `@poll`."""

    @export
    def poll(self, name: str) -> list[wit.PrimaryResources]:
        return [
            wit.PrimaryResources(types.ObjectKey(namespace, primary), things) for namespace, primary, things in _calls.poll(name)
        ]

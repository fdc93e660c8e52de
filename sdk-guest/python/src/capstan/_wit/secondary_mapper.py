"""Exports `secondary-mapper`."""

from wit_world.imports import types

from capstan import _calls
from capstan._wit import export


class SecondaryMapper:
    """The daemon's view of `@to_secondaries`."""

    @export
    def to_secondaries(self, name: str, primary: str) -> list[types.ObjectKey]:
        return [types.ObjectKey(namespace, key) for namespace, key in _calls.to_secondaries(name, primary)]

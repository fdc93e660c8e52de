"""Exports `mapper`."""

from wit_world.imports import types

from capstan import _calls
from capstan._wit import export


class Mapper:
    """The daemon's view of `@to_primaries`."""

    @export
    def to_primaries(self, name: str, secondary: str) -> list[types.ObjectKey]:
        return [types.ObjectKey(namespace, key) for namespace, key in _calls.to_primaries(name, secondary)]

"""Exports `initializer`."""

from capstan import _calls
from capstan._wit import export


class Initializer:
    """The daemon's view of `@initialize`."""

    @export
    def initialize(self, primary: str) -> None:
        _calls.initialize(primary)

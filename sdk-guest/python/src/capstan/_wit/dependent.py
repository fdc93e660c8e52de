"""Exports `dependent`."""

from capstan import _calls
from capstan._wit import export


class Dependent:
    """The daemon's view of `@desired`."""

    @export
    def desired(self, name: str, primary: str) -> str:
        return _calls.desired(name, primary)

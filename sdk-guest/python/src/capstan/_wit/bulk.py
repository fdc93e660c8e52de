"""Exports `bulk`."""

from capstan import _calls
from capstan._wit import export


class Bulk:
    """The daemon's view of `@desired_set`."""

    @export
    def desired_set(self, name: str, primary: str) -> list[str]:
        return _calls.desired_set(name, primary)

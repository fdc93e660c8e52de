"""Exports `matcher`."""

from wit_world.imports import types

from capstan import _calls
from capstan._wit import export


class Matcher:
    """The daemon's view of `@match`."""

    @export
    def match(self, name: str, actual: str, desired: str, primary: str) -> types.MatchResult:
        differs = _calls.match(name, actual, desired, primary)
        return types.MatchResult_Matches() if differs is None else types.MatchResult_Differs(differs)

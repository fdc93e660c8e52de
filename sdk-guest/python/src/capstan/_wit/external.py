"""Exports `external`."""

from wit_world.exports import external as wit

from capstan import _calls
from capstan._wit import export


class External:
    """The daemon's view of `@create_external`, `@update_external` and `@remove_external`."""

    @export
    def create(self, name: str, desired: str, primary: str) -> wit.Created:
        thing, state = _calls.create(name, desired, primary)
        return wit.Created(thing, state)

    @export
    def update(self, name: str, actual: str, desired: str, primary: str) -> str:
        return _calls.update(name, actual, desired, primary)

    @export
    def remove(self, name: str, actual: str, primary: str) -> None:
        _calls.remove(name, actual, primary)

"""Exports `filter`."""

from wit_world.exports import filter as wit

from capstan import _calls, _json
from capstan._wit import export
from capstan.answers import Change


class Filter:
    """The daemon's view of `@accepts`."""

    @export
    def accepts(self, name: str, change: wit.Change) -> bool:
        return _calls.accepts(name, _change(change))


def _change(change: wit.Change) -> Change:
    if isinstance(change, wit.Change_Added):
        return Change("added", _json.read(change.value))
    if isinstance(change, wit.Change_Updated):
        return Change("updated", _json.read(change.value.after), _json.read(change.value.before))
    return Change("deleted", _json.read(change.value.last), final_state_unknown=change.value.final_state_unknown)

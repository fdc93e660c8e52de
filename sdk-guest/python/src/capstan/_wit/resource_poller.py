"""Exports `resource-poller`."""

from wit_world.exports import resource_poller as wit

from capstan import _calls
from capstan._wit import export
from capstan.answers import millis


class ResourcePoller:
    """The daemon's view of `@poll_one`."""

    @export
    def poll_one(self, name: str, primary: str) -> wit.PollResult:
        things, again = _calls.poll_one(name, primary)
        return wit.PollResult(things, None if again is None else millis(again))

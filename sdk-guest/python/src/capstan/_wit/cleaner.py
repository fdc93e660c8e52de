"""Exports `cleaner`."""

from wit_world.exports import cleaner as wit

from capstan import _calls
from capstan._wit import export
from capstan.answers import millis


class Cleaner:
    """The daemon's view of `@cleanup`."""

    @export
    def cleanup(self, primary: str) -> wit.DeleteControl:
        deletion = _calls.cleanup(primary)
        if deletion is None or not deletion.keep_finalizer:
            return wit.DeleteControl_RemoveFinalizer()
        return wit.DeleteControl_KeepFinalizer(None if deletion.reschedule is None else millis(deletion.reschedule))

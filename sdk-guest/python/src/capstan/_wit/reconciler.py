"""Exports `reconciler`."""

from wit_world.exports import reconciler as wit

from capstan import _calls
from capstan._wit import export
from capstan.answers import Update, millis


class Reconciler:
    """The daemon's view of `@reconcile`."""

    @export
    def reconcile(self, primary: str) -> wit.UpdateControl:
        answer = _calls.reconcile(primary)
        after = None if answer.reschedule is None else millis(answer.reschedule)
        return wit.UpdateControl(_update(answer), after)


def _update(answer: Update) -> wit.PrimaryUpdate:
    document = answer.document()
    if document is None:
        return wit.PrimaryUpdate_Nothing()
    if answer.object is None:
        return wit.PrimaryUpdate_Status(document)
    if answer.status is None:
        return wit.PrimaryUpdate_Object(document)
    return wit.PrimaryUpdate_ObjectAndStatus(document)

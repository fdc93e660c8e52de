"""Exports `description`."""

from wit_world.exports import description as wit

from capstan import registry
from capstan._wit import export


class Description:
    """Which names the author's functions answer to."""

    @export
    def describe(self) -> list[wit.KnownNames]:
        return [wit.KnownNames(known.interface.wit, known.controller, known.names) for known in registry.described()]

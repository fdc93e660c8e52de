"""Exports `inbound`."""

from wit_world.exports import inbound as wit
from wit_world.imports import types

from capstan import _calls
from capstan._wit import export
from capstan.answers import Request


class Inbound:
    """The daemon's view of `@receive`."""

    @export
    def receive(self, name: str, request: wit.InboundRequest) -> wit.InboundAnswer:
        headers: dict[str, str] = {}
        for pair in request.headers:
            headers[pair.name] = f"{headers[pair.name]}, {pair.value}" if pair.name in headers else pair.value
        status, text, events = _calls.receive(name, Request(request.path, headers, request.body))
        return wit.InboundAnswer(status, text, [_event(*event) for event in events])


def _event(namespace: str | None, name: str, present: str | None, gone: str | None) -> types.SourceEvent:
    primary = types.ObjectKey(namespace, name)
    if present is not None:
        return types.SourceEvent(primary, types.Learned_Present(present))
    if gone is not None:
        return types.SourceEvent(primary, types.Learned_Gone(gone))
    return types.SourceEvent(primary, types.Learned_Wake())

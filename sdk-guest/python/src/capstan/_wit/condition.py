"""Exports `condition`."""

from wit_world.exports import condition as wit

from capstan import _calls, _json
from capstan._wit import export


class Condition:
    """The daemon's view of `@condition`."""

    @export
    def is_met(self, name: str, dependent: str, primary: str) -> wit.ConditionResult:
        answer = _calls.is_met(name, dependent, primary)
        detail = None if answer.detail is None else _json.write(answer.detail, "Condition.detail")
        return wit.ConditionResult(bool(answer.met), detail)

"""Exports `validator`."""

from __future__ import annotations

from wit_world.exports import validator as wit

from capstan import _calls
from capstan._wit import export


class Validator:
    """The daemon's view of `@validate`."""

    @export
    def validate(self, primary: str, old: str | None) -> list[wit.Problem]:
        return [wit.Problem(problem.field, problem.message) for problem in _calls.validate(primary)]

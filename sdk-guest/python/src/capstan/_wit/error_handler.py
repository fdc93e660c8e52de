"""Exports `error-handler`."""

from typing import cast

from wit_world.exports import error_handler as wit
from wit_world.imports import types

from capstan import _calls
from capstan._wit import export
from capstan._wit.imports import word
from capstan.answers import Handled, millis
from capstan.context import Retry
from capstan.errors import DependentFailure, Failure, Origin, Reason


class ErrorHandler:
    """The daemon's view of `@handle_error`."""

    @export
    def handle_error(self, primary: str, failed: wit.FailureInfo) -> wit.ErrorControl:
        handled = _calls.handle_error(primary, _failure(failed))
        if handled is None:
            return wit.ErrorControl_Unhandled()
        return wit.ErrorControl_Handled(wit.ErrorHandling(handled.document(), _next(handled)))


def _failure(failed: wit.FailureInfo) -> Failure:
    return Failure(
        origin=cast(Origin, word(failed.origin)),
        message=failed.message,
        retry=Retry(failed.retry.attempt, failed.retry.last),
        dependents=[DependentFailure(one.name, one.message, _reason(one.refused)) for one in failed.dependents],
        refused=_reason(failed.refused),
    )


def _reason(refused: types.CallReason | None) -> Reason | None:
    return None if refused is None else cast(Reason, word(refused))


def _next(handled: Handled) -> wit.NextStep:
    if handled.reschedule is not None:
        return wit.NextStep_RescheduleMs(millis(handled.reschedule))
    if handled.retry_after is not None:
        return wit.NextStep_RetryAfterMs(millis(handled.retry_after))
    return wit.NextStep_Stop() if handled.stop else wit.NextStep_Retry()

"""Exports `retry-policy`."""

from typing import cast

from wit_world.exports import retry_policy as wit

from capstan import _calls
from capstan._wit import export
from capstan._wit.imports import word
from capstan.answers import NextRetry, millis
from capstan.context import Retry
from capstan.errors import FailedRun, FailureClass


class RetryPolicy:
    """The daemon's view of `@decide_retry`."""

    @export
    def decide_retry(self, primary: str, failed: wit.FailedRun) -> wit.NextRetry:
        retry = Retry(failed.retry.attempt, failed.retry.last)
        return _next(_calls.decide_retry(primary, FailedRun(cast(FailureClass, word(failed.failure_class)), failed.message, retry)))


def _next(next_retry: NextRetry) -> wit.NextRetry:
    if next_retry.stop:
        return wit.NextRetry_Stop()
    if next_retry.after is not None:
        return wit.NextRetry_AfterMs(millis(next_retry.after))
    return wit.NextRetry_Declared()

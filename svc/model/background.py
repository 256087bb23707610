"""Work that nothing waits for."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure


def run_in_background(work: Coroutine[Any, Any, None], log: Logger, failed: str) -> Deferred[None]:
    """Begin ``work``, and write an exception to ``log`` with the sentence ``failed``, unless the work was cancelled."""

    def log_failure(failure: Failure) -> None:
        if not failure.check(CancelledError):
            log.failure(failed, failure)

    return Deferred.fromCoroutine(work).addErrback(log_failure)

"""Run work to its end although its caller is cancelled.

Note [Shielded transactions]

A request is cancelled when its client leaves. Cancelled in the middle of a transaction, a connection would go back to the
pool with it open, and the next borrower's statements be rolled back with it. So cancellation stops here: the caller's
Deferred fails at once, the work goes on behind it, commits or rolls back, and gives its connection back.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.model.errors import Refusal
from svc.storage.driver.failures import Contention

T = TypeVar("T")

_log = Logger()


def run_to_end(work: Coroutine[Deferred[Any], Any, T]) -> Deferred[T]:
    """Run ``work`` to its end; the Deferred that is returned can be cancelled without disturbing it.

    When the caller has left, a result is dropped and so is a refusal; another exception, which is a bug, is logged.
    """
    outer: Deferred[T] = Deferred()

    def report_failure(failure: Failure) -> None:
        if outer.called and not failure.check(Refusal, Contention):
            _log.failure("Work that its caller had left failed", failure)
        outer.errback(failure)

    Deferred.fromCoroutine(work).addCallbacks(outer.callback, report_failure)
    return outer

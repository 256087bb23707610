"""Threads for passwords, in memory: what they are given is done when a test says so, or at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.crypto.passwords import HashCost, Passwords

#: A hash that costs next to nothing.
CHEAP: Final = HashCost(8, 1, 1)


@implementer(IReactorFromThreads)
class Threads(Clock):
    """A pool of threads, and the reactor to which it reports. While it is ``busy``, what it is given waits in ``work``."""

    max = 1

    def __init__(self) -> None:
        super().__init__()
        self.busy = False
        self.started = False
        self.work: list[Callable[[], None]] = []
        #: How much has been done.
        self.done = 0

    def start(self) -> None:
        """Let work be done."""
        self.started = True

    def stop(self) -> None:
        """Do what is left."""
        self.started = False
        self.run()

    def callInThreadWithCallback(self, report: Callable[[bool, Any], None], work: Callable[[], Any]) -> None:
        """Take a piece of work."""

        def do() -> None:
            self.done += 1
            try:
                result = work()
            except Exception:
                report(False, Failure())
            else:
                report(True, result)

        self.work.append(do)
        if not self.busy:
            self.run()

    def run(self, most: int = 10**6) -> None:
        """Do what waits, no more of it than ``most``."""
        for _ in range(min(most, len(self.work))):
            self.work.pop(0)()

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None:  # noqa: A002
        """Call it."""
        callable(*args, **kwargs)


def passwords_in(threads: Threads, waiting: int = 4) -> Passwords:
    """Passwords that these threads hash, cheaply; who is refused waits for half of the longest moment."""
    pool: Any = threads
    return Passwords(threads, pool, waiting=waiting, cost=CHEAP, chance=lambda: 0.5)

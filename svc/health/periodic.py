"""Work at a steady pace, which can be triggered between two of its times."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure


class PeriodicTask:
    """Does ``work`` every ``interval`` seconds, once at a time; ``failed`` is called when it raised, which ends the task."""

    def __init__(
        self, clock: IReactorTime, interval: float, work: Callable[[], Awaitable[None]], failed: Callable[[Failure], object]
    ) -> None:
        #: Whether the work begins again as soon as that which is under way has ended.
        self.triggered = False
        self._interval, self._work, self._failed = interval, work, failed
        self._under_way = False
        self._loop = LoopingCall(self._run)
        self._loop.clock = clock

    @property
    def running(self) -> bool:
        """Whether it was started, and not stopped since."""
        return self._loop.running

    def start(self) -> None:
        """Begin the work now."""
        self._loop.start(self._interval).addErrback(self._failed)

    def trigger(self) -> None:
        """Begin the work now, or again as soon as that which is under way has ended, since something has changed."""
        if self._under_way:
            self.triggered = True
        elif self.running:
            self._loop.stop()
            self.start()

    def stop(self) -> None:
        """Begin the work no more; that which is under way goes on."""
        if self.running:
            self._loop.stop()

    async def _run(self) -> None:
        self._under_way = True
        while True:
            self.triggered = False
            await self._work()
            if not self.triggered or not self.running:
                break
        self._under_way = False

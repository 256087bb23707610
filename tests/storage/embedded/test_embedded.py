"""Tests of the embedded PostgreSQL that need none; its life is in the integration tests."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProcessTransport
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svc.storage.embedded.embedded import EmbeddedPostgres, next_pause
from svc.storage.embedded.postmaster import ISystemReactor


@implementer(ISystemReactor)
class QuietReactor(MemoryReactorClock):
    """A reactor in which nothing happens but time, and which takes amiss what should not happen."""

    def spawnProcess(self, *args: object, **keywords: object) -> IProcessTransport:
        """Complain."""
        raise AssertionError("a process was started")

    def getThreadPool(self) -> ThreadPool:
        """Complain."""
        raise AssertionError("a thread was started")

    def callFromThread(self, *args: object, **keywords: object) -> None:
        """Complain."""
        raise AssertionError("a thread was started")

    def callInThread(self, *args: object, **keywords: object) -> None:
        """Complain."""
        raise AssertionError("a thread was started")

    def suggestThreadPoolSize(self, size: int) -> None:
        """Do nothing."""


class PauseTests(SynchronousTestCase):
    """The pause before a server that ended is started again."""

    def test_doubles(self) -> None:
        """A server that keeps dying is started again after pauses that double, up to two seconds (DATA-24)."""
        pauses = [0.0]
        for _ in range(9):
            pauses.append(next_pause(pauses[-1], 1.0))
        self.assertEqual(pauses[1:], [0.25, 0.5, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0])

    def test_steady(self) -> None:
        """One that had been up for a minute is started again at once, nearly."""
        self.assertEqual(next_pause(2.0, 60.0), 0.25)


class ServiceTests(SynchronousTestCase):
    """The service before the reactor runs."""

    def test_reactor(self) -> None:
        """The fake reactor provides what the service asks for."""
        verifyObject(ISystemReactor, QuietReactor())

    def test_nothing_before_the_reactor(self) -> None:
        """Neither making nor starting the service touches the disk before the reactor runs, so that a daemon may fork."""
        place = Path(self.mktemp())
        reactor = QuietReactor()
        postgres = EmbeddedPostgres(reactor, place)
        postgres.startService()
        self.assertFalse(place.exists())
        self.assertIsNone(self.successResultOf(postgres.stopService()))
        reactor.run()
        self.assertFalse(place.exists())

    def test_several_wait(self) -> None:
        """Several may wait until it is ready; one who gives up, even because of what another learned, disturbs nobody."""
        postgres = EmbeddedPostgres(reactor := QuietReactor(), Path(self.mktemp()))
        first, second, third = (Deferred.fromCoroutine(postgres.wait_until_ready()) for _ in range(3))

        def give_up(_: Failure) -> None:
            first.cancel()
            third.cancel()

        for waiting in (first, second, third):
            waiting.addErrback(give_up)
        second.cancel()
        postgres.startService()
        self.successResultOf(postgres.stopService())
        reactor.advance(0)
        for waiting in (first, second, third):
            self.successResultOf(waiting)

    def test_absolute(self) -> None:
        """The directory stays the same when a daemon changes its working directory."""
        self.assertEqual(EmbeddedPostgres(QuietReactor(), Path("data")).directory, Path(os.getcwd(), "data"))

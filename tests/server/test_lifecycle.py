"""Services in succession: each starts on those before it, and stops before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.application.service import IService, MultiService, Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.testing import MemoryReactor
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import StartRefused
from svc.server.lifecycle import OrderedMultiService, ServerService, Started


class Recorded(Service):
    """Writes down when it starts and stops; ``stopping`` is what its stop waits for."""

    def __init__(self, name: str, log: list[str], stopping: Callable[[], Deferred[None] | None] = lambda: None) -> None:
        self.setName(name)
        self._log = log
        self._stopping = stopping

    def startService(self) -> None:
        """Write it down."""
        super().startService()
        self._log.append(f"+{self.name}")

    def stopService(self) -> Deferred[None] | None:
        """Write it down."""
        super().stopService()
        self._log.append(f"-{self.name}")
        return self._stopping()


class OrderedMultiServiceTests(SynchronousTestCase):
    """The order in which services start and stop."""

    def setUp(self) -> None:
        """Prepare a running one."""
        self.log: list[str] = []
        self.succession = OrderedMultiService()
        self.succession.startService()

    def add(self, name: str, stopping: Callable[[], Deferred[None] | None] = lambda: None) -> None:
        """Add a service."""
        service: IService = Recorded(name, self.log, stopping)
        service.setServiceParent(self.succession)

    def test_added_services_start(self) -> None:
        """A service that is added to a running succession starts at once."""
        self.add("database")
        self.assertEqual(self.log, ["+database"])

    def test_stops_in_reverse(self) -> None:
        """The service that was added last stops first, and each of the others waits until the one after it has stopped."""
        drained: Deferred[None] = Deferred()
        self.add("database")
        self.add("health")
        self.add("listening", lambda: drained)
        del self.log[:]
        stopped = self.succession.stopService()
        self.assertEqual(self.log, ["-listening"])
        self.assertNoResult(stopped)
        drained.callback(None)
        self.successResultOf(stopped)
        self.assertEqual(self.log, ["-listening", "-health", "-database"])

    def test_one_fails_to_stop(self) -> None:
        """A service that fails to stop is logged and doesn't keep the others running."""

        def fail() -> None:
            raise LookupError("no port")

        self.add("database")
        self.add("listening", fail)
        self.successResultOf(self.succession.stopService())
        self.assertEqual(self.log[-2:], ["-listening", "-database"])
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)


class ServerTests(SynchronousTestCase):
    """A server and the coroutine that composes it."""

    def setUp(self) -> None:
        """Prepare what composing waits for."""
        self.reactor = MemoryReactor()
        self.composed: Deferred[Sequence[str]] = Deferred()
        self.log: list[str] = []
        self.server = ServerService(self.reactor, self.compose)

    async def compose(self, parent: MultiService) -> Started:
        """Add one service, and wait."""
        service: IService = Recorded("database", self.log)
        service.setServiceParent(parent)
        return Started(await self.composed)

    def ready(self) -> Deferred[Started]:
        """Start the server in a reactor that runs, and wait for it."""
        self.server.startService()
        self.reactor.run()
        return Deferred.fromCoroutine(self.server.wait_until_ready())

    def test_begins_when_the_reactor_runs(self) -> None:
        """Nothing is made before the reactor runs: a daemon forks first."""
        self.server.startService()
        self.assertEqual(self.log, [])
        self.reactor.run()
        self.assertEqual(self.log, ["+database"])

    def test_ready(self) -> None:
        """It is ready when it is composed, and tells its addresses."""
        ready = self.ready()
        self.assertNoResult(ready)
        self.composed.callback(["http://127.0.0.1:1"])
        self.assertEqual(self.successResultOf(ready).urls, ["http://127.0.0.1:1"])

    def test_failed(self) -> None:
        """A failure of composing reaches the caller that waits, and all that was started is stopped with the server."""
        ready = self.ready()
        self.composed.errback(StartRefused("no port"))
        self.failureResultOf(ready, StartRefused)
        self.successResultOf(self.server.stopService())
        self.assertEqual(self.log, ["+database", "-database"])

    def test_stopped_while_starting(self) -> None:
        """A server that is stopped before it is ready gives up composing, and stops what was started."""
        ready = self.ready()
        self.successResultOf(self.server.stopService())
        self.failureResultOf(ready, CancelledError)
        self.assertEqual(self.log, ["+database", "-database"])

    def test_stopped_before_the_reactor_runs(self) -> None:
        """A server that is stopped before the reactor runs never begins."""
        self.server.startService()
        self.successResultOf(self.server.stopService())
        self.reactor.run()
        self.assertEqual(self.log, [])

    def test_gives_up(self) -> None:
        """A server that gives up tells the reason once, whenever it is asked (CFG-30)."""
        server = ServerService(MemoryReactor(), _nothing)
        server.give_up("its processes die")
        server.give_up("again")
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(server.wait_for_give_up())), "its processes die")


async def _nothing(_: MultiService) -> Started:
    return Started([])

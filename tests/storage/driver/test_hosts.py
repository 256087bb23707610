"""Opening sessions with one of several hosts, on a clock, with hosts that are only imagined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import StoreUnavailable
from svc.storage.driver.hosts import HEAD_START, PAUSE, Hosts


class Attempted:
    """A session that a test has opened, or refuses."""

    def __init__(self, hosts: ImaginedHosts) -> None:
        self._hosts = hosts
        self.opening: Deferred[None] = Deferred()
        self.host = ""
        self.closed = False

    async def open(self, parameters: Mapping[str, str]) -> None:
        """Do as the host does."""
        self.host = parameters["host"]
        self._hosts.attempts.append(self)
        does = self._hosts.does.get(self.host, "refuses")
        if does == "bug":
            raise RuntimeError(self.host)
        if does == "refuses":
            raise StoreUnavailable("no primary")
        if does == "waits":
            await self.opening

    def close(self) -> None:
        """Close it."""
        self.closed = True


class ImaginedHosts:
    """Hosts, each of which refuses, waits or opens; ``attempts`` are those made."""

    def __init__(self) -> None:
        self.names = ["a", "b", "c"]
        self.does: dict[str, str] = {}
        self.attempts: list[Attempted] = []

    async def list_alternatives(self, *, read_only: bool) -> Sequence[Mapping[str, str]]:
        """See ``Location``."""
        assert read_only
        return [{"host": name, "port": "1"} for name in self.names]


class HostsTests(SynchronousTestCase):
    """Three hosts of which one may be the primary."""

    def setUp(self) -> None:
        """Begin with hosts that refuse."""
        self.clock, self.imagined = Clock(), ImaginedHosts()
        self.hosts: Hosts[Attempted] = Hosts(self.clock, self.imagined)

    def open(self) -> Deferred[Attempted]:
        """Open a session."""
        return Deferred.fromCoroutine(self.hosts.open(lambda: Attempted(self.imagined), read_only=True))

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass."""
        for _ in range(round(seconds / 0.05)):
            self.clock.advance(0.05)

    def tried(self) -> str:
        """The hosts that were tried since this was asked last."""
        tried = "".join(attempt.host for attempt in self.imagined.attempts)
        self.imagined.attempts.clear()
        return tried

    def test_found(self) -> None:
        """The host that suits is found, and from then on tried first, alone (CLU-42)."""
        self.imagined.does["b"] = "opens"
        opening = self.open()
        self.pass_time(0.05)
        self.assertEqual((self.successResultOf(opening).host, self.tried()), ("b", "ab"))
        self.assertEqual((self.successResultOf(self.open()).host, self.tried()), ("b", "b"))
        self.imagined.does = {"c": "opens"}
        opening = self.open()
        self.pass_time(0.05)
        self.assertEqual((self.successResultOf(opening).host, self.tried()), ("c", "bac"))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_avoided(self) -> None:
        """Hosts to avoid aren't tried while there are others, however soon they would answer (CLU-45)."""
        self.imagined.does = {"a": "opens", "b": "waits", "c": "opens"}
        self.hosts.avoid(frozenset({"a 1", "c 1"}))
        opening = self.open()
        self.pass_time(HEAD_START + 2 * PAUSE + 0.05)
        self.assertEqual(self.tried(), "b")
        self.assertNoResult(opening)
        opening.cancel()
        self.failureResultOf(opening)
        self.hosts.avoid(frozenset({"a 1", "b 1", "c 1"}))
        self.assertEqual(self.successResultOf(self.open()).host, "a")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_silent(self) -> None:
        """One that says nothing, because its machine is cut off, keeps the others waiting for a moment only (CLU-42)."""
        self.imagined.does = {"a": "waits", "c": "opens"}
        opening = self.open()
        self.pass_time(HEAD_START - 0.05)
        self.assertEqual(self.tried(), "a")
        self.assertNoResult(opening)
        self.pass_time(0.1)
        self.assertEqual(self.successResultOf(opening).host, "c")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_promoted(self) -> None:
        """While one says nothing those that refuse are asked again: one may be promoted meanwhile (CLU-42)."""
        self.imagined.does["a"] = "waits"
        opening = self.open()
        self.pass_time(HEAD_START + 2 * PAUSE + 0.05)
        self.assertEqual(self.tried(), "abcbcbc")
        self.imagined.does["b"] = "opens"
        self.pass_time(PAUSE)
        self.assertEqual(self.successResultOf(opening).host, "b")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_refused(self) -> None:
        """Where every host refuses, so does the whole, and says what each has said."""
        opening = self.open()
        self.pass_time(0.05)
        refusal = self.failureResultOf(opening, StoreUnavailable).value
        self.assertEqual(refusal.why, "a 1: no primary; b 1: no primary; c 1: no primary")
        self.assertEqual((self.tried(), self.clock.getDelayedCalls()), ("abc", []))
        self.imagined.does["a"] = "waits"
        opening = self.open()
        self.pass_time(HEAD_START + 0.1)
        (silent,) = (attempt for attempt in self.imagined.attempts if attempt.host == "a")
        silent.opening.errback(StoreUnavailable("timed out"))
        self.failureResultOf(opening, StoreUnavailable)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cancelled(self) -> None:
        """An attempt that is given up leaves nothing behind."""
        self.imagined.does = {"a": "waits", "b": "waits"}
        opening = self.open()
        self.pass_time(HEAD_START + 0.1)
        opening.cancel()
        self.failureResultOf(opening)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_bug(self) -> None:
        """A bug is no refusal."""
        self.imagined.does["a"] = "bug"
        self.failureResultOf(self.open(), RuntimeError)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_one(self) -> None:
        """Where there is one host alone, nothing is tried beside it."""
        self.imagined.names = ["a"]
        self.failureResultOf(self.open(), StoreUnavailable)
        self.imagined.does["a"] = "opens"
        self.assertEqual(self.successResultOf(self.open()).host, "a")

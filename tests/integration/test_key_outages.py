"""Providers that are slow or away when their keys are needed, over real sockets: who waits, and who is put off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater

from tests.integration.client import Answer
from tests.integration.rotating import RotatingTestCase
from tests.integration.test_flood import DEFAULT_INTERVAL, forged
from tests.signing import jwk, jwks

reactor: Any = installed_reactor

#: Logins at a start, forged tokens before them, and how many of them connect at once.
LOGINS: Final = 300
FORGED: Final = 120
BATCH: Final = 20

#: What a provider says that has no keys to tell.
BROKEN: Final = b"<!doctype html><title>Bad gateway</title>"


class OutageTests(RotatingTestCase):
    """A server with the default interval."""

    interval = DEFAULT_INTERVAL
    timeout = 120

    def send(self, evidence: bytes, host: str = "shop", address: str = "192.0.2.1") -> Deferred[Answer]:
        """Log in from an address, as a proxy tells it."""
        asking = self.api.ask(
            "POST",
            f"/authn-jwt/ci/acme/host%2F{host}/authenticate",
            urlencode({"jwt": evidence}).encode(),
            X_Forwarded_For=address,
        )
        return Deferred.fromCoroutine(asking)

    async def sent(self, evidence: Callable[[], bytes], count: int, network: str) -> list[Deferred[Answer]]:
        """Log in so many times from 50 addresses of a network, and return when the server has all these connections.

        It takes them in their order, so that a question that was answered shows that it has those before.
        """
        asking = []
        for number in range(count):
            asking.append(self.send(evidence(), address=f"{network}.{number % 50}"))
            if number % BATCH == BATCH - 1:
                self.assertEqual((await self.api.ask("GET", "/livez")).status, 200)
        return asking

    async def test_a_start_with_a_slow_provider(self) -> None:
        """Hundreds who log in before the first keys come are admitted when they do, whatever forgers sent before them."""
        evidence = self.token("k0")
        first: Deferred[bytes] = Deferred()
        provider = self.providers["ci"]
        provider.document = first
        leaving = await self.sent(forged, FORGED, "203.0.113")
        for each in leaving[: FORGED // 2]:
            each.addErrback(lambda _: None)
            each.cancel()
        waiting = await self.sent(lambda: evidence, LOGINS, "198.51.100")
        provider.document = jwks(jwk("k0"))
        first.callback(provider.document)
        self.assertEqual({answer.status for answer in await gatherResults(waiting, True)}, {200})
        stayed = await gatherResults(leaving[FORGED // 2 :], True)
        self.assertLessEqual({answer.status for answer in stayed}, {401})
        self.assertLessEqual(provider.asked, 2)

    async def test_keys_that_change_in_an_outage(self) -> None:
        """Tokens by a key that came in an outage are put off, and good as soon as the provider answers again.

        The server finds that out by itself, long before a login may have the keys fetched once more. In the outage unknown
        key ids and unknown hosts are put off alike, with an empty body; known keys and bad tokens are treated as ever.
        """
        old, new = self.token("k0"), self.token("k1")
        provider = self.providers["ci"]
        self.assertTrue(await self.login(old))
        provider.document = BROKEN
        for evidence, host, status in (
            (new, "shop", 503),
            (new, "nobody", 503),
            (forged(), "shop", 503),
            (forged(), "nobody", 503),
            (old, "shop", 200),
            (old, "nobody", 401),
            (b"x.y.z", "shop", 401),
        ):
            answer = await self.send(evidence, host)
            self.assertEqual((answer.status, "retry-after" in answer.headers), (status, status == 503), (host, evidence))
            if status != 200:
                self.assertEqual(answer.body, b"")
        failed = provider.asked
        provider.document = jwks(jwk("k1"))
        while provider.asked == failed:
            await deferLater(reactor, 0.01)
        self.assertEqual([(await self.send(evidence)).status for evidence in (new, old)], [200, 401])
        self.assertEqual(provider.asked, failed + 1)

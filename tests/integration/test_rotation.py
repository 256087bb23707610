"""Providers that rotate their keys, and strangers that forge them, over real sockets: who logs in all the while.

A provider is a web site, and every kind of rotation has one of its own with an authenticator of its own, so that they can
rotate side by side.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from urllib.parse import quote

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater

from svc.jose import parse_key_set
from tests.integration.client import Answer, Api, KeySetSite, now
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import ServerProcess, ServerTestCase
from tests.signing import base64url, jwk, jwks, token

reactor: Any = installed_reactor

#: The least time between two fetches of a provider's keys, in seconds: that of these tests, and the default.
INTERVAL: Final = 0.05
DEFAULT_INTERVAL: Final = 10.0

#: How many rotations there are of all kinds together, and of how many keys providers make use in turn.
ROTATIONS: Final = 1000
KEYS: Final = 4

ISSUER: Final = "https://ci.example"

#: An authenticator, which leaves it to the path who logs in.
AUTHENTICATOR: Final = """
- !policy
  id: svc/authn-jwt/{service}
  body:
    - !webservice
    - !variable jwks-uri
    - !variable issuer
    - !permit
      role: !host /shop
      privileges: [ read, authenticate ]
      resource: !webservice
"""

HOST: Final = """
- !host
  id: shop
  annotations:
"""


class _Rotating(PostgresTestCase, ServerTestCase):
    """A server with the authenticators ``services``, each with a provider of its own that publishes ``k0``."""

    services: Sequence[str] = ("ci",)
    interval = INTERVAL
    timeout = 1200
    skip = unavailable()

    async def prepare(self) -> None:
        """Start all that, and make the tokens: each is good for an hour, so that none is made while time is measured."""
        await super().prepare()
        self.providers = {service: KeySetSite(self) for service in self.services}
        for provider in self.providers.values():
            provider.document = jwks(jwk("k0"))
        self.database_url = await self.create_database(migrated=False)
        self.process = self.started()
        self.api = Api.of(self, await self.process.ready())
        self.admin = await self.api.authenticate("admin", self.process.admin_key())
        host = HOST + "".join(f"    authn-jwt/{service}/project: shop\n" for service in self.services)
        policy = host + "".join(AUTHENTICATOR.format(service=service) for service in self.services)
        loaded = await self.api.ask("POST", "/policies/acme/policy/root", policy.encode(), self.admin)
        self.assertEqual(loaded.status, 201, loaded)
        for service, provider in self.providers.items():
            for name, value in (("jwks-uri", provider.uri), ("issuer", ISSUER)):
                path = self.api.variable(f"svc/authn-jwt/{service}/{name}")
                self.assertEqual((await self.api.ask("POST", path, value.encode(), self.admin)).status, 201)

    def started(self) -> ServerProcess:
        """A server on the database of the test."""
        return self.serve(
            "--account=acme",
            "--authenticators=" + ",".join(["authn", *(f"authn-jwt/{service}" for service in self.services)]),
            "--allow-http-providers",
            "--allow-private-providers=127.0.0.0/8",
            f"--jwks-refetch-interval={self.interval}",
            database_url=self.database_url,
        )

    def token(self, key: str, **header: Any) -> bytes:
        """A token of the workload, by that key."""
        return token({"iss": ISSUER, "project": "shop", "iat": int(now()), "exp": int(now()) + 3600}, key, **header)

    async def login(self, evidence: bytes, service: str = "ci", api: Api | None = None) -> bool:
        """Whether the token admits the workload; a refusal is a 401 that tells nothing."""
        answer: Answer = await (api or self.api).present(evidence, service, "host/shop")
        self.assertIn((answer.status, answer.body if answer.status != 200 else b""), ((200, b""), (401, b"")))
        return answer.status == 200

    async def admitted(self, evidence: bytes, since: float, service: str = "ci") -> None:
        """Log in, again and again until it works, with a key that is valid since then.

        A try that begins more than an interval later must work. One may still not, on a slow machine: it found a fetch
        under way that had begun before.
        """
        late = 0
        while True:
            began = now()
            if await self.login(evidence, service):
                return
            late += began > since + self.interval
            self.assertLess(late, 2, f"a valid key is not known after {now() - since:.3f} seconds")
            await deferLater(reactor, 0.01)

    def assert_within_budget(self, service: str, since: float, before: int = 0) -> None:
        """The provider was asked once to begin with, and once in every interval since then at most."""
        asked = self.providers[service].asked - before
        self.assertLessEqual(asked, 2 + (now() - since) / self.interval)


class RotationTests(_Rotating):
    """A thousand rotations."""

    services = ("overlapping", "abrupt", "same-kid", "reversed")

    async def test_rotations(self) -> None:
        """In a thousand rotations, of four kinds side by side, every login with a valid key succeeds within an interval.

        A key that is valid before and after a rotation is never refused, and no provider is asked oftener than allowed.
        """
        self.tokens = {f"k{index}": self.token(f"k{index}") for index in range(KEYS)}
        self.nameless = {f"k{index}": self.token(f"k{index}", kid="k") for index in range(KEYS)}
        self.providers["same-kid"].document = jwks(jwk("k0", kid="k"))
        kinds = (self._overlapping, self._abrupt, self._same_kid, self._reversed)
        await gatherResults(
            [Deferred.fromCoroutine(self._rotate(*pair)) for pair in zip(self.services, kinds, strict=True)], True
        )

    async def _rotate(self, service: str, rotate: Callable[[KeySetSite, str, str], Awaitable[None]]) -> None:
        """Rotate one provider, from each key to the next."""
        began = now()
        for turn in range(ROTATIONS // len(self.services)):
            await rotate(self.providers[service], f"k{turn % KEYS}", f"k{(turn + 1) % KEYS}")
        self.assert_within_budget(service, began)
        self.assertGreaterEqual(self.providers[service].asked, ROTATIONS // len(self.services))

    async def _overlapping(self, provider: KeySetSite, old: str, new: str) -> None:
        """The old key stays valid for a while beside the new one."""
        self.assertTrue(await self.login(self.tokens[old], "overlapping") or provider.asked == 0)
        provider.document, since = jwks(jwk(old), jwk(new)), now()
        self.assertTrue(await self.login(self.tokens[old], "overlapping"))
        await self.admitted(self.tokens[new], since, "overlapping")
        self.assertTrue(await self.login(self.tokens[old], "overlapping"))

    async def _abrupt(self, provider: KeySetSite, old: str, new: str) -> None:
        """The new key takes the place of the old one, which verifies nothing once the new one is known."""
        provider.document, since = jwks(jwk(new)), now()
        await self.admitted(self.tokens[new], since, "abrupt")
        self.assertFalse(await self.login(self.tokens[old], "abrupt"))

    async def _same_kid(self, provider: KeySetSite, old: str, new: str) -> None:
        """The new key takes the place of the old one, and its id too."""
        provider.document, since = jwks(jwk(new, kid="k")), now()
        await self.admitted(self.nameless[new], since, "same-kid")
        self.assertFalse(await self.login(self.nameless[old], "same-kid"))

    async def _reversed(self, provider: KeySetSite, old: str, new: str) -> None:
        """Tokens by the new key come before the key does, which is then listed first."""
        self.assertFalse(await self.login(self.tokens[new], "reversed"))
        provider.document, since = jwks(jwk(new), jwk(old)), now()
        await self.admitted(self.tokens[new], since, "reversed")
        self.assertTrue(await self.login(self.tokens[old], "reversed"))


def forged() -> bytes:
    """A token in good form, with a key id that nobody has seen and a signature that nobody has made."""
    head = base64url(b'{"alg":"RS256","kid":"' + os.urandom(12).hex().encode() + b'"}')
    return f"{head}.{base64url(b'{}')}.{base64url(os.urandom(256))}".encode()


class _Flood(_Rotating):
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

    async def test_flood(self) -> None:
        """The provider is asked once in an interval at most; a known key is never refused, and takes no longer for it.

        What it takes is compared with a flood of as many good tokens: half of the logins are done in twice the time that
        they take then.
        """
        good = self.token("k0")
        self.assertTrue(await self.login(good))
        began, times = now(), []

        async def logins() -> None:
            spent = []
            for _ in range(100):
                start = now()
                self.assertTrue(await self.login(good))
                spent.append(now() - start)
            times.append(statistics.median(spent))

        await self.flooded(lambda: good, logins())
        self.assertEqual(self.providers["ci"].asked, 1)
        sent = await self.flooded(forged, logins())
        self.assertGreater(sent, 100)
        self.assert_within_budget("ci", began)
        self.assertLess(times[1], 2 * times[0])


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


class Canary(Factory):
    """A port where nobody should ever come. ``met`` counts connections."""

    noisy = False
    protocol = Protocol

    def __init__(self) -> None:
        self.met = 0

    def buildProtocol(self, addr: object) -> None:
        """Count, and hang up."""
        self.met += 1


class CanaryTests(_Rotating):
    """A token that says where its key is."""

    interval = 0.0

    async def test_nobody_goes_where_a_token_says(self) -> None:
        """No address in a token is ever connected to, not even when the token is good and private networks are allowed."""
        canary = Canary()
        port: Any = reactor.listenTCP(0, canary, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        here = f"http://127.0.0.1:{port.getHost().port}"
        headers: Sequence[dict[str, Any]] = (
            {"jku": f"{here}/jwks.json"},
            {"x5u": f"{here}/cert.pem"},
            {"jku": f"{here}/jwks.json", "x5u": f"{here}/cert.pem", "jwk": jwk("evil", x5u=here), "x5c": [here]},
            {"kid": f"{here}/jwks.json"},
        )
        for header in headers:
            self.assertFalse(await self.login(self.token("evil", **header)))
            self.assertFalse(await self.login(self.token("evil", **{"kid": "k0", **header})))
            self.assertEqual(await self.login(self.token("k0", **header)), "kid" not in header)
        claims = {"iss": here, "jku": here, "jwks_uri": here, "project": "shop", "exp": int(now()) + 60}
        for key in ("evil", "k0"):
            self.assertFalse(await self.login(token(claims, key)))
        self.providers["ci"].document = jwks(jwk("k1", x5u=f"{here}/cert.pem", jku=f"{here}/jwks.json"))
        self.assertTrue(await self.login(self.token("k1")))
        self.assertEqual(canary.met, 0)


class DistrustTests(_Rotating):
    """Keys that an operator distrusts."""

    async def distrust(self, key: str, method: str = "PUT") -> None:
        """Distrust a key by its id or thumbprint, or trust it again."""
        path = f"/authn-jwt/ci/acme/distrusted-keys/{quote(key, safe='')}"
        answer = await self.api.ask(method, path, token=self.admin)
        self.assertEqual((answer.status, answer.body), (204, b""))

    async def test_a_distrusted_key_in_rotations(self) -> None:
        """A second after a key is distrusted it admits nobody on any server, whatever its provider publishes, for good."""
        tokens = [self.token(f"k{index}") for index in range(KEYS)]
        other = Api.of(self, await self.started().ready())
        provider = self.providers["ci"]
        for turn in range(1, KEYS):
            bad, good = f"k{turn - 1}", f"k{turn}"
            self.assertTrue(await self.login(tokens[turn - 1]))
            self.assertTrue(await self.login(tokens[turn - 1], api=other))
            await self.distrust(bad)
            provider.document, since = jwks(jwk(bad), jwk(good)), now()
            await self.admitted(tokens[turn], since)
            await deferLater(reactor, max(0.0, since + 1 - now()))
            for _ in range(10):
                for index in range(turn):
                    self.assertFalse(await self.login(tokens[index]))
                    self.assertFalse(await self.login(tokens[index], api=other))
                self.assertTrue(await self.login(tokens[turn]))
        self.assertEqual(await self.process.stop(), 0)
        self.api = Api.of(self, await self.started().ready())
        self.assertFalse(await self.login(tokens[0]))
        await self.distrust("k0", "DELETE")
        provider.document = jwks(jwk("k0"))
        await self.admitted(tokens[0], now())

    async def test_a_key_under_another_id(self) -> None:
        """A key that is distrusted by its thumbprint admits nobody under any id."""
        self.assertTrue(await self.login(self.token("k0")))
        (key,) = parse_key_set(jwks(jwk("k0"))).keys
        await self.distrust(key.thumbprint)
        self.providers["ci"].document = jwks(jwk("k0", kid="new"), jwk("k1"))
        await self.admitted(self.token("k1"), now())
        await deferLater(reactor, 1)
        for key_id in ("k0", "new"):
            self.assertFalse(await self.login(self.token("k0", kid=key_id)))

"""Providers that rotate their keys, and operators that distrust them, over real sockets: who logs in all the while."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from urllib.parse import quote

import attrs
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater

from svc.crypto.key_sets import parse_key_set
from tests.integration.client import Api, KeySetSite, now
from tests.integration.rotating import KEYS, RotatingTestCase
from tests.signing import jwk, jwks, token

reactor: Any = installed_reactor

#: How many rotations there are of all kinds together.
ROTATIONS: Final = 1000


@attrs.frozen
class _Theft:
    """A login with a stolen key: when it began and ended, and whether it was admitted."""

    began: float
    ended: float
    admitted: bool


class RotationTests(RotatingTestCase):
    """A thousand rotations."""

    services = ("overlapping", "abrupt", "same-kid", "reversed", "broken-into")

    async def test_rotations(self) -> None:
        """In a thousand rotations, of five kinds side by side, every login with a valid key succeeds within an interval.

        A key that is valid before and after a rotation is never refused, and no provider is asked oftener than allowed.

        One provider goes on publishing a stolen key, with which a thief logs in all the while. An operator distrusts it by
        its id, trusts it again, and distrusts it by its thumbprint. From a second after that nobody is admitted with it;
        before that, and in between, everybody is, or this would prove nothing.
        """
        self.tokens = {f"k{index}": self.token(f"k{index}") for index in range(KEYS)}
        self.nameless = {f"k{index}": self.token(f"k{index}", kid="k") for index in range(KEYS)}
        self.providers["same-kid"].document = jwks(jwk("k0", kid="k"))
        self.providers["broken-into"].document = jwks(jwk("k0"), jwk("stolen"))
        self.thefts: list[_Theft] = []
        self.changed: list[tuple[float, float]] = []
        kinds = (self._overlapping, self._abrupt, self._same_kid, self._reversed, self._broken_into)
        rotating = [Deferred.fromCoroutine(self._rotate(*pair)) for pair in zip(self.services, kinds, strict=True)]
        thief = Deferred.fromCoroutine(self._steal(rotating[-1]))
        await gatherResults([*rotating, thief], True)
        self._assert_thefts_ended()

    async def _rotate(self, service: str, rotate: Callable[[KeySetSite, str, str], Awaitable[None]]) -> None:
        """Rotate one provider, from each key to the next; the trust in the stolen key changes after each quarter."""
        began = now()
        turns = ROTATIONS // len(self.services)
        for turn in range(turns):
            if service == "broken-into" and turn in {turns // 4, turns // 2, 3 * turns // 4}:
                await self._change_trust()
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

    async def _broken_into(self, provider: KeySetSite, old: str, new: str) -> None:
        """As when keys overlap; the stolen key stays where it is."""
        provider.document, since = jwks(jwk("stolen"), jwk(old), jwk(new)), now()
        await self.admitted(self.tokens[new], since, "broken-into")
        self.assertTrue(await self.login(self.tokens[old], "broken-into"))

    async def _change_trust(self) -> None:
        """Distrust the stolen key by its id, trust it again, distrust it by its thumbprint: the next of these."""
        (key,) = parse_key_set(jwks(jwk("stolen"))).keys
        method, name = (("PUT", "stolen"), ("DELETE", "stolen"), ("PUT", key.thumbprint))[len(self.changed)]
        began = now()
        path = f"/authn-jwt/broken-into/acme/distrusted-keys/{quote(name, safe='')}"
        answer = await self.api.ask(method, path, token=self.admin)
        self.assertEqual(answer.status, 204, answer)
        self.changed.append((began, now()))

    async def _steal(self, over: Deferred[None]) -> None:
        """Log in with the stolen key, again and again."""
        evidence = self.token("stolen")
        while not over.called:
            began = now()
            admitted = await self.login(evidence, "broken-into")
            self.thefts.append(_Theft(began, now(), admitted))
            await deferLater(reactor, 0.1)

    def _assert_thefts_ended(self) -> None:
        """Logins that touch a change may go either way, and those in the second after the key was distrusted."""
        (distrusting, distrusted), (trusting, trusted), (again, for_good) = self.changed
        for what, since, until, expected in (
            ("before the key was distrusted", 0.0, distrusting, True),
            ("a second after it was distrusted by its id", distrusted + 1, trusting, False),
            ("when it was trusted again", trusted, again, True),
            ("a second after it was distrusted by its thumbprint", for_good + 1, now(), False),
        ):
            thefts = [theft for theft in self.thefts if since <= theft.began and theft.ended <= until]
            wrong = [theft for theft in thefts if theft.admitted is not expected]
            self.assertGreater(len(thefts), 0, f"nobody used the stolen key {what}")
            self.assertEqual(wrong, [], f"of {len(thefts)} logins with the stolen key {what}")

    async def _reversed(self, provider: KeySetSite, old: str, new: str) -> None:
        """Tokens by the new key come before the key does, which is then listed first."""
        self.assertFalse(await self.login(self.tokens[new], "reversed"))
        provider.document, since = jwks(jwk(new), jwk(old)), now()
        await self.admitted(self.tokens[new], since, "reversed")
        self.assertTrue(await self.login(self.tokens[old], "reversed"))


class Canary(Factory):
    """A port where nobody should ever come. ``met`` counts connections."""

    noisy = False
    protocol = Protocol

    def __init__(self) -> None:
        self.met = 0

    def buildProtocol(self, addr: object) -> None:
        """Count, and hang up."""
        self.met += 1


class CanaryTests(RotatingTestCase):
    """A token that says where its key is."""

    interval = 0.0

    async def test_nobody_goes_where_a_token_says(self) -> None:
        """No address in a token is ever connected to, not even when the token is good and private networks are allowed
        (NET-18).
        """
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


class DistrustTests(RotatingTestCase):
    """Keys that an operator distrusts."""

    async def distrust(self, key: str, method: str = "PUT") -> None:
        """Distrust a key by its id or thumbprint, or trust it again."""
        path = f"/authn-jwt/ci/acme/distrusted-keys/{quote(key, safe='')}"
        answer = await self.api.ask(method, path, token=self.admin)
        self.assertEqual((answer.status, answer.body), (204, b""))

    async def test_a_distrusted_key_in_rotations(self) -> None:
        """A second after a key is distrusted it admits nobody on any server, whatever its provider publishes, for good.

        Newer keys that an operator wishes for on one server are had by the next login on the other.
        """
        tokens = [self.token(f"k{index}") for index in range(KEYS)]
        other = Api.of(self, await self.started().ready())
        provider = self.providers["ci"]
        await self._refresh_elsewhere(tokens, other)
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

    async def _refresh_elsewhere(self, tokens: Sequence[bytes], other: Api) -> None:
        """A key that its provider took back serves on until an operator wishes for newer keys: then it does on no server."""
        provider = self.providers["ci"]
        self.assertTrue(await self.login(tokens[0]))
        self.assertTrue(await self.login(tokens[0], api=other))
        provider.document = jwks(jwk("k1"))
        self.assertTrue(await self.login(tokens[0]))
        self.assertTrue(await self.login(tokens[0], api=other))
        self.assertEqual(provider.asked, 2, "keys at hand are not fetched again")
        answer = await self.api.ask("POST", "/authn-jwt/ci/acme/refresh-keys", token=self.admin)
        self.assertEqual((answer.status, answer.json()["keys"]["ids"]), (200, ["k1"]))
        # What one server wrote the other sees after the lag of its memory (CLU-32).
        await deferLater(reactor, 0.3)
        self.assertFalse(await self.login(tokens[0], api=other), "the other server did not learn that newer keys are wanted")
        self.assertTrue(await self.login(tokens[1], api=other))
        self.assertFalse(await self.login(tokens[0]))
        provider.document = jwks(jwk("k0"))
        for api in (self.api, other):
            await deferLater(reactor, 2 * self.interval)
            self.assertTrue(await self.login(tokens[0], api=api))

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

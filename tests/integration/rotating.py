"""Providers that rotate their keys, over real sockets: a server, its workload, and as many providers as a test wants.

A provider is a web site, and every kind of rotation has one of its own with an authenticator of its own, so that they can
rotate side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from twisted.internet import reactor as installed_reactor
from twisted.internet.task import deferLater

from tests.integration.client import Answer, Api, KeySetSite, now
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import ServerProcess, ServerTestCase
from tests.signing import jwk, jwks, token

reactor: Any = installed_reactor

#: The least time between two fetches of a provider's keys, in seconds: that of these tests.
INTERVAL: Final = 0.05

#: How many keys providers make use of in turn.
KEYS: Final = 4

ISSUER: Final = "https://ci.example"

#: An authenticator, which leaves it to the path who logs in.
AUTHENTICATOR: Final = """
- !policy
  id: svc/authn-jwt/{service}
  body:
    - !webservice
    - !webservice status
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


class RotatingTestCase(PostgresTestCase, ServerTestCase):
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

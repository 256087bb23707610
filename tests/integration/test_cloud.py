"""The whole way of a cloud workload, on sockets: metadata service, identity token, access token, secret.

The platform is the one in small (``tests/cloudplatform.py``); the rules are AUTH-36 to
AUTH-39, AUTH-17 and AUTH-19.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTCP
from twisted.web.server import Site

from svc.cli.platform import APP_SERVICE_PATH, IDENTITY_HEADER, Identity
from svc.workload.client import Client
from svc.workload.evidence import CloudIdentity
from svc.workload.exchange import Exchange, http_client
from svc.workload.faults import LoginRefused, PlatformUnavailable
from svc.workload.metadata import ANSWER_LIMIT, Metadata
from tests.authn.shapes import GROUP, SHAPES, SLOT, SUBSCRIPTION, Shape
from tests.cloudplatform import Unruly
from tests.integration.client import Answer, Api, now
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import ServerTestCase

reactor: Any = installed_reactor

#: For whom tokens are made.
AUDIENCE: Final = "api://svc"

CLIENT_ID: Final = "44444444-aaaa-4bbb-8ccc-000000000004"

#: The workloads that are told their metadata service by the environment.
TOLD: Final = frozenset({"app service", "function"})

SERVICES: Final = ("prod", "fresh")

AUTHENTICATOR: Final = """
- !policy
  id: {prefix}/{service}
  body:
    - !webservice
    - !webservice status
    - !variable provider-uri
    - !variable audience
    - !group apps
    - !permit {{ role: !group apps, privileges: [ read, authenticate ], resource: !webservice }}
- !grant {{ role: !group {prefix}/{service}/apps, member: !group apps/all }}
"""

HOST: Final = """
- !host
  id: apps/{name}
  annotations:
    {authenticator}/subscription-id: {subscription}
    {authenticator}/resource-group: {group}
    {authenticator}/prod/{kind}-assigned-identity: {identity}
- !grant {{ role: !group apps/all, member: !host apps/{name} }}
- !permit {{ role: !host apps/{name}, privileges: [ read, execute ], resource: !variable apps/password }}
"""


class Tenant:
    """A platform that listens until it goes away. ``base`` is its address."""

    def __init__(self, case: ServerTestCase, name: str) -> None:
        self.platform = Unruly(reactor)
        self.platform.tenant = name
        site: Any = Site(self.platform.build_app().resource())
        site.noisy, site.log = False, lambda request: None
        port: Any = IReactorTCP(reactor).listenTCP(0, site, interface="127.0.0.1")
        self._port = port
        case.addCleanup(self.leave)
        self.base = f"http://127.0.0.1:{port.getHost().port}"

    @property
    def issuer(self) -> str:
        """The tenant's ``provider-uri``."""
        return self.platform.issuer_url(self.base)

    async def leave(self) -> None:
        """Answer nobody any more."""
        await maybeDeferred(self._port.stopListening)


def identity(number: int, shape: Shape) -> Identity:
    """The identity of a workload."""
    return Identity(shape.text, f"oid-{number}", CLIENT_ID if shape.shared else None)


class CloudCase(PostgresTestCase, ServerTestCase):
    """One server with two cloud authenticators, ``prod`` and ``fresh``, each of a tenant of its own."""

    skip = unavailable()
    timeout = 600
    dialect = "native"
    prefix = "svc"
    authenticator = "authn-cloud"

    async def prepare(self) -> None:
        """Start it all."""
        await super().prepare()
        self.tenants = {service: Tenant(self, f"tenant-of-{service}") for service in SERVICES}
        self.tenant = self.tenants["prod"]
        names = [f"{self.authenticator}/{service}" for service in SERVICES]
        server = self.serve(
            "--account=acme",
            f"--dialect={self.dialect}",
            f"--authenticators={','.join(['authn', *names])}",
            "--allow-http-providers",
            "--allow-private-providers=127.0.0.0/8",
            "--jwks-refetch-interval=0",
            database_url=await self.create_database(migrated=False),
        )
        self.url = await server.ready()
        self.api = Api.of(self, self.url)
        self.admin = await self.api.authenticate("admin", server.admin_key())
        policy = "- !group apps/all\n- !variable apps/password\n"
        policy += "".join(AUTHENTICATOR.format(prefix=self.prefix, service=name) for name in names)
        policy += "".join(self.host(number, shape) for number, shape in enumerate(SHAPES))
        loaded = await self.api.ask("POST", "/policies/acme/policy/root", policy.encode(), self.admin)
        self.assertEqual(loaded.status, 201, loaded)
        values = {"apps/password": "s3cret"}
        for service, tenant in self.tenants.items():
            values[f"{self.prefix}/{self.authenticator}/{service}/provider-uri"] = tenant.issuer
            values[f"{self.prefix}/{self.authenticator}/{service}/audience"] = AUDIENCE
        for name, value in values.items():
            answer = await self.api.ask("POST", self.api.variable(name), value.encode(), self.admin)
            self.assertEqual(answer.status, 201, name)

    def host(self, number: int, shape: Shape) -> str:
        """The policy of a workload's host."""
        kind, who = ("user", shape.text.rpartition("/")[2]) if shape.shared else ("system", f"oid-{number}")
        return HOST.format(
            name=f"w{number}",
            authenticator=self.authenticator,
            subscription=SUBSCRIPTION,
            group=GROUP,
            kind=kind,
            identity=who,
        )

    def client(self, number: int, shape: Shape, *, base: str | None = None, deadline: float = 120.0) -> Client:
        """A workload, which knows nothing but where it runs and which host it is."""
        metadata = Metadata(
            Exchange(http_client(reactor), reactor, ANSWER_LIMIT),
            {"IDENTITY_ENDPOINT": f"{self.tenant.base}{APP_SERVICE_PATH}", "IDENTITY_HEADER": IDENTITY_HEADER}
            if shape.workload in TOLD
            else {},
            resource=AUDIENCE,
            client_id=CLIENT_ID if shape.shared else None,
            base_url=base or self.tenant.base,
            deadline=deadline,
            chance=lambda: 0.0,
        )
        evidence = CloudIdentity(f"{self.authenticator}/prod", f"host/apps/w{number}", metadata)
        return Client.of(reactor, self.url, "acme", evidence)

    async def present(self, token: str, number: int = 0, service: str = "prod") -> Answer:
        """Present a token as one of the hosts."""
        path = f"/{self.authenticator}/{service}/acme/host%2Fapps%2Fw{number}/authenticate"
        return await self.api.ask("POST", path, b"jwt=" + token.encode(), Accept_Encoding="base64")


class NativeTests(CloudCase):
    """In the program's own dialect."""

    async def test_a_day(self) -> None:
        """Workloads of every kind get the secret, and nobody else does, whatever becomes of platform and provider."""
        await self._every_kind()
        await self._wrong_tokens()
        await self._platform_in_trouble()
        await self._provider_gone()

    async def _every_kind(self) -> None:
        """Each kind of workload, with an identity of its own or an assigned one, reads the secret with that alone."""
        for number, shape in enumerate(SHAPES):
            self.tenant.platform.identities = (identity(number, shape),)
            self.assertEqual(await self.client(number, shape).secret("apps/password"), b"s3cret", shape)

    async def _wrong_tokens(self) -> None:
        """A token of another tenant or group, without what identifies a workload, for others or expired: 401, and empty."""
        platform, base, mine = self.tenant.platform, self.tenant.base, identity(0, SHAPES[0])

        def changed(**claims: object) -> str:
            return platform.sign_token(base, mine, AUDIENCE, **claims)

        self.assertEqual((await self.present(changed())).status, 200)
        other_group = SHAPES[0].text.replace(f"/{GROUP}/", "/staging/")
        other_case = SHAPES[0].text.replace(f"/{GROUP}/", f"/{GROUP.upper()}/")
        other = self.tenants["fresh"]
        for why, token in {
            "another tenant": other.platform.sign_token(other.base, mine, AUDIENCE),
            "another tenant, by its name": changed(iss=other.issuer),
            "another resource group": changed(xms_mirid=other_group),
            "another case": changed(xms_mirid=other_case),
            "a resource within the resource": changed(xms_mirid=SLOT),
            "another identity": changed(oid="oid-1"),
            "expired": changed(exp=int(now()) - 1),
            "no end": changed(exp=None),
            "no oid": changed(oid=None),
            "no resource id": changed(xms_mirid=None),
            "another audience": changed(aud="https://management.azure.com/"),
            "no audience": changed(aud=None),
            "no issuer": changed(iss=None),
        }.items():
            answer = await self.present(token)
            self.assertEqual((answer.status, answer.body), (401, b""), why)

    async def _platform_in_trouble(self) -> None:
        """A metadata service that throttles is waited for; one that is down is told of, and the service isn't asked."""
        platform, shape = self.tenant.platform, SHAPES[0]
        platform.identities, platform.troubles = (identity(0, shape),), [429, 404]
        self.assertEqual(await self.client(0, shape).secret("apps/password"), b"s3cret")
        self.assertEqual(platform.troubles, [])
        gone = Tenant(self, "gone")
        await gone.leave()
        cut_off = self.client(0, shape, base=gone.base, deadline=1.0)
        fault = await self.assertFailure(self._reading(cut_off), PlatformUnavailable)
        self.assertIn("may it reach that address?", str(fault))
        # A workload that takes itself for another is told so, and the reason stays with the server.
        fault = await self.assertFailure(self._reading(self.client(1, shape)), LoginRefused)
        self.assertIn("this machine's identity as host/apps/w1", str(fault))

    async def _provider_gone(self) -> None:
        """With the provider gone, its tokens are admitted where its keys are at hand, and put off where they never came.

        Operators of the latter are told why.
        """
        token = self.tenant.platform.sign_token(self.tenant.base, identity(0, SHAPES[0]), AUDIENCE)
        fresh = self.tenants["fresh"]
        for tenant in self.tenants.values():
            await tenant.leave()
        self.assertEqual((await self.present(token)).status, 200)
        unfetched = fresh.platform.sign_token(fresh.base, identity(0, SHAPES[0]), AUDIENCE)
        self.assertEqual((await self.present(unfetched, service="fresh")).status, 503)
        status = await self.api.ask("GET", f"/{self.authenticator}/fresh/acme/status", token=self.admin)
        self.assertEqual(status.status, 500)
        self.assertIn("There are no keys", status.json()["problems"][0]["what"])

    def _reading(self, client: Client) -> Deferred[bytes]:
        return Deferred.fromCoroutine(client.secret("apps/password"))


class ConjurTests(CloudCase):
    """In the dialect of the installed base, which calls it ``authn-azure``."""

    dialect = "conjur"
    prefix = "conjur"
    authenticator = "authn-azure"

    async def test_login(self) -> None:
        """A workload gets the secret; who proves an identity that may not authenticate is told so, with 403."""
        self.tenant.platform.identities = (identity(0, SHAPES[0]),)
        self.assertEqual(await self.client(0, SHAPES[0]).secret("apps/password"), b"s3cret")
        revoke = b"- !revoke { role: !group apps/all, member: !host apps/w0 }\n"
        revoked = await self.api.ask("PATCH", "/policies/acme/policy/root", revoke, self.admin)
        self.assertEqual(revoked.status, 201, revoked)
        token = self.tenant.platform.sign_token(self.tenant.base, identity(0, SHAPES[0]), AUDIENCE)
        self.assertEqual((await self.present(token)).status, 403)

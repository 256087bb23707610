"""Followers as operators run them: a server on a primary, a server on its hot standby, each a process of its own."""

from __future__ import annotations

import base64
from typing import Any, Final

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from tests.authenticators.shapes import GROUP, SHAPES, SUBSCRIPTION
from tests.integration.client import Answer, Api, KeySetSite, now, workload_token
from tests.integration.process import ServerProcess, ServerTestCase, beat
from tests.integration.replication import PairTestCase
from tests.integration.test_cloud import AUDIENCE, AUTHENTICATOR, HOST, Tenant, identity
from tests.signing import jwk, jwks

reactor: Any = installed_reactor

#: The whole answer to a write.
REFUSAL: Final = {"error": {"code": 405, "message": "Write operations are not allowed"}}

CLOUD: Final = (
    "- !group apps/all\n- !variable apps/password\n"
    + AUTHENTICATOR.format(prefix="svc", service="authn-cloud/prod")
    + HOST.format(
        name="w0",
        authenticator="authn-cloud",
        subscription=SUBSCRIPTION,
        group=GROUP,
        kind="system",
        identity="oid-0",
    )
)


class ClusterTestCase(PairTestCase, ServerTestCase):
    """A pair of databases, of which the primary's has no schema yet."""

    timeout = 400
    migrated = False

    def server_on(self, dsn: str, *options: str) -> ServerProcess:
        """Start a server, with the configuration that all servers of the cluster have."""
        return self.serve(
            "--account=acme",
            "--authenticators=authn,authn-jwt/ci,authn-cloud/prod",
            "--allow-http-providers",
            "--allow-private-providers=127.0.0.0/8",
            "--jwks-refetch-interval=0",
            "--health-interval=0.5",
            *options,
            database_url=dsn,
        )

    async def replication(self, api: Api) -> dict[str, Any]:
        """The replication status of a server, which must be healthy."""
        answer = await api.ask("GET", "/health")
        self.assertEqual(answer.status, 200, answer)
        status: dict[str, Any] = answer.json()["database"]["replication_status"]
        return status

    async def comes_to(self, api: Api, **bounds: tuple[float, float]) -> dict[str, Any]:
        """Wait until each of these numbers of the replication status is between its bounds."""
        for _ in range(600):
            status = await self.replication(api)
            if all(least <= (status.get(name) or 0) <= most for name, (least, most) in bounds.items()):
                return status
            await beat()
        raise AssertionError(f"not within {bounds}: {status}")


class FollowerTests(ClusterTestCase):
    """Two servers with an account, workloads, secrets and providers."""

    async def prepare(self) -> None:
        """Set up the cluster."""
        await super().prepare()
        self.provider, self.tenant = KeySetSite(self), Tenant(self, "tenant")
        self.provider.document = jwks(jwk("k1"), jwk("stolen"))
        self.primary = self.server_on(self.pair.primary.dsn(self.name))
        url = await self.primary.ready()
        self.api_key = self.primary.admin_key()
        self.on_primary = Api.of(self, url)
        self.admin = await self.on_primary.set_up(self.api_key, self.provider.uri)
        loaded = await self.on_primary.ask("POST", "/policies/acme/policy/root", CLOUD.encode(), self.admin)
        self.assertEqual(loaded.status, 201, loaded)
        for name, value in (("provider-uri", self.tenant.issuer), ("audience", AUDIENCE)):
            path = self.on_primary.variable(f"svc/authn-cloud/prod/{name}")
            self.assertEqual((await self.on_primary.ask("POST", path, value.encode(), self.admin)).status, 201)
        await self.pair.caught_up()
        self.follower = self.server_on(self.pair.follower.dsn(self.name))
        self.api = Api.of(self, await self.follower.ready())

    async def restart(self) -> None:
        """Stop the follower's server, and start another."""
        self.assertEqual(await self.follower.stop(), 0)
        self.follower = self.server_on(self.pair.follower.dsn(self.name))
        self.api = Api.of(self, await self.follower.ready())

    async def cloud_login(self) -> Answer:
        """Log in as a machine of the cloud."""
        token = self.tenant.platform.token(self.tenant.base, identity(0, SHAPES[0]), AUDIENCE)
        path = "/authn-cloud/prod/acme/host%2Fapps%2Fw0/authenticate"
        return await self.api.ask("POST", path, b"jwt=" + token.encode(), Accept_Encoding="base64")

    async def assert_serves(self, key: str) -> None:
        """All that workloads and people read is there: logins of each kind, secrets, roles, resources, policy, status."""
        for login in (await self.api.present(workload_token(key)), await self.cloud_login()):
            self.assertEqual(login.status, 200, self.follower.said)
            secret = await self.api.ask("GET", self.api.variable("apps/password"), token=login.body.decode())
            self.assertEqual((secret.status, secret.body), (200, b"s3cret"))
        admin = await self.api.authenticate("admin", self.api_key)
        for path in (
            "/whoami",
            "/info",
            "/authenticators",
            "/authn-cloud/prod/acme/status",
            "/resources",
            "/resources/acme?search=password&count=true",
            "/resources/acme?limit=5",
            "/resources/acme/variable/apps%2Fpassword",
            "/resources/acme/variable/apps%2Fpassword?check=true&privilege=execute",
            "/resources/acme/variable/apps%2Fpassword?permitted_roles=true&privilege=execute",
            "/roles/acme/group/apps%2Fall",
            "/roles/acme/group/apps%2Fall?members",
            "/roles/acme/group/apps%2Fall?members&search=shop&count=true",
            "/roles/acme/group/apps%2Fall?members&transitive=true",
            "/roles/acme/user/admin?memberships&search=apps",
            "/roles/acme/user/admin?all",
            "/roles/acme/user/admin?graph",
            "/policies/acme/policy/root",
            "/secrets?variable_ids=acme:variable:apps%2Fpassword",
            "/authn/acme/.well-known/jwks.json",
            "/public_keys/acme/user/alice",
            "/livez",
            "/health",
            "/",
        ):
            answer = await self.api.ask("GET", path, token="" if path in {"/", "/health", "/livez"} else admin)
            if path == "/livez" and answer.status == 404:
                continue
            self.assertIn(answer.status, {200, 204}, f"{path}: {answer}")
        token = self.tenant.platform.token(self.tenant.base, identity(0, SHAPES[0]), AUDIENCE)
        path = "/authn-cloud/prod/acme/host%2Fapps%2Fw0/explain"
        explained = await self.api.ask("POST", path, b"jwt=" + token.encode(), admin)
        self.assertEqual((explained.status, explained.json()["admitted"]), (200, True))
        told = await self.api.ask("GET", "/authn/acme/login", Authorization=_basic("admin", self.api_key))
        self.assertEqual(told.body.decode(), self.api_key)

    async def assert_refuses(self) -> None:
        """Every kind of write is 405, at once, with the one body."""
        admin = await self.api.authenticate("admin", self.api_key)
        for method, path, body in (
            ("POST", self.api.variable("apps/password"), b"other"),
            ("POST", "/policies/acme/policy/root", b"- !user carol"),
            ("POST", "/policies/acme/policy/root?dryRun=true", b"- !user carol"),
            ("PUT", "/policies/acme/policy/root", b"- !user bob\n" * 100_000),
            ("PATCH", "/policies/acme/policy/root", b"!! no yaml"),
            ("PATCH", "/authn-jwt/ci/acme", b"enabled=true"),
            ("POST", "/authn-jwt/ci/acme/refresh-keys", b""),
            ("PUT", "/authn-jwt/ci/acme/distrusted-keys/k1", b""),
            ("DELETE", "/authn-jwt/ci/acme/distrusted-keys/k1", b""),
            ("POST", "/roles/acme/group/apps%2Fall?members&member=acme:user:alice", b""),
            ("DELETE", "/roles/acme/group/apps%2Fall?members&member=acme:user:alice", b""),
            ("POST", "/host_factory_tokens", b"host_factory=acme:host_factory:f&expiration=2050-01-01T00:00:00Z"),
            ("DELETE", "/host_factory_tokens/x", b""),
            ("POST", "/accounts", b"id=other"),
            ("DELETE", "/accounts/other", b""),
        ):
            answer = await self.api.ask(method, path, body, admin)
            self.assertEqual((answer.status, answer.json()), (405, REFUSAL), f"{method} {path}")
            self.assertEqual((await self.api.ask(method, path, body[:100])).status, 401, f"{method} {path}")

    async def test_without_the_primary(self) -> None:
        """Without a primary a follower goes on, after a restart and a rotation too; promoted, it takes writes."""
        await self.assert_serves("k1")
        await self.assert_refuses()
        self.assertIn(b"this server is a follower, and takes no writes", self.follower.stdout)
        self.assertEqual((await self.replication(self.on_primary)).keys() & {"lag_bytes", "lag_seconds"}, set())
        await self.comes_to(self.api, lag_bytes=(0, 0), lag_seconds=(0, 5))
        await self.pair.primary.kill()
        await self.primary.kill()
        gone = now()
        await self.assert_serves("k1")
        await self.assert_refuses()
        # The provider goes on, and so do its rotations.
        self.provider.document = jwks(jwk("k2"))
        await self.assert_serves("k2")
        await self.restart()
        self.assertNotIn(b"API key for admin", self.follower.stdout)
        await self.assert_serves("k2")
        await self.assert_refuses()
        self.assertGreaterEqual((await self.replication(self.api))["lag_seconds"], now() - gone - 2)
        # A whole database that starts with nobody to hear from knows what it has replayed, and not what it lacks.
        await self.pair.follower.stop()
        await self.pair.follower.start()
        while (await self.api.ask("GET", "/health")).status != 200:
            await beat()
        await self.assert_serves("k2")
        self.assertIsNone((await self.replication(self.api))["lag_bytes"])
        # What follows needs no restart.
        admin = await self.api.authenticate("admin", self.api_key)
        await self.pair.promote()
        while (await self.api.ask("POST", self.api.variable("apps/password"), b"new", admin)).status == 503:
            await beat()
        written = await self.api.ask("POST", self.api.variable("apps/password"), b"newer", admin)
        self.assertEqual(written.status, 201, written)
        loaded = await self.api.ask("POST", "/policies/acme/policy/root", b"- !user carol", admin)
        self.assertEqual(loaded.status, 201, loaded)
        self.assertEqual((await self.api.ask("GET", "/info", token=admin)).json()["role"], "primary")
        await self.follower.says("this server is no follower any more")
        for _ in range(600):
            if "lag_seconds" not in await self.replication(self.api):
                break
            await beat()
        self.assertNotIn("lag_seconds", await self.replication(self.api))

    async def test_distrust(self) -> None:
        """A key that is distrusted on the primary admits nobody on a follower, from the arrival of the row on."""
        self.assertEqual((await self.api.present(workload_token("stolen"))).status, 200)
        for method, status in (("PUT", 401), ("DELETE", 200), ("PUT", 401)):
            changed = await self.on_primary.ask(method, "/authn-jwt/ci/acme/distrusted-keys/stolen", b"", self.admin)
            self.assertEqual(changed.status, 204, changed)
            await self.pair.caught_up()
            arrived = now()
            answer = await self.api.present(workload_token("stolen"))
            self.assertEqual(answer.status, status)
            self.assertLess(now() - arrived, 1.0)
            self.assertEqual((await self.api.present(workload_token("k1"))).status, 200)

    async def test_behind(self) -> None:
        """A follower that lags behind goes on serving what it has, and says how far behind it is, and when that is over."""
        await self.comes_to(self.api, lag_bytes=(0, 0), lag_seconds=(0, 5))
        self.pair.pause()
        path = self.api.variable("apps/password")
        self.assertEqual((await self.on_primary.ask("POST", path, b"later" * 1000, self.admin)).status, 201)
        await self.comes_to(self.api, lag_bytes=(5000, 1 << 30), lag_seconds=(3, 600))
        self.assertEqual((await self.api.ask("GET", path, token=self.admin)).body, b"s3cret")
        self.pair.resume()
        await self.comes_to(self.api, lag_bytes=(0, 0), lag_seconds=(0, 3))
        self.assertEqual((await self.api.ask("GET", path, token=self.admin)).body, b"later" * 1000)
        # Disconnected, it can't know how much it lacks, but how long.
        await self.pair.disconnect()
        await self.comes_to(self.api, lag_bytes=(0, 0), lag_seconds=(5, 600))
        await self.pair.reconnect()
        await self.comes_to(self.api, lag_bytes=(0, 0), lag_seconds=(0, 3))

    async def test_conflict(self) -> None:
        """Readings that replay gets in the way of are repeated, or 503; none of them is a 500."""
        path, ended = self.api.variable("apps/password"), False
        statuses: list[int] = []

        async def read() -> None:
            while not ended:
                for asked in (path, "/resources/acme?search=password", "/roles/acme/group/apps%2Fall?members"):
                    statuses.append((await self.api.ask("GET", asked, token=self.admin)).status)

        reading = [Deferred.fromCoroutine(read()) for _ in range(4)]
        for _ in range(15):
            for table in ("secrets", "resources", "memberships"):
                # Replay takes the same lock on the standby.
                self.pair.primary.command(f"BEGIN; LOCK TABLE {table}; SELECT pg_sleep(0.1); COMMIT", self.name)
            await deferLater(reactor, 0.05)
        ended = True
        for each in reading:
            await each
        self.assertEqual(set(statuses) - {200, 503}, set())
        self.assertIn(200, statuses)


class StartTests(ClusterTestCase):
    """Followers whose primary has yet to be set up."""

    async def test_waits(self) -> None:
        """A follower that starts first waits for what its primary writes, then serves; it writes nothing itself."""
        follower = self.server_on(self.pair.follower.dsn(self.name), "--database-wait=120")
        await follower.says("Waiting for the primary")
        primary = self.server_on(self.pair.primary.dsn(self.name))
        await primary.ready()
        api = Api.of(self, await follower.ready())
        await self.pair.caught_up()
        self.assertNotIn(b"API key for admin", follower.stdout)
        await api.authenticate("admin", primary.admin_key())
        self.assertNotIn(b"Traceback", follower.stdout + primary.stdout)

    async def test_refused(self) -> None:
        """One that waits in vain is refused, and says what to do."""
        said = await self.refused(self.server_on(self.pair.follower.dsn(self.name), "--database-wait=1"))
        self.assertIn("the schema of this standby is at version 0", said)
        self.assertIn("start the same program on the primary first", said)


def _basic(login: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{login}:{password}".encode()).decode("ascii")

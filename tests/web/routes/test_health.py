"""Tests of ``svc.web.routes.health``."""

from __future__ import annotations

import json

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.crypto.vault import CANARY
from svc.health.checks_loop import ChecksLoop
from svc.health.probes import AuthzProbe, CoreProbe, DatabaseProbe
from svc.model.dialect import CONJUR, NATIVE, Dialect
from svc.model.errors import StoreUnavailable
from svc.web.routes.health import Health
from tests.health.fakes import VAULT, FakeState
from tests.memory import Memory, MemoryState
from tests.web.support import Client


async def _refuse() -> None:
    raise StoreUnavailable("the standby that commits wait for is away")


class HealthTests(SynchronousTestCase):
    """The route tells the last round."""

    def setUp(self) -> None:
        """Make a server whose health is checked every five seconds."""
        self.memory = Memory()
        self.clock = Clock()
        state = MemoryState(self.memory)
        self.rounds = ChecksLoop(self.clock, self.clock, [AuthzProbe(state)], DatabaseProbe(state), 5.0)
        self.rounds.startService()
        self.addCleanup(self.rounds.stopService)
        self.answers = self.writable = True

    def client(self, rounds: ChecksLoop, dialect: Dialect = NATIVE) -> Client:
        """A client of a server with these rounds, whose database answers, and may be written to, as the test says."""
        return Client(Health(rounds, dialect, lambda: self.answers, lambda: self.writable))

    def test_healthy(self) -> None:
        """A healthy server answers 200 without a login, with the field names of the dialect; ``HEAD`` works (HEALTH-1,
        HEALTH-2, HEALTH-5).
        """
        for dialect, prefix in ((NATIVE, "db_"), (CONJUR, "pg_")):
            client = self.client(self.rounds, dialect)
            answer = client.get("/health")
            self.assertEqual(answer.status, 200)
            report = answer.json()
            self.assertEqual(report["services"], {"authz": "ok", "ok": True})
            location = f"{prefix}current_xlog_location"
            self.assertEqual(report["database"]["replication_status"][location], "0/16B3748")
            self.assertEqual(report["database"]["replication_status"][f"{location}_bytes"], 0x16B3748)
            self.assertEqual(client.head("/health").status, 200)

    def test_failing(self) -> None:
        """When the database fails a round, the answer is 502, and 200 again after a round that it passes (HEALTH-1)."""
        client = self.client(self.rounds)
        self.memory.down = True
        self.clock.advance(5)
        answer = client.get("/health")
        self.assertEqual((answer.status, answer.json()["ok"], answer.json()["database"]["ok"]), (502, False, False))
        self.assertEqual(answer.json()["database"]["connect"], {"main": "failed"})
        self.memory.down = False
        self.clock.advance(5)
        self.assertEqual(client.get("/health").status, 200)

    def test_form_of_the_draft(self) -> None:
        """Who accepts ``application/health+json`` is told in that form, with the same status; caches know that it varies
        (HEALTH-8).
        """
        client = self.client(self.rounds)
        for accepted in ("application/health+json", "Application/Health+JSON;q=0.9, */*"):
            answer = client.get("/health", headers=[("Accept", accepted)])
            self.assertEqual((answer.status, answer.headers["content-type"]), (200, "application/health+json"))
            self.assertEqual(json.loads(answer.body)["status"], "pass")
            self.assertEqual(answer.headers["vary"], "Accept")
        self.memory.down = True
        self.clock.advance(5)
        answer = client.get("/health", headers=[("Accept", "application/health+json")])
        self.assertEqual((answer.status, json.loads(answer.body)["status"]), (502, "fail"))
        self.assertEqual(client.get("/health", headers=[("Accept", "application/json")]).json()["ok"], False)

    def test_alive(self) -> None:
        """A server whose reactor turns is alive, whatever its database does and before any round has ended (HEALTH-9)."""
        rounds = ChecksLoop(Clock(), Clock(), [], DatabaseProbe(MemoryState(self.memory)), 5.0)
        self.memory.down = True
        self.clock.advance(100)
        for each in (rounds, self.rounds):
            client = self.client(each)
            self.assertEqual((client.get("/livez").status, client.get("/livez").json()), (200, {"ok": True}))
            self.assertEqual((client.head("/livez").status, client.head("/livez").body), (200, b""))

    def test_ready(self) -> None:
        """A server is ready as of its last round: 200, or 503; it isn't before the first, nor once rounds are stale
        (HEALTH-10).
        """
        client = self.client(self.rounds)
        self.assertEqual((client.get("/readyz").status, client.get("/readyz").json()), (200, {"ok": True}))
        self.assertEqual(client.head("/readyz").status, 200)
        self.memory.down = True
        self.clock.advance(5)
        self.assertEqual((client.get("/readyz").status, client.get("/readyz").json()), (503, {"ok": False}))
        self.assertEqual(client.head("/readyz").status, 503)
        self.memory.down = False
        self.clock.advance(5)
        self.assertEqual(client.get("/readyz").status, 200)
        self.rounds.stopService()
        self.clock.advance(15.1)
        self.assertEqual(client.get("/readyz").status, 503)
        unstarted = ChecksLoop(Clock(), Clock(), [], DatabaseProbe(MemoryState(self.memory)), 5.0)
        self.assertEqual(self.client(unstarted).get("/readyz").status, 503)

    def test_ready_now(self) -> None:
        """A database that doesn't answer now makes a server unready at once, whatever the last round found (HEALTH-11)."""
        client = self.client(self.rounds)
        self.answers = False
        for target in ("/readyz", "/readyz?write"):
            self.assertEqual((client.get(target).status, client.get(target).json()), (503, {"ok": False}))
        self.assertEqual(client.get("/health").status, 200)
        self.answers = True
        self.assertEqual(client.get("/readyz").status, 200)

    def test_ready_to_write(self) -> None:
        """Whether a server can write is another question than whether it can serve, and is asked with ``write``
        (HEALTH-12).
        """
        writes = ("/readyz?write", "/readyz?write=true", "/readyz?write=", "/readyz?x&write")
        reads = ("/readyz", "/readyz?write=false", "/readyz?writes", "/readyz?Write")

        def statuses() -> set[tuple[int, int]]:
            return {(client.get(write).status, client.get(read).status) for write in writes for read in reads}

        state = FakeState()
        core = CoreProbe(state, lambda sealed: VAULT.open(CANARY, sealed))
        rounds = ChecksLoop(self.clock, self.clock, [core], DatabaseProbe(state), 5.0)
        rounds.startService()
        self.addCleanup(rounds.stopService)
        client = self.client(rounds)
        self.assertEqual(statuses(), {(200, 200)})
        self.writable = False  # as on a follower
        self.assertEqual(statuses(), {(503, 200)})
        self.writable = True
        state.work["transaction"] = _refuse
        self.clock.advance(5)
        self.assertEqual(statuses(), {(503, 200)})
        self.assertEqual((client.get("/health").status, client.get("/health").json()["services"]["core"]), (502, "failed"))
        state.work["canary"] = _refuse
        self.clock.advance(5)
        self.assertEqual(statuses(), {(503, 503)})
        self.assertEqual(client.get("/readyz?write=maybe").status, 422)

    def test_asks_nobody(self) -> None:
        """However often these routes are asked, and while the database hangs, they ask neither it nor a probe (HEALTH-1)."""
        asked = FakeState()
        rounds = ChecksLoop(self.clock, self.clock, [AuthzProbe(asked)], DatabaseProbe(asked), 5.0)
        client = self.client(rounds)
        for path in ("/health", "/livez", "/readyz"):
            client.get(path)
            client.head(path)
        self.assertEqual(asked.asked, [])

    def test_junk(self) -> None:
        """Headers, tokens and queries that make no sense don't change an answer; other paths and methods are 404
        (HEALTH-13).
        """
        client = self.client(self.rounds)
        junk = [("Authorization", 'Token token="nonsense"'), ("Accept", "\x80;q=x, */*"), ("X-Request-Id", "a" * 999)]
        for target in ("/health?a=%FF&a=1&=&limit=-1", "/health/", "/health?" + "x" * 9000, "/livez?", "/readyz?ready=no"):
            self.assertEqual(client.get(target, headers=junk).status, 200, target)
        for target in ("/healthz", "/%68ealth", "/health/x", "/Health", "//health", "/livez/../health"):
            self.assertEqual(client.get(target).status, 404, target)
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            self.assertEqual(client.request(method, "/health").status, 404)

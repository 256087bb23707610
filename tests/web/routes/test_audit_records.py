"""The records of the servers' audit files over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import attrs
from twisted.internet.defer import Deferred

from svc.audit.record_files import RecordQuery
from svc.audit.record_search import RecordKey, RecordsPage, RecordsQuestion
from svc.audit.record_searcher import NO_FILE
from svc.cluster.record_questions import CLOCK_DIFFERENCE, RecordQuestions
from svc.crypto.vault import Vault
from svc.model.errors import AuditSearchUnavailable
from svc.model.names import admin_of
from svc.web.routes.audit_records import AuditRecords, PeerRecords
from tests.audit.chained import Ticking, Writer
from tests.model.test_clocks import EXTREME
from tests.web.support import Client
from tests.web.world import ADMIN, WorldCase, user

POLICY = """
- !user alice
- !user bob
- !policy
  id: app
  owner: !user alice
  body:
  - !variable db
- !permit {role: !user bob, privileges: [read], resources: !variable app/db}
"""

ALICE, BOB = user("alice"), user("bob")
DB = "acme:variable:app/db"
CURSOR = "2023-11-14T22:13:20.250Z_7_0123456789abcdef"


class RecordsCase(WorldCase):
    """A server, whose own files and those of whose members the test plays."""

    def setUp(self) -> None:
        """Load the policy, and have a server and a member that find nothing."""
        super().setUp()
        self.load(POLICY)
        self.result_of(self.create_account("other", "1other"))
        self.asked: list[RecordsQuestion] = []
        self.own: Callable[[], Any] = RecordsPage
        self.member: Callable[[], Any] = RecordsPage

        async def search_own(question: RecordsQuestion) -> RecordsPage:
            self.asked.append(question)
            page: RecordsPage | Deferred[RecordsPage] = self.own()
            return await page if isinstance(page, Deferred) else page

        async def search_member(question: RecordsQuestion) -> RecordsPage:
            page: RecordsPage | Deferred[RecordsPage] = self.member()
            return await page if isinstance(page, Deferred) else page

        service = attrs.evolve(self.server.audit_search_service, search_own=search_own, members={"vault2": search_member})
        self.questions = RecordQuestions(self.vault, self.clock)
        self.client = Client(
            AuditRecords(service), PeerRecords(self.questions, search_own), journal=self.journal, clock=self.clock
        )

    def found(self, query: str = "", role: object = ADMIN, status: int = 200) -> Any:
        """The answer to a search, which must have this status."""
        answer = self.client.get(f"/audit/records{query}", role=role)
        self.assertEqual(answer.status, status, answer.body)
        return answer.json() if status == 200 else None


class SearchTests(RecordsCase):
    """A search of all servers."""

    def test_merged(self) -> None:
        """The records of all servers come by time, each with its server, in the form of events (AUD-28, AUD-63)."""
        wall = Ticking()
        one, two = Writer("a", wall=wall), Writer("b", wall=wall)
        lines = [one.lines(1), two.lines(1, reason="forbidden"), one.lines(1)]
        oldest, middle, newest = (each[0][:-1] for each in lines)
        self.own = lambda: RecordsPage((newest, oldest))
        self.member = lambda: RecordsPage((middle,), True)
        answer = self.found("?limit=7")
        self.assertEqual([record["server"] for record in answer["records"]], ["machine", "vault2"])
        self.assertEqual([record["hostname"] for record in answer["records"]], ["a", "b"])
        self.assertEqual(answer["records"][1]["sdata"]["action@43868"]["result"], "failure")
        # The member has more, which may come before the oldest of this server.
        self.assertEqual(answer["after"], str(RecordKey.of_line(middle)))
        self.assertEqual((answer["complete"], [each["server"] for each in answer["servers"]]), (True, ["machine", "vault2"]))
        self.member = RecordsPage
        self.assertEqual([record["number"] for record in self.found()["records"]], [2, 1])
        self.assertIsNone(self.found()["after"])

    def test_many(self) -> None:
        """Pages of many records arrive whole (AUD-63)."""
        page = RecordsPage(tuple(line[:-1] for line in Writer().lines(200)[::-1]))
        self.own = lambda: page
        numbers = [record["number"] for record in self.found("?limit=150")["records"]]
        self.assertEqual(numbers, list(range(200, 50, -1)))

    def test_question(self) -> None:
        """Each parameter narrows the search, of the caller's account alone, since that was made (AUD-26, AUD-63)."""
        self.found(
            f"?since=2024-01-01T00:00:00Z&until=2024-01-01T02:00:00%2B01:00&user=acme:user:alice&what=fetch&outcome=failure"
            f"&request=r-1&msgid=fetch&operation=fetch&client_ip=192.0.2.7&resource={DB}&role=acme:user:bob&about={DB}"
            f"&limit=5&after={CURSOR}"
        )
        query = RecordQuery(
            since="2024-01-01T00:00:00.000Z",
            until="2024-01-01T01:00:00.000Z",
            user="acme:user:alice",
            what="fetch",
            outcome="failure",
            request="r-1",
            msgid="fetch",
            operation="fetch",
            client_ip="192.0.2.7",
            role="acme:user:bob",
            resource=DB,
            about=DB,
        )
        self.assertEqual(self.asked, [RecordsQuestion(query, "acme", 5, RecordKey.parse(CURSOR), str(ADMIN), True)])
        made = "2023-11-14T22:13:20.250Z"
        for since in ("", "?since=2020-01-01T00:00:00Z"):
            self.found(since)
            self.assertEqual(self.asked[-1].query.since, made)
        self.found(role=admin_of("other"))
        self.assertEqual(self.asked[-1].account, "other")

    def test_bad_parameters(self) -> None:
        """A value that can't be is 422, and nothing is searched (AUD-63)."""
        for bad in (
            "outcome=good",
            "since=yesterday",
            "until=2024-01-01",
            *(f"{name}={quote(text)}" for name in ("since", "until") for text in EXTREME),
            "limit=0",
            "limit=1001",
            "after=x",
            f"after={CURSOR}0",
            "resource=variable:app/db",
            "role=x",
            "user=a&user=b",
            "what=%00",
        ):
            self.found(f"?{bad}", status=422)
        self.assertEqual(self.asked, [])

    def test_who_may(self) -> None:
        """Who doesn't own or inspect the root policy names what it owns: 403 for what it sees, else 404 (AUD-29, AUD-63)."""
        for role, query, status in (
            (ADMIN, "", 200),
            (ADMIN, "?resource=acme:variable:absent", 200),
            (ADMIN, "?resource=other:policy:root", 404),
            (ALICE, "", 403),
            (ALICE, "?user=acme:user:alice", 403),
            (ALICE, f"?what={DB}", 403),
            (ALICE, f"?resource={DB}", 200),
            (ALICE, f"?about={DB}&what=fetch", 200),
            (ALICE, f"?resource={DB}&role=acme:user:bob", 404),
            (ALICE, "?about=acme:policy:root", 404),
            (BOB, f"?resource={DB}", 403),
            (BOB, "?role=acme:user:alice", 404),
            (BOB, "?resource=other:policy:root", 404),
        ):
            before = len(self.asked)
            self.found(query, role, status)
            self.assertEqual(len(self.asked) - before, status == 200, (role, query))
            if status == 200:
                # By these the permit is taken (AUD-65).
                self.assertEqual((self.asked[-1].role, self.asked[-1].reads_all), (str(role), role is ADMIN))

    def test_faults(self) -> None:
        """What a server couldn't read is named, and what to set where it has no file; the others' records come (AUD-63)."""
        [line] = (line[:-1] for line in Writer().lines(1))
        self.own = lambda: RecordsPage(faults=(NO_FILE,))
        self.member = lambda: RecordsPage((line,), faults=("audit.log.1.xz can't be read",))
        answer = self.found()
        self.assertEqual((len(answer["records"]), answer["complete"]), (1, False))
        self.assertEqual(
            answer["servers"],
            [
                {"server": "machine", "complete": False, "faults": [NO_FILE]},
                {"server": "vault2", "complete": False, "faults": ["audit.log.1.xz can't be read"]},
            ],
        )

    def test_busy(self) -> None:
        """Where this server has no room for a search it is 503 with Retry-After, and no member goes on (AUD-62)."""
        asked: Deferred[RecordsPage] = Deferred()
        self.member = lambda: asked
        ended: list[object] = []
        asked.addErrback(ended.append)

        def refuse() -> RecordsPage:
            raise AuditSearchUnavailable("2 searches are under way")

        self.own = refuse
        answer = self.client.get("/audit/records", role=ADMIN)
        self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "5"))
        self.assertIn(b"2 searches are under way", answer.body)
        self.assertEqual(len(ended), 1)

    def test_audited(self) -> None:
        """A search is an event, with its parameters (AUD-3, AUD-31, AUD-63)."""
        self.found(f"?resource={DB}&outcome=failure")
        told = [event for event in self.journal.told() if event[0] == "audit"]
        self.assertEqual(told, [("audit", "search", {"outcome": "failure", "resource": DB}, None)])


class PeerTests(RecordsCase):
    """The question of another server."""

    def ask(self, vault: Vault) -> Any:
        """Ask as a server with this data key does."""
        asking = RecordQuestions(vault, self.clock)
        sent = asking.make_question(RecordsQuestion(RecordQuery(), "acme", 9))
        answer = self.client.get(f"/cluster/records?{sent.query_string}")
        return answer, None if answer.status != 200 else asking.open_page(sent, answer.body)

    def test_peer(self) -> None:
        """Another server of the cluster gets this one's records, encrypted, without a login; nobody else does (AUD-64)."""
        page = RecordsPage(tuple(line[:-1] for line in Writer().lines(3)[::-1]), False, ("a fault",))
        self.own = lambda: page
        answer, read = self.ask(Vault(b"k" * 32))
        self.assertEqual((answer.status, read), (200, page))
        for path in ("", "?question=e30&challenge=" + 32 * "0" + "&code=" + 64 * "0", "?question=" + quote("\u00e9")):
            self.assertEqual(self.client.get(f"/cluster/records{path}").status, 404)
        self.assertEqual(self.ask(Vault(b"x" * 32))[0].status, 404)
        self.assertEqual(len(self.asked), 1)

    def test_clocks(self) -> None:
        """A question of another time starts no search, and the answer names the clocks (AUD-64)."""
        asking = RecordQuestions(self.vault, self.clock)
        sent = asking.make_question(RecordsQuestion(RecordQuery(), "acme", 9))
        self.clock.advance(CLOCK_DIFFERENCE + 1)
        answer = self.client.get(f"/cluster/records?{sent.query_string}")
        page = asking.open_page(sent, answer.body)
        assert page is not None
        self.assertIn("its clock is 121 s ahead of that of the server that asks", page.faults[0])
        self.assertEqual((answer.status, page.lines, self.asked), (200, (), []))

    def test_busy(self) -> None:
        """It is 503 where this server has no room (AUD-62)."""

        def refuse() -> RecordsPage:
            raise AuditSearchUnavailable("2 searches are under way")

        self.own = refuse
        self.assertEqual(self.ask(Vault(b"k" * 32))[0].status, 503)

"""Tests of ``svc.web.routes.cluster`` and of its page."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable
from html.parser import HTMLParser
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.cluster.members import Members
from svc.cluster.overview import ClusterOverview
from svc.cluster.peer_claims import PeerClaims
from svc.cluster.reports import INVALID, UNREACHABLE, MemberHealth, ProbeReply, parse_reply
from svc.crypto.vault import Vault
from svc.health.checks_loop import ChecksLoop
from svc.health.probes import AuthzProbe, DatabaseProbe
from svc.model.databases import DatabaseIdentity
from svc.model.dialect import CONJUR, NATIVE, Dialect
from svc.web.routes.cluster import Cluster, render_page
from svc.web.routes.health import Health
from tests.memory import Memory, MemoryState
from tests.web.support import Client

BODY = b'{"ok": true, "services": {"core": "ok", "ok": true},\n "<new>": 1}'
IDENTITY = DatabaseIdentity(7_711_051_369_545_791_476, 3, 1_795_369_055_073_057, False)
Asking = Callable[[], Awaitable[ProbeReply]]


class Case(SynchronousTestCase):
    """A server of a cluster, whose members answer as ``answers`` says; ``asked`` lists who was asked."""

    def setUp(self) -> None:
        """Two members, the one well and the other gone."""
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.memory = Memory()
        state = MemoryState(self.memory)
        self.rounds = ChecksLoop(self.clock, self.clock, [AuthzProbe(state)], DatabaseProbe(state), 5.0)
        self.rounds.startService()
        self.addCleanup(self.rounds.stopService)
        self.answers: dict[str, ProbeReply] = {
            "b.example": parse_reply(200, BODY),
            "c": ProbeReply(fault=UNREACHABLE, why="no route"),
        }
        self.asked: list[str] = []
        self.contenders: frozenset[str] = frozenset()

    def client(self, dialect: Dialect = NATIVE) -> Client:
        """A client of the server."""

        def asking(name: str) -> Asking:
            async def ask() -> ProbeReply:
                self.asked.append(name)
                return self.answers[name]

            return ask

        members = Members(self.clock, self.clock, {name: asking(name) for name in self.answers})
        return Client(Health(self.rounds, dialect, lambda: True, lambda: True), self.noun(members, dialect))

    def noun(self, members: Members, dialect: Dialect = NATIVE) -> Cluster:
        """The routes of the cluster."""

        async def identity(_: str) -> DatabaseIdentity:
            self.memory.ask()
            return IDENTITY

        overview = ClusterOverview(self.rounds, dialect, members, lambda: self.contenders)
        return Cluster(overview, PeerClaims(Vault(bytes(32))), identity)


class RemoteHealthTests(Case):
    """``/remote_health/<server-hostname>``."""

    def test_report(self) -> None:
        """A member's report is handed on as it is, with its status, without a login; ``HEAD`` works (HEALTH-18)."""
        client = self.client()
        answer = client.get("/remote_health/b.example")
        self.assertEqual((answer.status, answer.body), (200, BODY))
        self.assertEqual(answer.headers["content-type"], "application/json")
        self.assertEqual(client.head("/remote_health/b.example").status, 200)
        self.answers["b.example"] = parse_reply(502, b'{"ok": false}')
        self.clock.advance(1.1)
        answer = client.get("/remote_health/b.example/")
        self.assertEqual((answer.status, answer.body), (502, b'{"ok": false}'))

    def test_no_report(self) -> None:
        """A member without a report is 502, in the shape of a report and the words of the dialect, with one word for all
        (HEALTH-20).
        """
        for dialect in (NATIVE, CONJUR):
            for fault in (UNREACHABLE, INVALID):
                self.answers["c"] = ProbeReply(fault=fault, why="secret detail")
                client = self.client(dialect)
                answer, own = client.get("/remote_health/c"), client.get("/health")
                self.assertEqual((answer.status, answer.json()["ok"]), (502, False))
                self.assertEqual(shape(answer.json()), shape(own.json()))
                self.assertEqual(answer.json()["database"]["connect"]["main"], fault)
                self.assertEqual(answer.json()["services"], {"authz": fault, "ok": False})
                self.assertNotIn(b"secret", answer.body)

    def test_other_names(self) -> None:
        """Any other name is 404 in JSON, and nobody is asked: neither this server itself nor any address (HEALTH-18)."""
        client = self.client()
        for name in (
            "d.example",
            "B.example",
            "b.example.",
            "b%2Eexample",
            "127.0.0.1",
            "127.0.0.1:8080",
            "%5B::1%5D",
            "localhost",
            "this%20server",
            "http:%2F%2Fb.example",
            "http://b.example",
            "b.example:80",
            "b.example%3A80",
            "user@b.example",
            "user:pass@b.example",
            "b.example%2F..",
            "b.example/health",
            "..",
            ".",
            "%2e%2e",
            "%00",
            "b.example%00",
            "%FF",
            "%",
            "%zz",
            "%D0%B1",
            "b.example%0d%0aHost:%20x",
            "b" * 10240,
            "",
            "*",
            "b.example;c",
            "b.example,c",
        ):
            answer = client.get(f"/remote_health/{name}")
            self.assertEqual((answer.status, answer.json()["error"]["code"]), (404, "not_found"), name[:60])
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            self.assertEqual(client.request(method, "/remote_health/b.example").status, 404)
        self.assertEqual(self.asked, [])

    def test_junk(self) -> None:
        """Queries, tokens and bodies change nothing: the member is asked the same, once (HEALTH-21)."""
        client = self.client()
        headers = [("Authorization", 'Token token="x"'), ("X-Forwarded-Host", "d.example"), ("Cookie", "a=b")]
        for query in ("", "?host=d.example", "?%FF", "?" + "a&" * 2000):
            self.assertEqual(client.get(f"/remote_health/b.example{query}", headers=headers, body=b"{}").status, 200)
        self.assertEqual(self.asked, ["b.example"])


class ClaimTests(Case):
    """``/cluster/database``."""

    def test_answer(self) -> None:
        """Who knows the data key is told what the database is, under his challenge; so he is asked by no stranger
        (CLU-20).
        """
        client, claims = self.client(), PeerClaims(Vault(bytes(32)))
        challenge, code = claims.new_challenge()
        answer = client.get(f"/cluster/database?challenge={challenge}&code={code}")
        self.assertEqual((answer.status, claims.read_identity(challenge, answer.body)), (200, IDENTITY))
        self.memory.down = True
        self.assertEqual(client.get(f"/cluster/database?challenge={challenge}&code={code}").status, 503)

    def test_strangers(self) -> None:
        """To anybody else the route isn't there, and the database isn't asked (CLU-20)."""
        client, self.memory.down = self.client(), True
        challenge, code = PeerClaims(Vault(bytes(32))).new_challenge()
        foreign, theirs = PeerClaims(Vault(bytes([1] * 32))).new_challenge()
        for query in (
            "",
            "?challenge",
            f"?challenge={challenge}",
            f"?code={code}",
            f"?challenge={challenge}&code",
            f"?challenge={challenge}&code=",
            f"?challenge={challenge}&code={code[:-1]}",
            f"?challenge={challenge}&code={code[::-1]}",
            f"?challenge={challenge}&code=%C3%A9",
            f"?challenge={challenge[:-2]}&code={code}",
            f"?challenge={challenge.upper()}&code={code}",
            f"?challenge={foreign}&code={theirs}",
        ):
            answer = client.get(f"/cluster/database{query}")
            self.assertEqual((answer.status, answer.json()["error"]["code"]), (404, "not_found"), query)


class ViewTests(Case):
    """``/ui/health``."""

    def test_json(self) -> None:
        """To whom accepts JSON all servers are told, this one first; it is ok when all of them are (HEALTH-23)."""
        client = self.client()
        view = client.get("/ui/health", headers=[("Accept", "application/json")]).json()
        self.assertIs(view["ok"], False)
        here, b, c = view["servers"]
        self.assertEqual((here["name"], here["here"], here["ok"], here["role"]), ("this server", True, True, "primary"))
        self.assertEqual((here["changed"], here["services"]), (1_700_000_000.0, {"authz": "ok"}))
        self.assertEqual((b["name"], b["here"], b["reachable"], b["word"]), ("b.example", False, True, "ok"))
        self.assertEqual((c["name"], c["reachable"], c["word"], c["ok"]), ("c", False, UNREACHABLE, False))
        self.answers["c"] = parse_reply(200, BODY)
        self.clock.advance(1.1)
        self.assertTrue(client.get("/ui/health", headers=[("Accept", "application/json")]).json()["ok"])

    def test_two_primaries(self) -> None:
        """Members that are primaries beside each other are not well, though they don't know of each other."""
        self.contenders = frozenset({"b.example", "c"})
        client = self.client()
        view = client.get("/ui/health", headers=[("Accept", "application/json")]).json()
        self.assertEqual(view["ok"], False)
        shown = [(each["name"], each["word"], each["primaries"]) for each in view["servers"]]
        self.assertEqual(shown, [("this server", "ok", ""), ("b.example", "failed", "two"), ("c", UNREACHABLE, "two")])
        self.assertIn(b"there is another primary", client.get("/ui/health").body)

    def test_page(self) -> None:
        """To others it is a page without scripts, which nothing may frame and whose style alone is let in (HEALTH-23,
        HEALTH-24).
        """
        answer = self.client().get("/ui/health")
        self.assertEqual((answer.status, answer.headers["content-type"]), (200, "text/html; charset=utf-8"))
        policy = answer.headers["content-security-policy"]
        style = re.search(r"<style>(.*?)</style>", answer.body.decode(), re.DOTALL)
        assert style is not None
        digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
        self.assertEqual(
            policy,
            f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        )
        for forbidden in (b"<script", b" style=", b"http://", b"https://", b"onclick", b"<a ", b"<img", b"<form"):
            self.assertNotIn(forbidden, answer.body)
        self.assertIn(b'<meta http-equiv="refresh" content="10">', answer.body)
        self.assertEqual(self.client().head("/ui/health").status, 200)

    def test_no_more_than_health(self) -> None:
        """Why a member can't be reached isn't shown, nor where it is (HEALTH-24)."""
        client = self.client()
        for headers in ([], [("Accept", "application/json")]):
            self.assertNotIn(b"no route", client.get("/ui/health", headers=headers).body)

    def test_ill_server(self) -> None:
        """A server whose own database is away shows itself, and the others."""
        self.memory.down = True
        self.clock.advance(5)
        view = self.client().get("/ui/health", headers=[("Accept", "application/json")]).json()
        self.assertEqual([each["word"] for each in view["servers"]], ["failed", "ok", UNREACHABLE])

    def test_hanging_member(self) -> None:
        """A page waits for a member no longer than the member's question lasts, and not at all once its client has left
        (HEALTH-25).
        """
        hanging: Deferred[ProbeReply] = Deferred()

        async def ask() -> ProbeReply:
            return await hanging

        client = Client(self.noun(Members(self.clock, self.clock, {"b": ask})))
        gone, waiting = client.begin("GET", "/ui/health"), client.begin("GET", "/ui/health")
        gone.leave()
        hanging.callback(ProbeReply(fault=UNREACHABLE, why="late"))
        self.assertIn(b"unreachable", waiting.answer().body)


class _Reader(HTMLParser):
    """Reads a page: its tags in order, its texts, and whether all that was opened was closed."""

    _VOID = frozenset({"meta"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open."""
        self.tags.append((tag, dict(attrs)))
        if tag not in self._VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close what was opened last."""
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        """Keep."""
        self.texts.append(data)


TEXT = st.text(max_size=30) | st.sampled_from(["<script>alert(1)</script>", '"><img src=x>', "</td>", "'&amp;", "]]>"])
SIGHTS = st.builds(
    MemberHealth,
    name=TEXT,
    here=st.booleans(),
    word=st.sampled_from(["ok", "failed", UNREACHABLE, INVALID]) | TEXT,
    services=st.dictionaries(TEXT, TEXT, max_size=4),
    database=TEXT,
    role=TEXT,
    lag_seconds=st.none() | st.floats(0, 1e18),
    lag_bytes=st.none() | st.integers(0, 1 << 62),
    changed=st.none() | st.floats(0, 4e9),
    age=st.floats(0, 1e7),
)


class PageTests(SynchronousTestCase):
    """What stands on the page."""

    def test_structure(self) -> None:
        """It has a language, a title, a heading, landmarks, and a table whose headings say what they are for."""
        services = {"core": "ok", "ldap": "failed"}
        b = MemberHealth(
            name="b", here=False, word="failed", services=services, database="ok", role="follower", lag_seconds=2.25
        )
        read = _Reader(render_page([MemberHealth(name="this server", here=True, word="ok"), b], 1_700_000_000.0))
        names = [tag for tag, _ in read.tags]
        self.assertIn(("html", {"lang": "en"}), read.tags)
        for once in ("title", "h1", "header", "main", "footer", "table", "caption", "thead", "tbody"):
            self.assertEqual(names.count(once), 1, once)
        scopes = [attributes["scope"] for tag, attributes in read.tags if tag == "th"]
        self.assertEqual(scopes, ["col"] * 7 + ["row"] * 2)
        text = " ".join(read.texts)
        for said in ("1 of 2 servers not well: b.", "failed", "follower", "2.2 s", "ldap", "none seen"):
            self.assertIn(said, text)

    def test_ages(self) -> None:
        """Moments are told as what has passed since, and exactly for programs; an old answer is shown with its age."""
        seen = MemberHealth(name="b", here=False, word="ok", changed=1_699_999_000.0, age=45.0)
        text = render_page([seen], 1_700_000_000.0)
        self.assertIn('<time datetime="2023-11-14T21:56:40Z">17 min ago</time>', text)
        self.assertIn("as of 45 s ago", text)
        self.assertIn("All 2 servers are well.", render_page([seen, seen], 0.0))
        self.assertIn("This server is well.", render_page([seen], 0.0))

    @given(st.lists(SIGHTS, max_size=3), st.floats(0, 4e9))
    def test_everything_is_escaped(self, sights: list[MemberHealth], now: float) -> None:
        """Whatever servers say, the page has the same tags as if they had said nothing strange, all of them closed
        (HEALTH-24).
        """
        read = _Reader(render_page(sights, now))
        self.assertEqual(read.open, [])
        known = {"html", "head", "meta", "title", "style", "body", "header", "h1", "p", "main", "table", "caption", "time"}
        known |= {"thead", "tbody", "tr", "th", "td", "div", "span", "small", "ul", "li", "b", "footer"}
        self.assertEqual({tag for tag, _ in read.tags} - known, set())
        self.assertEqual([tag for tag, _ in read.tags].count("tr"), len(sights) + 1)
        attributes = {name for _, found in read.tags for name in found}
        self.assertTrue(
            attributes
            <= {"lang", "charset", "name", "content", "http-equiv", "role", "scope", "class"}
            | {"data-label", "datetime", "aria-hidden"},
            attributes,
        )


def shape(document: Any) -> Any:
    """The members of a document, without their values."""
    return {name: shape(value) for name, value in document.items()} if isinstance(document, dict) else ...

"""The health of other servers, asked over real sockets: members that are well, and members that do everything wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs
from OpenSSL.SSL import Connection
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator, IReactorTime
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import PrivateCertificate
from zope.interface import implementer

from tests.authn.providers.authority import Authority
from tests.integration.client import Answer, Api
from tests.integration.postgres import PostgresTestCase
from tests.integration.process import ServerTestCase, beat

reactor: Any = installed_reactor

#: What a question may take beyond its deadline of five seconds, on a machine that has other things to do.
SLACK: Final = 4.0

Answering = Callable[[Any], None]


def _answer(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class _Speaker(Protocol):
    """Says, to each that has sent a request, what its member says, over and over if that is a flood."""

    member: Member
    transport: Any  # what a TCP connection has

    def connectionMade(self) -> None:
        """Count, and begin at once if so told."""
        self.member.met += 1

    def dataReceived(self, data: bytes) -> None:
        """Answer."""
        self.member.requests.append(data)
        if self.member.flood:
            self.transport.registerProducer(self, False)
        elif self.member.says is not None:
            self.transport.write(self.member.says)

    def resumeProducing(self) -> None:
        """Send more of a flood, as fast as it is taken."""
        self.member.sent += 65_536
        if self.member.sent > 1_000_000_000:
            self.transport.unregisterProducer()
            return
        self.transport.write(self.member.says or b"" if self.member.sent == 65_536 else b" " * 65_536)

    def stopProducing(self) -> None:
        """It isn't taken any more."""


@implementer(IOpenSSLServerConnectionCreator)
class Member(Factory):
    """Somebody who listens, with TLS if there is a certificate; ``says`` is all that it ever says, ``None`` is silence."""

    noisy = False

    def __init__(
        self, case: ServerTestCase, says: bytes | None, *, certificate: PrivateCertificate | None = None, flood: bool = False
    ) -> None:
        self.says = says
        self.flood = flood
        self.certificate = certificate
        self.met = self.sent = 0
        self.requests: list[bytes] = []
        if certificate is None:
            port = reactor.listenTCP(0, self, interface="127.0.0.1")
        else:
            port = reactor.listenSSL(0, self, self, interface="127.0.0.1")
        case.addCleanup(port.stopListening)
        self.port: int = port.getHost().port

    @property
    def asked(self) -> int:
        """How often it was asked for its health; for its database servers ask by themselves."""
        return sum(b"GET /health " in request for request in self.requests)

    @property
    def url(self) -> str:
        """Its address."""
        return f"{'http' if self.certificate is None else 'https'}://127.0.0.1:{self.port}"

    def buildProtocol(self, addr: Any) -> Protocol:
        """Make a connection."""
        speaker = _Speaker()
        speaker.member = self
        return speaker

    def serverConnectionForTLS(self, tlsProtocol: Any) -> Connection:  # noqa: N803 (Twisted's)
        """The TLS of a connection."""
        assert self.certificate is not None
        return Connection(self.certificate.options().getContext(), None)


@attrs.frozen
class Asked:
    """An answer, and how many seconds it took."""

    answer: Answer
    seconds: float


WELL: Final = _answer("200 OK", b'{"ok": true, "services": {"core": "ok", "ok": true}}')

#: What members say that is no health report.
WRONG: Final = {
    "lying": _answer("200 OK", b'{"ok": false}'),
    "modest": _answer("502 Bad Gateway", b'{"ok": true}'),
    "html": _answer("200 OK", b"<html>ok</html>", "Content-Type: text/html"),
    "text": _answer("200 OK", b"ok"),
    "number": _answer("200 OK", b'{"ok": 1}'),
    "string": _answer("200 OK", b'{"ok": "true"}'),
    "list": _answer("200 OK", b'[{"ok": true}]'),
    "twice": _answer("200 OK", b'{"ok": false, "ok": true}'),
    "redirecting": _answer("302 Found", b"", "Location: http://127.0.0.1:{canary}/health"),
    "moved": _answer("308 Permanent Redirect", b"", "Location: /elsewhere"),
    "unavailable": _answer("503 Service Unavailable", b'{"ok": false}'),
    "zipped": _answer("200 OK", b"\x1f\x8b\x08", "Content-Encoding: gzip"),
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "large": _answer("200 OK", b'{"ok": true, "x": "' + b"x" * 70_000 + b'"}'),
}


class RemoteHealthTests(PostgresTestCase, ServerTestCase):
    """One server, and members of every kind beside it."""

    async def start(self, members: dict[str, str], *options: str) -> Api:
        """Start the server with these members."""
        listed = ",".join(f"{name}={url}" for name, url in members.items())
        server = self.serve("--cluster", listed, *options, database_url=await self.create_database(migrated=False))
        return Api.of(self, await server.ready())

    async def ask(self, api: Api, name: str) -> Asked:
        """Ask for the health of a member."""
        clock = IReactorTime(installed_reactor)
        began = clock.seconds()
        answer = await api.ask("GET", f"/remote_health/{name}")
        return Asked(answer, clock.seconds() - began)

    def assert_no_report(self, asked: Asked, word: str, own: Any) -> None:
        """The answer is 502, in the shape of this server's own report."""
        document = asked.answer.json()
        self.assertEqual((asked.answer.status, document["ok"]), (502, False), asked)
        self.assertEqual(document["services"], {name: word for name in own["services"] if name != "ok"} | {"ok": False})
        self.assertEqual(document["database"]["connect"], {"main": word})
        self.assertEqual(document["database"].keys(), own["database"].keys())

    async def test_members(self) -> None:
        """A member's report is handed on, 200 or 502; of everything else that a member may do comes a 502, in time
        (HEALTH-18, HEALTH-20).
        """
        canary = Member(self, WELL)
        wrong = {name: Member(self, says.replace(b"{canary}", b"%d" % canary.port)) for name, says in WRONG.items()}
        well = Member(self, WELL)
        ill = Member(self, _answer("502 Bad Gateway", b'{"ok": false, "services": {}}'))
        flooding = Member(self, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n{", flood=True)
        hanging = {"silent": Member(self, None), "stuck": Member(self, WELL[:-1]), "headers": Member(self, WELL[:30])}
        closed = reactor.listenTCP(0, Factory(), interface="127.0.0.1")
        number = closed.getHost().port
        await closed.stopListening()
        members = wrong | hanging | {"well": well, "ill": ill, "flooding": flooding}
        urls = {name: member.url for name, member in members.items()}
        api = await self.start({**urls, "down": f"http://127.0.0.1:{number}"})
        own = (await api.ask("GET", "/health")).json()

        asked = await self.ask(api, "well")
        self.assertEqual((asked.answer.status, asked.answer.body), (200, WELL.partition(b"\r\n\r\n")[2]))
        asked = await self.ask(api, "ill")
        self.assertEqual((asked.answer.status, asked.answer.json()), (502, {"ok": False, "services": {}}))
        for name in ("down", "flooding"):
            asked = await self.ask(api, name)
            self.assert_no_report(asked, "unreachable", own)
            self.assertLess(asked.seconds, SLACK)
        self.assertLess(flooding.sent, 50_000_000)
        for name in wrong:
            asked = await self.ask(api, name)
            self.assert_no_report(asked, "unreachable" if name in {"ssh", "large", "zipped"} else "invalid", own)
        self.assertEqual(canary.met, 0)
        # Those that hang are asked at the same time, and twenty times each: each is met once.
        waiting = [Deferred.fromCoroutine(self.ask(api, name)) for name in hanging for _ in range(20)]
        await DeferredList(waiting)
        for each in waiting:
            asked = await each
            self.assert_no_report(asked, "unreachable", own)
            self.assertLess(asked.seconds, 5 + SLACK)
        self.assertEqual([member.asked for member in hanging.values()], [1, 1, 1])

    async def test_strangers(self) -> None:
        """A name that isn't listed is 404 in JSON, and no connection is made, to wherever the name may lead (HEALTH-18,
        NET-17).
        """
        canary, well = Member(self, WELL), Member(self, WELL)
        api = await self.start({"b.example": well.url}, "--health-interval=60")
        while not well.asked:  # once a minute, without being wanted
            await beat()
        place = f"127.0.0.1:{canary.port}"
        own = api.url.removeprefix("http://")
        for name in (
            place,
            f"http:%2F%2F{place}",
            f"http://{place}/",
            f"b.example@{place}",
            f"user:pass@{place}",
            f"%2F%2F{place}",
            f"b.example%00{place}",
            f"b.example%0d%0aHost:%20{place}",
            f"{place}%23b.example",
            f"{place}?b.example",
            own,
            own.partition(":")[0],
            "localhost",
            "%5B::1%5D",
            "..",
            "..%2F..%2Fb.example",
            "B.EXAMPLE",
            "b.example.",
            "%E2%84%AA",
            "b" * 10_240,
            "%00",
            "",
        ):
            answer = await api.ask("GET", f"/remote_health/{name}")
            self.assertEqual((answer.status, answer.json()["error"]["code"]), (404, "not_found"), name[:60])
        self.assertEqual((canary.met, well.asked), (0, 1))

    async def test_tls(self) -> None:
        """A member's certificate must be for its host and from the authorities that the settings name (HEALTH-22)."""
        authority, other = Authority(), Authority()
        sound = Member(self, WELL, certificate=authority.issue("127.0.0.1"))
        forged = Member(self, WELL, certificate=other.issue("127.0.0.1"))
        misnamed = Member(self, WELL, certificate=authority.issue("b.example"))
        expired = Member(self, WELL, certificate=authority.issue("127.0.0.1", days=1))
        plain = Member(self, WELL)
        folder = Path(self.mktemp()).resolve()
        folder.mkdir()
        for name, each in (("ca.pem", authority), ("other.pem", other)):
            (folder / name).write_text(each.pem)
        tables = [
            ("sound", sound.url, None),
            ("own-ca", forged.url, folder / "other.pem"),
            ("forged", forged.url, None),
            ("misnamed", misnamed.url, None),
            ("expired", expired.url, None),
            ("no-tls", plain.url.replace("http:", "https:"), None),
        ]
        lines = [f'cluster_ca = "{folder / "ca.pem"}"']
        for name, url, ca in tables:
            lines += ["[[cluster]]", f'name = "{name}"', f'url = "{url}"', *([] if ca is None else [f'ca = "{ca}"'])]
        (folder / "svc.toml").write_text("\n".join(lines))
        database = await self.create_database(migrated=False)
        server = self.serve("--config", str(folder / "svc.toml"), database_url=database)
        api = Api.of(self, await server.ready())
        statuses = {name: (await self.ask(api, name)).answer.status for name, _, _ in tables}
        bad = dict.fromkeys(("forged", "misnamed", "expired", "no-tls"), 502)
        self.assertEqual(statuses, {"sound": 200, "own-ca": 200} | bad)
        for member in (misnamed, expired):
            self.assertEqual(member.requests, [])

    async def test_two_servers(self) -> None:
        """Two servers tell each other's health, and see each other, also when the one loses the other."""
        b = self.serve(database_url=await self.create_database(migrated=False))
        b_url = await b.ready()
        api = await self.start({"b.example": b_url})
        asked = await self.ask(api, "b.example")
        own = await Api.of(self, b_url).ask("GET", "/health")
        self.assertEqual((asked.answer.status, asked.answer.json()["services"]), (200, own.json()["services"]))
        while not (view := (await api.ask("GET", "/ui/health", Accept="application/json")).json())["ok"]:
            await beat()  # a check that a busy machine made too slow works in the next round
        self.assertEqual(
            [(each["name"], each["word"], each["role"]) for each in view["servers"]],
            [("this server", "ok", "primary"), ("b.example", "ok", "primary")],
        )
        await b.stop()
        while (await self.ask(api, "b.example")).answer.status == 200:
            continue
        while not (await api.ask("GET", "/health")).json()["ok"]:
            await beat()
        view = (await api.ask("GET", "/ui/health", Accept="application/json")).json()
        self.assertEqual([each["word"] for each in view["servers"]], ["ok", "unreachable"])
        await api.tells("/health", 200)

    async def test_refused_starts(self) -> None:
        """A server doesn't start with a list of members that can't be used, nor with authorities that can't be read."""
        database = await self.create_database(migrated=False)
        for option, value in (
            ("--cluster", "b=http://b.example"),
            ("--cluster", "b=https://u@b.example"),
            ("--cluster-ca", "/nonexistent.pem"),
        ):
            self.assertIn(option, await self.refused(self.serve(option, value, database_url=database)))

    async def test_health_with_junk(self) -> None:
        """The health routes answer 200 whatever comes with the question: queries, tokens, bodies, long headers (HEALTH-13).

        The one that reads its query refuses what can't be read.
        """
        api = await self.start({})
        for path in ("/health", "/livez", "/readyz", "/ui/health"):
            for query in ("", "?%FF", "?a=%00&a", "?" + "x" * 9000, "?limit=-1"):
                junk = {"Authorization": 'Token token="x"', "X_Junk": "y" * 9000, "Accept": "text/junk"}
                while (answer := await api.ask("GET", path + query, b"junk", **junk)).status in {502, 503}:
                    await beat()  # a check that a busy machine made too slow
                readable = path != "/readyz" or "%" not in query
                self.assertEqual(answer.status, 200 if readable else 422, (path, query[:20]))
            self.assertEqual((await api.ask("HEAD", path)).body, b"")
        report = await api.ask("GET", "/health", Accept="application/health+json")
        self.assertEqual(report.headers["content-type"], "application/health+json")
        self.assertEqual(json.loads(report.body)["status"], "pass")

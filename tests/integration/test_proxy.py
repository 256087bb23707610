"""The sample file of HAProxy, in HAProxy: what it sends where, what it sends twice, and what clients notice of a fault."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase
from twisted.web.http import HTTPChannel
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from svc.worker.pool import LOAD_DEADLINE
from tests.authn.providers.authority import Authority
from tests.integration.bed import free_port
from tests.integration.client import Api
from tests.integration.postgres import PATIENCE
from tests.integration.process import beat
from tests.integration.proxied_pair import ProxiedPairTestCase
from tests.integration.proxy import SAMPLE, Proxy, unavailable
from tests.web.declared import declared, declared_pages, path_of
from tests.web.support import read_answers

reactor: Any = installed_reactor

#: What changes something, though some of it looks as if it did not; it may go to the primary alone.
CHANGES: Final = (
    ("POST", "/secrets/acme/variable/authenticate"),
    ("POST", "/secrets/acme/variable/x%2Fauthenticate"),
    ("POST", "/secrets/acme/variable/authn-jwt/ci/acme/authenticate"),
    ("POST", "/secrets/acme/variable/x/explain/"),
    ("POST", "/secrets/acme/variable/x?y=/authn/acme/admin/authenticate"),
    ("POST", "/policies/acme/policy/x/authenticate"),
    ("PUT", "/policies/acme/policy/x/authenticate"),
    ("PATCH", "/policies/acme/policy/authn/acme/admin/authenticate"),
    ("POST", "/roles/acme/group/authenticate?members&member=acme:user:a"),
    ("DELETE", "/roles/acme/group/x/authenticate?members&member=acme:user:a"),
    ("DELETE", "/host_factory_tokens/authenticate"),
    ("POST", "/authn-jwt/ci/acme/refresh-keys"),
    ("PUT", "/authn-jwt/ci/acme/distrusted-keys/authenticate"),
    ("DELETE", "/authn-jwt/ci/acme/distrusted-keys/explain"),
    ("PATCH", "/authn-jwt/authenticate/acme"),
    ("PUT", "/authn/acme/password"),
    ("PUT", "/authn/acme/api_key?role=user:authenticate"),
    ("PUT", "/authn/acme/x/authenticate"),
    ("POST", "/AUTHN/acme/admin/authenticate"),
    ("POST", "/authn%2Facme/admin/authenticate"),
    ("POST", "/%61uthn/acme/admin/authenticate"),
    ("POST", "//authn/acme/admin/authenticate"),
    ("POST", "/x/authn/acme/admin/authenticate"),
    ("POST", "/authn/acme/admin/authenticate%2F"),
    ("POST", "/authn/acme/admin%2Fauthenticate"),
    ("POST", "/authn/acme/admin/authenticate/x"),
    ("POST", "/authn/acme/admin/authenticates"),
    ("post", "/authn/acme/admin/authenticate"),
    ("get", "/whoami"),
    ("OPTIONS", "/secrets/acme/variable/x"),
    ("POST", "/accounts"),
    ("POST", "/host_factories/hosts"),
    ("POST", "/ui/change"),
    ("POST", "/ui/change/load"),
    ("POST", "/ui/roles/acme:user:x/resources/x"),
    ("POST", "/ui/sign-out-everywhere"),
    ("POST", "/ui/sign-in/x"),
    ("POST", "/api/ui/sign-in"),
    ("POST", "/apix/authn/acme/admin/authenticate"),
    ("POST", "/api/api/authn/acme/admin/authenticate"),
    ("POST", "/api/secrets/acme/variable/authn-jwt/ci/acme/authenticate"),
    ("POST", "/api/secrets/batch/x"),
)

#: What changes nothing; it may go to any.
READINGS: Final = (
    ("GET", "/secrets/acme/variable/x"),
    ("HEAD", "/secrets/acme/variable/authenticate"),
    ("GET", "/authn/acme/login"),
    ("GET", "/authn-ldap/corp/acme/login"),
    ("GET", "/readyz?write"),
    ("POST", "/authn/acme/admin/authenticate"),
    ("POST", "/authn/acme/host%2Fapps%2Fshop/authenticate"),
    ("POST", "/authn/acme/host/apps/shop/authenticate"),
    ("POST", "/authn/acme/authenticate/authenticate/"),
    ("POST", "/authn-jwt/ci/acme/authenticate"),
    ("POST", "/authn-jwt/ci/acme//authenticate"),
    ("POST", "/authn-jwt/ci/acme/host%2Fshop/authenticate?x=1"),
    ("POST", "/authn-jwt/a%2Fb/acme/host/shop/authenticate/"),
    ("POST", "/authn-cloud/prod/acme/host%2Fshop/authenticate"),
    ("POST", "/authn-azure/prod/acme/host%2Fshop/authenticate"),
    ("POST", "/authn-ldap/corp/acme/alice/authenticate"),
    ("POST", "/authn-jwt/ci/acme/explain"),
    ("POST", "/authn-cloud/prod/acme/host%2Fshop/explain"),
    ("POST", "http://svc/authn/acme/admin/authenticate"),
)

#: The longest token that is taken, and headers that leave room for little else in what svc takes.
TOKEN: Final = b"x" * 16 * 1024
HEADER: Final = "y" * 30 * 1024


def request(method: str, target: str) -> bytes:
    """A request without a body, as it stands on the wire."""
    return f"{method} {target} HTTP/1.1\r\nHost: svc\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()


class Channel(HTTPChannel):
    """Takes longer headers than Twisted's does."""

    totalHeadersSize = MAX_LENGTH = 1 << 16  # noqa: N815 (the name is Twisted's)


class Peer(Resource):
    """A server that is ready, or isn't, and says ``status`` to all else; ``asked`` are the requests that it had."""

    isLeaf = True

    def __init__(self, case: TestCase, authority: Authority, status: int, *, ready: bool = True) -> None:
        super().__init__()
        self.status, self.ready = status, ready
        self.asked: list[tuple[str, int]] = []
        site: Any = Site(self)
        site.noisy, site.protocol = False, Channel
        port = reactor.listenSSL(0, site, authority.issue("127.0.0.1").options(), interface="127.0.0.1")
        case.addCleanup(port.stopListening)
        self.port: int = port.getHost().port

    def render(self, request: Request) -> bytes:
        """Answer."""
        if request.path == b"/readyz":
            request.setResponseCode(200 if self.ready else 503)
            return b"{}"
        assert request.content is not None
        self.asked.append((request.method.decode(), len(request.content.read())))
        request.setResponseCode(self.status)
        return b"{}"


class SlowPeer(Peer):
    """A server that answers after ``delay`` seconds; ``None`` is one that closes the connection instead."""

    def __init__(self, case: TestCase, authority: Authority, delay: float | None) -> None:
        super().__init__(case, authority, 201)
        self.delay = delay

    def render(self, request: Request) -> Any:
        """Answer, later."""
        if request.path == b"/readyz":
            return super().render(request)
        if self.delay is None:
            channel: Any = request.channel
            channel.transport.abortConnection()
            return NOT_DONE_YET

        def answer() -> None:
            request.write(Peer.render(self, request))
            request.finish()

        later = reactor.callLater(self.delay, answer)
        request.notifyFinish().addErrback(lambda _: later.cancel())
        return NOT_DONE_YET


class SampleTests(TestCase):
    """The file by itself."""

    skip = unavailable()
    timeout = 120

    async def test_routes(self) -> None:
        """Readings and logins go to any server, all else to the primary, whatever a path looks like, also under ``/api``
        (WIRE-58).
        """
        authority = Authority()
        proxy = Proxy(self, authority, Peer(self, authority, 200).port, Peer(self, authority, 200).port)
        await proxy.listens()
        api, pages = [route for _, route in declared()], [route for _, route in declared_pages()]
        known = [
            (route.method, prefix + path_of(route), "primary" if route.writes else "any")
            for prefix, routes in (("", api), ("", pages), ("/api", api))
            for route in routes
        ]
        table = [
            *((method, target, "primary") for method, target in CHANGES),
            *((method, target, "any") for method, target in READINGS),
            *known,
        ]
        for method, target, _ in table:
            await deferToThread(proxy.send, request(method, target))
        for _ in range(int(PATIENCE / 0.05)):
            if len(proxy.routed()) == len(table):
                break
            await beat()  # The log comes after the answer.
        expected = [(f"{method} {target}", backend) for method, target, backend in table]
        self.assertEqual(sorted(proxy.routed()), sorted(expected))

    async def assert_told(self, proxy: Proxy, sent: bytes, status: int, code: str, words: str = "") -> None:
        """Fail unless this, on a connection of its own, is answered by the proxy itself in the form of svc's errors."""
        [answer] = read_answers(await deferToThread(proxy.send, sent))
        self.assertEqual((answer.status, answer.headers["content-type"]), (status, "application/json"), answer)
        error = answer.json()["error"]
        self.assertEqual(error["code"], code)
        self.assertIn(words, error["message"])

    def test_patience(self) -> None:
        """The proxy waits for a change longer than the server may take for a load (LIM-15)."""
        primary = SAMPLE.read_text(encoding="utf-8").partition("\nbackend primary\n")[2]
        [minutes] = re.findall(r"(?m)^    timeout server (\d+)m$", primary)
        self.assertGreater(int(minutes) * 60, LOAD_DEADLINE + 30)

    async def test_slow_load(self) -> None:
        """A change that takes longer than readings may is answered; here all of the sample's times are 35 times shorter."""
        authority = Authority()
        peer = SlowPeer(self, authority, 4.0)
        proxy = Proxy(self, authority, peer.port, free_port(), {"35s": "1s", "11m": "19s"})
        await proxy.listens()
        answer = await proxy.api().ask("POST", "/policies/acme/policy/root", b"- !variable v")
        self.assertEqual((answer.status, peer.asked), (201, [("POST", 13)]), proxy.log)

    async def test_errors(self) -> None:
        """What the proxy answers itself is JSON in the form of svc's errors, with whether a change may have been made."""
        authority = Authority()
        slow = SlowPeer(self, authority, 60)
        short = {"35s": "1s", "11m": "1s", "http-request 30s": "http-request 1s"}
        proxy = Proxy(self, authority, slow.port, free_port(), short)
        await proxy.listens()
        change, reading = request("POST", "/secrets/acme/variable/v"), request("GET", "/secrets/acme/variable/v")
        doubt = "may or may not have been made"
        await self.assert_told(proxy, change, 504, "gateway_timeout", doubt)
        await self.assert_told(proxy, reading, 504, "gateway_timeout")
        slow.delay = None
        await self.assert_told(proxy, change, 502, "bad_gateway", doubt)
        await self.assert_told(proxy, reading, 502, "bad_gateway")
        login = b"POST /authn/acme/admin/authenticate HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\na part"
        await self.assert_told(proxy, login, 408, "request_timeout")

    async def test_none_ready(self) -> None:
        """When no server is ready each is asked for readings and logins all the same, and none for a change."""
        authority = Authority()
        down, up = Peer(self, authority, 503, ready=False), Peer(self, authority, 200, ready=False)
        proxy = Proxy(self, authority, down.port, up.port)
        await proxy.listens()
        for _ in range(int(PATIENCE / 0.05)):
            if all(f"backend {name} has no server available" in proxy.log for name in ("any", "primary")):
                break
            await beat()
        api = proxy.api()
        for number in range(6):
            read = await api.ask("GET", f"/secrets/acme/variable/v{number}")
            login = await api.ask("POST", "/authn-jwt/ci/acme/authenticate", TOKEN)
            self.assertEqual((read.status, login.status), (200, 200), proxy.log)
            change = await api.ask("POST", "/secrets/acme/variable/v", b"new")
            self.assertEqual((change.status, change.headers["retry-after"]), (503, "2"), proxy.log)
        self.assertIn(("GET", 0), down.asked)
        self.assertNotIn(("POST", 3), down.asked + up.asked)

    async def test_asked_again(self) -> None:
        """What a server answers with 503 is asked of the other one if it is a reading or a login, a change is not."""
        authority = Authority()
        down, up = Peer(self, authority, 503), Peer(self, authority, 200)
        proxy = Proxy(self, authority, down.port, up.port)
        await proxy.listens()
        api = proxy.api()
        for number in range(6):
            read = await api.ask("GET", f"/secrets/acme/variable/v{number}", X_Long=HEADER)
            login = await api.ask("POST", "/authn-jwt/ci/acme/authenticate", TOKEN, X_Long=HEADER)
            self.assertEqual((read.status, login.status), (200, 200), proxy.log)
        self.assertEqual(up.asked.count(("POST", len(TOKEN))), 6)
        # So it was asked first now and then, in vain.
        self.assertIn(("GET", 0), down.asked)
        self.assertIn(("POST", len(TOKEN)), down.asked)
        down.asked.clear()
        up.asked.clear()
        statuses = [(await api.ask("POST", "/secrets/acme/variable/v", b"new")).status for _ in range(6)]
        self.assertEqual((statuses.count(503), statuses.count(200)), (len(down.asked), len(up.asked)))
        self.assertEqual(len(statuses), len(down.asked) + len(up.asked))


class FaultTests(ProxiedPairTestCase):
    """A primary and a follower behind the proxy, and clients that log in and read all the time."""

    async def test_databases(self) -> None:
        """When one of two servers loses its database, which ends or hangs, no login and no reading fails."""
        self.failures: list[object] = []
        self.answered = 0
        self.going = True
        clients = [Deferred.fromCoroutine(self.client(self.proxy.api())) for _ in range(4)]
        for server in (self.pair.follower, self.pair.primary):
            faults: tuple[tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]], ...] = (
                (server.kill, server.start),
                (server.freeze, server.thaw),
            )
            for inject, undo in faults:
                await inject()
                before = len(self.proxy.log)
                # Until the proxy has found out, and then for a while.
                await self.goes_on("Server any/", before)
                await undo()
                await self.goes_on(" is UP", before)
                await self.until_changed("POST", self.api.variable("v"), b"kept")
        self.going = False
        for each in clients:
            await each
        self.assertEqual((len(self.failures), self.failures[:3]), (0, []))

    async def goes_on(self, said: str, after: int) -> None:
        """Wait until the proxy has said that, after so much, and a hundred more logins and readings were made."""
        for _ in range(int(PATIENCE / 0.05)):
            if said in self.proxy.log[after:]:
                break
            await beat()
        else:
            self.fail(f"the proxy doesn't notice: {self.proxy.log[-4000:]}")
        enough = self.answered + 100
        while self.answered < enough:
            await beat()

    async def client(self, api: Api) -> None:
        """Log in and read, over and over."""
        while self.going:
            path = "/authn/acme/admin/authenticate"
            login = await api.ask("POST", path, self.key.encode(), Accept_Encoding="base64")
            read = await api.ask("GET", api.variable("v"), token=login.body.decode()) if login.status == 200 else login
            self.answered += 1
            if (login.status, read.status, read.body) != (200, 200, b"kept"):
                self.failures.append((login, read))

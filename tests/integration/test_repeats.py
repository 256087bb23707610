"""Changes whose answers get lost on real connections and servers, and are repeated under their keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast
from urllib.parse import urlsplit

from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.interfaces import IReactorTCP
from twisted.protocols.portforward import ProxyClient, ProxyClientFactory, ProxyFactory, ProxyServer

from tests.integration.client import Answer, Api
from tests.integration.postgres import PostgresTestCase
from tests.integration.process import ServerProcess, ServerTestCase, beat
from tests.integration.stores import database_of

_POLICY: Final = "/policies/acme/policy/root"
#: The lock of a request that runs under its key.
_HELD: Final = """
    SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = database
    WHERE locktype = 'advisory' AND objsubid = 2 AND datname = current_database()
"""
_REACTOR: Final = IReactorTCP(installed_reactor)


class _CuttingClient(ProxyClient):
    """The end at the server: nothing that the server answers is passed on while answers are cut."""

    def dataReceived(self, data: bytes) -> None:
        """Pass it on, or cut."""
        factory, peer = cast("Any", self.factory), cast("Any", self.peer)
        cutter = factory.server.factory
        if not cutter.cuts:
            super().dataReceived(data)
            return
        cutter.cuts -= 1
        cutter.lost += data
        cutter.cut()
        peer.transport.abortConnection()


class _CuttingClientFactory(ProxyClientFactory):
    protocol = _CuttingClient


class _CuttingServer(ProxyServer):
    clientProtocolFactory = _CuttingClientFactory  # noqa: N815 - Twisted's


class Cutter(ProxyFactory):
    """A proxy that loses the next ``cuts`` answers of a server, with the connection; ``cut`` is called each time."""

    protocol = _CuttingServer

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        super().__init__(address.hostname or "", address.port or 0)
        self.cuts, self.lost = 0, b""
        self.cut: Callable[[], object] = lambda: None


class RepeatTests(PostgresTestCase, ServerTestCase):
    """A server on a database, and a client behind a proxy that loses answers."""

    async def served(self) -> tuple[ServerProcess, Api, str]:
        """A server with an account, and its admin's token."""
        self.url = await self.create_database(migrated=False)
        process = self.serve("--account=acme", database_url=self.url)
        api = Api.of(self, await process.ready())
        self.key = process.admin_key()
        return process, api, await api.authenticate("admin", self.key)

    async def behind(self, api: Api) -> tuple[Cutter, Api]:
        """A proxy before a server, and a client of it."""
        cutter = Cutter(api.url)
        port = await TCP4ServerEndpoint(_REACTOR, 0, interface="127.0.0.1").listen(cutter)
        self.addCleanup(port.stopListening)
        return cutter, Api.of(self, f"http://127.0.0.1:{port.getHost().port}")

    async def assert_lost(self, sending: Deferred[Answer]) -> None:
        """The answer never came."""
        await self.assertFailure(sending, Exception)

    async def test_lost_answer(self) -> None:
        """A load, near and far, whose answer was lost on the way after it was committed, is given its answer, with the API
        keys, and isn't made again (WIRE-53).
        """
        _, api, token = await self.served()
        cutter, through = await self.behind(api)
        for number, (method, padding) in enumerate((("POST", b""), ("PATCH", b"#" * 9000 + b"\n"))):
            document = padding + b"- !user u%d\n" % number
            headers = {"Idempotency_Key": f'"k-{number}"'}
            cutter.cuts = 1
            await self.assert_lost(Deferred.fromCoroutine(through.ask(method, _POLICY, document, token, **headers)))
            again = await through.ask(method, _POLICY, document, token, **headers)
            self.assertEqual(again.status, 201, again)
            self.assertEqual(again.json()["version"], number + 1)
            self.assertIn(again.body, cutter.lost)
            await api.authenticate(f"u{number}", again.json()["created_roles"][f"acme:user:u{number}"]["api_key"])
            other = await api.ask(method, _POLICY, document + b"- !user more\n", token, **headers)
            self.assertEqual((other.status, other.json()["error"]["code"]), (422, "unprocessable_entity"))

    async def test_killed_server(self) -> None:
        """A server that is killed after the COMMIT, before its answer arrived, has kept the answer: another server gives it
        (WIRE-53).
        """
        process, api, token = await self.served()
        cutter, through = await self.behind(api)
        killed: list[Deferred[int]] = []
        cutter.cut = lambda: killed.append(Deferred.fromCoroutine(process.kill()))
        cutter.cuts = 1
        await self.assert_lost(
            Deferred.fromCoroutine(through.ask("POST", _POLICY, b"- !host h\n", token, Idempotency_Key="k"))
        )
        await killed[0]
        other = self.serve("--account=acme", database_url=self.url)
        api = Api.of(self, await other.ready())
        token = await api.authenticate("admin", self.key)
        again = await api.ask("POST", _POLICY, b"- !host h\n", token, Idempotency_Key="k")
        self.assertEqual((again.status, again.json()["version"]), (201, 1), again)
        await api.authenticate("host/h", again.json()["created_roles"]["acme:host:h"]["api_key"])

    async def test_at_once(self) -> None:
        """Of two requests with one key at once one makes the change, and the other is 409 with ``in_progress``, then has the
        same answer; also a long one, and at another server on the same database (WIRE-54).
        """
        _, api, token = await self.served()
        other = self.serve("--account=acme", database_url=self.url)
        elsewhere = Api.of(self, await other.ready())
        hosts = "".join(f"- !host h{number}\n" for number in range(4000)).encode()
        first = Deferred.fromCoroutine(api.ask("POST", _POLICY, hosts, token, Idempotency_Key="k"))
        # Either of the next two could make the change before it otherwise.
        while not first.called and not self.server.command(_HELD, database_of(self.url)):
            await beat()
        running = set[str]()
        while not first.called:
            for each in (api, elsewhere):
                answer = await each.ask("POST", _POLICY, hosts, token, Idempotency_Key="k")
                if answer.status == 409:
                    running.add(answer.json()["error"]["code"])
                    self.assertEqual(answer.headers["retry-after"], "1")
            await beat()
        done = await first
        self.assertEqual((done.status, done.json()["version"]), (201, 1), done)
        self.assertEqual(running, {"in_progress"})
        for each in (api, elsewhere):
            again = await each.ask("POST", _POLICY, hosts, token, Idempotency_Key="k")
            self.assertEqual((again.status, again.body == done.body), (201, True))

"""A server whose database goes away, and which goes on with what it remembers, where it was told to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater

from tests.integration.client import Answer, Api, KeySetSite, workload_token
from tests.integration.process import ServerProcess, ServerTestCase, beat
from tests.integration.replication import PairTestCase

#: Seconds for which the database is away, and how many clients ask all the time.
AWAY: Final = 30.0
CLIENTS: Final = 4

BATCH: Final = "/secrets?" + urlencode({"variable_ids": "acme:variable:apps/password"})


class ServeStaleTests(PairTestCase, ServerTestCase):
    """A server on the primary of a pair, with a workload that logs in and reads."""

    async def started(self, *options: str) -> ServerProcess:
        """Start it with its policy, and have everything asked for once that is asked for later."""
        provider = KeySetSite(self)
        self.audit = Path(self.mktemp()).resolve()
        server = self.serve(
            "--account=acme",
            "--authenticators=authn,authn-jwt/ci",
            "--allow-http-providers",
            "--allow-private-providers=127.0.0.0/8",
            "--health-interval=1",
            f"--audit-file={self.audit}",
            *options,
            database_url=self.pair.primary.dsn(self.name),
        )
        self.api = Api.of(self, await server.ready())
        self.admin = await self.api.set_up(server.admin_key(), provider.uri)
        self.key = server.admin_key()
        self.jwt = workload_token()
        answer = await self.api.present(self.jwt)
        self.assertEqual(answer.status, 200)
        self.workload = answer.body.decode()
        for _ in range(3):
            for ask in self.asked():
                self.assertEqual((await ask()).status, 200)
            await deferLater(reactor, 0.3)
        return server

    def asked(self) -> list[Callable[[], Awaitable[Answer]]]:
        """What a workload does all day: both logins, a value and a batch."""
        api = self.api
        return [
            lambda: api.present(self.jwt),
            lambda: api.ask("POST", "/authn/acme/admin/authenticate", self.key.encode()),
            lambda: api.ask("GET", api.variable("apps/password"), token=self.workload),
            lambda: api.ask("GET", BATCH, token=self.workload),
        ]

    async def load(self, until: Callable[[], bool]) -> list[Answer]:
        """Ask for all of it by turns, by several clients, and return every answer."""
        answers: list[Answer] = []

        async def client() -> None:
            while not until():
                for ask in self.asked():
                    answers.append(await ask())

        await gatherResults([Deferred.fromCoroutine(client()) for _ in range(CLIENTS)])
        return answers

    async def tells(self, path: str, status: int, degraded: bool | None) -> None:
        """Wait until this route has this status, and says whether the server is degraded."""
        for _ in range(400):
            answer = await self.api.ask("GET", path)
            if answer.status == status and answer.json().get("degraded") == degraded:
                return
            await beat()
        self.fail(f"{path} never is {status}: {answer}")

    async def test_away(self) -> None:
        """While PostgreSQL is away for thirty seconds no login and no read fails of what was in memory; each answer and
        each record says so, and a proxy sees a server that is ready and degraded (CLU-36, CLU-38).
        """
        await self.started("--serve-stale=300")
        done: list[bool] = []
        load = Deferred.fromCoroutine(self.load(lambda: bool(done)))
        await deferLater(reactor, 1.0)
        await self.pair.primary.kill()
        for path, status in (("/readyz", 200), ("/health", 502)):
            await self.tells(path, status, True)
        self.assertEqual((await self.api.ask("GET", "/readyz?write")).status, 503)
        for _ in range(int(AWAY)):
            self.assertEqual((await self.api.ask("GET", "/readyz")).status, 200)
            await deferLater(reactor, 1.0)
        await self.pair.primary.start()
        await self.tells("/readyz", 200, None)
        await self.tells("/health", 200, None)
        done.append(True)
        answers = await load
        self.assertEqual([answer for answer in answers if answer.status != 200], [])
        stale = [answer for answer in answers if "svc-stale" in answer.headers]
        self.assertGreater(len(stale), 100)
        self.assertTrue(all(0 < int(answer.headers["svc-stale"]) <= AWAY + 10 for answer in stale))
        self.assertNotIn("svc-stale", answers[0].headers)
        self.assertNotIn("svc-stale", answers[-1].headers)
        self.assertGreaterEqual(self.audit.read_text().count('stale="true"'), len(stale))

    async def test_hanging(self) -> None:
        """A database that hangs is known within about a second, and memory answers (CLU-33, CLU-36)."""
        await self.started("--serve-stale=300")
        await self.pair.primary.freeze()
        self.addCleanup(self.pair.primary.thaw)
        # What was confirmed right before is no older than the lag for a moment yet.
        read = self.asked()[-1]
        while "svc-stale" not in (await read()).headers:
            await beat()
        for ask in self.asked():
            answer = await ask()
            self.assertEqual((answer.status, "svc-stale" in answer.headers), (200, True), answer)

    async def test_what_memory_refuses(self) -> None:
        """Meanwhile nobody is refused by what is remembered: a wrong key, an unknown role and what isn't remembered are
        503 alike, and so is all but logins and readings of secrets (CLU-36, CLU-37).
        """
        await self.started("--serve-stale=300")
        api = self.api
        await self.pair.primary.kill()
        await self.tells("/health", 502, True)
        for path, body in (
            ("/authn/acme/admin/authenticate", b"wrong"),
            ("/authn/acme/nobody/authenticate", b"wrong"),
            ("/authn/acme/host%2Fapps%2Fbare/authenticate", b"wrong"),
        ):
            self.assertEqual((await api.ask("POST", path, body)).status, 503, path)
        for path in (api.variable("apps/other"), "/whoami", "/resources/acme?limit=10"):
            self.assertEqual((await api.ask("GET", path, token=self.admin)).status, 503, path)
        self.assertEqual((await api.ask("POST", api.variable("apps/password"), b"new", self.admin)).status, 503)
        await self.pair.primary.start()

    async def test_not_asked_for(self) -> None:
        """Without the setting nothing is answered from memory that can't be confirmed (CLU-33)."""
        await self.started()
        await self.pair.primary.kill()
        await self.tells("/readyz", 503, None)
        for ask in self.asked():
            self.assertEqual((await ask()).status, 503)
        await self.pair.primary.start()
        await self.tells("/readyz", 200, None)
        for ask in self.asked():
            self.assertEqual((await ask()).status, 200)

    async def test_over(self) -> None:
        """After that many seconds it is over (CLU-36)."""
        await self.started("--serve-stale=2")
        await self.pair.primary.kill()
        await self.tells("/readyz", 503, None)
        for ask in self.asked():
            self.assertEqual((await ask()).status, 503)

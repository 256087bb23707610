"""Two primaries of one database system: real servers, on a primary that was started again, and on a copy of one."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

from tests.integration.bed import free_port
from tests.integration.client import Answer, Api
from tests.integration.postgres import PATIENCE, Server, unavailable
from tests.integration.process import ServerProcess, beat
from tests.integration.replication import SETTINGS, PairTestCase
from tests.integration.test_cli import CommandTestCase

#: Where a server says that its counters are.
METRICS: Final = re.compile(r"Metrics are served at (\S+)")


class Side:
    """One of two servers, which know each other as ``one`` and ``two``; it has the account when it is the first to start."""

    def __init__(self, case: TwoPrimariesTests, name: str, dsn: str) -> None:
        self.case = case
        self.name = name
        self.port = free_port()
        self.dsn = dsn
        self.api = Api.of(case, f"http://127.0.0.1:{self.port}")
        self.process: ServerProcess

    async def start(self, other: Side) -> None:
        """Start it, as it was started before."""
        self.process = self.case.serve(
            "--account=acme",
            "--health-interval=1",
            "--expiration-interval=1",
            "--metrics-listen=tcp:0:interface=127.0.0.1",
            f"--cluster={other.name}=http://127.0.0.1:{other.port}",
            listen=f"tcp:{self.port}:interface=127.0.0.1",
            database_url=self.dsn,
        )
        await self.process.ready()

    async def write(self) -> Answer:
        """Set the value."""
        admin = await self.api.authenticate("admin", self.case.key)
        return await self.api.ask("POST", self.api.variable("v"), b"x", admin)

    async def metric(self, timeline: str) -> str:
        """How many rivals it counts on these timelines."""
        base = METRICS.search(self.process.stdout.decode())
        assert base is not None
        text = (await Api.of(self.case, base[1].removesuffix("/metrics")).ask("GET", "/metrics")).body.decode()
        found = re.search(rf'(?m)^svc_other_primaries\{{timeline="{timeline}"\}} (\S+)$', text)
        return "" if found is None else found[1]


class TwoPrimariesTests(PairTestCase, CommandTestCase):
    """Two servers whose settings name each other."""

    skip = unavailable()
    key: str

    async def begin(self, one: str, two: str) -> None:
        """Start both, each on a database, and load policy on the first."""
        self.one, self.two = Side(self, "one", one), Side(self, "two", two)
        await self.one.start(self.two)
        self.key = self.one.process.admin_key()
        admin = await self.one.api.authenticate("admin", self.key)
        loaded = await self.one.api.ask("POST", "/policies/acme/policy/root", b"- !variable v", admin)
        self.assertEqual(loaded.status, 201, loaded)

    async def until(self, holds: Callable[[], Awaitable[bool]], complaint: str) -> None:
        """Wait until that holds, though not for ever."""
        for _ in range(int(PATIENCE / 0.05)):
            if await holds():
                return
            await beat()
        self.fail(f"{complaint}: {self.one.process.said}\n{self.two.process.said}")

    async def says(self, side: Side, word: str) -> None:
        """Wait until the server's health says this of primaries, and see that its flags and its page fit."""

        async def said() -> bool:
            report = await side.api.ask("GET", "/health")
            document = report.json()
            found = document.get("cluster", {}).get("primaries")
            self.assertEqual(document["cluster"]["ok"], found == "ok")
            self.assertTrue(found == "ok" or (report.status, document["ok"]) == (502, False))
            return found == word and (word != "ok" or report.status == 200)

        async def shown() -> bool:
            page = await side.api.ask("GET", "/ui/health")
            return (b"there is another primary" in page.body) == (word != "ok")

        await self.until(said, f"{side.name} doesn't say {word}")
        # The page has what the other said last, too.
        await self.until(shown, f"{side.name} doesn't show {word}")

    async def ready(self, side: Side) -> tuple[int, int]:
        """Whether it is ready, and ready to write."""
        return (await side.api.ask("GET", "/readyz")).status, (await side.api.ask("GET", "/readyz?write")).status

    async def assert_refuses(self, side: Side, other: Side) -> None:
        """It refuses a write with a sentence that names the other, and goes on being read."""
        written = await side.write()
        self.assertEqual((written.status, written.headers.get("retry-after")), (503, "30"), written)
        self.assertIn(f"the server {other.name} ", written.json()["error"]["message"])

        async def read() -> bool:
            return await self.ready(side) == (200, 503)

        # A busy machine may be late with a check of health.
        await self.until(read, f"{side.name} isn't ready to be read")

    async def test_former_primary(self) -> None:
        """A former primary that is started again refuses writes from the first one on, until it is a standby (HEALTH-12,
        CLU-16).
        """
        pair = self.pair
        await self.begin(pair.dsn(self.name), pair.follower.dsn(self.name))
        await pair.caught_up()
        await self.two.start(self.one)
        await self.says(self.one, "ok")
        await self.says(self.two, "ok")
        # While it is away the other is promoted.
        await pair.primary.kill()
        await pair.promote()

        async def promoted() -> bool:
            return (await self.two.write()).status == 201

        await self.until(promoted, "the promoted one takes no writes")
        await pair.primary.start()

        async def refused() -> bool:
            written = await self.one.api.ask("POST", self.one.api.variable("v"), b"x", admin)
            self.assertEqual(written.status, 503, written)
            return b"the server two " in written.body

        admin = await self.two.api.authenticate("admin", self.key)
        await self.until(refused, "it doesn't say why")
        await self.says(self.one, "two")
        await self.says(self.two, "two")
        await self.assert_refuses(self.one, self.two)
        self.assertEqual((await self.two.write()).status, 201)
        self.assertEqual(await self.ready(self.two), (200, 200))
        self.assertEqual((await self.one.metric("newer"), await self.one.metric("older")), ("1.0", "0.0"))
        self.assertEqual((await self.two.metric("newer"), await self.two.metric("older")), ("0.0", "1.0"))
        for side in (self.one, self.two):
            told = await self.svc("health", "--all", environ={"SVC_URL": side.api.url}, code=1)
            self.assertEqual(told.stdout.count("primaries two"), 2, told)
        # It knows so from its start on, and for as long as the other can't be asked.
        await self.one.process.stop()
        await self.one.start(self.two)
        await self.assert_refuses(self.one, self.two)
        await self.two.process.stop()
        await self.until(lambda: self.unreachable(self.one, "two"), "the other is reached")
        await self.assert_refuses(self.one, self.two)
        await self.two.start(self.one)
        # The former primary is made a standby of the new one.
        await pair.primary.stop()
        standby = Server(origin=pair.follower, settings=SETTINGS)
        self.addCleanup(standby.destroy)
        await standby.start()
        pair.lead_to(standby)
        await self.says(self.one, "ok")
        await self.says(self.two, "ok")
        self.assertEqual((await self.one.write()).status, 405)
        self.assertEqual((await self.two.write()).status, 201)
        await self.svc("health", "--all", environ={"SVC_URL": self.one.api.url})

    async def unreachable(self, side: Side, other: str) -> bool:
        """Whether a server can't reach another."""
        report = (await side.api.ask("GET", f"/remote_health/{other}")).json()
        return bool(report["database"]["connect"]["main"] == "unreachable")

    async def test_copy(self) -> None:
        """Of a primary and a copy that was started beside it neither takes writes; one alone does after a restart
        (CLU-16).
        """
        pair = self.pair
        await self.begin(pair.primary.dsn(self.name), "")
        copy = Server(origin=pair.primary, settings=SETTINGS)
        self.addCleanup(copy.destroy)
        await copy.secede()
        self.two.dsn = copy.dsn(self.name)
        self.assertEqual((await self.one.write()).status, 201)
        await self.two.start(self.one)
        await self.says(self.two, "two")
        await self.says(self.one, "two")
        await self.assert_refuses(self.one, self.two)
        await self.assert_refuses(self.two, self.one)
        await self.two.process.stop()
        await self.until(lambda: self.unreachable(self.one, "two"), "the other is reached")
        await self.assert_refuses(self.one, self.two)
        await self.one.process.stop()
        await self.one.start(self.two)
        self.assertEqual((await self.one.write()).status, 201)

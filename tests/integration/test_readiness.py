"""Whether a server says at once that it can't serve, and goes on serving when it can't write alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.integration.client import Api
from tests.integration.process import ServerProcess, ServerTestCase
from tests.integration.replication import PairTestCase

#: An interval of health in which nothing is ever found out by a round of it.
NEVER = "--health-interval=3600"


class ReadinessTests(PairTestCase, ServerTestCase):
    """A server on the primary of a pair, with a value to read."""

    async def started(self, *options: str) -> ServerProcess:
        """Start it, and set the value."""
        server = self.serve("--account=acme", *options, database_url=self.pair.primary.dsn(self.name))
        self.api = api = Api.of(self, await server.ready())
        self.key = server.admin_key()
        self.admin = await api.authenticate("admin", self.key)
        loaded = await api.ask("POST", "/policies/acme/policy/root", b"- !variable v", self.admin)
        self.assertEqual(loaded.status, 201, loaded)
        self.assertEqual((await api.ask("POST", api.variable("v"), b"kept", self.admin)).status, 201)
        return server

    async def assert_serves(self) -> None:
        """Somebody logs in, and reads."""
        token = await self.api.authenticate("admin", self.key)
        self.assertEqual((await self.api.ask("GET", self.api.variable("v"), token=token)).body, b"kept")

    async def test_synchronous_standby_away(self) -> None:
        """While commits wait for a standby that is away, health fails, and the server is ready but to write (HEALTH-12)."""
        primary = self.pair.primary

        def wait_for(standbys: str) -> None:
            primary.command(f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")
            primary.command("SELECT pg_reload_conf()")

        await self.started("--health-interval=1")
        await self.api.tells("/readyz?write", 200)
        self.addCleanup(wait_for, "")
        await self.pair.follower.kill()
        wait_for("*")
        await self.api.tells("/readyz?write", 503)
        report = await self.api.ask("GET", "/health")
        failed = {name for name, word in report.json()["services"].items() if word == "failed"}
        # Rounds of expiration may have something to write.
        self.assertEqual((report.status, failed - {"expiration"}), (502, {"core"}))
        for _ in range(5):
            self.assertEqual((await self.api.ask("GET", "/readyz")).status, 200)
            await self.assert_serves()
        await self.pair.follower.start()
        await self.api.tells("/readyz?write", 200)
        await self.api.tells("/health", 200)

    async def test_read_only(self) -> None:
        """So it is while the database refuses writes, though it is no standby."""
        primary = self.pair.primary
        await self.started("--health-interval=1")
        for setting, status in (("on", 503), ("off", 200)):
            primary.command(f'ALTER DATABASE "{self.name}" SET default_transaction_read_only = {setting}')
            primary.command("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'svc'")
            await self.api.tells("/readyz?write", status)
            await self.api.tells("/readyz", 200)
            await self.assert_serves()

    async def test_database_gone(self) -> None:
        """That its database was killed, or hangs, and answers again, is known without a round of health (HEALTH-11)."""
        postgres = self.pair.primary
        await self.started(NEVER)
        acts: tuple[tuple[Callable[[], Awaitable[None]], int], ...] = (
            (postgres.freeze, 503),
            (postgres.thaw, 200),
            (postgres.kill, 503),
            (postgres.start, 200),
        )
        for act, status in acts:
            await act()
            await self.api.tells("/readyz", status)
            await self.api.tells("/readyz?write", status)
            await self.api.tells("/health", 200 if status == 200 else 502)
        await self.assert_serves()

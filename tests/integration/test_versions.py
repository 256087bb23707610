"""Versions of the state on a primary and its standby, as PostgreSQL replays them."""

from __future__ import annotations

from typing import Any, Final

import attrs
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from svc.model.errors import OutcomeUnknown, StoreBehind, StoreUnavailable
from svc.model.names import RoleName
from svc.model.request_notes import begin_notes
from svc.model.versions import StateVersion
from svc.storage.driver.database import Database
from svc.storage.driver.progress import PAUSE, WAIT_TIMEOUT, Progress
from svc.storage.driver.replication import Replication
from svc.storage.driver.statements import Statement, Transaction
from tests.integration.client import Api
from tests.integration.postgres import DatabaseTestCase
from tests.integration.replication import PairTestCase
from tests.integration.test_cli import CommandTestCase
from tests.integration.test_followers import ClusterTestCase

reactor: Any = installed_reactor

INSERT: Final = Statement("insert_note", "INSERT INTO notes VALUES ($1) ON CONFLICT DO NOTHING")
NOTES: Final = Statement("read_notes", "SELECT id FROM notes ORDER BY id")
ALICE: Final = RoleName.from_parts("acme", "user", "alice")

#: Writes so many bytes into the log, and as many around them as the other says.
_FILL: Final = "SELECT pg_logical_emit_message(false, 'x', repeat('x', %s))"
_HEAD: Final = 56

_TERMINATE_ONE: Final = """
    SELECT pg_terminate_backend(max(pid)) FROM pg_stat_activity
    WHERE datname = '%s' AND query = 'EXECUTE progress_position'
"""


def begun(awaitable: Any) -> Deferred[Any]:
    """Run it as far as it gets, and go on beside it."""

    async def run() -> Any:
        return await awaitable

    return Deferred.fromCoroutine(run())


async def version_of(database: Database, note: int) -> StateVersion:
    """Write a note, and return the version that is noted for the request."""
    notes = begin_notes()
    await database.change(INSERT, note)
    assert notes.version is not None
    version = StateVersion.parse_or_none(notes.version)
    assert version is not None
    return version


class VersionTests(PairTestCase):
    """A table of notes, and a database on each of the two."""

    async def prepare(self) -> None:
        """Make the table."""
        await super().prepare()
        self.pair.primary.command("CREATE TABLE notes (id int PRIMARY KEY)", self.name)
        await self.pair.caught_up()
        self.primary = await self.opened(self.pair.primary.dsn(self.name))
        self.follower = await self.opened(self.pair.follower.dsn(self.name))
        self.progress = Progress(self.follower, reactor)

    async def waits(self, version: StateVersion, progress: Progress | None = None) -> float:
        """How long a reading waits for a version, in seconds."""
        began = reactor.seconds()
        await (progress or self.progress).wait_until_reached([version], ALICE)
        return float(reactor.seconds() - began)

    async def refused(self, version: StateVersion, progress: Progress | None = None) -> None:
        """Have a reading wait in vain."""
        began = reactor.seconds()
        with self.assertRaises(StoreBehind):
            await (progress or self.progress).wait_until_reached([version], ALICE)
        self.assertGreaterEqual(reactor.seconds() - began, WAIT_TIMEOUT * 0.9)
        # The pause before a question that nobody waits for any more.
        await deferLater(reactor, 2 * PAUSE)

    async def test_reached(self) -> None:
        """A reading on a standby that waits for a version sees what was written, each time (CLU-28)."""
        for note in range(200):
            version = await version_of(self.primary, note)
            await self.progress.wait_until_reached([version], ALICE)
            self.assertEqual((await self.follower.fetch(NOTES))[-1], (note,))

    async def test_idle(self) -> None:
        """A version is reached although nothing is written after it, also where its commit ends a page of the log
        (CLU-28).
        """
        await version_of(self.primary, 1)
        for _ in range(20):
            before = self.position()
            version = await version_of(self.primary, 1)
            cost = self.position() - before
            room = 8192 - self.position() % 8192 - cost - _HEAD
            if room < 300:
                self.pair.primary.command(_FILL % 1000)
                continue
            self.pair.primary.command(_FILL % room)
            version = await version_of(self.primary, 1)
            await self.progress.wait_until_reached([version], ALICE)
            if version.position % 8192 == 0:
                return
        self.fail("no commit ended a page")

    def position(self) -> int:
        """Where the primary's log ends."""
        ((position,),) = self.pair.primary.command("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
        return int(position)

    async def test_paused(self) -> None:
        """While replay is paused a reading waits, and is refused after two seconds; when it goes on, the reading is
        answered (CLU-28).
        """
        self.pair.pause()
        version = await version_of(self.primary, 1)
        await self.refused(version)
        waiting = begun(self.waits(version))
        self.assertFalse(waiting.called)
        self.pair.resume()
        await waiting
        self.assertEqual(await self.follower.fetch(NOTES), [(1,)])
        self.assertLess(await self.waits(version), 0.01)

    async def test_other_systems(self) -> None:
        """A version of another system is waited for by nobody; of this one, a primary has all (CLU-29)."""
        version = await version_of(self.primary, 1)
        self.pair.pause()
        far = attrs.evolve(version, position=version.position + (1 << 40))
        await self.waits(attrs.evolve(far, system=far.system ^ 1))
        await self.waits(far, Progress(self.primary, reactor))
        await self.refused(far)
        self.pair.resume()

    async def test_promotion(self) -> None:
        """After a promotion nobody waits for versions from before it, be they lost; those of a later timeline are not
        reached before a standby knows of it, whatever its position (CLU-29).
        """
        version = await version_of(self.primary, 1)
        await self.progress.wait_until_reached([version], ALICE)
        later = attrs.evolve(version, timeline=version.timeline + 1)
        lost = attrs.evolve(version, position=version.position + (1 << 40))
        await self.refused(later)
        await self.refused(later, Progress(self.primary, reactor))
        await self.pair.promote()
        progress = Progress(self.follower, reactor)
        for each in (version, lost, later):
            self.assertLess(await self.waits(each, progress), 1.0)
        newer = await version_of(self.follower, 2)
        self.assertEqual((newer.system, newer.timeline), (version.system, version.timeline + 1))

    async def test_follower_of_a_promoted(self) -> None:
        """A standby learns from a beat that its primary was promoted, long before its control file does (CLU-29)."""
        before = await version_of(self.primary, 1)
        await self.pair.exchange()
        promoted = await self.opened(self.pair.primary.dsn(self.name))
        replication = Replication(promoted, reactor)
        replication.startService()
        self.addCleanup(replication.stopService)
        progress = Progress(await self.opened(self.pair.follower.dsn(self.name)), reactor)
        version = await version_of(promoted, 2)
        self.assertGreater(version.timeline, before.timeline)
        await progress.wait_until_reached([version], ALICE)
        lost = attrs.evolve(before, position=before.position + (1 << 40))
        self.assertLess(await self.waits(lost, progress), 1.0)

    async def test_several_databases(self) -> None:
        """While sessions are with different servers, as during a failover, no version counts as reached (CLU-28)."""
        self.pair.lead_to(self.pair.follower)
        database = await self.opened(self.pair.dsn(self.name), pool_size=2)
        version = await version_of(self.primary, 1)
        await Progress(database, reactor).wait_until_reached([version], ALICE)
        self.pair.lead_to(self.pair.primary)
        self.pair.follower.command(_TERMINATE_ONE % self.name)
        await self.pair.until(
            lambda: database.count_read_sessions().sessions == 2 and not database.server, "both are with one server"
        )
        await self.refused(version, Progress(database, reactor))

    async def test_on_a_standby(self) -> None:
        """A transaction on a standby, which can't have written, has no version (CLU-27)."""
        notes = begin_notes()

        async def read(transaction: Transaction) -> None:
            await transaction.fetch(NOTES)

        await self.follower.transact(read)
        self.assertIsNone(notes.version)

    async def test_away(self) -> None:
        """A reading that waits is told when the database is lost (CLU-28)."""
        version = await version_of(self.primary, 1)
        await self.pair.follower.stop()
        with self.assertRaises(StoreUnavailable):
            await self.progress.wait_until_reached([version], ALICE)


class CommitTests(DatabaseTestCase):
    """What a COMMIT tells."""

    async def prepare(self) -> None:
        """Make a table."""
        await super().prepare()
        self.name = self.dsn.rpartition("dbname=")[2]
        self.server.command("CREATE TABLE notes (id int PRIMARY KEY)", self.name)

    async def test_grows(self) -> None:
        """Versions of one history grow from write to write, with ``synchronous_commit`` off too; work that no request
        began has none (CLU-27).
        """
        for setting in ("on", "off"):
            self.server.command(f"ALTER DATABASE \"{self.name}\" SET synchronous_commit = '{setting}'")
            database = await self.open_database(self.dsn)
            versions = [await version_of(database, note) for note in range(5)]
            self.assertEqual([version.position for version in versions], sorted({each.position for each in versions}))
            self.assertEqual(len({(version.system, version.timeline) for version in versions}), 1)
            ((flushed,),) = self.server.command("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
            self.assertLessEqual(versions[-1].position, flushed)

    async def test_failure_after_the_commit(self) -> None:
        """Where PostgreSQL gives up after a COMMIT, in the question for the position, the outcome is unknown, never a
        failure that invites to repeat it (CLU-12).
        """
        self.server.command(
            """
            CREATE FUNCTION public.pg_current_wal_flush_lsn() RETURNS pg_lsn LANGUAGE plpgsql AS
            $$ BEGIN RAISE query_canceled; END $$
            """,
            self.name,
        )
        self.server.command(f'ALTER DATABASE "{self.name}" SET search_path = public, pg_catalog', self.name)
        database = await self.open_database(self.dsn)
        with self.assertRaises(OutcomeUnknown):
            await database.change(INSERT, 1)
        self.assertEqual(self.server.command("SELECT id FROM notes", self.name), [(1,)])


class ServerTests(ClusterTestCase, CommandTestCase):
    """Two servers as processes, one on each database, whose clients are told versions and ask for them."""

    async def prepare(self) -> None:
        """Start both."""
        await super().prepare()
        primary = self.server_on(self.pair.primary.dsn(self.name))
        self.url = await primary.ready()
        self.key = primary.admin_key()
        self.api = Api.of(self, self.url)
        await self.pair.caught_up()
        self.follower_url = await self.server_on(self.pair.follower.dsn(self.name)).ready()
        self.follower = Api.of(self, self.follower_url)
        self.token = await self.api.authenticate("admin", self.key)

    async def change(self, method: str, path: str, body: bytes = b"", **headers: str) -> str:
        """Change something, and return the version that is told."""
        answer = await self.api.ask(method, path, body, self.token, **headers)
        self.assertIn(answer.status, {200, 201, 204}, answer)
        self.assertIn("svc-version", answer.headers, f"{method} {path}")
        return answer.headers["svc-version"]

    async def test_changes(self) -> None:
        """Every kind of change tells a version, also a large load, which another process makes; what is read on a follower
        with it has the change, and readings tell none (CLU-27, CLU-28).
        """
        root, secret = "/policies/acme/policy/root", "/secrets/acme/variable/v"
        policy = (
            b"- !variable v\n- !group g\n- !group h\n- !user alice\n- !layer l\n"
            b"- !host-factory { id: f, layers: [ !layer l ] }\n"
        )
        large = b"".join(b"- !variable many/v%d\n" % number for number in range(2000))
        form = {"Content_Type": "application/x-www-form-urlencoded"}
        changes: tuple[tuple[str, str, bytes, dict[str, str]], ...] = (
            ("POST", root, policy, {}),
            ("PATCH", root, large, {}),
            ("POST", secret, b"value", {}),
            ("POST", "/roles/acme/group/g?members&member=acme:group:h", b"", {}),
            ("DELETE", "/roles/acme/group/g?members&member=acme:group:h", b"", {}),
            ("PUT", "/authn/acme/api_key?role=user:alice", b"", {}),
            ("POST", "/host_factory_tokens", b"host_factory=acme:host_factory:f&expiration=2050-01-01T00:00:00Z", form),
            ("PUT", root, policy, {}),
        )
        for method, path, body, headers in changes:
            version = await self.change(method, path, body, **headers)
            read = await self.follower.ask("GET", "/resources/acme?count=true", token=self.token, Svc_At_Least=version)
            here = await self.api.ask("GET", "/resources/acme?count=true", token=self.token)
            self.assertEqual((read.status, read.body), (200, here.body), f"{method} {path}")
            self.assertNotIn("svc-version", {**read.headers, **here.headers})

    async def test_waits(self) -> None:
        """A reading on a follower that doesn't replay is 503 with ``Retry-After``, then has the value when it does; without
        the header it has the older one, and versions of other histories keep nobody waiting (CLU-28, CLU-29).
        """
        path = "/secrets/acme/variable/v"
        await self.change("POST", "/policies/acme/policy/root", b"- !variable v")
        first = await self.change("POST", path, b"first")
        read = await self.follower.ask("GET", path, token=self.token, Svc_At_Least=first)
        self.assertEqual(read.body, b"first")
        self.pair.pause()
        second = await self.change("POST", path, b"second")
        refused = await self.follower.ask("GET", path, token=self.token, Svc_At_Least=f"{first}, {second}")
        self.assertEqual((refused.status, refused.headers["retry-after"]), (503, "1"), refused)
        elsewhere = "7." + second.partition(".")[2]
        for other in (None, first, elsewhere):
            headers = {} if other is None else {"Svc_At_Least": other}
            read = await self.follower.ask("GET", path, None, self.token, **headers)
            self.assertEqual((read.status, read.body), (200, b"first"), other)
        malformed = await self.follower.ask("GET", path, token=self.token, Svc_At_Least=second.upper() + "!")
        self.assertEqual(malformed.status, 422)
        reading = begun(self.follower.ask("GET", path, token=self.token, Svc_At_Least=second))
        await deferLater(reactor, 0.2)
        self.assertFalse(reading.called)
        self.pair.resume()
        self.assertEqual((await reading).body, b"second")

    async def test_commands(self) -> None:
        """What one command writes on the primary, the next one reads on the follower, each time (CLI-28)."""
        await self.change("POST", "/policies/acme/policy/root", b"- !variable v")
        common = {"SVC_ACCOUNT": "acme", "SVC_LOGIN": "admin", "SVC_API_KEY": self.key}
        primary, follower = {**common, "SVC_URL": self.url}, {**common, "SVC_URL": self.follower_url}
        for value in (b"one", b"two"):
            self.pair.pause()
            await self.svc("variable", "set", "v", given=value, environ=primary)
            reading = self.start("variable", "get", "v", environ=follower)
            await deferLater(reactor, 1.5)
            self.pair.resume()
            read = await reading.ended
            self.assertEqual((read.exit_code, read.stdout), (0, value.decode()), read)

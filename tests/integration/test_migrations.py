"""Migrations on a real PostgreSQL, by servers that start at once, and on a standby."""

from __future__ import annotations

from typing import Final

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import capturedLogs

from svc.model.errors import StartRefused
from svc.storage.driver.database import Database
from svc.storage.driver.migrations import FIRST_RELEASE, FORMER, Migration, load_migrations, migrate, read_applied
from svc.storage.driver.statements import Statement
from tests.integration.postgres import PostgresTestCase, Server

NOTES: Final = [
    Migration(1, "0001_notes.sql", "CREATE TABLE notes (id bigint); INSERT INTO notes VALUES (1)"),
    Migration(2, "0002_more.sql", "INSERT INTO notes VALUES (2) -- 100% of them"),
    Migration(3, "0003_most.sql", "INSERT INTO notes VALUES (3)"),
]

STORED: Final = Statement("stored", "SELECT id FROM notes ORDER BY id")
FIRST_RECORD: Final = Statement("first_record", "SELECT version FROM schema_versions ORDER BY version")
CREATIONS: Final = Statement("creations", "SELECT creation FROM roles WHERE role_id LIKE 'acct:%' ORDER BY role_id")
TABLES: Final = Statement("tables", "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace")


class MigrationTests(PostgresTestCase):
    """A database that begins empty."""

    async def prepare(self) -> None:
        """Make the database."""
        await super().prepare()
        self.dsn = await self.create_database(migrated=False)
        self.database = await self.open_database(self.dsn)

    async def stored(self) -> list[int]:
        """What the migrations have stored."""
        return [note for (note,) in await self.database.fetch(STORED)]

    async def test_packaged(self) -> None:
        """An empty database becomes this program's, and each migration is logged (DATA-10)."""
        with capturedLogs() as events:
            self.assertEqual(await migrate(self.database), len(load_migrations()))
        self.assertEqual([event["name"] for event in events if "name" in event], [one.name for one in load_migrations()])
        recorded = await self.database.transact_read_only(read_applied)
        needs = [one.version if one.version <= FIRST_RELEASE else one.head.needs for one in load_migrations()]
        wanted = [
            (one.version, one.name, one.recorded_sha256, needed)
            for one, needed in zip(load_migrations(), needs, strict=True)
        ]
        self.assertEqual(recorded, wanted)

    async def test_roles_of_before(self) -> None:
        """Roles that were there before they had numbers have none, so that their tokens go on; later ones have their own."""
        await migrate(self.database, load_migrations()[:8])
        dbname = self.dsn.rpartition("dbname=")[2]
        self.server.command("INSERT INTO roles (role_id) VALUES ('acct:user:old')", dbname)
        await migrate(self.database)
        self.server.command("INSERT INTO roles (role_id) VALUES ('acct:user:one'), ('acct:user:two')", dbname)
        old, one, two = (number for (number,) in await self.database.fetch(CREATIONS))
        self.assertEqual((old, len({old, one, two})), (0, 3))
        self.assertTrue(0 < min(one, two) <= max(one, two) < 2**53)

    async def test_again(self) -> None:
        """What has been applied is not applied again, and what is new is (DATA-10)."""
        self.assertEqual(await migrate(self.database, NOTES[:1]), 1)
        self.assertEqual(await migrate(self.database, NOTES[:1]), 1)
        self.assertEqual(await self.stored(), [1])
        self.assertEqual(await migrate(self.database, NOTES), 3)
        self.assertEqual(await migrate(self.database, NOTES), 3)
        self.assertEqual(await self.stored(), [1, 2, 3])

    async def test_servers_that_start_at_once(self) -> None:
        """Of servers that migrate the same database at the same time, each finds every migration applied, once (DATA-10)."""
        databases = [self.database, *[await self.open_database(self.dsn, pool_size=1) for _ in range(3)]]
        migrating = [Deferred.fromCoroutine(migrate(database, NOTES)) for database in databases for _ in range(2)]
        self.assertEqual(await gatherResults(migrating), [3] * 8)
        self.assertEqual(await self.stored(), [1, 2, 3])

    async def test_failure(self) -> None:
        """A migration that fails leaves nothing of itself; those before it stay, and it can be tried again (DATA-10)."""
        broken = [*NOTES[:1], Migration(2, "0002_more.sql", "INSERT INTO notes VALUES (2); SELECT no_such_column")]
        with self.assertRaisesRegex(StartRefused, "no_such_column"):
            await migrate(self.database, broken)
        self.assertEqual(await self.stored(), [1])
        self.assertEqual(await migrate(self.database, NOTES), 3)
        self.assertEqual(await self.stored(), [1, 2, 3])

    async def test_newer_schema(self) -> None:
        """A schema that is newer than the program is refused, and stays as it is (DATA-11)."""
        await migrate(self.database, NOTES)
        with self.assertRaisesRegex(StartRefused, "version 3.* up to 2, and can't work with version 3: install the newer"):
            await migrate(self.database, NOTES[:2])
        self.assertEqual(await self.stored(), [1, 2, 3])

    async def test_newer_schema_that_is_borne(self) -> None:
        """A program works on a newer schema if all that is newer is borne by it, also when it is started again; one that is
        older than a contraction allows is refused (OPS-2).
        """
        steps = [
            *(Migration(number, f"{number:04}_step.sql", f"SELECT {number}") for number in range(1, 12)),
            Migration(12, "0012_more.sql", "-- expand\n\nSELECT 12"),
            Migration(13, "0013_less.sql", "-- contract since 12\n\nSELECT 13"),
            Migration(14, "0014_more.sql", "-- expand\n\nSELECT 14"),
        ]
        for there, known, borne in (
            *((12, 11, True), (12, 12, True), (13, 12, True)),
            *((13, 11, False), (14, 12, True), (14, 11, False)),
        ):
            self.assertEqual(await migrate(self.database, steps[:there]), there)
            if borne:
                self.assertEqual(await migrate(self.database, steps[:known]), there)
            else:
                with self.assertRaisesRegex(StartRefused, f"knows it up to {known}, and can't work with version 13"):
                    await migrate(self.database, steps[:known])
        # What the first release asks: it knows no other record, and refuses each row there that it doesn't know.
        self.assertEqual(await self.database.fetch(FIRST_RECORD), [*((number,) for number in range(1, 12)), (13,)])

    async def test_other_schema(self) -> None:
        """A schema that was made by other files, or files of other names, is refused, and nothing is added to it
        (DATA-11).
        """
        await migrate(self.database, NOTES[:2])
        for other in ("0002_more.sql", "INSERT INTO notes VALUES (7)"), ("0002_other.sql", NOTES[1].sql):
            with self.assertRaisesRegex(StartRefused, r"another 0002_more.sql \(version 2\)"):
                await migrate(self.database, [NOTES[0], Migration(2, *other), NOTES[2]])
        self.assertEqual(await self.stored(), [1, 2])

    async def test_other_comments(self) -> None:
        """A schema that was made by files with other comments is this program's, no matter by which hash it was recorded
        (DATA-11).
        """
        await migrate(self.database)
        name = self.dsn.rpartition("dbname=")[2]
        for number in (13, 21):
            migration = load_migrations()[number - 1]
            for sha256 in (*FORMER[migration.sha256], migration.sha256):
                self.server.command(f"UPDATE schema_steps SET sha256 = '{sha256}' WHERE version = {number}", name)
                self.assertEqual(await migrate(self.database), len(load_migrations()))

    async def test_another_programs_database(self) -> None:
        """A database in which another program has tables of the same names is refused, and stays as it is (DATA-11)."""
        self.server.command("CREATE TABLE notes (another integer)", self.dsn.rpartition("dbname=")[2])
        with self.assertRaisesRegex(StartRefused, "already exists.* must be this program's own"):
            await migrate(self.database, NOTES)
        self.assertEqual(await self.database.fetch(TABLES), [("notes",)])

    async def test_role_without_privileges(self) -> None:
        """A role that may not create tables is told so; once the schema is there, it needs no privilege to."""
        self.server.command("DROP ROLE IF EXISTS clerk")
        self.server.command("CREATE ROLE clerk LOGIN")
        clerk = await self.open_database(self.dsn.replace("user=svc", "user=clerk"), pool_size=1)
        with self.assertRaisesRegex(StartRefused, "permission denied.* allowed to create tables"):
            await migrate(clerk, NOTES)
        await migrate(self.database, NOTES)
        self.server.command("GRANT SELECT ON schema_versions, schema_steps TO clerk", self.dsn.rpartition("dbname=")[2])
        self.assertEqual(await migrate(clerk, NOTES), 3)
        await clerk.stopService()
        self.server.command("DROP OWNED BY clerk", self.dsn.rpartition("dbname=")[2])

    async def test_slow_migration(self) -> None:
        """A migration may take longer than the statement time-out, and so may the wait for another server's."""
        slow = [Migration(1, "0001_slow.sql", "CREATE TABLE notes (id bigint); SELECT pg_sleep(1.2)")]
        databases = [await self.open_database(self.dsn, pool_size=1, statement_timeout=1.0) for _ in range(2)]
        migrating = [Deferred.fromCoroutine(migrate(database, slow)) for database in databases]
        self.assertEqual(await gatherResults(migrating), [1, 1])

    async def test_encoding(self) -> None:
        """A database of another encoding than UTF-8 is refused (DATA-11)."""
        self.server.command("CREATE DATABASE latin TEMPLATE template0 ENCODING LATIN1 LOCALE 'C' LOCALE_PROVIDER libc")
        self.addCleanup(self.server.drop_database, "latin")
        database = await self.open_database(self.server.dsn("latin"), pool_size=1)
        with self.assertRaisesRegex(StartRefused, "LATIN1: create it with ENCODING 'UTF8'"):
            await migrate(database, NOTES)


class StandbyTests(PostgresTestCase):
    """A hot standby, whose schema comes from its primary."""

    async def test_standby(self) -> None:
        """A standby is never migrated: as new as the program, it serves; older, it is refused, and so it is when newer
        (CLU-6, DATA-12).
        """
        server = Server()
        self.addCleanup(server.destroy)
        await server.start()
        primary = self.started(server)
        await primary.wait_until_connected()
        await migrate(primary, NOTES[:2])
        await primary.stopService()
        await server.demote()
        standby = self.started(server)
        await standby.wait_until_connected()
        self.assertEqual(await migrate(standby, NOTES[:2]), 2)
        with self.assertRaisesRegex(StartRefused, "standby is at version 2.* needs 3: start .* on the primary first"):
            await migrate(standby, NOTES)
        with self.assertRaisesRegex(StartRefused, "install the newer program"):
            await migrate(standby, NOTES[:1])
        await standby.stopService()

    def started(self, server: Server) -> Database:
        """A started database on a server of one's own."""
        database = Database(reactor, server.dsn(), pool_size=1, statement_timeout=5.0, first_wait=10.0)
        database.startService()
        self.addCleanup(database.stopService)
        return database

"""Data keys on PostgreSQL, step by step: what is sealed again, and what a rotation waits for."""

from __future__ import annotations

from typing import Any

from svc.crypto.vault import CANARY, Vault, api_key_name, data_key_id, password_name, signing_key_name
from svc.model.data_keys import KeyUser, ResealOutcome, StoredDataKey
from svc.model.errors import StoreUnavailable, WrongDataKey
from svc.model.names import RoleName
from svc.model.query_results import Sealed
from svc.storage.data_keys import DataKeyStore
from svc.storage.driver.failures import StatementFailed
from svc.storage.driver.statements import Statement, Transaction
from svc.storage.sealed_columns import EXPIRATION_LOCK, SEALED_COLUMNS
from tests.integration.postgres import DatabaseTestCase

OLD, NEW, NEXT = b"o" * 32, b"n" * 32, b"x" * 32
OLD_ID, NEW_ID, NEXT_ID = map(data_key_id, (OLD, NEW, NEXT))

#: Columns of bytes that hold nothing sealed, and why; the canary is sealed again by itself, when a rotation begins.
NOT_SEALED = {
    ("canary", "sealed"): "by itself",
    ("host_factory_tokens", "digest"): "a digest",
    ("sessions", "token"): "a keyed hash",
    ("sessions", "used"): "a keyed hash",
    ("sessions", "seed"): "random bytes",
    ("kept_answers", "request"): "a digest",
}

ALICE = RoleName("acme", "user", "alice")


class SealedColumnTests(DatabaseTestCase):
    """The table of sealed columns."""

    async def test_all_are_known(self) -> None:
        """Every column of bytes is in the table, so that it is sealed again, or is known to hold nothing sealed; its key is
        the table's primary key (DATA-32).
        """
        columns = self.command(
            "SELECT table_name::text, column_name::text FROM information_schema.columns"
            " WHERE table_schema = 'public' AND data_type = 'bytea'"
        )
        known = {(each.table, each.column) for each in SEALED_COLUMNS}
        self.assertEqual(set(columns) - NOT_SEALED.keys(), known, "add the column to svc/storage/sealed_columns.py")
        for each in SEALED_COLUMNS:
            primary = self.command(
                "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_index JOIN pg_attribute"
                " ON attrelid = indrelid AND attnum = ANY (indkey)"
                f" WHERE indisprimary AND indrelid = '{each.table}'::regclass "
                " ORDER BY array_position(indkey::int[], attnum::int)"
            )
            self.assertEqual(dict(primary), each.key, each)

    async def test_all_are_guarded(self) -> None:
        """Every sealed column, the canary's too, refuses what is sealed under a closed key (DATA-31)."""
        await self.closed()
        sealed = Vault(OLD).seal("anything", b"value").hex()
        guarded = [("canary", "sealed"), *((each.table, each.column) for each in SEALED_COLUMNS if each.guarded)]
        for table, column in guarded:
            ((there,),) = self.command(
                f"SELECT count(*) FROM pg_trigger WHERE tgrelid = '{table}'::regclass"
                f" AND tgname = '{column}_under_open_data_key'"
            )
            self.assertEqual(there, 1, f"SELECT guard_sealed_column('{table}', '{column}') in a migration")
        self.assertRaises(StatementFailed, self.command, f"UPDATE canary SET sealed = '\\x{sealed}'")

    def command(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask as the superuser."""
        return self.server.command(sql, self.dsn.rpartition("=")[2])

    async def closed(self) -> None:
        """Go over from the old key to the new one, and close the old one."""
        self.command(
            f"INSERT INTO canary (sealed) VALUES ('\\x{Vault(OLD).seal(CANARY, b'svc').hex()}');"
            f"INSERT INTO data_keys (number, key_id, closed_at) VALUES (1, '{OLD_ID}', now()), (2, '{NEW_ID}', NULL)"
        )


class DataKeyStoreTests(DatabaseTestCase):
    """Rotations of a database with a value of each kind."""

    async def prepare(self) -> None:
        """Fill a database that was initialised with the old key."""
        await super().prepare()
        self.store = DataKeyStore(self.database)
        self.vault = Vault(NEW, OLD)
        self.vault.use_stored_keys([StoredDataKey(OLD_ID)])
        await self.store.record_first_key(OLD_ID)
        self.names = {
            "secrets.sealed": "acme:variable:v",
            "expirations.candidate": "acme:variable:v",
            "credentials.api_key": api_key_name(ALICE),
            "credentials.password": password_name(ALICE),
            "signing_keys.sealed": signing_key_name("acme", "key"),
        }
        secret, candidate, api_key, password, signing = (self.sealed(name) for name in self.names.values())
        self.command(
            f"INSERT INTO canary (sealed) VALUES ({self.sealed(CANARY)}); INSERT INTO accounts (account) VALUES ('acme');"
            "INSERT INTO roles (role_id) VALUES ('acme:user:alice');"
            "INSERT INTO resources (resource_id, owner_id) VALUES ('acme:variable:v', 'acme:user:alice');"
            f"INSERT INTO secrets (resource_id, version, sealed)"
            f" SELECT 'acme:variable:v', number, {secret} FROM generate_series(1, 20) AS number;"
            f"INSERT INTO expirations (resource_id, candidate) VALUES ('acme:variable:v', {candidate});"
            f"INSERT INTO credentials (role_id, api_key, password) VALUES ('{ALICE}', {api_key}, {password});"
            f"INSERT INTO signing_keys (key_id, account, sealed, created_at) VALUES ('key', 'acme', {signing}, 0)"
        )

    def command(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask as the superuser."""
        return self.server.command(sql, self.dsn.rpartition("=")[2])

    def sealed(self, name: str, vault: Vault | None = None) -> str:
        """SQL for a value that is sealed under a name."""
        return f"'\\x{(vault or self.vault).seal(name, b'value').hex()}'"

    def values(self) -> list[tuple[str, Sealed]]:
        """Every sealed value, after its name."""
        return [
            (self.names[str(each)], Sealed(bytes(value)))
            for each in SEALED_COLUMNS
            for (value,) in self.command(
                f"SELECT {each.column} FROM {each.table}"
                f" WHERE {each.column} IS NOT NULL AND get_byte({each.column}, 0) IN (1, 2)"
            )
        ]

    async def begin(self) -> None:
        """Begin to rotate to the new key."""
        canary = self.vault.seal_next(NEW, CANARY, b"svc")
        self.assertTrue(await self.store.begin_rotation(OLD_ID, NEW_ID, canary, await self.store.count_sealed_values()))
        self.vault.use_stored_keys(await self.store.list_keys())

    async def step(self, most: int = 7) -> ResealOutcome:
        """Make a step, without a pause."""
        return await self.store.advance_rotation(self.vault.reseal, most, 0.0)

    async def until(self, wanted: ResealOutcome, most: int = 100) -> list[ResealOutcome]:
        """Make steps until one did this; return what the ones before did."""
        made = list[ResealOutcome]()
        for _ in range(most):
            moved = await self.step()
            if moved is wanted:
                return made
            made.append(moved)
        raise self.failureException(f"{wanted} is not among {set(made)}")

    async def test_rotation(self) -> None:
        """Every value of every kind is sealed again, and only then the old key is retired: alone it opens nothing of them
        (DATA-31, DATA-32).
        """
        self.assertEqual(await self.step(), ResealOutcome.NOTHING)
        await self.begin()
        made = await self.until(ResealOutcome.RETIRED)
        self.assertEqual(made[0], ResealOutcome.CLOSED)
        self.assertLessEqual(set(made[1:]), {ResealOutcome.SETTLING, ResealOutcome.SEALED})
        old, values = Vault(OLD), self.values()
        old.use_stored_keys([StoredDataKey(OLD_ID), StoredDataKey(NEW_ID)])
        self.assertEqual(len(values), 24)
        new = Vault(NEW)
        new.use_stored_keys(await self.store.list_keys())
        for name, value in values:
            self.assertEqual(new.open(name, value), b"value")
            self.assertRaises(WrongDataKey, old.open, name, value)
        (canary,) = self.command("SELECT sealed FROM canary")
        self.assertEqual(new.open(CANARY, Sealed(bytes(canary[0]))), b"svc")
        progress = await self.store.read_progress()
        self.assertEqual((progress.resealed_count, progress.remaining_count, progress.unopened), (24, 0, 0))
        self.assertEqual(sum(progress.totals.values()), 24)
        self.assertEqual(await self.store.list_keys(), [StoredDataKey(OLD_ID, True, True), StoredDataKey(NEW_ID)])
        self.assertEqual(await self.step(), ResealOutcome.NOTHING)

    async def test_again(self) -> None:
        """A rotation begins once, from the key that seals, after the last one has ended, and to no key that has been
        (DATA-30); then the next one works like the first.
        """
        canary = Sealed(b"\x02 none")
        self.assertFalse(await self.store.begin_rotation(NEW_ID, NEXT_ID, canary, {}))
        self.assertFalse(await self.store.begin_rotation(OLD_ID, OLD_ID, canary, {}))
        await self.begin()
        for current, new in ((OLD_ID, NEW_ID), (OLD_ID, NEXT_ID), (NEW_ID, NEXT_ID)):
            self.assertFalse(await self.store.begin_rotation(current, new, canary, {}))
        await self.until(ResealOutcome.RETIRED)
        self.assertFalse(await self.store.begin_rotation(NEW_ID, OLD_ID, canary, {}))
        self.vault.set_keys((NEXT, NEW))
        self.vault.use_stored_keys(await self.store.list_keys())
        after = self.vault.seal_next(NEXT, CANARY, b"svc")
        self.assertTrue(await self.store.begin_rotation(NEW_ID, NEXT_ID, after, await self.store.count_sealed_values()))
        self.vault.use_stored_keys(await self.store.list_keys())
        await self.until(ResealOutcome.RETIRED)
        last = Vault(NEXT)
        last.use_stored_keys(await self.store.list_keys())
        self.assertEqual({last.open(name, value) for name, value in self.values()}, {b"value"})
        self.assertEqual((await self.store.read_progress()).resealed_count, 24)

    async def test_interrupted(self) -> None:
        """Each step is one transaction: what fails in the middle changes nothing, and the next one goes on there
        (DATA-32).
        """
        await self.begin()
        await self.until(ResealOutcome.SEALED)
        before = await self.store.read_progress()

        def fails(name: str, sealed: Sealed) -> Sealed:
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            await self.store.advance_rotation(fails, 7, 0.0)
        self.assertEqual((await self.store.read_progress(), before.resealed_count), (before, 7))
        self.assertEqual(
            len(self.command("SELECT version FROM secrets WHERE sealed < '\\x02' AND resource_id = 'acme:variable:v'")), 13
        )
        await self.until(ResealOutcome.RETIRED)
        self.assertEqual((await self.store.read_progress()).resealed_count, 24)

    async def test_pace(self) -> None:
        """All servers together make one step in a pause (DATA-32)."""
        await self.begin()
        self.assertEqual(await self.step(), ResealOutcome.CLOSED)
        self.assertEqual(await self.store.advance_rotation(self.vault.reseal, 7, 3600.0), ResealOutcome.NOTHING)
        self.command("UPDATE data_key_pass SET moved_at = 'infinity'")  # A clock that was set back stops nothing.
        self.assertNotEqual(await self.store.advance_rotation(self.vault.reseal, 7, 3600.0), ResealOutcome.NOTHING)

    async def test_at_once(self) -> None:
        """A step does nothing while another server is at one (DATA-32)."""
        await self.begin()
        seen = list[ResealOutcome]()

        async def hold(transaction: Transaction) -> None:
            await transaction.fetch(Statement("test_hold", "SELECT FROM data_key_pass FOR UPDATE"))
            seen.append(await self.step())

        await self.database.transact(hold)
        self.assertEqual(seen, [ResealOutcome.NOTHING])

    async def test_laggards(self) -> None:
        """The old key is not closed before all that run seal with the new one; who is long silent isn't waited for
        (DATA-31).
        """
        await self.store.announce_process("one", KeyUser("one", OLD_ID, (NEW_ID, OLD_ID)))
        await self.store.announce_process("two", KeyUser("two", "", (OLD_ID,)))
        await self.begin()
        self.assertEqual(await self.step(), ResealOutcome.WAITING)
        await self.store.announce_process("one", KeyUser("one", NEW_ID, (NEW_ID, OLD_ID)))
        self.assertEqual(await self.step(), ResealOutcome.WAITING)
        self.command("UPDATE data_key_users SET seen_at = seen_at - interval '21 s' WHERE process = 'two'")
        self.assertEqual([user.display_name for user in await self.store.list_key_users()], ["one"])
        self.assertEqual(await self.step(), ResealOutcome.CLOSED)

    async def test_late_writers(self) -> None:
        """A transaction that sealed with the old key before it was closed is waited for, and what it wrote is sealed again;
        one that comes later is refused, to come again (DATA-31).
        """
        written = Statement(
            "test_write",
            "INSERT INTO secrets (resource_id, version, sealed) VALUES ('acme:variable:v', $1::integer, $2::bytea)",
        )
        stale = Vault(OLD)
        await self.begin()

        async def late(transaction: Transaction) -> None:
            await transaction.fetch(written, 21, stale.seal("acme:variable:v", b"value"))
            self.assertEqual(await self.step(), ResealOutcome.CLOSED)
            for _ in range(5):
                self.assertEqual(await self.step(), ResealOutcome.SETTLING)

        await self.database.transact(late)
        refused = self.database.change(written, 22, stale.seal("acme:variable:v", b"value"))
        with self.assertRaises(StoreUnavailable):
            await refused
        await self.database.change(written, 22, self.vault.seal("acme:variable:v", b"value"))
        await self.until(ResealOutcome.RETIRED)
        self.assertEqual(len(self.values()), 26)
        self.assertEqual({value[:1] for _, value in self.values()}, {b"\x02"})
        with self.assertRaises(StoreUnavailable):
            await self.database.change(written, 23, stale.seal("acme:variable:v", b"value"))

    async def test_held_rows(self) -> None:
        """A row that somebody else is changing is not waited for, nor overwritten: the next pass comes to it (DATA-32)."""
        await self.begin()
        await self.until(ResealOutcome.SETTLING)
        changed = self.vault.seal("acme:variable:v", b"another")
        update = Statement(
            "test_update", "UPDATE secrets SET sealed = $1::bytea WHERE resource_id = 'acme:variable:v' AND version = 3"
        )
        untouched = Statement(
            "test_untouched", "SELECT FROM secrets WHERE resource_id = 'acme:variable:v' AND version = 4 FOR UPDATE"
        )

        async def hold(transaction: Transaction) -> None:
            await transaction.fetch(update, changed)
            await transaction.fetch(untouched)
            for _ in range(12):
                self.assertEqual(await self.step(), ResealOutcome.SEALED)

        # The transaction has no number that is older than the horizon.
        await self.until(ResealOutcome.SEALED)
        await self.database.transact(hold)
        await self.until(ResealOutcome.RETIRED)
        new = Vault(NEW)
        new.use_stored_keys(await self.store.list_keys())
        opened = [new.open(name, value) for name, value in self.values()]
        self.assertEqual((opened.count(b"value"), opened.count(b"another")), (23, 1))

    async def test_rotations_of_values(self) -> None:
        """A value that a rotation may put in force is not replaced while a round of rotations is under way (DATA-32)."""
        await self.begin()
        turn = Statement("test_turn", "SELECT pg_advisory_xact_lock($1::bigint)")

        async def hold(transaction: Transaction) -> None:
            await transaction.fetch(turn, EXPIRATION_LOCK)
            for _ in range(20):
                self.assertNotEqual(await self.step(), ResealOutcome.RETIRED)
            ((candidate,),) = self.command("SELECT candidate FROM expirations WHERE candidate IS NOT NULL")
            self.assertEqual(bytes(candidate)[:1], b"\x01")

        await self.database.transact_read_only(hold)
        await self.until(ResealOutcome.RETIRED)

    async def test_unopened(self) -> None:
        """What the old key doesn't open is left as it is, named, and keeps the key from being retired until it is gone
        (DATA-32).
        """
        self.command(f"UPDATE credentials SET password = {self.sealed('moved')}")
        await self.begin()
        for _ in range(40):
            self.assertNotEqual(await self.step(), ResealOutcome.RETIRED)
        progress = await self.store.read_progress()
        self.assertEqual((progress.unopened, progress.first_unopened), (1, f"password of {ALICE}"))
        self.assertEqual(progress.resealed_count, 23)
        self.command("UPDATE credentials SET password = NULL")
        await self.until(ResealOutcome.RETIRED)
        self.assertEqual((await self.store.read_progress()).unopened, 0)

    async def test_long_values(self) -> None:
        """A step seals again so many bytes, or one value that is longer (DATA-32)."""
        self.command("DELETE FROM secrets WHERE resource_id = 'acme:variable:v' AND version > 3")
        for version in (1, 2, 3):
            value = self.vault.seal("acme:variable:v", bytes(1_500_000)).hex()
            self.command(
                f"UPDATE secrets SET sealed = '\\x{value}' WHERE resource_id = 'acme:variable:v' AND version = {version}"
            )
        await self.begin()
        await self.until(ResealOutcome.SETTLING)
        await self.until(ResealOutcome.SEALED)
        for done in (1, 2, 3):
            self.assertEqual((await self.store.read_progress()).resealed["secrets.sealed"], done)
            await self.step()
        await self.until(ResealOutcome.RETIRED)

    async def test_restored(self) -> None:
        """A rotation that came with a dump, whose transactions have numbers that this history hasn't reached, goes on
        (DATA-32).
        """
        await self.begin()
        await self.until(ResealOutcome.SETTLING)
        self.command("UPDATE data_keys SET horizon = '9000000000000' WHERE number = 1")
        await self.until(ResealOutcome.RETIRED)

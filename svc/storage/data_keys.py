"""Data keys on PostgreSQL, and sealing again, by steps that are a transaction each.

Note [Steps]. The whole progress of a rotation is in the database, and each step is one transaction, so that a server may die
at any moment, and any server can continue. A row has the time of the last step, and is locked during one: so all servers
together keep the pace, and no two re-encrypt at the same time.

Note [Closed, then looked through]. Values are sealed again after nobody can add one under the old key any more. First every
server seals with the new one; then the old key is closed, which triggers enforce; then the transactions end that may have
seen it open. From then on a pass sees every value there is. The old key is retired when a whole pass met nothing that is
sealed under it.

Note [Rows that others hold]. Rows are locked before they are read, and those that another transaction has locked are left to
the next pass. So no value that is written meanwhile is replaced by an older one, and a step waits for no transaction that
might wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from svc.model.data_keys import KeyProgress, KeyUser, Reseal, ResealOutcome, StoredDataKey
from svc.model.query_results import Sealed
from svc.storage.driver.columns import to_array
from svc.storage.driver.database import Database
from svc.storage.driver.statements import Statement, Transaction
from svc.storage.sealed_columns import SEALED_COLUMNS, SealedColumn

#: For how many seconds a process counts as running after it announced the key that it seals with.
LIVE: Final = 20.0

#: How many rows a step looks at, most; and how many bytes it seals again, unless one value has more.
WINDOW: Final = 500
BYTES: Final = 2_000_000

#: Seconds that the count of all sealed values may take.
COUNT_TIMEOUT: Final = 600.0

_KEYS: Final = Statement.with_name("data_keys")("""
    SELECT key_id, closed_at IS NOT NULL, retired_at IS NOT NULL, extract(epoch FROM clock_timestamp() - begun_at)::float
    FROM data_keys ORDER BY number
""")
_FIRST: Final = Statement.with_name("data_key_first")(
    "INSERT INTO data_keys (number, key_id) VALUES (1, $1::text) ON CONFLICT DO NOTHING"
)
_ANNOUNCE: Final = Statement.with_name("data_key_announce")("""
    WITH gone AS (DELETE FROM data_key_users WHERE seen_at < clock_timestamp() - interval '1 day')
    INSERT INTO data_key_users (process, place, seals, knows) VALUES ($1::text, $2::text, $3::text, $4::text[])
    ON CONFLICT (process) DO UPDATE SET
        place = excluded.place, seals = excluded.seals, knows = excluded.knows, seen_at = clock_timestamp()
""")
_USERS: Final = Statement.with_name("data_key_users")(f"""
    SELECT place, seals, knows FROM data_key_users
    WHERE seen_at > clock_timestamp() - interval '{LIVE} s' ORDER BY place
""")
_BEGIN: Final = Statement.with_name("data_key_begin")("""
    INSERT INTO data_keys (number, key_id)
    SELECT last.number + 1, $2::text FROM (SELECT * FROM data_keys ORDER BY number DESC LIMIT 1) AS last
    WHERE last.key_id = $1::text
        AND NOT EXISTS (SELECT FROM data_keys AS others WHERE others.number < last.number AND retired_at IS NULL)
        AND NOT EXISTS (SELECT FROM data_keys AS others WHERE others.key_id = $2)
    ON CONFLICT DO NOTHING
    RETURNING number
""")
_CANARY: Final = Statement("data_key_canary", "UPDATE canary SET sealed = $1::bytea")
_FORGET_PROGRESS: Final = Statement("data_key_forget", "DELETE FROM data_key_progress")
_EXPECT: Final = Statement(
    "data_key_expect", "INSERT INTO data_key_progress (target, total) SELECT * FROM unnest($1::text[], $2::bigint[])"
)
_MOVE: Final = Statement.with_name("data_key_move")("""
    SELECT true FROM data_key_pass
    WHERE single
        AND moved_at NOT BETWEEN clock_timestamp() - make_interval(secs => $1::double precision) AND clock_timestamp()
    FOR NO KEY UPDATE SKIP LOCKED
""")
_MOVED: Final = Statement.with_name("data_key_moved")("""
    UPDATE data_key_pass SET
        moved_at = clock_timestamp(), found = found + $1::bigint, unopened = unopened + $2::bigint,
        first_unopened = coalesce(first_unopened, $3::text)
    WHERE single RETURNING found
""")
# A transaction number that this history hasn't reached yet came with a dump, so there is no such transaction to wait for.
_OLD: Final = Statement.with_name("data_key_old")("""
    SELECT number, key_id, closed_at IS NOT NULL, horizon IS NOT NULL,
        horizon <= pg_snapshot_xmin(pg_current_snapshot()) OR horizon > pg_snapshot_xmax(pg_current_snapshot())
    FROM data_keys WHERE retired_at IS NULL AND number < (SELECT max(number) FROM data_keys) ORDER BY number
""")
_LAGGARDS: Final = Statement.with_name("data_key_laggards")(f"""
    SELECT place FROM data_key_users
    WHERE seen_at > clock_timestamp() - interval '{LIVE} s'
        AND seals <> (SELECT key_id FROM data_keys ORDER BY number DESC LIMIT 1)
    LIMIT 1
""")
_CLOSE: Final = Statement("data_key_close", "UPDATE data_keys SET closed_at = now() WHERE number = $1::integer")
_SET_HORIZON: Final = Statement.with_name("data_key_settle")(
    "UPDATE data_keys SET horizon = pg_snapshot_xmax(pg_current_snapshot()) WHERE number = $1::integer"
)
_RETIRE: Final = Statement("data_key_retire", "UPDATE data_keys SET retired_at = now() WHERE number = $1::integer")
_POSITIONS: Final = Statement("data_key_positions", "SELECT target, position, passed FROM data_key_progress")
_ADVANCE: Final = Statement.with_name("data_key_advance")("""
    INSERT INTO data_key_progress AS known (target, total, resealed, position, passed)
    VALUES ($1::text, 0, $2::bigint, $3::text[], $4::boolean)
    ON CONFLICT (target) DO UPDATE SET
        resealed = known.resealed + excluded.resealed, position = coalesce(excluded.position, known.position),
        passed = excluded.passed
""")
_RESET_PASSES: Final = Statement("data_key_again", "UPDATE data_key_progress SET position = NULL, passed = false")
_PASS: Final = Statement.with_name("data_key_pass_begins")(
    """
    UPDATE data_key_pass SET
        found = 0, unopened = 0, first_unopened = NULL, before_unopened = $1::bigint * unopened,
        before_first_unopened = CASE WHEN $1 > 0 THEN first_unopened END
    WHERE single
"""
)
_TRY_LOCK: Final = Statement("data_key_turn", "SELECT pg_try_advisory_xact_lock($1::bigint)")
_PROGRESS: Final = Statement.with_name("data_key_progress")("""
    SELECT target, total, resealed, greatest(unopened, before_unopened), coalesce(first_unopened, before_first_unopened)
    FROM data_key_pass LEFT JOIN data_key_progress ON true
""")


@attrs.frozen
class _ColumnStatements:
    """The statements on one sealed column."""

    column: SealedColumn
    counting: Statement
    scanning: Statement
    locking: Statement
    replacing: Statement

    @classmethod
    def of(cls, sealed: SealedColumn) -> _ColumnStatements:
        """Return those of a column."""
        return cls(
            sealed,
            sealed.count_statement(),
            sealed.scan_statement(WINDOW),
            sealed.lock_statement(),
            sealed.replace_statement(),
        )


_COLUMNS: Final = [_ColumnStatements.of(sealed) for sealed in SEALED_COLUMNS]


@attrs.frozen
class DataKeyStore:
    """The data keys of the database. Every method may raise ``StoreUnavailable``, those that write ``ReadOnlyStandby``."""

    _database: Database

    async def list_keys(self) -> list[StoredDataKey]:
        """Return the keys in their order; none when only one has ever been, which no server has noted."""
        return [StoredDataKey(*row) for row in await self._database.fetch(_KEYS)]

    async def record_first_key(self, key_id: str) -> None:
        """Note the key that the database was initialised with, unless there is one."""
        await self._database.change(_FIRST, key_id)

    async def announce_process(self, process: str, user: KeyUser) -> None:
        """Announce the key that a process seals with, and those that it knows; ``process`` is a name that no other has."""
        await self._database.change_unreported(_ANNOUNCE, process, user.display_name, user.seals, to_array(user.knows))

    async def list_key_users(self) -> list[KeyUser]:
        """Return the processes with a recent announcement."""
        return [KeyUser(place, seals, tuple(knows)) for place, seals, knows in await self._database.fetch(_USERS)]

    async def count_sealed_values(self) -> dict[str, int]:
        """Count the sealed values, by sealed column; that may take long."""
        keys = await self.list_keys()
        header = _sealed_header(len(keys), keys[-1].key_id) if keys else _sealed_header(1, "")

        async def count_values(transaction: Transaction) -> dict[str, int]:
            found = {}
            for each in _COLUMNS:
                ((found[str(each.column)],),) = await transaction.fetch(each.counting, header)
            return found

        return await self._database.transact(count_values, statement_timeout=COUNT_TIMEOUT)

    async def begin_rotation(self, current: str, new: str, canary: Sealed, totals: Mapping[str, int]) -> bool:
        """Begin to rotate to a new key, with a canary that is sealed under it.

        Return whether that was possible: ``current`` is the key that seals, and all before it are retired.
        """

        async def apply_change(transaction: Transaction) -> bool:
            if not await transaction.fetch(_BEGIN, current, new):
                return False
            await transaction.fetch(_CANARY, canary)
            await transaction.fetch(_FORGET_PROGRESS)
            await transaction.fetch(_EXPECT, to_array(totals), to_array([str(count) for count in totals.values()]))
            await transaction.fetch(_PASS, 0)
            return True

        return await self._database.transact(apply_change)

    async def advance_rotation(self, reseal: Reseal, most: int, pause: float) -> ResealOutcome:
        """Go a step further, if no server did so in the last ``pause`` seconds: re-encrypt at most ``most`` values.

        Notes [Steps] and [Closed, then looked through] say how.
        """

        async def apply_step(transaction: Transaction) -> ResealOutcome:
            if not await transaction.fetch(_MOVE, pause):
                return ResealOutcome.NOTHING
            for number, key_id, closed, has_horizon, settled in await transaction.fetch(_OLD):
                if not closed:
                    moved = await _close_key(transaction, number)
                elif not settled:
                    if not has_horizon:
                        await transaction.fetch(_SET_HORIZON, number)
                    moved = ResealOutcome.SETTLING
                else:
                    return await _advance_pass(transaction, number, _sealed_header(number, key_id), reseal, most)
                await transaction.fetch(_MOVED, 0, 0, None)
                return moved
            return ResealOutcome.NOTHING

        return await self._database.transact(apply_step)

    async def read_progress(self) -> KeyProgress:
        """Return the progress of the rotation."""
        totals, resealed, unopened, first = dict[str, int](), dict[str, int](), 0, None
        for target, total, done, *of_pass in await self._database.fetch(_PROGRESS):
            unopened, first = of_pass
            if target is not None:
                totals[target], resealed[target] = total, done
        return KeyProgress(totals, resealed, unopened, first)


async def _close_key(transaction: Transaction, number: int) -> ResealOutcome:
    if await transaction.fetch(_LAGGARDS):
        return ResealOutcome.WAITING
    await transaction.fetch(_CLOSE, number)
    return ResealOutcome.CLOSED


async def _advance_pass(transaction: Transaction, number: int, header: bytes, reseal: Reseal, most: int) -> ResealOutcome:
    """Go a step further in a pass, and at its end retire the key, or begin another one."""
    known = {target: (position, passed) for target, position, passed in await transaction.fetch(_POSITIONS)}
    for each in _COLUMNS:
        position, passed = known.get(str(each.column), (None, False))
        if not passed:
            found, unopened = await _reseal_values(transaction, each, position, header, reseal, most)
            await transaction.fetch(_MOVED, found, len(unopened), next(iter(unopened), None))
            return ResealOutcome.SEALED
    ((found,),) = await transaction.fetch(_MOVED, 0, 0, None)
    await transaction.fetch(_RESET_PASSES)
    await transaction.fetch(_PASS, int(found > 0))
    if found:
        return ResealOutcome.SEALED
    await transaction.fetch(_RETIRE, number)
    return ResealOutcome.RETIRED


async def _reseal_values(
    transaction: Transaction,
    each: _ColumnStatements,
    position: Sequence[str] | None,
    header: bytes,
    reseal: Reseal,
    most: int,
) -> tuple[int, list[str]]:
    """Re-encrypt the next values of a column; return how many there were to seal, and which of them don't open."""
    sealed = each.column
    if sealed.lock is not None and (await transaction.fetch(_TRY_LOCK, sealed.lock)) != [(True,)]:
        return 0, []
    rows = await transaction.fetch(each.scanning, header, *(position or sealed.first_key))
    looked, wanted, size = 0, list[Sequence[Any]](), 0
    for *key, ours, length in rows:
        if ours:
            if len(wanted) >= most or (wanted and size + length > BYTES):
                break
            wanted.append(key)
            size += length
        looked += 1
    new, unopened = list[Sequence[Any]](), list[str]()
    if wanted:
        keys = map(to_array, zip(*wanted, strict=True))
        for *key, shown, name, value in await transaction.fetch(each.locking, *keys, header):
            again = reseal(name, Sealed(value))
            if again is None:
                unopened.append(shown)
            else:
                new.append((*key, again))
    if new:
        first, *others = new
        await transaction.fetch(each.replacing, *first)
    if len(new) > 1:  # In one message: each by its key, since PostgreSQL joins what it takes for few rows as it likes.
        every = "; ".join([each.replacing.execution] * len(others))
        await transaction.execute(every, [value for row in others for value in row])
    last = rows[looked - 1][: len(sealed.key)] if looked else None
    passed = looked == len(rows) < WINDOW
    await transaction.fetch(_ADVANCE, str(sealed), len(new), None if last is None else to_array(last), passed)
    return len(wanted), unopened


def _sealed_header(number: int, key_id: str) -> bytes:
    """Return the header of everything that is sealed under a key of the database (``crypto.vault``, Note [Which key])."""
    return b"\x01" if number == 1 else b"\x02" + bytes.fromhex(key_id)

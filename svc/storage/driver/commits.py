"""A transaction from BEGIN to COMMIT, and the version of the database's state after it.

Note [The position after a COMMIT]. A version is where the log is flushed to when a COMMIT has been answered, on the same
session: all of the commit's record is before that, and a standby that has replayed up to there shows the change. It isn't
where the next record would be inserted: at the beginning of a page that is after the page's header, where no standby arrives
before something else is written. With ``synchronous_commit`` off, a COMMIT is answered before it is flushed; then it is that
position all the same, and the next beat (Note [Beats] in ``replication``) brings standbys there. A transaction's id would be
a worse version: one long transaction would keep every reader waiting.

Note [One message]. COMMIT and the question for the position go in one message, for one round trip. If it fails and the
transaction is still open, nothing was committed. If it fails and the transaction is over, PostgreSQL gave up in the COMMIT
or after it, and there is no way to know which: the outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from svc.model.errors import OutcomeUnknown, StoreUnavailable
from svc.model.request_notes import request_notes
from svc.model.versions import StateVersion
from svc.storage.driver.connection import Fetched, Session
from svc.storage.driver.failures import StatementFailed, TransactionAborted
from svc.storage.driver.location import milliseconds
from svc.storage.driver.statements import Transaction

T = TypeVar("T")

#: Is called for each COMMIT of this server that isn't known to have failed, before anybody learns of it: with whether it is
#: known to have succeeded, and the version after it where that is known.
Written = Callable[[bool, StateVersion | None], None]
#: How much longer than usual a COMMIT may take at most, in seconds: no longer than what it commits took.
LONGEST_COMMIT: Final = 60.0
#: Where the log of a primary stands: the timeline, and the position that has what was committed.
POSITION: Final = """
    SELECT ('x' || left(pg_walfile_name(position), 8))::bit(32)::bigint, (position - '0/0')::bigint
    FROM (
        SELECT CASE current_setting('synchronous_commit')
            WHEN 'off' THEN pg_current_wal_insert_lsn() ELSE pg_current_wal_flush_lsn() END AS position
        {where}
    ) AS log
"""
#: Writes an empty record, for which the COMMIT waits, where a transaction has written nothing (Note [Unknown outcomes] in
#: ``database``). Returns the timeline and the position that include the COMMIT; nothing on a standby.
COMMIT: Final = f"""
    SELECT pg_logical_emit_message(true, 'svc', '')
    WHERE pg_current_xact_id_if_assigned() IS NULL AND NOT pg_is_in_recovery(); COMMIT;
    {POSITION.format(where="WHERE NOT pg_is_in_recovery() OFFSET 0")}
"""


def system_of(server: str) -> int:
    """Return the system identifier in the text of ``Session.server``; PostgreSQL has no unsigned numbers."""
    return int(server.partition(" ")[0]) % (1 << 64)


def version_after(session: Session, positions: Fetched) -> StateVersion | None:
    """Return the version that ``COMMIT`` returned on this session; ``None`` on a standby, where nothing was written."""
    for timeline, position in positions:
        return StateVersion(system_of(session.server), timeline, position)
    return None


def record_version(version: StateVersion | None) -> None:
    """Note the version for the request that the transaction was done for, if any."""
    notes = request_notes()
    if notes is not None and version is not None:
        notes.version = str(version)


async def commit(patience: float, written: Written, session: Session, lasted: float) -> None:
    """Commit a transaction that has lasted so many seconds, and note its version (Note [Unknown outcomes] in ``database``).

    :raises OutcomeUnknown: it may have been committed.
    :raises StoreUnavailable: it wasn't.
    """
    session.patience = max(patience, min(lasted, LONGEST_COMMIT))
    session.take_notices()
    try:
        positions = await session.run(COMMIT)
    except StoreUnavailable as refusal:
        if session.lost or session.is_clean:  # Note [One message]
            written(False, None)
            raise OutcomeUnknown(f"a COMMIT was not answered: {refusal.why}") from None
        await roll_back(session)
        raise
    except Exception as error:
        if session.is_clean:  # The COMMIT failed, or what comes after it.
            written(False, None)
        await roll_back(session)
        if isinstance(error, TransactionAborted):
            raise RuntimeError("a statement failed, its transaction went on, and PostgreSQL rolled it back") from None
        raise
    notices = session.take_notices()
    version = version_after(session, positions)
    written(not notices, version)
    if notices:
        raise OutcomeUnknown(f"PostgreSQL answered a COMMIT with a warning: {notices[0]}")
    record_version(version)


async def attempt_transaction(
    session: Session, begin: str, work: Callable[[Transaction], Awaitable[T]], statement_timeout: float | None
) -> T:
    """Run ``work`` once after ``begin``; what it did is yet to be committed.

    :raises Contention: PostgreSQL rolled it back for a conflict with another transaction.
    """
    await session.run(begin)
    transaction = Transaction(session)
    try:
        if statement_timeout is not None:
            await session.run(f"SET LOCAL statement_timeout = {milliseconds(statement_timeout)}")
        return await work(transaction)
    except Exception:
        await roll_back(session)
        raise
    finally:
        transaction.end()


async def roll_back(session: Session) -> None:
    """Roll back, as far as that works: otherwise the session is dropped by its owner, and the server rolls back."""
    if not session.lost and not session.is_clean:
        with suppress(StoreUnavailable, StatementFailed):
            await session.run("ROLLBACK")

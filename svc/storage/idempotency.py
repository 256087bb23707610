"""Kept answers on PostgreSQL: claimed and written in the transaction of their change (``svc.model.idempotency``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import attrs

from svc.model.errors import RequestRunning, TooOften
from svc.model.idempotency import PIECES_MOST, RETENTION_SECONDS, AlreadyAnswered, Once, RequestKey, StoredAnswer
from svc.model.query_results import Sealed
from svc.storage.driver.columns import fetch_for_rows
from svc.storage.driver.statements import Fetching, Statement, Statements, Transaction
from svc.storage.sql.advisory_locks import lock_numbers

T = TypeVar("T")

#: How many pieces one statement returns: about as many bytes as the reactor reads within a few milliseconds.
READ: Final = 16

#: How many pieces one statement removes.
PURGED: Final = 1000

#: For how many seconds longer pieces stay, so that none is removed while an answer requested just in time is read.
LINGER: Final = 60.0

_LOCK: Final = Statement("kept_answer_lock", "SELECT pg_try_advisory_xact_lock($1::integer, $2::integer)")
# A separate statement, after the lock: it must see what the last holder of the lock committed.
_FIND: Final = Statement.with_name("kept_answer_find")(f"""
    SELECT (SELECT count(*) FROM (SELECT FROM kept_answers WHERE caller = $1::text LIMIT {PIECES_MOST}) AS stored),
        found.request, found.made_at > clock_timestamp() - interval '{RETENTION_SECONDS} seconds'
    FROM (SELECT) AS always LEFT JOIN (
        SELECT request, made_at FROM kept_answers WHERE caller = $1 AND key = $2::text AND piece = 0
    ) AS found ON true
""")
_PIECES: Final = Statement.with_name("kept_answer_pieces")(f"""
    SELECT sealed FROM kept_answers WHERE caller = $1::text AND key = $2::text AND piece >= $3::integer
    ORDER BY piece LIMIT {READ}
""")
_FORGET: Final = Statement(
    "kept_answer_forget", "DELETE FROM kept_answers WHERE caller = $1::text AND key = $2::text RETURNING piece"
)
_ADD: Final = Statement.with_name("kept_answer_keep")("""
    INSERT INTO kept_answers (caller, key, piece, request, sealed)
    SELECT $3::text, $4::text, piece::integer, $5::bytea, sealed
    FROM unnest($1::text[], $2::bytea[]) AS added (piece, sealed)
""")
_PURGE: Final = Statement.with_name("kept_answers_purge")(f"""
    DELETE FROM kept_answers WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM kept_answers WHERE made_at < statement_timestamp() - interval '{RETENTION_SECONDS + LINGER} seconds'
        ORDER BY made_at LIMIT {PURGED}
    )) RETURNING piece
""")


async def claim_request_key(transaction: Transaction, request: RequestKey) -> StoredAnswer | None:
    """Lock a key until the transaction ends, and return the answer that is kept for it.

    :raises RequestRunning: another transaction has the lock.
    :raises TooOften: too much is kept for the caller already.
    """
    ((locked,),) = await transaction.fetch(_LOCK, *lock_numbers("kept answer", request.caller, request.key))
    if not locked:
        raise RequestRunning
    return await _find_answer(transaction, request)


async def keep_answer(transaction: Transaction, request: RequestKey, pieces: Sequence[Sealed]) -> None:
    """Keep the answer to a request whose key was claimed in this transaction."""
    await transaction.fetch(_FORGET, request.caller, request.key)
    rows = [(str(number), piece) for number, piece in enumerate(pieces)]
    await fetch_for_rows(transaction, _ADD, rows, request.caller, request.key, request.request_digest)


async def transact_once(database: Statements, once: Once[T] | None, work: Callable[[Transaction], Awaitable[T]]) -> T:
    """Run ``work`` in one transaction and return its result; with ``once``, only if it wasn't done before.

    :raises AnswerKept: it was, for the same request.
    :raises Refusal: as :func:`claim_request_key` does, or the key belongs to another request.
    """
    if once is None:
        return await database.transact(work)
    request, answer = once.request, once.answer

    async def run_once(transaction: Transaction) -> T:
        kept = await claim_request_key(transaction, request)
        if kept is not None:
            kept.require_same_request(request)
            raise AlreadyAnswered(request, kept)
        result = await work(transaction)
        await keep_answer(transaction, request, answer(result))
        return result

    return await database.transact(run_once)


async def _find_answer(database: Fetching, request: RequestKey) -> StoredAnswer | None:
    ((count, digest, fresh),) = await database.fetch(_FIND, request.caller, request.key)
    if not fresh:
        if count >= PIECES_MOST:
            message = "too many answers are kept for this caller, each for ten minutes: send fewer keys, or wait"
            raise TooOften(message, retry_after=60)
        return None
    pieces: list[Sealed] = []
    while rows := await database.fetch(_PIECES, request.caller, request.key, len(pieces)):
        pieces += [Sealed(sealed) for (sealed,) in rows]
    return StoredAnswer(bytes(digest), pieces)


@attrs.frozen
class IdempotencyStore:
    """The store of kept answers. Others write to it, in the transactions of their changes."""

    _database: Statements

    async def read_answer(self, request: RequestKey) -> StoredAnswer | None:
        """Return the answer that is kept for a key of a caller, whatever the request was."""
        return await _find_answer(self._database, request)

    async def purge_expired(self) -> int:
        """Remove the answers whose retention is over, and return of how many pieces they were."""
        count = 0
        while removed := len(await self._database.change(_PURGE)):
            count += removed
        return count

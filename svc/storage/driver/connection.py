"""One session with PostgreSQL, on one socket: one statement at a time, until it is lost.

Note [A session stays in the reactor]

txpostgres takes a connection out of the reactor and puts it back for each statement, in two turns (``python -m bench
driver``). :class:`Session` is a txpostgres connection while it connects; from then on it is watched all the time, and an
answer fires its Deferred in the turn in which it arrives. The reactor watches a duplicate of libpq's file descriptor: libpq
closes its own the moment the connection fails, and a reactor that still watched that number would take the next socket with
the same number for this one.

Note [Lost sessions]

A session is lost for good, whatever the reason: it is closed and never lent again, so that no caller gets the answer to
another's statement. It may have been about to commit, so nothing is sent a second time. The server process behind it may go
on with the statement: the session's owner terminates it (Note [Ended, not cancelled] in ``database``).

Note [Settings after connecting]

Poolers refuse the ``options`` of libpq, or drop them silently. So the settings are made by the first statement of a session,
in one round trip with the query that identifies the PostgreSQL; names that an older PostgreSQL doesn't know are left out.
The second statement reads them back, and with them a mark that no other session has. They are missing if a pooler gives each
transaction another session of PostgreSQL, or sends reads elsewhere than to the primary. The second statement uses only
stable functions, since poolers treat a volatile one as a write. A role's own statement time-out may be too short for the
first one, so it is lifted in the same message. The first one also returns the ``search_path`` and the role, which the
database's owner may set freely, and whether the server's tables are found and readable by them.

Note [Quoting]

psycopg2 finds out at the login how values are quoted, and never again: after ``SET standard_conforming_strings`` literals
would be quoted wrongly. So a session whose role has that off connects again, with an option of libpq; behind a pooler that
takes none, the role itself must have it on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from secrets import token_hex
from typing import Any, Final

import psycopg2
import psycopg2.extensions
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionClosed
from twisted.python.failure import Failure
from txpostgres import txpostgres

from svc.model.databases import OLDEST_POSTGRESQL, OLDEST_TESTED_POSTGRESQL
from svc.model.errors import StoreUnavailable
from svc.storage.driver.failures import (
    NOT_A_SESSION,
    Contention,
    DatabaseAltered,
    DatabaseUnfit,
    ends_session,
    summarize_error,
    translate_error,
)
from svc.storage.driver.shield import run_to_end


class SharedText(str):
    """A parameter that many statements share as one and the same object, so that the read cache keeps it once."""

    __slots__ = ()


_QUOTES_ESCAPED: Final = "standard_conforming_strings is off: set it on for the database and its role"

#: The types that a parameter may have. Any other, psycopg2's own SQL fragments above all, is refused.
_PARAMETER_TYPES: Final = frozenset({str, bytes, int, float, bool, type(None), list, SharedText})
#: Identifies a running PostgreSQL, from ``pg_control_system()``: no two that ever ran have the same. A restart after a crash
#: ends every session.
IDENTITY: Final = "system_identifier || ' ' || extract(epoch FROM pg_postmaster_start_time())"
#: The timeline of a primary, which it keeps as long as it runs.
TIMELINE: Final = "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint"
#: Note [Settings after connecting]. Returns the PostgreSQL's identity, the timeline (0 on a standby), the server's process
#: and its start, and the settings as PostgreSQL writes them. A pooler makes up its own ids of processes.
_BEGIN: Final = f"""
    SET statement_timeout = %s;
    SELECT {IDENTITY}, CASE WHEN standby THEN 0 ELSE {TIMELINE} END, pg_backend_pid(),
        (SELECT backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()),
        'search_path is "' || current_setting('search_path') || '", the role is "' || current_user || '"',
        coalesce(has_table_privilege(to_regclass('schema_versions'), 'SELECT'), false),
        set_config('svc.session', %s, false),
        (SELECT json_object_agg(name, set_config(name, value, false))
            FROM unnest(%s::text[], %s::text[]) AS wanted (name, value) JOIN pg_settings USING (name))
    FROM (SELECT pg_is_in_recovery() AS standby OFFSET 0) AS mode CROSS JOIN pg_control_system()
"""
_SETTINGS_HOLD: Final = """
    SELECT current_setting('svc.session', true) IS NOT DISTINCT FROM %s AND NOT EXISTS (
        SELECT FROM unnest(%s::text[], %s::text[]) AS made (name, value)
        WHERE current_setting(name, true) IS DISTINCT FROM value
    )
"""
#: The rows that a statement returns.
Fetched = list[tuple[Any, ...]]


def _parse_bytes(value: str | None, cursor: object) -> bytes | None:
    view = psycopg2.BINARY(value, cursor)
    return None if view is None else bytes(view)


_BYTEA: Final = psycopg2.extensions.new_type(psycopg2.BINARY.values, "BYTEA", _parse_bytes)
_BYTEA_ARRAY: Final = psycopg2.extensions.new_array_type((1001,), "BYTEA[]", _BYTEA)


class Session(txpostgres.Connection):  # type: ignore[misc]  # txpostgres is untyped
    """One session with PostgreSQL.

    :param lost: is called once with the reason when an opened session is lost, before a statement that was under way fails.
    :param patience: how long a statement may go unanswered, in seconds.
    """

    def __init__(self, reactor: Any, lost: Callable[[Exception], None], patience: float) -> None:
        super().__init__(reactor)
        self._on_loss = lost
        #: Whether it was open once and no longer is.
        self.lost = False
        #: Statements that this session has prepared, by name.
        self.prepared: dict[str, object] = {}
        self.patience = patience
        #: The identity of the PostgreSQL at the other end (``IDENTITY``); empty until the session has begun.
        self.server = ""
        #: The timeline of the primary that it was opened with; 0 with a standby.
        self.timeline = 0
        #: The server's process that serves it, and when that was started.
        self.process, self.started = 0, ""
        #: The ``search_path`` and the role that it was opened with, in words, and whether they lead to the server's tables.
        self.origin, self.finds_tables = "", False
        self._mark = token_hex(8)
        self._applied: Mapping[str, str] = {}
        #: Whether it was lost during a statement, which the server may still be running.
        self.interrupted = False
        self._descriptor = -1
        self._cursor: Any = None
        self._answer: Deferred[Fetched] | None = None
        self._finish: Callable[[Session], None] | None = None
        self._waited = 0.0

    async def open(self, parameters: Mapping[str, object]) -> None:
        """Connect, with parameters of libpq. May be cancelled.

        :raises StoreUnavailable: PostgreSQL could not be reached or refused.
        """
        try:
            # Cancelled itself, txpostgres would open a second connection to ask the server to cancel, and block meanwhile.
            await run_to_end(self._open_connection(parameters))
        except (StoreUnavailable, CancelledError):
            self.close()
            raise

    async def _open_connection(self, parameters: Mapping[str, object]) -> None:
        try:
            await self._connect_once(parameters)
            if self._quotes_escaped:  # Note [Quoting]
                self._connection.close()
                options = f"{parameters.get('options', '')} -c standard_conforming_strings=on"
                try:
                    await self._connect_once({**parameters, "options": options})
                except psycopg2.OperationalError as error:
                    if "startup parameter" in str(error):
                        raise DatabaseUnfit(_QUOTES_ESCAPED) from None
                    raise
            if self._quotes_escaped:
                raise DatabaseUnfit(_QUOTES_ESCAPED)
            psycopg2.extensions.register_type(_BYTEA, self._connection)
            psycopg2.extensions.register_type(_BYTEA_ARRAY, self._connection)
            self._descriptor = os.dup(self._connection.fileno())
        except (psycopg2.Error, ConnectionClosed, OSError) as error:
            raise StoreUnavailable(summarize_error(error)) from None
        self._cursor = self._connection.cursor()
        self.reactor.addReader(self)

    async def _connect_once(self, parameters: Mapping[str, object]) -> None:
        self._connection = psycopg2.connect(**parameters, async_=True)
        await self.poll()

    @property
    def _quotes_escaped(self) -> bool:
        """Return whether psycopg2 quotes for a session with ``standard_conforming_strings`` off."""
        return bool(self._connection.info.parameter_status("standard_conforming_strings") == "off")

    async def apply_settings(self, settings: Mapping[str, str]) -> list[str]:
        """Make the settings, verify them, and identify the PostgreSQL (Note [Settings after connecting]).

        Return the notices that PostgreSQL sent at the login.

        :raises DatabaseUnfit: it is too old, or the settings don't hold.
        :raises StoreUnavailable: it gives no answer.
        """
        version = int(self._connection.server_version)
        if version // 10000 < OLDEST_POSTGRESQL:
            name = f"{version // 10000}.{version % 10000}" if version >= 100000 else f"{version // 10000}"
            raise DatabaseUnfit(f"PostgreSQL {name} is too old: {OLDEST_TESTED_POSTGRESQL} or newer is needed")
        wanted = [list(settings), list(settings.values())]
        try:
            answer = await self.run(_BEGIN, (settings["statement_timeout"], self._mark, *wanted))
            ((self.server, self.timeline, self.process, self.started, *origin, _, self._applied),) = answer
            self.origin, self.finds_tables = origin
            await self.verify_settings()
        except (psycopg2.Error, Contention) as error:
            raise StoreUnavailable(f"the settings of a session can't be made: {summarize_error(error)}") from None
        return self.take_notices()

    async def verify_settings(self) -> None:
        """Return if the settings hold that :meth:`apply_settings` made.

        :raises DatabaseUnfit: they don't.
        """
        ((kept,),) = await self.run(_SETTINGS_HOLD, (self._mark, list(self._applied), list(self._applied.values())))
        if not kept:
            raise DatabaseUnfit(NOT_A_SESSION)

    @property
    def row_count(self) -> int:
        """Return how many rows the last statement touched."""
        return int(self._cursor.rowcount)

    def take_notices(self) -> list[str]:
        """Return the first line of each notice that the server has sent since the last call, and forget them."""
        notices = [notice.strip().partition("\n")[0] for notice in self._connection.notices]
        self._connection.notices.clear()
        return notices

    @property
    def is_clean(self) -> bool:
        """Return whether it is open, outside any transaction, with no statement under way."""
        idle = psycopg2.extensions.TRANSACTION_STATUS_IDLE
        return not self.lost and self._answer is None and self._connection.get_transaction_status() == idle

    def run(
        self, sql: str, parameters: Sequence[object] = (), finish: Callable[[Session], None] | None = None
    ) -> Deferred[Fetched]:
        """Run one statement to its end, though the Deferred be cancelled; its rows are empty when it returns none.

        ``finish`` is called with this session when it can be used again, just before the rows are delivered.

        :raises TypeError: a parameter has a type that is not allowed.
        """
        try:
            if not _PARAMETER_TYPES.issuperset(map(type, parameters)):
                refused = {type(parameter) for parameter in parameters} - _PARAMETER_TYPES
                raise TypeError(f"not a parameter of a statement: {', '.join(kind.__name__ for kind in refused)}")
            self._cursor.execute(sql, parameters or None)
        except Exception as error:
            reason = self._explain_error(error)
            if ends_session(error):
                self.drop(reason)
            elif finish is not None:
                finish(self)
            if reason is error:
                raise
            raise reason from error
        self._waited, self._finish = 0.0, finish
        answer: Deferred[Fetched] = Deferred()
        self._answer = answer
        # An answer that is already there is delivered in the next turn of the reactor, not before this has returned.
        self._poll(partial(self.reactor.callLater, 0, self._deliver_result))
        return answer

    def is_open(self) -> bool:
        """Return whether the connection is still open, without sending anything; a closed one is lost."""
        try:
            self._connection.poll()
            if self._connection.notices:
                # The server sent an unsolicited message, perhaps that it closes: check that the connection is still open.
                self._connection.notices.clear()
                self._connection.poll()
        except psycopg2.Error as error:
            self.drop(translate_error(error))
            return False
        return True

    def count_time(self, seconds: float) -> None:
        """Count time; a statement that goes unanswered for longer than ``patience`` loses the session."""
        if self._answer is not None:
            self._waited += seconds
            if self._waited >= self.patience:
                self.drop(StoreUnavailable(f"a statement went unanswered for {self._waited:g} seconds"))

    def drop(self, reason: Exception) -> None:
        """Lose the session (Note [Lost sessions]); without effect on one that is lost, or not open yet."""
        if self._descriptor < 0:
            return
        self.close()
        answer, self._answer = self._answer, None
        self.interrupted = answer is not None
        self.lost = True
        self._on_loss(reason)
        if answer is not None:
            answer.errback(Failure(reason))

    def close(self) -> None:
        """Close the connection and take it out of the reactor, whatever state it is in."""
        if self._descriptor >= 0:
            self.reactor.removeReader(self)
            self.reactor.removeWriter(self)
            os.close(self._descriptor)
            self._descriptor = -1
            self._connection.close()
        elif self._connection is not None:
            super().close()

    # -- what the reactor calls; as long as it connects, txpostgres does it -----------------------------------------------

    def fileno(self) -> int:
        """Return the descriptor that the reactor watches (Note [A session stays in the reactor])."""
        return self._descriptor if self._cursor is not None else int(super().fileno())

    def doRead(self) -> None:
        """Read what has arrived."""
        if self._cursor is None:
            # Not the connection's own, which would watch one socket of libpq's while libpq already tries the next.
            txpostgres._PollingMixin.doRead(self)
        else:
            self._poll(self._deliver_result)

    def doWrite(self) -> None:  # noqa: N802  # the name is Twisted's
        """Send the rest of a statement, now that there is room."""
        if self._cursor is None:
            super().doWrite()
        elif self._descriptor >= 0:
            self.reactor.removeWriter(self)
            self._poll(self._deliver_result)

    def connectionLost(self, reason: Failure) -> None:
        """Lose the session: the reactor has seen the other side close, or an error."""
        if self._cursor is None:
            super().connectionLost(reason)
        else:
            self.drop(StoreUnavailable(reason.getErrorMessage()))

    def _poll(self, end: Callable[[Deferred[Fetched] | None, Exception | None], object]) -> None:
        """Send what did not fit, or read PostgreSQL's answer or a part of it; ``end`` is called with the result."""
        try:
            state = self._connection.poll()
        except Exception as error:  # whatever it is, it is what became of the statement
            end(self._answer, error)
        else:
            if state == psycopg2.extensions.POLL_WRITE:
                self.reactor.addWriter(self)
            elif state == psycopg2.extensions.POLL_OK:
                end(self._answer, None)

    def _deliver_result(self, answer: Deferred[Fetched] | None, error: Exception | None) -> None:
        """Deliver the result of the statement that ``answer`` waits for; ``None`` means an unsolicited message."""
        if answer is not self._answer:
            return
        if error is not None and (answer is None or ends_session(error) or not isinstance(error, psycopg2.Error)):
            self.drop(self._explain_error(error))
            return
        if answer is None:
            return
        rows: Fetched = []
        if error is None and self._cursor.description is not None:
            try:
                rows = self._cursor.fetchall()
            except Exception as unreadable:  # such as a date that Python has no room for
                error = unreadable
        self._answer = None
        if self._finish is not None:
            self._finish(self)
        # From here on the session may be somebody else's.
        if error is None:
            answer.callback(rows)
        else:
            answer.errback(Failure(translate_error(error)))

    def _explain_error(self, error: Exception) -> Exception:
        """Return the error to raise instead of ``error``; one that the session's settings may have caused names them."""
        reason = translate_error(error)
        if isinstance(reason, DatabaseAltered) and self.origin:
            reason = DatabaseAltered(f"{reason.why} ({self.origin})")
            reason.__cause__ = error
        return reason

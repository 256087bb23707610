"""Translate errors of PostgreSQL and of psycopg2 into those of the domain.

Errors that mean "not now" become ``StoreUnavailable``, a refused write ``ReadOnlyStandby``. Others pass as they are: those
about the data have names here, so that no other module needs to know the driver, and the rest are bugs. The error that
one was translated from is its ``__cause__``.
"""

from __future__ import annotations

from typing import Final

import psycopg2
from psycopg2 import errors as sqlstates

from svc.model.errors import ReadOnlyStandby, StoreUnavailable

#: A row with that key exists; SQLSTATE 23505.
UniqueViolation: Final[type[Exception]] = sqlstates.UniqueViolation
#: A row that is referred to does not exist, or one that is deleted is referred to; SQLSTATE 23503.
ForeignKeyViolation: Final[type[Exception]] = sqlstates.ForeignKeyViolation
#: Somebody else holds a lock that was asked for with ``NOWAIT`` or under a ``lock_timeout``; SQLSTATE 55P03. It is raised as
#: the cause of ``StoreUnavailable``.
LockNotAvailable: Final[type[Exception]] = sqlstates.LockNotAvailable
#: A statement came after one that had failed in the same transaction; SQLSTATE 25P02.
TransactionAborted: Final[type[Exception]] = sqlstates.InFailedSqlTransaction
#: Any of them, and every other error that PostgreSQL reports about a statement and that :func:`translate_error` lets pass.
StatementFailed: Final[type[Exception]] = psycopg2.Error

_READ_ONLY: Final = "25006"
#: Serialization failure, and deadlock detected.
_CONTENTION: Final = frozenset({"40001", "40P01"})
#: Query cancelled (so ends the statement time-out); sessions that PostgreSQL ended for their idleness or length; a lock that
#: was not to be waited for any longer.
_UNAVAILABLE: Final = frozenset({"57014", "25P03", "25P04", "55P03"})
#: Classes: connection exception, insufficient resources, operator intervention, system error.
_UNAVAILABLE_CLASSES: Final = frozenset({"08", "53", "57", "58"})
#: Undefined table, column, function and object, invalid schema name, insufficient privilege.
_ALTERED: Final = frozenset({"42P01", "42703", "42883", "42704", "3F000", "42501"})
#: The SQLSTATE of a prepared statement whose result another session's migration has changed: feature not supported ("cached
#: plan must not change result type").
_STALE: Final = "0A000"
#: The SQLSTATEs of one that another session has: invalid statement name, and duplicate prepared statement.
_SWAPPED: Final = frozenset({"26000", "42P05"})
#: The reason, and what helps.
NOT_A_SESSION: Final = (
    "a pooler in transaction mode is in between, or one that balances load, and settings of sessions don't last:"
    " PgBouncer works with pool_mode = session, pgpool-II with load_balance_mode = off"
)


class Contention(Exception):
    """A transaction was rolled back for a conflict with another; it may be run again. Never leaves ``storage``."""


class DatabaseUnfit(StoreUnavailable):
    """PostgreSQL answers, and sessions with it can't be used as it stands; ``why`` says what is to be changed."""


class SessionReplaced(StoreUnavailable):
    """A session was ended here, so that a new one takes its place."""


class DatabaseAltered(SessionReplaced):
    """A statement names an object that the session doesn't find, or may not use.

    Either the schema, the rights or a setting (``search_path``, ``role``) isn't what it was when the server started, or the
    statement has a bug. A new session has the settings that are valid now, so the old one is replaced.
    """


def translate_error(error: Exception) -> Exception:
    """Return the error to raise instead of ``error``; ``error`` itself where the tables above don't have it."""
    state = _sqlstate(error)
    reason = _translate_state(error, state)
    if reason is not error:
        reason.__cause__ = error
    return reason


def _translate_state(error: Exception, state: str) -> Exception:
    if state == _READ_ONLY:
        return ReadOnlyStandby()
    if state in _CONTENTION:
        return Contention(summarize_error(error))
    if state in _SWAPPED:
        return StoreUnavailable(f"{summarize_error(error)}: {NOT_A_SESSION}")
    if state in _ALTERED:
        return DatabaseAltered(summarize_error(error))
    if ends_session(error) or state in _UNAVAILABLE or state[:2] in _UNAVAILABLE_CLASSES:
        return StoreUnavailable(summarize_error(error))
    return error


def ends_session(error: Exception) -> bool:
    """Return whether ``error`` ends the session that raised it.

    It does when the server says so, when prepared statements are stale, when its settings may be, and when the error didn't
    come from the server: then the connection is gone, or its next message cannot be predicted.
    """
    if not isinstance(error, psycopg2.Error):
        return False
    if not _sqlstate(error):
        return not isinstance(error, psycopg2.ProgrammingError | psycopg2.DataError | psycopg2.NotSupportedError)
    return _sqlstate(error) in {_STALE, *_SWAPPED, *_ALTERED} or error.diag.severity_nonlocalized in {"FATAL", "PANIC"}


def _sqlstate(error: Exception) -> str:
    """Return the SQLSTATE of five characters; the empty text when the error is not the server's."""
    return str(error.pgcode or "") if isinstance(error, psycopg2.Error) else ""


def summarize_error(error: BaseException) -> str:
    """Return the first line of an error's text, for the log: what follows it may quote a row."""
    if isinstance(error, StoreUnavailable):
        return error.why
    return str(error).strip().partition("\n")[0] or type(error).__name__

"""The table of what PostgreSQL raises."""

from __future__ import annotations

import psycopg2
from psycopg2 import errors as sqlstates
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import ReadOnlyStandby, StoreUnavailable
from svc.storage.driver.failures import (
    Contention,
    DatabaseAltered,
    ForeignKeyViolation,
    UniqueViolation,
    ends_session,
    summarize_error,
    translate_error,
)


def raised(sqlstate: str) -> Exception:
    """An error as the driver raises it for that SQLSTATE."""
    error: Exception = sqlstates.lookup(sqlstate)("What happened\nDETAIL:  A row (secret)")
    error.__setstate__({"pgcode": sqlstate})
    return error


class FailuresTests(SynchronousTestCase):
    """Translation of errors."""

    def test_unavailable(self) -> None:
        """Time-outs, lost connections, shutdowns and lack of resources mean that the store is unavailable now."""
        for sqlstate in (
            *("57014", "08006", "57P01", "57P02", "57P03", "57P05", "53100", "53200", "53300", "53400", "58030"),
            *("25P03", "25P04", "55P03"),
        ):
            error = raised(sqlstate)
            translation = translate_error(error)
            self.assertIsInstance(translation, StoreUnavailable, sqlstate)
            self.assertEqual(summarize_error(translation), "What happened")
            self.assertIs(translation.__cause__, error)

    def test_the_drivers_own(self) -> None:
        """What the driver itself says of a connection means that the store is unavailable, and the connection lost."""
        for kind in (psycopg2.OperationalError, psycopg2.InterfaceError, psycopg2.DatabaseError):
            error = kind("server closed the connection\n\tunexpectedly")
            self.assertIsInstance(translate_error(error), StoreUnavailable)
            self.assertEqual(summarize_error(translate_error(error)), "server closed the connection")
            self.assertTrue(ends_session(error))

    def test_read_only(self) -> None:
        """A write on a standby is refused as such."""
        self.assertIsInstance(translate_error(raised("25006")), ReadOnlyStandby)

    def test_contention(self) -> None:
        """Serialization failures and deadlocks are conflicts, after which a transaction can be run again."""
        for sqlstate in ("40001", "40P01"):
            self.assertIsInstance(translate_error(raised(sqlstate)), Contention)

    def test_stale(self) -> None:
        """A prepared statement that has become stale makes the store unavailable and ends the session."""
        for sqlstate in ("0A000", "26000", "42P05"):
            self.assertIsInstance(translate_error(raised(sqlstate)), StoreUnavailable)
            self.assertTrue(ends_session(raised(sqlstate)))
            self.assertEqual(
                "pool_mode = session" in summarize_error(translate_error(raised(sqlstate))), sqlstate != "0A000"
            )

    def test_altered(self) -> None:
        """What a statement names and the database lacks or refuses makes the store unavailable, and ends the session, whose
        settings may be old (DATA-59).
        """
        for sqlstate in ("42P01", "42703", "42883", "42704", "3F000", "42501"):
            self.assertIsInstance(translate_error(raised(sqlstate)), DatabaseAltered)
            self.assertTrue(ends_session(raised(sqlstate)))

    def test_what_passes(self) -> None:
        """What says something about the rows, or is a bug, passes as it is, and the session stays."""
        passing = {
            "23505": UniqueViolation,
            "23503": ForeignKeyViolation,
            "42601": psycopg2.Error,
        }
        for sqlstate, kind in passing.items():
            error = raised(sqlstate)
            self.assertIs(translate_error(error), error)
            self.assertIsInstance(error, kind)
            self.assertFalse(ends_session(error))
        for bug in (ValueError("a NUL"), TypeError(), psycopg2.ProgrammingError("can't adapt"), psycopg2.DataError("date")):
            self.assertIs(translate_error(bug), bug)
            self.assertFalse(ends_session(bug))

    def test_summary(self) -> None:
        """A summary has no detail that could quote a row, and an error without a text is called by its type."""
        self.assertEqual(summarize_error(raised("23505")), "What happened")
        self.assertEqual(summarize_error(StoreUnavailable("asleep")), "asleep")
        self.assertEqual(summarize_error(TypeError()), "TypeError")

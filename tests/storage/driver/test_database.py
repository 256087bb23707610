"""Statements, and a database that cannot be."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import ConfigurationInvalid
from svc.storage.driver.database import Database
from svc.storage.driver.statements import Statement


class StatementTests(SynchronousTestCase):
    """A prepared statement's text."""

    def test_text(self) -> None:
        """A statement is prepared under its name, and executed with as many parameters as it numbers."""
        statement = Statement("pick", "SELECT $2::text, $1, $2 || '100%'")
        self.assertEqual(statement.preparation, "PREPARE pick AS SELECT $2::text, $1, $2 || '100%'")
        self.assertEqual(statement.execution, "EXECUTE pick (%s, %s)")

    def test_many_parameters(self) -> None:
        """The highest number counts, not the last digit."""
        self.assertEqual(Statement("many", "SELECT $11").execution.count("%s"), 11)

    def test_no_parameters(self) -> None:
        """A statement without parameters is executed without a list of them."""
        self.assertEqual(Statement("now", "SELECT now()").execution, "EXECUTE now")

    def test_names(self) -> None:
        """A name that would not be an identifier of SQL is refused."""
        for name in ("", "a b", "a;b", "A", "1a", 'a"', "a" * 64, "a\n"):
            with self.assertRaises(ValueError):
                Statement(name, "SELECT 1")


class DatabaseTests(SynchronousTestCase):
    """A database before it is started."""

    def test_unreadable_dsn(self) -> None:
        """A DSN that cannot be read is refused as a setting, when the database is made."""
        with self.assertRaises(ConfigurationInvalid) as caught:
            Database(Clock(), "hidden", pool_size=1, statement_timeout=1.0, first_wait=1.0)
        self.assertEqual(caught.exception.key, "database_url")

"""Tests of ``svc.cli.admin``; the commands themselves are tried on databases in ``tests/integration``."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import admin
from svc.cli.admin import account, data_key, describe_database
from svc.cli.migrate import migrate
from svc.settings.reading import read_settings
from tests.cli.completing import complete


class NoDatabaseTests(SynchronousTestCase):
    """A folder without a database, such as a mistyped one."""

    def test_none_is_made(self) -> None:
        """No database is made there but by ``svc account create``: its accounts and its key would be taken for the server's
        (CLI-23).
        """
        self.patch(admin, "run_reactor", complete)
        folder = Path(self.mktemp()).resolve()
        for command, arguments in (
            (account, ("list",)),
            (account, ("recover", "acme")),
            (account, ("revoke-tokens", "acme")),
            (account, ("rotate-signing-key", "acme")),
            (data_key, ("rotate",)),
            (data_key, ("status",)),
            (migrate, ()),
        ):
            outcome = CliRunner().invoke(command, [*arguments, "--data-dir", str(folder)])
            self.assertEqual(outcome.exit_code, 1, arguments)
            self.assertIn(f"there is no database in {folder}", outcome.output)
            self.assertFalse(folder.exists())


class PlaceTests(SynchronousTestCase):
    """In which database a command works."""

    def test_data_dir(self) -> None:
        """It is that of the data directory, which is named."""
        self.assertEqual(describe_database(read_settings({"data_dir": "/srv/svc"}, {})), "the database of /srv/svc")

    def test_database_url(self) -> None:
        """It is that of the database's URL, which is named but not shown: it may hold a password (CLI-23)."""
        url = "postgresql://svc:hunter2@db/svc"
        self.assertEqual(describe_database(read_settings({"database_url": url}, {})), "the database of --database-url")
        by_environment = read_settings({}, {"SERVICE_DATABASE_URL": url})
        self.assertEqual(describe_database(by_environment), "the database of SERVICE_DATABASE_URL")

    def test_help(self) -> None:
        """Help says that it is the database, and not the server of other commands, that these commands work on."""
        for arguments in ((), ("create",), ("list",), ("rotate-signing-key",), ("recover",), ("revoke-tokens",)):
            said = " ".join(CliRunner().invoke(account, [*arguments, "--help"]).output.split())
            self.assertIn("not on the server at SVC_URL", said, arguments)

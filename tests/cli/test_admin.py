"""Tests of ``svc.cli.admin``; the commands themselves are tried on databases in ``tests/integration``."""

from __future__ import annotations

from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.admin import account, place
from svc.settings.reading import read_settings


class PlaceTests(SynchronousTestCase):
    """In which database a command works."""

    def test_data_dir(self) -> None:
        """It is that of the data directory, which is named."""
        self.assertEqual(place(read_settings({"data_dir": "/srv/svc"}, {})), "the database of /srv/svc")

    def test_database_url(self) -> None:
        """It is that of the database's URL, which is named but not shown: it may hold a password (CLI-23)."""
        url = "postgresql://svc:hunter2@db/svc"
        self.assertEqual(place(read_settings({"database_url": url}, {})), "the database of --database-url")
        by_environment = read_settings({}, {"SERVICE_DATABASE_URL": url})
        self.assertEqual(place(by_environment), "the database of SERVICE_DATABASE_URL")

    def test_help(self) -> None:
        """Help says that it is the database, and not the server of other commands, that these commands work on."""
        for arguments in ((), ("create",), ("list",), ("rotate-signing-key",)):
            said = " ".join(CliRunner().invoke(account, [*arguments, "--help"]).output.split())
            self.assertIn("not on the server at SVC_URL", said, arguments)

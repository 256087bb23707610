"""Tests of ``svc.server.effective_settings``: the file of a running server, and what is made of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import attrs
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import ConfigurationInvalid
from svc.model.listed_authenticators import ListedAuthenticators
from svc.server.effective_settings import (
    EffectiveSettingsFile,
    choose_settings,
    effective_settings_file,
    read_effective_settings,
)
from svc.settings.config import Settings
from svc.settings.parsers import STANDARD_OUTPUT
from svc.settings.reading import read_settings
from tests.walls import Wall

URL = "postgresql://svc:s3cret@127.0.0.1:5433/svc?sslpassword=s3cret&passfile=/p"


class FileTests(SynchronousTestCase):
    """A server that runs on a data directory."""

    def setUp(self) -> None:
        """Name the directory, which isn't there yet."""
        self.data = Path(self.mktemp()).resolve() / "data"
        self.path = effective_settings_file(self.data)
        self.listed = ListedAuthenticators(["authn"])

    def server(self, **given: str) -> EffectiveSettingsFile:
        """A server with these settings, whose audit goes to a file beside."""
        settings = read_settings({"data_dir": str(self.data), **given}, {})
        file = EffectiveSettingsFile(settings, self.listed, Wall(Clock(), 0.0), lambda: self.data / "audit.log")
        self.addCleanup(lambda: file.stopService() if file.running else None)
        return file

    def given(self, **given: str) -> Settings:
        """The settings that the doctor is given."""
        return read_settings({"data_dir": str(self.data), **given}, {})

    def test_written(self) -> None:
        """The file is there while the server runs, for its user alone, without secrets, with the authenticators and the
        audit that are in force, and has the new ones after a change (CFG-93).
        """
        server = self.server(database_url=URL, memory_lag="0.5")
        self.assertIsNone(read_effective_settings(self.data))
        server.startService()
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.data.stat().st_mode & 0o777, 0o700)
        self.assertNotIn("s3cret", self.path.read_text())
        found = read_effective_settings(self.data)
        assert found is not None
        self.assertTrue(found.running)
        self.assertEqual((found.process, found.urls), (os.getpid(), []))
        self.assertEqual((found.settings.memory_lag, found.settings.audit_file), (0.5, self.data / "audit.log"))
        self.assertEqual(found.database, "dbname=svc host=127.0.0.1 passfile=/p port=5433 user=svc")
        self.listed.replace_items(["authn", "authn-jwt/*"])
        server.note_urls(["http://127.0.0.1:1"])
        found = read_effective_settings(self.data)
        assert found is not None
        self.assertEqual((found.settings.authenticators, found.running), (("authn", "authn-jwt/*"), True))
        self.assertEqual(found.urls, ["http://127.0.0.1:1"])
        self.assertEqual([each.name for each in self.data.iterdir()], [self.path.name])

    def test_ended(self) -> None:
        """An orderly end removes the file, and the directory that was made for it; but not the file of another server, and
        not a directory with something else in it (CFG-93).
        """
        server = self.server()
        server.startService()
        server.stopService()
        self.assertFalse(self.data.exists())
        server.write()
        self.assertFalse(self.data.exists())
        first, second = self.server(), self.server(memory_lag="1")
        for each in (first, second):
            each.startService()
        first.stopService()
        self.assertEqual(choose_settings(self.given()).settings.memory_lag, 1.0)
        (self.data / "other").touch()
        second.stopService()
        self.assertEqual([each.name for each in self.data.iterdir()], ["other"])

    def test_standard_output(self) -> None:
        """Where the audit goes to standard output, that is what the file says (CFG-93)."""
        self.data.mkdir(parents=True)
        server = EffectiveSettingsFile(self.given(), self.listed, Wall(Clock(), 0.0), lambda: None)
        self.addCleanup(server.stopService)
        server.startService()
        self.assertEqual(choose_settings(self.given()).settings.audit_file, STANDARD_OUTPUT)

    def test_unwritable(self) -> None:
        """A server whose directory can't be made serves without a file (CFG-93)."""
        self.data.parent.mkdir(parents=True)
        self.data.write_text("a file")
        server = self.server()
        server.startService()
        server.write()
        server.stopService()
        self.assertEqual(self.data.read_text(), "a file")
        self.assertIn("given settings", choose_settings(self.given()).source)

    def test_choice(self) -> None:
        """The doctor takes the settings of the server that runs, says so, and names given ones that it hasn't; the password
        of the database is that of the given URL, if it is the same database (CLI-81).
        """
        server = self.server(database_url=URL, memory_lag="0.5", statement_timeout="7")
        server.startService()
        chosen = choose_settings(self.given(memory_lag="2", statement_timeout="7", database_url=URL))
        self.assertEqual(chosen.settings.memory_lag, 0.5)
        self.assertEqual((chosen.differing, chosen.settings.database_url), (["--memory-lag"], URL))
        self.assertIn(f"running server (process {os.getpid()}, since 1970-01-01", chosen.source)
        self.assertEqual(chosen.settings.name_of("statement_timeout"), "--statement-timeout")
        other = choose_settings(self.given(database_url="dbname=other"))
        self.assertEqual((other.differing, other.settings.database_url), (["--database-url"], read_database(self.data)))
        self.assertEqual(choose_settings(self.given()).settings.database_url, read_database(self.data))

    def test_no_server(self) -> None:
        """Where no server runs, was killed, or its file can't be read, the given settings count, and it is said why
        (CLI-81).
        """
        given = self.given(memory_lag="2")
        chosen = choose_settings(given)
        self.assertEqual((chosen.settings, chosen.fault), (given, None))
        self.assertIn("no server", chosen.source)
        server = self.server()
        server.startService()
        text = self.path.read_text()
        server.stopService()
        self.data.mkdir()
        self.path.write_text(text)
        chosen = choose_settings(given)
        self.assertEqual((chosen.settings, chosen.fault), (given, None))
        self.assertIn("was killed", chosen.source)
        document = json.loads(text)
        document["settings"]["memory_lag"] = "often"
        for odd in ("", "{", "[]", "{}", "null", json.dumps(document), '{"settings": 1, "written": {}}'):
            self.path.write_text(odd)
            chosen = choose_settings(given)
            self.assertEqual(chosen.settings, given)
            self.assertIn(str(self.path), chosen.fault or "", odd)
        self.path.unlink()
        self.path.mkdir()
        self.assertIsNotNone(choose_settings(given).fault)
        self.path.rmdir()
        self.path.symlink_to("/etc/hostname")
        self.assertIsNotNone(choose_settings(given).fault)

    def test_secrets_of_a_url(self) -> None:
        """A URL that isn't one is no reason to fail while the file is read (CLI-81)."""
        server = self.server(database_url="dbname=svc")
        server.startService()
        given = attrs.evolve(self.given(), database_url="postgresql://a@b@c/")
        with self.assertRaises(ConfigurationInvalid):
            choose_settings(given)


def read_database(data_dir: Path) -> str | None:
    """The database that the file names."""
    found = read_effective_settings(data_dir)
    return None if found is None else found.database

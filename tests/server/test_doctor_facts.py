"""Tests of ``svc.server.doctor_facts``: the facts that are found in settings and files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from svc.health.doctor_checks import Facts
from svc.server import doctor_facts
from svc.server.doctor_facts import audit_facts, audit_path, collect_facts, disk_facts
from svc.server.effective_settings import ChosenSettings
from svc.settings.config import Settings
from svc.settings.reading import read_settings
from svc.storage.embedded.directory import DataDirectory
from tests.certificates import LEAF_KEY, chain, pem
from tests.health.test_doctor_checks import DATABASE
from tests.server.test_endpoints import key_pem


class ExaminingTests(SynchronousTestCase):
    """What is found on disk."""

    def setUp(self) -> None:
        """Make a data directory, as it should be."""
        self.folder = Path(self.mktemp()).resolve()
        self.data = self.folder / "data"
        self.data.mkdir(parents=True, mode=0o700)
        self.patch(doctor_facts, "_UNIT_AUDIT", self.folder / "unit" / "audit.log")
        self.patch(doctor_facts, "_database_facts", self.no_database)

    async def no_database(self, *_: object) -> tuple[None, None, tuple[()], str]:
        """There is none."""
        return None, None, (), "it is away"

    def file(self, name: str, mode: int, text: str = "x") -> Path:
        """Write a file."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def facts(self, **given: str) -> Facts:
        """The facts of these settings."""
        chosen = ChosenSettings(read_settings({"data_dir": str(self.data), **given}, {}), "")
        reactor: Any = MemoryReactorClock()
        return self.successResultOf(
            Deferred.fromCoroutine(collect_facts(reactor, chosen, None, tokens=self.folder / "tokens.json"))
        )

    def modes(self, **given: str) -> dict[str, int]:
        """The files that others have rights on, by name."""
        return {Path(file.path).name: file.mode for file in self.facts(**given).files}

    def test_modes(self) -> None:
        """Files and folders that are the server's alone are found when others may read them: data, keys, tokens, passwords
        and the audit (CLI-40).
        """
        self.assertEqual(self.modes(), {})
        self.data.chmod(0o750)
        for name in ("data/data-key", "data/admin-key-acme", "tokens.json", "audit.log", "pgpass"):
            self.file(name, 0o640)
        self.file("key.pem", 0o644, key_pem(LEAF_KEY))
        self.file("svc.toml", 0o644, 'database_url = "host=/tmp password=s3cret"')
        expected = {"data": 0o750, "data-key": 0o640, "admin-key-acme": 0o640, "tokens.json": 0o640, "audit.log": 0o640}
        given = {"audit_file": str(self.folder / "audit.log"), "listen": f"ssl:8443:privateKey={self.folder}/key.pem"}
        self.assertEqual(self.modes(**given), expected | {"key.pem": 0o644})
        url = f"host=/tmp passfile={self.folder}/pgpass"
        self.assertEqual(self.modes(**given, database_url=url), expected | {"key.pem": 0o644, "pgpass": 0o640})
        self.file("environment", 0o644)
        modes = self.modes(config=str(self.folder / "svc.toml"))
        self.assertEqual((modes["svc.toml"], modes["environment"]), (0o644, 0o644))
        (self.folder / "key.pem").chmod(0o640)
        self.assertEqual(self.modes(**given), expected)
        self.assertEqual(self.facts().admin_keys, [str(self.data / "admin-key-acme")])

    def test_a_data_directory_as_it_was_made(self) -> None:
        """The data directory that a server has made is none of them: root's lets PostgreSQL's user pass (CLI-40)."""
        self.data.rmdir()
        for user in (0, 1000):
            self.patch(os, "geteuid", lambda user=user: user)
            DataDirectory(self.data).make_directory()
            self.assertEqual(self.modes(), {})
            self.data.rmdir()

    def test_audit(self) -> None:
        """The audit's file is the one that is set, else the unit's, else a daemon's, else none; what is wrong with it is
        found (CLI-40).
        """
        settings = Settings(data_dir=self.data)
        unit = self.folder / "unit.log"
        self.assertIsNone(audit_path(settings, unit))
        daemon = self.file("data/unit.log", 0o600)
        self.assertEqual(audit_path(settings, unit), daemon)
        self.file("unit.log", 0o600)
        self.assertEqual(audit_path(settings, unit), unit)
        self.assertIsNone(audit_path(Settings(audit_file=Path("-")), unit))
        file = self.file("audit.log", 0o600, "x" * 77)
        facts = audit_facts(Settings(audit_file=file, audit_failure="continue"))
        self.assertEqual((facts.fault, facts.size, facts.rotated, facts.continues), (None, 77, False, True))
        self.assertGreater(facts.room or 0, 0)
        self.file("audit.log.1", 0o600)
        self.assertTrue(audit_facts(Settings(audit_file=file)).rotated)
        file.unlink()
        self.assertEqual(audit_facts(Settings(audit_file=file)).fault, "is gone")
        self.assertIsNone(audit_facts(Settings(audit_file=Path("-"))).path)

    def test_unwritable_audit(self) -> None:
        """A file that can't be written is found."""
        # Root may write to all.
        self.patch(os, "access", lambda *_: False)
        self.assertEqual(audit_facts(Settings(audit_file=self.file("audit.log", 0o400))).fault, "can't be written")

    def test_certificates(self) -> None:
        """Certificates of ports have their end, or why they can't be used (CLI-40)."""
        self.file("cert.pem", 0o644, pem(*chain("the host's name").certificates))
        self.file("key.pem", 0o600, key_pem(LEAF_KEY))
        text = f"ssl:8443:privateKey={self.folder}/key.pem:certKey={self.folder}/cert.pem"
        (good,) = self.facts(listen=text).certificates
        end = chain("the host's name").certificates[0].not_valid_after_utc.timestamp()
        self.assertEqual((good.expires, good.fault), (end, None))
        (self.folder / "cert.pem").write_text("broken")
        (bad,) = self.facts(listen=text, database_url="host=db.example").certificates
        self.assertIsNone(bad.expires)
        self.assertTrue(bad.fault)
        url = f"host=db.example sslmode=require sslcert={self.folder}/cert.pem"
        facts = self.facts(database_url=url)
        self.assertEqual([each.fault for each in facts.certificates], ["it can't be read, or is none"])
        self.assertEqual((facts.remote, facts.verified), (True, False))
        facts = self.facts(database_url="postgresql://db.example/svc?sslmode=verify-full")
        self.assertEqual((facts.remote, facts.verified), (True, True))
        for url in ("host=/run/postgresql", "dbname=svc", "postgresql://localhost/svc"):
            self.assertFalse(self.facts(database_url=url).remote, url)

    def test_ports(self) -> None:
        """Ports have their interface and whether they speak TLS; the default is known for what it is."""
        self.assertFalse(self.facts().listen_given)
        self.file("both.pem", 0o600, key_pem(LEAF_KEY) + pem(*chain("the host's name").certificates))
        facts = self.facts(
            listen=f"tcp:1 tcp:2:interface=10.0.0.1 ssl:3:{self.folder}/both.pem unix:/a",
            metrics_listen="tcp:port=5:interface=\\:\\:1",
        )
        self.assertTrue(facts.listen_given)
        self.assertEqual([port.host for port in facts.ports], ["", "10.0.0.1", "", None, "::1"])
        self.assertEqual([port.tls for port in facts.ports], [False, False, True, False, False])
        self.assertEqual([port.setting for port in facts.ports], ["listen"] * 4 + ["metrics_listen"])

    def test_disks(self) -> None:
        """The disk of the database is that of the directory that PostgreSQL names, for an embedded one that is away that of
        the data directory; on another machine, or where the role may not see it, it isn't known (CLI-82).
        """
        outside = Settings(data_dir=self.data, database_url="dbname=svc")
        free = shutil.disk_usage(self.data).free
        for settings, directory, remote, path, fault in (
            (Settings(data_dir=self.data), str(self.data), False, str(self.data), None),
            (outside, str(self.data), False, str(self.data), None),
            (outside, str(self.data), True, str(self.data), "another machine"),
            (outside, None, False, None, "may not see"),
            (outside, "/nonexistent/pg", False, "/nonexistent/pg", "No such file"),
        ):
            facts = disk_facts(settings, attrs.evolve(DATABASE, directory=directory), remote=remote)
            assert facts is not None
            self.assertEqual((facts.path, facts.room is None), (path, fault is not None))
            self.assertIn(fault or "", facts.fault or "")
            if facts.room is not None:
                self.assertLess(abs(facts.room - free), free / 2 + 1)
        away = disk_facts(Settings(data_dir=self.data), None, remote=False)
        self.assertEqual(away and away.path, str(self.data))
        self.assertIsNone(disk_facts(outside, None, remote=False))
        self.assertIsNone(disk_facts(Settings(data_dir=self.data / "none"), None, remote=False))


class NoDatabaseTests(SynchronousTestCase):
    """A data directory that isn't there."""

    def test_none_is_made(self) -> None:
        """Where there is no database none is made, and it is said what to name (CLI-40)."""
        folder = Path(self.mktemp()).resolve()
        settings = Settings(data_dir=folder)
        reactor: Any = MemoryReactorClock()
        for exists in (False, True):
            if exists:
                folder.mkdir()
            facts = self.successResultOf(Deferred.fromCoroutine(collect_facts(reactor, ChosenSettings(settings, ""), None)))
            self.assertIsNone(facts.database)
            self.assertIn("--data-dir", facts.database_fault or "")
            self.assertEqual(list(folder.glob("*")), [])
            self.assertEqual(folder.exists(), exists)

    def test_damaged(self) -> None:
        """One that is damaged is told of, like one that is away."""
        folder = Path(self.mktemp()).resolve()
        DataDirectory(folder).cluster.mkdir(parents=True)
        reactor: Any = MemoryReactorClock()
        chosen = ChosenSettings(Settings(data_dir=folder), "")
        facts = self.successResultOf(Deferred.fromCoroutine(collect_facts(reactor, chosen, None)))
        self.assertIn("is damaged", facts.database_fault or "")

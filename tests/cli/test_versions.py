"""Tests of ``svc.cli.versions``."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import versions
from svc.cli.versions import SavedVersions
from svc.model.versions import MAX_VERSIONS
from svc.workload.versions import REQUIRED_SECONDS


class KeptVersionsTests(SynchronousTestCase):
    """What one command keeps, and the next one asks for."""

    def setUp(self) -> None:
        """Have a directory of the test's own."""
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.directory = Path(self.mktemp()) / "state"
        self.patch(versions, "versions_directory", lambda: self.directory)

    def kept(self, account: str = "acme") -> SavedVersions:
        """What a command finds."""
        return SavedVersions(account, self.clock)

    def test_next(self) -> None:
        """The next command in the account asks for what an earlier one was told, and those in others don't; nobody else can
        read it (CLI-28).
        """
        self.assertIsNone(self.kept().wanted)
        self.kept().note("a.1.7")
        self.kept("../../x y").note("c.1.1")
        self.assertEqual(self.kept().wanted, "a.1.7")
        self.assertEqual(self.kept("../../x y").wanted, "c.1.1")
        self.assertIsNone(self.kept("other").wanted)
        files = list(self.directory.iterdir())
        self.assertEqual([(file.stat().st_mode & 0o777, file.stat().st_size) for file in files], [(0o600, 0)] * 2)
        self.assertEqual(self.directory.stat().st_mode & 0o777, 0o700)

    def test_side_by_side(self) -> None:
        """Commands that run side by side keep the newest, whichever ends last; older ones leave no files (CLI-28)."""
        one, other = self.kept(), self.kept()
        other.note("a.1.9")
        one.note("a.1.7")
        self.assertEqual(self.kept().wanted, "a.1.9")
        other.note("a.2.1")
        self.assertEqual(len(list(self.directory.iterdir())), 1)
        self.assertEqual(self.kept().wanted, "a.2.1")

    def test_forgotten(self) -> None:
        """A version is forgotten after an hour, and there are few files, whatever a server tells (CLI-28, NET-27)."""
        for system in range(1, 50):
            self.clock.advance(1)
            self.kept().note(f"{system:x}.1.1")
        self.assertEqual(len(list(self.directory.iterdir())), MAX_VERSIONS)
        self.clock.advance(REQUIRED_SECONDS - 1)
        self.assertEqual(self.kept().wanted, "31.1.1")
        self.clock.advance(REQUIRED_SECONDS)
        self.assertIsNone(self.kept().wanted)
        self.kept().note("31.1.1")
        self.assertEqual(len(list(self.directory.iterdir())), 1)

    def test_foreign(self) -> None:
        """Files of other names are neither read nor removed (CLI-28)."""
        self.kept().note("a.1.7")
        [file] = self.directory.iterdir()
        prefix = file.name.partition("-")[0]
        for name in (f"{prefix}-", f"{prefix}-x.1.1", f"{prefix}-1.1", "notes"):
            (self.directory / name).touch()
        self.kept().note("a.1.8")
        self.assertEqual(self.kept().wanted, "a.1.8")
        self.assertEqual(len(list(self.directory.iterdir())), 5)

    def test_no_room(self) -> None:
        """That versions can't be read or kept makes no command fail; this one remembers them (CLI-28)."""
        self.directory.parent.mkdir(parents=True)
        self.directory.touch()
        kept = self.kept()
        kept.note("a.1.7")
        self.assertEqual(kept.wanted, "a.1.7")
        self.assertIsNone(self.kept().wanted)
        self.directory.unlink()
        os.symlink("/dev/full", self.directory)
        self.kept().note("a.1.8")

"""Tests of ``svc.storage.standbys``: the files of a new standby."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import StartRefused
from svc.storage.standbys import hand_over


class HandOverTests(SynchronousTestCase):
    """What root has copied becomes PostgreSQL's user's."""

    def setUp(self) -> None:
        """Make folders, files and a link that leads outside."""
        self.folder = Path(self.mktemp())
        (self.folder / "data" / "base" / "1").mkdir(parents=True)
        for name in ("outside", "data/PG_VERSION", "data/base/1/2"):
            (self.folder / name).touch()
        (self.folder / "data" / "link").symlink_to(self.folder.resolve())

    def test_order(self) -> None:
        """All is given, by the folder that holds it and not by a path, links themselves, and a folder after what it holds:
        nothing can be put in the way.
        """
        given: list[str] = []

        def chown(name: str, owner: int, group: int, *, dir_fd: int, follow_symlinks: bool) -> None:
            self.assertEqual((owner, group, follow_symlinks), (status.st_uid, status.st_gid, False))
            given.append(known[os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_ino])

        data = self.folder / "data"
        status = data.stat()
        known = {path.lstat().st_ino: str(path.relative_to(data)) for path in data.rglob("*")}
        self.patch(os, "chown", chown)
        hand_over(data, status.st_uid)
        self.assertEqual(sorted(given), ["PG_VERSION", "base", "base/1", "base/1/2", "link"])
        self.assertEqual([name for name in given if name.startswith("base")], ["base/1/2", "base/1", "base"])

    def test_replaced(self) -> None:
        """A folder that another user owns by now is not given away."""
        found: list[Any] = []
        self.patch(os, "chown", lambda *given, **_: found.append(given))
        self.assertRaises(StartRefused, hand_over, self.folder / "data", os.geteuid() + 1)
        self.assertEqual(found, [])

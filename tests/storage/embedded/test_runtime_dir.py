"""Tests of the directory outside the data directory."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc.storage.embedded import runtime_dir
from svc.storage.embedded.runtime_dir import RuntimeDir


class RuntimeDirTests(SynchronousTestCase):
    """A runtime directory."""

    def setUp(self) -> None:
        """Have one, not made yet."""
        self.made: list[Path] = []
        self.runtime_dir = RuntimeDir(self.made.append)
        self.addCleanup(self.runtime_dir.remove)

    def test_on_demand(self) -> None:
        """It is made when first used, told once, and gone when removed."""
        self.runtime_dir.touch_times()
        self.assertEqual(self.made, [])
        path = self.runtime_dir.path
        self.assertEqual(self.runtime_dir.path, path)
        self.assertEqual(self.made, [path])
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o711 if os.geteuid() == 0 else 0o700)
        self.runtime_dir.remove()
        self.assertFalse(path.exists())
        self.assertNotEqual(self.runtime_dir.path, path)

    def test_link(self) -> None:
        """A link leads where it should, by a short path."""
        target = Path("/", *["long"] * 100)
        self.assertEqual(self.runtime_dir.link("socket", target).readlink(), target)

    def test_kept(self) -> None:
        """Keeping it makes it look new and mends a link that was cleared away."""
        link = self.runtime_dir.link("socket", Path("/target"))
        link.unlink()
        os.utime(self.runtime_dir.path, (1, 1))
        self.runtime_dir.touch_times()
        self.assertEqual(link.readlink(), Path("/target"))
        self.assertGreater(self.runtime_dir.path.stat().st_mtime, 1)
        os.utime(link, (1, 1), follow_symlinks=False)
        self.runtime_dir.touch_times()
        self.assertGreater(link.lstat().st_mtime, 1)

    def test_gone(self) -> None:
        """Keeping one that has been cleared away fails, for the log; removing it doesn't."""
        self.runtime_dir.path.rmdir()
        self.assertRaises(FileNotFoundError, self.runtime_dir.touch_times)
        self.runtime_dir.remove()


class RemoveTests(SynchronousTestCase):
    """Removing what a crash left, by its path."""

    def setUp(self) -> None:
        """Make a place."""
        self.root = Path(tempfile.mkdtemp())

    def test_removed(self) -> None:
        """A runtime directory is removed with all that is in it; one that is gone already is no trouble."""
        path = self.root / "svc-left"
        (path / "programs").mkdir(parents=True)
        (path / "socket").symlink_to(self.root)
        runtime_dir.remove_directory(path)
        self.assertFalse(path.exists())
        self.assertTrue(self.root.exists())
        runtime_dir.remove_directory(path)

    def test_other(self) -> None:
        """What isn't a runtime directory stays: another name, a file, a link to a directory."""
        (self.root / "precious").mkdir()
        (self.root / "svc-file").touch()
        (self.root / "svc-link").symlink_to(self.root / "precious")
        for name in ("precious", "svc-file", "svc-link"):
            runtime_dir.remove_directory(self.root / name)
        self.assertEqual({path.name for path in self.root.iterdir()}, {"precious", "svc-file", "svc-link"})

    def test_of_another_user(self) -> None:
        """A directory that another user made at the path of one that is gone stays."""
        path = self.root / "svc-trap"
        path.mkdir()
        os.chown(path, 1, -1)
        runtime_dir.remove_directory(path)
        self.assertTrue(path.exists())

    if os.geteuid() != 0:
        test_of_another_user.skip = "only root can make it"  # type: ignore[attr-defined]  # trial reads it

"""Tests of ``svc.agent.files``."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import SkipTest

from twisted.python.monkey import MonkeyPatcher

from svc.agent import files
from svc.agent.faults import FileFault
from svc.agent.files import Destination, FileChange
from tests.agent.scene import AgentCase

NOBODY = 65534


class Killed(BaseException):
    """The process is gone."""


class PlacingTests(AgentCase):
    """Files that are replaced."""

    def setUp(self) -> None:
        """Choose a destination."""
        super().setUp()
        self.path = self.folder / "out"
        self.destination = Destination(self.path, os.geteuid(), os.getegid(), 0o640)

    def fault(self, destination: Destination | None = None) -> str:
        """Place what fails, and return the message."""
        return str(self.assertRaises(FileFault, files.replace_file, destination or self.destination, b"new"))

    def patch_os(self, name: str, instead: Callable[..., Any]) -> MonkeyPatcher:
        """Have a function of the system do something else, until the test ends or this is restored."""
        patch: MonkeyPatcher = self.patch(os, name, instead)
        return patch

    def test_placed(self) -> None:
        """A file has its content, its mode whatever the mask is, and nothing is left beside it; a second time it isn't
        touched (AGT-20, AGT-22).
        """
        before = os.umask(0o077)
        self.addCleanup(os.umask, before)
        self.assertEqual(files.replace_file(self.destination, b"one"), FileChange(replaced=True, command_due=False))
        self.assertEqual((self.path.read_bytes(), stat.S_IMODE(self.path.stat().st_mode)), (b"one", 0o640))
        first = self.path.stat()
        self.assertEqual(files.replace_file(self.destination, b"one"), FileChange(replaced=False, command_due=False))
        self.assertEqual(self.path.stat(), first)
        self.assertEqual(files.replace_file(self.destination, b"two"), FileChange(replaced=True, command_due=False))
        self.assertNotEqual(self.path.stat().st_ino, first.st_ino)
        self.assertEqual(self.names(), {"out"})

    def test_put_right(self) -> None:
        """A file whose mode somebody has changed, or that is longer, is made again (AGT-26)."""
        files.replace_file(self.destination, b"one")
        for spoil in (lambda: self.path.chmod(0o600), lambda: self.path.write_bytes(b"one more"), self.path.unlink):
            spoil()
            self.assertTrue(files.replace_file(self.destination, b"one").replaced)
            self.assertEqual((self.path.read_bytes(), stat.S_IMODE(self.path.stat().st_mode)), (b"one", 0o640))

    def test_owner_before_content(self) -> None:
        """When the first byte is written the file has its owner and its mode (AGT-21)."""
        if os.geteuid() != 0:
            raise SkipTest("only root gives files to others")
        found = []

        def write(file: int, content: bytes) -> int:
            now = os.fstat(file)
            found.append((now.st_uid, now.st_gid, stat.S_IMODE(now.st_mode), now.st_size))
            return written(file, content[:1])

        written = os.write
        self.patch_os("write", write)
        files.replace_file(Destination(self.path, NOBODY, NOBODY, 0o440), b"new")
        self.assertEqual(found, [(NOBODY, NOBODY, 0o440, size) for size in range(3)])
        self.assertEqual(self.path.read_bytes(), b"new")

    def test_killed(self) -> None:
        """Wherever the agent is killed, the file is the old or the new one, whole, and the next start removes the rest
        (AGT-20, AGT-25).
        """
        for name in ("fchown", "fchmod", "write", "fsync", "rename"):
            for after in (False, True):
                self.path.write_bytes(b"old")
                real = getattr(os, name)

                def killed(*given: Any, _real: Any = real, _after: bool = after, **more: Any) -> None:
                    if _after:
                        _real(*given, **more)
                    raise Killed

                def gone(*given: Any, **more: Any) -> None:
                    raise Killed

                with self.subTest(name=name, after=after):
                    # A process that is killed cleans nothing up.
                    patches = [self.patch_os(name, killed), self.patch_os("unlink", gone)]
                    self.assertRaises(Killed, files.replace_file, self.destination, b"new, and longer")
                    for patch in patches:
                        patch.restore()
                    self.assertIn(self.path.read_bytes(), {b"old", b"new, and longer"})
                    files.remove_leftovers(self.destination)
                    self.assertEqual(self.names(), {"out"})

    def test_cleaned(self) -> None:
        """Only what an agent leaves of this very file is removed (AGT-25)."""
        kept = {".out.svc-agent-xyz.tmp", ".out2.svc-agent-0123456789abcdef.tmp", "out"}
        for name in kept:
            (self.folder / name).touch()
        (self.folder / ".out.svc-agent-0123456789abcdef.tmp").write_bytes(b"half")
        self.assertEqual(files.remove_leftovers(self.destination), 1)
        self.assertEqual(self.names(), kept)
        mark = ".out.svc-agent-changed"
        (self.folder / mark).touch()
        files.remove_leftovers(Destination(self.path, 0, 0, 0o600, has_command=True))
        self.assertEqual(self.names(), {*kept, mark})
        files.remove_leftovers(self.destination)
        self.assertEqual(self.names(), kept)

    def test_full_disk(self) -> None:
        """Where the new file can't be written the old one stays, and nothing else is left (AGT-20)."""
        self.path.write_bytes(b"old")

        def full(file: int, content: bytes) -> int:
            raise OSError(28, "No space left on device")

        self.patch_os("write", full)
        self.assertIn("can't be written: No space left on device", self.fault())
        self.assertEqual((self.names(), self.path.read_bytes()), ({"out"}, b"old"))

    def test_no_links(self) -> None:
        """A link in the file's place isn't followed, replaced or removed; nor is a folder or a pipe (AGT-23)."""
        other = self.folder / "other"
        other.write_bytes(b"other")
        self.path.symlink_to(other)
        self.assertIn("symbolic link", self.fault())
        self.assertRaises(FileFault, files.remove_file, self.destination)
        self.assertTrue(self.path.is_symlink())
        self.assertEqual(other.read_bytes(), b"other")
        self.path.unlink()
        self.path.mkdir()
        self.assertIn("is not a file", self.fault())
        self.path.rmdir()
        os.mkfifo(self.path)
        self.assertIn("is not a file", self.fault())
        self.assertFalse(files.file_exists(Destination(self.folder / "none", 0, 0, 0)))

    def test_folders(self) -> None:
        """A folder that others can write to, that isn't there, or that is a stranger's, is refused (AGT-24)."""
        self.assertIn("does not exist: make it", self.fault(Destination(self.folder / "none" / "x", 0, 0, 0o600)))
        for mode in (0o757, 0o1777):
            self.folder.chmod(mode)
            self.assertIn(f"everybody can write to the folder {self.folder}", self.fault())
        inner = self.folder / "inner"
        inner.mkdir(mode=0o755)
        self.folder.chmod(0o777)
        below = Destination(inner / "x", os.geteuid(), os.getegid(), 0o600)
        self.assertIn(f"everybody can write to {self.folder}, above", self.fault(below))
        self.folder.chmod(0o1777)
        self.assertTrue(files.replace_file(below, b"x").replaced)
        self.folder.chmod(0o775)
        self.assertTrue(files.group_may_write(self.destination))
        self.assertTrue(files.replace_file(self.destination, b"x").replaced)
        self.folder.chmod(0o755)
        self.assertFalse(files.group_may_write(self.destination))

    def test_folders_of_others(self) -> None:
        """A folder may belong to root, to the agent or to the file's owner, and to nobody else (AGT-24)."""
        if os.geteuid() != 0:
            raise SkipTest("only root gives folders to others")
        os.chown(self.folder, NOBODY, NOBODY)
        self.assertIn(f"belongs to user {NOBODY}", self.fault())
        self.assertTrue(files.replace_file(Destination(self.path, NOBODY, NOBODY, 0o600), b"x").replaced)

    def test_ways_of_others(self) -> None:
        """Nobody but root, the agent and the file's owner has a folder on the way, and a link that the owner has put in the
        place of one leads the agent nowhere (AGT-24).
        """
        if os.geteuid() != 0:
            raise SkipTest("only root gives folders to others")
        home, elsewhere = self.folder / "home", self.folder / "elsewhere"
        inner = home / "inner"
        inner.mkdir(parents=True)
        elsewhere.mkdir()
        for folder in (home, inner):
            os.chown(folder, NOBODY, NOBODY)
        theirs = Destination(inner / "x.sh", NOBODY, NOBODY, 0o600)
        self.assertTrue(files.replace_file(theirs, b"x").replaced)
        os.chown(home, NOBODY - 1, NOBODY)
        self.assertIn(f"{home}, above the folder {inner}, belongs to user {NOBODY - 1}", self.fault(theirs))
        os.chown(home, NOBODY, NOBODY)
        inner.rename(home / "old")
        inner.symlink_to(elsewhere)
        os.chown(inner, NOBODY, NOBODY, follow_symlinks=False)
        for act in (lambda: self.fault(theirs), lambda: str(self.assertRaises(FileFault, files.remove_file, theirs))):
            self.assertIn(f"{inner} is a symbolic link of user {NOBODY}", act())
        self.assertEqual(os.listdir(elsewhere), [])

    def test_marks(self) -> None:
        """What follows from a change is owed until it is settled, also by the next agent (AGT-28)."""
        owing = Destination(self.path, os.geteuid(), os.getegid(), 0o600, has_command=True)
        self.assertEqual(files.replace_file(owing, b"one"), FileChange(replaced=True, command_due=True))
        self.assertEqual(files.replace_file(owing, b"one"), FileChange(replaced=False, command_due=True))
        files.remove_marker(owing)
        self.assertEqual(files.replace_file(owing, b"one"), FileChange(replaced=False, command_due=False))
        self.assertEqual(self.names(), {"out"})
        self.assertEqual(files.remove_file(owing), FileChange(replaced=True, command_due=True))
        self.assertEqual(files.remove_file(owing), FileChange(replaced=False, command_due=True))
        files.remove_marker(owing)
        files.remove_marker(owing)
        self.assertEqual(self.names(), set())

    def test_marks_of_others(self) -> None:
        """A pipe or a link in the place of the mark holds nothing up, and leads nowhere (AGT-23, AGT-28)."""
        owing = Destination(self.path, os.geteuid(), os.getegid(), 0o600, has_command=True)
        mark = self.folder / owing.marker_name
        os.mkfifo(mark)
        self.assertRaises(FileFault, files.replace_file, owing, b"one")
        mark.unlink()
        mark.symlink_to(self.folder / "elsewhere")
        self.assertRaises(FileFault, files.replace_file, owing, b"one")
        self.assertEqual(self.names(), {owing.marker_name})

    def test_mark_before_the_change(self) -> None:
        """The mark is there when the file changes, so that no kill can come in between (AGT-28)."""
        owing = Destination(self.path, os.geteuid(), os.getegid(), 0o600, has_command=True)
        seen = []

        def rename(*given: Any, **more: Any) -> None:
            seen.append(Path(self.folder / owing.marker_name).exists())

        self.patch_os("rename", rename)
        files.replace_file(owing, b"one")
        self.assertEqual(seen, [True])

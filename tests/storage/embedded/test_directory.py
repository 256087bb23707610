"""Tests of the data directory."""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import StartRefused
from svc.model.text import escape_unencodable
from svc.storage.embedded.directory import LOG_LIMIT, DataDirectory, DirectoryState


def mode(path: Path) -> int:
    """The permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


class DirectoryTestCase(SynchronousTestCase):
    """A test with a data directory that isn't made yet."""

    def setUp(self) -> None:
        """Choose a place."""
        self.root = Path(tempfile.mkdtemp(dir=os.path.realpath(tempfile.gettempdir())))
        self.directory = DataDirectory(self.root / "new" / "data")
        self.addCleanup(self.directory.release)


class ForeignTests(DirectoryTestCase):
    """The directory of another user."""

    skip = None if os.geteuid() == 0 else "only root has files of several users"

    def test_cluster(self) -> None:
        """A cluster that this user may not find or read is refused by its owner's name, and isn't taken for a missing one
        (CLI-51).
        """
        self.root.chmod(0o755)
        self.directory.make_directory()
        self.directory.cluster.mkdir(0o700)
        self.addCleanup(os.seteuid, 0)
        for present in (0o711, 0o700):
            self.directory.path.chmod(present)
            os.seteuid(pwd.getpwnam("nobody").pw_uid)
            refusal = self.assertRaises(StartRefused, self.directory.cluster_version)
            os.seteuid(0)
            self.assertIn(f"{self.directory.path} belongs to the user with the id 0 (root): run svc as", refusal.message)


class MakeTests(DirectoryTestCase):
    """Making the directory."""

    def test_new(self) -> None:
        """A new directory is closed to others, whatever the umask, but root's lets them pass."""
        for umask in (0, 0o077):
            self.addCleanup(os.umask, os.umask(umask))
            directory = DataDirectory(self.root / str(umask) / "data")
            directory.make_directory()
            self.assertEqual(mode(directory.path), 0o711 if os.geteuid() == 0 else 0o700)

    def test_parents(self) -> None:
        """Nobody else can write in the directories made above it."""
        self.addCleanup(os.umask, os.umask(0))
        self.directory.make_directory()
        self.assertEqual(mode(self.directory.path.parent), 0o755)

    def test_present(self) -> None:
        """A directory that is there keeps its mode."""
        for present in (0o700, 0o750, 0o755):
            path = self.root / f"{present:o}"
            path.mkdir()
            path.chmod(present)
            DataDirectory(path).make_directory()
            self.assertEqual(mode(path), present)

    def test_writable(self) -> None:
        """A directory in which others can write is refused (DATA-25)."""
        for present in (0o720, 0o702, 0o1777):
            path = self.root / f"{present:o}"
            path.mkdir()
            path.chmod(present)
            self.assertRaises(StartRefused, DataDirectory(path).make_directory)

    def test_file(self) -> None:
        """A file is refused."""
        (self.root / "file").touch()
        self.assertRaises(StartRefused, DataDirectory(self.root / "file").make_directory)


class UndoTests(DirectoryTestCase):
    """What a start has made is removed again (CFG-14)."""

    def fill(self) -> None:
        """Make what a server makes, under a lock, and something that is somebody else's."""
        self.directory.make_directory()
        self.assertIsNone(self.directory.take_lock(serving=True))
        for name in ("cluster", "unfinished-x", "programs"):
            (self.directory.path / name / "deep").mkdir(parents=True)
        for name in ("data-key", "admin-key-acme", "postgres.log", "postmaster.lock", "annex", "audit.log"):
            (self.directory.path / name).touch()

    def test_new(self) -> None:
        """A directory that a start has made goes with all above it that the start has made, too."""
        before = self.directory.read_state()
        self.fill()
        self.directory.undo_changes(before)
        self.assertEqual(list(self.root.iterdir()), [])

    def test_present(self) -> None:
        """What was there before stays, and so does what isn't a server's own."""
        (self.directory.path / "cluster").mkdir(parents=True)
        (self.directory.path / "data-key").touch()
        before = self.directory.read_state()
        (self.directory.path / "notes").touch()
        self.fill()
        self.directory.undo_changes(before)
        self.assertEqual(sorted(os.listdir(self.directory.path)), ["cluster", "data-key", "notes"])
        self.assertTrue((self.directory.path / "cluster" / "deep").exists())


class RestoreTests(DirectoryTestCase):
    """A backup is restored into a directory that no server has used (DATA-35, DATA-37)."""

    def test_used(self) -> None:
        """A directory with anything of a server's is refused, and keeps it (DATA-35)."""
        for name in (
            "cluster",
            "unfinished-x",
            "programs",
            "annex",
            "postgres.log",
            "data-key",
            "data-key.new",
            "admin-key-acme",
            "audit.log",
            "audit-chain",
            "ldap-refused",
        ):
            directory = DataDirectory(self.root / name)
            directory.make_directory()
            (directory.path / name).touch()
            refusal = self.assertRaises(StartRefused, directory.begin_restore)
            self.assertIn(f"a svc has used {directory.path}: it has {name};", refusal.message)
            self.assertEqual(os.listdir(directory.path), [name])

    def test_not_own(self) -> None:
        """Files that aren't a server's own, as those of a file system's root and of a home directory, don't keep a
        directory from being restored into; they stay when the restore is undone, or run again after it was killed (DATA-35,
        DATA-37).
        """
        others = [".bash_history", ".cache", "lost+found", "notes"]
        self.directory.require_restorable()
        self.directory.make_directory()
        self.assertIsNone(self.directory.take_lock(serving=False))
        for name in others:
            (self.directory.path / name).touch()
        for _ in range(2):
            self.directory.begin_restore()
            for name in ("cluster", "unfinished-x"):
                (self.directory.path / name).mkdir()
            (self.directory.path / "data-key").touch()
        self.directory.undo_changes(DirectoryState(frozenset(), ()))
        self.assertEqual(sorted(os.listdir(self.directory.path)), others)

    def test_again(self) -> None:
        """One that a killed restore has left is emptied of what that made, and marked until the restore has ended."""
        self.directory.make_directory()
        self.directory.begin_restore()
        self.assertTrue(self.directory.is_restoring)
        (self.directory.path / "cluster").mkdir()
        for name in ("data-key", "notes"):
            (self.directory.path / name).touch()
        self.directory.begin_restore()
        self.assertEqual(sorted(os.listdir(self.directory.path)), ["notes", "restoring"])
        self.directory.end_restore()
        self.assertFalse(self.directory.is_restoring)


class LockTests(DirectoryTestCase):
    """The lock."""

    def setUp(self) -> None:
        """Make the directory."""
        super().setUp()
        self.directory.make_directory()

    def other(self) -> DataDirectory:
        """The same directory, as another svc sees it."""
        other = DataDirectory(self.directory.path)
        self.addCleanup(other.release)
        return other

    def test_held(self) -> None:
        """The lock is held by one, and says who that is, and what for."""
        for serving in (True, False):
            self.assertIsNone(self.directory.take_lock(serving=serving))
            holder = self.other().take_lock(serving=True)
            assert holder is not None
            self.assertEqual((holder.pid, holder.serving), (str(os.getpid()), serving))
            self.directory.release()

    def test_released(self) -> None:
        """A lock that was released is free; releasing it again does nothing."""
        self.directory.take_lock(serving=True)
        self.directory.release()
        self.directory.release()
        self.assertIsNone(self.other().take_lock(serving=True))

    def test_mode(self) -> None:
        """Nobody else can open the lock, and so hold it."""
        self.directory.take_lock(serving=True)
        self.assertEqual(mode(self.directory.path / "lock"), 0o600)

    def test_link(self) -> None:
        """A symbolic link in place of the lock isn't followed."""
        target = self.root / "target"
        target.write_text("precious")
        (self.directory.path / "lock").symlink_to(target)
        self.assertRaises(OSError, self.directory.take_lock, serving=True)
        self.assertEqual(target.read_text(), "precious")


class ClusterTests(DirectoryTestCase):
    """PostgreSQL's own directory."""

    def setUp(self) -> None:
        """Make the directory."""
        super().setUp()
        self.directory.make_directory()

    def test_none(self) -> None:
        """There is no cluster at first."""
        self.assertIsNone(self.directory.cluster_version())

    def test_unfinished(self) -> None:
        """A cluster in the making is none, until it gets its name."""
        place = self.directory.new_cluster(os.geteuid(), os.getegid())
        self.assertEqual(mode(place), 0o700)
        (place / "PG_VERSION").write_text("18\n")
        self.assertIsNone(self.directory.cluster_version())
        self.directory.adopt_cluster(place)
        self.assertEqual(self.directory.cluster_version(), "18")

    def test_clear(self) -> None:
        """What a crash left is removed; the cluster, and anything that others put there, is not."""
        self.directory.adopt_cluster(self.directory.new_cluster(os.geteuid(), os.getegid()))
        (self.directory.new_cluster(os.geteuid(), os.getegid()) / "PG_VERSION").write_text("18\n")
        for name in ("cluster-of-yesterday", "programs", "data-key"):
            (self.directory.path / name).mkdir()
        self.directory.clear_leftovers()
        names = {path.name for path in self.directory.path.iterdir()}
        self.assertEqual(names, {"cluster", "cluster-of-yesterday", "programs", "data-key"})

    def test_damaged(self) -> None:
        """A cluster without its version is refused."""
        self.directory.cluster.mkdir()
        self.assertRaises(StartRefused, self.directory.cluster_version)

    def test_dangling(self) -> None:
        """A link that leads nowhere in place of the cluster is refused, not replaced."""
        self.directory.cluster.symlink_to(self.root / "nowhere")
        self.assertRaises(StartRefused, self.directory.cluster_version)

    def test_pipe(self) -> None:
        """A pipe that PostgreSQL's user could have put there isn't waited for."""
        self.directory.cluster.mkdir()
        os.mkfifo(self.directory.cluster / "PG_VERSION")
        self.assertRaises(OSError, self.directory.cluster_version)


class RuntimeDirTests(DirectoryTestCase):
    """The record of the runtime directory."""

    def test_recorded(self) -> None:
        """A runtime directory that was recorded is removed, also when its name is no UTF-8."""
        self.directory.make_directory()
        self.directory.take_lock(serving=True)
        runtime_dir = self.root / os.fsdecode(b"svc-\xe4")
        (runtime_dir / "socket").mkdir(parents=True)
        self.directory.record_runtime_dir(runtime_dir)
        self.directory.clear_leftovers()
        self.assertFalse(runtime_dir.exists())
        self.directory.clear_leftovers()

    def test_without_lock(self) -> None:
        """A process without the lock doesn't record its runtime directory over the holder's."""
        self.directory.make_directory()
        self.directory.record_runtime_dir(self.root / "svc-mine")
        self.assertEqual(list(self.directory.path.iterdir()), [])


class LogTests(DirectoryTestCase):
    """PostgreSQL's log."""

    def setUp(self) -> None:
        """Make the directory."""
        super().setUp()
        self.directory.make_directory()

    def write(self, text: bytes) -> None:
        """Append to the log."""
        file = self.directory.open_log()
        os.write(file, text)
        os.close(file)

    def test_appended(self) -> None:
        """The log grows over starts, and is its owner's alone."""
        self.write(b"one\n")
        self.write(b"two\n")
        self.assertEqual(self.directory.log.read_text(), "one\ntwo\n")
        self.assertEqual(mode(self.directory.log), 0o600)

    def test_limit(self) -> None:
        """A log that has grown too large is put aside at the next start, and the one before it dropped."""
        self.write(b"x")
        os.truncate(self.directory.log, LOG_LIMIT + 1)
        self.write(b"anew")
        self.assertEqual(self.directory.log.read_bytes(), b"anew")
        self.assertEqual((self.directory.path / "postgres.log.1").stat().st_size, LOG_LIMIT + 1)

    def test_tail(self) -> None:
        """The tail is the last lines of this start, however much was said before or since."""
        self.write(b"before\n")
        since = self.directory.log.stat().st_size
        self.write(b"caf\xe9\n" + b"line\n" * 10000 + b"last\n")
        lines = self.directory.log_tail(since).splitlines()
        self.assertEqual((len(lines), lines[-1]), (15, "last"))
        self.assertNotIn("before", self.directory.log_tail(0))
        self.assertEqual(self.directory.log_tail(self.directory.log.stat().st_size), "")


class PrintableTests(SynchronousTestCase):
    """Paths in a log."""

    def test_printable(self) -> None:
        """A byte that is no UTF-8 is written as an escape."""
        self.assertEqual(escape_unencodable(Path(os.fsdecode(b"/\xe4/\xc3\xa4"))), "/\\udce4/ä")

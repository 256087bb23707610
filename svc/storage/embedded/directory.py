"""The data directory: its layout, its permissions, and the lock of the process that uses it.

::

    lock              held by the svc that uses the directory, for its life; holds its process id, for humans
    postmaster.lock   held by PostgreSQL itself, see note [Who is a postmaster] in postmaster
    postgres.log what PostgreSQL logs; the log before that is in postgres.log.1 cluster/ PostgreSQL's own directory, complete
    whenever it has this name unfinished-…/ one in the making; what a crash left of it is removed programs/ a copy of
    PostgreSQL's programs, where one is needed annex the path of the runtime directory, where there is one restoring there
    while a backup is restored into the directory, and after a restore that was killed

As root, PostgreSQL's user owns ``cluster`` and nothing else here; ``svc`` distrusts what is in there and never writes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import attrs

from svc.model.errors import StartRefused
from svc.storage.embedded import runtime_dir, users

#: Size in bytes beyond which PostgreSQL's log is begun again when PostgreSQL starts.
LOG_LIMIT: Final = 8 * 1024 * 1024
_UNFINISHED: Final = "unfinished-"
_LOCK: Final = "lock"
_RESTORING: Final = "restoring"

#: All that ``svc`` makes in its data directory, as patterns of names; the lock is removed last, and the mark before it.
_OURS: Final = ("cluster", f"{_UNFINISHED}*", "programs", "annex", "postgres.log", "postgres.log.1", "postmaster.lock")
_KEYS: Final = ("data-key", "data-key.new", "admin-key-*")
#: The files that a server keeps here beside its database: its audit with the chain's end, and refused binds.
_RECORDS: Final = ("audit.log", "audit-chain", "audit-chain.new", "ldap-refused")

_MARK: Final = "A backup is being restored here. `svc backup restore` removes what the restore made, and starts over.\n"


@attrs.frozen
class Holder:
    """The holder of the lock: its process id as text, and whether it is a server or a short command."""

    pid: str
    serving: bool


@attrs.frozen
class DirectoryState:
    """The state of a data directory before anything is made there, and which directories are missing, outermost first."""

    names: frozenset[str]
    missing: tuple[Path, ...]


@attrs.define
class DataDirectory:
    """One data directory, perhaps not made yet. ``path`` is absolute.

    Its methods block, for a few system calls on a local disk unless they say otherwise.
    """

    path: Path
    _lock: int | None = None

    @property
    def cluster(self) -> Path:
        """Return PostgreSQL's own directory."""
        return self.path / "cluster"

    @property
    def log(self) -> Path:
        """Return PostgreSQL's log."""
        return self.path / "postgres.log"

    @property
    def postmaster_lock(self) -> Path:
        """Return the file that a running PostgreSQL holds locked."""
        return self.path / "postmaster.lock"

    def make_directory(self) -> None:
        """Make the directory if it isn't there, and check that nobody but its owner can write in it.

        A new one is closed to others; only root's lets them pass, because PostgreSQL runs as another user then.

        :raises StartRefused: others can write in it, or it is none.
        :raises OSError: it can't be made.
        """
        for parent in reversed([parent for parent in self.path.parents if not parent.exists()]):
            parent.mkdir(0o755)
        with suppress(FileExistsError):
            self.path.mkdir(0o700)
            if os.geteuid() == 0:
                self.path.chmod(0o711)
        status = self.path.stat()
        if not stat.S_ISDIR(status.st_mode):
            raise StartRefused(f"{self.path} is not a directory")
        if status.st_mode & 0o022:
            raise StartRefused(f"other users can write in the data directory {self.path}: run chmod go-w on it")

    def take_lock(self, *, serving: bool) -> Holder | None:
        """Take the lock; return the holder where another process has it.

        :raises StartRefused: the directory belongs to another user, and nobody holds the lock.
        :raises OSError: the lock file can't be opened.
        """
        own = self.path.stat().st_uid == os.geteuid()
        try:
            file = os.open(self.path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if own else 0), 0o600)
        except (PermissionError, FileNotFoundError) as error:
            raise error if own else self._foreign_refusal() from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not own:  # root, in another user's directory, where everything may be a trap: it may join, and change nothing
                raise self._foreign_refusal()
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()} {'server' if serving else 'command'}\n".encode(), 0)
        except BlockingIOError:
            pid, _, purpose = os.pread(file, 64, 0).decode(errors="replace").strip().partition(" ")
            os.close(file)
            return Holder(pid, purpose == "server")
        except BaseException:
            os.close(file)
            raise
        self._lock = file
        return None

    def _foreign_refusal(self) -> StartRefused:
        owner = self.path.stat().st_uid
        return StartRefused(
            f"the data directory {self.path} belongs to the user with the id {owner}"
            f" ({users.user_name(owner) or 'who has no name'}): run svc as that user"
        )

    def release(self) -> None:
        """Give the lock up, if it is held."""
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def cluster_version(self) -> str | None:
        """Return the major version of PostgreSQL that made the cluster; ``None`` when there is no cluster.

        :raises StartRefused: what is there is not a cluster, or it belongs to another user.
        """
        try:
            os.lstat(self.cluster)
            version = self.read_in_cluster("PG_VERSION")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError as error:
            raise error if self.path.stat().st_uid == os.geteuid() else self._foreign_refusal() from None
        if version is None:
            raise StartRefused(f"{self.cluster} is damaged: it has no PG_VERSION. Restore it from a backup, or remove it")
        return version.strip()

    def read_in_cluster(self, name: str) -> str | None:
        """Return the first 4 KiB of a file in the cluster, ``None`` when it isn't there."""
        try:
            # PostgreSQL's user could have put a link or a pipe there.
            file = os.open(self.cluster / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(self.cluster / name))
            return os.read(file, 4096).decode(errors="replace")
        finally:
            os.close(file)

    def new_cluster(self, uid: int, gid: int) -> Path:
        """Make an empty directory for a cluster in the making, owned by that user."""
        path = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self.path))
        os.chown(path, uid, gid)
        return path

    def adopt_cluster(self, path: Path) -> None:
        """Rename a complete cluster to its final name."""
        path.rename(self.cluster)
        self._sync_directory()

    def open_log(self) -> int:
        """Open PostgreSQL's log to append to it, beginning a new one when it has grown too large."""
        if self.log.exists() and self.log.stat().st_size > LOG_LIMIT:
            self.log.replace(self.log.with_name("postgres.log.1"))
        return os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)

    def log_tail(self, since: int) -> str:
        """Return the last lines of PostgreSQL's log, from the offset ``since`` on."""
        with self.log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(since, end - 4096))
            return "\n".join(log.read(4096).decode(errors="replace").strip().splitlines()[-15:])

    def clear_leftovers(self) -> None:
        """Remove unfinished clusters and the runtime directory of a dead process; blocks for up to a second.

        Only for the holder of the lock, while no PostgreSQL runs.
        """
        for unfinished in self.path.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        if self._runtime_dir_record.exists():
            runtime_dir.remove_directory(Path(os.fsdecode(self._runtime_dir_record.read_bytes())))
            self._runtime_dir_record.unlink()

    def read_state(self) -> DirectoryState:
        """Return what is there now."""
        missing = [place for place in (*reversed(self.path.parents), self.path) if not os.path.lexists(place)]
        return DirectoryState(frozenset(os.listdir(self.path) if self.path.is_dir() else ()), tuple(missing))

    def state_since(self, before: DirectoryState) -> DirectoryState:
        """Return what was there when the lock was taken, ``before`` that unless another process has made something since.

        Only for the holder of the lock, which hasn't made anything but the directory and the lock yet.
        """
        names = frozenset(os.listdir(self.path)) | {_LOCK}
        return before if names == before.names | {_LOCK} else DirectoryState(names, ())

    def undo_changes(self, before: DirectoryState) -> None:
        """Remove what a ``svc`` has made here since, and the directories; what isn't a ``svc``'s own is left alone.

        Only for the holder of the lock, while no PostgreSQL runs. The lock is given up.
        """
        self._remove_matching((*_OURS, *_KEYS, *_RECORDS), before.names)
        self._remove_matching((_RESTORING,), before.names)
        if _LOCK not in before.names:
            (self.path / _LOCK).unlink(missing_ok=True)
        self.release()
        for place in reversed(before.missing):
            with suppress(OSError):  # another process uses it by now
                place.rmdir()

    @property
    def is_restoring(self) -> bool:
        """Return whether a backup is being restored into the directory, or a restore was killed."""
        return os.path.lexists(self.path / _RESTORING)

    def require_restorable(self) -> None:
        """Return when a backup may be restored here: a ``svc`` has made nothing here, or only a restore has.

        Other files are left alone, as at a first start: ``lost+found`` of a file system, those of a home directory.

        :raises StartRefused: something of a ``svc`` is there; says what.
        """
        names = sorted(self.read_state().names)
        found = [name for name in names if any(fnmatchcase(name, own) for own in (*_OURS, *_KEYS, *_RECORDS))]
        if found and not self.is_restoring:
            raise StartRefused(
                f"a svc has used {self.path}: it has {', '.join(found[:3])}; a backup is restored into a new directory"
            )

    def begin_restore(self) -> None:
        """Mark the directory, after removing what a restore has left that was killed; for the holder of the lock.

        :raises StartRefused: as :meth:`require_restorable`.
        """
        self.require_restorable()
        self._remove_matching((*_OURS, *_KEYS), frozenset())
        mark = os.open(self.path / _RESTORING, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(mark, _MARK.encode())
            os.fsync(mark)
        finally:
            os.close(mark)
        self._sync_directory()

    def end_restore(self) -> None:
        """Take the mark away: the directory is complete; for the holder of the lock."""
        (self.path / _RESTORING).unlink()
        self._sync_directory()

    def _remove_matching(self, patterns: Sequence[str], kept: Collection[str]) -> None:
        for path in [path for pattern in patterns for path in self.path.glob(pattern) if path.name not in kept]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _sync_directory(self) -> None:
        directory = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def record_runtime_dir(self, path: Path) -> None:
        """Record the runtime directory of the process that holds the lock, so that it is removed even after a crash."""
        if self._lock is None:
            return
        file = os.open(self._runtime_dir_record, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        os.write(file, os.fsencode(path))
        os.close(file)

    @property
    def _runtime_dir_record(self) -> Path:
        return self.path / "annex"

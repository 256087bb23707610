"""Files as the agent keeps them: replaced whole, or not at all (AGT-20 to AGT-26).

Note [Never torn]. A file is written beside the one that it replaces, under another name that begins with a dot. It has its
owner and its mode before it has a byte, is on the disk before it gets its name, and gets that by a rename, which is one
step. So a reader sees the file as it was or as it is, whenever the agent or the machine stops. A temporary file that a
killed agent left behind is removed by the next one.

Note [Owed]. A command runs after a file has changed, and the agent may be killed in between, or the command fail. So before
the rename an empty file is made, ``.NAME.svc-agent-changed``, and taken away when the command has succeeded. An agent that
finds it owes the command.

Note [Nobody in between]. All is done through the descriptor of the folder, and that is checked through it: only the owners
of the file may write there, and there is no link in the file's place. Anyone who can write to the folder could put anything
there. The folders above it are checked too, and links on the way are only followed if nobody else made them
(``svc.agent.ways``).
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Final

import attrs

from svc.agent.faults import FileFault
from svc.agent.ways import opened

_OPENED: Final = os.O_CLOEXEC | os.O_NOFOLLOW


@attrs.frozen
class Destination:
    """Where a file stands, and whose it is; ``uid``, ``gid`` and ``mode`` are numbers. ``owes``: a command follows."""

    path: Path
    uid: int
    gid: int
    mode: int
    owes: bool = False

    @property
    def mark(self) -> str:
        """The name of the file that marks something as owed (Note [Owed])."""
        return f".{self.path.name}.svc-agent-changed"


@attrs.frozen
class Placed:
    """The outcome for a file. ``replaced``: it has changed. ``owed``: its command has not succeeded yet since a change."""

    replaced: bool
    owed: bool


def place(destination: Destination, content: bytes) -> Placed:
    """Have the file hold this content, with its owner and mode; one that does already isn't touched.

    :raises FileFault: it can't, and is as it was.
    """
    with _folder(destination) as folder, _told(destination.path):
        if _holds(folder, destination, content):
            return Placed(replaced=False, owed=destination.owes and _exists(folder, destination.mark))
        name = f".{destination.path.name}.svc-agent-{token_hex(8)}.tmp"
        try:
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPENED, 0o600, dir_fd=folder)
            try:
                os.fchown(file, destination.uid, destination.gid)
                os.fchmod(file, destination.mode)
                view = memoryview(content)
                while view:
                    view = view[os.write(file, view) :]
                os.fsync(file)
            finally:
                os.close(file)
            if destination.owes:
                _mark(folder, destination)
            os.rename(name, destination.path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise
        os.fsync(folder)
    return Placed(replaced=True, owed=destination.owes)


def remove(destination: Destination) -> Placed:
    """Take a file away, where there is one.

    :raises FileFault: it can't be.
    """
    with _folder(destination) as folder, _told(destination.path):
        if not _is_file(folder, destination):
            return Placed(replaced=False, owed=destination.owes and _exists(folder, destination.mark))
        if destination.owes:
            _mark(folder, destination)
        os.unlink(destination.path.name, dir_fd=folder)
        os.fsync(folder)
    return Placed(replaced=True, owed=destination.owes)


def settle(destination: Destination) -> None:
    """Take away the mark that something is owed.

    :raises FileFault: it can't be.
    """
    with _folder(destination) as folder, _told(destination.path), contextlib.suppress(FileNotFoundError):
        os.unlink(destination.mark, dir_fd=folder)


def clean(destination: Destination) -> int:
    """Remove what a killed agent left of this file, and return how many there were (Note [Never torn]).

    A mark is removed, too, where nothing follows from a change any more.

    :raises FileFault: they can't be removed.
    """
    left = re.compile(re.escape(f".{destination.path.name}.svc-agent-") + "[0-9a-f]{16}[.]tmp")
    count = 0
    with _folder(destination) as folder, _told(destination.path):
        for name in os.listdir(folder):
            if left.fullmatch(name) and stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=folder)
                count += 1
        if not destination.owes and _exists(folder, destination.mark):
            os.unlink(destination.mark, dir_fd=folder)
    return count


def exists(destination: Destination) -> bool:
    """Return whether a file is there."""
    try:
        with _folder(destination) as folder, _told(destination.path):
            return _is_file(folder, destination)
    except FileFault:
        return False


def group_may_write(destination: Destination) -> bool:
    """Return whether the folder's group can write to it, which is taken, and worth a warning."""
    try:
        return bool(destination.path.parent.stat().st_mode & stat.S_IWGRP)
    except OSError:
        return False


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileFault(f"{path} can't be written: {error.strerror}") from None


@contextlib.contextmanager
def _folder(destination: Destination) -> Iterator[int]:
    """Open and check the folder (Note [Nobody in between])."""
    path = destination.path.parent
    owners = {0, os.geteuid(), destination.uid}

    def judge(above: Path, found: os.stat_result) -> None:
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            raise FileFault(f"everybody can write to {above}, above the folder {path}: chmod o-w {above}")
        if found.st_uid not in owners:
            raise FileFault(
                f"{above}, above the folder {path}, belongs to user {found.st_uid}, who could put another folder there: "
                f"chown root {above}"
            )

    try:
        folder = opened(path, os.O_RDONLY | os.O_DIRECTORY, judge)
    except FileNotFoundError:
        raise FileFault(f"the folder {path} does not exist: make it, or let RuntimeDirectory= of the unit do so") from None
    except OSError as error:
        raise FileFault(f"the folder {path} can't be opened: {error.strerror}") from None
    try:
        found = os.fstat(folder)
        if found.st_mode & stat.S_IWOTH:
            raise FileFault(f"everybody can write to the folder {path}: chmod o-w {path}, or choose another folder")
        if found.st_uid not in owners:
            raise FileFault(
                f"the folder {path} belongs to user {found.st_uid}, who could put anything there: chown root {path}"
            )
        yield folder
    finally:
        os.close(folder)


def _is_file(folder: int, destination: Destination) -> bool:
    """Return whether a file stands there; anything but a file is refused."""
    try:
        mode = os.stat(destination.path.name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(mode):
        raise FileFault(f"{destination.path} is a symbolic link, which is not followed: remove it, or name the file itself")
    if not stat.S_ISREG(mode):
        raise FileFault(f"{destination.path} is not a file: remove it, or choose another destination")
    return True


def _holds(folder: int, destination: Destination, content: bytes) -> bool:
    """Return whether the file is there as it should be."""
    if not _is_file(folder, destination):
        return False
    try:
        file = os.open(destination.path.name, os.O_RDONLY | os.O_NONBLOCK | _OPENED, dir_fd=folder)
    except PermissionError:  # it is another's, and so not as it should be
        return False
    with open(file, "rb") as opened:
        found = os.fstat(file)
        same = (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode), found.st_size)
        expected = (destination.uid, destination.gid, destination.mode, len(content))
        return stat.S_ISREG(found.st_mode) and same == expected and opened.read(len(content) + 1) == content


def _mark(folder: int, destination: Destination) -> None:
    # The user whom the folder belongs to may have put a pipe there, on which opening would block.
    file = os.open(destination.mark, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | _OPENED, 0o600, dir_fd=folder)
    os.close(file)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True

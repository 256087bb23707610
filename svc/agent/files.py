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
(``svc.agent.safe_paths``).
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
from svc.agent.safe_paths import open_checked

_OPEN_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW


@attrs.frozen
class Destination:
    """The path, owner and mode of a file; ``uid``, ``gid`` and ``mode`` are numbers. ``has_command``: a command follows."""

    path: Path
    uid: int
    gid: int
    mode: int
    has_command: bool = False

    @property
    def marker_name(self) -> str:
        """The name of the file that marks something as owed (Note [Owed])."""
        return f".{self.path.name}.svc-agent-changed"


@attrs.frozen
class FileChange:
    """The outcome for a file. ``replaced``: it has changed. ``command_due``: its command has not succeeded yet since a
    change.
    """

    replaced: bool
    command_due: bool


def replace_file(destination: Destination, content: bytes) -> FileChange:
    """Have the file hold this content, with its owner and mode; one that does already isn't touched.

    :raises FileFault: it can't, and is as it was.
    """
    with _open_folder(destination) as folder, _file_faults(destination.path):
        if _is_current(folder, destination, content):
            return FileChange(
                replaced=False, command_due=destination.has_command and _entry_exists(folder, destination.marker_name)
            )
        name = f".{destination.path.name}.svc-agent-{token_hex(8)}.tmp"
        try:
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN_FLAGS, 0o600, dir_fd=folder)
            try:
                os.fchown(file, destination.uid, destination.gid)
                os.fchmod(file, destination.mode)
                view = memoryview(content)
                while view:
                    view = view[os.write(file, view) :]
                os.fsync(file)
            finally:
                os.close(file)
            if destination.has_command:
                _create_marker(folder, destination)
            os.rename(name, destination.path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise
        os.fsync(folder)
    return FileChange(replaced=True, command_due=destination.has_command)


def remove_file(destination: Destination) -> FileChange:
    """Take a file away, where there is one.

    :raises FileFault: it can't be.
    """
    with _open_folder(destination) as folder, _file_faults(destination.path):
        if not _is_file(folder, destination):
            return FileChange(
                replaced=False, command_due=destination.has_command and _entry_exists(folder, destination.marker_name)
            )
        if destination.has_command:
            _create_marker(folder, destination)
        os.unlink(destination.path.name, dir_fd=folder)
        os.fsync(folder)
    return FileChange(replaced=True, command_due=destination.has_command)


def remove_marker(destination: Destination) -> None:
    """Take away the mark that something is owed.

    :raises FileFault: it can't be.
    """
    with _open_folder(destination) as folder, _file_faults(destination.path), contextlib.suppress(FileNotFoundError):
        os.unlink(destination.marker_name, dir_fd=folder)


def remove_leftovers(destination: Destination) -> int:
    """Remove what a killed agent left of this file, and return how many there were (Note [Never torn]).

    A mark is removed, too, where nothing follows from a change any more.

    :raises FileFault: they can't be removed.
    """
    left = re.compile(re.escape(f".{destination.path.name}.svc-agent-") + "[0-9a-f]{16}[.]tmp")
    count = 0
    with _open_folder(destination) as folder, _file_faults(destination.path):
        for name in os.listdir(folder):
            if left.fullmatch(name) and stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=folder)
                count += 1
        if not destination.has_command and _entry_exists(folder, destination.marker_name):
            os.unlink(destination.marker_name, dir_fd=folder)
    return count


def file_exists(destination: Destination) -> bool:
    """Return whether a file is there."""
    try:
        with _open_folder(destination) as folder, _file_faults(destination.path):
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
def _file_faults(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileFault(f"{path} can't be written: {error.strerror}") from None


@contextlib.contextmanager
def _open_folder(destination: Destination) -> Iterator[int]:
    """Open and check the folder (Note [Nobody in between])."""
    path = destination.path.parent
    owners = {0, os.geteuid(), destination.uid}

    def check_ancestor(above: Path, found: os.stat_result) -> None:
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            raise FileFault(f"everybody can write to {above}, above the folder {path}: chmod o-w {above}")
        if found.st_uid not in owners:
            raise FileFault(
                f"{above}, above the folder {path}, belongs to user {found.st_uid}, who could put another folder there: "
                f"chown root {above}"
            )

    try:
        folder = open_checked(path, os.O_RDONLY | os.O_DIRECTORY, check_ancestor)
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


def _is_current(folder: int, destination: Destination, content: bytes) -> bool:
    """Return whether the file is there as it should be."""
    if not _is_file(folder, destination):
        return False
    try:
        file = os.open(destination.path.name, os.O_RDONLY | os.O_NONBLOCK | _OPEN_FLAGS, dir_fd=folder)
    except PermissionError:  # it is another's, and so not as it should be
        return False
    with open(file, "rb") as opened:
        found = os.fstat(file)
        same = (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode), found.st_size)
        expected = (destination.uid, destination.gid, destination.mode, len(content))
        return stat.S_ISREG(found.st_mode) and same == expected and opened.read(len(content) + 1) == content


def _create_marker(folder: int, destination: Destination) -> None:
    # The user whom the folder belongs to may have put a pipe there, on which opening would block.
    file = os.open(destination.marker_name, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | _OPEN_FLAGS, 0o600, dir_fd=folder)
    os.close(file)


def _entry_exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True

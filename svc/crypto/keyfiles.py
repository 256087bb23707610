"""Files that hold a key: the data key of an embedded database, the API key of a new account's admin."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from svc.crypto.vault import new_data_key, parse_data_key
from svc.model.errors import ConfigurationInvalid, StartRefused


def data_key_file(data_dir: Path) -> Path:
    """Return the file with the data key of the embedded database, unless the operator keeps it."""
    return data_dir / "data-key"


def admin_key_file(data_dir: Path, account: str) -> Path:
    """Return the file in which a daemon leaves the API key of the admin of an account that it has made."""
    return data_dir / f"admin-key-{account}"


def read_data_key(path: Path) -> bytes | None:
    """Return the key in a file, ``None`` when there is no file.

    :raises StartRefused: it holds no key, or others than its owner can read or change it.
    :raises OSError: it can't be read.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise StartRefused(
                f"{path} must be a file that belongs to the server's user and that no other can read: chmod 600"
            )
        text = os.read(file, 1024).decode("ascii", "replace")
    finally:
        os.close(file)
    try:
        return parse_data_key(text.strip())
    except ConfigurationInvalid:
        raise StartRefused(f"{path} holds no data key: restore it from a copy") from None


def make_data_key(path: Path) -> bytes:
    """Make a data key and its file, which is safe on the disk when this returns.

    :raises OSError: it can't be written, or is there already (``FileExistsError``).
    """
    text = new_data_key()
    draft = _draft(path, text)
    try:
        # A link, unlike a rename, replaces nothing.
        os.link(draft, path)
    finally:
        draft.unlink()
    _sync_directory(path.parent)
    return parse_data_key(text)


def write_admin_key(path: Path, key: str) -> None:
    """Write an API key to a file, safe on disk when this returns, in a directory closed to others; raises ``OSError``."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _draft(path, key).replace(path)
    _sync_directory(path.parent)


def _draft(path: Path, text: str) -> Path:
    """Write a line to a new file of mode 0600 beside ``path``, and return it."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(file, "w", encoding="ascii") as stream:
        stream.write(f"{text}\n")
        stream.flush()
        os.fsync(stream.fileno())
    return draft


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

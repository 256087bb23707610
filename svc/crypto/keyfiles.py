"""Files that hold a key: the data key of an embedded database, the API key of a new account's admin."""

from __future__ import annotations

import base64
import codecs
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from svc.crypto.vault import KEYS_LIMIT, data_key_id, new_data_key, parse_data_keys
from svc.model.errors import ConfigurationInvalid, StartRefused

#: Most bytes of a file of data keys.
_LIMIT: Final = 1024


def data_key_file(data_dir: Path) -> Path:
    """Return the file with the data key of the embedded database, unless the operator keeps it."""
    return data_dir / "data-key"


def admin_key_file(data_dir: Path, account: str) -> Path:
    """Return the file in which a daemon leaves the API key of the admin of an account that it has made."""
    return data_dir / f"admin-key-{account}"


def read_data_keys(path: Path) -> tuple[bytes, ...] | None:
    """Return the keys in a file of the server's own, the newest first; ``None`` when there is no file.

    :raises StartRefused: it holds no keys, or others than its owner can read or change it.
    :raises OSError: it can't be read.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    return _read_keys(
        file, path, f"{path} must be a file that belongs to the server's user and that no other can read: chmod 600"
    )


def read_given_data_keys(path: Path) -> tuple[bytes, ...]:
    """Return the keys in a file that the operator gives, or systemd as a credential, the newest first.

    It may belong to root, and to a group that may read it, as systemd and Kubernetes have it.

    :raises StartRefused: it can't be read, holds no keys, or others can read or change it.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise StartRefused(f"the data key's file {path} can't be read: {error.strerror}") from None
    demand = (
        f"{path} must be a file of the server's user or of root, that no other user can read or change: chmod 600, or 640"
    )
    return _read_keys(file, path, demand, given=True)


def _read_keys(file: int, path: Path, demand: str, *, given: bool = False) -> tuple[bytes, ...]:
    """Read and close a file of keys; raises ``StartRefused``, with ``demand`` where others than its owner have rights."""
    try:
        status = os.fstat(file)
        owners, others = ({os.geteuid(), 0}, 0o037) if given else ({os.geteuid()}, 0o077)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in owners or status.st_mode & others:
            raise StartRefused(demand)
        text = os.read(file, _LIMIT + 1).removeprefix(codecs.BOM_UTF8).decode("ascii", "replace")
    finally:
        os.close(file)
    try:
        return parse_data_keys(text if len(text) <= _LIMIT else "")
    except ConfigurationInvalid as refusal:
        raise StartRefused(f"{path} holds no data key, which {refusal.message}: restore it from a copy") from None


def make_data_key(path: Path) -> bytes:
    """Make a data key and its file, which is safe on the disk when this returns.

    :raises OSError: it can't be written, or is there already (``FileExistsError``).
    """
    text = new_data_key()
    _create_file(path, text)
    return parse_data_keys(text)[0]


def write_data_keys(path: Path, keys: Sequence[bytes]) -> None:
    """Write data keys, the newest first, to a file of the server's own, which is safe on the disk when this returns.

    :raises OSError: it can't be written, or is there already (``FileExistsError``).
    """
    _create_file(path, "\n".join(base64.b64encode(key).decode("ascii") for key in keys))


def add_data_key(path: Path, used: frozenset[str]) -> bytes:
    """Return the first key of a file of the server's own, before which a new one is put if it is in use.

    Done twice, it adds one key. The file is safe on the disk when this returns. ``used``: the ids of keys that are, or were.

    :raises StartRefused: there is no such file, as ``read_data_keys``, or it has no room for another key.
    :raises OSError: it can't be written.
    """
    with _lock_directory(path.parent):
        keys = read_data_keys(path)
        if keys is None:
            raise StartRefused(f"there is no {path}")
        if data_key_id(keys[0]) not in used:
            return keys[0]
        if len(keys) >= KEYS_LIMIT:
            raise StartRefused(f"{path} has {len(keys)} keys: remove those that `svc data-key status` says are not needed")
        text = new_data_key()
        with path.open(encoding="ascii") as file:
            _write_draft(path, f"{text}\n{file.read().strip()}").replace(path)
        _sync_directory(path.parent)
        return parse_data_keys(text)[0]


def _create_file(path: Path, text: str) -> None:
    """Make a file that isn't there yet."""
    draft = _write_draft(path, text)
    try:
        # A link, unlike a rename, replaces nothing.
        os.link(draft, path)
    finally:
        draft.unlink()
    _sync_directory(path.parent)


@contextmanager
def _lock_directory(directory: Path) -> Iterator[None]:
    """Keep other processes that do this out of a directory."""
    file = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def write_admin_key(path: Path, key: str) -> None:
    """Write an API key to a file, safe on disk when this returns, in a directory closed to others; raises ``OSError``."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write_draft(path, key).replace(path)
    _sync_directory(path.parent)


def _write_draft(path: Path, text: str) -> Path:
    """Write a text and a line end to a new file of mode 0600 beside ``path``, and return it."""
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

"""Versions of the state that commands received, kept for later commands: what one has written, the next one reads.

Note [Files without content]. A version is the name of an empty file, with its account, and was received when the file was
changed. So commands that run side by side don't overwrite each other's, and need no lock.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import platformdirs

from svc.model.clocks import WallClock
from svc.model.versions import MAX_VERSIONS, StateVersion
from svc.workload.versions import ReceivedVersion, Versions


def versions_directory() -> Path:
    """Return the directory of the files (Note [Files without content])."""
    return Path(platformdirs.user_state_dir("svc")) / "versions"


class SavedVersions(Versions):
    """Versions in an account, from any server; a failure to keep them makes no command fail."""

    def __init__(self, account: str, wall: WallClock) -> None:
        super().__init__(wall.seconds)
        self._prefix = hashlib.sha256(account.encode()).hexdigest()[:32]
        with suppress(OSError):
            for _, received in self._version_files():
                super().add(received)

    def add(self, received: ReceivedVersion) -> bool:
        """Take a version, and keep it, in place of older ones of its system."""
        newest = super().add(received)
        if newest:
            with suppress(OSError):
                self._save_version(received)
        return newest

    def _save_version(self, received: ReceivedVersion) -> None:
        directory = versions_directory()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = directory / f"{self._prefix}-{received.version}"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        os.utime(path, (received.received_at, received.received_at))
        files = sorted(self._version_files(), key=lambda file: file[1].received_at, reverse=True)
        for place, (other, each) in enumerate(files):
            if place >= MAX_VERSIONS or received.is_newer_than(each.version) or not self.remembers(each):
                other.unlink(missing_ok=True)

    def _version_files(self) -> Iterator[tuple[Path, ReceivedVersion]]:
        """Return the files of this account."""
        for path in versions_directory().glob(f"{self._prefix}-*"):
            version = StateVersion.parse_or_none(path.name.partition("-")[2])
            if version is not None:
                with suppress(FileNotFoundError):
                    yield path, ReceivedVersion(version, path.stat().st_mtime)

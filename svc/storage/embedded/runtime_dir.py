"""The runtime directory: outside the data directory, for a short path to the socket and programs for another user.

One process makes it for itself in the system's temporary directory, under a name that nobody could foresee, and no other
takes anything over from it. So there is nothing that a stranger could prepare there.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

_PREFIX: Final = "svc-"


@attrs.define
class RuntimeDir:
    """A runtime directory. It is made when first used, and ``on_made`` is called with its path then."""

    on_made: Callable[[Path], None]
    _path: Path | None = None
    _file: int = -1
    _links: dict[Path, Path] = attrs.field(factory=dict)

    @property
    def path(self) -> Path:
        """Return its path. Its mode is 0700; root's is 0711, since PostgreSQL runs as another user then.

        :raises OSError: it can't be made.
        """
        if self._path is None:
            self._path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self.on_made(self._path)
            if os.geteuid() == 0:
                self._path.chmod(0o711)
            self._file = os.open(self._path, os.O_RDONLY)
            fcntl.flock(self._file, fcntl.LOCK_SH)  # systemd-tmpfiles leaves a locked directory alone
        return self._path

    def link(self, name: str, target: Path) -> Path:
        """Make a symbolic link to ``target`` and return its path."""
        link = self.path / name
        link.symlink_to(target)
        self._links[link] = target
        return link

    def touch_times(self) -> None:
        """Update its times, if it was made; to be called every few hours, since cleaners of temporary files remove old ones.

        :raises OSError: it has been removed already, and can't be repaired.
        """
        if self._path is not None:
            os.utime(self._path)
        for link, target in self._links.items():
            if not link.is_symlink():
                link.symlink_to(target)
            os.utime(link, follow_symlinks=False)

    def remove(self) -> None:
        """Remove it with all that is in it, if it was made."""
        if self._path is not None:
            os.close(self._file)
            remove_directory(self._path)
            self._path, self._file = None, -1
            self._links.clear()


def remove_directory(path: Path) -> None:
    """Remove a runtime directory of this user; anything else that stands under its path is left alone."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if path.name.startswith(_PREFIX) and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
        shutil.rmtree(path, ignore_errors=True)

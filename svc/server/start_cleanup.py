"""The files that a start has made, removed when the start is interrupted, or by the next one (CFG-14)."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from svc.settings.config import Settings
from svc.settings.parsers import STANDARD_OUTPUT
from svc.storage.embedded.directory import DataDirectory
from svc.storage.embedded.runtime_dir import RuntimeDir
from svc.storage.embedded.server import PostgresServer


class AuditFileRemover:
    """Removes the audit's file again if a start has made it, and if nothing was written to it by then."""

    def __init__(self, settings: Settings) -> None:
        self._file = settings.audit_file
        self._is_ours = False

    def begin(self) -> None:
        """Note whether the file is missing: from now on this start may make it."""
        self._is_ours = self._file is not None and self._file != STANDARD_OUTPUT and not os.path.lexists(self._file)

    def remove(self) -> None:
        """Remove it."""
        with suppress(OSError):  # it may be gone
            if self._file is not None and self._is_ours and self._file.stat().st_size == 0:
                self._file.unlink()


async def remove_directory(reactor: Any, path: Path) -> bool:
    """Remove a data directory that nobody uses, with the PostgreSQL that a killed ``svc`` left in it; return whether.

    :raises StartRefused: that PostgreSQL doesn't end, or the directory is another user's.
    :raises OSError: it can't be removed.
    """
    directory = DataDirectory(Path(os.path.abspath(path)))
    if directory.take_lock(serving=False) is not None:
        return False
    try:
        await PostgresServer(reactor, directory, RuntimeDir(directory.record_runtime_dir), True).stop_leftovers()
        shutil.rmtree(directory.path)
    finally:
        directory.release()
    return True

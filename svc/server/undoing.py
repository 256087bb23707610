"""What a start has made on the disk, removed when the start is interrupted, or by the next one (CFG-14)."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import attrs

from svc.model.errors import StartRefused
from svc.settings.config import Settings
from svc.settings.parsers import STANDARD_OUTPUT
from svc.storage.embedded.directory import DataDirectory, Standing
from svc.storage.embedded.runtime_dir import RuntimeDir
from svc.storage.embedded.server import PostgresServer


@attrs.frozen
class Undoing:
    """The data directory as it was found, and the audit's file, if it wasn't there."""

    directory: DataDirectory
    before: Standing
    audit: Path | None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Look at both, before anything is made."""
        directory = DataDirectory(Path(os.path.abspath(settings.data_dir)))
        audit = settings.audit_file
        new = audit is not None and audit != STANDARD_OUTPUT and not os.path.lexists(audit)
        return cls(directory, directory.standing(), Path(audit) if audit is not None and new else None)

    def undo(self) -> None:
        """Remove what was made since, unless another process uses the directory by now.

        A database that a URL names keeps its schema and its account, whose key the next start shows.
        """
        with suppress(OSError):  # it may not be ours, or may be gone
            if self.audit is not None and self.audit.stat().st_size == 0:
                self.audit.unlink()
        with suppress(OSError, StartRefused):
            changed = self.directory.path.is_dir() and self.directory.standing() != self.before
            if changed and self.directory.lock(serving=False) is None:
                self.directory.undo(self.before)


async def remove_directory(reactor: Any, path: Path) -> bool:
    """Remove a data directory that nobody uses, with the PostgreSQL that a killed ``svc`` left in it; return whether.

    :raises StartRefused: that PostgreSQL doesn't end, or the directory is another user's.
    :raises OSError: it can't be removed.
    """
    directory = DataDirectory(Path(os.path.abspath(path)))
    if directory.lock(serving=False) is not None:
        return False
    try:
        await PostgresServer(reactor, directory, RuntimeDir(directory.record_runtime_dir), True).take_over()
        shutil.rmtree(directory.path)
    finally:
        directory.release()
    return True

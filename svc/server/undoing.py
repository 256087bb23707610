"""The files that a start has made, removed when the start is interrupted, or by the next one (CFG-14)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from svc.settings.config import Settings
from svc.settings.parsers import STANDARD_OUTPUT
from svc.storage.embedded.directory import DataDirectory
from svc.storage.embedded.runtime_dir import RuntimeDir
from svc.storage.embedded.server import PostgresServer


def audit_file_remover(settings: Settings) -> Callable[[], None]:
    """Return what removes the audit's file again if it isn't there yet, and if nothing was written to it by then."""
    audit = settings.audit_file
    new = audit is not None and audit != STANDARD_OUTPUT and not os.path.lexists(audit)

    def remove() -> None:
        with suppress(OSError):  # it may be gone
            if audit is not None and new and audit.stat().st_size == 0:
                audit.unlink()

    return remove


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

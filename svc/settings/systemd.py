"""The environment variables that systemd sets for a unit's processes, and the default destination of audit records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

import attrs

from svc.settings.parsers import STANDARD_OUTPUT


@attrs.frozen
class SystemdUnit:
    """A unit's folder for logs, the stream that the journal reads, and the folder of credentials (systemd.exec(5)); the
    socket at which systemd hears of the service, and within how many seconds it wants to hear again from the process of this
    id (sd_watchdog_enabled(3)).
    """

    logs: Path | None = None
    journal: str | None = None
    credentials: Path | None = None
    notify: str | None = None
    watchdog: float | None = None
    watchdog_pid: int | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """Read ``LOGS_DIRECTORY``, ``JOURNAL_STREAM``, ``CREDENTIALS_DIRECTORY``, ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and
        ``WATCHDOG_PID``.
        """
        logs = environ.get("LOGS_DIRECTORY", "").partition(":")[0]
        credentials = environ.get("CREDENTIALS_DIRECTORY")
        return cls(
            Path(logs) if logs else None,
            environ.get("JOURNAL_STREAM"),
            Path(credentials) if credentials else None,
            environ.get("NOTIFY_SOCKET") or None,
            None if not (microseconds := _read_number(environ, "WATCHDOG_USEC")) else microseconds / 1e6,
            _read_number(environ, "WATCHDOG_PID"),
        )

    def is_journal(self, stream: tuple[int, int] | None) -> bool:
        """Return whether the journal reads the stream of this device and inode.

        A child of a unit's process, in a terminal perhaps, has inherited the variable and not the stream.
        """
        return stream is not None and self.journal == f"{stream[0]}:{stream[1]}"

    def audit_file(
        self,
        chosen: Path | None,
        data_dir: Path,
        *,
        daemon: bool,
        stdout: tuple[int, int] | None,
        terminal: bool = False,
    ) -> Path | None:
        """Return the file that audit records go to; ``None`` for standard output (AUD-15).

        Nobody reads a daemon's standard output, the journal, where a unit's goes, may drop what comes too fast, and a
        terminal keeps nothing: records go there where that is ``chosen``. ``stdout`` is the device and the inode of standard
        output, and ``terminal`` whether it is one.
        """
        if chosen is not None:
            return None if chosen == STANDARD_OUTPUT else chosen
        if self.logs is None and not daemon and not terminal and not self.is_journal(stdout):
            return None
        return (self.logs or data_dir) / "audit.log"


def _read_number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else None

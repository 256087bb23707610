"""Where audit records go: a file, or standard output, and a syslog receiver besides."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

import attrs
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import Logger

from svc.audit.file_lock import SharedFileLock
from svc.audit.file_sinks import FileSink, StandardOutputSink
from svc.audit.journal import ISink, Journal
from svc.audit.record import Chain
from svc.audit.syslog import SyslogSink
from svc.model.clocks import WallClock
from svc.model.errors import StartRefused
from svc.model.events import EventSource
from svc.settings.config import Settings

#: Log records keep the name that they had, until 2.0.
log = Logger("svc.server.parts")


@attrs.frozen(slots=False, eq=False)
class AuditOutput:
    """The destinations of audit records that the settings and the process's streams make.

    ``key`` is that of the digests. ``lock`` orders the writes of several processes, ``syslog`` leads to the receiver.
    """

    settings: Settings
    key: bytes = attrs.field(repr=False)
    lock: SharedFileLock | None
    syslog: IStreamClientEndpoint | None
    daemon: bool = attrs.field(kw_only=True)

    @cached_property
    def path(self) -> Path | None:
        """The file; ``None`` where records go to standard output."""
        settings, stream = self.settings, sys.__stdout__
        return settings.unit.audit_file(
            settings.audit_file,
            settings.data_dir,
            daemon=self.daemon,
            stdout=_identify_stream(stream),
            terminal=_is_terminal(stream),
        )

    def make_journal(self, reactor: Any, wall: WallClock, count_lost: Callable[[int], object] | None) -> Journal:
        """Return the journal that writes there.

        :raises StartRefused: records can't be written where they are to go.
        """
        this, refuses = (
            EventSource(os.uname().nodename, self.settings.dialect.prefix),
            self.settings.audit_failure == "refuse",
        )
        return Journal(this, reactor, wall, self._make_sinks(reactor), refuses=refuses, count_lost=count_lost)

    def _make_sinks(self, reactor: Any) -> list[ISink]:
        settings, standard = self.settings, sys.__stdout__
        sinks: list[ISink]
        if self.path is not None:
            if settings.audit_file is None:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            sinks = [FileSink(reactor, self.path, self.lock, self._resume_chain())]
        elif standard is not None:
            sinks = [StandardOutputSink(reactor, standard.fileno(), self.lock, self._resume_chain())]
        else:
            raise StartRefused("there is no standard output for audit records: set --audit-file")
        if self.syslog is not None and settings.audit_syslog is not None:
            sinks.append(SyslogSink(reactor, self.syslog, settings.audit_syslog))
        return sinks

    def _resume_chain(self) -> Chain:
        """Return the chain of records, which goes on where it ended (``audit.record``, Note [The end])."""
        if self.lock is not None and self.lock.has_chain:
            return Chain(self.key, self.lock.chain)
        chain = Chain(self.key, None if self.lock is None else self.lock.chain, self.settings.data_dir / "audit-chain")
        chain.resume_chain(self.path)
        return chain

    def log_destination(self) -> None:
        """Log where records go, or warn that they may be lost there."""
        if self.path is not None:
            log.info("Audit records are appended to {path}", path=str(self.path))
        elif self.daemon and self.syslog is None:
            log.warn("A daemon's standard output goes nowhere, and so do audit records: name a file as audit_file")
        elif self.settings.unit.is_journal(_identify_stream(sys.__stdout__)):
            log.warn(
                "Audit records go to the journal, which drops what comes too fast unless the unit has"
                " LogRateLimitIntervalSec=0: name a file as audit_file"
            )


def _is_terminal(stream: TextIO | None) -> bool:
    """Return whether a standard stream is a terminal; one that is closed is none."""
    try:
        return stream is not None and os.isatty(stream.fileno())
    except (OSError, ValueError):
        return False


def _identify_stream(stream: TextIO | None) -> tuple[int, int] | None:
    """Return the device and the inode of a standard stream; ``None`` where it is closed."""
    try:
        status = os.fstat(stream.fileno()) if stream is not None else None
    except (OSError, ValueError):
        return None
    return None if status is None else (status.st_dev, status.st_ino)

"""Records as lines of a file, or of standard output, one after the other.

Note [Whole lines]. On a full disk a line can end in its middle. Nothing else is written before the rest of it; where that
can't follow, since the process ended or the file was replaced, the torn line is ended before the next. So no two records
ever share a line.

Note [A pipe that nobody reads]. Standard output may be a pipe, which the process's log shares. Writing the log to a full
pipe would stop the server for good, so records only take half of it, and none is begun for which there is no room.

Note [Seen without a record]. An idle server is to know that its next record will be taken, and writes none to find out: it
checks that the open file is still the one at its place (otherwise what is there is opened, as by SIGHUP), that the disk is
writable and has room for the longest record; that the pipe has a reader, and room. Otherwise a record finds the answer.

A record that was taken has been handed to the operating system, in order and whole. It outlives the process, but not the
machine's power: no ``fsync`` follows, which would cost more than all the rest of a request.
"""

from __future__ import annotations

import array
import fcntl
import itertools
import os
import select
import stat
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

from svc.audit.backlog import Backlog, ISink, first
from svc.audit.record import RECORD_LIMIT
from svc.model.errors import StartRefused

#: How many bytes are written in one turn of the reactor, and how many times when the server stops: all of a backlog.
PIECE: Final = 1024 * 1024
PIECES: Final = 16

#: How long to wait before a write is tried again, in seconds: of a file that failed, and of a pipe that is full.
RETRY: Final = 1.0
SOON: Final = 0.02

#: Bytes that fit whenever anything does, where the room isn't known; and the capacity of a pipe that doesn't tell it.
_LITTLE: Final = 4096
_PIPE: Final = 16 * 1024


class _Lines:
    """Lines written to a descriptor, and how much of the oldest is written."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._begun = 0

    def write(self, records: list[bytes]) -> int:
        """Write as many of the records as can be written now, the first as far as that goes; how many are whole.

        :raises OSError: nothing could be written.
        """
        text = b"\n".join([*records, b""])
        written = os.write(self.descriptor, text[self._begun :] if self._begun else text)
        if self._begun + written == len(text):
            self._begun = 0
            return len(records)
        self._begun += written
        count = 0
        for record in records:
            if self._begun <= len(record):
                break
            self._begun -= len(record) + 1
            count += 1
        return count


class _Sink:
    """The common part of the sinks of this module."""

    def __init__(self, clock: IReactorTime, name: str) -> None:
        self.name, self._clock = name, clock
        self._lines: _Lines | None = None
        self._backlog: Backlog | None = None
        self._again: IDelayedCall | None = None

    def take(self, records: Sequence[bytes]) -> int:
        if self._lines is None or self._again is not None:
            return 0
        try:
            fitting = self._fitting(self._lines, first(records, PIECE))
            return self._lines.write(fitting) if fitting else 0
        except OSError:
            return 0

    def wake(self) -> None:
        if self._again is None:
            self._write()

    async def close(self) -> None:
        for _ in range(PIECES):
            self._wait_no_more()
            if self._backlog:
                self._write()
        self._wait_no_more()

    def _write(self) -> None:
        self._again = None
        backlog = self._backlog
        assert backlog is not None
        try:
            lines = self._opened()
            if not backlog:
                if backlog.trouble is not None:
                    backlog.recovered()
                return
            records = self._fitting(lines, backlog.head(PIECE))
            count = lines.write(records) if records else 0
        except OSError as error:
            self._later(RETRY)
            backlog.failed(error.strerror or str(error))
            return
        if count < len(backlog):
            self._later(0 if records else SOON)
        if count:
            backlog.taken(count)

    def _wait_no_more(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _later(self, seconds: float) -> None:
        self._again = self._clock.callLater(seconds, self._write)

    def _opened(self) -> _Lines:
        raise NotImplementedError

    def _fitting(self, lines: _Lines, records: list[bytes]) -> list[bytes]:  # noqa: ARG002 - a file takes all
        """Return the first of the records, as far as they can be written now without waiting."""
        return records


@implementer(ISink)
class FileSink(_Sink):
    """Appends to a file, which it makes unless it is there; only its owner may read it."""

    def __init__(self, clock: IReactorTime, path: Path) -> None:
        super().__init__(clock, str(path))
        self._path = path

    async def open(self, backlog: Backlog) -> None:
        """See ``ISink``."""
        self._backlog = backlog
        try:
            self._opened()
        except OSError as error:
            raise StartRefused(f"the audit file {self._path} can't be written: {error.strerror}") from None

    def ready(self) -> bool:
        """See ``ISink``, and Note [Seen without a record]."""
        try:
            if not os.path.samestat(os.stat(self._path), os.fstat(self._opened().descriptor)):
                self.reopen()
        except OSError:
            self.reopen()
        return self._lines is not None and _has_room(self._lines.descriptor)

    def reopen(self) -> None:
        """See ``ISink``. A line of which the old file has a part is written to the new one as a whole."""
        self._let_go()
        self._wait_no_more()
        self._write()

    async def close(self) -> None:
        """See ``ISink``."""
        await super().close()
        self._let_go()

    def _let_go(self) -> None:
        if self._lines is not None:
            os.close(self._lines.descriptor)
            self._lines = None

    def _opened(self) -> _Lines:
        """Return the file, which may have to be opened again first; a torn line at its end is ended then."""
        if self._lines is None:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = os.open(self._path, flags, 0o600)
            try:
                _end_line(descriptor)
            except OSError:
                os.close(descriptor)
                raise
            self._lines = _Lines(descriptor)
        return self._lines


@implementer(ISink)
class StandardOutputSink(_Sink):
    """Writes to a descriptor that others write whole lines to as well: the standard output of the process."""

    def __init__(self, clock: IReactorTime, descriptor: int) -> None:
        super().__init__(clock, "standard output")
        self._descriptor = descriptor
        self._poll: select.poll | None = None
        self._half: int | None = None

    async def open(self, backlog: Backlog) -> None:
        """See ``ISink``."""
        self._backlog = backlog
        try:
            mode = os.fstat(self._descriptor).st_mode
        except OSError as error:
            why = f"there is no standard output for audit records ({error.strerror}): set --audit-file"
            raise StartRefused(why) from None
        if stat.S_ISFIFO(mode):
            self._half = _capacity(self._descriptor) // 2
        elif not stat.S_ISREG(mode):
            self._poll = select.poll()
            self._poll.register(self._descriptor, select.POLLOUT)

    def ready(self) -> bool:
        """See ``ISink``, and Note [Seen without a record]."""
        try:
            if self._half is not None:
                # A pipe without a reader shows up, though no event is asked for.
                pipe = select.poll()
                pipe.register(self._descriptor, 0)
                return not pipe.poll(0) and self._half - _unread(self._descriptor) > RECORD_LIMIT
            if self._poll is not None:
                return [event for _, event in self._poll.poll(0)] == [select.POLLOUT]
            return _has_room(self._descriptor)
        except OSError:
            return False

    def reopen(self) -> None:
        """See ``ISink``: there is nothing to be opened."""

    def _opened(self) -> _Lines:
        if self._lines is None:
            self._lines = _Lines(self._descriptor)
        return self._lines

    def _fitting(self, lines: _Lines, records: list[bytes]) -> list[bytes]:
        """Note [A pipe that nobody reads]."""
        if self._half is not None:
            return _within(records, self._half - _unread(lines.descriptor))
        if self._poll is not None:
            return first(records, _LITTLE) if self._poll.poll(0) else []
        return records


def _within(records: list[bytes], room: int) -> list[bytes]:
    """Return the first of the records, as far as there is room for them."""
    ends = itertools.accumulate(len(record) + 1 for record in records)
    return [record for record, end in zip(records, ends, strict=True) if end <= room]


def _has_room(descriptor: int) -> bool:
    """Return whether a file can grow by the longest record, by what its disk says of itself; some say nothing."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return True
    disk = os.fstatvfs(descriptor)
    writable = not disk.f_flag & os.ST_RDONLY
    return writable and (disk.f_blocks == 0 or disk.f_bavail * disk.f_frsize >= RECORD_LIMIT)


def _end_line(descriptor: int) -> None:
    """Note [Whole lines]."""
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size and os.pread(descriptor, 1, status.st_size - 1) != b"\n":
        os.write(descriptor, b"\n")


def _capacity(descriptor: int) -> int:
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
    except (AttributeError, OSError):
        return _PIPE


def _unread(descriptor: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]

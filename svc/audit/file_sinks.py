"""Records as lines of a file, or of standard output, one after the other.

Note [Whole lines]. On a full disk a line can end in its middle. Nothing else is written before the rest of it; where that
can't follow, since the process ended or the file was replaced, the torn line is ended before the next. So no two records
ever share a line.

Note [A pipe that nobody reads]. Standard output may be a pipe, which the process's log shares. Writing the log to a full
pipe would block the server for good, so records only take half of it, and none is begun without enough room.

Note [Seen without a record]. An idle server has to know that its next record will be taken, and writes none to find out: it
checks that the open file is still the one at its path (otherwise the one there is opened, as by SIGHUP), that the disk is
writable and has room for the longest record; that the pipe has a reader, and room. Where that can't be known, a record is
written.

Note [Several processes]. Where several processes write to one file, each write is done under a lock (``file_lock``): the
room is checked, a torn line ended, numbers of the chain taken and a line written while no other process does so. A lock that
another holds is waited for like room. When a file is opened again, all processes do so before they write: so lines are in
order.

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

from svc.audit.file_lock import SharedFileLock
from svc.audit.journal import Backlog, ISink, take_up_to
from svc.audit.record import RECORD_LIMIT, Chain
from svc.model.errors import StartRefused

#: How many bytes are written in one turn of the reactor, and how many times when the server stops: all of a backlog.
WRITE_BYTES: Final = 1024 * 1024
MAX_WRITES_AT_STOP: Final = 16

#: So many records are written in one turn, whatever they are.
_FEW_RECORDS: Final = WRITE_BYTES // RECORD_LIMIT

#: How long to wait before a write is tried again, in seconds: of a file that failed, and of a pipe that is full.
RETRY_SECONDS: Final = 1.0
FULL_PIPE_SECONDS: Final = 0.02

#: Bytes that fit whenever anything does, where the room isn't known; and the capacity of a pipe whose capacity isn't known.
_SMALL_WRITE: Final = 4096
_DEFAULT_PIPE_CAPACITY: Final = 16 * 1024


class _LineWriter:
    """Lines written to a descriptor, and how much of the oldest is written."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._written_bytes = 0

    @property
    def is_complete(self) -> bool:
        """Whether the last line that was written is whole."""
        return self._written_bytes == 0

    def write(self, records: list[bytes]) -> int:
        """Write as many of the records as can be written now, the first as far as that goes; how many are whole.

        :raises OSError: nothing could be written.
        """
        text = b"\n".join([*records, b""])
        written = os.write(self.descriptor, text[self._written_bytes :] if self._written_bytes else text)
        if self._written_bytes + written == len(text):
            self._written_bytes = 0
            return len(records)
        self._written_bytes += written
        count = 0
        for record in records:
            if self._written_bytes <= len(record):
                break
            self._written_bytes -= len(record) + 1
            count += 1
        return count


class _DescriptorSink:
    """The common part of the sinks of this module."""

    def __init__(self, clock: IReactorTime, name: str, turn: SharedFileLock | None, chain: Chain | None) -> None:
        self.name, self._clock, self._lock, self._chain = name, clock, turn, chain
        self._writer: _LineWriter | None = None
        self._backlog: Backlog | None = None
        self._retry: IDelayedCall | None = None
        #: Whether the destination may have less room than a write needs: then ``_select_fitting`` decides.
        self._has_limited_room = False

    def try_write(self, records: Sequence[bytes]) -> Sequence[bytes]:
        if self._writer is None or self._retry is not None:
            return ()
        try:
            return self._write_locked(list(records) if len(records) <= _FEW_RECORDS else take_up_to(records, WRITE_BYTES))
        except OSError:
            return ()

    def drain_backlog(self) -> None:
        if self._retry is None:
            self._write_backlog()

    async def close(self) -> None:
        for _ in range(MAX_WRITES_AT_STOP):
            self._cancel_retry()
            if self._backlog:
                self._write_backlog()
        self._cancel_retry()
        if self._chain is not None:
            self._chain.close()

    def _write_backlog(self) -> None:
        self._retry = None
        backlog = self._backlog
        assert backlog is not None
        try:
            if not self._reopen_if_needed():
                self._schedule_retry(FULL_PIPE_SECONDS)
                return
            if not backlog:
                self._open_writer()
                if backlog.failure is not None:
                    backlog.mark_recovered()
                return
            written = self._write_locked(backlog.oldest_records(WRITE_BYTES))
        except OSError as error:
            self._schedule_retry(RETRY_SECONDS)
            backlog.mark_failed(error.strerror or str(error))
            return
        count = len(written)
        if count < len(backlog):
            self._schedule_retry(0 if count else FULL_PIPE_SECONDS)
        if count:
            backlog.mark_delivered(count, written)

    def _write_locked(self, records: list[bytes]) -> list[bytes]:
        """Write as many of the records as can be written now, and return those that are whole (Note [Several processes]).

        :raises OSError: nothing could be written.
        """
        turn, chain, lines, whole = self._lock, self._chain, self._writer, False
        if turn is not None and not turn.acquire_lock():
            return []
        try:
            if turn is not None:
                lines = self._open_writer()
                self._repair_torn_line(turn, lines)
                turn.set_mark()
            elif lines is None:
                lines = self._open_writer()
            whole = True
            fitting = records if chain is None else chain.stamp_records(records)
            if self._has_limited_room:
                fitting = self._select_fitting(lines, fitting)
            count = lines.write(fitting) if fitting else 0
            if chain is not None:
                chain.advance_end(count)
            return fitting[:count]
        finally:
            if turn is not None and (self._writer is None or self._writer.is_complete):
                turn.release_lock(whole=whole)

    def _repair_torn_line(self, turn: SharedFileLock, lines: _LineWriter) -> None:
        """End the line that a process has torn by its death, if one has, and find the end of the chain."""
        if turn.has_torn_line and lines.is_complete:
            _end_line(lines.descriptor)
            if self._chain is not None:
                self._chain.recover_end(lines.descriptor)
            turn.clear_mark()

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _schedule_retry(self, seconds: float) -> None:
        self._retry = self._clock.callLater(seconds, self._write_backlog)

    def _reopen_if_needed(self) -> bool:
        """Return whether what had to be opened again is closed; otherwise another process has the lock."""
        return True

    def _open_writer(self) -> _LineWriter:
        assert self._writer is not None
        return self._writer

    def _select_fitting(self, lines: _LineWriter, records: list[bytes]) -> list[bytes]:
        """Return the first of the records, as far as they can be written now without waiting."""
        raise NotImplementedError


@implementer(ISink)
class FileSink(_DescriptorSink):
    """Appends to a file, which it makes unless it is there; only its owner may read it."""

    def __init__(
        self, clock: IReactorTime, path: Path, turn: SharedFileLock | None = None, chain: Chain | None = None
    ) -> None:
        super().__init__(clock, str(path), turn, chain)
        self._path = path
        #: Whether it has to be opened again; and how often that had been done when this process opened it.
        self._must_reopen = False
        self._reopen_count = 0

    async def open(self, backlog: Backlog) -> None:
        """See ``ISink``."""
        self._backlog = backlog
        try:
            self._open_writer()
        except OSError as error:
            raise StartRefused(f"the audit file {self._path} can't be written: {error.strerror}") from None

    def is_ready(self) -> bool:
        """See ``ISink``, and Note [Seen without a record]."""
        try:
            if not os.path.samestat(os.stat(self._path), os.fstat(self._open_writer().descriptor)):
                self.reopen()
        except OSError:
            self.reopen()
        return self._writer is not None and _has_room(self._writer.descriptor)

    def reopen(self) -> None:
        """See ``ISink``. A line of which the old file has a part is written to the new one as a whole."""
        self._must_reopen = True
        self._cancel_retry()
        self._write_backlog()

    def _reopen_if_needed(self) -> bool:
        """Close the file that has to be opened again, and have the other processes do so (Note [Several processes])."""
        turn = self._lock
        if not self._must_reopen:
            return True
        if turn is not None:
            if not turn.acquire_lock():
                return False
            try:
                if turn.has_torn_line:
                    self._repair_torn_line(turn, self._open_writer())
                turn.count_reopening()
            finally:
                turn.release_lock(whole=not turn.has_torn_line)
        self._must_reopen = False
        self._close_file()
        return True

    async def close(self) -> None:
        """See ``ISink``."""
        await super().close()
        self._close_file()

    def _close_file(self) -> None:
        if self._writer is not None:
            os.close(self._writer.descriptor)
            if self._lock is not None and not self._writer.is_complete:
                self._lock.release_lock(whole=False)
            self._writer = None

    def _open_writer(self) -> _LineWriter:
        """Return the file, which may have to be opened again first; a torn line at its end is ended then."""
        if (
            self._lock is not None
            and self._lock.reopen_count != self._reopen_count
            and (self._writer is None or self._writer.is_complete)
        ):
            self._close_file()
            self._reopen_count = self._lock.reopen_count
        if self._writer is None:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = os.open(self._path, flags, 0o600)
            try:
                # Where others write, the end may be a line that one of them is about to end.
                if self._lock is None:
                    _end_line(descriptor)
            except OSError:
                os.close(descriptor)
                raise
            self._writer = _LineWriter(descriptor)
        return self._writer


@implementer(ISink)
class StandardOutputSink(_DescriptorSink):
    """Writes to a descriptor that others write whole lines to as well: the standard output of the process."""

    def __init__(
        self, clock: IReactorTime, descriptor: int, turn: SharedFileLock | None = None, chain: Chain | None = None
    ) -> None:
        super().__init__(clock, "standard output", turn, chain)
        self._descriptor = descriptor
        self._poll: select.poll | None = None
        self._pipe_limit: int | None = None

    async def open(self, backlog: Backlog) -> None:
        """See ``ISink``."""
        self._backlog = backlog
        try:
            mode = os.fstat(self._descriptor).st_mode
        except OSError as error:
            why = f"there is no standard output for audit records ({error.strerror}): set --audit-file"
            raise StartRefused(why) from None
        if stat.S_ISFIFO(mode):
            self._has_limited_room = True
            self._pipe_limit = _pipe_capacity(self._descriptor) // 2
        elif not stat.S_ISREG(mode):
            self._has_limited_room = True
            self._poll = select.poll()
            self._poll.register(self._descriptor, select.POLLOUT)
        self._writer = _LineWriter(self._descriptor)

    def is_ready(self) -> bool:
        """See ``ISink``, and Note [Seen without a record]."""
        try:
            if self._pipe_limit is not None:
                # A pipe without a reader is reported, though no event is requested.
                pipe = select.poll()
                pipe.register(self._descriptor, 0)
                return not pipe.poll(0) and self._pipe_limit - _unread_bytes(self._descriptor) > RECORD_LIMIT
            if self._poll is not None:
                return [event for _, event in self._poll.poll(0)] == [select.POLLOUT]
            return _has_room(self._descriptor)
        except OSError:
            return False

    def reopen(self) -> None:
        """See ``ISink``: there is nothing to be opened."""

    def _select_fitting(self, lines: _LineWriter, records: list[bytes]) -> list[bytes]:
        """Note [A pipe that nobody reads]."""
        if self._pipe_limit is not None:
            return _limit_to_room(records, self._pipe_limit - _unread_bytes(lines.descriptor))
        if self._poll is not None:
            return take_up_to(records, _SMALL_WRITE) if self._poll.poll(0) else []
        return records


def _limit_to_room(records: list[bytes], room: int) -> list[bytes]:
    """Return the first of the records, as far as there is room for them."""
    ends = itertools.accumulate(len(record) + 1 for record in records)
    return [record for record, end in zip(records, ends, strict=True) if end <= room]


def _has_room(descriptor: int) -> bool:
    """Return whether a file can grow by the longest record, as its file system reports; some report nothing."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return True
    disk = os.fstatvfs(descriptor)
    writable = not disk.f_flag & os.ST_RDONLY
    return writable and (disk.f_blocks == 0 or disk.f_bavail * disk.f_frsize >= RECORD_LIMIT)


def _end_line(descriptor: int) -> None:
    """Note [Whole lines]. The standard output may be a file that can't be read: there an empty line does no harm."""
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size:
        try:
            last = os.pread(descriptor, 1, status.st_size - 1)
        except OSError:
            last = b""
        if last != b"\n":
            os.write(descriptor, b"\n")


def _pipe_capacity(descriptor: int) -> int:
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
    except (AttributeError, OSError):
        return _DEFAULT_PIPE_CAPACITY


def _unread_bytes(descriptor: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]

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

Note [Several processes]. Where several processes write to one place, each write is done in a turn (``shared_turn``): the
room is checked, a torn line ended, numbers of the chain taken and a line written while no other process does so. A turn that
another has is waited for like room. When a file is opened again, all processes do so before they write: so lines are in
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

from svc.audit.backlog import Backlog, ISink, first
from svc.audit.chain import Chain
from svc.audit.record import RECORD_LIMIT
from svc.audit.shared_turn import SharedTurn
from svc.model.errors import StartRefused

#: How many bytes are written in one turn of the reactor, and how many times when the server stops: all of a backlog.
PIECE: Final = 1024 * 1024
PIECES: Final = 16

#: So many records are written in one turn, whatever they are.
_FEW: Final = PIECE // RECORD_LIMIT

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

    @property
    def whole(self) -> bool:
        """Whether the last line that was written is whole."""
        return self._begun == 0

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

    def __init__(self, clock: IReactorTime, name: str, turn: SharedTurn | None, chain: Chain | None) -> None:
        self.name, self._clock, self._turn, self._chain = name, clock, turn, chain
        self._lines: _Lines | None = None
        self._backlog: Backlog | None = None
        self._again: IDelayedCall | None = None

    def take(self, records: Sequence[bytes]) -> Sequence[bytes]:
        if self._lines is None or self._again is not None:
            return ()
        try:
            return self._put(list(records) if len(records) <= _FEW else first(records, PIECE))
        except OSError:
            return ()

    def wake(self) -> None:
        if self._again is None:
            self._write()

    async def close(self) -> None:
        for _ in range(PIECES):
            self._wait_no_more()
            if self._backlog:
                self._write()
        self._wait_no_more()
        if self._chain is not None:
            self._chain.close()

    def _write(self) -> None:
        self._again = None
        backlog = self._backlog
        assert backlog is not None
        try:
            if not self._renewed():
                self._later(SOON)
                return
            if not backlog:
                self._opened()
                if backlog.trouble is not None:
                    backlog.recovered()
                return
            written = self._put(backlog.head(PIECE))
        except OSError as error:
            self._later(RETRY)
            backlog.failed(error.strerror or str(error))
            return
        count = len(written)
        if count < len(backlog):
            self._later(0 if count else SOON)
        if count:
            backlog.taken(count, written)

    def _put(self, records: list[bytes]) -> list[bytes]:
        """Write as many of the records as can be written now, and return those that are whole (Note [Several processes]).

        :raises OSError: nothing could be written.
        """
        turn = self._turn
        if turn is None:
            return self._append(self._opened(), records)
        if not turn.take():
            return []
        whole = False
        try:
            lines = self._opened()
            self._mend(turn, lines)
            turn.mark()
            whole = True
            return self._append(lines, records)
        finally:
            if self._lines is None or self._lines.whole:
                turn.give(whole=whole)

    def _append(self, lines: _Lines, records: list[bytes]) -> list[bytes]:
        chain = self._chain
        fitting = self._fitting(lines, records if chain is None else chain.stamped(records))
        if not fitting:
            return []
        count = lines.write(fitting)
        if chain is not None:
            chain.advance(count)
        return fitting[:count]

    def _mend(self, turn: SharedTurn, lines: _Lines) -> None:
        """End the line that a process has torn by its death, if one has, and find the end of the chain."""
        if turn.marked and lines.whole:
            _end_line(lines.descriptor)
            if self._chain is not None:
                self._chain.recover(lines.descriptor)
            turn.unmark()

    def _wait_no_more(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _later(self, seconds: float) -> None:
        self._again = self._clock.callLater(seconds, self._write)

    def _renewed(self) -> bool:
        """Return whether what had to be opened again is closed; otherwise it isn't our turn."""
        return True

    def _opened(self) -> _Lines:
        assert self._lines is not None
        return self._lines

    def _fitting(self, lines: _Lines, records: list[bytes]) -> list[bytes]:  # noqa: ARG002 - a file takes all
        """Return the first of the records, as far as they can be written now without waiting."""
        return records


@implementer(ISink)
class FileSink(_Sink):
    """Appends to a file, which it makes unless it is there; only its owner may read it."""

    def __init__(self, clock: IReactorTime, path: Path, turn: SharedTurn | None = None, chain: Chain | None = None) -> None:
        super().__init__(clock, str(path), turn, chain)
        self._path = path
        #: Whether it has to be opened again; and how often that had been done when this process opened it.
        self._moved = False
        self._openings = 0

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
        self._moved = True
        self._wait_no_more()
        self._write()

    def _renewed(self) -> bool:
        """Close the file that has to be opened again, and have the other processes do so (Note [Several processes])."""
        turn = self._turn
        if not self._moved:
            return True
        if turn is not None:
            if not turn.take():
                return False
            try:
                if turn.marked:
                    self._mend(turn, self._opened())
                turn.count_opening()
            finally:
                turn.give(whole=not turn.marked)
        self._moved = False
        self._let_go()
        return True

    async def close(self) -> None:
        """See ``ISink``."""
        await super().close()
        self._let_go()

    def _let_go(self) -> None:
        if self._lines is not None:
            os.close(self._lines.descriptor)
            if self._turn is not None and not self._lines.whole:
                self._turn.give(whole=False)
            self._lines = None

    def _opened(self) -> _Lines:
        """Return the file, which may have to be opened again first; a torn line at its end is ended then."""
        if self._turn is not None and self._turn.openings != self._openings and (self._lines is None or self._lines.whole):
            self._let_go()
            self._openings = self._turn.openings
        if self._lines is None:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = os.open(self._path, flags, 0o600)
            try:
                # Where others write, the end may be a line that one of them is about to end.
                if self._turn is None:
                    _end_line(descriptor)
            except OSError:
                os.close(descriptor)
                raise
            self._lines = _Lines(descriptor)
        return self._lines


@implementer(ISink)
class StandardOutputSink(_Sink):
    """Writes to a descriptor that others write whole lines to as well: the standard output of the process."""

    def __init__(
        self, clock: IReactorTime, descriptor: int, turn: SharedTurn | None = None, chain: Chain | None = None
    ) -> None:
        super().__init__(clock, "standard output", turn, chain)
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
        self._lines = _Lines(self._descriptor)

    def ready(self) -> bool:
        """See ``ISink``, and Note [Seen without a record]."""
        try:
            if self._half is not None:
                # A pipe without a reader is reported, though no event is requested.
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


def _capacity(descriptor: int) -> int:
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
    except (AttributeError, OSError):
        return _PIPE


def _unread(descriptor: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]

"""The lock on a file that several processes append to, one at a time.

Note [One writes]. A write of a whole line may be done in two parts: where the disk is full, or a pipe. So only one process
writes at a time, and one that has written a part keeps the lock until the rest of the line is written. It is a lock of the
operating system's (fcntl), on a file without a name that all of them have inherited, and is released when its process ends,
however it does. A process holds it for some microseconds, so another tries again soon, a few times; none blocks in the lock
itself, or a stopped holder would stop all others. The lock is released when its process closes the file, by whichever
descriptor: so what has been made of the file stays for as long as the process.

Note [Marked]. A process may be killed in the middle of a line. So before it writes it sets a mark in the page of memory that
is the file, and clears it when the line is complete. A process that finds the mark ends the torn line first.

Note [One file]. Processes that append to a file which is moved away go over to the new one together: the one that opens
it again counts that on the page, and the others open theirs before they write. So lines are in order, across files.
"""

from __future__ import annotations

import fcntl
import mmap
import struct
import time
from typing import Final

from svc.audit.record import STATE_BYTES

#: How often a lock that another holds is tried, and the pause after each time, in seconds: the shortest that lets others
#: run. The system makes some 60 µs of it.
TRIES: Final = 50
PAUSE: Final = 1e-6

#: The byte that is locked, and that has the mark.
_AT: Final = 0
_LENGTH: Final = 1

#: The offsets of the count of openings, and of the end of the chain.
_REOPEN_COUNT: Final = struct.Struct("<Q")
_REOPEN_COUNT_AT: Final = 8
_CHAIN_AT: Final = 64


class SharedFileLock:
    """The lock on a file of which ``descriptor`` is open, with room for a mark at its beginning, and for ``chain``."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._page = mmap.mmap(descriptor, mmap.PAGESIZE)
        self.chain = memoryview(self._page)[_CHAIN_AT : _CHAIN_AT + STATE_BYTES]
        self._held = False

    @property
    def has_chain(self) -> bool:
        """Whether a chain has begun here."""
        return any(self.chain)

    @property
    def reopen_count(self) -> int:
        """How often the destination was opened again (Note [One file])."""
        count: int = _REOPEN_COUNT.unpack_from(self._page, _REOPEN_COUNT_AT)[0]
        return count

    def count_reopening(self) -> None:
        """Count another one, under the lock."""
        _REOPEN_COUNT.pack_into(self._page, _REOPEN_COUNT_AT, self.reopen_count + 1)

    @property
    def has_torn_line(self) -> bool:
        """Whether the last one that wrote left a torn line (Note [Marked])."""
        return self._page[_AT] != 0

    def acquire_lock(self) -> bool:
        """Take the lock, unless this process has it, and return whether it has."""
        for _ in range(0 if self._held else TRIES):
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _LENGTH, _AT)
            except BlockingIOError:
                time.sleep(PAUSE)
            else:
                self._held = True
                break
        return self._held

    def set_mark(self) -> None:
        """Note that a line is about to be written."""
        self._page[_AT] = 1

    def clear_mark(self) -> None:
        """Note that no line is torn any more."""
        self._page[_AT] = 0

    def release_lock(self, *, whole: bool) -> None:
        """Release the lock; ``whole``: no line is torn."""
        if self._held:
            if whole:
                self.clear_mark()
            self._held = False
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, _LENGTH, _AT)

"""Files that are read again while the server runs, such as certificates, when they have changed.

Note [Good or as before]. Loaded contents are only ever replaced by usable ones. Files that are half written, or don't match
each other yet, are logged once for each of their contents; the old contents stay in force until the files are complete.
"""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, Generic, TypeVar

from twisted.logger import Logger

from svc.model.background import PeriodicService

T = TypeVar("T")

#: Seconds between two checks of the files.
INTERVAL: Final = 30.0

log = Logger()


def call_on_hangup(reactor: Any, work: Callable[[], object]) -> None:
    """Call a function at each ``SIGHUP``, beside the earlier ones; without any the signal ends the process."""
    before = signal.getsignal(signal.SIGHUP)

    def handle_hangup(number: int, frame: FrameType | None) -> None:
        if callable(before):
            before(number, frame)
        reactor.callFromThread(work)  # which wakes up the reactor

    signal.signal(signal.SIGHUP, handle_hangup)


class Reloadable(Generic[T]):
    """Something that is made from files: ``current`` is what was made of them last that can be used.

    :param what: its name in the log.
    :param read: makes it of the files, and raises what it likes when it can't be made; so does this, at the start.
    :param objection: returns why something shouldn't take the place of what is in force, such as that it has expired; at
        the start there is nothing else, and it is logged.
    """

    def __init__(
        self, what: str, files: Sequence[Path], read: Callable[[], T], objection: Callable[[T], str | None] = lambda _: None
    ) -> None:
        self._what, self._files, self._read, self._objection = what, files, read, objection
        self._loaded = self._fingerprint()
        self._refused: bytes | None = None
        self.current = read()
        if (why := objection(self.current)) is not None:
            log.warn("{what} is in force, although: {why}", what=what, why=why)

    def reload_if_changed(self, *, asked: bool = False) -> None:
        """Read it again if the files have changed (Note [Good or as before]); ``asked``: and log what was logged before."""
        contents = self._fingerprint()
        if contents == self._loaded:
            self._refused = None
            return
        try:
            found = self._read()
            why = self._objection(found)
        except Exception as error:  # what was read before is as good as it was
            why = str(error) or type(error).__name__
        if why is None:
            self._loaded, self._refused, self.current = contents, None, found
            log.info("{what} was read again, and is in force for new connections", what=self._what)
        elif asked or contents != self._refused:
            self._refused = contents
            log.warn("{what} has changed and can't be used, so what was read before stays: {why}", what=self._what, why=why)

    def _fingerprint(self) -> bytes:
        """Return a fingerprint of the files' contents."""
        digest = hashlib.sha256()
        for path in self._files:
            try:
                digest.update(hashlib.sha256(path.read_bytes()).digest())
            except OSError as error:
                digest.update(str(error.errno).encode("ascii"))
        return digest.digest()


class FileReloader(PeriodicService):
    """Checks files each ``INTERVAL``, and at ``SIGHUP``, when other actions may run, too."""

    name = "renewals"

    def __init__(self, reactor: Any) -> None:
        super().__init__(reactor, INTERVAL, self._check_files, log, "Files could not be checked for changes", at_once=False)
        self._reactor = reactor
        self._watched: list[Reloadable[Any]] = []

    def watch(self, reloadable: Reloadable[T]) -> Reloadable[T]:
        """Add a reloadable, and return it."""
        self._watched.append(reloadable)
        self.at_hangup(lambda: reloadable.reload_if_changed(asked=True))
        return reloadable

    def at_hangup(self, work: Callable[[], object]) -> None:
        """Do this at each ``SIGHUP``."""
        call_on_hangup(self._reactor, work)

    def _check_files(self) -> None:
        for reloadable in self._watched:
            reloadable.reload_if_changed()

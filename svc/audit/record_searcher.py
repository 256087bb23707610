"""Searches of the audit files of this server, each by a process of its own (AUD-62).

Note [What the process gets]. It reads text that strangers had a part in, and decompresses files. So it gets the path of the
audit file and the question, an empty environment, and no descriptor but its pipes: neither the data key nor the database.
Its output is parsed as lines, and never unpickled. It gives way to all other processes, and is killed when the client
is gone or when it has taken too long.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessExitedAlready
from twisted.internet.interfaces import IDelayedCall, IProcessTransport
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

import svc
from svc.audit.record_search import PAGE_BYTES, RecordsPage, RecordsQuestion, SearchTask
from svc.audit.search_permits import permit_of_question
from svc.model.errors import AuditSearchUnavailable
from svc.model.permits import IPermits
from svc.model.pickled_messages import encode_message

#: Seconds that a search may wait for its permit and that it may take, and bytes that its page and its messages may have.
WAIT_SECONDS: Final = 10
SEARCH_SECONDS: Final = 60
_MAX_OUTPUT: Final = 2 * PAGE_BYTES
_MAX_ERRORS: Final = 64 * 1024

#: Isolated, so that it reads no variables and no folder of the user's: its modules come from where ours come from.
_PROGRAM: Final = "import sys; sys.path[:] = sys.argv[1:]; from svc.audit.record_search import main; main()"

#: The fault of a server whose records are nowhere that a search could read them.
NO_FILE: Final = (
    "its audit records go to standard output, where they can't be searched: set audit_file to a path, as etc/svc.toml shows"
)

_BUSY: Final = f"other searches of the audit are under way on this server, and none of them ended in {WAIT_SECONDS} s"

_log = Logger()


def make_command() -> tuple[str, ...]:
    """Return the command of a search process."""
    # Nothing comes from the folder that the server happens to stand in.
    return (sys.executable, "-I", "-c", _PROGRAM, str(Path(svc.__path__[0]).parent), *filter(os.path.isabs, sys.path))


class RecordSearcher:
    """Searches the audit file at ``path`` and what rotation made of it; ``None`` where there is none.

    ``reactor``: ``IReactorProcess`` and ``IReactorTime``. ``permits`` are those of the server: each search takes one.
    """

    def __init__(
        self,
        reactor: Any,
        path: Path | None,
        permits: IPermits,
        command: Callable[[], tuple[str, ...]] = make_command,
        seconds: int = SEARCH_SECONDS,
    ) -> None:
        self._reactor, self._path, self._permits = reactor, path, permits
        self._make_command, self._seconds = command, seconds

    async def search_records(self, question: RecordsQuestion) -> RecordsPage:
        """Return the page that answers a question; may be cancelled, which ends the process.

        :raises AuditSearchUnavailable: too many searches are under way, or there is no room for a process.
        """
        if self._path is None:
            return RecordsPage(faults=(NO_FILE,))
        release_permit = await self._take_permit(question)
        try:
            return await self._run_search(SearchTask(str(self._path.absolute()), question, self._seconds))
        finally:
            release_permit()

    def _take_permit(self, question: RecordsQuestion) -> Deferred[Callable[[], None]]:
        def raise_busy(*_: object) -> Any:
            raise AuditSearchUnavailable(_BUSY)

        taking = Deferred.fromCoroutine(_acquire(self._permits, permit_of_question(question)))
        return taking.addTimeout(WAIT_SECONDS, self._reactor, raise_busy)

    def _run_search(self, task: SearchTask) -> Deferred[RecordsPage]:
        process = _SearchProcess(self._reactor, task)
        command = self._make_command()
        try:
            self._reactor.spawnProcess(process, command[0], command, env={})
        except OSError as error:
            raise AuditSearchUnavailable(f"no process can be started for a search: {error.strerror or error}") from None
        return process.page


async def _acquire(permits: IPermits, role: str) -> Callable[[], None]:
    return await permits.acquire(role)


class _SearchProcess(ProcessProtocol):
    """A process that does one search; ``page`` fires when it has ended."""

    transport: IProcessTransport

    def __init__(self, reactor: Any, task: SearchTask) -> None:
        self._reactor, self._task = reactor, task
        self._output: list[bytes] = []
        self._size = 0
        self._errors = b""
        self._deadline: IDelayedCall | None = None
        self._is_late = False
        self.page: Deferred[RecordsPage] = Deferred(lambda _: self.kill())

    def connectionMade(self) -> None:
        """Give it the task."""
        self._deadline = self._reactor.callLater(self._task.seconds, self._end_late)
        for piece in encode_message(self._task):
            self.transport.write(piece)

    def outReceived(self, data: bytes) -> None:
        """Keep a part of the page."""
        self._size += len(data)
        if self._size > _MAX_OUTPUT:
            self.kill()
        else:
            self._output.append(data)

    def errReceived(self, data: bytes) -> None:
        """Keep its standard error for the log."""
        self._errors = (self._errors + data)[-_MAX_ERRORS:]

    def processEnded(self, reason: Failure) -> None:
        """Return the page, or why there is none."""
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        if self.page.called:
            return
        if reason.check(ProcessDone) is not None:
            with suppress(ValueError):
                self.page.callback(RecordsPage.decode(b"".join(self._output)))
                return
        if self._is_late:
            fault = f"the search took longer than {self._task.seconds} s: narrow it by since and until"
        else:
            fault = "the search failed, and the log of that server has the reason"
            _log.error(
                "A search of the audit's files failed: {why} {errors}",
                why=reason.getErrorMessage(),
                errors=self._errors.decode("utf-8", "replace"),
            )
        self.page.callback(RecordsPage(faults=(fault,)))

    def kill(self) -> None:
        """End it; of the page nothing is needed any more."""
        with suppress(ProcessExitedAlready):
            self.transport.signalProcess("KILL")

    def _end_late(self) -> None:
        self._is_late = True
        self.kill()

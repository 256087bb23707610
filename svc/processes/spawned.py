"""A process that serves, as the process that supervises starts it: with a connection to it, and what it inherits."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from twisted.internet.error import ProcessExitedAlready
from twisted.internet.interfaces import IProcessTransport
from twisted.internet.protocol import Factory, ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

import svc
from svc.processes.channel import ProcessChannel
from svc.processes.workforce import IWorkerListener

#: The numbers under which a process finds its connection, and what it inherits.
CONNECTION: Final = 3
INHERITED: Final = 4

# As in worker.pool: its modules come from where ours come from.
_PROGRAM: Final = "import sys; sys.path.insert(0, sys.argv[1]); from svc.server.process import main; main()"
_COMMAND: Final = (sys.executable, "-P", "-c", _PROGRAM, str(Path(svc.__path__[0]).parent))

_log = Logger()


class WorkerProcess(ProcessProtocol):
    """A process, and the connection to it. ``owner`` receives its messages."""

    transport: IProcessTransport

    def __init__(self, reactor: Any, owner: IWorkerListener) -> None:
        self._owner = owner
        self._stderr = b""
        self._alive = True
        self._channel = ProcessChannel(reactor, owner.answer_question, owner.handle_notice, self.kill)

    @classmethod
    def start(
        cls, reactor: Any, owner: IWorkerListener, inherited: Sequence[int], command: tuple[str, ...] = _COMMAND
    ) -> WorkerProcess:
        """Start a process, which inherits these descriptors.

        :raises OSError: there is no room for it.
        """
        spawned = cls(reactor, owner)
        ours, theirs = socket.socketpair()
        with ours, theirs, open(os.devnull, "r+b", buffering=0) as nothing:
            ours.setblocking(False)
            output = 1 if _is_open(1) else nothing.fileno()
            descriptors = {0: nothing.fileno(), 1: output, 2: "r", CONNECTION: theirs.fileno()}
            descriptors |= dict(enumerate(inherited, INHERITED))
            reactor.spawnProcess(spawned, command[0], command, env=None, childFDs=descriptors)
            reactor.adoptStreamConnection(ours.fileno(), socket.AF_UNIX, Factory.forProtocol(lambda: spawned._channel))
        return spawned

    def send_notice(self, notice: object) -> None:
        """See ``IProcess``."""
        self._channel.send_notice(notice)

    async def send_question(self, question: object, patience: float) -> Any:
        """See ``IProcess``."""
        return await self._channel.send_question(question, patience)

    def kill(self) -> None:
        """See ``IProcess``."""
        if self._alive:
            with suppress(ProcessExitedAlready):
                self.transport.signalProcess("KILL")

    def errReceived(self, data: bytes) -> None:
        """Log its standard error."""
        *lines, self._stderr = (self._stderr + data).split(b"\n")
        for line in lines:
            _log.warn("From a worker: {line}", line=line.decode("utf-8", "replace"))

    def processExited(self, reason: Failure) -> None:
        """Notify its owner, though others that it has started may still have its standard error."""
        self._alive = False
        self._owner.handle_exit(reason.getErrorMessage())


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True

"""The worker's side: a process that loads one document after the other, until the server closes its standard input."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from typing import Any

import attrs
import twisted.logger
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol
from twisted.internet.stdio import StandardIO
from twisted.python.failure import Failure

from svc.crypto.vault import Vault
from svc.model.clocks import use_steady_clock
from svc.model.errors import Refusal
from svc.model.pickled_messages import MessageDecoder, encode_message
from svc.model.policy_loads import ILoads, Load
from svc.model.request_notes import begin_notes
from svc.services.policy_loads import LocalLoads
from svc.storage.data_keys import DataKeyStore
from svc.storage.driver.database import Database
from svc.storage.policies import PolicyStore
from svc.worker.messages import Committed, DataKeys, LoadBug, LoadWorkerSettings, encode_outcome

_log = twisted.logger.Logger()


class WorkerProtocol(Protocol):
    """The connection to the server, which sends a task, then loads, one at a time."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._decoder = MessageDecoder()
        self._loads: ILoads | None = None
        self._database: Database | None = None
        self._vault: Vault | None = None

    def dataReceived(self, data: bytes) -> None:
        """Read the task, or the next load."""
        for message in self._decoder.feed(data):
            match message.value:
                case LoadWorkerSettings() as task:
                    self._start_task(task)
                case DataKeys(keys=keys):
                    assert self._vault is not None
                    self._vault.set_keys(keys)
                case Load() as load:
                    whole = attrs.evolve(load, document=message.content)
                    Deferred.fromCoroutine(self._run_load(whole)).addErrback(self._report_bug)

    def connectionLost(self, reason: Failure | None = None) -> None:  # noqa: ARG002 - Twisted's
        """End at once: the server needs this worker no more, or is gone. The database rolls back uncommitted changes."""
        os._exit(0)

    def _start_task(self, task: LoadWorkerSettings) -> None:
        timeout = task.statement_timeout
        self._database = Database(self._reactor, task.dsn, pool_size=1, statement_timeout=timeout, first_wait=5.0)
        self._database.startService()
        self._vault = Vault(*task.data_keys)
        self._loads = LocalLoads(PolicyStore(self._database, task.retention), self._vault, task.dialect, task.bounds)

    async def _run_load(self, load: Load) -> None:
        assert self._database is not None
        assert self._loads is not None
        assert self._vault is not None
        notes = begin_notes()
        try:
            await self._database.wait_until_connected()
            if stored := await DataKeyStore(self._database).list_keys():
                self._vault.use_stored_keys(stored)
            outcome = await self._loads.load_policy(load)
        except Refusal as refusal:
            self._send_pieces(encode_message(refusal))
            return
        if notes.version is not None:
            self._send_pieces(encode_message(Committed(notes.version)))
        self._send_pieces(encode_outcome(outcome))

    def _report_bug(self, failure: Failure) -> None:
        _log.failure("A policy load failed", failure)
        self._send_pieces(encode_message(LoadBug(type(failure.value).__name__)))

    def _send_pieces(self, pieces: Iterable[bytes]) -> None:
        assert self.transport is not None
        self.transport.writeSequence(list(pieces))


def main() -> None:
    """Run a worker."""
    from twisted.internet import reactor as installed  # noqa: PLC0415 - the process has just been started

    reactor: Any = installed
    use_steady_clock(reactor)
    # A terminal and an init system signal all of the server's processes to stop; this one ends when the server wants it to.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(5)  # the server is served before its workers
    # Nothing but answers goes to the server's pipe.
    answers = os.dup(1)
    os.dup2(2, 1)
    # The server knows when it is well.
    warnings = [twisted.logger.LogLevelFilterPredicate(defaultLogLevel=twisted.logger.LogLevel.warn)]
    observer = twisted.logger.FilteringLogObserver(twisted.logger.textFileLogObserver(sys.stderr, timeFormat=None), warnings)
    twisted.logger.globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)
    pipes: Any = StandardIO  # mypy takes it for the one of Windows
    pipes(WorkerProtocol(reactor), stdin=0, stdout=answers)
    reactor.run(installSignalHandlers=False)

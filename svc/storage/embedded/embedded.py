"""The embedded PostgreSQL: ``svc``'s own database server, its child, in its data directory (DATA-21).

Note [One life]. All that the service does between start and stop is one coroutine, ``EmbeddedPostgres._run_service``, and
stopping cancels it: its ``finally`` clauses stop processes, remove files and release the lock, innermost first. So stopping
is no special case in any state, and when the Deferred of the stop fires, nothing runs any more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.model.errors import StartRefused
from svc.model.text import escape_unencodable
from svc.storage.embedded import cluster
from svc.storage.embedded.directory import DataDirectory
from svc.storage.embedded.postmaster import POLL_INTERVAL, ISystemReactor, is_accepting
from svc.storage.embedded.runtime_dir import RuntimeDir
from svc.storage.embedded.server import PostgresServer

#: How often to try a server that never came up: one that was killed may leave children that take a while to end.
FIRST_TRIES: Final = 3
#: The pause before a server that died is started again, in seconds: it doubles from the shortest to the longest.
SHORTEST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 2.0
#: After a server that lived as long as this, in seconds, the pause is the shortest again.
STEADY: Final = 60.0
#: How long to wait for another ``svc``: for a command to release the directory, or a server to come up; in seconds.
PATIENCE: Final = 30.0

log = Logger()


def _absolute_path(path: Path) -> Path:
    return Path(os.path.abspath(path))


@attrs.define(eq=False, slots=False)
class EmbeddedPostgres(Service):
    """PostgreSQL as a service, in a data directory, which is made if it isn't there.

    A server keeps PostgreSQL up. A command, which says so by ``joining``, uses the PostgreSQL of a server while there is
    one, and else starts it for as long as the command runs. No process is started before the reactor runs, so that a daemon
    may fork. ``durable`` may be false in tests, which then don't wait for the disk.

    ``restoring``: a backup is restored into the directory, which must be new. It is removed again when the service stops
    before ``restored`` was set.

    ``should_undo`` is called when PostgreSQL has ended, while the lock is still held: it returns whether to remove what was
    made here since the lock was taken.
    """

    reactor: ISystemReactor
    directory: Path = attrs.field(converter=_absolute_path)
    joining: bool = attrs.field(default=False, kw_only=True)
    durable: bool = attrs.field(default=True, kw_only=True)
    restoring: bool = attrs.field(default=False, kw_only=True)
    restored: bool = attrs.field(default=False, init=False)
    should_undo: Callable[[], bool] = attrs.field(default=lambda: False, kw_only=True)
    _running: Deferred[None] | None = attrs.field(default=None, init=False)
    _outcome: str | Failure | None = attrs.field(default=None, init=False)
    _waiting: list[Deferred[str]] = attrs.field(factory=list, init=False)

    def startService(self) -> None:
        """Begin; :meth:`wait_until_ready` returns when it is done, and how."""
        super().startService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        self._outcome = None
        self._running = Deferred.fromCoroutine(self._run_service())

    def stopService(self) -> Deferred[None]:
        """Stop what was started; fires when nothing of it runs any more. A server that was joined goes on."""
        super().stopService()  # type: ignore[no-untyped-call]  # Twisted has no types here
        life, self._running = self._running, None
        if life is None:
            return succeed(None)
        life.cancel()
        return life

    async def wait_until_ready(self) -> str:
        """Wait until connections are accepted, also while a PostgreSQL that died is started again; return the libpq DSN.

        :raises StartRefused: it can't start, or was stopped.
        """
        if self._outcome is None:
            waiting: Deferred[str] = Deferred(self._waiting.remove)
            self._waiting.append(waiting)
            return await waiting
        if isinstance(self._outcome, Failure):
            self._outcome.raiseException()
        return self._outcome

    async def _run_service(self) -> None:
        try:
            running: Deferred[None] = Deferred()  # no process can be waited for before
            self.reactor.callWhenRunning(running.callback, None)
            await running
            await self._serve_directory(DataDirectory(self.directory))
        except CancelledError:
            self._set_outcome(Failure(StartRefused("PostgreSQL was stopped")))
        except OSError as error:
            self._set_outcome(
                Failure(StartRefused(escape_unencodable(f"PostgreSQL cannot run in {self.directory}: {error}")))
            )
        except StartRefused as refusal:
            self._set_outcome(Failure(StartRefused(escape_unencodable(refusal.message))))
        except Exception:
            log.failure("The embedded PostgreSQL came to an unforeseen end")
            self._set_outcome(Failure())

    def _set_outcome(self, outcome: str | Failure) -> None:
        self._outcome = outcome
        # Those who wait may stop the service at once, and a coroutine can't be cancelled from within.
        self.reactor.callLater(0, self._notify_waiting)

    def _notify_waiting(self) -> None:
        while self._waiting and self._outcome is not None:
            self._waiting.pop().callback(self._outcome)

    async def _serve_directory(self, directory: DataDirectory) -> None:
        """Serve from the directory, or join the server that does, until this is cancelled."""
        before = directory.read_state()
        if self.restoring:
            directory.require_restorable()
        directory.make_directory()
        runtime_dir = RuntimeDir(directory.record_runtime_dir)
        if not await self._take_lock(directory):
            try:
                self._set_outcome(_make_dsn(directory, runtime_dir))
                await Deferred()
            finally:
                runtime_dir.remove()
            return
        found = directory.state_since(before)
        server = PostgresServer(self.reactor, directory, runtime_dir, self.durable)
        if directory.is_restoring and not self.restoring:
            directory.release()
            raise StartRefused(
                f"a restore into {directory.path} has not ended: run `svc backup restore` again, which starts over"
            )
        begun = False
        try:
            if self.restoring:
                directory.require_restorable()
                await server.stop_leftovers()
                directory.begin_restore()
                begun = True
            await self._keep_running(server)
        finally:
            try:
                await server.clear_leftovers()
                if self.restored:
                    directory.end_restore()
                elif begun:
                    directory.undo_changes(attrs.evolve(before, names=frozenset()))
                elif self.should_undo():
                    directory.undo_changes(found)
            finally:
                directory.release()

    async def _take_lock(self, directory: DataDirectory) -> bool:
        """Take the lock; return false when a running server has it, which may be joined."""
        deadline = self.reactor.seconds() + PATIENCE
        while holder := directory.take_lock(serving=not self.joining):
            if holder.serving and self.joining and is_accepting(directory):
                return False
            # A command is soon done with the directory, and a server that was just started accepts soon.
            if (holder.serving and not self.joining) or self.reactor.seconds() >= deadline:
                raise StartRefused(f"{directory.path} is in use by another svc, process {holder.pid}")
            await deferLater(self.reactor, POLL_INTERVAL)
        return True

    async def _keep_running(self, server: PostgresServer) -> None:
        """Run PostgreSQL, again and again; raises ``StartRefused`` or ``OSError`` when it never came up."""
        await server.stop_leftovers()
        address = _make_dsn(server.directory, server.runtime_dir)
        proven, tries, pause = False, 0, 0.0

        def note_accepting() -> None:
            nonlocal proven
            proven = True
            log.info("PostgreSQL accepts connections in {directory}", directory=escape_unencodable(self.directory))
            self._set_outcome(address)

        while True:
            began = self.reactor.seconds()
            try:
                ending = await server.run(note_accepting)
            except (StartRefused, OSError) as error:
                if not proven:
                    raise
                ending = str(error)
            self._outcome = None
            tries += 1
            if tries == FIRST_TRIES and not proven:
                raise StartRefused(f"PostgreSQL does not start: {ending}")
            pause = next_pause(pause, self.reactor.seconds() - began)
            log.error(
                "PostgreSQL ended: {ending}. It is started again in {pause} s",
                ending=escape_unencodable(ending),
                pause=pause,
            )
            await deferLater(self.reactor, pause)


def next_pause(last: float, lasted: float) -> float:
    """Return the pause before a server that ended after ``lasted`` seconds is started again; ``last`` is the one before."""
    return SHORTEST_PAUSE if last == 0 or lasted >= STEADY else min(2 * last, LONGEST_PAUSE)


def _make_dsn(directory: DataDirectory, runtime_dir: RuntimeDir) -> str:
    """Return the DSN of the socket in the cluster, by way of the runtime directory where its own path won't do."""
    place = directory.cluster
    if not cluster.is_addressable(place):
        place = runtime_dir.link("socket", place)
        if not cluster.is_addressable(place):
            raise StartRefused(f"PostgreSQL's socket cannot be reached by way of {place}: set TMPDIR to a short, plain path")
    return cluster.socket_dsn(place)

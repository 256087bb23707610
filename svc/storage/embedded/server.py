"""A PostgreSQL server in a data directory that this process has locked."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from svc.model.errors import StartRefused
from svc.model.text import escape_unencodable
from svc.storage.embedded import binaries, cluster, launch, postmaster, users
from svc.storage.embedded.binaries import Binaries
from svc.storage.embedded.directory import DataDirectory
from svc.storage.embedded.postmaster import ChildProcess, ISystemReactor, Launcher
from svc.storage.embedded.runtime_dir import RuntimeDir

T = TypeVar("T")
#: How often the log reports that a server is still starting, in seconds.
PATIENCE: Final = 30.0
#: How often the modification time of the runtime directory is renewed, in seconds.
UPKEEP: Final = 3600.0

log = Logger()


@attrs.define
class PostgresServer:
    """PostgreSQL in one data directory. ``durable`` may be false in tests, which then don't wait for the disk."""

    reactor: ISystemReactor
    directory: DataDirectory
    runtime_dir: RuntimeDir
    durable: bool

    async def stop_leftovers(self) -> None:
        """Stop the PostgreSQL of an earlier ``svc`` that was killed, and remove what it left; before the first ``run``.

        :raises StartRefused: it doesn't end.
        :raises OSError: it may not be stopped.
        """
        await self._stop_orphan()
        await self.clear_leftovers()

    async def run(self, accepting: Callable[[], None]) -> str:
        """Start PostgreSQL and stay until it ends; return how it ended, and the end of its log. Cancelling this stops it.

        The cluster is made if there is none. ``accepting`` is called when connections are accepted, if ever.

        :raises StartRefused: the cluster or the programs can't be used.
        :raises OSError: files or processes can't be had.
        """
        installed = binaries.find_installed()
        version = self.directory.cluster_version()
        if version not in {None, binaries.RELEASE}:
            raise StartRefused(
                f"{self.directory.cluster} is of PostgreSQL {version}, and this program has PostgreSQL {binaries.RELEASE}:"
                " run `svc backup create` of the program that made it, then `svc backup restore` of this one into a new"
                " --data-dir (docs/operations/upgrades.md)"
            )
        user = users.postgres_user(None if version is None else self.directory.cluster.stat().st_uid)
        await self._stop_orphan()
        launcher = Launcher(self.reactor, self.directory, user)
        programs = await self._find_runnable(installed, launcher) if os.geteuid() == 0 else installed
        if version is None:
            await self._make_cluster(programs, launcher)
        child = launcher.launch(
            self.directory.cluster,
            [programs.postgres, *self._setting_options()],
            # The launcher does this with the lock in hand, so these are of one that died: note [Who is a postmaster].
            remove=["postmaster.pid", f"{cluster.SOCKET}.lock", cluster.SOCKET],
            write={"pg_hba.conf": cluster.ACCESS, "pg_ident.conf": cluster.user_map(users.list_clients())},
        )
        try:
            if await self._wait_until_accepting(child):
                accepting()
                while not await child.wait_for_end(UPKEEP):
                    self._touch_runtime_dir()
        finally:
            await child.stop(postmaster.STOP_SERVER)
        return self._describe_end(child)

    async def clear_leftovers(self) -> None:
        """Remove what is of no use to the next ``svc``; to be called when PostgreSQL has ended."""

        def remove_leftovers() -> None:
            self.runtime_dir.remove()
            self.directory.clear_leftovers()

        await self._in_thread(remove_leftovers)

    async def _stop_orphan(self) -> None:
        orphan = await postmaster.stop_orphan(self.reactor, self.directory)
        if orphan is not None:
            log.warn("Stopped the PostgreSQL that an earlier svc had left behind, process {pid}", pid=orphan)

    async def _find_runnable(self, installed: Binaries, launcher: Launcher) -> Binaries:
        """Return the programs, or a copy that PostgreSQL's user can reach."""
        user, place = launcher.user.name, self.directory.path
        log.info("svc runs as root, so PostgreSQL runs as the user {user}", user=user)
        if await self._can_reach(installed.required_paths, launcher):
            return installed
        if len(os.fsencode(place)) > launch.PATH_LIMIT or not await self._can_reach([(str(place), os.X_OK)], launcher):
            place = self.runtime_dir.path
        report = "The user {user} cannot reach PostgreSQL's programs in {root}, and runs a copy of them in {place}"
        log.info(report, user=user, root=escape_unencodable(installed.root), place=escape_unencodable(place))
        copy = await self._in_thread(lambda: installed.copy_into(place))
        if not await self._can_reach(copy.required_paths, launcher):
            raise StartRefused(
                f"the user {user}, as which PostgreSQL runs, can run programs neither in {installed.root} nor in {place}:"
                " install svc, or put the data directory, where that is possible"
            )
        return copy

    async def _can_reach(self, paths: Sequence[tuple[str, int]], launcher: Launcher) -> bool:
        """Return whether PostgreSQL's user has that access to the paths; the system itself is asked, as that user."""
        child = await self._wait_for_program(launcher.launch(Path("/"), [], reach=paths))
        if child.exit_code not in {0, launch.UNREACHABLE}:
            raise StartRefused(f"PostgreSQL cannot run as the user {launcher.user.name}: {self._describe_end(child)}")
        return child.exit_code == 0

    async def _make_cluster(self, programs: Binaries, launcher: Launcher) -> None:
        """Make the cluster, under another name until it is complete."""
        log.info("Making a new PostgreSQL cluster in {directory}", directory=escape_unencodable(self.directory.path))
        place = self.directory.new_cluster(launcher.user.uid, launcher.user.gid)
        make = [programs.initdb, *cluster.INITDB, *([] if self.durable else ["--no-sync"])]
        begin = [programs.postgres, "--single", *self._setting_options(), "-c", "exit_on_error=on", cluster.SUPERUSER]
        for command, stdin in ((make, None), (begin, cluster.FIRST_STATEMENTS)):
            child = await self._wait_for_program(launcher.launch(place, command, stdin=stdin))
            if child.exit_code != 0:
                raise StartRefused(f"PostgreSQL cannot make a cluster: {self._describe_end(child)}")
        await self._in_thread(lambda: self.directory.adopt_cluster(place))

    async def _wait_until_accepting(self, child: ChildProcess) -> bool:
        """Wait until the child accepts connections, however long its recovery takes; return false when it ended first."""
        patience = self.reactor.seconds() + PATIENCE
        while not postmaster.is_accepting(self.directory):
            if await child.wait_for_end(postmaster.POLL_INTERVAL):
                return False
            if self.reactor.seconds() >= patience:
                where = escape_unencodable(self.directory.log)
                log.info("PostgreSQL is still starting, as after a crash; {log} says how far it is", log=where)
                patience += PATIENCE
        return True

    async def _wait_for_program(self, child: ChildProcess) -> ChildProcess:
        """Wait for a program to end; cancelling this ends it."""
        try:
            await child.wait_for_end()
        finally:
            await child.stop(postmaster.STOP_PROGRAM)
        return child

    def _setting_options(self) -> list[str]:
        settings = cluster.SETTINGS | ({} if self.durable else {"fsync": "off"})
        return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]

    def _describe_end(self, child: ChildProcess) -> str:
        return f"{child.outcome}; its last words in {self.directory.log}:\n{self.directory.log_tail(child.log_start)}"

    def _touch_runtime_dir(self) -> None:
        try:
            self.runtime_dir.touch_times()
        except OSError as error:
            path = escape_unencodable(self.runtime_dir.path)
            log.error("svc needs {path}, which somebody removed: {error}", path=path, error=error)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Do blocking work in a thread. It is waited for even when this is cancelled."""
        working = deferToThreadPool(self.reactor, self.reactor.getThreadPool(), work)
        waiting: Deferred[T] = Deferred()
        working.addBoth(waiting.callback)
        try:
            return await waiting
        except CancelledError:
            await working
            raise

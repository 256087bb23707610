"""The agent as a process: it does what ``svc.agent.core`` decides, and reports the outcome to it.

Note [One at a time]. One coroutine executes the decisions in order; reading, watching and commands run beside it, and come
back as events. So files, commands and the program never run into each other.

Note [Ends soon]. A stop waits for no server and no command: a command that is ended runs again at the next start, by the
mark beside its file (``svc.agent.files``, Note [Owed]). Only the program that the agent runs has its time to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import traceback
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import attrs

from svc.agent import commands, files
from svc.agent.child import AgentProgram
from svc.agent.configuration import AgentConfiguration
from svc.agent.core import Core
from svc.agent.faults import BadConfiguration, FileFault, SourceFault
from svc.agent.source import VariableBatches, VariableSource
from svc.agent.steps import (
    Action,
    Answered,
    Ask,
    ChangeTold,
    Done,
    Event,
    Note,
    NothingRead,
    Provide,
    Put,
    Ran,
    Run,
    Settled,
    TakeAway,
    Unwatched,
    WatchFor,
)
from svc.agent.telling import Log, StatusFile, Systemd, status_of
from svc.model.clocks import WallClock

#: The exit code of ``--once`` where not everything is up to date.
NOT_CURRENT: Final = 1

#: Signals that end the agent, and those that a program gets from it besides.
ENDING: Final = (signal.SIGTERM, signal.SIGINT)
PASSED_ON: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGWINCH)

#: Returns a client for a configuration, which is closed at the end.
Connect = Callable[[AgentConfiguration], AbstractAsyncContextManager[VariableBatches]]


@attrs.frozen
class AgentSurroundings:
    """The surroundings of the process: the environment for its commands, the log, clocks, systemd, and the status file."""

    environment: Mapping[str, str]
    log: Log
    wall: WallClock
    systemd: Systemd
    status_file: Path | None = None
    chance: Callable[[], float] = random.random


class Agent:
    """An agent.

    :param read: reads the configuration again, and raises ``BadConfiguration``.
    :param program: the arguments of the program to run, if any.
    :param once: whether it ends after one round.
    """

    def __init__(
        self,
        read: Callable[[], AgentConfiguration],
        connect: Connect,
        around: AgentSurroundings,
        *,
        program: tuple[str, ...] = (),
        once: bool = False,
    ) -> None:
        self._read, self._connect, self._around, self._once = read, connect, around, once
        self._say = around.log.say
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._blotting = commands.Blotting()
        self._code: int | None = None
        self._again = False
        self._ended_by = signal.SIGTERM
        self._child = AgentProgram(program, around.environment, self._say, self._stop) if program else None
        self._status = StatusFile(around.status_file, self._say) if around.status_file is not None else None
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None

    def signal(self, number: signal.Signals) -> None:
        """Handle a signal: end, read the configuration again, or pass it on to the program."""
        if number in ENDING and self._code is None:
            # The program gets it when it is stopped: a second one often means that something shall end at once.
            self._ended_by = number
            self._say("info", f"ending, after {number.name}")
            self._around.systemd.tell("STOPPING=1")
            self._stop(0)
            return
        if self._child is not None:
            self._child.pass_on(number)
        if number == signal.SIGHUP:
            self._again = True
            self._events.put_nowait(None)

    async def run(self) -> int:
        """Keep everything up to date until a signal ends it, and return the exit code.

        :raises BadConfiguration: there is none to begin with.
        """
        present = await self._tried(self._read())
        beating = asyncio.ensure_future(self._beat())
        try:
            while self._code is None:
                another = await self._keep(present)
                try:
                    present = await self._tried(another)
                except BadConfiguration as fault:
                    self._refuse(fault)
        except Exception as fault:
            self._fail(fault)
        finally:
            beating.cancel()
            timeout = present.process.stop_timeout
            ended = await self._child.stop(timeout, self._ended_by) if self._child is not None else None
        return ended if ended is not None else self._code or 0

    async def _tried(self, configuration: AgentConfiguration) -> AgentConfiguration:
        """Return a configuration that a client can be made of; otherwise raise ``BadConfiguration``."""
        async with self._connect(configuration):
            return configuration

    async def _keep(self, configuration: AgentConfiguration) -> AgentConfiguration:
        """Keep to one configuration until the agent ends or there is another one, and return that."""
        self._say("info", f"keeping {self._counted(configuration)} up to date from {configuration.url}")
        for warning in configuration.warnings:
            self._say("warning", warning)
        existing = frozenset(file.name for file in configuration.files if self._begin(file.destination))
        settings = configuration if not self._once else attrs.evolve(configuration, watch=False)
        core = Core(settings, existing, self._around.chance, program=self._child is not None)
        clock = asyncio.get_running_loop().time
        async with self._connect(configuration) as batches:
            source = VariableSource(batches)
            events: list[Event] = []
            try:
                while self._code is None:
                    for action in core.step(clock(), *events):
                        await self._do(action, source, configuration)
                    self._show(core, configuration, clock())
                    if self._once and core.rounds:
                        self._stop(0 if core.well else NOT_CURRENT)
                    if self._again and (another := self._reread()) is not None:
                        return another
                    if self._code is None:
                        events = await self._next(core.wake_at, clock())
            finally:
                await self._drop()
        return configuration

    def _begin(self, destination: files.Destination) -> bool:
        """Remove what a killed agent has left of a file, and return whether the file is there."""
        with contextlib.suppress(FileFault):  # which is logged when it can't be written
            if files.group_may_write(destination):
                self._say(
                    "warning", f"the group of {destination.path.parent} can write there, and replace {destination.path}"
                )
            if files.clean(destination):
                self._say("info", f"removed what a killed agent had left of {destination.path}")
        return files.exists(destination)

    async def _do(self, action: Action, source: VariableSource, configuration: AgentConfiguration) -> None:
        match action:
            case Note(level, text):
                self._say(level, text)
            case Ask(ids):
                self._begin_task(self._ask(source, ids))
            case WatchFor(ids):
                if self._watching is not None:
                    self._watching.cancel()
                self._watching = self._begin_task(self._watch(source, ids))
            case Put(file, content):
                await self._settle(file.name, files.place, file.destination, content)
            case TakeAway(file):
                await self._settle(file.name, files.remove, file.destination)
            case Run(command):

                async def ran() -> None:
                    surroundings = self._around.environment
                    self._events.put_nowait(
                        Ran(command, await commands.run(command, surroundings, self._say, self._blotting))
                    )

                self._begin_task(ran())
            case Done(kept):
                for file in kept:
                    try:
                        await asyncio.to_thread(files.settle, file.destination)
                    except FileFault as fault:
                        self._say("warning", str(fault))
            case Provide(environment, changed):
                assert self._child is not None
                await self._child.provide(environment, configuration.process, changed=changed)

    async def _settle(self, name: str, act: Callable[..., files.Placed], *given: Any) -> None:
        try:
            self._events.put_nowait(Settled(name, await asyncio.to_thread(act, *given)))
        except FileFault as fault:
            self._events.put_nowait(Settled(name, fault=str(fault)))

    async def _ask(self, source: VariableSource, ids: frozenset[str]) -> None:
        try:
            reading = await source.read(ids)
        except SourceFault as fault:
            self._events.put_nowait(NothingRead(str(fault)))
        else:
            self._blotting.learn(reading.values.values())
            self._events.put_nowait(Answered(reading))

    async def _watch(self, source: VariableSource, ids: frozenset[str]) -> None:
        try:
            async for _ in source.watch(ids):
                self._events.put_nowait(ChangeTold())
        except SourceFault as fault:
            self._events.put_nowait(Unwatched(str(fault)))
        else:
            self._events.put_nowait(Unwatched(None))

    async def _next(self, wake_at: float | None, now: float) -> list[Event]:
        """Wait for what happens next, until a moment."""
        try:
            async with asyncio.timeout(None if wake_at is None else max(wake_at - now, 0)):
                found = [await self._events.get()]
        except TimeoutError:
            return []
        while not self._events.empty():
            found.append(self._events.get_nowait())
        return [event for event in found if event is not None]

    def _begin_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._fail(fault)

    def _fail(self, fault: BaseException) -> None:
        """End after a fault of the agent itself, to be started again. Its text isn't logged: it could quote a value."""
        frames = [f"{Path(frame.f_code.co_filename).name}:{line}" for frame, line in traceback.walk_tb(fault.__traceback__)]
        self._say("error", f"this is a fault of the agent, which ends: {type(fault).__name__} at {', '.join(frames[-3:])}")
        self._stop(NOT_CURRENT)

    async def _drop(self) -> None:
        """End everything that runs beside, and drop its events."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._watching = None
        while not self._events.empty():
            self._events.get_nowait()

    def _reread(self) -> AgentConfiguration | None:
        """Read the configuration again; ``None`` where the present one goes on."""
        self._again = False
        self._around.systemd.tell("RELOADING=1")
        try:
            return self._read()
        except BadConfiguration as fault:
            self._refuse(fault)
            return None
        finally:
            self._around.systemd.tell("READY=1")

    def _refuse(self, fault: BadConfiguration) -> None:
        self._say("error", f"the new configuration is not used, and the old one goes on: {fault}")

    def _show(self, core: Core, configuration: AgentConfiguration, now: float) -> None:
        status = status_of(core, configuration.url, now, self._around.wall.seconds())
        problems = status["problems"]
        summary = problems[0] if problems else f"{self._counted(configuration)} up to date"
        self._around.systemd.stand(f"{status['state']}: {summary}", ready=core.ready)
        if self._status is not None:
            self._status.write(status)

    def _counted(self, configuration: AgentConfiguration) -> str:
        count = len(configuration.files)
        parts = [f"{count} file{'' if count == 1 else 's'}"] if count else []
        if self._child is not None and configuration.environment:
            parts.append("the environment of a program")
        return " and ".join(parts)

    async def _beat(self) -> None:
        """Tell systemd that the agent lives; this loop stands still when the agent does."""
        while self._around.systemd.interval is not None:
            self._around.systemd.tell("WATCHDOG=1")
            await asyncio.sleep(self._around.systemd.interval)

    def _stop(self, code: int) -> None:
        if self._code is None:
            self._code = code
        self._events.put_nowait(None)

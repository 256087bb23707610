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
from svc.agent.core import AgentCore
from svc.agent.faults import BadConfiguration, FileFault, SourceFault
from svc.agent.reporting import AgentLog, StatusFile, Systemd, status_of
from svc.agent.source import VariableClient, VariableSource
from svc.agent.steps import (
    Action,
    ChangeNotified,
    CommandEnded,
    Event,
    FileHandled,
    LogMessage,
    ReadFailed,
    ReadVariables,
    RemoveFile,
    RemoveMarkers,
    RunCommand,
    UpdateProgram,
    VariablesRead,
    WatchStopped,
    WatchVariables,
    WriteFile,
)
from svc.model.clocks import WallClock

#: The exit code of ``--once`` where not everything is up to date.
NOT_CURRENT: Final = 1

#: Signals that end the agent, and those that a program gets from it besides.
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
FORWARDED_SIGNALS: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGWINCH)

#: Returns a client for a configuration, which is closed at the end.
Connect = Callable[[AgentConfiguration], AbstractAsyncContextManager[VariableClient]]


@attrs.frozen
class AgentContext:
    """The surroundings of the process: the environment for its commands, the log, clocks, systemd, and the status file."""

    environment: Mapping[str, str]
    log: AgentLog
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
        around: AgentContext,
        *,
        program: tuple[str, ...] = (),
        once: bool = False,
    ) -> None:
        self._read, self._connect, self._context, self._once = read, connect, around, once
        self._log = around.log.write_line
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._redactor = commands.ValueRedactor()
        self._exit_code: int | None = None
        self._must_reload = False
        self._stop_signal = signal.SIGTERM
        self._child = AgentProgram(program, around.environment, self._log, self._request_stop) if program else None
        self._status = StatusFile(around.status_file, self._log) if around.status_file is not None else None
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None

    def handle_signal(self, number: signal.Signals) -> None:
        """Handle a signal: end, read the configuration again, or pass it on to the program."""
        if number in STOP_SIGNALS and self._exit_code is None:
            # The program gets it when it is stopped: a second one often means that something shall end at once.
            self._stop_signal = number
            self._log("info", f"ending, after {number.name}")
            self._context.systemd.send_notification("STOPPING=1")
            self._request_stop(0)
            return
        if self._child is not None:
            self._child.forward_signal(number)
        if number == signal.SIGHUP:
            self._must_reload = True
            self._events.put_nowait(None)

    async def run(self) -> int:
        """Keep everything up to date until a signal ends it, and return the exit code.

        :raises BadConfiguration: there is none to begin with.
        """
        present = await self._check_connectable(self._read())
        beating = asyncio.ensure_future(self._send_heartbeats())
        try:
            while self._exit_code is None:
                another = await self._run_configuration(present)
                try:
                    present = await self._check_connectable(another)
                except BadConfiguration as fault:
                    self._log_bad_configuration(fault)
        except Exception as fault:
            self._end_after_bug(fault)
        finally:
            beating.cancel()
            timeout = present.process.stop_timeout
            ended = await self._child.stop(timeout, self._stop_signal) if self._child is not None else None
        return ended if ended is not None else self._exit_code or 0

    async def _check_connectable(self, configuration: AgentConfiguration) -> AgentConfiguration:
        """Return a configuration that a client can be made of; otherwise raise ``BadConfiguration``."""
        async with self._connect(configuration):
            return configuration

    async def _run_configuration(self, configuration: AgentConfiguration) -> AgentConfiguration:
        """Keep to one configuration until the agent ends or there is another one, and return that."""
        self._log("info", f"keeping {self._describe_targets(configuration)} up to date from {configuration.url}")
        for warning in configuration.warnings:
            self._log("warning", warning)
        existing = frozenset(file.name for file in configuration.files if self._prepare_destination(file.destination))
        settings = configuration if not self._once else attrs.evolve(configuration, watch=False)
        core = AgentCore(settings, existing, self._context.chance, program=self._child is not None)
        clock = asyncio.get_running_loop().time
        async with self._connect(configuration) as batches:
            source = VariableSource(batches)
            events: list[Event] = []
            try:
                while self._exit_code is None:
                    for action in core.handle_events(clock(), *events):
                        await self._perform_action(action, source, configuration)
                    self._report_status(core, configuration, clock())
                    if self._once and core.rounds:
                        self._request_stop(0 if core.is_up_to_date else NOT_CURRENT)
                    if self._must_reload and (another := self._reload_configuration()) is not None:
                        return another
                    if self._exit_code is None:
                        events = await self._await_events(core.wake_at, clock())
            finally:
                await self._cancel_tasks()
        return configuration

    def _prepare_destination(self, destination: files.Destination) -> bool:
        """Remove what a killed agent has left of a file, and return whether the file is there."""
        with contextlib.suppress(FileFault):  # which is logged when it can't be written
            if files.group_may_write(destination):
                self._log(
                    "warning", f"the group of {destination.path.parent} can write there, and replace {destination.path}"
                )
            if files.remove_leftovers(destination):
                self._log("info", f"removed what a killed agent had left of {destination.path}")
        return files.file_exists(destination)

    async def _perform_action(self, action: Action, source: VariableSource, configuration: AgentConfiguration) -> None:
        match action:
            case LogMessage(level, text):
                self._log(level, text)
            case ReadVariables(ids):
                self._start_task(self._read_variables(source, ids))
            case WatchVariables(ids):
                if self._watching is not None:
                    self._watching.cancel()
                self._watching = self._start_task(self._watch_variables(source, ids))
            case WriteFile(file, content):
                await self._change_file(file.name, files.replace_file, file.destination, content)
            case RemoveFile(file):
                await self._change_file(file.name, files.remove_file, file.destination)
            case RunCommand(command):

                async def run_and_report() -> None:
                    surroundings = self._context.environment
                    self._events.put_nowait(
                        CommandEnded(command, await commands.run_command(command, surroundings, self._log, self._redactor))
                    )

                self._start_task(run_and_report())
            case RemoveMarkers(kept):
                for file in kept:
                    try:
                        await asyncio.to_thread(files.remove_marker, file.destination)
                    except FileFault as fault:
                        self._log("warning", str(fault))
            case UpdateProgram(environment, changed):
                assert self._child is not None
                await self._child.apply_environment(environment, configuration.process, changed=changed)

    async def _change_file(self, name: str, act: Callable[..., files.FileChange], *given: Any) -> None:
        try:
            self._events.put_nowait(FileHandled(name, await asyncio.to_thread(act, *given)))
        except FileFault as fault:
            self._events.put_nowait(FileHandled(name, fault=str(fault)))

    async def _read_variables(self, source: VariableSource, ids: frozenset[str]) -> None:
        try:
            reading = await source.read(ids)
        except SourceFault as fault:
            self._events.put_nowait(ReadFailed(str(fault)))
        else:
            self._redactor.update_values(reading.values.values())
            self._events.put_nowait(VariablesRead(reading))

    async def _watch_variables(self, source: VariableSource, ids: frozenset[str]) -> None:
        try:
            async for _ in source.watch(ids):
                self._events.put_nowait(ChangeNotified())
        except SourceFault as fault:
            self._events.put_nowait(WatchStopped(str(fault)))
        else:
            self._events.put_nowait(WatchStopped(None))

    async def _await_events(self, wake_at: float | None, now: float) -> list[Event]:
        """Wait for what happens next, until a moment."""
        try:
            async with asyncio.timeout(None if wake_at is None else max(wake_at - now, 0)):
                found = [await self._events.get()]
        except TimeoutError:
            return []
        while not self._events.empty():
            found.append(self._events.get_nowait())
        return [event for event in found if event is not None]

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish_task)
        return task

    def _finish_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._end_after_bug(fault)

    def _end_after_bug(self, fault: BaseException) -> None:
        """End after a fault of the agent itself, to be started again. Its text isn't logged: it could quote a value."""
        frames = [f"{Path(frame.f_code.co_filename).name}:{line}" for frame, line in traceback.walk_tb(fault.__traceback__)]
        self._log("error", f"this is a fault of the agent, which ends: {type(fault).__name__} at {', '.join(frames[-3:])}")
        self._request_stop(NOT_CURRENT)

    async def _cancel_tasks(self) -> None:
        """End everything that runs beside, and drop its events."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._watching = None
        while not self._events.empty():
            self._events.get_nowait()

    def _reload_configuration(self) -> AgentConfiguration | None:
        """Read the configuration again; ``None`` where the present one goes on."""
        self._must_reload = False
        self._context.systemd.send_notification("RELOADING=1")
        try:
            return self._read()
        except BadConfiguration as fault:
            self._log_bad_configuration(fault)
            return None
        finally:
            self._context.systemd.send_notification("READY=1")

    def _log_bad_configuration(self, fault: BadConfiguration) -> None:
        self._log("error", f"the new configuration is not used, and the old one goes on: {fault}")

    def _report_status(self, core: AgentCore, configuration: AgentConfiguration, now: float) -> None:
        status = status_of(core, configuration.url, now, self._context.wall.seconds())
        problems = status["problems"]
        summary = problems[0] if problems else f"{self._describe_targets(configuration)} up to date"
        self._context.systemd.report_status(f"{status['state']}: {summary}", ready=core.is_ready)
        if self._status is not None:
            self._status.write(status)

    def _describe_targets(self, configuration: AgentConfiguration) -> str:
        count = len(configuration.files)
        parts = [f"{count} file{'' if count == 1 else 's'}"] if count else []
        if self._child is not None and configuration.environment:
            parts.append("the environment of a program")
        return " and ".join(parts)

    async def _send_heartbeats(self) -> None:
        """Notify systemd that the agent lives; this loop stands still when the agent does."""
        while self._context.systemd.interval is not None:
            self._context.systemd.send_notification("WATCHDOG=1")
            await asyncio.sleep(self._context.systemd.interval)

    def _request_stop(self, code: int) -> None:
        if self._exit_code is None:
            self._exit_code = code
        self._events.put_nowait(None)

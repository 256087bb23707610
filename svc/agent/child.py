"""The program that the agent runs, with values in its environment (AGT-29 to AGT-31).

Note [Whose signals]. The program leads a session of its own, so that a key pressed in a terminal reaches it once: by the
agent, which passes signals on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping
from typing import Final

from svc.agent.configuration import ProcessSettings

#: The exit codes for a program that doesn't exist, and for one that can't be started, as shells have them.
PROGRAM_NOT_FOUND: Final = 127
NOT_STARTED: Final = 126


class AgentProgram:
    """A program.

    :param ended: called with its exit code when it ends by itself.
    """

    def __init__(
        self,
        arguments: tuple[str, ...],
        surroundings: Mapping[str, str],
        say: Callable[[str, str], None],
        ended: Callable[[int], None],
    ) -> None:
        self._arguments, self._base_environment, self._log, self._on_exit = arguments, surroundings, say, ended
        self._process: Process | None = None
        self._environment: Mapping[str, bytes] | None = None
        self._watcher: asyncio.Future[None] | None = None
        self._lock = asyncio.Lock()
        self._stopping = False

    async def apply_environment(self, environment: Mapping[str, bytes], settings: ProcessSettings, *, changed: bool) -> None:
        """Have the program run with this environment: start it, or do what ``settings`` say of a change.

        :param changed: whether its files have changed.
        """
        async with self._lock:
            if self._process is None:
                await self._start(environment)
            elif changed or environment != self._environment:
                if settings.restarts:
                    self._log("info", f"restarting {self._arguments[0]}, since its secrets have changed")
                    await self._stop(settings.stop_timeout)
                    await self._start(environment)
                elif settings.signal is not None:
                    self._log(
                        "info", f"sending {settings.signal.name} to {self._arguments[0]}, since its secrets have changed"
                    )
                    self.forward_signal(settings.signal)
                self._environment = environment

    def forward_signal(self, number: signal.Signals) -> None:
        """Pass a signal on, if the program runs."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def stop(self, timeout: float, number: signal.Signals = signal.SIGTERM) -> int | None:
        """End it with a signal, and return its exit code; ``None`` where it was never started."""
        async with self._lock:
            return await self._stop(timeout, number)

    async def _start(self, environment: Mapping[str, bytes]) -> None:
        surroundings = {os.fsencode(name): os.fsencode(value) for name, value in self._base_environment.items()}
        surroundings |= {os.fsencode(name): value for name, value in environment.items()}
        try:
            process = await asyncio.create_subprocess_exec(*self._arguments, env=surroundings, start_new_session=True)
        except (OSError, ValueError) as error:
            self._log(
                "error", f"{self._arguments[0]} can't be started: {getattr(error, 'strerror', None) or 'bad arguments'}"
            )
            self._on_exit(PROGRAM_NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_STARTED)
            return
        self._log("info", f"started {self._arguments[0]}, process {process.pid}")
        self._process, self._environment = process, environment
        self._watcher = asyncio.ensure_future(self._await_exit(process))

    async def _await_exit(self, process: Process) -> None:
        code = exit_code(await process.wait())
        if not self._stopping:
            self._log("info", f"{self._arguments[0]} ended with exit code {code}")
            self._on_exit(code)

    async def _stop(self, timeout: float, number: signal.Signals = signal.SIGTERM) -> int | None:
        process = self._process
        if process is None:
            return None
        self._stopping = True
        if process.returncode is None:
            self.forward_signal(number)
            try:
                await asyncio.wait_for(asyncio.shield(process.wait()), timeout)
            except TimeoutError:
                self._log("warning", f"{self._arguments[0]} did not end within {timeout:g} s, and is killed")
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        code = exit_code(await process.wait())
        self._process, self._stopping = None, False
        return code


def exit_code(code: int) -> int:
    """Return an exit code as shells have it: 128 more than the signal, of what a signal ended."""
    return code if code >= 0 else 128 - code

"""Commands that run after a change (AGT-27, AGT-28).

Note [Their words]. The output of a command goes to the log, and may contain a value. So each value, and each line of one, is
redacted: the current ones and those from before the change. A truncated line is not logged: it could end with half a value,
which would not be found.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from svc.agent.configuration import Command

#: The longest output that is logged, in bytes.
OUTPUT_LIMIT: Final = 16 * 1024

#: Seconds between a request to end and the kill.
GRACE: Final = 0.5

#: Seconds between two checks of whether a process group still exists.
_POLL_SECONDS: Final = 0.02

REDACTED: Final = "***"


class ValueRedactor:
    """Takes values out of text."""

    def __init__(self) -> None:
        self._current: frozenset[str] = frozenset()
        self._previous: frozenset[str] = frozenset()

    def update_values(self, values: Iterable[bytes]) -> None:
        """Know the values of now; those known until now are the ones from before, if they are others."""
        texts = {value.decode(errors="replace") for value in values}
        found = frozenset(part for text in texts for part in (text, *(line.strip() for line in text.splitlines())) if part)
        if not found >= self._current:  # more values of the same round are no change
            self._previous = self._current
        self._current = found

    def redact_text(self, text: str) -> str:
        """Return a text without the values; of one that lies within another, the longer one goes first."""
        for part in sorted(self._current | self._previous, key=len, reverse=True):
            text = text.replace(part, REDACTED)
        return text


async def run_command(
    command: Command, surroundings: Mapping[str, str], say: Callable[[str, str], None], blotting: ValueRedactor
) -> str | None:
    """Run a command without input, log its output, and return how it failed, ``None`` where it didn't.

    It leads a process group of its own, which is ended when the time is up, or when this is cancelled.
    """
    name = command.arguments[0]
    reading, writing = os.pipe()
    lines, collected = await _start_collecting(reading)
    try:
        process = await asyncio.create_subprocess_exec(
            *command.arguments,
            stdin=DEVNULL,
            stdout=writing,
            stderr=writing,
            env=surroundings,
            start_new_session=True,
            cwd="/",
        )
    except (OSError, ValueError) as error:
        lines.close()
        return f"it can't be started: {getattr(error, 'strerror', None) or 'its arguments can not be passed on'}"
    finally:
        os.close(writing)
    try:
        async with asyncio.timeout(command.timeout):
            code: int | None = await process.wait()
    except TimeoutError:
        code = None
    finally:
        if process.returncode is None:
            await end_process_group(process)
        # Processes that it started may hold its output open for ever.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(collected.ended), GRACE)
        lines.close()
        for line in blotting.redact_text(collected.complete_lines().decode(errors="replace")).splitlines():
            say("info", f"{name}: {line}")
        if collected.is_truncated:
            say("info", f"{name}: … and more, which is not logged")
    if code is None:
        return f"it took longer than {command.timeout:g} s"
    return None if code == 0 else _describe_exit(code)


async def end_process_group(process: Process, grace: float = GRACE) -> None:
    """End a process, and all of its group: with SIGTERM, and what is left after ``grace`` seconds with SIGKILL."""
    _signal_group(process, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(grace):
            await process.wait()
            while _signal_group(process, 0):
                await asyncio.sleep(_POLL_SECONDS)
            return
    _signal_group(process, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), grace)


def _signal_group(process: Process, number: int) -> bool:
    """Send a signal to a process's group, and return whether that still exists."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class _OutputCollector(asyncio.Protocol):
    """Collects the output of a command."""

    def __init__(self) -> None:
        self.output = bytearray()
        self.is_truncated = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        """Keep it, up to the limit."""
        room = OUTPUT_LIMIT - len(self.output)
        self.output += data[:room]
        self.is_truncated = self.is_truncated or len(data) > room

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's)
        """Note that there is no more."""
        if not self.ended.done():
            self.ended.set_result(None)

    def complete_lines(self) -> bytes:
        """Return the output, without a truncated last line (Note [Their words])."""
        if self.ended.done() and not self.is_truncated:
            return bytes(self.output)
        return bytes(self.output[: self.output.rfind(b"\n") + 1])


async def _start_collecting(reading: int) -> tuple[asyncio.ReadTransport, _OutputCollector]:
    pipe = os.fdopen(reading, "rb", 0)
    return await asyncio.get_running_loop().connect_read_pipe(_OutputCollector, pipe)


def _describe_exit(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"ended by {signal.Signals(-code).name}"

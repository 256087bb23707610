"""A line on a terminal that shows that one waits."""

from __future__ import annotations

import threading
from collections.abc import Awaitable
from typing import TextIO, TypeVar

import click

T = TypeVar("T")


async def show_progress(work: Awaitable[T], what: str, stream: TextIO, second: float = 1.0) -> T:
    """Return the result of ``work``; while it lasts longer than ``second``, a terminal shows ``what`` and for how long.

    A thread writes the line, so that it doesn't matter by what the work waits.
    """
    if not stream.isatty():
        return await work
    ended = threading.Event()
    lines: list[str] = []

    def write_seconds() -> None:
        while not ended.wait(second):
            lines.append(f"\r{what}: {len(lines) + 1} s")
            stream.write(lines[-1])
            stream.flush()

    counting = threading.Thread(target=write_seconds, name="shown", daemon=True)
    counting.start()
    try:
        return await work
    finally:
        ended.set()
        counting.join()
        if lines:
            click.echo("\r\x1b[K", file=stream, nl=False)

"""A line that says that something is still under way, for people who look at a terminal."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, TextIO, TypeVar

import click
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall

T = TypeVar("T")

#: How often the line is written, and when first, in seconds.
INTERVAL: Final = 1.0


async def shown(work: Awaitable[T], what: str, clock: IReactorTime, stream: TextIO) -> T:
    """Wait for ``work``; say so on ``stream`` once it takes longer than a second, if that is a terminal."""
    if not stream.isatty():
        return await work
    begun = clock.seconds()
    written = False

    def say() -> None:
        nonlocal written
        written = True
        click.echo(f"\r{what}: {clock.seconds() - begun:.0f} s", file=stream, nl=False)

    ticking = LoopingCall(say)
    ticking.clock = clock
    ticking.start(INTERVAL, now=False)
    try:
        return await work
    finally:
        ticking.stop()
        if written:
            click.echo("\r\x1b[K", file=stream, nl=False)

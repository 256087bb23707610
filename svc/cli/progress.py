"""A line that says that something is still under way, for people who look at a terminal."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TextIO, TypeVar

import click
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall

T = TypeVar("T")


async def shown(work: Awaitable[T], what: str, clock: IReactorTime, stream: TextIO) -> T:
    """Return the result of ``work``, and say each second on ``stream``, if that is a terminal, how long it has taken."""
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
    ticking.start(1, now=False)
    try:
        return await work
    finally:
        ticking.stop()
        if written:
            click.echo("\r\x1b[K", file=stream, nl=False)

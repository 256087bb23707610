"""Work on many things at once, a few at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")


async def run_window(things: Iterable[A], work: Callable[[A], Coroutine[Any, Any, B]], width: int) -> AsyncIterator[B]:
    """Return the results of ``work`` for some things, in their order, while up to ``width`` of them are worked on.

    A result that isn't taken yet counts among these, so that no more of them are in memory. If one fails, or nobody takes
    the results any more, the others are cancelled.
    """
    running: deque[asyncio.Task[B]] = deque()
    waiting = iter(things)
    try:
        while True:
            for thing in waiting:
                running.append(asyncio.ensure_future(work(thing)))
                if len(running) >= width:
                    break
            if not running:
                return
            result = await running[0]
            running.popleft()
            yield result
    finally:
        await _cancel(running)


async def work_through(things: AsyncIterator[A], work: Callable[[A], Coroutine[Any, Any, None]], width: int) -> None:
    """Do ``work`` for things as they come, for up to ``width`` of them at once; if one fails, the others are cancelled."""
    turn = asyncio.Lock()

    async def take_and_work() -> None:
        while True:
            async with turn:
                try:
                    thing = await anext(things)
                except StopAsyncIteration:
                    return
            await work(thing)

    workers = [asyncio.ensure_future(take_and_work()) for _ in range(width)]
    try:
        await asyncio.gather(*workers)
    finally:
        await _cancel(workers)


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

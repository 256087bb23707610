"""Coroutines as commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click
from twisted.internet import task
from twisted.internet.defer import Deferred


def react(work: Callable[[Any], Awaitable[None]]) -> None:
    """Run the reactor until ``work``, which is given it, has ended. A command can do this once.

    :raises click.ClickException: ``work`` raised it.
    :raises SystemExit: ``work`` raised anything else, which has been logged, or the reactor was stopped by a signal.
    """
    faults: list[click.ClickException] = []

    async def caught(reactor: Any) -> None:
        try:
            await work(reactor)
        except click.ClickException as fault:
            # task.react would log it, with its traceback.
            faults.append(fault)

    try:
        task.react(lambda reactor: Deferred.fromCoroutine(caught(reactor)))
    except SystemExit as ended:
        if faults:
            raise faults[0] from None
        if ended.code:
            raise

"""Coroutines as commands that run a server, or a part of one, and so Twisted's reactor; all others have ``coroutines``."""

from __future__ import annotations

import os
import pwd
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from twisted.internet import task
from twisted.internet.defer import Deferred

from svc.cli.coroutines import Interrupted, Then
from svc.model.clocks import use_steady_clock
from svc.workload.faults import Fault


def _describe_denial(error: PermissionError) -> str:
    """Return what this user may not do, and as which user to run the command instead (CLI-51)."""
    if not isinstance(error.filename, str | bytes):
        return f"the system refuses this to the user with the id {os.geteuid()}: {error.strerror}"
    path = Path(os.fsdecode(error.filename)).absolute()
    for place in (path, *path.parents):
        with suppress(OSError):
            owner = os.lstat(place).st_uid
            break
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"with the id {owner}"
    return f"{path}: {error.strerror}; {place} belongs to the user {name}: run this as that user"


async def until_stopped(reactor: Any) -> None:
    """Return when a signal has stopped the reactor."""
    stopped: Deferred[None] = Deferred()
    reactor.addSystemEventTrigger("before", "shutdown", stopped.callback, None)
    await stopped


def run_reactor(work: Callable[[Any], Awaitable[Then]]) -> None:
    """Run the reactor until ``work``, which is given it, has ended, then do what that returned. A command can do this once.

    :raises click.ClickException: ``work`` raised it, a fault of ``svc.workload``, or ``PermissionError``; ``Exit`` likewise.
    :raises BrokenPipeError: the reader of its output has closed it; click ends the command then, without a message.
    :raises Interrupted: a signal stopped the reactor before ``work`` had ended.
    :raises SystemExit: ``work`` raised anything else, which has been logged.
    """
    reactors: list[Any] = []
    faults: list[Exception] = []
    after: list[Then] = []

    async def run_and_catch(reactor: Any) -> None:
        use_steady_clock(reactor)
        reactors.append(reactor)
        try:
            after.append(await work(reactor))
        except (click.ClickException, click.exceptions.Exit, Fault) as fault:
            # task.react would log it, with its traceback. After a signal, it is but that connections have been closed.
            if reactor._exitSignal is None:
                faults.append(click.ClickException(str(fault)) if isinstance(fault, Fault) else fault)
        except BrokenPipeError as fault:
            faults.append(fault)
        except PermissionError as fault:
            faults.append(click.ClickException(_describe_denial(fault)))

    try:
        task.react(lambda reactor: Deferred.fromCoroutine(run_and_catch(reactor)))
    except SystemExit as ended:
        if faults:
            raise faults[0] from None
        if ended.code:
            raise
        if not after:
            # So twistd knows what has stopped the reactor, too.
            raise Interrupted(128 + (reactors[0]._exitSignal or 0)) from None
    for then in filter(None, after):
        then()

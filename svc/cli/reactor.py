"""Coroutines as commands that run a server, or a part of one, and so Twisted's reactor; all others have ``coroutines``.

Note [Signals]. The reactor would stop in the middle of the work, which would be left for Python to destroy. So SIGINT and
SIGTERM cancel the work, and the reactor stops when that has cleaned up; a second one ends the process at once.
"""

from __future__ import annotations

import os
import pwd
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import click
from twisted.internet import task
from twisted.internet.defer import CancelledError, Deferred

from svc.cli.coroutines import Interrupted, Then
from svc.model.clocks import use_steady_clock
from svc.model.interrupts import INTERRUPTED
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


async def until_stopped() -> None:
    """Return when a signal has come."""
    with suppress(CancelledError):
        await Deferred()


def _end_at_second_signal() -> None:
    """Have the process end at the second signal, even one that interrupts the handler of the first."""
    stop_by = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signals = count()

    def stop_reactor(number: int, frame: FrameType | None) -> None:
        stop = stop_by[signal.Signals(number)]
        if next(signals) or not callable(stop):
            os._exit(128 + number)
        for each in stop_by:
            signal.signal(each, stop_reactor)
        stop(number, frame)

    for number, stop in stop_by.items():
        if callable(stop):  # SIGINT may be ignored, but for a second signal
            signal.signal(number, stop_reactor)


def run_reactor(work: Callable[[Any], Awaitable[Then]]) -> None:
    """Run the reactor until ``work``, which is given it, has ended, then do what that returned. A command can do this once.

    :raises click.ClickException: ``work`` raised it, a fault of ``svc.workload``, or ``PermissionError``; ``Exit`` likewise.
    :raises BrokenPipeError: the reader of its output has closed it; click ends the command then, without a message.
    :raises Interrupted: a signal came before ``work`` had ended (Note [Signals]).
    :raises SystemExit: ``work`` raised anything else, which has been logged.
    """
    reactors: list[Any] = []
    faults: list[BaseException] = []
    after: list[Then] = []
    ended: Deferred[None] = Deferred()

    async def run_and_catch(reactor: Any) -> None:
        use_steady_clock(reactor)
        reactors.append(reactor)
        try:
            running: Deferred[None] = Deferred()  # Python's handler of SIGINT is in force before
            reactor.callWhenRunning(running.callback, None)
            await running
            _end_at_second_signal()
            after.append(await work(reactor))
        except (BrokenPipeError, Interrupted) as fault:
            faults.append(fault)
        except Exception as fault:
            if reactor._exitSignal is not None:
                return  # it is but what the cancellation has led to
            # task.react would log these, with a traceback.
            if isinstance(fault, Fault):
                faults.append(click.ClickException(str(fault)))
            elif isinstance(fault, PermissionError):
                faults.append(click.ClickException(_describe_denial(fault)))
            elif isinstance(fault, click.ClickException | click.exceptions.Exit):
                faults.append(fault)
            else:
                raise
        finally:
            ended.callback(None)

    def run_until_signal(reactor: Any) -> Deferred[None]:
        working = Deferred.fromCoroutine(run_and_catch(reactor))

        def cancel_work() -> Deferred[None]:
            if not ended.called:
                working.cancel()
            return ended

        reactor.addSystemEventTrigger("before", "shutdown", cancel_work)
        return working

    try:
        task.react(run_until_signal)
    except KeyboardInterrupt:  # before the reactor ran
        raise Interrupted(INTERRUPTED) from None
    except SystemExit as exit_:
        if faults:
            raise faults[0] from None
        if exit_.code:
            raise
        if not after:
            # So twistd knows what has stopped the reactor, too.
            raise Interrupted(128 + (reactors[0]._exitSignal or 0)) from None
    for then in filter(None, after):
        then()

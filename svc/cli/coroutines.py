"""Coroutines as commands, on asyncio."""

from __future__ import annotations

import asyncio
import signal
import warnings
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import click

from svc.client.async_exchange import AsyncExchange, async_transport
from svc.workload.faults import Fault
from svc.workload.requester import StreamRequester
from svc.workload.versions import Versions

#: The work for when the command has ended, if any.
Then = Callable[[], object] | None


class Interrupted(SystemExit):
    """A signal ended the command before its work was done; the exit code is that of shells, 128 more than the signal."""


class Network:
    """The connections of a command, which end with it."""

    def __init__(self) -> None:
        self._exchanges: list[AsyncExchange] = []

    def make_requester(self, limit: int, ca_file: Path | None = None, versions: Versions | None = None) -> StreamRequester:
        """Return the sender of requests, whose answers have ``limit`` bytes at most; parameters as in ``AsyncExchange``.

        :raises NoEvidence: the file can't be read, or holds anything else than certificates.
        """
        made = AsyncExchange(async_transport(ca_file), limit, versions)
        self._exchanges.append(made)
        return made

    async def close(self) -> None:
        """End them."""
        for made in self._exchanges:
            await made.close()


def run_asyncio(work: Callable[[Network], Awaitable[Then]]) -> None:
    """Run ``work``, which is given a network, then do what it returned. A command can do this once.

    :raises click.ClickException: ``work`` raised it, or a fault of ``svc.workload``; ``Exit`` likewise.
    :raises BrokenPipeError: the reader of its output has closed it; click ends the command then, without a message.
    :raises Interrupted: a signal came before ``work`` had ended.
    """

    async def run_and_close() -> Then:
        network = Network()
        try:
            return await work(network)
        finally:
            await network.close()

    try:
        with raising_on_signals():
            then = asyncio.run(run_and_close())
    except Fault as fault:
        raise click.ClickException(str(fault)) from None
    if then is not None:
        then()


@contextmanager
def raising_on_signals() -> Generator[None, None, None]:
    """Have signals end the command wherever it is: in its loop, or at a prompt or a pipe, for which no loop runs."""

    def raise_interrupted(number: int, _: object) -> None:
        # Python would warn of coroutines that are left unfinished.
        warnings.simplefilter("ignore")
        raise Interrupted(128 + number)

    # Ignored signals stay ignored, as in the background of a shell: programs started by `svc run` expect that, too.
    heeded = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, raise_interrupted) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Services that start in order and stop in the reverse order, and the server as one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import attrs
from twisted.application.service import IService, MultiService, Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorCore
from twisted.logger import Logger

S = TypeVar("S", bound=Service)

log = Logger()


def add_child(parent: MultiService, service: S) -> S:
    """Add a service to its parent, and return it."""
    service.setServiceParent(parent)  # type: ignore[no-untyped-call] # Twisted's
    return service


class OrderedMultiService(MultiService):
    """Services of which each depends on those before it.

    One that is added while this runs starts at once, so that one can be waited for before the next is added. The last one
    stops first, and each only when the one after it *has* stopped; a failure is logged, and keeps none from being stopped.
    """

    def stopService(self) -> Deferred[None]:
        """Stop all services, last one first."""
        return Deferred.fromCoroutine(self._stop_services())

    async def _stop_services(self) -> None:
        # Not MultiService's, which stops all of them at the same time.
        Service.stopService(self)
        services: list[IService] = list(self)
        for service in reversed(services):
            try:
                await maybeDeferred(service.stopService)
            except Exception:
                log.failure("{service} did not stop as it should", service=service.name)


@asynccontextmanager
async def running_services() -> AsyncIterator[OrderedMultiService]:
    """Have services run that are added, and stop them at the end."""
    services = OrderedMultiService()  # type: ignore[no-untyped-call] # Twisted's
    services.startService()  # type: ignore[no-untyped-call] # Twisted's
    try:
        yield services
    finally:
        await services.stopService()


async def do_nothing() -> None:
    """Return."""


@attrs.frozen
class Started:
    """A server that can serve.

    ``urls`` are the addresses that it serves at. ``announced`` is called when the operator knows that it is ready.
    ``answers`` returns whether it answers requests, as far as this process can tell, whose reactor turns.
    """

    urls: Sequence[str]
    announced: Callable[[], Awaitable[None]] = do_nothing
    answers: Callable[[], bool] = lambda: True


class ServerService(OrderedMultiService):
    """The server. ``compose`` makes its services and adds each of them.

    It begins when the reactor runs. When the server is stopped before it has ended, it is cancelled. ``undo`` removes what
    the start has made that no service removes, after everything has stopped, if the start is undone.
    """

    def __init__(
        self,
        reactor: IReactorCore,
        compose: Callable[[ServerService], Coroutine[Any, Any, Started]],
        undo: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # Twisted's
        self._reactor = reactor
        self._compose, self._undo = compose, undo
        self._composing: Deferred[Started] | None = None
        self._given_up: Deferred[str] = Deferred()
        self._ready: Deferred[Started] = Deferred()
        #: Whether the start is to be undone, if it isn't ready.
        self.interrupted = False
        #: Whether the start is undone, now that the server stops: it was interrupted before it was ready.
        self.is_undone = False

    def startService(self) -> None:
        """Begin when the reactor runs."""
        super().startService()  # type: ignore[no-untyped-call] # Twisted's
        self._reactor.callWhenRunning(self._begin_composing)

    async def wait_until_ready(self) -> Started:
        """Wait until the server can serve; to be awaited once.

        :raises CancelledError: it was stopped before.
        :raises Exception: the fault of the start; all that has been started is there until the server is stopped.
        """
        return await self._ready

    def give_up(self, reason: str) -> None:
        """Let the process end with failure, for this reason: there is no point in going on."""
        if not self._given_up.called:
            self._given_up.callback(reason)

    async def wait_for_give_up(self) -> str:
        """Return the reason when this server gives up; to be awaited once."""
        return await self._given_up

    def _begin_composing(self) -> None:
        if self.running:
            self._composing = Deferred.fromCoroutine(self._compose(self))
            self._composing.addBoth(self._ready.callback)

    async def _stop_services(self) -> None:
        self.is_undone = self.interrupted and not self._ready.called
        if self._composing is not None:
            self._composing.cancel()
        await super()._stop_services()
        if self.is_undone:
            self._undo()

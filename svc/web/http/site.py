"""The server's side of a port: it makes connections, and gives them their turns.

Note [Steps]: a client may send a thousand requests at once, or a body in a million chunks; done in one turn of the reactor,
they would make everybody else wait. So a connection that has received something gets one step at once, which ends with a
request that was answered or has to wait, or with a piece of a chunked body. The rest waits here: in each turn of the
reactor, waiting connections make steps one after the other, until ``STEPS_PER_ITERATION`` are done or
``SECONDS_PER_ITERATION`` have passed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from twisted.internet import defer
from twisted.internet.interfaces import IAddress, IDelayedCall, IProtocolNegotiationFactory, IReactorTime
from twisted.internet.protocol import ServerFactory
from zope.interface import implementer

from svc.model.counts import ConnectionCounts
from svc.web.http.connection import Channel, ConnectionLimiter
from svc.web.http.messages import HttpConfig

#: How many steps are made in one turn of the reactor, and for how many seconds another one is begun.
STEPS_PER_ITERATION: Final = 32
SECONDS_PER_ITERATION: Final = 0.002


class StepQueue:
    """The connections that have more to do, in the order of their next steps (Note [Steps])."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._steps: deque[Callable[[], None]] = deque()
        self._call: IDelayedCall | None = None

    def add_step(self, step: Callable[[], None]) -> None:
        """Have a step made after those that wait already."""
        self._steps.append(step)
        self._schedule_call()

    def _schedule_call(self) -> None:
        if self._call is None and self._steps:
            self._call = self._clock.callLater(0, self._run_steps)

    def _run_steps(self) -> None:
        made, end = 0, self._clock.seconds() + SECONDS_PER_ITERATION
        try:
            while self._steps and made < STEPS_PER_ITERATION and self._clock.seconds() < end:
                made += 1
                self._steps.popleft()()
        finally:
            # Not before: a step that is added meanwhile needs no call of its own.
            self._call = None
            self._schedule_call()


@implementer(IProtocolNegotiationFactory)
class Site(ServerFactory):
    """Makes a :class:`Channel` for each connection. One may serve several ports."""

    noisy = False

    def __init__(self, config: HttpConfig) -> None:
        self._config = config
        self._step_queue = StepQueue(config.clock)
        self._limiter = ConnectionLimiter(config.limits, config.proxies, config.clock)
        self._channels: set[Channel] = set()
        self._draining = False
        self._all_closed: defer.Deferred[None] | None = None

    def acceptableProtocols(self) -> list[bytes]:
        """Return the protocols that TLS offers: HTTP/1.1 and no other."""
        return [b"http/1.1"]

    def buildProtocol(self, addr: IAddress | None) -> Channel | None:  # noqa: ARG002
        """Make a connection; none any more once the site drains."""
        if self._draining:
            return None
        channel = Channel(self._config, self._step_queue.add_step, self._limiter, self._on_channel_closed)
        self._channels.add(channel)
        return channel

    def connection_counts(self) -> ConnectionCounts:
        """Return the counts of connections; callable from another thread."""
        return self._limiter.connection_counts()

    async def drain(self, timeout: float) -> None:
        """Let requests in progress end, and close all connections, at the latest after ``timeout`` seconds; admit none."""
        self._draining = True
        for channel in list(self._channels):
            channel.close_when_idle()
        if self._channels:
            self._all_closed = defer.Deferred()
            try:
                await self._all_closed.addTimeout(timeout, self._config.clock)
            except defer.TimeoutError:
                for channel in list(self._channels):
                    channel.abort()

    def _on_channel_closed(self, channel: Channel) -> None:
        self._channels.discard(channel)
        if self._all_closed is not None and not self._channels and not self._all_closed.called:
            self._all_closed.callback(None)

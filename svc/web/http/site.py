"""The server's side of a listening port: it makes connections, keeps count of them, and ends them in good order."""

from __future__ import annotations

from twisted.internet import defer
from twisted.internet.interfaces import IAddress, IProtocolNegotiationFactory
from twisted.internet.protocol import ServerFactory
from zope.interface import implementer

from svc.model.counts import ConnectionCounts
from svc.web.http.connection import Channel
from svc.web.http.occupancy import Occupancy
from svc.web.http.pacing import Turns
from svc.web.http.request import HttpConfig


@implementer(IProtocolNegotiationFactory)
class Site(ServerFactory):
    """Makes a :class:`Channel` for each connection. One may serve several ports."""

    noisy = False

    def __init__(self, config: HttpConfig) -> None:
        self._config = config
        self._turns = Turns(config.clock)
        self._occupancy = Occupancy(config.limits, config.proxies, config.clock)
        self._open: set[Channel] = set()
        self._draining = False
        self._empty: defer.Deferred[None] | None = None

    def acceptableProtocols(self) -> list[bytes]:
        """Return the protocols that TLS offers: HTTP/1.1 and no other."""
        return [b"http/1.1"]

    def buildProtocol(self, addr: IAddress | None) -> Channel | None:  # noqa: ARG002
        """Make a connection; none any more once the site drains."""
        if self._draining:
            return None
        channel = Channel(self._config, self._turns, self._occupancy, self._closed)
        self._open.add(channel)
        return channel

    def counts(self) -> ConnectionCounts:
        """Return the counts of connections; callable from another thread."""
        return self._occupancy.counts()

    async def drain(self, timeout: float) -> None:
        """Let requests in progress end, and close all connections, at the latest after ``timeout`` seconds; admit none."""
        self._draining = True
        for channel in list(self._open):
            channel.retire()
        if self._open:
            self._empty = defer.Deferred()
            try:
                await self._empty.addTimeout(timeout, self._config.clock)
            except defer.TimeoutError:
                for channel in list(self._open):
                    channel.abort()

    def _closed(self, channel: Channel) -> None:
        self._open.discard(channel)
        if self._empty is not None and not self._open and not self._empty.called:
            self._empty.callback(None)

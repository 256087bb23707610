"""Records as messages of syslog over a connection, each after its length (RFC 6587, 3.4.1: octet counting).

A record that was taken has been handed to the connection, and nothing is left of it in this process. The protocol has no
answers: what the network or the receiver loses is lost. Records that were not handed over yet go to the next connection.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from twisted.application.internet import ClientService
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IConsumer, IPullProducer, IReactorTime, IStreamClientEndpoint, ITCPTransport
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.audit.backlog import Backlog, ISink

#: How many bytes are handed to a connection at once.
PIECE: Final = 64 * 1024

#: Seconds for which the start waits for the first connection, and the stop for the last records; and the longest pause
#: before another attempt to connect, of which the first is one second.
PATIENCE: Final = 5.0
PAUSE: Final = 30.0

#: TCP keep-alive: seconds of silence before the first probe, seconds between probes, and their number.
_SILENCE: Final = (30, 10, 3)

_log = Logger()


def _ask_when_idle(transport: ITCPTransport) -> None:
    """Have the system find out whether the other end of an idle connection is still there (RFC 9293, 3.8.4)."""
    transport.setTcpKeepAlive(True)
    with suppress(AttributeError, OSError):  # under TLS there is no socket to be had, and not every system has these
        handle = transport.getHandle()  # type: ignore[attr-defined] # of every connection of the reactor's
        for option, value in zip((socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT), _SILENCE, strict=True):
            handle.setsockopt(socket.IPPROTO_TCP, option, value)


@implementer(IPullProducer)
class _Outlet(Protocol):
    """One connection. As a producer it knows that written data has left this process when it is asked for more."""

    def __init__(self, sink: SyslogSink) -> None:
        self._sink = sink
        self._count = 0

    def connectionMade(self) -> None:
        if ITCPTransport.providedBy(self.transport):
            _ask_when_idle(self.transport)
        self._sink.connected(self)

    def connectionLost(self, reason: Failure = Failure(ConnectionError())) -> None:  # noqa: B008 - Twisted's
        self._count = 0  # what was not handed over is still in the backlog
        self._sink.disconnected(self, reason.getErrorMessage())

    @property
    def busy(self) -> bool:
        """Return whether what was written hasn't left yet."""
        return self._count > 0

    def send(self, records: list[bytes]) -> None:
        """Write records; the sink is notified when they have left."""
        transport = IConsumer(self.transport)
        self._count = len(records)
        transport.write(b"".join([b"%d %b" % (len(record), record) for record in records]))
        self._handed = False
        # Called at once where it is registered, and again when everything has been sent.
        transport.registerProducer(self, False)

    def resumeProducing(self) -> None:  # noqa: N802 - the name is Twisted's
        """Note that everything has been sent; called at the registration too."""
        if not self._handed:
            self._handed = True
            return
        IConsumer(self.transport).unregisterProducer()
        count, self._count = self._count, 0
        if count:
            self._sink.sent(count)

    def stopProducing(self) -> None:  # noqa: N802 - the name is Twisted's
        """Do nothing: ``connectionLost`` follows."""


@implementer(ISink)
class SyslogSink:
    """Sends to a receiver of syslog at an endpoint; ``text`` is how the operator wrote that."""

    def __init__(self, clock: IReactorTime, endpoint: IStreamClientEndpoint, text: str) -> None:
        self.name = f"syslog at {text}"
        self._clock = clock
        self._service = ClientService(
            endpoint,
            Factory.forProtocol(lambda: _Outlet(self)),
            retryPolicy=lambda attempts: min(PAUSE, 2.0 ** min(attempts - 1, 10)),
            clock=clock,
        )
        self._backlog: Backlog | None = None
        self._outlet: _Outlet | None = None
        self._empty: Deferred[None] | None = None

    async def open(self, backlog: Backlog) -> None:
        """See ``ISink``. A receiver that isn't there is waited for a moment, and then tried behind this call."""
        self._backlog = backlog
        self._service.startService()
        try:
            await self._service.whenConnected().addTimeout(PATIENCE, self._clock)
        except (DeferredTimeout, CancelledError):
            self._fail("there is no connection")

    def take(self, records: Sequence[bytes]) -> Sequence[bytes]:  # noqa: ARG002 - it is the seam's
        """See ``ISink``. A connection takes its time over all."""
        return ()

    def wake(self) -> None:
        """See ``ISink``."""
        if self._outlet is not None and self._backlog and not self._outlet.busy:
            self._outlet.send(self._backlog.head(PIECE))

    def ready(self) -> bool:
        """See ``ISink``. That a connection was cut off in silence is found by the system, which asks the other end."""
        return self._outlet is not None and not self._outlet.busy

    def reopen(self) -> None:
        """See ``ISink``: there is nothing to be opened."""

    async def close(self) -> None:
        """See ``ISink``."""
        if self._backlog and self._outlet is not None:
            self._empty = Deferred()
            try:
                await self._empty.addTimeout(PATIENCE, self._clock)
            except DeferredTimeout:
                self._outlet.transport.abortConnection()  # type: ignore[union-attr] # a connection has a transport
        await maybeDeferred(self._service.stopService)

    def connected(self, outlet: _Outlet) -> None:
        """Use a new connection."""
        self._outlet = outlet
        if self._backlog is not None and self._backlog.trouble is not None:
            self._backlog.recovered()
        self.wake()

    def disconnected(self, outlet: _Outlet, why: str) -> None:
        """Note that the connection was lost."""
        if self._outlet is outlet:
            self._outlet = None
            if self._service.running:
                self._fail(why)

    def sent(self, count: int) -> None:
        """Note that the oldest records have left this process."""
        assert self._backlog is not None
        self._backlog.taken(count)
        if not self._backlog and self._empty is not None:
            empty, self._empty = self._empty, None
            empty.callback(None)
        self.wake()

    def _fail(self, why: str) -> None:
        if self._backlog is not None:
            self._backlog.failed(why)

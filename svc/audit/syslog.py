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

from svc.audit.journal import Backlog, ISink

#: How many bytes are handed to a connection at once.
WRITE_BYTES: Final = 64 * 1024

#: Seconds for which the start waits for the first connection, and the stop for the last records; and the longest pause
#: before another attempt to connect, of which the first is one second.
PATIENCE: Final = 5.0
LONGEST_RETRY_PAUSE: Final = 30.0

#: TCP keep-alive: seconds of silence before the first probe, seconds between probes, and their number.
_KEEPALIVE: Final = (30, 10, 3)

_log = Logger()


def _enable_keepalive(transport: ITCPTransport) -> None:
    """Have the system find out whether the other end of an idle connection is still there (RFC 9293, 3.8.4)."""
    transport.setTcpKeepAlive(True)
    with suppress(AttributeError, OSError):  # under TLS there is no socket to be had, and not every system has these
        handle = transport.getHandle()  # type: ignore[attr-defined] # of every connection of the reactor's
        for option, value in zip((socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT), _KEEPALIVE, strict=True):
            handle.setsockopt(socket.IPPROTO_TCP, option, value)


@implementer(IPullProducer)
class _SyslogConnection(Protocol):
    """One connection. As a producer it knows that written data has left this process when it is asked for more."""

    def __init__(self, sink: SyslogSink) -> None:
        self._sink = sink
        self._unsent_count = 0

    def connectionMade(self) -> None:
        if ITCPTransport.providedBy(self.transport):
            _enable_keepalive(self.transport)
        self._sink.use_connection(self)

    def connectionLost(self, reason: Failure = Failure(ConnectionError())) -> None:  # noqa: B008 - Twisted's
        self._unsent_count = 0  # what was not handed over is still in the backlog
        self._sink.drop_connection(self, reason.getErrorMessage())

    @property
    def is_busy(self) -> bool:
        """Return whether what was written hasn't left yet."""
        return self._unsent_count > 0

    def send_records(self, records: list[bytes]) -> None:
        """Write records; the sink is notified when they have left."""
        transport = IConsumer(self.transport)
        self._unsent_count = len(records)
        transport.write(b"".join([b"%d %b" % (len(record), record) for record in records]))
        self._is_registered = False
        # Called at once where it is registered, and again when everything has been sent.
        transport.registerProducer(self, False)

    def resumeProducing(self) -> None:  # noqa: N802 - the name is Twisted's
        """Note that everything has been sent; called at the registration too."""
        if not self._is_registered:
            self._is_registered = True
            return
        IConsumer(self.transport).unregisterProducer()
        count, self._unsent_count = self._unsent_count, 0
        if count:
            self._sink.confirm_sent(count)

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
            Factory.forProtocol(lambda: _SyslogConnection(self)),
            retryPolicy=lambda attempts: min(LONGEST_RETRY_PAUSE, 2.0 ** min(attempts - 1, 10)),
            clock=clock,
        )
        self._backlog: Backlog | None = None
        self._connection: _SyslogConnection | None = None
        self._drained: Deferred[None] | None = None

    async def open(self, backlog: Backlog) -> None:
        """See ``ISink``. A receiver that isn't there is waited for a moment, and then tried behind this call."""
        self._backlog = backlog
        self._service.startService()
        try:
            await self._service.whenConnected().addTimeout(PATIENCE, self._clock)
        except (DeferredTimeout, CancelledError):
            self._mark_failed("there is no connection")

    def try_write(self, records: Sequence[bytes]) -> Sequence[bytes]:  # noqa: ARG002 - it is the interface's
        """See ``ISink``. A connection takes its time over all."""
        return ()

    def drain_backlog(self) -> None:
        """See ``ISink``."""
        if self._connection is not None and self._backlog and not self._connection.is_busy:
            self._connection.send_records(self._backlog.oldest_records(WRITE_BYTES))

    def is_ready(self) -> bool:
        """See ``ISink``. That a connection was cut off in silence is found by the system, which asks the other end."""
        return self._connection is not None and not self._connection.is_busy

    def reopen(self) -> None:
        """See ``ISink``: there is nothing to be opened."""

    async def close(self) -> None:
        """See ``ISink``."""
        if self._backlog and self._connection is not None:
            self._drained = Deferred()
            try:
                await self._drained.addTimeout(PATIENCE, self._clock)
            except DeferredTimeout:
                self._connection.transport.abortConnection()  # type: ignore[union-attr] # a connection has a transport
        await maybeDeferred(self._service.stopService)

    def use_connection(self, outlet: _SyslogConnection) -> None:
        """Use a new connection."""
        self._connection = outlet
        if self._backlog is not None and self._backlog.failure is not None:
            self._backlog.mark_recovered()
        self.drain_backlog()

    def drop_connection(self, outlet: _SyslogConnection, why: str) -> None:
        """Note that the connection was lost."""
        if self._connection is outlet:
            self._connection = None
            if self._service.running:
                self._mark_failed(why)

    def confirm_sent(self, count: int) -> None:
        """Note that the oldest records have left this process."""
        assert self._backlog is not None
        self._backlog.mark_delivered(count)
        if not self._backlog and self._drained is not None:
            empty, self._drained = self._drained, None
            empty.callback(None)
        self.drain_backlog()

    def _mark_failed(self, why: str) -> None:
        if self._backlog is not None:
            self._backlog.mark_failed(why)

"""One connection and the requests on it, held to their limits; and the server's side of a port, which makes connections.

``twisted.web`` isn't used: it costs more than the rest of a small request, parses forms that no route declares, and writes
bodies to disk.

Note [Answering early]: a request may be refused while it is still coming in. Then the answer is written at once, and no
other follows. But closing a socket that has unread bytes resets it, and a reset can overtake the answer. So this side only
stops writing, and goes on reading and dropping for ``LINGER_SECONDS`` seconds, or until the client closes. A refusal that
leaves the body within its limit waits for the end of the body, of which nothing is kept, and the connection stays usable.

Note [Bounded]: the input is read up to the end of one request; the rest waits for its turn (Note [Steps]),
and beyond ``UNREAD_LIMIT`` unread bytes no more is received. While the client doesn't take its answers no further request is
begun, and one that takes none of them for as long as it may be idle is cut off.

Note [At once]: a transport of Twisted's writes when the reactor has found the socket writable, which costs a fifth of a
short answer. So an answer is written to the socket directly. When that doesn't take all of it, or the connection is one of
TLS, the transport writes; and it goes on to do so, since it doesn't report when it has written everything.

Note [Steps]: a client may send a thousand requests at once, or a body in a million chunks; done in one turn of the reactor,
they would make everybody else wait. So a connection that has received something gets one step at once, which ends with a
request that was answered or has to wait, or with a piece of a chunked body. The rest waits here: in each turn of the
reactor, waiting connections make steps one after the other, until ``STEPS_PER_ITERATION`` are done or
``SECONDS_PER_ITERATION`` have passed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from socket import socket
from typing import Final

from twisted.internet import defer
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import (
    IAddress,
    IConsumer,
    IDelayedCall,
    IProtocolNegotiationFactory,
    IPushProducer,
    IReactorTime,
    ISSLTransport,
    ISystemHandle,
    ITCPTransport,
    ITransport,
)
from twisted.internet.protocol import Protocol, ServerFactory, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.model.counts import ConnectionCounts
from svc.model.unnamed_client import UnnamedClient
from svc.web.http.client_address import canonical_address
from svc.web.http.connection_limits import ConnectionLimiter
from svc.web.http.messages import HttpConfig, Request, Response
from svc.web.http.refusal_responses import TOO_SLOW, UNREADABLE
from svc.web.http.request_reader import Head, Reader, UnreadableRequest
from svc.web.http.stream import Stream

#: Unread bytes beyond which no more is read; beside these there may be what one reading brings.
UNREAD_LIMIT: Final = 16 * 1024

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


#: Seconds for which a client that was refused in mid-request may take its answer, and for which a close may take.
LINGER_SECONDS: Final = 5.0

#: How long a connection beyond the limit may be idle, and a request on it take to arrive, in seconds.
OVERFLOW_SECONDS: Final = 5.0


class IDuplexTransport(ITransport, IPushProducer, IConsumer):
    """A connection of TCP or TLS: what comes in can be paused, and what goes out has a producer."""

    def abortConnection() -> None:  # noqa: N802  # the name is Twisted's
        """Close at once."""


@implementer(IPushProducer)
class Channel(Protocol):
    """A connection. Requests are answered in their order, one at a time.

    ``turns`` and ``occupancy`` are those of all connections; ``on_closed`` is called with this one when it has closed. To
    its transport it is the producer of answers.
    """

    transport: IDuplexTransport

    def __init__(
        self, config: HttpConfig, turns: StepQueue, occupancy: ConnectionLimiter, on_closed: Callable[[Channel], None]
    ) -> None:
        limits = config.limits
        self.peer = "127.0.0.1"
        self.forwards = True
        self.overflow = False
        self._config = config
        self._step_queue = turns
        self._limiter = occupancy
        self._idle_seconds, self._request_seconds = limits.idle_seconds, limits.request_seconds
        self._on_closed = on_closed
        self._reader = Reader(limits)
        self._parsing = False
        self._queued = False
        self._receiving_paused = False
        self._ignores_input = False
        #: The request that is coming in or being answered.
        self._request: Request | None = None
        self._stream: Stream | None = None
        #: The socket that is written to directly (Note [At once]).
        self._socket: socket | None = None
        self._is_http11 = True
        self._persistent = True
        self._receiving = False
        self._answering = False
        self._refusing = False
        self._retiring = False
        self._closing = False
        self._sending_paused = False
        self._deadline = Deadline(config.clock, self._on_overdue)

    # -- request.Connection

    def write_response(self, request: Request, response: Response) -> None:
        """Write the answer to a request that is complete, and go on to the next."""
        self._send_response(response, request)
        self._end_request()

    def open_stream(self, request: Request, response: Response) -> Stream:
        """Write the head of an answer in pieces to a request that is complete, and return what writes them."""
        self._send_response(response, request)
        self._stream = stream = Stream(self._send_bytes, chunked=self._is_http11)
        if self._sending_paused:
            stream.pauseProducing()
        return stream

    def finish_stream(self) -> None:
        """Go on to the next request, now that the last piece was written."""
        self._stream = None
        self._persistent = self._persistent and not self._retiring
        self._end_request()

    def refuse_request(self, response: Response, request: Request | None = None) -> None:
        """Write the answer to a request that is not complete, and take no other. See Note [Answering early]."""
        if self._refusing:
            return
        self._refusing = self._ignores_input = True
        self._persistent = False
        self._abandon_request()
        self._send_response(response, request)
        # TLS can't stop writing alone; its clients have a length to go by.
        if not ISSLTransport.providedBy(self.transport) and ITCPTransport.providedBy(self.transport):
            self.transport.loseWriteConnection()
        self._resume_reading()
        self._deadline.set(LINGER_SECONDS)

    def send_continue(self) -> None:
        """Ask the client to send the body."""
        self._send_bytes(b"HTTP/1.1 100 Continue\r\n\r\n")

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        self.transport.abortConnection()

    def close_when_idle(self) -> None:
        """Close after the request in progress, at once if there is none."""
        self._retiring = True
        if self._refusing or (self._request is None and not self._reader.size):
            self._close()

    def _send_response(self, response: Response, request: Request | None) -> None:
        self._persistent = self._persistent and not self._retiring
        self._send_bytes(
            response.encode(
                self._config.common_headers(),
                request_id=None if request is None else request.request_id,
                close=not self._persistent,
                head=request is not None and request.is_head,
                chunked=self._is_http11,
            )
        )

    def _send_bytes(self, data: bytes) -> None:
        """Write, as Note [At once] says."""
        if self._socket is not None:
            try:
                sent = self._socket.send(data)
            except OSError:  # the transport will get it too, and end the connection if need be
                sent = 0
            if sent == len(data):
                return
            self._socket, data = None, data[sent:]
        self.transport.write(data)

    def _end_request(self) -> None:
        """Go on to the next request, or close."""
        self._answering = False
        self._request = None
        if not self._persistent:
            self._ignores_input = True
            self._lose_connection()
        if self._ignores_input:
            self._reader.clear()
        if not self._parsing:
            self._schedule_step()

    # -- what the transport calls

    def connectionMade(self) -> None:
        """Begin to wait for the first request."""
        transport = self.transport
        if ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(True)
        if ISystemHandle.providedBy(transport) and isinstance(handle := transport.getHandle(), socket):
            self._socket = handle
        transport.registerProducer(self, True)
        address = transport.getPeer()
        if isinstance(address, UnnamedClient):
            self.forwards, address = False, address.own
        if isinstance(address, IPv4Address | IPv6Address):
            self.peer = canonical_address(address.host)
        self.overflow = not self._limiter.admit_connection(self)
        if self.overflow:
            self._idle_seconds = min(self._idle_seconds, OVERFLOW_SECONDS)
            self._request_seconds = min(self._request_seconds, OVERFLOW_SECONDS)
        self._schedule_step()

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: ARG002
        """Let go of what was begun."""
        self._closing = self._ignores_input = True
        self._deadline.cancel()
        self._limiter.connection_closed(self)
        self._on_closed(self)
        self._abandon_request()
        # Cycles would stay until the garbage is collected.
        self._request = self._stream = self._socket = None

    def dataReceived(self, data: bytes) -> None:
        """Take received data, unless this connection has sent its last answer; a TLS one may get data while it closes."""
        if self._ignores_input:
            return
        self._reader.append(data)
        if not self._queued:
            self._parse_step()
        self._schedule_step()

    def pauseProducing(self) -> None:  # noqa: N802  # the name is Twisted's
        """Hold back, since the client doesn't take what there is; one that takes nothing for too long is overdue."""
        self._sending_paused = True
        if self._stream is not None:
            self._stream.pauseProducing()
        if not self._refusing and not self._closing:
            self._limiter.mark_busy(self)
            self._deadline.set(self._idle_seconds)

    def resumeProducing(self) -> None:  # noqa: N802  # the name is Twisted's
        """Go on, since the client takes it."""
        self._sending_paused = False
        if self._stream is not None:
            self._stream.resumeProducing()
        self._schedule_step()

    def stopProducing(self) -> None:  # noqa: N802  # the name is Twisted's
        """Do nothing: the connection has ended, and ``connectionLost`` follows."""

    # -- Note [Bounded]

    def _parse_step(self) -> None:
        """Make one step: as far as the end of a request, or of a piece of a chunked body."""
        if self._answering or self._sending_paused:
            return
        self._parsing = True
        try:
            if self._request is None and (head := self._reader.read_head()) is not None:
                self._begin_request(head)
            if self._reader.size and not self._answering:
                self._receive_body()
        except UnreadableRequest as unreadable:
            self.refuse_request(UNREADABLE[unreadable.why])
        self._parsing = False

    def _begin_request(self, head: Head) -> None:
        """Begin to answer a request, whose body may be still to come."""
        self._is_http11 = head.is_http11
        self._persistent = head.is_persistent and not self.overflow
        self._request = request = Request(self, self._config, head)
        if head.length is not None and head.length <= min(self._reader.size, self._config.limits.body):
            self._receiving, self._answering = False, True
            request.begin_response(self._reader.read_body()[0] if head.length else b"")
            return
        request.begin_response()
        if not self._refusing and head.expects_continue:
            request.ask_for_body()

    def _receive_body(self) -> None:
        """Hand on what has come of a body; of one in chunks, a piece."""
        request = self._request
        if request is None or self._answering or self._refusing or not self._reader.size:
            return
        body, ended = self._reader.read_body()
        if body:
            request.append(body)
        if ended and not self._refusing:
            self._receiving, self._answering = False, True
            request.end_body()

    def _schedule_step(self) -> None:
        """Have what is unread wait for its turn, read more if there is room, and note until when this connection waits."""
        reader = self._reader
        size = 0 if reader.needs_more else reader.size
        if size and not (self._queued or self._answering or self._sending_paused):
            self._queued = True
            self._step_queue.add_step(self._run_step)
        if size > UNREAD_LIMIT:
            self._receiving_paused = True
            self.transport.pauseProducing()
        elif self._receiving_paused:
            self._resume_reading()
        # The one moment at which something is overdue: the rest of a request, the next request, or the end.
        if self._refusing or self._closing or self._sending_paused:
            return
        if self._request is None and not reader.size:
            self._receiving = False
            self._deadline.set(self._idle_seconds)
            self._limiter.mark_idle(self)
            return
        self._limiter.mark_busy(self)
        if self._answering:
            self._deadline.clear()
        elif not self._receiving:
            # From the first byte to the last, however lively the sender is in between.
            self._receiving = True
            self._deadline.set(self._request_seconds)

    def _resume_reading(self) -> None:
        if self._receiving_paused:
            self._receiving_paused = False
            self.transport.resumeProducing()

    def _run_step(self) -> None:
        self._queued = False
        if self._ignores_input:
            return
        try:
            self._parse_step()
            self._schedule_step()
        except BaseException:
            # The reactor ends a connection whose reading raises; so does this.
            self.abort()
            raise

    def _abandon_request(self) -> None:
        """Drop what has come in, and stop what was begun."""
        self._reader.clear()
        if self._request is not None:
            self._request.abandon()

    def _on_overdue(self) -> None:
        if self._closing:
            self.abort()
        elif self._receiving and not self._refusing:
            self.refuse_request(TOO_SLOW)
        else:
            self._close()

    def _close(self) -> None:
        self._closing = self._ignores_input = True
        self._deadline.set(LINGER_SECONDS)
        self._lose_connection()

    def _lose_connection(self) -> None:
        """Close when all is written."""
        self.transport.unregisterProducer()
        self.transport.loseConnection()


class Deadline:
    """The moment at which a connection is overdue, and ``passed`` is called; a timer that fires before is set again, so that
    moving it is cheap.
    """

    def __init__(self, clock: IReactorTime, passed: Callable[[], None]) -> None:
        self._clock = clock
        self._on_passed = passed
        self._moment = inf
        self._timer: IDelayedCall | None = None
        #: When the timer fires.
        self._timer_due_at = inf

    def set(self, seconds: float) -> None:
        """Move the moment to so many seconds from now."""
        self._moment = moment = self._clock.seconds() + seconds
        if self._timer is None:
            self._timer, self._timer_due_at = self._clock.callLater(seconds, self._on_timer), moment
        elif self._timer_due_at > moment:
            self._timer.reset(seconds)
            self._timer_due_at = moment

    def clear(self) -> None:
        """Remove the moment."""
        self._moment = inf

    def cancel(self) -> None:
        """Leave no timer behind, nor a reference to what it is for."""
        self._moment = inf
        self._on_passed = lambda: None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        remaining = self._moment - self._clock.seconds()
        if remaining <= 0.001:  # clocks and sums of floats differ by less
            self._on_passed()
        elif remaining < inf:
            self._timer, self._timer_due_at = self._clock.callLater(remaining, self._on_timer), self._moment


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
        channel = Channel(self._config, self._step_queue, self._limiter, self._on_channel_closed)
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

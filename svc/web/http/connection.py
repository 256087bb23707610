"""One connection and the requests on it, held to their limits; and the limits of connections, in all and from one address.

``twisted.web`` isn't used: it costs more than the rest of a small request, parses forms that no route declares, and writes
bodies to disk.

Note [Answering early]: a request may be refused while it is still coming in. Then the answer is written at once, and no
other follows. But closing a socket that has unread bytes resets it, and a reset can overtake the answer. So this side only
stops writing, and goes on reading and dropping for ``LINGER_SECONDS`` seconds, or until the client closes. A refusal that
leaves the body within its limit waits for the end of the body, of which nothing is kept, and the connection stays usable.

Note [Bounded]: the input is read up to the end of one request; the rest waits for its turn (``site``, Note [Steps]), and
beyond ``UNREAD_LIMIT`` unread bytes no more is received. While the client doesn't take its answers no further request is
begun, and one that takes none of them for as long as it may be idle is cut off.

Note [At once]: a transport of Twisted's writes when the reactor has found the socket writable, which costs a fifth of a
short answer. So an answer is written to the socket directly. When that doesn't take all of it, or the connection is one of
TLS, the transport writes; and it goes on to do so, since it doesn't report when it has written everything.

Note [Room]. A connection takes a descriptor of the process, of which PostgreSQL, files and outgoing connections need some.
So there may be only so many in all, and from one address (of IPv6, from one network: a client has 2**64 addresses), that
nobody takes all of them. A trusted proxy, or this machine, stands for many clients, and has no limit of its own. When there
are too many, the one that has been idle for longest makes room: of that address, or of all.

Where none is idle, ``MAX_OVERFLOW`` connections more are taken, or a server that is merely busy would be taken for dead, and
restarted. Each has little time, and gets one answer, on the health routes alone (``Route.vital``): everything else is 503.
There the oldest is cut off: a client that requests the health does so at once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from socket import socket
from typing import Final, Protocol

import attrs
from twisted.internet import protocol
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import (
    IConsumer,
    IDelayedCall,
    IPushProducer,
    IReactorTime,
    ISSLTransport,
    ISystemHandle,
    ITCPTransport,
    ITransport,
)
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.model.counts import ConnectionCounts
from svc.model.limits import Limits
from svc.model.query_results import address_counting_key
from svc.model.unnamed_client import UnnamedClient
from svc.web.http.client_address import TrustedProxies, canonical_address
from svc.web.http.messages import HttpConfig, Request, Response
from svc.web.http.refusal_responses import TOO_SLOW, UNREADABLE
from svc.web.http.request_reader import Head, Reader, UnreadableRequest
from svc.web.http.stream import Stream

#: Unread bytes beyond which no more is read; beside these there may be what one reading brings.
UNREAD_LIMIT: Final = 16 * 1024

#: Seconds for which a client that was refused in mid-request may take its answer, and for which a close may take.
LINGER_SECONDS: Final = 5.0

#: How long a connection beyond the limit may be idle, and a request on it take to arrive, in seconds.
OVERFLOW_SECONDS: Final = 5.0


class IDuplexTransport(ITransport, IPushProducer, IConsumer):
    """A connection of TCP or TLS: what comes in can be paused, and what goes out has a producer."""

    def abortConnection() -> None:  # noqa: N802  # the name is Twisted's
        """Close at once."""


@implementer(IPushProducer)
class Channel(protocol.Protocol):
    """A connection. Requests are answered in their order, one at a time.

    ``add_step`` has a step made in its turn; ``limiter`` is that of all connections; ``on_closed`` is called with this one
    when it has closed. To its transport it is the producer of answers.
    """

    transport: IDuplexTransport

    def __init__(
        self,
        config: HttpConfig,
        add_step: Callable[[Callable[[], None]], None],
        limiter: ConnectionLimiter,
        on_closed: Callable[[Channel], None],
    ) -> None:
        limits = config.limits
        self.peer = "127.0.0.1"
        self.forwards = True
        self.overflow = False
        self._config = config
        self._add_step = add_step
        self._limiter = limiter
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

    def connectionLost(self, reason: Failure = protocol.connectionDone) -> None:  # noqa: ARG002
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
            self._add_step(self._run_step)
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


#: Connections beyond the limit, in all and from one address.
MAX_OVERFLOW: Final = 32
MAX_OVERFLOW_PER_ADDRESS: Final = 4

#: The most connections that may be closing at their clients' pace; beyond these they are aborted.
MAX_CLOSING: Final = 64

#: Seconds from one line in the log about a lack of room to the next.
LOG_INTERVAL: Final = 60.0

_log = Logger()


class ClosableConnection(Protocol):
    """A connection, as far as it can be ended."""

    #: The address at the other end.
    peer: str

    def close_when_idle(self) -> None:
        """Close after the request in progress, at once if there is none."""

    def abort(self) -> None:
        """Close at once, whatever is under way."""


@attrs.define(eq=False)
class _AddressConnections:
    """The connections from one address, or one network of IPv6: how many, which are idle, which beyond the limit."""

    network: str
    limited: bool
    count: int = 0
    idle: dict[ClosableConnection, None] = attrs.field(factory=dict)
    overflow: dict[ClosableConnection, None] = attrs.field(factory=dict)


class ConnectionLimiter:
    """The connections of one server (Note [Room]); dictionaries of them are in the order in which they came there."""

    def __init__(self, limits: Limits, proxies: TrustedProxies, clock: IReactorTime) -> None:
        self._limits = limits
        self._proxies = proxies
        self._clock = clock
        self._by_network: dict[str, _AddressConnections] = {}
        self._admitted: dict[ClosableConnection, _AddressConnections] = {}
        self._idle: dict[ClosableConnection, None] = {}
        self._overflow: dict[ClosableConnection, _AddressConnections] = {}
        self._closing: dict[ClosableConnection, None] = {}
        self._open_count = 0
        self._evicted_count = 0
        self._overflow_count = 0
        self._next_log_at = 0.0

    def connection_counts(self) -> ConnectionCounts:
        """Return the counts now; callable from another thread."""
        return ConnectionCounts(self._open_count, self._evicted_count, self._overflow_count)

    def admit_connection(self, guest: ClosableConnection) -> bool:
        """Take a new connection in; false when it came beyond the limit, so that it may request the health alone."""
        self._open_count += 1
        place, limits = self._find_address(guest.peer), self._limits
        crowded = place.limited and place.count >= limits.connections_per_address and not self._evict_idle(place.idle)
        if crowded or (len(self._admitted) >= limits.connections and not self._evict_idle(self._idle)):
            self._overflow_count += 1
            self._log_limit_reached(place, crowded=crowded)
            if len(place.overflow) >= MAX_OVERFLOW_PER_ADDRESS:
                self._abort_overflow(next(iter(place.overflow)))
            elif len(self._overflow) >= MAX_OVERFLOW:
                self._abort_overflow(next(iter(self._overflow)))
            self._overflow[guest] = place
            place.overflow[guest] = None
        else:
            self._admitted[guest] = place
            place.count += 1
        # The evicted connection may have been the last of this address, and have removed its place.
        self._by_network[place.network] = place
        return guest in self._admitted

    def connection_closed(self, guest: ClosableConnection) -> None:
        """Note that a connection has closed."""
        self._open_count -= 1
        self._closing.pop(guest, None)
        self._remove_connection(guest)

    def mark_idle(self, guest: ClosableConnection) -> None:
        """Note that a connection is idle, from now on."""
        place = self._admitted.get(guest)
        if place is not None:
            for idle in (self._idle, place.idle):
                idle.pop(guest, None)
                idle[guest] = None

    def mark_busy(self, guest: ClosableConnection) -> None:
        """Note that a connection isn't idle any more."""
        if guest in self._idle:
            del self._idle[guest]
            del self._admitted[guest].idle[guest]

    def _find_address(self, peer: str) -> _AddressConnections:
        network = address_counting_key(peer)
        return self._by_network.get(network) or _AddressConnections(network, not self._proxies.is_shared(peer))

    def _remove_connection(self, guest: ClosableConnection) -> None:
        self.mark_busy(guest)
        if (place := self._admitted.pop(guest, None)) is not None:
            place.count -= 1
        elif (place := self._overflow.pop(guest, None)) is not None:
            place.overflow.pop(guest, None)
        else:
            return
        if not place.count and not place.overflow:
            self._by_network.pop(place.network, None)

    def _evict_idle(self, idle: dict[ClosableConnection, None]) -> bool:
        """Have the one that has been idle for longest make room; false when there is none."""
        guest = next(iter(idle), None)
        if guest is None:
            return False
        self._evicted_count += 1
        self._remove_connection(guest)
        self._closing[guest] = None
        if len(self._closing) > MAX_CLOSING:
            oldest = next(iter(self._closing))
            del self._closing[oldest]
            oldest.abort()
        guest.close_when_idle()
        return True

    def _abort_overflow(self, guest: ClosableConnection) -> None:
        self._remove_connection(guest)
        guest.abort()

    def _log_limit_reached(self, place: _AddressConnections, *, crowded: bool) -> None:
        now = self._clock.seconds()
        if now < self._next_log_at:
            return
        self._next_log_at = now + LOG_INTERVAL
        if crowded:
            message = (
                "{network} has {count} connections, none of them idle, and gets no more: see connection_limit_per_address"
            )
            _log.warn(message, network=place.network, count=place.count)
        else:
            message = "There are {count} connections, none of them idle, and no more are taken: see connection_limit"
            _log.warn(message, count=len(self._admitted))

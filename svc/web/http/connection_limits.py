"""The limits of connections, in all and from one address.

Note [Room]. A connection takes a descriptor of the process, of which PostgreSQL, files and outgoing connections need some.
So there may be only so many in all, and from one address (of IPv6, from one network: a client has 2**64 addresses), that
nobody takes all of them. A trusted proxy, or this machine, stands for many clients, and has no limit of its own. When there
are too many, the one that has been idle for longest makes room: of that address, or of all.

Where none is idle, ``MAX_OVERFLOW`` connections more are taken, or a server that is merely busy would be taken for dead, and
restarted. Each has little time, and gets one answer, on the health routes alone (``Route.vital``): everything else is 503.
There the oldest is cut off: a client that requests the health does so at once.
"""

from __future__ import annotations

from typing import Final, Protocol

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.model.counts import ConnectionCounts
from svc.model.limits import Limits
from svc.model.query_results import address_counting_key
from svc.web.http.client_address import TrustedProxies

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

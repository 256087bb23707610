"""The limits of connections, in all and from one address.

Note [Room]. A connection takes a descriptor of the process, of which PostgreSQL, files and outgoing connections need some.
So there may be only so many in all, and from one address (of IPv6, from one network: a client has 2**64 addresses), that
nobody takes all of them. A trusted proxy, or this machine, stands for many clients, and has no limit of its own. When there
are too many, the one that has been idle for longest makes room: of that address, or of all.

Where none is idle, ``OVERFLOW`` connections more are taken, or a server that is merely busy would be taken for dead, and
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
from svc.model.query_results import counted_as
from svc.web.http.origin import TrustedProxies

#: Connections beyond the limit, in all and from one address.
OVERFLOW: Final = 32
OVERFLOW_EACH: Final = 4

#: The most connections that may be closing at their clients' pace; beyond these they are aborted.
CLOSING: Final = 64

#: Seconds from one line in the log about a lack of room to the next.
SILENCE: Final = 60.0

_log = Logger()


class Guest(Protocol):
    """A connection, as far as it can be ended."""

    #: The address at the other end.
    peer: str

    def retire(self) -> None:
        """Close after the request in progress, at once if there is none."""

    def abort(self) -> None:
        """Close at once, whatever is under way."""


@attrs.define(eq=False)
class _Place:
    """The connections from one address, or one network of IPv6: how many, which are idle, which beyond the limit."""

    network: str
    limited: bool
    count: int = 0
    idle: dict[Guest, None] = attrs.field(factory=dict)
    overflow: dict[Guest, None] = attrs.field(factory=dict)


class Occupancy:
    """The connections of one server (Note [Room]); dictionaries of them are in the order in which they came there."""

    def __init__(self, limits: Limits, proxies: TrustedProxies, clock: IReactorTime) -> None:
        self._limits = limits
        self._proxies = proxies
        self._clock = clock
        self._places: dict[str, _Place] = {}
        self._within: dict[Guest, _Place] = {}
        self._idle: dict[Guest, None] = {}
        self._overflow: dict[Guest, _Place] = {}
        self._closing: dict[Guest, None] = {}
        self._open = 0
        self._evicted = 0
        self._overflowed = 0
        self._silent_until = 0.0

    def counts(self) -> ConnectionCounts:
        """Return the counts now; callable from another thread."""
        return ConnectionCounts(self._open, self._evicted, self._overflowed)

    def enter(self, guest: Guest) -> bool:
        """Take a new connection in; false when it came beyond the limit, so that it may request the health alone."""
        self._open += 1
        place, limits = self._place(guest.peer), self._limits
        crowded = place.limited and place.count >= limits.connections_per_address and not self._evict(place.idle)
        if crowded or (len(self._within) >= limits.connections and not self._evict(self._idle)):
            self._overflowed += 1
            self._tell(place, crowded=crowded)
            if len(place.overflow) >= OVERFLOW_EACH:
                self._cut_off(next(iter(place.overflow)))
            elif len(self._overflow) >= OVERFLOW:
                self._cut_off(next(iter(self._overflow)))
            self._overflow[guest] = place
            place.overflow[guest] = None
        else:
            self._within[guest] = place
            place.count += 1
        # The evicted connection may have been the last of this address, and have removed its place.
        self._places[place.network] = place
        return guest in self._within

    def leave(self, guest: Guest) -> None:
        """Note that a connection has closed."""
        self._open -= 1
        self._closing.pop(guest, None)
        self._remove(guest)

    def rest(self, guest: Guest) -> None:
        """Note that a connection is idle, from now on."""
        place = self._within.get(guest)
        if place is not None:
            for idle in (self._idle, place.idle):
                idle.pop(guest, None)
                idle[guest] = None

    def work(self, guest: Guest) -> None:
        """Note that a connection isn't idle any more."""
        if guest in self._idle:
            del self._idle[guest]
            del self._within[guest].idle[guest]

    def _place(self, peer: str) -> _Place:
        network = counted_as(peer)
        return self._places.get(network) or _Place(network, not self._proxies.is_shared(peer))

    def _remove(self, guest: Guest) -> None:
        self.work(guest)
        if (place := self._within.pop(guest, None)) is not None:
            place.count -= 1
        elif (place := self._overflow.pop(guest, None)) is not None:
            place.overflow.pop(guest, None)
        else:
            return
        if not place.count and not place.overflow:
            self._places.pop(place.network, None)

    def _evict(self, idle: dict[Guest, None]) -> bool:
        """Have the one that has been idle for longest make room; false when there is none."""
        guest = next(iter(idle), None)
        if guest is None:
            return False
        self._evicted += 1
        self._remove(guest)
        self._closing[guest] = None
        if len(self._closing) > CLOSING:
            oldest = next(iter(self._closing))
            del self._closing[oldest]
            oldest.abort()
        guest.retire()
        return True

    def _cut_off(self, guest: Guest) -> None:
        self._remove(guest)
        guest.abort()

    def _tell(self, place: _Place, *, crowded: bool) -> None:
        now = self._clock.seconds()
        if now < self._silent_until:
            return
        self._silent_until = now + SILENCE
        if crowded:
            message = (
                "{network} has {count} connections, none of them idle, and gets no more: see connection_limit_per_address"
            )
            _log.warn(message, network=place.network, count=place.count)
        else:
            message = "There are {count} connections, none of them idle, and no more are taken: see connection_limit"
            _log.warn(message, count=len(self._within))

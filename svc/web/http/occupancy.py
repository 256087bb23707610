"""How many connections there are, in all and from one address, and who makes room for whom.

Note [Room]. A connection takes a descriptor of the process, of which PostgreSQL, files and outgoing connections need some.
So there may be only so many (``Limits.connections``), and only so many from one address, that nobody takes all of them; an
IPv6 client has 2**64 addresses, so its network counts. A proxy that is trusted stands for many clients, and has no limit of
its own; this machine is one. When there are too many, the one that has been idle for longest makes room: of that address, or
of all.

Where none is idle there is still to be an answer about health, or a server that is merely busy would be taken for dead, and
restarted. So ``OVERFLOW`` connections more are taken, ``OVERFLOW_EACH`` from one address. Such a connection has little time,
is answered once, and about nothing but health (``Route.vital``): everything else is 503. There the newest comes first, and
the oldest is cut off: who asks about health does it at once, and who doesn't is only in the way.
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

#: Connections that were told to close, and whose clients may take their time over it; beyond these they are cut off.
CLOSING: Final = 64

#: Seconds from one line in the log about a lack of room to the next.
SILENCE: Final = 60.0

_log = Logger()


class Guest(Protocol):
    """What is asked of a connection."""

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
        """How it stands now; it may be asked from another thread."""
        return ConnectionCounts(self._open, self._evicted, self._overflowed)

    def enter(self, guest: Guest) -> bool:
        """Take a new connection in; false when it came beyond the limit, so that it may ask about health alone."""
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
        # What made room may have been the last connection of this address.
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
            idle, near = self._idle, place.idle
            idle.pop(guest, None)
            idle[guest] = None
            near.pop(guest, None)
            near[guest] = None

    def work(self, guest: Guest) -> None:
        """Note that a connection isn't idle any more."""
        if guest in self._idle:
            del self._idle[guest]
            del self._within[guest].idle[guest]

    def _place(self, peer: str) -> _Place:
        network = counted_as(peer)
        return self._places.get(network) or _Place(network, not self._proxies.trust(peer))

    def _remove(self, guest: Guest) -> None:
        self.work(guest)
        place = self._within.pop(guest, None)
        if place is not None:
            place.count -= 1
        else:
            place = self._overflow.pop(guest, None)
            if place is None:
                return
            place.overflow.pop(guest, None)
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
            _log.warn(
                "{network} has {count} connections, none of them idle, and gets no more: see connection_limit_per_address",
                network=place.network,
                count=place.count,
            )
        else:
            _log.warn(
                "There are {count} connections, none of them idle, and no more are taken: see connection_limit",
                count=len(self._within),
            )

"""Look-ups of hosts that a policy names, all of whose addresses may be connected to.

Note [One look-up]. A name is looked up once, all its addresses are checked, and the connection goes to one of these, while
TLS verifies the certificate for the name: an answer that changes after the check (DNS rebinding) changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import ip_address
from typing import Any, Final

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.interfaces import (
    IAddress,
    IHostnameResolver,
    IHostResolution,
    IResolutionReceiver,
    IStreamClientEndpoint,
)
from twisted.logger import Logger
from zope.interface import implementer

from svc.model.errors import UNLISTED, AddressRefused
from svc.model.query_results import Network
from svc.net.addresses import Address, find_objection

#: How many addresses of a name are tried, unless the caller has a share of the time for more.
_MAX_ADDRESSES: Final = 4

_log = Logger()


class HostResolver:
    """Looks hosts up, within ``clock``'s time; ``private_networks`` may be connected to although they aren't public."""

    def __init__(self, clock: Any, resolver: IHostnameResolver, private_networks: Iterable[Network] = ()) -> None:
        self._clock = clock
        self._resolver = resolver
        self._private_networks = tuple(private_networks)

    async def resolve_host(self, host: str, port: int, seconds: float, most: int = _MAX_ADDRESSES) -> list[Address]:
        """Look the host up and check every address it has (Note [One look-up]); return the first ``most``, one at least.

        A refusal doesn't repeat the address: users who may set a variable could map a private network.

        :raises AddressRefused: there is none, or one that may not be connected to.
        :raises TimeoutError: no name service answered within so many seconds.
        """
        try:
            addresses = [ip_address(host)]
        except ValueError:
            found = resolve_name(self._resolver, host, port).addTimeout(seconds, self._clock, _raise_timeout)
            addresses = [ip_address(text) for text in await found]
        if not addresses:
            raise AddressRefused("the name has no address, or no name service answered")
        for address in addresses:
            what = find_objection(address, self._private_networks)
            if what is not None:
                _log.warn("{host} has the address {address}, which is {what}", host=host, address=address, what=what)
                raise AddressRefused(f"its address is {what}, and {UNLISTED}")
        return addresses[:most]


def client_endpoints(
    reactor: Any, addresses: Sequence[Address], port: int, left: Callable[[], float]
) -> Iterator[tuple[Address, IStreamClientEndpoint]]:
    """Yield the endpoint of each address in turn, which has its share of the seconds ``left`` to connect."""
    for number, address in enumerate(addresses):
        kind = TCP4ClientEndpoint if address.version == 4 else TCP6ClientEndpoint
        yield address, kind(reactor, str(address), port, timeout=left() / (len(addresses) - number))


def resolve_name(resolver: IHostnameResolver, host: str, port: int = 0) -> Deferred[list[str]]:
    """Return the addresses of a host in the order in which they came, each once."""
    answer = _Resolution()
    resolver.resolveHostName(answer, host, port)
    return answer.addresses


def _raise_timeout(*_: object) -> list[str]:
    raise TimeoutError


@implementer(IResolutionReceiver)
class _Resolution:
    """The addresses of a name, which fire when all are known."""

    def __init__(self) -> None:
        self.addresses: Deferred[list[str]] = Deferred()
        self._found: dict[str, None] = {}

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        """Do nothing: a lookup can't be cancelled, only abandoned."""

    def addressResolved(self, address: IAddress) -> None:
        if isinstance(address, IPv4Address | IPv6Address):
            self._found[address.host] = None

    def resolutionComplete(self) -> None:
        self.addresses.callback(list(self._found))

"""Look-ups: the addresses of a host that a policy names, each of which may be connected to.

Note [One look-up]. A name is looked up once, every address that it has is checked, and the connection goes to one of those
addresses, while TLS verifies the certificate for the name. So an answer that changes between the check and the connection
(DNS rebinding) changes nothing. A name with one forbidden address among others is refused whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any, Final

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IHostnameResolver, IHostResolution, IResolutionReceiver
from twisted.logger import Logger
from zope.interface import implementer

from svc.model.errors import AddressRefused
from svc.model.query_results import Network
from svc.net.addresses import Address, objection

#: Addresses of one name that are tried.
_TRIES: Final = 4

_log = Logger()


class LookUps:
    """Looks hosts up. ``private_networks`` are those that may be connected to although they aren't public.

    ``clock`` provides ``IReactorTime``.
    """

    def __init__(self, clock: Any, resolver: IHostnameResolver, private_networks: Iterable[Network] = ()) -> None:
        self._clock = clock
        self._resolver = resolver
        self._private_networks = tuple(private_networks)

    async def addresses(self, host: str, port: int, seconds: float) -> list[Address]:
        """Look the host up and check every address it has (Note [One look-up]); return the first few, one at least.

        What is wrong with an address that was looked up is told without it: whoever may set a variable and see why it
        doesn't work would else learn the numbers of a private network from its names.

        :raises AddressRefused: there is none, or one that may not be connected to.
        :raises TimeoutError: no name service answered within so many seconds.
        """
        try:
            addresses = [ip_address(host)]
        except ValueError:
            found = resolved(self._resolver, host, port).addTimeout(seconds, self._clock, _late)
            addresses = [ip_address(text) for text in await found]
        if not addresses:
            raise AddressRefused("the name has no address, or no name service answered")
        for address in addresses:
            what = objection(address, self._private_networks)
            if what is not None:
                _log.warn("{host} has the address {address}, which is {what}", host=host, address=address, what=what)
                raise AddressRefused(f"its address is {what}, and allow_private_providers doesn't list it")
        return addresses[:_TRIES]


def resolved(resolver: IHostnameResolver, host: str, port: int = 0) -> Deferred[list[str]]:
    """Look the host up, and return its addresses in the order in which they came, each once."""
    answer = _Answer()
    resolver.resolveHostName(answer, host, port)
    return answer.addresses


def _late(*_: object) -> list[str]:
    raise TimeoutError


@implementer(IResolutionReceiver)
class _Answer:
    """Gathers the addresses of a name; ``addresses`` fires with their texts when all are known."""

    def __init__(self) -> None:
        self.addresses: Deferred[list[str]] = Deferred()
        self._found: dict[str, None] = {}

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        """Nothing is done: a look-up can't be cancelled, only not waited for."""

    def addressResolved(self, address: IAddress) -> None:
        """Take an address."""
        if isinstance(address, IPv4Address | IPv6Address):
            self._found[address.host] = None

    def resolutionComplete(self) -> None:
        """Give out what was found."""
        self.addresses.callback(list(self._found))

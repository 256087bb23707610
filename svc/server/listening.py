"""Where the server listens: its ports, their addresses as URLs, and how they close.

Note [Nobody could be accepted]: when the machine is out of descriptors or memory, a connection that can't be accepted makes
its port readable again at once, and Twisted tries again for ever, with a line in the log each time. So a port that was
readable, and accepted nobody, is paused for a moment.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

import attrs
from twisted.application.service import MultiService, Service
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IReadDescriptor, IStreamServerEndpoint
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory

from svc.model.errors import StartRefused
from svc.server.lifecycle import add_child
from svc.server.proxy_header import HeaderFactory
from svc.server.reloading import Reloadable

#: Seconds in which requests in progress must end when the server stops; and for which a port that couldn't accept is paused.
DRAIN_SECONDS: Final = 30.0
ACCEPT_PAUSE: Final = 0.1

#: Log records keep the name that they had, until 2.0.
log = Logger("svc.server.duties")


class IBinding(Protocol):
    """The reactor that binds the socket of an endpoint before the endpoint listens (``accepting``, Note [Bound first])."""

    async def bind(self, place: IStreamServerEndpoint) -> None:
        """Bind it; raises ``OSError``."""

    def release_unused(self) -> None:
        """Let go of what was bound and isn't listened at."""


@attrs.frozen
class Endpoint:
    """A Twisted endpoint, the text that the operator wrote for it, and what it shows to clients if it speaks TLS.

    ``binding`` binds it before it is listened at, where that can be done apart.
    """

    text: str
    inner: IStreamServerEndpoint
    certificate: Reloadable[Any] | None = None
    binding: IBinding | None = None


class ListeningPorts(Service):
    """Ports, from :meth:`open` until the service stops; ``drain`` returns when no connection is open, or time is up."""

    name = "listening"

    def __init__(
        self, endpoints: Sequence[Endpoint], factory: IProtocolFactory, drain: Callable[[float], Coroutine[Any, Any, None]]
    ) -> None:
        self._endpoints, self._factory, self._drain = endpoints, factory, drain
        self._ports: list[IListeningPort] = []

    async def open(self) -> list[str]:
        """Listen at every endpoint and return the URLs.

        :raises StartRefused: one of them can't be listened at.
        """
        for endpoint in self._endpoints:
            port = await listen_at(endpoint, self._factory)
            if IReadDescriptor.providedBy(port):
                pause_failed_accepts(port)
            self._ports.append(port)
        return [port_url(port) for port in self._ports]

    def stopService(self) -> Deferred[None]:
        """Close the ports, and let requests in progress end."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        return Deferred.fromCoroutine(self._close_ports())

    async def _close_ports(self) -> None:
        ports, self._ports = self._ports, []
        for port in ports:
            await maybeDeferred(port.stopListening)
        await self._drain(DRAIN_SECONDS)


class BoundPorts(Service):
    """The sockets of endpoints from :meth:`bind` until these listen, or until the service stops."""

    name = "bound ports"

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints

    async def bind(self) -> None:
        """Bind every endpoint.

        :raises StartRefused: one of them is taken, or can't be had.
        """
        for endpoint in self._endpoints:
            if endpoint.binding is not None:
                try:
                    await endpoint.binding.bind(endpoint.inner)
                except OSError as error:
                    raise _listen_refusal(endpoint, error) from None

    def stopService(self) -> None:
        """Let go of what isn't listened at."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        for endpoint in self._endpoints:
            if endpoint.binding is not None:
                endpoint.binding.release_unused()


async def listen_at(endpoint: Endpoint, factory: IProtocolFactory) -> IListeningPort:
    """Listen at an endpoint.

    :raises StartRefused: that can't be done.
    """
    try:
        return await endpoint.inner.listen(factory)
    except (CannotListenError, OSError) as error:
        raise _listen_refusal(endpoint, error) from None


def _listen_refusal(endpoint: Endpoint, error: Exception) -> StartRefused:
    return StartRefused(f"it cannot listen at {endpoint.text}: {error}")


def pause_failed_accepts(port: Any) -> None:
    """See to Note [Nobody could be accepted], for a port of Twisted's."""
    accept = port.doRead

    def resume_reading() -> None:
        if port.connected and not port.disconnecting:
            port.startReading()

    def accept_or_pause() -> None:
        accepted = port.sessionno
        accept()
        if port.sessionno == accepted and port.connected and not port.disconnecting:
            port.stopReading()
            port.reactor.callLater(ACCEPT_PAUSE, resume_reading)

    port.doRead = accept_or_pause


def port_url(port: IListeningPort) -> str:
    """Return the URL by which a client on this machine reaches a port (CFG-12)."""
    factory = getattr(port, "factory", None)
    if isinstance(factory, HeaderFactory):
        factory = factory.wrapped
    scheme = "https" if isinstance(factory, TLSMemoryBIOFactory) else "http"
    match port.getHost():
        case IPv4Address(host=host, port=number) | IPv6Address(host=host, port=number):
            return f"{scheme}://{_url_host(host)}:{number}"
        case UNIXAddress(name=bytes(name)):
            return f"{scheme}+unix:{name.decode('utf-8', 'backslashreplace')}"
        case address:
            return f"{scheme}:{address}"


def _url_host(host: str) -> str:
    address = ipaddress.ip_address(host)
    if address.is_unspecified:
        return "127.0.0.1"
    # A zone's percent sign is escaped in a URL (RFC 6874).
    return f"[{host.replace('%', '%25')}]" if address.version == 6 else host


async def serve_metrics(services: MultiService, endpoint: Endpoint, site: IProtocolFactory) -> None:
    """Serve counters at an endpoint, for as long as the services run."""

    async def close_at_once(_: float) -> None:
        """Close connections at once: a reader of counters asks again."""

    listening = ListeningPorts([endpoint], site, close_at_once)
    listening.setName("metrics")  # type: ignore[no-untyped-call] # Twisted's
    (url,) = await add_child(services, listening).open()
    log.info("Metrics are served at {url}", url=url)

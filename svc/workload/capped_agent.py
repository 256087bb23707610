"""An agent whose connections limit the headers of answers and close at once.

Note [Hanging up]. Each request has a connection of its own, which ends at once when it isn't needed any more: over TLS an
orderly end waits for the other side's, which may go on sending for ever. Headers are counted by the connection, a body by
who collects it.
"""

from __future__ import annotations

import math
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IAgentEndpointFactory, IBodyProducer, IResponse
from zope.interface import implementer

from svc.net.trust import Trust
from svc.workload.address import origin
from svc.workload.faults import TooLong, Untrusted

#: Seconds for a connection to come about.
CONNECT_TIMEOUT: Final = 10

#: The longest headers that are taken, in bytes, with those of interim answers.
HEADERS_LIMIT: Final = 256 * 1024


@implementer(IAgentEndpointFactory, IStreamClientEndpoint)
class _CappedLine:
    """The connection of one request (Note [Hanging up])."""

    def __init__(self, reactor: Any, trust: Trust) -> None:
        self._reactor = reactor
        self._trust = trust
        self._left: float = HEADERS_LIMIT

    @property
    def overrun(self) -> bool:
        """Tell whether the headers were too long."""
        return self._left < 0

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """Connect there, when it is time."""
        host = uri.host.decode("ascii")
        endpoint: IStreamClientEndpoint = HostnameEndpoint(self._reactor, host, uri.port, timeout=CONNECT_TIMEOUT)
        if uri.scheme == b"https":
            try:
                endpoint = wrapClientTLS(self._trust.client(host), endpoint)
            except UnicodeError:
                raise Untrusted(f"https://{host}", "no certificate can be for a host of that name") from None
        self._endpoint = endpoint
        return self

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect, counting."""
        connected: Deferred[Any] = self._endpoint.connect(_CappedFactory(protocolFactory, self))
        return connected.addCallback(lambda wire: wire.wrappedProtocol)

    def admits(self, size: int) -> bool:
        """Count ``size`` more bytes; whether they are still within the limit."""
        self._left -= size
        return not self.overrun

    def answered(self, response: IResponse) -> IResponse:
        """Return the headers are here: nothing more is counted."""
        self._left = math.inf
        return response


class _CappedTransport(ProtocolWrapper):
    """Between transport and client."""

    def dataReceived(self, data: bytes) -> None:
        """Pass it on, which tells whether it belongs to the headers, and count it if so."""
        self.wrappedProtocol.dataReceived(data)
        if not self.factory.line.admits(len(data)):
            self.abortConnection()

    def loseConnection(self) -> None:  # noqa: N802 (Twisted's)
        """Close the connection at once."""
        self.abortConnection()


class _CappedFactory(WrappingFactory[_CappedTransport]):
    protocol = _CappedTransport
    noisy = False

    def __init__(self, wrapped: IProtocolFactory, line: _CappedLine) -> None:
        super().__init__(wrapped)  # type: ignore[no-untyped-call] # Twisted's policies have no annotations
        wrapped.noisy = False  # type: ignore[attr-defined] # Twisted's factories have it
        self.line = line


@implementer(IAgent)
@attrs.frozen
class BoundedAgent:
    """An agent with a line for each request."""

    reactor: Any
    trust: Trust

    def request(
        self, method: bytes, uri: bytes, headers: Headers | None = None, bodyProducer: IBodyProducer | None = None
    ) -> Deferred[IResponse]:
        """Send a request."""
        line = _CappedLine(self.reactor, self.trust)

        def failed(failure: Failure) -> Failure:
            if line.overrun:
                raise TooLong(origin(uri.decode("ascii")), HEADERS_LIMIT)
            return failure

        asked: Deferred[IResponse] = Agent.usingEndpointFactory(self.reactor, line).request(
            method, uri, headers, bodyProducer
        )
        return asked.addCallbacks(line.answered, failed)

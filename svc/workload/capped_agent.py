"""An agent whose requests have a connection each (``svc.net.capped``, Note [Hanging up]).

Headers are counted by the connection, a body by who collects it.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IAgentEndpointFactory, IBodyProducer, IResponse
from zope.interface import implementer

from svc.net.capped import CappedEndpoint
from svc.net.trust import Trust
from svc.workload.address import origin
from svc.workload.faults import TooLong, Untrusted

#: Seconds for a connection to come about.
CONNECT_TIMEOUT: Final = 10

#: The longest headers that are taken, in bytes, with those of interim answers and what of the body comes along with them.
HEADERS_LIMIT: Final = 256 * 1024


@implementer(IAgentEndpointFactory)
class _Line:
    """The connection of one request."""

    capped: CappedEndpoint | None = None

    def __init__(self, reactor: Any, trust: Trust) -> None:
        self._reactor = reactor
        self._trust = trust

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """Connect there, when it is time."""
        host = uri.host.decode("ascii")
        endpoint: IStreamClientEndpoint = HostnameEndpoint(self._reactor, host, uri.port, timeout=CONNECT_TIMEOUT)
        if uri.scheme == b"https":
            try:
                endpoint = wrapClientTLS(self._trust.client(host), endpoint)
            except UnicodeError:
                raise Untrusted(f"https://{host}", "no certificate can be for a host of that name") from None
        self.capped = CappedEndpoint(endpoint, HEADERS_LIMIT)
        return self.capped


@implementer(IAgent)
@attrs.frozen
class BoundedAgent:
    """An agent with a connection for each request."""

    reactor: Any
    trust: Trust

    def request(
        self, method: bytes, uri: bytes, headers: Headers | None = None, bodyProducer: IBodyProducer | None = None
    ) -> Deferred[IResponse]:
        """Ask."""
        line = _Line(self.reactor, self.trust)

        def answered(response: IResponse) -> IResponse:
            if line.capped is not None:
                line.capped.lift()
            return response

        def failed(failure: Failure) -> Failure:
            if line.capped is not None and line.capped.overrun:
                raise TooLong(origin(uri.decode("ascii")), HEADERS_LIMIT)
            return failure

        asked: Deferred[IResponse] = Agent.usingEndpointFactory(self.reactor, line).request(
            method, uri, headers, bodyProducer
        )
        return asked.addCallbacks(answered, failed)

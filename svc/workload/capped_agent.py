"""An agent whose requests have a connection each, which counts the headers (``svc.net.capped``, Note [Hanging up])."""

from __future__ import annotations

from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from svc.net.capped import CappedEndpoint
from svc.net.trust import Trust
from svc.workload.address import public_origin
from svc.workload.faults import TooLong, Untrusted

#: The longest headers that are taken, in bytes, with those of interim answers and what of the body comes along with them.
HEADERS_LIMIT: Final = 256 * 1024


@implementer(IAgent)
@attrs.frozen
class BoundedAgent:
    """An agent with a connection for each request."""

    reactor: Any
    trust: Trust

    def request(
        self, method: bytes, uri: bytes, headers: Headers | None = None, bodyProducer: IBodyProducer | None = None
    ) -> Deferred[IResponse]:
        """Send a request."""
        line = CappedEndpoint(self._make_endpoint(URI.fromBytes(uri)), HEADERS_LIMIT)

        def lift_limit(response: IResponse) -> IResponse:
            line.lift_limit()
            return response

        def check_overrun(failure: Failure) -> Failure:
            if line.is_over_limit:
                raise TooLong(public_origin(uri.decode("ascii")), HEADERS_LIMIT)
            return failure

        agent = Agent.usingEndpointFactory(self.reactor, line)
        asked: Deferred[IResponse] = agent.request(method, uri, headers, bodyProducer)
        return asked.addCallbacks(lift_limit, check_overrun)

    def _make_endpoint(self, uri: URI) -> IStreamClientEndpoint:
        host = uri.host.decode("ascii")
        endpoint: IStreamClientEndpoint = HostnameEndpoint(self.reactor, host, uri.port, timeout=10)
        if uri.scheme != b"https":
            return endpoint
        try:
            return wrapClientTLS(self.trust.connection_creator(host), endpoint)
        except UnicodeError:
            raise Untrusted(f"https://{host}", "no certificate can be for a host of that name") from None

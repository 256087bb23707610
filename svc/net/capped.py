"""Connections of one request each, counted and ended at once.

Note [Hanging up]. A connection counts what arrives and hangs up at a limit. It ends at once when it isn't needed any more:
over TLS an orderly end waits for the other side's, which may go on sending for ever.
"""

from __future__ import annotations

import math
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.web.client import URI
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer


@implementer(IAgentEndpointFactory, IStreamClientEndpoint)
class CappedEndpoint:
    """Makes one connection through another endpoint, over which ``limit`` bytes may arrive (Note [Hanging up])."""

    def __init__(self, endpoint: IStreamClientEndpoint, limit: int) -> None:
        self._endpoint = endpoint
        self._left: float = limit
        self._connection: _CappedProtocol | None = None

    @property
    def is_over_limit(self) -> bool:
        """Return whether more arrived than was allowed."""
        return self._left < 0

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:  # noqa: ARG002 (there is one)
        """Return itself: an agent that connects by it can go nowhere else."""
        return self

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect, counting."""
        connected: Deferred[Any] = self._endpoint.connect(_CappedFactory(protocolFactory, self))
        return connected.addCallback(self._store_connection)

    def _store_connection(self, wire: _CappedProtocol) -> IProtocol:
        self._connection = wire
        return wire.wrappedProtocol

    def count_bytes(self, size: int) -> bool:
        """Count ``size`` more bytes, and return whether they are still within the limit."""
        self._left -= size
        return not self.is_over_limit

    def lift_limit(self) -> None:
        """Count no more: others count the rest."""
        self._left = math.inf

    def hang_up(self) -> None:
        """End the connection at once, if there is one."""
        if self._connection is not None:
            self._connection.abortConnection()


class _CappedProtocol(ProtocolWrapper):
    """The wire between transport and client: passes on what is within the limit, or hangs up, and always ends at once."""

    def dataReceived(self, data: bytes) -> None:
        if self.factory.endpoint.count_bytes(len(data)):
            self.wrappedProtocol.dataReceived(data)
        else:
            self.abortConnection()

    def loseConnection(self) -> None:  # noqa: N802 - Twisted's
        self.abortConnection()


class _CappedFactory(WrappingFactory[_CappedProtocol]):
    protocol = _CappedProtocol
    noisy = False

    def __init__(self, wrapped: IProtocolFactory, line: CappedEndpoint) -> None:
        super().__init__(wrapped)  # type: ignore[no-untyped-call] # Twisted's policies have no annotations
        wrapped.noisy = False  # type: ignore[attr-defined] # Twisted's factories have it; it costs two log lines a request
        self.endpoint = line

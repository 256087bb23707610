"""The peer of a connection for which a proxy names no client; read by the server's ports and by its connections."""

from __future__ import annotations

import attrs
from twisted.internet.interfaces import IAddress
from zope.interface import implementer


@implementer(IAddress)
@attrs.frozen
class UnnamedClient:
    """The peer of a connection whose PROXY header names no address; ``own`` is the connection's own.

    No header of its requests names the client either: the proxy may pass on what the client has written (WIRE-32).
    """

    own: IAddress

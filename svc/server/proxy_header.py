"""The PROXY header, by which a proxy that passes bytes on names its client (``haproxy:`` endpoints, CFG-7).

Note [Before all else]. The header is the first thing on the connection, before TLS. The protocol above is made when the
header was read, so that it finds the client's address from its first moment on: limits, throttling and the log go by it.
Twisted's own wrapper makes the protocol first, whose peer is then the proxy, and reads the header inside TLS.

Note [Nobody is served without]. A connection whose first bytes are no header is closed, and so is one whose header isn't
there in time. The specification advises at least three seconds, for a packet that is sent again. Connections that wait have
no protocol that limits them, so there are at most ``MAX_WAITING``: one more cuts off the one that has waited for longest.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from typing import Any, Final

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IReactorSocket,
    IReactorSSL,
    IReactorTCP,
    IReactorUNIX,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from zope.interface import directlyProvides, implementer, providedBy

from svc.model.unnamed_client import UnnamedClient

#: Seconds within which the header must have come, and the connections that may wait for theirs.
HEADER_TIMEOUT: Final = 5.0
MAX_WAITING: Final = 256

#: The longest header of version 1, with its line end, and what may follow the first 16 bytes of version 2.
LONGEST_LINE: Final = 107
LONGEST_BLOCK: Final = 16 * 1024

#: Seconds from one line in the log about a header to the next.
LOG_INTERVAL: Final = 60.0

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_WORD: Final = b"PROXY "
_UNKNOWN: Final = re.compile(rb"PROXY UNKNOWN(?: [ -~]*)?\r\n")
_KNOWN: Final = re.compile(rb"PROXY TCP([46]) ([0-9A-Fa-f.:]+) ([0-9A-Fa-f.:]+) (0|[1-9][0-9]{0,4}) (0|[1-9][0-9]{0,4})\r\n")

#: Of version 2: the command of a connection that is the proxy's own; the families, and how many bytes their addresses take.
_LOCAL, _PROXY = 0, 1
_UNSPECIFIED, _IPV4, _IPV6, _UNIX = 0, 1, 2, 3
_SIZES: Final = {_UNSPECIFIED: 0, _IPV4: 12, _IPV6: 36, _UNIX: 216}
_LAST_TRANSPORT: Final = 2

Source = IPv4Address | IPv6Address

_log = Logger()


class HeaderInvalid(Exception):
    """The first bytes of a connection are no PROXY header."""


def read_header(data: bytes) -> tuple[Source | None, int] | None:
    """Return the client's address and how long the header is, or ``None`` while it isn't complete.

    The address is ``None`` where the header names none, since the connection is the proxy's own (``LOCAL``) or of an unknown
    or local client (``UNKNOWN``, a UNIX socket).

    :raises HeaderInvalid: it is none, known as early as its bytes tell.
    """
    if data.startswith(_WORD):
        return _read_line_header(data)
    if data.startswith(SIGNATURE):
        return _read_block_header(data)
    if not _WORD.startswith(data) and not SIGNATURE.startswith(data):
        raise HeaderInvalid("it doesn't begin with a PROXY header")
    return None


def _read_line_header(data: bytes) -> tuple[Source | None, int] | None:
    size = data.find(b"\r\n", 0, LONGEST_LINE) + 2
    if size < 2:
        if len(data) >= LONGEST_LINE:
            raise HeaderInvalid("its PROXY header is too long")
        return None
    line = data[:size]
    if _UNKNOWN.fullmatch(line):
        return None, size
    named = _KNOWN.fullmatch(line)
    if named is None or max(int(named[4]), int(named[5])) > 0xFFFF:
        raise HeaderInvalid("its PROXY header is malformed")
    kind = ipaddress.IPv4Address if named[1] == b"4" else ipaddress.IPv6Address
    try:
        client, _ = (kind(address.decode("ascii")) for address in (named[2], named[3]))
    except ValueError:
        raise HeaderInvalid("its PROXY header has an address that is none") from None
    return _make_address(client, int(named[4])), size


def _read_block_header(data: bytes) -> tuple[Source | None, int] | None:
    if len(data) < 16:
        return None
    command, kind, length = struct.unpack_from(">BBH", data, 12)
    if command not in {0x20 | _LOCAL, 0x20 | _PROXY}:
        raise HeaderInvalid("its PROXY header has an unknown version or command")
    if length > LONGEST_BLOCK:
        raise HeaderInvalid("its PROXY header is too long")
    family, transport, local = kind >> 4, kind & 15, command & 15 == _LOCAL
    if not local and (transport > _LAST_TRANSPORT or length < _SIZES.get(family, length + 1)):
        raise HeaderInvalid("its PROXY header is malformed")
    size = 16 + length
    if len(data) < size:
        return None
    if local or not transport or family not in {_IPV4, _IPV6}:
        return None, size
    if family == _IPV4:
        address, port = struct.unpack_from(">4s4xH", data, 16)
    else:
        address, port = struct.unpack_from(">16s16xH", data, 16)
    return _make_address(ipaddress.ip_address(address), port), size


def _make_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> Source:
    kind = IPv4Address if address.version == 4 else IPv6Address
    return kind("TCP", str(address), port)


class HeaderProtocol(ProtocolWrapper):
    """A connection that begins with a header (Note [Before all else]); above it ``wrappedProtocol``, ``None`` until then."""

    factory: HeaderFactory
    wrappedProtocol: Any  # noqa: N815 - the name is Twisted's

    def __init__(self, factory: HeaderFactory) -> None:
        super().__init__(factory, None)  # type: ignore[arg-type] # there is none yet
        self._source: IAddress | None = None
        self._received = b""
        self._deadline: IDelayedCall | None = None

    def makeConnection(self, transport: Any) -> None:
        """Wait for the header."""
        directlyProvides(self, providedBy(transport))
        Protocol.makeConnection(self, transport)
        self._deadline = self.factory.reactor.callLater(
            HEADER_TIMEOUT, self._refuse_connection, "its PROXY header didn't come"
        )
        self.factory.add_waiting(self)

    def dataReceived(self, data: bytes) -> None:
        """Take the header, and hand on what follows it."""
        if self.wrappedProtocol is not None:
            self.wrappedProtocol.dataReceived(data)
            return
        if self.disconnecting:
            return
        self._received += data
        try:
            header = read_header(self._received)
        except HeaderInvalid as invalid:
            self._refuse_connection(str(invalid))
            return
        if header is None:
            return
        named, size = header
        self._source = named or UnnamedClient(self.transport.getPeer())  # type: ignore[union-attr] # it is connected
        rest, self._received = self._received[size:], b""
        self._end_waiting()
        self.wrappedProtocol = self.factory.wrapped.buildProtocol(self.getPeer())
        if self.wrappedProtocol is None:
            self.abort()
            return
        self.wrappedProtocol.makeConnection(self)
        if rest:
            self.wrappedProtocol.dataReceived(rest)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Notify what is above, if anything is."""
        self._end_waiting()
        wrapped, self.wrappedProtocol = self.wrappedProtocol, None
        self.disconnecting = True
        if wrapped is not None:
            wrapped.connectionLost(reason)

    def getPeer(self) -> Any:  # noqa: N802 - the name is Twisted's
        """Return the client's address, an ``UnnamedClient`` where the header names none."""
        return self._source or self.transport.getPeer()  # type: ignore[union-attr] # it is connected

    def logPrefix(self) -> str:
        """Return the name of the connection in the log."""
        return type(self).__name__

    def abort(self) -> None:
        """Close at once, and answer nothing."""
        self._end_waiting()
        self.disconnecting = True
        self.transport.abortConnection()  # type: ignore[union-attr] # it is connected

    def _refuse_connection(self, why: str) -> None:
        self.factory.warn_closed(self.getPeer(), why)
        self.abort()

    def _end_waiting(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None and deadline.active():
            deadline.cancel()
        self.factory.remove_waiting(self)


class HeaderFactory(Factory):
    """Makes connections that begin with a header; ``wrapped`` makes what is above (Note [Nobody is served without])."""

    noisy = False

    def __init__(self, reactor: Any, wrapped: Any) -> None:
        self.reactor, self.wrapped = reactor, wrapped
        self._waiting: dict[HeaderProtocol, None] = {}
        self._silent_until = 0.0

    def startFactory(self) -> None:  # noqa: N802 - the name is Twisted's
        """Start what is above."""
        self.wrapped.doStart()

    def stopFactory(self) -> None:  # noqa: N802 - the name is Twisted's
        """Cut off those that wait, and stop what is above."""
        for connection in list(self._waiting):
            connection.abort()
        self.wrapped.doStop()

    def buildProtocol(self, addr: IAddress | None) -> Any:  # noqa: ARG002 - the name is Twisted's
        """Make a connection."""
        return HeaderProtocol(self)

    def add_waiting(self, connection: HeaderProtocol) -> None:
        """Note that a connection waits for its header."""
        if len(self._waiting) >= MAX_WAITING:
            next(iter(self._waiting)).abort()
        self._waiting[connection] = None

    def remove_waiting(self, connection: HeaderProtocol) -> None:
        """Note that a connection waits no more."""
        self._waiting.pop(connection, None)

    def warn_closed(self, peer: object, why: str) -> None:
        """Write to the log that a connection was closed, now and then."""
        now = self.reactor.seconds()
        if now >= self._silent_until:
            self._silent_until = now + LOG_INTERVAL
            message = "A connection from {peer} to a haproxy: endpoint was closed: {why}"
            _log.warn(message, peer=getattr(peer, "host", "a socket"), why=why)


@implementer(IReactorTCP, IReactorSSL, IReactorUNIX, IReactorSocket)
class HeaderReactor:
    """The reactor, at whose ports each connection begins with a header, whatever kind of endpoint opens them."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:  # noqa: N802 - Twisted's
        """Listen at a port."""
        return self._reactor.listenTCP(port, self._wrap_factory(factory), backlog=backlog, interface=interface)

    def listenSSL(self, port: int, factory: Any, contextFactory: Any, backlog: int = 50, interface: str = "") -> Any:  # noqa: N802, N803 - Twisted's
        """Listen at a port, with TLS after the header."""
        return self.listenTCP(port, TLSMemoryBIOFactory(contextFactory, False, factory, self._reactor), backlog, interface)

    def listenUNIX(self, address: Any, factory: Any, *more: Any, **named: Any) -> Any:  # noqa: N802 - Twisted's
        """Listen at a socket in the file system."""
        return self._reactor.listenUNIX(address, self._wrap_factory(factory), *more, **named)

    def adoptStreamPort(self, fileDescriptor: int, addressFamily: int, factory: Any) -> Any:  # noqa: N802, N803 - Twisted's
        """Listen at a socket that is open already."""
        return self._reactor.adoptStreamPort(fileDescriptor, addressFamily, self._wrap_factory(factory))

    def _wrap_factory(self, factory: Any) -> HeaderFactory:
        return HeaderFactory(self._reactor, factory)

"""Ports that several processes of a server accept at: opened by one, inherited by the others.

Note [One at a time]. All processes look at the same socket, so that nothing that is queued there is lost with one of them,
nor waits behind one that hangs. Each takes one connection in a turn of its reactor, so that a burst spreads over all. That
another process was faster is no reason to wait; that the machine is out of descriptors is (``listening``, Note [Nobody could
be accepted]).

Note [Any endpoint]. The text of an endpoint is read again in each process, by a reactor that has the inherited socket for
what the endpoint would open: so all that a kind of endpoint wraps around its connections, TLS above all, is there too. One
of systemd is only its socket: its text can be read only by the process that systemd has started.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Any, Final

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import (
    IAddress,
    IListeningPort,
    IProtocolFactory,
    IReactorSocket,
    IReactorSSL,
    IReactorTCP,
    IReactorUNIX,
    IStreamServerEndpoint,
)
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.server.listening import PAUSE

#: What accepting fails with where another process was faster, or the client has left.
_NOBODY: Final = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED, errno.EINTR, errno.EPROTO})

_log = Logger()


@implementer(IListeningPort)
class InheritedPort:
    """Accepts at an inherited socket, of which ``descriptor`` is open (Note [One at a time])."""

    def __init__(self, reactor: Any, descriptor: int, factory: IProtocolFactory) -> None:
        self._reactor, self._factory = reactor, factory
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.setblocking(False)
        self._open = False

    def startListening(self) -> None:  # noqa: N802 - the name is Twisted's
        """Begin to accept."""
        self._factory.doStart()
        self._open = True
        self._reactor.addReader(self)

    def stopListening(self) -> Deferred[None]:  # noqa: N802 - the name is Twisted's
        """Accept no more; the socket is left to others."""
        if self._open:
            self._open = False
            self._reactor.removeReader(self)
            self._socket.close()
            self._factory.doStop()
        return succeed(None)

    def getHost(self) -> IAddress:  # noqa: N802 - the name is Twisted's
        """Return where it is."""
        match self._socket.family, self._socket.getsockname():
            case socket.AF_INET, (host, number):
                return IPv4Address("TCP", host, number)
            case socket.AF_INET6, (host, number, *_):
                return IPv6Address("TCP", host, number)
            case _, name:
                return UNIXAddress(os.fsencode(name))

    def doRead(self) -> None:
        """Take one connection."""
        try:
            connection, _ = self._socket.accept()
        except OSError as error:
            if error.errno not in _NOBODY:
                self._reactor.removeReader(self)
                self._reactor.callLater(PAUSE, self._resume)
            return
        with connection:
            connection.setblocking(False)
            try:
                self._reactor.adoptStreamConnection(connection.fileno(), self._socket.family, self._factory)
            except OSError:  # the client has left already, or there is no descriptor for it
                return

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def logPrefix(self) -> str:
        """Return the name of the port in the log."""
        return type(self).__name__

    def connectionLost(self, reason: Failure) -> None:
        """Accept no more: the process that has opened the port has closed it, for all."""
        if not reason.check(ConnectionDone):
            _log.error("A port can't be accepted at any more: {why}", why=reason.getErrorMessage())
        self.stopListening()

    def _resume(self) -> None:
        if self._open:
            self._reactor.addReader(self)


@implementer(IReactorTCP, IReactorSSL, IReactorUNIX, IReactorSocket)
class InheritingReactor:
    """The reactor, with an inherited socket for whatever is to be listened at (Note [Any endpoint])."""

    def __init__(self, reactor: Any, descriptor: int) -> None:
        self._reactor, self._descriptor = reactor, descriptor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:  # noqa: N802, ARG002 - Twisted's
        """Accept at the inherited socket."""
        return self._listen(factory)

    def listenUNIX(self, address: Any, factory: Any, *_: object, **__: object) -> Any:  # noqa: N802, ARG002 - Twisted's
        """Accept at the inherited socket."""
        return self._listen(factory)

    def adoptStreamPort(self, fileDescriptor: int, addressFamily: int, factory: Any) -> Any:  # noqa: N802, N803, ARG002 - Twisted's
        """Accept at the inherited socket."""
        return self._listen(factory)

    def listenSSL(self, port: int, factory: Any, contextFactory: Any, backlog: int = 50, interface: str = "") -> Any:  # noqa: N802, N803, ARG002 - Twisted's
        """Accept at the inherited socket, with TLS."""
        return self._listen(TLSMemoryBIOFactory(contextFactory, False, factory))

    def _listen(self, factory: Any) -> InheritedPort:
        port = InheritedPort(self._reactor, self._descriptor, factory)
        port.startListening()
        return port


@implementer(IStreamServerEndpoint)
class InheritedEndpoint:
    """An endpoint that is only its inherited socket."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        """Accept at it."""
        return succeed(self._reactor.adoptStreamPort(-1, -1, protocolFactory))

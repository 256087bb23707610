"""Ports that are bound before they are listened at, and ports that several processes of a server accept at: opened by one,
inherited by the others.

Note [Bound first]. A start that finds its port taken makes nothing: so sockets are bound before the database is begun, and
listened at when requests can be answered. The text of an endpoint is read with a reactor that does the two apart: an
endpoint that listens a first time binds its socket, and the second time it listens. So does all that wraps an endpoint of
Twisted's. An endpoint of systemd has its socket, and any other kind is listened at once, later.

Note [One at a time]. All processes watch the same socket, so that nothing that is queued there is lost with one of them, nor
waits behind one that hangs. Each takes one connection in a turn of its reactor, so that a burst spreads over all. That
another process was faster is no reason to wait; that the machine is out of descriptors is (``listening``, Note [Nobody could
be accepted]). With a socket for each process (``SO_REUSEPORT``) one that dies or hangs would keep the connections in its
queue waiting, and a burst would be spread no more evenly than here (24 to 40 of 64 connections, in four tries).

Note [Any endpoint]. The text of an endpoint is read again in each process, by a reactor that has the inherited socket for
what the endpoint would open: so all that a kind of endpoint wraps around its connections, TLS above all, is there too. One
of systemd is only its socket: its text can be read only by the process that systemd has started.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress
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
from twisted.internet.protocol import Factory
from twisted.internet.tcp import Port as TCPPort
from twisted.internet.unix import Port as UNIXPort
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from twisted.python.lockfile import FilesystemLock
from zope.interface import implementer

from svc.server.listening import ACCEPT_PAUSE

#: Errors of accept() when another process was faster, or the client has disconnected.
_NO_CONNECTION: Final = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED, errno.EINTR, errno.EPROTO})

#: The address of an interface is read as a number, never resolved as a name.
_NUMERIC: Final = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV

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
            if error.errno not in _NO_CONNECTION:
                self._reactor.removeReader(self)
                self._reactor.callLater(ACCEPT_PAUSE, self._resume_reading)
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

    def _resume_reading(self) -> None:
        if self._open:
            self._reactor.addReader(self)


@implementer(IReactorTCP, IReactorSSL, IReactorUNIX, IReactorSocket)
class BindingReactor:
    """The reactor, for the endpoint of one port (Note [Bound first])."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._binds = False
        self._bound: socket.socket | None = None
        self._path: str | None = None
        self._lock: FilesystemLock | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    async def bind(self, place: IStreamServerEndpoint) -> None:
        """Bind what this endpoint, which was made with this reactor, will listen at.

        :raises OSError: it is taken, or can't be had.
        """
        self._binds = True
        try:
            await place.listen(Factory())
        finally:
            self._binds = False

    def release_unused(self) -> None:
        """Let go of what was bound and isn't listened at."""
        if self._bound is not None:
            self._bound.close()
            self._bound = None
            if self._path is not None:
                with suppress(FileNotFoundError):
                    os.unlink(self._path)
            if self._lock is not None:
                self._lock.unlock()

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:  # noqa: N802 - Twisted's
        """Bind, or listen."""
        if self._binds:
            made = TCPPort(port, factory, backlog, interface, self._reactor).createInternetSocket()
            address = socket.getaddrinfo(interface, port, 0, 0, 0, _NUMERIC)[0][4] if ":" in interface else (interface, port)
            self._bind_socket(made, address)
            return None
        if (bound := self._take_bound()) is None:
            return self._reactor.listenTCP(port, factory, backlog, interface)
        with bound:
            bound.listen(backlog)
            return self._reactor.adoptStreamPort(bound.fileno(), bound.family, factory)

    def listenSSL(self, port: int, factory: Any, contextFactory: Any, backlog: int = 50, interface: str = "") -> Any:  # noqa: N802, N803 - Twisted's
        """Bind, or listen with TLS."""
        return self.listenTCP(port, TLSMemoryBIOFactory(contextFactory, False, factory), backlog, interface)

    def listenUNIX(self, address: Any, factory: Any, backlog: int = 50, mode: int = 0o666, wantPID: bool = False) -> Any:  # noqa: N802, N803 - Twisted's
        """Bind, or listen."""
        if self._binds:
            self._path = os.fsdecode(address)
            if wantPID:
                self._take_lock(self._path)
            try:
                self._bind_socket(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK), self._path)
            except OSError:
                if self._lock is not None:
                    self._lock.unlock()
                raise
            return None
        if (bound := self._take_bound()) is None:
            return self._reactor.listenUNIX(address, factory, backlog, mode, wantPID)
        port = UNIXPort(address, factory, backlog, mode, self._reactor)
        port._preexistingSocket, port.lockFile = bound, self._lock
        port.startListening()
        return port

    def _take_lock(self, path: str) -> None:
        """Take the lock of a socket's file, and remove what a dead process has left there, as Twisted does."""
        self._lock = FilesystemLock(f"{path}.lock")
        if not self._lock.lock():
            self._lock = None
            raise OSError(errno.EADDRINUSE, "Another process has its lock")
        if not self._lock.clean:
            with suppress(OSError):
                if stat.S_ISSOCK(os.stat(path).st_mode):
                    os.unlink(path)

    def _bind_socket(self, made: socket.socket, address: Any) -> None:
        try:
            made.bind(address)
        except OSError:
            made.close()
            raise
        self._bound = made

    def _take_bound(self) -> socket.socket | None:
        bound, self._bound = self._bound, None
        return bound


@implementer(IReactorTCP, IReactorSSL, IReactorUNIX, IReactorSocket)
class InheritingReactor:
    """The reactor, with an inherited socket for any endpoint (Note [Any endpoint])."""

    def __init__(self, reactor: Any, descriptor: int) -> None:
        self._reactor, self._descriptor = reactor, descriptor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:  # noqa: N802, ARG002 - Twisted's
        """Accept at the inherited socket."""
        return self._listen_inherited(factory)

    def listenUNIX(self, address: Any, factory: Any, *_: object, **__: object) -> Any:  # noqa: N802, ARG002 - Twisted's
        """Accept at the inherited socket."""
        return self._listen_inherited(factory)

    def adoptStreamPort(self, fileDescriptor: int, addressFamily: int, factory: Any) -> Any:  # noqa: N802, N803, ARG002 - Twisted's
        """Accept at the inherited socket."""
        return self._listen_inherited(factory)

    def listenSSL(self, port: int, factory: Any, contextFactory: Any, backlog: int = 50, interface: str = "") -> Any:  # noqa: N802, N803, ARG002 - Twisted's
        """Accept at the inherited socket, with TLS."""
        return self._listen_inherited(TLSMemoryBIOFactory(contextFactory, False, factory))

    def _listen_inherited(self, factory: Any) -> InheritedPort:
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

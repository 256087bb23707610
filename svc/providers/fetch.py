"""The guarded client: fetches one document from an address that a policy names, and can be led nowhere else.

Note [One line]. Each try has a connection of its own through a ``_Line``, which counts what arrives, headers and body alike,
and hangs up at the limit. At the end it hangs up whatever happened, so no slow server keeps a connection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import attrs
from treq.client import HTTPClient
from twisted.internet.abstract import isIPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint, wrapClientTLS
from twisted.internet.error import ConnectError, ConnectionClosed
from twisted.internet.interfaces import (
    IHostnameResolver,
    IOpenSSLClientConnectionCreator,
    IProtocol,
    IProtocolFactory,
    IStreamClientEndpoint,
)
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.web.client import ProxyAgent, RequestTransmissionFailed, ResponseFailed
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from svc.errors import AddressRefused, KeysUnavailable
from svc.jose import shown
from svc.providers.addresses import Address
from svc.providers.lookup import LookUps
from svc.providers.trust import tls_fault
from svc.records import Network

T = TypeVar("T")

#: Makes the TLS of a connection to the host of that name, with the certificates of the authorities to trust: ``client_tls``
#: of ``trust``.
ClientTLS = Callable[[str, str | None], IOpenSSLClientConnectionCreator]

#: Seconds for everything from the look-up of the first name to the last byte (rulings 4).
DEADLINE: Final = 5.0

#: Most bytes that are read of an answer, its headers included (rulings 4).
ANSWER_LIMIT: Final = 256 * 1024

_STAND_IN: Final = "http://provider.invalid/"

_URI_LIMIT: Final = 2048
_NAME_LIMIT: Final = 253
_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_CHARACTER: Final = r"[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2}"
_URI: Final = re.compile(
    rf"(?P<scheme>https?)://"
    rf"(?P<authority>(?P<host>\[[0-9A-Fa-f:.]+\]|{_LABEL}(?:\.{_LABEL})*)(?::(?P<port>[0-9]{{1,5}}))?)"
    rf"(?P<rest>(?:/(?:{_CHARACTER})*)?(?:\?(?:{_CHARACTER}|\?)*)?)"
)


@attrs.frozen
class _Target:
    """An address that may be fetched as far as its text goes.

    ``authority`` is the host, with brackets, and the port, as written; ``path`` is the path and the query, as written.
    """

    authority: str
    path: str
    secure: bool
    host: str
    port: int

    @classmethod
    def parse(cls, uri: str, allow_http: bool) -> _Target:
        """Read an http or https address, of plain ASCII and without user, password and fragment.

        :raises KeysUnavailable: it is anything else.
        """
        match = _URI.fullmatch(uri) if len(uri) <= _URI_LIMIT else None
        if match is None:
            raise KeysUnavailable(f"{shown(uri)} is no address of the form https://host[:port]/path")
        secure, host = match["scheme"] == "https", match["host"].strip("[]")
        port = int(match["port"] or (443 if secure else 80))
        if port not in range(1, 1 << 16) or len(host) > _NAME_LIMIT or (":" in host and not isIPv6Address(host)):
            raise KeysUnavailable(f"{shown(uri)} has an impossible port or host")
        if not secure and not allow_http:
            raise KeysUnavailable(f"{uri} is not https, and allow_http_providers is off")
        path = match["rest"] if match["rest"].startswith("/") else "/" + match["rest"]
        return cls(match["authority"], path, secure, host, port)


class GuardedClient:
    """Fetches over treq, within the limits of rulings 4: time, size, scheme, addresses; no redirect, no proxy.

    ``reactor`` provides ``IReactorTCP`` and ``IReactorTime``. ``private_networks`` are those that may be connected to
    although they aren't public. ``deadline`` is in seconds, ``limit`` in bytes.
    """

    def __init__(
        self,
        reactor: Any,
        resolver: IHostnameResolver,
        tls: ClientTLS,
        *,
        allow_http: bool = False,
        private_networks: Iterable[Network] = (),
        deadline: float = DEADLINE,
        limit: int = ANSWER_LIMIT,
    ) -> None:
        self._reactor = reactor
        self._look_ups = LookUps(reactor, resolver, private_networks)
        self._tls = tls
        self._allow_http = allow_http
        self._seconds = deadline
        self._limit = limit

    def deadline(self) -> float:
        """The moment by which what begins now must have ended."""
        return float(self._reactor.seconds() + self._seconds)

    async def fetch(self, uri: str, ca_cert: str | None = None, deadline: float | None = None) -> bytes:
        """Return the body of a successful answer.

        ``ca_cert`` has the certificates, in PEM, of the only authorities to trust; ``None`` stands for the platform's.
        ``deadline`` is the moment of :meth:`deadline` when what the fetch is a part of began; ``None`` if it is all.

        :raises KeysUnavailable: there was none, or it was not allowed to ask; its ``why`` tells an operator what to look at.
        """
        target = _Target.parse(uri, self._allow_http)
        try:
            if ca_cert is not None and not target.secure:
                raise KeysUnavailable("it is not https, and ca-cert is for https alone")
            return await self._first_answer(target, ca_cert, self.deadline() if deadline is None else deadline)
        except KeysUnavailable as error:
            raise KeysUnavailable(f"{uri}: {error.why}") from None

    async def _first_answer(self, target: _Target, ca_cert: str | None, deadline: float) -> bytes:
        """Ask the addresses of the host in turn until one is connected; each gets its share of the time."""
        addresses = await self._addresses(target, deadline)
        refused = []
        for number, address in enumerate(addresses):
            patience = self._left(deadline) / (len(addresses) - number)
            endpoint = self._endpoint(target, ca_cert, address, patience)
            try:
                return await self._ask(target, endpoint, deadline)
            except ConnectError as error:
                refused.append(f"no connection to {address} port {target.port}: {error}")
        raise KeysUnavailable("; ".join(refused))

    async def _addresses(self, target: _Target, deadline: float) -> list[Address]:
        """The addresses of the host to try (``lookup``, Note [One look-up])."""
        try:
            return await self._look_ups.addresses(target.host, target.port, self._left(deadline))
        except AddressRefused as refusal:
            raise KeysUnavailable(refusal.why) from None
        except TimeoutError:
            raise self._late() from None

    async def _ask(self, target: _Target, endpoint: IStreamClientEndpoint, deadline: float) -> bytes:
        """Make the request to one address.

        :raises ConnectError: nothing answers there; another address may.
        """
        line = _Line(endpoint, self._limit)
        client = HTTPClient(_PlainAgent(ProxyAgent(line, self._reactor), target.path.encode("ascii")))
        headers = Headers({"Host": [target.authority], "Accept": ["application/json"], "User-Agent": ["svc"]})
        body: list[bytes] = []
        try:
            # treq takes no IPv6 address, no name with an underscore and no path as it is. The line knows where to go and the
            # agent what to ask for, so any address does.
            asked = client.get(_STAND_IN, headers=headers, allow_redirects=False, unbuffered=True, reactor=self._reactor)
            response = await self._until(deadline, asked)
            if not 200 <= response.code < 300:
                raise KeysUnavailable(f"the answer has status {response.code}, and redirects are not followed")
            await self._until(deadline, response.collect(body.append))
        except (ConnectionClosed, RequestTransmissionFailed, ResponseFailed) as error:
            if not line.overrun:
                raise KeysUnavailable(_sentence(error)) from None
        finally:
            line.hang_up()
        if line.overrun:  # which looks like a normal end where the end of a body is that of its connection
            raise KeysUnavailable(f"the answer is longer than {self._limit} bytes")
        return b"".join(body)

    def _endpoint(self, target: _Target, ca_cert: str | None, address: Address, patience: float) -> IStreamClientEndpoint:
        kind = TCP4ClientEndpoint if address.version == 4 else TCP6ClientEndpoint
        endpoint: IStreamClientEndpoint = kind(self._reactor, str(address), target.port, timeout=patience)
        if not target.secure:
            return endpoint
        try:
            return wrapClientTLS(self._tls(target.host, ca_cert), endpoint)
        except UnicodeError:
            raise KeysUnavailable("no certificate can be for a host of that name") from None

    def _until(self, deadline: float, result: Deferred[T]) -> Deferred[T]:
        """Let ``result`` take until ``deadline``."""

        def late(*_: object) -> T:
            raise self._late()

        return result.addTimeout(self._left(deadline), self._reactor, late)

    def _late(self) -> KeysUnavailable:
        return KeysUnavailable(f"there was no complete answer within {self._seconds:g} seconds")

    def _left(self, deadline: float) -> float:
        return float(min(self._seconds, max(0.0, deadline - self._reactor.seconds())))  # the clock may be put back meanwhile


def _sentence(error: Exception) -> str:
    """What went wrong between the connection and the end of the answer."""
    causes = [failure.value for failure in getattr(error, "reasons", ())] or [error]
    return "; ".join(dict.fromkeys(map(_cause, causes)))


def _cause(cause: BaseException) -> str:
    fault = tls_fault(cause)
    if fault is not None:
        return fault
    if isinstance(cause, ConnectionClosed | RequestTransmissionFailed):
        return f"{type(cause).__name__}: {cause}"
    return "the answer is not HTTP"  # of which the fault would quote a part


@implementer(IStreamClientEndpoint)
class _Line:
    """A connection to the endpoint given, counted (Note [One line])."""

    def __init__(self, endpoint: IStreamClientEndpoint, limit: int) -> None:
        self._endpoint = endpoint
        self._left = limit
        self._wire: _Wire | None = None

    @property
    def overrun(self) -> bool:
        """Whether more arrived than was allowed."""
        return self._left < 0

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect, counting."""
        return self._endpoint.connect(_WireFactory(protocolFactory, self)).addCallback(self._connected)

    def _connected(self, wire: IProtocol) -> IProtocol:
        assert isinstance(wire, _Wire)
        self._wire = wire
        return wire.wrappedProtocol

    def admits(self, size: int) -> bool:
        """Count ``size`` more bytes; whether they are still within the limit."""
        self._left -= size
        return self._left >= 0

    def hang_up(self) -> None:
        """End the connection at once, if there is one."""
        if self._wire is not None:
            self._wire.abortConnection()


class _Wire(ProtocolWrapper):
    """Between transport and client: passes on what the line admits."""

    def dataReceived(self, data: bytes) -> None:
        """Count, and pass on or hang up."""
        if self.factory.line.admits(len(data)):
            self.wrappedProtocol.dataReceived(data)
        else:
            self.abortConnection()


class _WireFactory(WrappingFactory[_Wire]):
    protocol = _Wire
    noisy = False

    def __init__(self, wrapped: IProtocolFactory, line: _Line) -> None:
        super().__init__(wrapped)  # type: ignore[no-untyped-call] # Twisted's policies have no annotations
        # Otherwise each fetch writes two lines into the log that tell nobody anything.
        wrapped.noisy = False  # type: ignore[attr-defined] # Twisted's factories have it
        self.line = line


@implementer(IAgent)
class _PlainAgent:
    """An agent that asks for one path, as it is written, and takes no compressed answers.

    A few compressed bytes can become a gigabyte; treq asks for gzip and unpacks it, unless what it wraps sees to it that
    there is none. Libraries write paths anew: ``//a`` would become ``////a`` under some versions of Python. A ``ProxyAgent``
    is the one of Twisted's agents that sends what it is given.
    """

    def __init__(self, agent: ProxyAgent, path: bytes) -> None:
        self._agent = agent
        self._path = path

    def request(
        self,
        method: bytes,
        uri: bytes,  # noqa: ARG002 (the path was settled before)
        headers: Headers | None = None,
        bodyProducer: IBodyProducer | None = None,
    ) -> Deferred[IResponse]:
        """Ask, and refuse an answer that is compressed all the same."""
        plain = Headers() if headers is None else headers.copy()
        plain.setRawHeaders(b"Accept-Encoding", [b"identity"])
        asked: Deferred[IResponse] = self._agent.request(method, self._path, plain, bodyProducer)
        return asked.addCallback(self._checked)

    def _checked(self, response: IResponse) -> IResponse:
        if response.headers.hasHeader(b"Content-Encoding"):
            raise KeysUnavailable("the answer is compressed")
        return response

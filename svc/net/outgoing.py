"""One question to another machine over HTTP: a ``GET`` on a connection of its own, counted, and ended whatever happened.

Note [One line]. Each question has a connection of its own through a ``_Line``, which counts what arrives, headers and body
alike, and hangs up at the limit. At the end it hangs up whatever happened, so no slow server keeps a connection. No redirect
is followed, no proxy is asked, and no compressed answer is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs
from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionClosed
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.web.client import ProxyAgent, RequestTransmissionFailed, ResponseFailed
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from svc.model.errors import Refusal
from svc.net.trust import tls_fault

_STAND_IN: Final = "http://outgoing.invalid/"


@attrs.frozen(str=False)
class Unanswered(Refusal):
    """There was no answer that can be used; raised by :func:`get`. ``why`` is for the log and for operators."""

    why: str


@attrs.frozen
class Answer:
    """What was answered: the status, and the whole body."""

    status: int
    body: bytes = attrs.field(repr=False)


async def get(
    endpoint: IStreamClientEndpoint,
    reactor: Any,
    authority: str,
    path: str,
    limit: int,
    demand: Callable[[int], object] = lambda _: None,
) -> Answer:
    """Ask for ``path`` there; may be cancelled, which ends the connection.

    :param authority: the host and the port, for the ``Host`` header.
    :param limit: the most bytes that are taken, headers included.
    :param demand: is given the status before the body is read; what it raises ends the question.
    :raises ConnectError: nothing answers there; another address may.
    :raises Unanswered: what answers gives no whole answer.
    """
    line = _Line(endpoint, limit)
    client = HTTPClient(_PlainAgent(ProxyAgent(line, reactor), path.encode("ascii")))
    headers = Headers({"Host": [authority], "Accept": ["application/json"], "User-Agent": ["svc"]})
    body: list[bytes] = []
    status = 0
    try:
        # treq takes no IPv6 address, no name with an underscore and no path as it is. The line knows where to go and the
        # agent what to ask for, so any address does.
        response = await client.get(_STAND_IN, headers=headers, allow_redirects=False, unbuffered=True, reactor=reactor)
        status = response.code
        demand(status)
        await response.collect(body.append)
    except (ConnectionClosed, RequestTransmissionFailed, ResponseFailed) as error:
        if not line.overrun:
            raise Unanswered(_sentence(error)) from None
    finally:
        line.hang_up()
    if line.overrun:  # which looks like a normal end where the end of a body is that of its connection
        raise Unanswered(f"the answer is longer than {limit} bytes")
    return Answer(status, b"".join(body))


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
            raise Unanswered("the answer is compressed")
        return response

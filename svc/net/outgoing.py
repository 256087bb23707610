"""One ``GET`` or ``POST`` to another machine over HTTP, on a connection of its own (``capped``, Note [Hanging up]).

No redirect is followed, no proxy is used, and no compressed answer is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import attrs
from treq.client import HTTPClient
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionClosed, ConnectionDone
from twisted.internet.interfaces import IConsumer, IStreamClientEndpoint
from twisted.python.url import URL
from twisted.web.client import ProxyAgent, RequestTransmissionFailed, ResponseFailed
from twisted.web.http import _DataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from svc.model.errors import Refusal
from svc.net.capped import CappedEndpoint
from svc.net.trust import tls_fault


@attrs.frozen(str=False)
class Unanswered(Refusal):
    """There was no answer that can be used; raised by :func:`get`. ``why`` is for the log and for operators."""

    why: str


@attrs.frozen
class HttpAnswer:
    """The status of an answer, and its whole body."""

    status: int
    body: bytes = attrs.field(repr=False)


@attrs.frozen
class PostedForm:
    """A form to post: its text, and headers beside those that every request has."""

    text: str = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)


async def send_request(
    endpoint: IStreamClientEndpoint,
    reactor: Any,
    url: str,
    limit: int,
    demand: Callable[[int, str | None], object] = lambda *_: None,
    form: PostedForm | None = None,
    headers: Mapping[str, str] | None = None,
) -> HttpAnswer:
    """Request ``url`` over the endpoint; may be cancelled, which ends the connection.

    :param url: ``http`` or ``https``, in ASCII, without user and fragment, and with a path. It is sent as it is.
    :param limit: the most bytes that are taken, headers included.
    :param demand: is given the status, and the target of a redirect, before the body; an exception of it ends the request.
    :param form: is posted; without one, the request is a ``GET``.
    :param headers: are sent beside, or instead of, those that every request has.
    :raises ConnectError: nothing answers there; another address may.
    :raises Unanswered: there was no complete answer.
    """
    line = CappedEndpoint(endpoint, limit)
    client = HTTPClient(_PlainAgent(ProxyAgent(line, reactor)))
    sent, posted = Headers({"Accept": ["application/json"], "User-Agent": ["svc"]}), None
    more = dict(headers or {})
    if form is not None:
        posted = _PostedBody(form.text.encode("ascii"))
        more |= {"Content-Type": "application/x-www-form-urlencoded", **form.headers}
    for name, value in more.items():
        sent.setRawHeaders(name, [value])
    address, method = _VerbatimUrl.from_verbatim(url), "GET" if form is None else "POST"
    body: list[bytes] = []
    status = 0
    try:
        response = await client.request(
            method, address, headers=sent, data=posted, allow_redirects=False, unbuffered=True, reactor=reactor
        )
        status = response.code
        demand(status, _redirect_target(response))
        await response.collect(body.append)
    except (ConnectionClosed, RequestTransmissionFailed, ResponseFailed) as error:
        if not line.is_over_limit:
            raise Unanswered(_describe_error(error)) from None
    finally:
        line.hang_up()
    if line.is_over_limit:  # which looks like a normal end where the end of a body is that of its connection
        raise Unanswered(f"the answer is longer than {limit} bytes")
    return HttpAnswer(status, b"".join(body))


def _redirect_target(response: IResponse) -> str | None:
    found = response.headers.getRawHeaders(b"Location", [])
    return found[0].decode("utf-8", "replace") if found else None


@implementer(IBodyProducer)
class _PostedBody:
    """A short body, which is written at once; treq's own producers need the global reactor."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:  # noqa: N802 - Twisted's
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:  # noqa: N802 - Twisted's
        """Do nothing: all is written."""

    def resumeProducing(self) -> None:  # noqa: N802 - Twisted's
        """Do nothing: all is written."""

    def stopProducing(self) -> None:  # noqa: N802 - Twisted's
        """Do nothing: all is written."""


def _describe_error(error: Exception) -> str:
    """Return what went wrong between the connection and the end of the answer."""
    causes = [failure.value for failure in getattr(error, "reasons", ())] or [error]
    if all(isinstance(cause, ConnectionDone | _DataLoss) for cause in causes):
        return "the connection was closed before the answer had ended"
    return "; ".join(dict.fromkeys(map(_describe_cause, causes)))


def _describe_cause(cause: BaseException) -> str:
    if isinstance(cause, ConnectionClosed | RequestTransmissionFailed):
        return tls_fault(cause) or f"{type(cause).__name__}: {cause}".removesuffix(".")
    return tls_fault(cause) or "the answer is not HTTP"  # of which the fault would quote a part


class _VerbatimUrl(URL):
    """An address that treq requests unchanged: it would encode any again, and refuse numbers of IPv6 and underscores."""

    _text: str

    @classmethod
    def from_verbatim(cls, text: str) -> Self:
        address = cls()
        address._text = text
        return address

    def to_uri(self) -> Self:
        return self

    def to_text(self, with_password: bool = False) -> str:  # noqa: ARG002 (it has none)
        return self._text


@implementer(IAgent)
@attrs.frozen
class _PlainAgent:
    """An agent that requests a path unchanged, and takes no compressed answers.

    A few compressed bytes can become a gigabyte, and treq unpacks them. Twisted's ``Agent`` rewrites paths: ``//a`` becomes
    ``////a`` under some versions of Python; its ``ProxyAgent`` sends what it is given, and connects where its endpoint does.
    """

    agent: ProxyAgent

    def request(
        self, method: bytes, uri: bytes, headers: Headers | None = None, bodyProducer: IBodyProducer | None = None
    ) -> Deferred[IResponse]:
        authority, _, path = uri.partition(b"://")[2].partition(b"/")
        plain = Headers() if headers is None else headers.copy()
        plain.setRawHeaders(b"Host", [authority])
        plain.setRawHeaders(b"Accept-Encoding", [b"identity"])
        asked: Deferred[IResponse] = self.agent.request(method, b"/" + path, plain, bodyProducer)
        return asked.addCallback(_refuse_compressed)


def _refuse_compressed(response: IResponse) -> IResponse:
    if response.headers.hasHeader(b"Content-Encoding"):
        raise Unanswered("the answer is compressed")
    return response

"""One request over HTTP, and its whole answer: within a time and a number of bytes, without redirects and proxies."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectError, ConnectionDone, DNSLookupError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import RequestTransmissionFailed, ResponseDone, ResponseFailed, ResponseNeverReceived
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from svc.model.text import blanked
from svc.net.trust import Trust, tls_fault
from svc.workload.address import origin
from svc.workload.capped_agent import BoundedAgent
from svc.workload.faults import NoEvidence, TooLong, Unreachable, Untrusted

#: How much of what a server says is repeated, in characters.
_SAID_LIMIT: Final = 300


def parsed(text: str | bytes) -> Any:
    """Return what JSON says.

    :raises ValueError: it isn't JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def excerpt(text: str) -> str:
    """Return what a server says, for a terminal: cut, and with nothing in it but what can be seen."""
    return blanked(text[:_SAID_LIMIT]).strip()


@attrs.frozen
class Reply:
    """What a server answered: status code, body, and the headers by their lower-case names."""

    status: int
    body: bytes = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def said(self) -> str:
        """Return an excerpt of the message in a refusal; empty where there is none, or a page for browsers."""
        try:
            error = parsed(self.body)["error"]
            message = error if isinstance(error, str) else error["message"]
        except (ValueError, KeyError, TypeError):
            if self.headers.get("content-type", "").lower().startswith("text/html"):
                return ""
            message = self.body[: 4 * _SAID_LIMIT].decode("utf-8", "replace")
        return excerpt(message) if isinstance(message, str) else ""

    @property
    def request_id(self) -> str | None:
        """Return the id by which the server knows the request; ``None`` where it says none."""
        said = self.headers.get("x-request-id", "").strip()
        return said if re.fullmatch("[!-~]{1,128}", said, re.ASCII) else None

    @property
    def retry_after(self) -> float | None:
        """Return in how many seconds the server wants to be asked again (RFC 9110 10.2.3); a date counts as nothing said."""
        text = self.headers.get("retry-after", "").strip()
        return float(text) if re.fullmatch("[0-9]{1,6}", text, re.ASCII) else None


@attrs.frozen
class Exchange:
    """Sends requests. ``limit`` is the largest answer that is taken, in bytes."""

    http: HTTPClient
    reactor: IReactorTime
    limit: int

    async def ask(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, *, within: float
    ) -> Reply:
        """Send a request, and return its answer, whatever the status; all of it may take ``within`` seconds.

        :raises Unreachable: there was none in time.
        :raises Untrusted: what is there has not the certificate for it.
        :raises TooLong: the answer has too many bytes.
        """
        place = origin(url)
        waiting = Deferred.fromCoroutine(self._ask(method, url, place, body, dict((headers or {}).items())))

        def late(*_: object) -> Reply:
            raise Unreachable(place, f"there was no complete answer within {within:g} seconds")

        waiting.addTimeout(within, self.reactor, late)
        try:
            return await waiting
        except (ConnectError, DNSLookupError) as error:
            raise Unreachable(place, str(error).strip() or type(error).__name__, connected=False) from None
        except (RequestTransmissionFailed, ResponseFailed, ResponseNeverReceived) as error:
            raise _fault(place, error) from None

    async def _ask(
        self, method: str, url: str, place: str, body: bytes | None, headers: dict[bytes | str, bytes | str]
    ) -> Reply:
        response = await self.http.request(
            method,
            url,
            data=body,
            headers=headers,
            allow_redirects=False,
            unbuffered=True,
            reactor=self.reactor,  # type: ignore[arg-type] # it is used for a time-out, of which there is none here
        )
        collecting = _Body(self.limit)
        response.deliverBody(collecting)
        collected = await collecting.whole
        if collected is None:
            raise TooLong(place, self.limit)
        named = {k.decode("latin-1").lower(): v[-1].decode("latin-1") for k, v in response.headers.getAllRawHeaders()}
        return Reply(response.code, collected, named)


class _Body(Protocol):
    """Collects a body, and hangs up when nobody waits for it any more or it is too long, when ``whole`` is ``None``."""

    def __init__(self, limit: int) -> None:
        self.whole: Deferred[bytes | None] = Deferred(lambda _: self._hang_up())
        self._limit = limit
        self._pieces: list[bytes] = []

    def dataReceived(self, data: bytes) -> None:
        """Keep a part of the body, unless it is too long or the request was cancelled."""
        if self.whole.called:
            return
        self._limit -= len(data)
        self._pieces.append(data)
        if self._limit < 0:
            self._pieces.clear()
            self.whole.callback(None)
            self._hang_up()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """End; where the length wasn't told, nobody knows whether too early."""
        if self.whole.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.whole.callback(b"".join(self._pieces))
        else:
            self.whole.errback(reason)

    def _hang_up(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()


def _fault(url: str, error: RequestTransmissionFailed | ResponseFailed | ResponseNeverReceived) -> Exception:
    reasons = [reason for reason in error.reasons if isinstance(reason, Failure)]
    for reason in reasons:
        if reason.check(CancelledError):
            return CancelledError()
        fault = tls_fault(reason.value)
        if fault is not None:
            return Untrusted(url, fault)
    if reasons and reasons[0].check(ConnectionDone):
        return Unreachable(url, "the connection was closed, as where one side speaks https and the other doesn't")
    return Unreachable(url, excerpt(reasons[0].getErrorMessage() if reasons else str(error)))


@implementer(IAgent)
@attrs.frozen
class UncompressedAgent:
    """An agent that takes no compressed answers: a few compressed bytes can become a gigabyte.

    The service reads ``base64`` in the same header, alone there (SEC-15); treq would add its own.
    """

    agent: IAgent

    def request(
        self, method: bytes, uri: bytes, headers: Headers | None = None, bodyProducer: IBodyProducer | None = None
    ) -> Deferred[IResponse]:
        """Send a request."""
        plain = Headers() if headers is None else headers.copy()
        wanted = plain.getRawHeaders(b"Accept-Encoding", [])
        plain.setRawHeaders(b"Accept-Encoding", [b"base64" if b"base64" in wanted else b"identity"])
        asked: Deferred[IResponse] = self.agent.request(method, uri, plain, bodyProducer)
        return asked


def http_client(reactor: Any, ca_file: Path | None = None) -> HTTPClient:
    """Return a client without a proxy, whose TLS trusts the system's authorities, or those alone that a PEM file names.

    :raises NoEvidence: the file can't be read, or holds no certificates.
    """
    try:
        trust = Trust() if ca_file is None else Trust.of_file(ca_file)
    except OSError as error:
        raise NoEvidence(f"{ca_file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise NoEvidence(f"{ca_file} {error}") from None
    return HTTPClient(UncompressedAgent(BoundedAgent(reactor, trust)))

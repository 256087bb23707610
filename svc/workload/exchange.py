"""One request over HTTP, and its whole answer: within a time and a number of bytes, without redirects and proxies."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs
from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectError, ConnectionDone, DNSLookupError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.web.client import RequestTransmissionFailed, ResponseDone, ResponseFailed, ResponseNeverReceived
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from svc.model.versions import AT_LEAST_HEADER, VERSION_HEADER
from svc.net.trust import Trust, tls_fault
from svc.workload.address import SentAddress, public_origin
from svc.workload.capped_agent import BoundedAgent
from svc.workload.faults import NoEvidence, TooLong, Unreachable, Untrusted
from svc.workload.replies import Reply, printable_excerpt
from svc.workload.requester import SharedResult
from svc.workload.shared_work import SharedWork
from svc.workload.versions import Versions

T = TypeVar("T")


@attrs.frozen
class Exchange:
    """Sends requests by Twisted, as a ``Requester``. ``limit`` is the largest answer that is taken, in bytes.

    With ``versions``, the versions in answers are noted there, and requests require the noted ones.
    """

    http: HTTPClient
    reactor: IReactorTime
    limit: int
    versions: Versions | None = None

    async def ask(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, *, within: float
    ) -> Reply:
        """Send a request, and return its answer, whatever the status; all of it may take ``within`` seconds.

        :raises Unreachable: there was none in time.
        :raises Untrusted: the server there has no valid certificate for it.
        :raises TooLong: the answer has too many bytes.
        """
        place = public_origin(url)
        named = dict(headers or {})
        if self.versions is not None and (wanted := self.versions.wanted) is not None:
            named[AT_LEAST_HEADER] = wanted
        waiting = Deferred.fromCoroutine(self._send_request(method, url, place, body, dict(named.items())))

        def raise_timeout(*_: object) -> Reply:
            raise Unreachable(place, f"there was no complete answer within {within:g} seconds")

        waiting.addTimeout(within, self.reactor, raise_timeout)
        try:
            return await waiting
        except (ConnectError, DNSLookupError) as error:
            raise Unreachable(place, str(error).strip() or type(error).__name__, connected=False) from None
        except (RequestTransmissionFailed, ResponseFailed, ResponseNeverReceived) as error:
            raise _transport_fault(place, error) from None

    def seconds(self) -> float:
        """See ``Requester``."""
        return self.reactor.seconds()

    async def sleep(self, seconds: float) -> None:
        """See ``Requester``."""
        await deferLater(self.reactor, seconds)

    def shared(self, work: Callable[[], Coroutine[Any, Any, T]]) -> SharedResult[T]:
        """See ``Requester``."""
        return SharedWork(work)

    async def _send_request(
        self, method: str, url: str, place: str, body: bytes | None, headers: dict[bytes | str, bytes | str]
    ) -> Reply:
        response = await self.http.request(
            method,
            SentAddress.from_text(url),
            data=body,
            headers=headers,
            allow_redirects=False,
            unbuffered=True,
            reactor=self.reactor,  # type: ignore[arg-type] # it is used for a time-out, of which there is none here
        )
        collecting = _BodyCollector(self.limit)
        response.deliverBody(collecting)
        collected = await collecting.whole
        if collected is None:
            raise TooLong(place, self.limit)
        named = {k.decode("latin-1").lower(): v[-1].decode("latin-1") for k, v in response.headers.getAllRawHeaders()}
        if self.versions is not None:
            self.versions.note(named.get(VERSION_HEADER.lower()))
        return Reply(response.code, collected, named)


class _BodyCollector(Protocol):
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
        """End; where the length wasn't stated, a truncated body can't be recognized."""
        if self.whole.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.whole.callback(b"".join(self._pieces))
        else:
            self.whole.errback(reason)

    def _hang_up(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()


def _transport_fault(url: str, error: RequestTransmissionFailed | ResponseFailed | ResponseNeverReceived) -> Exception:
    reasons = [reason for reason in error.reasons if isinstance(reason, Failure)]
    for reason in reasons:
        if reason.check(CancelledError):
            return CancelledError()
        fault = tls_fault(reason.value)
        if fault is not None:
            return Untrusted(url, fault)
    if reasons and reasons[0].check(ConnectionDone):
        return Unreachable(url, "the connection was closed, as where one side speaks https and the other doesn't")
    return Unreachable(url, printable_excerpt(reasons[0].getErrorMessage() if reasons else str(error)))


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
        trust = Trust() if ca_file is None else Trust.from_file(ca_file)
    except OSError as error:
        raise NoEvidence(f"{ca_file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise NoEvidence(f"{ca_file} {error}") from None
    return HTTPClient(UncompressedAgent(BoundedAgent(reactor, trust)))

"""The Security Token Service of AWS, called with a request that a workload has signed.

The question is always the same, ``GetCallerIdentity``, and goes to the host that the workload has signed for, which is one
of a list (``svc/authn/iam.py``). So its address isn't looked at: in a private network an operator may have the
name lead to a private address, and TLS proves the host.

Note [What AWS says]. Only an error of the service itself, with status 400 or 403, means that a signature is bad. All else,
also a page of a proxy with that status, and a rate limit, means nothing for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from ipaddress import ip_network
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import attrs
from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.endpoints import wrapClientTLS
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IHostnameResolver

from svc.model.aws import SignedRequest, StsRefused, StsUnavailable
from svc.model.caller_identity import CallerIdentity, read_caller, read_error
from svc.model.errors import AddressRefused
from svc.model.strict_json import Malformed
from svc.net.fetch import ClientTLS
from svc.net.lookup import HostResolver, client_endpoints
from svc.net.outgoing import HttpAnswer, Unanswered, send_request

T = TypeVar("T")

#: Seconds for a question, the wait for its turn included; the most bytes of an answer; questions at the same time (AWS-12).
DEADLINE: Final = 5.0
ANSWER_LIMIT: Final = 64 * 1024
MAX_CONCURRENT: Final = 64

_QUESTION: Final = "/?Action=GetCallerIdentity&Version=2011-06-15"
_EVERYWHERE: Final = (ip_network("0.0.0.0/0"), ip_network("::/0"))

#: The host that is probed whether the service can be reached, until a workload has chosen one.
_GLOBAL: Final = "sts.amazonaws.com"

#: Errors that say nothing of the signature.
_BUSY_ERRORS: Final = frozenset(
    {
        *("Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException"),
        *("RequestLimitExceeded", "TooManyRequestsException", "ServiceUnavailable", "InternalFailure", "InternalError"),
    }
)


@attrs.frozen
class StsAddress:
    """An address to which requests for all hosts of the service go, instead of their own."""

    secure: bool
    host: str
    port: int

    @classmethod
    def parse(cls, url: str) -> Self:
        """Return the address of a URL of ``http`` or ``https``."""
        address = urlsplit(url)
        secure = address.scheme == "https"
        return cls(secure, address.hostname or "", address.port or (443 if secure else 80))


class SecurityTokenService:
    """The Security Token Service of AWS, over TLS; ``deadline`` is in seconds.

    ``reactor`` provides ``IReactorTCP`` and ``IReactorTime``. ``instead``: where requests go, if not to the hosts by name.
    """

    def __init__(
        self,
        reactor: Any,
        resolver: IHostnameResolver,
        tls: ClientTLS,
        instead: StsAddress | None = None,
        *,
        deadline: float = DEADLINE,
        at_once: int = MAX_CONCURRENT,
    ) -> None:
        self._reactor = reactor
        self._host_resolver = HostResolver(reactor, resolver, _EVERYWHERE)
        self._tls, self._instead, self._seconds = tls, instead, deadline
        self._semaphore = DeferredSemaphore(at_once)
        self._last_host = _GLOBAL

    async def identify_caller(self, request: SignedRequest) -> CallerIdentity:
        """Return the identity that has signed a request (Note [What AWS says]).

        :raises StsUnavailable: there is no answer that can be used, or no room to wait for one.
        :raises StsRefused: it doesn't take the signature.
        """
        self._last_host = request.host
        answer = await self._query_limited(request.host, request.headers)
        try:
            if answer.status == 200:
                return read_caller(answer.body)
            code = read_error(answer.body)
        except Malformed as error:
            raise StsUnavailable(f"the answer, with status {answer.status}, is not usable: {error}", answered=True) from None
        if answer.status not in {400, 403} or code in _BUSY_ERRORS:
            raise StsUnavailable(f"the answer is {code}, with status {answer.status}")
        raise StsRefused(code)

    async def check_reachable(self) -> None:
        """Send the service a request that it refuses, at the host of the last request.

        :raises StsUnavailable: there is no answer that can be used.
        """
        answer = await self._query_limited(self._last_host, {})
        try:
            read_error(answer.body)
        except Malformed as error:
            raise StsUnavailable(f"the answer, with status {answer.status}, is not usable: {error}", answered=True) from None

    async def _query_limited(self, host: str, headers: Mapping[str, str]) -> HttpAnswer:
        deadline = self._reactor.seconds() + self._seconds
        await self._with_deadline(deadline, self._semaphore.acquire())
        try:
            return await self._query_host(host, headers, deadline)
        finally:
            self._semaphore.release()

    async def _query_host(self, host: str, headers: Mapping[str, str], deadline: float) -> HttpAnswer:
        """Ask the addresses of the host in turn until one is connected; each gets its share of the time."""
        where = self._instead or StsAddress(True, host, 443)
        try:
            addresses = await self._host_resolver.resolve_host(where.host, where.port, self._seconds_left(deadline))
        except AddressRefused as refusal:
            raise StsUnavailable(refusal.why) from None
        except TimeoutError:
            raise self._timeout_error() from None
        refused = []
        for address, plain in client_endpoints(self._reactor, addresses, where.port, partial(self._seconds_left, deadline)):
            endpoint = wrapClientTLS(self._tls(where.host, None), plain) if where.secure else plain
            asked = send_request(
                endpoint,
                self._reactor,
                f"https://{host}{_QUESTION}",
                ANSWER_LIMIT,
                headers={"accept": "text/xml", **headers},
            )
            try:
                return await self._with_deadline(deadline, Deferred.fromCoroutine(asked))
            except ConnectError as error:
                refused.append(f"no connection to {address} port {where.port}: {error}".removesuffix("."))
            except Unanswered as error:
                raise StsUnavailable(error.why) from None
        raise StsUnavailable("; ".join(refused))

    def _with_deadline(self, deadline: float, result: Deferred[T]) -> Deferred[T]:

        def raise_timeout(*_: object) -> T:
            raise self._timeout_error()

        return result.addTimeout(self._seconds_left(deadline), self._reactor, raise_timeout)

    def _timeout_error(self) -> StsUnavailable:
        return StsUnavailable(f"there was no complete answer within {self._seconds:g} seconds")

    def _seconds_left(self, deadline: float) -> float:
        return float(min(self._seconds, max(0.0, deadline - self._reactor.seconds())))  # the clock may be put back meanwhile

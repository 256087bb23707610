"""The guarded client, which sends one request to an address that a policy names, and to nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import wrapClientTLS
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IHostnameResolver, IOpenSSLClientConnectionCreator, IStreamClientEndpoint

from svc.model.errors import LEADS, REDIRECTED, AddressRefused, KeysUnavailable
from svc.model.query_results import Network
from svc.model.strict_json import Malformed
from svc.model.text import quote_address
from svc.model.web_address import WebAddress, secure_origin
from svc.net.addresses import Address
from svc.net.lookup import HostResolver, client_endpoints
from svc.net.outgoing import HttpAnswer, PostedForm, Unanswered, send_request

T = TypeVar("T")

#: Makes the TLS of a connection to a host, as ``trust.client_tls``.
ClientTLS = Callable[[str, str | None], IOpenSSLClientConnectionCreator]

DEADLINE: Final = 5.0  #: seconds from the lookup of the first name to the last byte (NET-15)
ANSWER_LIMIT: Final = 256 * 1024  #: most bytes that are read of an answer, its headers included (NET-15)

#: The media types of documents. A cluster's API has its keys as the first alone, and its document as the second (NET-13).
_DOCUMENTS: Final = "application/jwk-set+json, application/json, */*;q=0.1"


@attrs.frozen
class _OutgoingRequest:
    """An outgoing request: a ``GET``, or the ``POST`` of a form; ``token`` is sent as a bearer token."""

    form: PostedForm | None = None
    token: str | None = attrs.field(default=None, repr=False)

    def headers(self) -> dict[str, str]:
        shown_token = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        return shown_token if self.form is not None else {"Accept": _DOCUMENTS, **shown_token}

    def demand_success(self, status: int, location: str | None) -> None:
        """Refuse what is no success, unless a form was posted: any status answers that."""
        if self.form is not None or 200 <= status < 300:
            return
        raise KeysUnavailable(f"the answer has status {status}{self._explain_status(status, location)}")

    def _explain_status(self, status: int, location: str | None) -> str:
        """Return what a status other than a success means here, as the rest of a sentence."""
        if 300 <= status < 400 and status != 304:
            return f", and {REDIRECTED}" if location is None else f", and {LEADS}{quote_address(location)}"
        match status:
            case 401 if self.token is None:
                return ": no token was shown (jwks-token)"
            case 403 if self.token is None:
                return ": perhaps a token is wanted, and none was shown (jwks-token)"
            case 401:
                return ": the token that was shown is not accepted"
            case 403:
                return ": the token that was shown is not accepted, or its account may not read this"
            case 406:
                return f": nothing there is of the types that were asked for ({_DOCUMENTS})"
        return ""


class GuardedClient:
    """Fetches within the limits of NET-12 to NET-16; ``new_deadline`` is in seconds, ``limit`` in bytes.

    ``reactor`` provides ``IReactorTCP`` and ``IReactorTime``; for ``private_networks`` see ``HostResolver``.
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
        self._host_resolver = HostResolver(reactor, resolver, private_networks)
        self._tls = tls
        self._allow_http = allow_http
        self._seconds = deadline
        self._limit = limit

    def new_deadline(self) -> float:
        """Return the moment by which what begins now must have ended."""
        return float(self._reactor.seconds() + self._seconds)

    async def fetch(
        self, uri: str, ca_cert: str | None = None, deadline: float | None = None, token: str | None = None
    ) -> bytes:
        """Return the body of a successful answer.

        ``ca_cert``: PEM of the only authorities to trust, ``None`` for the platform's. ``deadline``: of the
        whole task, as :meth:`deadline` returned it. ``token``: a bearer token to show, over TLS alone.

        :raises KeysUnavailable: there was none, or the address was not allowed.
        """
        return (await self._send_request(uri, ca_cert, deadline, _OutgoingRequest(token=token))).body

    async def post(
        self, uri: str, form: PostedForm, ca_cert: str | None = None, deadline: float | None = None
    ) -> HttpAnswer:
        """Post a form, once, and return the answer, whatever its status; otherwise as :meth:`fetch`."""
        return await self._send_request(uri, ca_cert, deadline, _OutgoingRequest(form))

    def demand_address(self, uri: str, of: str | None = None) -> str:
        """Return an address if its text is allowed; ``of`` is the provider that it has to fit, if any.

        :raises KeysUnavailable: it may not; a provider that is ``https`` has no address that isn't.
        """
        target = self._parse_target(uri)
        if not target.secure and of is not None and secure_origin(of) is not None:
            raise KeysUnavailable(f"{uri} is not https, and its provider is")
        return uri

    async def check_host(self, uri: str) -> None:
        """Look up the host of an address, without a request.

        :raises KeysUnavailable: it has none, or one that may not be connected to.
        """
        target = self._parse_target(uri)
        try:
            await self._resolve_host(target, self.new_deadline())
        except KeysUnavailable as error:
            raise KeysUnavailable(f"{uri}: {error.why}") from None

    def _parse_target(self, uri: str) -> WebAddress:
        try:
            target = WebAddress.parse(uri)
        except Malformed as error:
            raise KeysUnavailable(error.why) from None
        if not target.secure and not self._allow_http:
            raise KeysUnavailable(f"{uri} is not https, and allow_http_providers is off")
        return target

    async def _send_request(
        self, uri: str, ca_cert: str | None, deadline: float | None, question: _OutgoingRequest
    ) -> HttpAnswer:
        target = self._parse_target(uri)
        try:
            if ca_cert is not None and not target.secure:
                raise KeysUnavailable("it is not https, and ca-cert is for https alone")
            if question.token is not None and not target.secure:
                raise KeysUnavailable("it is not https, and a token is shown over https alone")
            return await self._first_answer(target, ca_cert, self.new_deadline() if deadline is None else deadline, question)
        except KeysUnavailable as error:
            raise KeysUnavailable(f"{uri}: {error.why}") from None

    async def _first_answer(
        self, target: WebAddress, ca_cert: str | None, deadline: float, question: _OutgoingRequest
    ) -> HttpAnswer:
        """Ask the addresses of the host in turn until one is connected; each gets its share of the time."""
        addresses = await self._resolve_host(target, deadline)
        refused = []
        for address, plain in client_endpoints(
            self._reactor, addresses, target.port, partial(self._remaining_seconds, deadline)
        ):
            endpoint = self._wrap_tls(target, ca_cert, plain)
            try:
                return await self._ask_address(target, endpoint, deadline, question)
            except ConnectError as error:
                refused.append(f"no connection to {address} port {target.port}: {error}".removesuffix("."))
        raise KeysUnavailable("; ".join(refused))

    async def _resolve_host(self, target: WebAddress, deadline: float) -> list[Address]:
        try:
            return await self._host_resolver.resolve_host(target.host, target.port, self._remaining_seconds(deadline))
        except AddressRefused as refusal:
            raise KeysUnavailable(refusal.why) from None
        except TimeoutError:
            raise self._late_error() from None

    async def _ask_address(
        self, target: WebAddress, endpoint: IStreamClientEndpoint, deadline: float, question: _OutgoingRequest
    ) -> HttpAnswer:
        """Make the request to one address; ``ConnectError`` means that another may answer."""
        form, headers = question.form, question.headers()
        asked = send_request(endpoint, self._reactor, target.url, self._limit, question.demand_success, form, headers)
        try:
            return await self._bound_time(deadline, Deferred.fromCoroutine(asked))
        except Unanswered as error:
            raise KeysUnavailable(error.why) from None

    def _wrap_tls(self, target: WebAddress, ca_cert: str | None, endpoint: IStreamClientEndpoint) -> IStreamClientEndpoint:
        if not target.secure:
            return endpoint
        try:
            return wrapClientTLS(self._tls(target.host, ca_cert), endpoint)
        except UnicodeError:
            raise KeysUnavailable("no certificate can be for a host of that name") from None

    def _bound_time(self, deadline: float, result: Deferred[T]) -> Deferred[T]:

        def raise_late(*_: object) -> T:
            raise self._late_error()

        return result.addTimeout(self._remaining_seconds(deadline), self._reactor, raise_late)

    def _late_error(self) -> KeysUnavailable:
        return KeysUnavailable(f"there was no complete answer within {self._seconds:g} seconds")

    def _remaining_seconds(self, deadline: float) -> float:
        return float(min(self._seconds, max(0.0, deadline - self._reactor.seconds())))  # the clock may be put back meanwhile

"""The guarded client, which asks one question of an address that a policy names, and of nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

import attrs
from twisted.internet.abstract import isIPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import wrapClientTLS
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IHostnameResolver, IOpenSSLClientConnectionCreator, IStreamClientEndpoint

from svc.model.errors import AddressRefused, KeysUnavailable
from svc.model.hosts import HOST, HOST_LIMIT
from svc.model.query_results import Network
from svc.model.text import shown
from svc.net.addresses import Address
from svc.net.lookup import LookUps, endpoints
from svc.net.outgoing import HttpAnswer, PostedForm, Unanswered, ask

T = TypeVar("T")

#: Makes the TLS of a connection to a host, as ``trust.client_tls``.
ClientTLS = Callable[[str, str | None], IOpenSSLClientConnectionCreator]

DEADLINE: Final = 5.0  #: seconds from the look-up of the first name to the last byte (NET-15)
ANSWER_LIMIT: Final = 256 * 1024  #: most bytes that are read of an answer, its headers included (NET-15)
_URI_LIMIT: Final = 2048
_CHARACTER: Final = r"[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2}"
_URI: Final = re.compile(
    rf"(?P<origin>(?P<scheme>https?)://(?P<host>{HOST})(?::(?P<port>[0-9]{{1,5}}))?)"
    rf"(?P<rest>(?:/(?:{_CHARACTER})*)?(?:\?(?:{_CHARACTER}|\?)*)?)"
)


@attrs.frozen
class _Target:
    """An address that may be fetched as far as its text goes; ``url`` is as it was written, with a path."""

    url: str
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
        if port not in range(1, 1 << 16) or len(host) > HOST_LIMIT or (":" in host and not isIPv6Address(host)):
            raise KeysUnavailable(f"{shown(uri)} has an impossible port or host")
        if not secure and not allow_http:
            raise KeysUnavailable(f"{uri} is not https, and allow_http_providers is off")
        rest = match["rest"] if match["rest"].startswith("/") else "/" + match["rest"]
        return cls(f"{match['origin']}{rest}", secure, host, port)


def origin_of(uri: str) -> str | None:
    """Return the scheme, host and port of an https address, in one form; ``None`` for every other text."""
    try:
        target = _Target.parse(uri, allow_http=True)
    except KeysUnavailable:
        return None
    return f"https://{target.host.lower()}:{target.port}" if target.secure else None


@attrs.frozen
class _Outgoing:
    """What is asked: a ``GET``, or the ``POST`` of a form; ``token`` is shown as a bearer's."""

    form: PostedForm | None = None
    token: str | None = attrs.field(default=None, repr=False)

    def headers(self) -> dict[str, str]:
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def demand(self, status: int) -> None:
        """Refuse what is no success, unless a form was posted: any status answers that."""
        if self.form is not None or 200 <= status < 300:
            return
        why = ", and redirects are not followed"
        if status in {401, 403}:
            why = ": the token that was shown is not accepted" if self.token else ": no token was shown (jwks-token)"
            if self.token and status == 403:
                why += ", or its account may not read this"
        raise KeysUnavailable(f"the answer has status {status}{why}")


class GuardedClient:
    """Fetches within the limits of NET-12 to NET-16; ``deadline`` is in seconds, ``limit`` in bytes.

    ``reactor`` provides ``IReactorTCP`` and ``IReactorTime``; for ``private_networks`` see ``LookUps``.
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
        """Return the moment by which what begins now must have ended."""
        return float(self._reactor.seconds() + self._seconds)

    async def fetch(
        self, uri: str, ca_cert: str | None = None, deadline: float | None = None, token: str | None = None
    ) -> bytes:
        """Return the body of a successful answer.

        ``ca_cert``: PEM of the only authorities to trust, ``None`` for the platform's. ``deadline``: of the
        whole task, as :meth:`deadline` returned it. ``token``: a bearer token to show, over TLS alone.

        :raises KeysUnavailable: there was none, or it was not allowed to ask.
        """
        return (await self._answered(uri, ca_cert, deadline, _Outgoing(token=token))).body

    async def post(
        self, uri: str, form: PostedForm, ca_cert: str | None = None, deadline: float | None = None
    ) -> HttpAnswer:
        """Post a form, once, and return the answer, whatever its status; otherwise as :meth:`fetch`."""
        return await self._answered(uri, ca_cert, deadline, _Outgoing(form))

    def demand_address(self, uri: str, of: str) -> str:
        """Return an address that the document of the provider ``of`` names, if it may be asked as far as its text goes.

        :raises KeysUnavailable: it may not; a provider that is ``https`` has no address that isn't.
        """
        target = _Target.parse(uri, self._allow_http)
        if not target.secure and of.startswith("https:"):
            raise KeysUnavailable(f"{uri} is not https, and its provider is")
        return uri

    async def _answered(self, uri: str, ca_cert: str | None, deadline: float | None, question: _Outgoing) -> HttpAnswer:
        target = _Target.parse(uri, self._allow_http)
        try:
            if ca_cert is not None and not target.secure:
                raise KeysUnavailable("it is not https, and ca-cert is for https alone")
            if question.token is not None and not target.secure:
                raise KeysUnavailable("it is not https, and a token is shown over https alone")
            return await self._first_answer(target, ca_cert, self.deadline() if deadline is None else deadline, question)
        except KeysUnavailable as error:
            raise KeysUnavailable(f"{uri}: {error.why}") from None

    async def _first_answer(self, target: _Target, ca_cert: str | None, deadline: float, question: _Outgoing) -> HttpAnswer:
        """Ask the addresses of the host in turn until one is connected; each gets its share of the time."""
        addresses = await self._addresses(target, deadline)
        refused = []
        for address, plain in endpoints(self._reactor, addresses, target.port, partial(self._left, deadline)):
            endpoint = self._secured(target, ca_cert, plain)
            try:
                return await self._ask(target, endpoint, deadline, question)
            except ConnectError as error:
                refused.append(f"no connection to {address} port {target.port}: {error}".removesuffix("."))
        raise KeysUnavailable("; ".join(refused))

    async def _addresses(self, target: _Target, deadline: float) -> list[Address]:
        try:
            return await self._look_ups.addresses(target.host, target.port, self._left(deadline))
        except AddressRefused as refusal:
            raise KeysUnavailable(refusal.why) from None
        except TimeoutError:
            raise self._late() from None

    async def _ask(
        self, target: _Target, endpoint: IStreamClientEndpoint, deadline: float, question: _Outgoing
    ) -> HttpAnswer:
        """Make the request to one address; ``ConnectError`` means that another may answer."""
        form, headers = question.form, question.headers()
        asked = ask(endpoint, self._reactor, target.url, self._limit, question.demand, form, headers)
        try:
            return await self._until(deadline, Deferred.fromCoroutine(asked))
        except Unanswered as error:
            raise KeysUnavailable(error.why) from None

    def _secured(self, target: _Target, ca_cert: str | None, endpoint: IStreamClientEndpoint) -> IStreamClientEndpoint:
        if not target.secure:
            return endpoint
        try:
            return wrapClientTLS(self._tls(target.host, ca_cert), endpoint)
        except UnicodeError:
            raise KeysUnavailable("no certificate can be for a host of that name") from None

    def _until(self, deadline: float, result: Deferred[T]) -> Deferred[T]:

        def late(*_: object) -> T:
            raise self._late()

        return result.addTimeout(self._left(deadline), self._reactor, late)

    def _late(self) -> KeysUnavailable:
        return KeysUnavailable(f"there was no complete answer within {self._seconds:g} seconds")

    def _left(self, deadline: float) -> float:
        return float(min(self._seconds, max(0.0, deadline - self._reactor.seconds())))  # the clock may be put back meanwhile

"""Providers of OpenID Connect: discovery of their endpoints, exchange of codes for id tokens (OIDC-12 to OIDC-20), and those
that people are offered to log in at.

Note [What strangers can cause]. Anyone can send a code, and list the providers. So the document of a provider is cached, and
read by one fetch for all requests that wait; a code or nonce that was sent to a provider isn't sent there again; and
exchanges have places, of which one address gets a few. Each process of a server counts for itself.

Note [Sent once]. A code and its nonce count as spent before anything is sent, so that of two requests with the same one is
refused. They are dropped only where no answer came: the client may try again then, and the provider decides.

Note [A refused client]. Whether id and secret are right shows at a login alone. So a provider's refusal of them is kept for
operators, under a digest of both, until a code is exchanged with them: others were never refused.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

import attrs
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.authn.providers.discovery import discovery_uri, parse_discovery, read_address
from svc.model.authentication import spread_retry_after
from svc.model.clocks import WallClock
from svc.model.errors import DOCUMENT_UNUSABLE, KeysUnavailable
from svc.model.oidc import (
    PROVIDER_ERRORS,
    ClientRefusal,
    ClientRefused,
    CodeLogin,
    CodeRefused,
    OidcClient,
    OidcIssuer,
    OidcMetadata,
    OidcOffer,
    OidcSetting,
    ProviderUnavailable,
)
from svc.model.query_results import address_counting_key
from svc.model.strict_json import Malformed, parse_json_object
from svc.model.text import quote_text
from svc.net.fetch import GuardedClient
from svc.net.outgoing import HttpAnswer, PostedForm

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

#: Seconds after which a provider's document is read again.
MAX_AGE: Final = 300.0

#: The most providers whose documents are cached, and the most refused clients; of each only a few lines are kept.
CACHE_LIMIT: Final = 1000

#: The exchanges that may be under way: in all, with one provider, and for one address there.
MAX_EXCHANGES: Final = 128
MAX_PER_PROVIDER: Final = 32
MAX_PER_ADDRESS: Final = 8

#: The codes and nonces that are known as spent, and for how many seconds: providers let codes live for less.
MAX_SPENT: Final = 16_384
SPENT_SECONDS: Final = 900.0

#: The errors of a token endpoint that are about this service, and not about the code: those of RFC 6749 5.2, and the words
#: of providers that answer 200 with an error, as Slack and GitHub do.
_OF_CLIENT: Final = frozenset(
    {
        "invalid_client",
        "unauthorized_client",
        "unsupported_grant_type",
        "bad_client_secret",
        "invalid_client_id",
        "incorrect_client_credentials",
    }
)

#: Seconds for which the offers of an account are cached, and the most accounts in the cache.
OFFERS_FRESH: Final = 1.0
OFFERS_KEPT: Final = 1000

_log = Logger()


@attrs.define(eq=False)
class _KnownProvider:
    """The state of one provider: its newest document, why the last attempt failed, and when it began."""

    metadata: OidcMetadata | None = None
    failure: str | None = None
    attempted_at: float = -math.inf


class OidcEndpoints:
    """Providers of OpenID Connect, as far as their keys aren't concerned (``IProviderKeys``).

    A provider that failed is tried again after ``interval`` seconds.
    """

    def __init__(self, client: GuardedClient, clock: IReactorTime, wall: WallClock, interval: float) -> None:
        self._client = client
        self._clock = clock
        self._wall = wall
        self._interval = interval
        self._refreshes: SharedWork[OidcIssuer, None] = SharedWork()
        self._known: OrderedDict[OidcIssuer, _KnownProvider] = OrderedDict()
        self._spent: OrderedDict[bytes, float] = OrderedDict()
        self._exchanges: Counter[object] = Counter()
        self._refused: OrderedDict[bytes, ClientRefusal] = OrderedDict()

    async def read_metadata(self, issuer: OidcIssuer) -> OidcMetadata:
        """Return a provider's metadata, read some minutes ago at most, unless the provider has been unreachable since.

        :raises ProviderUnavailable: none is cached, and none could be read, or may be read yet.
        """
        known = self._known.setdefault(issuer, _KnownProvider())
        self._known.move_to_end(issuer)
        if len(self._known) > CACHE_LIMIT:
            self._known.popitem(last=False)
        since = self._clock.seconds() - known.attempted_at
        if self._refreshes.is_running(issuer) or since >= (MAX_AGE if known.failure is None else self._interval):
            await self._refreshes.join_or_start(issuer, lambda: self._refresh_metadata(issuer, known))
        if known.metadata is None:
            raise ProviderUnavailable(known.failure or f"{issuer.uri} was not asked yet", spread_retry_after())
        return known.metadata

    async def check_endpoints(self, issuer: OidcIssuer) -> None:
        """Check that a provider's endpoints are known, and that codes may be sent to its host for tokens.

        :raises ProviderUnavailable: they aren't, or may not.
        """
        metadata = await self.read_metadata(issuer)
        try:
            await self._client.check_host(metadata.token_endpoint)
        except KeysUnavailable as error:
            raise ProviderUnavailable(error.why) from None

    async def exchange_code(self, client: OidcClient, login: CodeLogin) -> bytes:
        """Return the id token that a provider gives for a code, empty where its answer has none (Note [Sent once]).

        :raises ProviderUnavailable: there is no answer, or no room to wait for one.
        :raises ClientRefused: it takes no code of this client.
        :raises CodeRefused: the code is none, or was used, or belongs to another client or verifier.
        """
        spent = [
            sha256("\0".join((client.issuer.uri, client.id, what, text)).encode("utf-8")).digest()
            for what, text in (("code", login.evidence.decode("utf-8")), ("nonce", login.nonce))
        ]
        with self._exchange_slot(client.issuer, address_counting_key(login.client_ip)):
            self._mark_spent(spent)
            try:
                metadata = await self.read_metadata(client.issuer)
                answer = await self._client.post(
                    metadata.token_endpoint, _token_request(client, metadata, login), client.issuer.ca_cert
                )
            except KeysUnavailable as error:
                self._unmark_spent(spent)
                raise ProviderUnavailable(error.why, spread_retry_after()) from None
            except ProviderUnavailable:
                self._unmark_spent(spent)
                raise
        try:
            token = _id_token(metadata.token_endpoint, answer)
        except ClientRefused as refusal:
            self._record_refusal(client, refusal.why)
            raise
        self._refused.pop(_digest_client(client), None)
        return token

    def find_client_refusal(self, client: OidcClient) -> ClientRefusal | None:
        """Return that a provider refused a client of this id and secret at a login here, and took no code of it since.

        It is kept as Note [A refused client] says.
        """
        return self._refused.get(_digest_client(client))

    def _record_refusal(self, client: OidcClient, why: str) -> None:
        digest = _digest_client(client)
        first = self._refused.get(digest)
        self._refused[digest] = ClientRefusal(self._wall.seconds() if first is None else first.since, why)
        self._refused.move_to_end(digest)
        if len(self._refused) > CACHE_LIMIT:
            self._refused.popitem(last=False)

    def _mark_spent(self, spent: list[bytes]) -> None:
        now = self._clock.seconds()
        while self._spent and now - next(iter(self._spent.values())) >= SPENT_SECONDS:
            self._spent.popitem(last=False)
        if any(digest in self._spent for digest in spent):
            raise CodeRefused("the code, or its nonce, was sent to the provider before", replayed=True)
        self._spent.update(dict.fromkeys(spent, now))
        while len(self._spent) > MAX_SPENT:
            self._spent.popitem(last=False)

    def _unmark_spent(self, spent: list[bytes]) -> None:
        for digest in spent:
            self._spent.pop(digest, None)

    @contextmanager
    def _exchange_slot(self, issuer: OidcIssuer, address: str) -> Iterator[None]:
        """Take a place for an exchange, and give it back."""
        counted: tuple[tuple[object, int], ...] = (
            (None, MAX_EXCHANGES),
            (issuer, MAX_PER_PROVIDER),
            ((issuer, address), MAX_PER_ADDRESS),
        )
        if any(self._exchanges[name] >= most for name, most in counted):
            raise ProviderUnavailable(
                f"{quote_text(issuer.uri)}: more logins are under way than there is room for", spread_retry_after()
            )
        for name, _ in counted:
            self._exchanges[name] += 1
        try:
            yield
        finally:
            for name, _ in counted:
                self._exchanges[name] -= 1
            self._exchanges += Counter()  # counts that have come down to zero are dropped

    async def _refresh_metadata(self, issuer: OidcIssuer, known: _KnownProvider) -> None:
        """Read a provider's document; the one at hand outlives an attempt that fails."""
        known.attempted_at = self._clock.seconds()
        try:
            known.metadata = await self._fetch_metadata(issuer)
        except KeysUnavailable as error:
            if known.failure is None:
                _log.warn("what a provider says of itself could not be read: {why}", why=error.why)
            known.failure = error.why
        else:
            known.failure = None

    async def _fetch_metadata(self, issuer: OidcIssuer) -> OidcMetadata:
        """Read a provider's document.

        :raises KeysUnavailable: it can't be had, or names no endpoint that can be used.
        """
        about = discovery_uri(issuer.uri)
        document = await self._client.fetch(about, issuer.ca_cert)
        try:
            return self._parse_metadata(document, issuer.uri)
        except Malformed as error:
            raise KeysUnavailable(f"{about}: {DOCUMENT_UNUSABLE}{error}") from None

    def _parse_metadata(self, document: bytes, provider: str) -> OidcMetadata:
        members = parse_discovery(document, provider)

        def read_endpoint(name: str) -> str:
            return read_address(members, name, partial(self._client.demand_address, of=provider))

        # By default HTTP Basic (OpenID Connect Discovery 1.0, 3).
        methods = members.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        named = methods if isinstance(methods, list) else []
        return OidcMetadata(
            read_endpoint("authorization_endpoint"),
            read_endpoint("token_endpoint"),
            posts_secret="client_secret_basic" not in named and "client_secret_post" in named,
            names_issuer=members.get("authorization_response_iss_parameter_supported") is True,
            device_endpoint=read_endpoint("device_authorization_endpoint")
            if "device_authorization_endpoint" in members
            else None,
            declared_issuer=None if members["issuer"] == provider else str(members["issuer"]),
        )


def _digest_client(client: OidcClient) -> bytes:
    """Return what a client is known by here: the provider, and id and secret there."""
    parts = client.issuer.uri, client.issuer.ca_cert or "", client.id, client.secret
    return sha256("\0".join(parts).encode("utf-8")).digest()


def _token_request(client: OidcClient, metadata: OidcMetadata, login: CodeLogin) -> PostedForm:
    """Return the request for the tokens of a code (RFC 6749 4.1.3, RFC 7636 4.5)."""
    fields = {
        "grant_type": "authorization_code",
        "code": login.evidence.decode("utf-8"),
        "redirect_uri": client.redirect_uri,
        "code_verifier": login.verifier,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    if metadata.posts_secret:
        return PostedForm(urlencode({**given, "client_id": client.id, "client_secret": client.secret}))
    # Both are encoded as in a form before they are joined (RFC 6749 2.3.1).
    pair = f"{quote(client.id, safe='')}:{quote(client.secret, safe='')}".encode("ascii")
    return PostedForm(urlencode(given), {"Authorization": f"Basic {b64encode(pair).decode('ascii')}"})


def _id_token(endpoint: str, answer: HttpAnswer) -> bytes:
    """Return the id token in the answer of a token endpoint (RFC 6749 5); the access token in it is never looked at.

    One that is no text, such as null, is as good as absent.
    """
    if not (200 <= answer.status < 300 or 400 <= answer.status < 500) or answer.status in {404, 408, 429}:
        raise ProviderUnavailable(f"{endpoint}: the answer has status {answer.status}", spread_retry_after())
    try:
        members = parse_json_object(answer.body)
    except Malformed as error:
        raise ProviderUnavailable(f"{endpoint}: the answer is not usable: {error}", spread_retry_after()) from None
    token, named = members.get("id_token"), members.get("error")
    if answer.status < 300 and (isinstance(token, str) or not isinstance(named, str)):
        return token.encode("utf-8", "surrogatepass") if isinstance(token, str) else b""
    if not isinstance(named, str):
        raise ProviderUnavailable(f"{endpoint}: the answer has status {answer.status}, and no error", spread_retry_after())
    why = f"{endpoint}: the answer is {quote_text(named)}"
    if named in PROVIDER_ERRORS:
        raise ProviderUnavailable(why, spread_retry_after())
    raise ClientRefused(why) if named in _OF_CLIENT else CodeRefused(why)


class OidcOffers:
    """The authenticators of an account at which people can log in by a provider of OpenID Connect.

    ``list_settings`` returns those of an account that operators have set up.
    """

    def __init__(
        self, list_settings: Callable[[str], Awaitable[Sequence[OidcSetting]]], providers: OidcEndpoints, clock: IReactorTime
    ) -> None:
        self._list_settings = list_settings
        self._providers = providers
        self._clock = clock
        self._work: SharedWork[str, list[OidcOffer]] = SharedWork()
        self._cache: OrderedDict[str, tuple[float, list[OidcOffer]]] = OrderedDict()

    async def list_offers(self, account: str) -> list[OidcOffer]:
        """Return those whose settings are sound and whose provider can be reached, in the order of their ids.

        Since strangers may call this, it is bounded: an account's are read once a second at most.
        """
        at, offers = self._cache.get(account, (0.0, None))
        if offers is not None and self._clock.seconds() - at < OFFERS_FRESH:
            return offers
        return await self._work.join_or_start(account, lambda: self._read_offers(account))

    async def _read_offers(self, account: str) -> list[OidcOffer]:
        began = self._clock.seconds()
        found = await self._list_settings(account)
        # One after the other, each that is away would make the others late.
        asked = gatherResults([Deferred.fromCoroutine(self._read_offer(setting)) for setting in found])
        offers = [offer for offer in await asked if offer is not None]
        self._cache[account] = (began, offers)
        self._cache.move_to_end(account)
        if len(self._cache) > OFFERS_KEPT:
            self._cache.popitem(last=False)
        return offers

    async def _read_offer(self, setting: OidcSetting) -> OidcOffer | None:
        try:
            metadata = await self._providers.read_metadata(setting.issuer)
        except ProviderUnavailable:
            return None
        return OidcOffer(**attrs.asdict(setting, recurse=False), metadata=metadata)


class SharedWork(Generic[K, T]):
    """Work under way, by key. It goes on when its callers have left."""

    def __init__(self) -> None:
        self._waiters: dict[K, list[Deferred[T]]] = {}

    def is_running(self, key: K) -> bool:
        """Return whether there is work of this key that has not ended."""
        return key in self._waiters

    def join_or_start(self, key: K, work: Callable[[], Coroutine[Any, Any, T]]) -> Deferred[T]:
        """Wait for the work of this key, which begins now unless it is under way."""
        waiter: Deferred[T] = Deferred()
        if key in self._waiters:
            self._waiters[key].append(waiter)
        else:
            self._waiters[key] = [waiter]
            Deferred.fromCoroutine(work()).addBoth(self._release_waiters, key)
        return waiter

    def _release_waiters(self, result: T | Failure, key: K) -> None:
        for waiter in self._waiters.pop(key):
            if waiter.called:
                continue  # its client may have left meanwhile
            if isinstance(result, Failure):
                waiter.errback(result.value)
            else:
                waiter.callback(result)

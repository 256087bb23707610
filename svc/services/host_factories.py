"""The use cases of host factories: tokens, and the hosts that machines make for themselves with them (HF-1).

A token is a bearer secret, so nothing shows it again: the log and outcomes name one by the beginning of its SHA-256.

Note [Read late]. A caller that may not do a thing gets no other error, so some parameters are functions, which refuse what
can't be read. They are called after the caller's privilege is checked, in the order in which failures count.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import attrs
from twisted.logger import Logger

from svc.crypto.vault import Vault, api_key_name
from svc.model.authorization import require_privilege, require_visible
from svc.model.clocks import WallClock, iso_seconds
from svc.model.credentials import new_api_key
from svc.model.dialect import Dialect
from svc.model.errors import AuthenticationRefused, Conflict, Forbidden, InvalidParameter, RecordNotFound
from svc.model.host_factories import CreatedHost, FactoryToken, digest_token, is_token_name, name_token
from svc.model.idempotency import AlreadyAnswered, Once, RequestKey
from svc.model.limits import RECORD_LIMITS, RecordLimits
from svc.model.names import ResourceName, RoleName, check_identifier
from svc.model.query_results import OutstandingToken, Resource, Sealed
from svc.model.reasons import Reason
from svc.model.text import quote_text
from svc.policy.ranges import normalize_cidr
from svc.policy.resolve import ANNOTATION_NAME_LIMIT, ANNOTATION_VALUE_LIMIT
from svc.services.idempotency import make_once, open_answer, sealed_pieces
from svc.services.invocation import Invocation, Recorder, printable_facts
from svc.storage.host_factories import HostFactoryStore
from svc.storage.resources import ResourceStore
from svc.storage.roles import RoleStore

COUNT_MOST: Final = 1000  # tokens that are made at once
NETWORKS_MOST: Final = 100  # that tokens are bound to

_log = Logger()


@attrs.frozen
class TokensRequest:
    """A request for tokens: how many, until when as ISO 8601, and the networks from which they are to be used."""

    count: int = attrs.field(validator=[attrs.validators.ge(1), attrs.validators.le(COUNT_MOST)])
    expiration: str
    networks: tuple[str, ...] = ()


@attrs.frozen
class NewTokens:
    """The texts of tokens that were made, and their common facts."""

    texts: Sequence[str] = attrs.field(repr=False)
    token: FactoryToken


@attrs.frozen
class NewHost:
    """A host that was made, or was given another API key; ``described`` is as in ``ResourceStore``.

    ``api_key`` is ``None`` where an annotation says that it has none (TOK-53).
    """

    role: RoleName
    api_key: str | None = attrs.field(repr=False)
    described: AsyncIterator[Sequence[Resource]]


@attrs.frozen
class HostFactoryService:
    """The use cases of tokens of host factories, and of the hosts that are made with them."""

    store: HostFactoryStore
    roles: RoleStore
    resources: ResourceStore
    vault: Vault
    dialect: Dialect
    wall: WallClock
    limits: RecordLimits = RECORD_LIMITS

    async def create_tokens(
        self,
        invocation: Invocation,
        factory: ResourceName,
        wanted: Callable[[], TokensRequest],
        request: RequestKey | None = None,
    ) -> NewTokens:
        """Make tokens of a factory, which takes ``execute`` on it; with ``request``, once.

        Checks are in the order of HF-5: a caller that may not see the factory learns neither its kind nor what else is
        wrong.

        :raises NotFound: there is no such factory, or the caller may not see it.
        :raises Forbidden: the caller lacks the privilege.
        :raises InvalidParameter: it is no factory, or these tokens can't be.
        """
        caller, recorder = invocation.caller, invocation.recorder
        access_facts = await self.roles.access_facts(caller, factory)
        require_visible(access_facts, factory)
        _require_factory(factory)
        require_privilege(access_facts, "execute", factory)
        asked = wanted()
        recorder.add_audit_facts(count=asked.count)
        expires_at = _parse_expiration(asked.expiration)
        if expires_at <= self.wall.seconds():
            message = f"Value for parameter expiration must be in the future: {asked.expiration[:100]}"
            raise InvalidParameter("expiration", message)
        token = FactoryToken(factory.role, expires_at, _parse_networks(asked.networks))
        texts = [new_api_key() for _ in range(asked.count)]
        repeatable = make_once(self.vault, request, caller, texts)
        try:
            await self.store.add_tokens([digest_token(text) for text in texts], token, recorder.event_batch, repeatable)
        except AlreadyAnswered as before:
            recorder.add_audit_facts(repeated=True)
            return NewTokens(open_answer(self.vault, before), token)
        facts = printable_facts(role=caller.role, factory=factory, expiration=iso_seconds(expires_at))
        named = ", ".join(name_token(digest_token(text)) for text in texts[:10])
        message = "{role} made {count} tokens of {factory}, good until {expiration}: {tokens}"
        _log.info(message, **facts, count=asked.count, tokens=named)
        return NewTokens(texts, token)

    async def list_tokens(
        self, invocation: Invocation, factory: ResourceName, limit: int, offset: int
    ) -> Sequence[OutstandingToken]:
        """Return the tokens of a factory that the caller sees, by their names, those that expire first before others.

        :raises NotFound: there is no such factory, or the caller may not see it.
        :raises InvalidParameter: it is no factory.
        """
        require_visible(await self.roles.access_facts(invocation.caller, factory), factory)
        _require_factory(factory)
        return await self.store.list_tokens(factory.role, limit, offset)

    async def revoke_token(self, invocation: Invocation, token: str) -> None:
        """Remove a token, given by its text or its name, which takes ``update`` on its factory.

        :raises NotFound: there is no such token, or the caller may not see its factory, and doesn't learn that there is one.
        :raises Forbidden: the caller lacks the privilege.
        """
        caller, recorder, account = invocation.caller, invocation.recorder, invocation.caller.role.account
        name = token if is_token_name(token) else name_token(digest_token(token))
        recorder.add_audit_facts(token=name)
        missing = RecordNotFound(account, "host_factory_token", name)
        digest = await self.store.find_digest(account, token) if is_token_name(token) else digest_token(token)
        found = None if digest is None else await self.store.read_token(digest)
        # The same is read for a token that doesn't exist: names can be guessed.
        factory = RoleName(account, "host_factory", "none") if found is None else found.factory
        if found is not None:
            recorder.add_audit_facts(factory=str(factory))
        try:
            require_privilege(await self.roles.access_facts(caller, factory.resource), "update", factory.resource)
        except RecordNotFound:
            raise missing from None
        if found is None or digest is None or not await self.store.remove_token(digest, recorder.event_batch):
            raise missing
        facts = printable_facts(role=caller.role, token=name, factory=factory)
        _log.info("{role} revoked the token {token} of {factory}", **facts)

    async def create_host(
        self,
        token: str | None,
        ensure_writable: Callable[[], Awaitable[None]],
        host_id: Callable[[], str],
        annotations: Callable[[], Mapping[str, str]],
        client_ip: str,
        recorder: Recorder,
        request: RequestKey | None = None,
    ) -> NewHost:
        """Make a host of a token's factory, or give one that it made another API key; with ``request``, once for the token.

        ``ensure_writable`` returns when this server may write.

        :raises AuthenticationRefused: the token isn't valid now, or not from this address; or there is none.
        :raises ReadOnlyStandby: nothing may be written here.
        :raises InvalidParameter: the host's id or its annotations can't be.
        :raises Forbidden: the id belongs to another.
        """
        digest, admitted = await self._require_token(token, client_ip, recorder)
        await ensure_writable()
        host = RoleName(admitted.factory.account, "host", self._check_host_id(host_id()))
        recorder.add_audit_facts(host=str(host))
        given = _check_annotations(annotations(), self.limits)
        api_key = new_api_key()
        sealed = self.vault.seal(api_key_name(host), api_key.encode("ascii"))
        own = None if request is None else request.for_caller(f"factory-token {digest.hex()}")
        repeatable = None if own is None else Once[CreatedHost](own, lambda made: self._seal_answer(own, api_key, made))
        try:
            made = await self.store.create_host(digest, host, given, sealed, recorder.event_batch, repeatable)
        except AlreadyAnswered as before:
            recorder.add_audit_facts(repeated=True)
            api_key, creation = open_answer(self.vault, before)
            return NewHost(host, api_key, self._stream_made_host(admitted.factory, host, creation))
        except RecordNotFound:
            raise _make_refusal(digest, Reason.CREDENTIALS_WRONG, client_ip, recorder) from None
        except Conflict as refusal:
            raise Forbidden(refusal.message) from None
        outcome = "was made" if made.new else "was given another API key" if made.has_key else "was left without an API key"
        facts = printable_facts(
            host=host, outcome=outcome, token=name_token(digest), factory=admitted.factory, client_ip=client_ip
        )
        _log.info("{host} {outcome} with the token {token} of {factory} from {client_ip}", **facts)
        return NewHost(host, api_key if made.has_key else None, self.resources.stream_described([str(host)]))

    def _seal_answer(self, request: RequestKey, api_key: str, made: CreatedHost) -> Sequence[Sealed]:
        return sealed_pieces(self.vault, request, [[api_key if made.has_key else None, made.creation]])

    async def _stream_made_host(self, factory: RoleName, host: RoleName, creation: int) -> AsyncIterator[Sequence[Resource]]:
        """Describe a host that a factory made before, as long as it is the factory's, and the same.

        A creation never recurs, so if the host is still the same after the read, the read was of that host.

        :raises NotFound: it is gone, or was made again.
        :raises Forbidden: the id belongs to another.
        """
        async for portion in self.resources.stream_described([str(host)]):
            try:
                await self.store.require_host(factory, host, creation)
            except Conflict as refusal:
                raise Forbidden(refusal.message) from None
            yield portion

    def _check_host_id(self, text: str) -> str:
        """Return the id of a host, if it has no reserved prefix and policy could name it."""
        if text.startswith(("/", f"{self.dialect.prefix}/")):
            raise InvalidParameter("id", f"Invalid id: {text[:200]}")
        return check_identifier(text)

    async def _require_token(self, text: str | None, client_ip: str, recorder: Recorder) -> tuple[bytes, FactoryToken]:
        """Return the token of a text, with its digest, if it is valid now and from this address."""
        if text is None:
            raise _make_refusal(None, Reason.CREDENTIALS_MISSING, client_ip, recorder)
        digest = digest_token(text)
        recorder.add_audit_facts(token=name_token(digest))
        token = await self.store.read_token(digest)
        if token is None or token.factory.kind != "host_factory":
            raise _make_refusal(digest, Reason.CREDENTIALS_WRONG, client_ip, recorder)
        recorder.add_audit_facts(factory=str(token.factory))
        if token.expires_at <= self.wall.seconds():
            raise _make_refusal(digest, Reason.TOKEN_EXPIRED, client_ip, recorder)
        if not token.admits_address(client_ip):
            raise _make_refusal(digest, Reason.ORIGIN_REFUSED, client_ip, recorder)
        return digest, token


def _require_factory(factory: ResourceName) -> None:
    if factory.kind != "host_factory":
        raise InvalidParameter("host_factory", f"Invalid resource kind: {factory.kind}")


def _parse_expiration(text: str) -> float:
    """Read an ISO 8601 date, or date and time, as seconds since the epoch; without an offset it is UTC (HF-6).

    Fractions are dropped: rounded up, the last moment of the year 9999 could not be written.
    """
    try:
        moment = datetime.fromisoformat(text)
        # A moment that is beyond the year 9999 in any zone could not be written.
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC).replace(microsecond=0).timestamp()
    except (ValueError, OverflowError):
        message = f"expiration: Input is invalid ISO8601 datetime string: {text[:100]}"
        raise InvalidParameter("expiration", message) from None


def _parse_networks(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the networks from which a token may be used, each once."""
    try:
        networks = tuple(dict.fromkeys(map(normalize_cidr, texts)))
    except ValueError as error:
        raise InvalidParameter("cidr", str(error), code="unprocessable_entity") from None
    if len(networks) > NETWORKS_MOST:
        raise InvalidParameter("cidr", f"'cidr' may name at most {NETWORKS_MOST} networks: name larger ones")
    return networks


def _check_annotations(given: Mapping[str, str], limits: RecordLimits) -> Mapping[str, str]:
    """Return annotations if they are within the limits for policy."""
    size = sum(len(text.encode("utf-8")) for annotation in given.items() for text in annotation)
    if len(given) > limits.annotations or size > limits.annotation_bytes:
        message = f"'annotations': a host may have {limits.annotations}, of {limits.annotation_bytes} bytes together"
        raise InvalidParameter("annotations", message)
    for name, value in given.items():
        if not name.strip() or len(name.encode("utf-8")) > ANNOTATION_NAME_LIMIT:
            message = f"'annotations': a name has 1 to {ANNOTATION_NAME_LIMIT} bytes"
        elif len(value.encode("utf-8")) > ANNOTATION_VALUE_LIMIT:
            message = f"'annotations': the value of {quote_text(name)} has more than {ANNOTATION_VALUE_LIMIT} bytes"
        else:
            continue
        raise InvalidParameter("annotations", message)
    return given


def _make_refusal(digest: bytes | None, reason: Reason, client_ip: str, recorder: Recorder) -> AuthenticationRefused:
    token = "-" if digest is None else name_token(digest)
    request = "-" if recorder.event_batch is None else recorder.event_batch.origin.request_id
    facts = printable_facts(token=token, client_ip=client_ip, reason=reason.value, id=request)
    _log.info("Host factory token {token} refused, from {client_ip}: {reason} ({id})", **facts)
    return AuthenticationRefused(reason)

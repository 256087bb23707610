"""Host factories: tokens, and the hosts that machines make of themselves with them (wire facts, core 5).

A token is a bearer secret, so nothing tells it again: the log and answers name one by the beginning of its SHA-256.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import attrs
from twisted.logger import Logger

from svc.audit.refusals import printable
from svc.crypto.jose import shown
from svc.crypto.vault import Vault, api_key_name
from svc.model.authorization import demand, see
from svc.model.clocks import WallClock
from svc.model.credentials import new_api_key
from svc.model.dialect import Dialect
from svc.model.errors import AuthenticationRefused, Conflict, Forbidden, InvalidName, InvalidParameter, NotFound
from svc.model.host_factories import FactoryToken, IHostFactories, called, digest_of
from svc.model.limits import RECORD_LIMITS, RecordLimits
from svc.model.names import ResourceName, RoleName, identifier
from svc.model.ports import IResources, IRoles
from svc.model.query_results import Caller
from svc.model.reasons import Reason
from svc.policy.ranges import cidr
from svc.policy.resolve import ANNOTATION_NAME_LIMIT, ANNOTATION_VALUE_LIMIT
from svc.web.http.parameters import Parameters
from svc.web.http.response import Response
from svc.web.http.routing import PUBLIC, REQUIRED, Call, Routes
from svc.web.routes import auditing
from svc.web.routes.description import described, expiration

#: The most tokens that one request makes.
COUNT_MOST: Final = 1000

#: The most networks that tokens are bound to.
NETWORKS_MOST: Final = 100

#: How a token stands in the ``Authorization`` header, as it is (clients R14; rulings 2.8).
_AUTHORIZATION: Final = re.compile(r'Token token=("?)([^"\s]+)\1')

_COUNT: Final = re.compile("[1-9][0-9]{0,3}", re.ASCII)

_log = Logger()


@attrs.frozen
class HostFactories:
    """The routes of host factories."""

    routes = Routes()

    store: IHostFactories
    roles: IRoles
    resources: IResources
    vault: Vault
    dialect: Dialect
    wall: WallClock
    limits: RecordLimits = RECORD_LIMITS

    @routes.add("POST", "/host_factory_tokens", caller=REQUIRED, audit=auditing.factory_tokens_made)
    async def create_tokens(self, call: Call) -> Response:
        """Make ``count`` tokens that are good until ``expiration``, from the networks ``cidr``; takes ``execute``."""
        parameters, caller = call.parameters, call.caller.role
        named = parameters.text("host_factory")
        call.tell(factory=named or "-")
        factory = await self._factory(call.caller, named)
        expiration_text = parameters.text("expiration")
        if expiration_text is None:
            raise InvalidParameter("expiration", "expiration")
        count = _count(parameters.text("count"))
        call.tell(count=count)
        expires_at = _instant(expiration_text)
        if expires_at <= self.wall.seconds():
            message = f"Value for parameter expiration must be in the future: {expiration_text[:100]}"
            raise InvalidParameter("expiration", message)
        token = FactoryToken(factory.role, expires_at, _networks(parameters))
        texts = [new_api_key() for _ in range(count)]
        await self.store.add_tokens([digest_of(text) for text in texts], token, call.trail)
        _log.info(
            "{role} made {count} tokens of {factory}, good until {expiration}: {tokens}",
            role=printable(str(caller)),
            count=count,
            factory=printable(str(factory)),
            expiration=expiration(expires_at),
            tokens=", ".join(called(digest_of(text)) for text in texts[:10]),
        )
        told = {"expiration": expiration(expires_at), "cidr": list(token.networks)}
        return Response.json([{**told, "token": text} for text in texts])

    @routes.add("DELETE", "/host_factory_tokens/<token>", caller=REQUIRED, audit=auditing.factory_token_revoked)
    async def revoke_token(self, call: Call, token: str) -> Response:
        """Remove a token; takes ``update`` on its factory. Who doesn't see the factory doesn't learn that there is one."""
        digest, caller = digest_of(token), call.caller.role
        call.tell(token=called(digest))
        missing = NotFound(caller.account, "host_factory_token", called(digest))
        found = await self.store.token(digest)
        if found is None:
            raise missing
        call.tell(factory=str(found.factory))
        try:
            demand(await self.roles.standing(call.caller, found.factory.resource), "update", found.factory.resource)
        except NotFound:
            raise missing from None
        if not await self.store.remove_token(digest, call.trail):
            raise missing
        _log.info(
            "{role} revoked the token {token} of {factory}",
            role=printable(str(caller)),
            token=called(digest),
            factory=printable(str(found.factory)),
        )
        return Response.empty()

    @routes.add("POST", "/host_factories/hosts", caller=PUBLIC, audit=auditing.factory_host_made)
    async def create_host(self, call: Call) -> Response:
        """Make the host ``id`` of the token's factory, with ``annotations``, or give it another API key."""
        digest, token = await self._admitted(call)
        await call.demand_primary()
        parameters = call.parameters
        host = RoleName(token.factory.account, "host", self._host_id(parameters.text("id")))
        call.tell(host=str(host))
        annotations = _annotations(parameters.keyed("annotations"), self.limits)
        api_key = new_api_key()
        try:
            made = await self.store.create_host(
                digest, host, annotations, self.vault.seal(api_key_name(host), api_key.encode("ascii")), call.trail
            )
        except NotFound:
            raise _refused(call, digest, Reason.CREDENTIALS_WRONG) from None
        except Conflict as refusal:
            raise Forbidden(refusal.message) from None
        _log.info(
            "{host} {outcome} with the token {token} of {factory} from {client_ip}",
            host=printable(str(host)),
            outcome="was made" if made else "was given another API key",
            token=called(digest),
            factory=printable(str(token.factory)),
            client_ip=printable(call.client_ip),
        )
        pieces = described(self.resources.described([str(host)]), {"api_key": api_key})
        found = await Response.json_pieces(pieces, status=201)
        if found.pieces is None and not found.body:
            # It was deleted in between.
            raise NotFound.of(host)
        return found

    async def _factory(self, caller: Caller, text: str | None) -> ResourceName:
        """The factory that a request names, on which the caller has ``execute``.

        In the order of the wire facts: who may not see it is told neither its kind nor what else is wrong.
        """
        if text is None:
            raise InvalidParameter("host_factory", "host_factory")
        try:
            name = ResourceName.parse(text)
        except InvalidName as refusal:
            raise InvalidParameter("host_factory", f"'host_factory': {refusal.message}") from None
        standing = await self.roles.standing(caller, name)
        see(standing, name)
        if name.kind != "host_factory":
            raise InvalidParameter("host_factory", f"Invalid resource kind: {name.kind}")
        demand(standing, "execute", name)
        return name

    def _host_id(self, text: str | None) -> str:
        """The id of a host that a factory may make: none of the reserved prefix, nor one that policy couldn't name."""
        if text is None:
            raise InvalidParameter("id", "id", code="parameter_missing")
        if text.startswith(("/", f"{self.dialect.prefix}/")):
            raise InvalidParameter("id", f"Invalid id: {text[:200]}")
        return identifier(text)

    async def _admitted(self, call: Call) -> tuple[bytes, FactoryToken]:
        """The token that the request shows, when it is good now and from where the request comes.

        :raises AuthenticationRefused: it isn't, or there is none.
        """
        matched = _AUTHORIZATION.fullmatch(call.header("Authorization") or "")
        if matched is None:
            raise _refused(call, None, Reason.CREDENTIALS_MISSING)
        digest = digest_of(matched[2])
        call.tell(token=called(digest))
        token = await self.store.token(digest)
        if token is None or token.factory.kind != "host_factory":
            raise _refused(call, digest, Reason.CREDENTIALS_WRONG)
        call.tell(factory=str(token.factory))
        if token.expires_at <= self.wall.seconds():
            raise _refused(call, digest, Reason.TOKEN_EXPIRED)
        if not token.admits(call.client_ip):
            raise _refused(call, digest, Reason.ORIGIN_REFUSED)
        return digest, token


def _count(text: str | None) -> int:
    """How many tokens to make: one, unless the request says otherwise."""
    if text is None:
        return 1
    if not _COUNT.fullmatch(text) or int(text) > COUNT_MOST:
        message = f"Invalid value for parameter 'count': {text[:100]}; it is a number from 1 to {COUNT_MOST}"
        raise InvalidParameter("count", message)
    return int(text)


def _instant(text: str) -> float:
    """Read an ISO 8601 date, or date and time, as seconds since the epoch; without an offset it is UTC (clients R11).

    Fractions are dropped, as they are where it is told: rounded up, the last moment of the year 9999 could not be.
    """
    try:
        moment = datetime.fromisoformat(text)
        # What lies beyond the year 9999 somewhere could not be told.
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC).replace(microsecond=0).timestamp()
    except (ValueError, OverflowError):
        message = f"Input is invalid ISO8601 datetime string: {text[:100]}"
        raise InvalidParameter("expiration", f"expiration: {message}") from None


def _networks(parameters: Parameters) -> tuple[str, ...]:
    """The networks from which a token may be used, each once."""
    try:
        networks = tuple(dict.fromkeys(cidr(text) for text in parameters.texts("cidr")))
    except ValueError as error:
        raise InvalidParameter("cidr", str(error), code="unprocessable_entity") from None
    if len(networks) > NETWORKS_MOST:
        raise InvalidParameter("cidr", f"'cidr' may name at most {NETWORKS_MOST} networks: name larger ones")
    return networks


def _annotations(given: Mapping[str, str], limits: RecordLimits) -> Mapping[str, str]:
    """Annotations within the bounds that policy keeps."""
    size = sum(len(text.encode("utf-8")) for annotation in given.items() for text in annotation)
    if len(given) > limits.annotations or size > limits.annotation_bytes:
        message = f"'annotations': a host may have {limits.annotations}, of {limits.annotation_bytes} bytes together"
        raise InvalidParameter("annotations", message)
    for name, value in given.items():
        if not name.strip() or len(name.encode("utf-8")) > ANNOTATION_NAME_LIMIT:
            message = f"'annotations': a name has 1 to {ANNOTATION_NAME_LIMIT} bytes"
        elif len(value.encode("utf-8")) > ANNOTATION_VALUE_LIMIT:
            message = f"'annotations': the value of {shown(name)} has more than {ANNOTATION_VALUE_LIMIT} bytes"
        else:
            continue
        raise InvalidParameter("annotations", message)
    return given


def _refused(call: Call, digest: bytes | None, reason: Reason) -> AuthenticationRefused:
    _log.info(
        "Host factory token {token} refused, from {client_ip}: {reason} ({id})",
        token="-" if digest is None else called(digest),
        client_ip=printable(call.client_ip),
        reason=reason.value,
        id=call.request_id,
    )
    return AuthenticationRefused(reason)

"""Host factories over HTTP: tokens, and the hosts made with them (HF-3 to HF-24)."""

from __future__ import annotations

import re
from typing import Final

import attrs

from svc.model.clocks import iso_seconds
from svc.model.errors import (
    AuthenticationRefused,
    BadRequest,
    Forbidden,
    InvalidName,
    InvalidParameter,
    RecordNotFound,
    WrongDataKey,
)
from svc.model.events import Event
from svc.model.names import RESOURCE_KINDS, ResourceName
from svc.services.host_factories import COUNT_MOST, HostFactoryService, TokensRequest
from svc.web.http.declarations import PARAMETER_MEDIA_TYPES, Answer, Body, Parameter, ParameterSource
from svc.web.http.messages import Response
from svc.web.http.routing import PUBLIC, REQUIRED, Call, Routes
from svc.web.http.shapes import TEXT, array_shape, integer_shape, object_shape
from svc.web.routes.idempotency import IDEMPOTENCY_ERRORS, IDEMPOTENCY_KEY, unless_repeated
from svc.web.routes.listing import OFFSET
from svc.web.routes.resource_json import RESOURCE_SHAPE, TOKEN_SHAPE, describe_resources, token_json

#: How a token stands in the ``Authorization`` header, as it is (HF-11).
_AUTHORIZATION: Final = re.compile(r'Token token=("?)([^"\s]+)\1')

#: The most tokens that one list has, and how many it has without ``limit`` (HF-28).
MAX_LIMIT: Final = 1000

_COUNT: Final = re.compile("[1-9][0-9]{0,3}", re.ASCII)


def _read_token(source: ParameterSource) -> str | None:
    matched = _AUTHORIZATION.fullmatch(source.header("Authorization") or "")
    return None if matched is None else matched[2]


def _required_parameter(name: str, code: str, description: str) -> Parameter[str]:
    def read(source: ParameterSource) -> str:
        text = source.parameters.text(name)
        if text is None:
            raise InvalidParameter(name, name, code=code)
        return text

    return Parameter(name, read, TEXT, description, required=True, late=True)


def _read_listed_factory(source: ParameterSource) -> ResourceName:
    return _parse_factory(source.query.text("host_factory"))


def _read_limit(source: ParameterSource) -> int:
    limit = source.query.positive_integer("limit")
    if limit is not None and limit > MAX_LIMIT:
        raise InvalidParameter("limit", f"'limit' must not exceed {MAX_LIMIT}", code="unprocessable_entity")
    return limit or MAX_LIMIT


def _read_count(source: ParameterSource) -> int:
    """Read how many tokens to make: one, unless the request says otherwise."""
    text = source.parameters.text("count")
    if text is None:
        return 1
    if not _COUNT.fullmatch(text) or int(text) > COUNT_MOST:
        message = f"Invalid value for parameter 'count': {text[:100]}; it is a number from 1 to {COUNT_MOST}"
        raise InvalidParameter("count", message)
    return int(text)


TOKEN: Final = Parameter(
    "Authorization",
    _read_token,
    TEXT,
    "a token of a factory: Token token=…",
    field="token",
    required=True,
    scheme="factory",
)
FACTORY: Final = Parameter.body_text("host_factory", "the full id of a factory", required=True)
EXPIRATION: Final = _required_parameter("expiration", "argument_error", "until when tokens are good, in ISO 8601")
COUNT: Final = Parameter(
    "count", _read_count, integer_shape(1, COUNT_MOST), "how many tokens to make; 1 without it", late=True
)
NETWORKS: Final = Parameter.body_texts("cidr", "networks from which tokens are good; everywhere without any", late=True)
HOST_ID: Final = _required_parameter("id", "parameter_missing", "the id of the host")
ANNOTATIONS: Final = Parameter.body_texts_by_key("annotations", "annotations of a new host", late=True)

LISTED_FACTORY: Final = Parameter("host_factory", _read_listed_factory, TEXT, "the full id of a factory", required=True)
PAGE_LIMIT: Final = Parameter("limit", _read_limit, integer_shape(1, MAX_LIMIT), "the most tokens that are listed")

_NEW_HOST: Final = attrs.evolve(RESOURCE_SHAPE, members={**RESOURCE_SHAPE.members, "api_key": TEXT.or_null()})
_NEW_TOKEN: Final = object_shape({"expiration": TEXT, "cidr": array_shape(TEXT), "token": TEXT})


def factory_tokens_made(call: Call) -> list[Event]:
    """Tokens of a host factory were made."""
    factory, count = call.audit_facts.get("factory", "-"), call.audit_facts.get("count", "-")
    subject = (("resource", factory), ("count", str(count)))
    return [Event("host-factory", "create-tokens", subject, f"made tokens of {factory}", f"make tokens of {factory}")]


def factory_tokens_listed(call: Call) -> list[Event]:
    """Tokens of a host factory were listed."""
    factory = call.audit_facts.get("factory", "-")
    subject = (("resource", factory),)
    return [Event("host-factory", "list-tokens", subject, f"listed tokens of {factory}", f"list tokens of {factory}")]


def factory_token_revoked(call: Call) -> list[Event]:
    """A token of a host factory was revoked."""
    factory, token = call.audit_facts.get("factory", "-"), call.audit_facts.get("token", "-")
    subject, words = (("resource", factory), ("token", token)), f"the token {token} of {factory}"
    return [Event("host-factory", "revoke-token", subject, f"revoked {words}", f"revoke {words}")]


def factory_host_made(call: Call) -> list[Event]:
    """A host was made with a host factory's token, or given another API key."""
    facts = call.audit_facts
    host, factory, token = facts.get("host", "-"), facts.get("factory", "-"), facts.get("token", "-")
    subject, words = (("role", host), ("resource", factory), ("token", token)), f"with the token {token} of {factory}"
    did = f"was made or given another API key {words}"
    return [Event("host-factory", "create-host", subject, did, f"be made {words}", user=host)]


@attrs.frozen
class HostFactories:
    """The routes of host factories."""

    routes = Routes()

    factories: HostFactoryService

    @routes.add(
        "POST",
        "/host_factory_tokens",
        caller=REQUIRED,
        headers=(IDEMPOTENCY_KEY,),
        body=Body("which tokens to make", PARAMETER_MEDIA_TYPES, fields=(FACTORY, EXPIRATION, COUNT, NETWORKS)),
        answers=(Answer(200, "the tokens, which are never returned again", array_shape(_NEW_TOKEN)),),
        errors=(*IDEMPOTENCY_ERRORS, BadRequest, RecordNotFound, Forbidden, WrongDataKey),
        privileges="execute on the factory",
        audit=unless_repeated(factory_tokens_made),
    )
    async def create_tokens(self, call: Call, *, host_factory: str | None, key: str | None) -> Response:
        """Make ``count`` tokens that are good until ``expiration``, from the networks ``cidr``."""
        call.add_audit_facts(factory=host_factory or "-")
        made = await self.factories.create_tokens(
            call.invocation,
            _parse_factory(host_factory),
            lambda: TokensRequest(
                expiration=call.read_late(EXPIRATION), count=call.read_late(COUNT), networks=call.read_late(NETWORKS)
            ),
            call.request_key(key),
        )
        shared = {"expiration": iso_seconds(made.token.expires_at), "cidr": list(made.token.networks)}
        return Response.json([{**shared, "token": text} for text in made.texts])

    @routes.add(
        "GET",
        "/host_factory_tokens",
        caller=REQUIRED,
        query=(LISTED_FACTORY, PAGE_LIMIT, OFFSET),
        answers=(
            Answer(200, "its tokens without their texts, those that expire first before others", array_shape(TOKEN_SHAPE)),
        ),
        errors=(RecordNotFound, Forbidden),
        privileges="sees the factory",
        audit=factory_tokens_listed,
    )
    async def list_tokens(self, call: Call, *, host_factory: ResourceName, limit: int, offset: int | None) -> Response:
        """Return the tokens of a factory, by the ids by which they can be revoked."""
        call.add_audit_facts(factory=str(host_factory))
        found = await self.factories.list_tokens(call.invocation, host_factory, limit, offset or 0)
        return Response.json(list(map(token_json, found)))

    @routes.add(
        "DELETE",
        "/host_factory_tokens/<token>",
        caller=REQUIRED,
        answers=(Answer(204, "the token is gone"),),
        errors=(RecordNotFound, Forbidden),
        privileges="update on the token's factory",
        audit=factory_token_revoked,
    )
    async def revoke_token(self, call: Call, token: str) -> Response:
        """Remove a token, given by its text or its id."""
        await self.factories.revoke_token(call.invocation, token)
        return Response.empty()

    @routes.add(
        "POST",
        "/host_factories/hosts",
        caller=PUBLIC,
        headers=(TOKEN, IDEMPOTENCY_KEY),
        body=Body("which host to make", PARAMETER_MEDIA_TYPES, fields=(HOST_ID, ANNOTATIONS)),
        answers=(Answer(201, "the host as a resource, with its API key", _NEW_HOST),),
        errors=(
            *IDEMPOTENCY_ERRORS,
            AuthenticationRefused,
            BadRequest,
            InvalidName,
            RecordNotFound,
            Forbidden,
            WrongDataKey,
        ),
        privileges="none: a token of the factory",
        audit=unless_repeated(factory_host_made),
    )
    async def create_host(self, call: Call, *, token: str | None, key: str | None) -> Response:
        """Make the host ``id`` of the token's factory, with ``annotations``, or give it another API key."""
        call.add_audit_facts(authenticator="host-factory")
        made = await self.factories.create_host(
            token,
            call.require_primary,
            lambda: call.read_late(HOST_ID),
            lambda: call.read_late(ANNOTATIONS),
            call.client_ip,
            call,
            call.request_key(key),
        )
        found = await Response.json_pieces(describe_resources(made.described, {"api_key": made.api_key}), status=201)
        if found.pieces is None and not found.body:
            # It was deleted in between.
            raise RecordNotFound.for_name(made.role)
        return found


def _parse_factory(text: str | None) -> ResourceName:
    if text is None:
        raise InvalidParameter("host_factory", "host_factory")
    try:
        name = ResourceName.parse(text)
    except InvalidName as refusal:
        raise InvalidParameter("host_factory", f"'host_factory': {refusal.message}") from None
    if name.kind not in RESOURCE_KINDS:
        raise InvalidParameter("host_factory", f"'host_factory': a {name.kind} makes no hosts")
    return name

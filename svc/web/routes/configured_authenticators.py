"""Authenticators over HTTP in the newer interface: made, listed, shown, switched and deleted (NEWER-30 to NEWER-37)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Final

import attrs

from svc.model.errors import AuthenticatorNotFound, BadRequest, InvalidParameter, Unprocessable, WrongDataKey
from svc.model.names import RoleName
from svc.model.strict_json import Malformed, parse_json_object
from svc.services.authenticator_types import missing_parameter, parse_data, refuse_unknown, wrong_type
from svc.services.configured_authenticators import (
    LISTED_MOST,
    ConfiguredAuthenticator,
    ConfiguredAuthenticatorService,
    NewAuthenticator,
    unsupported_type,
)
from svc.services.login import AccessTokenService
from svc.web.http.declarations import WHOLE_BODY, Answer, Parameter, ParameterSource
from svc.web.http.messages import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import ANY, BOOLEAN, INTEGER, TEXT, array_shape, mapping_shape, object_shape, string_shape
from svc.web.http.v2 import HEAD, document_body, require_media_type, reshape_refusal, v2_response_with_floats, v2_shape
from svc.web.routes.v2_requests import (
    CHANGE_ERRORS,
    DEFAULT_PAGE,
    ERRORS,
    HEADERS,
    authenticator_created,
    authenticator_deleted,
    authenticator_read,
    authenticator_switched,
    authenticators_listed,
)

_OWNERS: Final = ("user", "host", "group")
_OWNER: Final = object_shape({"kind": TEXT, "id": TEXT})
_AUTHENTICATOR: Final = object_shape(
    {"type": TEXT, "branch": TEXT, "name": TEXT, "enabled": BOOLEAN, "owner": _OWNER},
    {"data": mapping_shape(ANY), "annotations": mapping_shape(TEXT)},
)
_LIST: Final = object_shape({"authenticators": array_shape(_AUTHENTICATOR), "count": INTEGER})

_NAME: Final = re.compile("[A-Za-z0-9._:-]+")
_ID: Final = re.compile("[A-Za-z0-9@._/-]+")
_KEY: Final = re.compile("[A-Za-z0-9_/-]+")
_VALUE: Final = re.compile("[^<>'\x00\ud800-\udfff]+")


def _read_document(source: ParameterSource) -> Mapping[str, object]:
    if not source.body.strip():
        raise BadRequest("Request body is empty")
    try:
        return parse_json_object(source.body)
    except Malformed:
        raise BadRequest("Request JSON is malformed") from None


def _read_limit(source: ParameterSource) -> int | None:
    """Read ``limit``, whose refusal has another code than that of other lists."""
    try:
        return source.query.positive_integer("limit")
    except InvalidParameter as refusal:
        raise InvalidParameter("limit", refusal.message) from None


def _read_offset(source: ParameterSource) -> int | None:
    try:
        return source.query.natural("offset")
    except InvalidParameter as refusal:
        raise InvalidParameter("offset", refusal.message) from None


_NEW_SHAPE: Final = object_shape(
    {"type": TEXT, "name": TEXT},
    {
        "enabled": BOOLEAN,
        "owner": object_shape({"kind": string_shape(*_OWNERS), "id": TEXT}),
        "data": mapping_shape(ANY),
        "annotations": mapping_shape(TEXT),
    },
)
NEW: Final = Parameter(WHOLE_BODY, _read_document, _NEW_SHAPE, "the object", late=True, required=True)
SWITCH: Final = Parameter(
    WHOLE_BODY, _read_document, object_shape({"enabled": BOOLEAN}), "the object", late=True, required=True
)
TYPE: Final = Parameter.text("type", "only authenticators of this type", field="kind", late=True)
LIMIT: Final = Parameter("limit", _read_limit, INTEGER, f"how many the page has at most, up to {LISTED_MOST}", late=True)
OFFSET: Final = Parameter("offset", _read_offset, INTEGER, "how many before the page are left out", late=True)

_AUTHENTICATORS_PATH: Final = "/authenticators/<flat:account>"


@attrs.frozen
class ConfiguredAuthenticators:
    """The routes of authenticators with their settings."""

    routes = Routes()
    _add_route = partial(routes.add, caller=REQUIRED, headers=HEADERS, reshape=reshape_refusal)
    _authenticator_route = partial(_add_route, path=f"{_AUTHENTICATORS_PATH}/<flat:kind>/<optional:name>")

    authenticators: ConfiguredAuthenticatorService
    tokens: AccessTokenService

    @_add_route(
        "GET",
        _AUTHENTICATORS_PATH,
        query=(TYPE, LIMIT, OFFSET),
        answers=(Answer(200, "authenticators, ordered by id, and how many they are without a page", v2_shape(_LIST)),),
        errors=(*ERRORS, WrongDataKey),
        privileges="none; authenticators are those whose webservices the caller sees; values take execute",
        audit=authenticators_listed,
    )
    async def list(self, call: Call, account: str) -> Response:
        """List authenticators."""
        accept = await self._begin_request(call)
        kind, limit, offset = call.read_late(TYPE), call.read_late(LIMIT), call.read_late(OFFSET)
        if limit is None:
            limit = LISTED_MOST if offset is None else DEFAULT_PAGE
        found = await self.authenticators.read_page(call.invocation, account, kind, min(limit, LISTED_MOST), offset or 0)
        items = [_authenticator_json(each) for each in found.authenticators]
        return v2_response_with_floats(accept, {"authenticators": items, "count": found.count})

    @_add_route(
        "POST",
        _AUTHENTICATORS_PATH,
        body=document_body("the authenticator", NEW),
        answers=(Answer(201, "the authenticator is made", v2_shape(_AUTHENTICATOR)),),
        errors=(*CHANGE_ERRORS, AuthenticatorNotFound, WrongDataKey),
        privileges="create on the policy of the type",
        audit=authenticator_created,
    )
    async def create(self, call: Call, account: str) -> Response:
        """Make an authenticator with all that it consists of."""
        accept = await self._begin_request(call)
        new = self._parse_authenticator(account, call.read_late(NEW))
        call.add_audit_facts(kind=new.kind, name=new.name)
        return v2_response_with_floats(
            accept, _authenticator_json(await self.authenticators.create_authenticator(call.invocation, new)), 201
        )

    @_authenticator_route(
        "GET",
        answers=(Answer(200, "the authenticator", v2_shape(_AUTHENTICATOR)),),
        errors=(*ERRORS, AuthenticatorNotFound, WrongDataKey),
        privileges="sees the webservice; values take execute",
        audit=authenticator_read,
    )
    async def show(self, call: Call, account: str, kind: str, name: str | None) -> Response:
        """Return an authenticator; an account has one of some types, whose name may be left out."""
        accept = await self._begin_request(call)
        return v2_response_with_floats(
            accept,
            _authenticator_json(await self.authenticators.read_authenticator(call.invocation, account, kind, name or "")),
        )

    @_authenticator_route(
        "PATCH",
        body=document_body("on or off", SWITCH),
        answers=(Answer(200, "the authenticator as it is now", v2_shape(_AUTHENTICATOR)),),
        errors=(*CHANGE_ERRORS, AuthenticatorNotFound, WrongDataKey),
        privileges="update on the webservice",
        audit=authenticator_switched,
    )
    async def switch(self, call: Call, account: str, kind: str, name: str | None) -> Response:
        """Switch an authenticator on or off."""
        accept = await self._begin_request(call)
        given = call.read_late(SWITCH)
        if "enabled" not in given:
            raise missing_parameter("enabled")
        if others := [other for other in given if other != "enabled"]:
            raise Unprocessable(f"The following parameters were not expected: '{', '.join(others)[:500]}'")
        on = given["enabled"]
        if not isinstance(on, bool):
            raise Unprocessable("The enabled parameter must be of type=boolean")
        return v2_response_with_floats(
            accept,
            _authenticator_json(
                await self.authenticators.switch_authenticator(call.invocation, account, kind, name or "", on)
            ),
        )

    @_authenticator_route(
        "DELETE",
        answers=(Answer(204, "the authenticator and all that belongs to it is gone"),),
        errors=(*CHANGE_ERRORS, AuthenticatorNotFound),
        privileges="delete on the authenticator's policy",
        audit=authenticator_deleted,
    )
    async def delete(self, call: Call, account: str, kind: str, name: str | None) -> Response:
        """Delete an authenticator with all that belongs to it."""
        await self._begin_request(call)
        await self.authenticators.delete_authenticator(call.invocation, account, kind, name or "")
        return Response.empty()

    async def _begin_request(self, call: Call) -> str:
        """Check what comes first of a request; other parameters than the known ones are ignored here."""
        await self.tokens.check_caller(call.caller)
        return require_media_type(call.read_late(HEAD))

    def _parse_authenticator(self, account: str, given: Mapping[str, object]) -> NewAuthenticator:
        """Return what a body asks for (NEWER-33)."""
        kind, name = _text_member(given, "type", None, 60), _text_member(given, "name", _NAME, 60)
        enabled = given.get("enabled", True)
        if not isinstance(enabled, bool):
            raise wrong_type("enabled", "true, false")
        owner, annotations = _object_member(given, "owner"), _object_member(given, "annotations") or {}
        _object_member(given, "data")
        refuse_unknown([other for other in given if other not in _NEW_SHAPE.members])
        role = None if owner is None else _parse_owner(account, owner)
        checked = {
            _check_annotation("annotations", key, _KEY, 500): _check_annotation(key, value, _VALUE, 120)
            for key, value in annotations.items()
        }
        place = self.authenticators.find_location(account, kind, name)
        if place is None:
            raise unsupported_type(kind)
        return NewAuthenticator(account, kind, name, enabled, role, parse_data(place.kind, given.get("data")), checked)


def _authenticator_json(found: ConfiguredAuthenticator) -> dict[str, object]:
    item: dict[str, object] = {
        "type": found.kind.name,
        "branch": found.branch,
        "name": found.name,
        "enabled": found.enabled,
        "owner": {"id": found.owner.identifier, "kind": found.owner.kind},
    }
    return (
        item
        | ({"data": found.data} if found.data else {})
        | ({"annotations": found.annotations} if found.annotations else {})
    )


def _object_member(given: Mapping[str, object], name: str) -> Mapping[str, object] | None:
    value = given.get(name)
    if name in given and not isinstance(value, dict):
        raise wrong_type(name, "object")
    return value if isinstance(value, dict) else None


def _text_member(given: Mapping[str, object], name: str, pattern: re.Pattern[str] | None, most: int) -> str:
    value = given.get(name)
    if value in (None, ""):
        raise missing_parameter(name)
    return _check_text(name, value, pattern, most)


def _check_text(name: str, value: object, pattern: re.Pattern[str] | None, most: int) -> str:
    if not isinstance(value, str):
        raise wrong_type(name, "string")
    if len(value) > most:
        raise Unprocessable(f"'{name[:100]}' parameter length exceeded. Limit the length to {most} characters")
    if pattern is not None and not pattern.fullmatch(value):
        raise Unprocessable(f"Invalid '{name[:100]}' parameter. It has characters that are not allowed.")
    return value


def _check_annotation(name: str, text_: object, pattern: re.Pattern[str], most: int) -> str:
    if text_ == "":
        raise missing_parameter(name)
    return _check_text(name, text_, pattern, most)


def _parse_owner(account: str, owner: Mapping[str, object]) -> RoleName:
    ident, kind = _text_member(owner, "id", _ID, 500), _text_member(owner, "kind", None, 60)
    refuse_unknown([other for other in owner if other not in {"id", "kind"}])
    if kind not in _OWNERS:
        raise Unprocessable(f"Invalid 'kind' parameter. It is one of {', '.join(_OWNERS)}.")
    return RoleName.from_parts(account, kind, ident.removeprefix("/") or ident)

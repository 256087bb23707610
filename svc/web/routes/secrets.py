"""Secrets over HTTP: the values of variables, set and read (SEC-1 to SEC-20)."""

from __future__ import annotations

import functools
import re
from typing import Final

import attrs

from svc.model.errors import Forbidden, InvalidParameter, NoValue, PreconditionFailed, RecordNotFound, WrongDataKey
from svc.model.events import Event
from svc.model.names import ResourceName
from svc.services.secrets import SecretService
from svc.web.http.declarations import NO_BODY, Answer, Body, Parameter, PathName
from svc.web.http.messages import Response
from svc.web.http.preconditions import IF_MATCH, IF_NONE_MATCH, EntityTags, Preconditions, etag_header
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import raw_shape

#: The syntax of a content type (RFC 9110 8.3.1): policy may hold any text, and browsers interpret any text.
_TOKEN: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_TYPE: Final = re.compile(rf'{_TOKEN}/{_TOKEN}(?:[ \t]*;[ \t]*{_TOKEN}=(?:{_TOKEN}|"[ !\x23-\x5b\x5d-\x7e]*"))*')
_TYPE_LIMIT: Final = 255

#: The content type of a value about which policy says none.
_UNKNOWN_TYPE: Final = "application/octet-stream"

_VARIABLE: Final = "/secrets/<flat:account>/variable/<tail:identifier>"

#: Parsed names are cached, this many: the same variables are read again and again.
_NAME: Final = PathName("variable", functools.lru_cache(1024)(ResourceName.from_parts), "variable")

VERSION: Final = Parameter.integer("version", "the number of the version that is read, instead of the newest")


def secret_fetched(call: Call) -> list[Event]:
    """The value of a variable was read."""
    account, identifier = call.values["account"], call.values["identifier"]
    return [value_fetched(f"{account}:variable:{identifier}", call.asked_value("version"))]


def value_fetched(name: str, version: str | None, user: str | None = None, reason: str | None = None) -> Event:
    """A value of a resource was read; of many at once one may have failed for a ``reason``."""
    if version is None:
        did, does = f"fetched {name}", f"fetch {name}"
        return Event("fetch", "fetch", (("resource", name),), did, does, user, reason=reason)
    words = f"version {version} of {name}"
    return Event("fetch", "fetch", (("resource", name), ("version", version)), f"fetched {words}", f"fetch {words}")


def secret_updated(call: Call) -> list[Event]:
    """The value of a variable was set."""
    name = call.path_full_id("variable")
    return [Event("update", "update", (("resource", name),), f"updated {name}", f"update {name}")]


def expirations_cleared(call: Call) -> list[Event]:
    """The values of a variable were to end no more; without its flag there is no such route."""
    name = call.path_full_id(call.values.get("kind", "variable"))
    words = f"the expiration of {name}"
    event = Event("expiration", "clear", (("resource", name),), f"cleared {words}", f"clear {words}")
    return [event] if call.asked_flag("expirations") else []


def rotation_requested(call: Call) -> list[Event]:
    """A variable was to be rotated soon."""
    name = call.path_full_id("variable")
    did, does = f"requested the rotation of {name}", f"request the rotation of {name}"
    return [Event("expiration", "request-rotation", (("resource", name),), did, does)]


@attrs.frozen
class Secrets:
    """The routes of secrets."""

    routes = Routes()

    secrets: SecretService

    @routes.add(
        "GET",
        _VARIABLE,
        name=_NAME,
        caller=REQUIRED,
        query=(VERSION,),
        headers=(IF_MATCH, IF_NONE_MATCH),
        answers=(
            Answer(
                200, "the value, under the content type of the variable", raw_shape("*/*"), ("ETag", "Content-Disposition")
            ),
            Answer(304, "the client has the value", None, ("ETag",)),
        ),
        errors=(Forbidden, NoValue, PreconditionFailed, WrongDataKey),
        privileges="execute on the variable",
        serves_stale=True,
        audit=secret_fetched,
    )
    async def read(
        self,
        call: Call,
        variable: ResourceName,
        *,
        version: int | None,
        match: EntityTags | None,
        none_match: EntityTags | None,
    ) -> Response:
        """Return a value: the newest, or the one of a version."""
        known = None if match is none_match is None else Preconditions(match, none_match).is_unmodified
        secret = await self.secrets.read_value(call.invocation, variable, version, known)
        if secret.value is None:
            return Response.empty(304, etag_header(secret.tag))
        headers = (("Content-Disposition", "attachment"), ("ETag", secret.tag))
        content_type = _UNKNOWN_TYPE if secret.mime_type is None else _content_type(secret.mime_type)
        return Response(200, secret.value, content_type, headers)

    @routes.add(
        "POST",
        _VARIABLE,
        name=_NAME,
        caller=REQUIRED,
        headers=(IF_MATCH, IF_NONE_MATCH),
        body=Body("the value"),
        answers=(Answer(201, "the value is set, or was the same", None, ("ETag",)),),
        errors=(Forbidden, RecordNotFound, PreconditionFailed),
        privileges="update on the variable",
        audit=secret_updated,
    )
    async def write(
        self, call: Call, variable: ResourceName, *, match: EntityTags | None, none_match: EntityTags | None
    ) -> Response:
        """Set the value."""
        tag = await self.secrets.write_value(
            call.invocation, variable, call.body, Preconditions(match, none_match).check_write
        )
        return Response.empty(201, etag_header(tag))

    @routes.add(
        "POST",
        _VARIABLE,
        when="expirations",
        name=_NAME,
        caller=REQUIRED,
        body=NO_BODY,
        answers=(Answer(201, "no value expires any more"),),
        errors=(Forbidden, RecordNotFound),
        privileges="update on the variable",
        audit=expirations_cleared,
    )
    async def clear_expirations(self, call: Call, variable: ResourceName) -> Response:
        """Clear the expiration of all values, and rotate soon what is rotated."""
        await self.secrets.clear_expirations(call.invocation, variable)
        return Response.empty(201)

    @routes.add(
        "POST",
        _VARIABLE,
        when="rotation",
        name=_NAME,
        caller=REQUIRED,
        body=NO_BODY,
        answers=(Answer(201, "the value is rotated soon"),),
        errors=(Forbidden, RecordNotFound),
        privileges="update on the variable",
        audit=rotation_requested,
    )
    async def request_rotation(self, call: Call, variable: ResourceName) -> Response:
        """Rotate the value soon; a variable without a rotator that can be used is refused."""
        await self.secrets.request_rotation(call.invocation, variable)
        return Response.empty(201)

    @routes.add(
        "DELETE",
        _VARIABLE,
        when="expirations",
        name=_NAME,
        caller=REQUIRED,
        answers=(Answer(204, "no value expires any more"),),
        errors=(Forbidden, RecordNotFound),
        privileges="update on the variable",
        audit=expirations_cleared,
    )
    async def remove_expirations(self, call: Call, variable: ResourceName) -> Response:
        """Remove the expiration of all values; a variable that is rotated is refused."""
        await self.secrets.remove_expirations(call.invocation, variable)
        return Response.empty(204)

    @routes.add(
        "POST",
        "/secrets/<flat:account>/<kind>/<tail:identifier>",
        when="expirations",
        caller=REQUIRED,
        body=NO_BODY,
        answers=(Answer(201, "never: only variables have values that expire"),),
        privileges="none is enough",
        audit=expirations_cleared,
    )
    async def refuse_kind(self, call: Call, account: str, kind: str, identifier: str) -> Response:  # noqa: ARG002
        """Refuse other kinds: only variables have values that expire."""
        raise InvalidParameter("kind", f"Invalid secret kind: {kind[:40]}")


def _content_type(annotated: str) -> str:
    """Return the content type that policy gives, if it is one; no header can be forged with what isn't."""
    return annotated if len(annotated) <= _TYPE_LIMIT and _TYPE.fullmatch(annotated) else _UNKNOWN_TYPE

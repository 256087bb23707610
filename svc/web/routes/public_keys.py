"""Public keys over HTTP (KEY-9 to KEY-17)."""

from __future__ import annotations

from typing import Final

import attrs

from svc.model.errors import Forbidden, InvalidParameter, RecordNotFound, WrongDataKey
from svc.model.events import Event
from svc.model.names import ResourceName, RoleName
from svc.services.public_keys import PublicKeyService
from svc.web.http.declarations import Answer, Body, Parameter, PathName, Unaudited
from svc.web.http.messages import Response
from svc.web.http.routing import OPTIONAL, REQUIRED, Call, Routes
from svc.web.http.shapes import raw_shape

_TEXT: Final = "text/plain; charset=utf-8"

EXPIRATIONS: Final = Parameter.flag("expirations", "always refused: public keys don't expire")


def public_key_updated(call: Call) -> list[Event]:
    """A public key was set."""
    name = call.path_full_id("public_key")
    return [Event("update", "update", (("resource", name),), f"updated {name}", f"update {name}")]


@attrs.frozen
class PublicKeys:
    """The routes of public keys."""

    routes = Routes()

    keys: PublicKeyService

    @routes.add(
        "GET",
        "/public_keys/<flat:account>/user/<tail:identifier>",
        name=PathName("user", RoleName.from_parts, "user"),
        caller=OPTIONAL,
        answers=(
            Answer(200, "the keys, one a line, as an authorized_keys file has them; else an empty line", raw_shape(_TEXT)),
        ),
        errors=(WrongDataKey,),
        privileges="none",
        audit=Unaudited("anybody may ask, and nothing is secret"),
    )
    async def show(self, call: Call, user: RoleName) -> Response:  # noqa: ARG002 (every route takes its call)
        """Return a user's keys in the order of their names."""
        return Response.content(b"\n".join(await self.keys.list_keys(user)) + b"\n", _TEXT)

    @routes.add(
        "POST",
        "/secrets/<flat:account>/public_key/<tail:identifier>",
        caller=REQUIRED,
        query=(EXPIRATIONS,),
        body=Body("the key, as an authorized_keys file has it", ("text/plain",)),
        answers=(Answer(201, "the key is replaced, or was the same"),),
        errors=(Forbidden, RecordNotFound),
        privileges="update on the public key",
        audit=public_key_updated,
    )
    async def write(self, call: Call, account: str, identifier: str, *, expirations: bool) -> Response:
        """Replace a key."""
        if expirations:
            raise InvalidParameter("kind", "Invalid secret kind: public_key")
        await self.keys.replace_key(call.invocation, ResourceName.from_parts(account, "public_key", identifier), call.body)
        return Response.empty(201)

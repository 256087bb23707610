"""Public keys over HTTP (wire facts, core 4 and 5)."""

from __future__ import annotations

import attrs

from svc.model.errors import InvalidParameter
from svc.model.names import ResourceName, RoleName
from svc.services.public_keys import PublicKeyService
from svc.web.http.response import Response
from svc.web.http.routing import OPTIONAL, REQUIRED, Call, Routes
from svc.web.routes import auditing


@attrs.frozen
class PublicKeys:
    """The routes of public keys."""

    routes = Routes()

    keys: PublicKeyService

    @routes.add("GET", "/public_keys/<flat:account>/user/<tail:identifier>", caller=OPTIONAL)
    async def show(self, call: Call, account: str, identifier: str) -> Response:  # noqa: ARG002 (every route takes its call)
        """Return a user's keys, one a line, as an ``authorized_keys`` file has them; an empty line where there are none."""
        keys = await self.keys.of_user(RoleName.of(account, "user", identifier))
        return Response.content(b"\n".join(keys) + b"\n", "text/plain; charset=utf-8")

    @routes.add(
        "POST", "/secrets/<flat:account>/public_key/<tail:identifier>", caller=REQUIRED, audit=auditing.public_key_updated
    )
    async def write(self, call: Call, account: str, identifier: str) -> Response:
        """Replace a key, which is the raw body."""
        if call.query.flag("expirations"):
            raise InvalidParameter("kind", "Invalid secret kind: public_key")
        await self.keys.write(call.invocation, ResourceName.of(account, "public_key", identifier), call.body)
        return Response.empty(201)

"""What the service says of itself: to anybody that it runs, and to those who have a token a little more."""

from __future__ import annotations

import html
import json
from collections.abc import Awaitable, Callable
from typing import Final

import attrs

from svc._version import VERSION
from svc.model.dialect import Dialect
from svc.model.errors import Forbidden
from svc.model.ports import IDatabaseState, IRoles
from svc.web.http.response import Response
from svc.web.http.routing import PUBLIC, REQUIRED, Call, Routes

#: Clients of the installed base look for the version in a ``dd`` (clients R17). Nothing is loaded from elsewhere.
_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>svc is running</title>
<style>body {{ font: 1.1rem/1.6 system-ui, sans-serif; max-width: 36rem; margin: 4rem auto; padding: 0 1rem }}</style>
</head>
<body>
<main>
<h1>svc is running!</h1>
<p>This server keeps secrets. It is spoken to over HTTP, by programs and by the <code>svc</code> command.</p>
<dl>
<dt>Service</dt>
<dd>Version {version}</dd>
</dl>
</main>
</body>
</html>
"""

_PAGE_HEADERS: Final = (
    ("Vary", "Accept"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"),
    ("Referrer-Policy", "no-referrer"),
)


@attrs.frozen
class Status:
    """The status page, and what there is to know of this server (wire facts, core 5; clients R16 and R17).

    ``authenticators`` answers as ``GET /authenticators`` does.
    """

    routes = Routes()

    state: IDatabaseState
    roles: IRoles
    authenticators: Callable[[Call], Awaitable[Response]]
    dialect: Dialect

    @routes.add("GET", "/", caller=PUBLIC)
    async def show(self, call: Call) -> Response:
        """Tell that the server runs, and its version: as JSON to whom accepts JSON, as a page to others."""
        if "json" in (call.header("Accept") or "").lower():
            return Response.json({"version": self._version}, headers=(("Vary", "Accept"),))
        page = _PAGE.format(version=html.escape(self._version))
        return Response.content(page.encode("utf-8"), "text/html; charset=utf-8", headers=_PAGE_HEADERS)

    @routes.add("GET", "/info", caller=REQUIRED)
    async def tell(self, call: Call) -> Response:
        """Tell what this server is, as far as it knows (rulings 2.8): what it doesn't know is left out."""
        role = call.caller.role
        if not await self.roles.remains(call.caller):
            raise Forbidden("the token's role no longer exists")
        position = await self.state.position()
        authenticators = await self.authenticators(call)
        return Response.json(
            {
                "version": self._version,
                "role": "follower" if position.standby else "primary",
                "authenticators": json.loads(authenticators.body),
                "configuration": {self.dialect.prefix: {"account": role.account}},
                "services": {self.dialect.service: {"version": self._version}},
            }
        )

    @property
    def _version(self) -> str:
        return self.dialect.reported_version or VERSION

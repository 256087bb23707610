"""The status page, and what callers with a token may know of this server."""

from __future__ import annotations

import html
from typing import Final

import attrs

from svc._version import VERSION
from svc.model.dialect import Dialect
from svc.model.errors import Forbidden
from svc.services.authenticators import AuthenticatorService
from svc.services.login import AccessTokenService
from svc.storage.database_state import DatabaseState
from svc.web.http.declarations import Answer, Parameter, Unaudited
from svc.web.http.messages import Response
from svc.web.http.routing import PUBLIC, REQUIRED, Call, Routes
from svc.web.http.shapes import TEXT, array_shape, mapping_shape, object_shape, raw_shape, string_shape

#: Clients of the installed base look for the version in a ``dd`` (WIRE-49). Nothing is loaded from elsewhere.
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
<p>This server keeps secrets. It is spoken to over HTTP, by programs and by the <code>svc</code> command.</p>{console}
<dl>
<dt>Service</dt>
<dd>Version {version}</dd>
</dl>
</main>
</body>
</html>
"""

_CONSOLE: Final = '\n<p>People sign in at <a href="/ui">the console</a>.</p>'

_PAGE_HEADERS: Final = (
    ("Vary", "Accept"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"),
    ("Referrer-Policy", "no-referrer"),
)

ACCEPT: Final = Parameter.header("Accept", "JSON for the same in JSON", field="accept")

_HTML: Final = "text/html; charset=utf-8"
_VERSION: Final = object_shape({"version": TEXT})
_INFO: Final = object_shape(
    {
        "version": TEXT,
        "role": string_shape("primary", "follower"),
        "authenticators": mapping_shape(array_shape(TEXT)),
        "configuration": mapping_shape(object_shape({"account": TEXT})),
        "services": mapping_shape(_VERSION),
    }
)


@attrs.frozen
class Status:
    """The routes of this server's own status (WIRE-49 and WIRE-50)."""

    routes = Routes()

    state: DatabaseState
    tokens: AccessTokenService
    authenticators: AuthenticatorService
    dialect: Dialect
    has_console: bool = False

    @routes.add(
        "GET",
        "/",
        caller=PUBLIC,
        headers=(ACCEPT,),
        answers=(
            Answer(200, "a page that says that the server runs", raw_shape(_HTML), ("Vary",)),
            Answer(200, "the same in JSON", _VERSION, ("Vary",)),
        ),
        privileges="none",
        audit=Unaudited("anybody may ask, and nothing is secret"),
    )
    async def show(self, call: Call, *, accept: str | None) -> Response:  # noqa: ARG002 (every route takes its call)
        """Return a page that says that the server runs, and its version."""
        if "json" in (accept or "").lower():
            return Response.json({"version": self._reported_version}, headers=(("Vary", "Accept"),))
        console = _CONSOLE if self.has_console else ""
        page = _PAGE.format(version=html.escape(self._reported_version), console=console)
        return Response.content(page.encode("utf-8"), _HTML, headers=_PAGE_HEADERS)

    @routes.add(
        "GET",
        "/info",
        caller=REQUIRED,
        answers=(Answer(200, "the server's name, version and kind", _INFO),),
        errors=(Forbidden,),
        privileges="a role that exists",
        audit=Unaudited("nothing of it is secret"),
    )
    async def tell(self, call: Call) -> Response:
        """Return what this server is, as far as it knows (WIRE-50): what it doesn't know is left out."""
        await self.tokens.check_caller(call.caller)
        position = await self.state.read_position()
        return Response.json(
            {
                "version": self._reported_version,
                "role": "follower" if position.standby else "primary",
                "authenticators": attrs.asdict(await self.authenticators.list_authenticators()),
                "configuration": {self.dialect.prefix: {"account": call.caller.role.account}},
                "services": {self.dialect.service: {"version": self._reported_version}},
            }
        )

    @property
    def _reported_version(self) -> str:
        return self.dialect.reported_version or VERSION

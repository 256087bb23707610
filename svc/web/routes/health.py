"""The health of this server over HTTP: routes that anyone may call, and which ask nobody.

Health is that of the last round. Readiness is that and what is known now: a database that has just gone, or taken another
part, is known at once, and a proxy that asks every second is to hear of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from svc.health.checks_loop import ChecksLoop
from svc.model.dialect import Dialect
from svc.web.http.declarations import Answer, Parameter, Unaudited
from svc.web.http.response import Response
from svc.web.http.routing import PUBLIC, Call, Routes
from svc.web.http.shapes import BOOLEAN, obj
from svc.web.routes.healthjson import HEALTH_JSON, MEDIA_TYPE, REPORT, health_json

_VARIES: Final = (("Vary", "Accept"),)

ACCEPT: Final = Parameter.header("Accept", f"{MEDIA_TYPE} for the form of that draft", field="accept")
WRITE: Final = Parameter.boolean("write", "whether it is asked if the server can write, too")

_OK: Final = obj({"ok": BOOLEAN})
_UNAUDITED: Final = Unaudited("anybody may ask, and nothing is secret")


@attrs.frozen
class Health:
    """Whether the server is well, whether it lives, and whether it can serve."""

    routes = Routes()

    checks: ChecksLoop
    dialect: Dialect
    #: Whether the database can be asked now, and whether it may be written to, as far as is known without asking it.
    answers: Callable[[], bool]
    writable: Callable[[], bool]

    @routes.add(
        "GET",
        "/health",
        caller=PUBLIC,
        query=None,
        headers=(ACCEPT,),
        answers=(
            Answer(200, "the server is well", REPORT, ("Vary",)),
            Answer(200, "the same, in the form of the draft", HEALTH_JSON, ("Vary",)),
            Answer(502, "a check fails", REPORT, ("Vary",)),
            Answer(502, "the same, in the form of the draft", HEALTH_JSON, ("Vary",)),
        ),
        privileges="none",
        vital=True,
        audit=_UNAUDITED,
    )
    async def show(self, call: Call, *, accept: str | None) -> Response:  # noqa: ARG002 (every route takes its call)
        """Return the health of this server (HEALTH-1)."""
        report = self.checks.report(self.dialect)
        status = 200 if report.ok else 502
        if MEDIA_TYPE in (accept or "").lower():
            return attrs.evolve(Response.json(health_json(report), status, headers=_VARIES), content_type=MEDIA_TYPE)
        return Response.json(report.document(), status, headers=_VARIES)

    @routes.add(
        "GET",
        "/livez",
        caller=PUBLIC,
        query=None,
        answers=(Answer(200, "the process answers", _OK),),
        privileges="none",
        vital=True,
        audit=_UNAUDITED,
    )
    async def live(self, call: Call) -> Response:  # noqa: ARG002 (every route takes its call)
        """Tell that the reactor turns, which an answer proves by itself (HEALTH-9)."""
        return Response.json({"ok": True})

    @routes.add(
        "GET",
        "/readyz",
        caller=PUBLIC,
        query=(WRITE,),
        answers=(Answer(200, "it can", _OK), Answer(503, "it can't now", _OK)),
        privileges="none",
        vital=True,
        audit=_UNAUDITED,
    )
    async def ready(self, call: Call, *, write: bool) -> Response:  # noqa: ARG002 (every route takes its call)
        """Return whether this server can take logins and reads, with ``write`` also changes (HEALTH-10, HEALTH-12)."""
        report, ready = self.checks.report(self.dialect), self.answers()
        ready = ready and (report.ready_to_write and self.writable() if write else report.ready)
        return Response.json({"ok": ready}, 200 if ready else 503)

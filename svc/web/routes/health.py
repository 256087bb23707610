"""The health of this server over HTTP, as of the last round of checks.

Readiness counts what is known now, too: a proxy that asks every second is to hear at once that the database has gone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from svc.health.checks_loop import ChecksLoop
from svc.model.dialect import Dialect
from svc.web.http.declarations import Answer, Parameter, Unaudited
from svc.web.http.response import Response
from svc.web.http.routing import PUBLIC, Call, Routes
from svc.web.http.shapes import BOOLEAN, obj
from svc.web.routes.health_json import HEALTH_JSON, MEDIA_TYPE, REPORT, health_json

_VARIES: Final = (("Vary", "Accept"),)

ACCEPT: Final = Parameter.header("Accept", f"{MEDIA_TYPE} for the form of that draft", field="accept")
WRITE: Final = Parameter.boolean("write", "whether it is asked if the server can write, too")

_OK: Final = obj({"ok": BOOLEAN})


@attrs.frozen
class Health:
    """Whether the server is well, whether it lives, and whether it can serve."""

    routes = Routes()
    _public = partial(
        routes.add,
        "GET",
        caller=PUBLIC,
        privileges="none",
        vital=True,
        audit=Unaudited("anybody may ask, and nothing is secret"),
    )

    checks: ChecksLoop
    dialect: Dialect
    #: Whether the database can be asked now, and whether it may be written to, as far as is known without asking it.
    answers: Callable[[], bool]
    writable: Callable[[], bool]

    @_public(
        "/health",
        query=None,
        headers=(ACCEPT,),
        answers=(
            Answer(200, "the server is well", REPORT, ("Vary",)),
            Answer(200, "the same, in the form of the draft", HEALTH_JSON, ("Vary",)),
            Answer(502, "a check fails", REPORT, ("Vary",)),
            Answer(502, "the same, in the form of the draft", HEALTH_JSON, ("Vary",)),
        ),
    )
    async def show(self, call: Call, *, accept: str | None) -> Response:  # noqa: ARG002 (every route takes its call)
        """Return the health of this server (HEALTH-1)."""
        report = self.checks.report(self.dialect)
        status = 200 if report.ok else 502
        if MEDIA_TYPE in (accept or "").lower():
            return attrs.evolve(Response.json(health_json(report), status, headers=_VARIES), content_type=MEDIA_TYPE)
        return Response.json(report.document(), status, headers=_VARIES)

    @_public("/livez", query=None, answers=(Answer(200, "the process answers", _OK),))
    async def live(self, call: Call) -> Response:  # noqa: ARG002 (every route takes its call)
        """Answer, which proves that the reactor turns (HEALTH-9)."""
        return Response.json({"ok": True})

    @_public("/readyz", query=(WRITE,), answers=(Answer(200, "it can", _OK), Answer(503, "it can't now", _OK)))
    async def ready(self, call: Call, *, write: bool) -> Response:  # noqa: ARG002 (every route takes its call)
        """Return whether this server can take logins and reads, with ``write`` also changes (HEALTH-10, HEALTH-12)."""
        report, ready = self.checks.report(self.dialect), self.answers()
        ready = ready and (report.ready_to_write and self.writable() if write else report.ready)
        return Response.json({"ok": ready}, 200 if ready else 503)

"""The health of this server over HTTP, as of the last round of checks.

Readiness counts what is known now, too: a proxy that asks every second is to hear at once that the database has gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import attrs

from svc.health.checks_loop import OK, HealthReport, IHealth
from svc.health.probes import AuditProbe
from svc.model.dialect import Dialect
from svc.web.http.declarations import Answer, Parameter, Unaudited
from svc.web.http.messages import Response
from svc.web.http.routing import PUBLIC, Call, Routes
from svc.web.http.shapes import BOOLEAN, object_shape
from svc.web.routes.health_json import HEALTH_JSON, MEDIA_TYPE, REPORT, health_json

_VARIES: Final = (("Vary", "Accept"),)

ACCEPT: Final = Parameter.header("Accept", f"{MEDIA_TYPE} for the form of that draft", field="accept")
WRITE: Final = Parameter.boolean("write", "whether to check also that the server can write")

_OK: Final = object_shape({"ok": BOOLEAN})
_READY: Final = object_shape({"ok": BOOLEAN}, {"degraded": BOOLEAN})
_YES: Final = Response.json({"ok": True})
_NO: Final = Response.json({"ok": False}, 503)
_DEGRADED: Final = Response.json({"ok": True, "degraded": True})


@attrs.frozen
class Health:
    """Whether the server is well, whether it lives, and whether it can serve."""

    routes = Routes()
    _public_route = partial(
        routes.add,
        "GET",
        caller=PUBLIC,
        privileges="none",
        vital=True,
        audit=Unaudited("anybody may ask, and nothing is secret"),
    )

    checks: IHealth
    dialect: Dialect
    #: Whether the database is available, and whether it may be written to, as far as is known without a query.
    is_available: Callable[[], bool]
    is_writable: Callable[[], bool]
    #: Whether the read cache stands in for an unavailable database (``--serve-stale``).
    serves_stale: Callable[[], bool] = lambda: False
    #: The last report that was returned, with its answer: reports are equal for as long as nothing changes.
    _last_answer: deque[tuple[HealthReport, bool, Response]] = attrs.field(
        factory=lambda: deque(maxlen=1), init=False, eq=False
    )

    @_public_route(
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
        report = self.checks.last_report(self.dialect)
        if MEDIA_TYPE in (accept or "").lower():
            status = 200 if report.ok else 502
            return attrs.evolve(Response.json(health_json(report), status, headers=_VARIES), content_type=MEDIA_TYPE)
        degraded = report.database != OK and self.serves_stale()
        for known, was_degraded, response in self._last_answer:
            if known == report and degraded == was_degraded:
                return response
        document: dict[str, Any] = {**report.document(), "degraded": True} if degraded else report.document()
        response = Response.json(document, 200 if report.ok else 502, headers=_VARIES)
        self._last_answer.append((report, degraded, response))
        return response

    @_public_route("/livez", query=None, answers=(Answer(200, "the process answers", _OK),))
    async def live(self, call: Call) -> Response:  # noqa: ARG002 (every route takes its call)
        """Answer, which proves that the reactor turns (HEALTH-9)."""
        return _YES

    @_public_route("/readyz", query=(WRITE,), answers=(Answer(200, "it can", _READY), Answer(503, "it can't now", _OK)))
    async def ready(self, call: Call, *, write: bool) -> Response:  # noqa: ARG002 (every route takes its call)
        """Return whether this server can take logins and reads, with ``write`` also changes (HEALTH-10, HEALTH-12)."""
        report, ready = self.checks.last_report(self.dialect), self.is_available()
        ready = ready and (report.is_ready_to_write and self.is_writable() if write else report.is_ready)
        if not ready and not write and AuditProbe.service not in report.unready and self.serves_stale():
            return _DEGRADED
        return _YES if ready else _NO

"""The routes of this server's own health, which anyone may ask and which ask nobody.

Health is told as of the last round. Readiness is that and what is known now: a database that has just gone, or taken another
part, is known at once, and a proxy that asks every second is to hear of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from svc.health.checks_loop import Rounds
from svc.health.draft import MEDIA_TYPE, health_json
from svc.model.dialect import Dialect
from svc.web.http.response import Response
from svc.web.http.routing import PUBLIC, Call, Routes

_VARIES: Final = (("Vary", "Accept"),)


@attrs.frozen
class Health:
    """Whether it is well, whether it lives, and whether it can serve."""

    routes = Routes()

    rounds: Rounds
    dialect: Dialect
    #: Whether the database can be asked now, and whether it may be written to, as far as is known without asking it.
    answers: Callable[[], bool]
    writable: Callable[[], bool]

    @routes.add("GET", "/health", caller=PUBLIC, query=None, vital=True)
    async def show(self, call: Call) -> Response:
        """Tell the state of this server: 200, or 502 when anything fails (source document, endpoint 4).

        To whom accepts ``application/health+json`` it is told in that form.
        """
        report = self.rounds.report(self.dialect)
        if MEDIA_TYPE in (call.header("Accept") or "").lower():
            return attrs.evolve(Response.json(health_json(report), report.status, headers=_VARIES), content_type=MEDIA_TYPE)
        return Response.json(report.document(), report.status, headers=_VARIES)

    @routes.add("GET", "/livez", caller=PUBLIC, query=None, vital=True)
    async def live(self, call: Call) -> Response:  # noqa: ARG002 (every route takes its call)
        """Tell that the reactor turns, which an answer proves by itself (rulings: health)."""
        return Response.json({"ok": True})

    @routes.add("GET", "/readyz", caller=PUBLIC, vital=True)
    async def ready(self, call: Call) -> Response:
        """Tell whether this server can log somebody in and let him read, with ``write`` also whether it can write.

        It is 200, or 503 (rulings 9.5).
        """
        report, answers = self.rounds.report(self.dialect), self.answers()
        if call.query.boolean("write"):
            ready = answers and report.ready_to_write and self.writable()
        else:
            ready = answers and report.ready
        return Response.json({"ok": ready}, 200 if ready else 503)

"""The routes of this server's own health, which anyone may ask and which ask nobody: they tell the last round."""

from __future__ import annotations

from typing import Final

import attrs

from svc.dialect import Dialect
from svc.health.draft import MEDIA_TYPE, health_json
from svc.health.rounds import Rounds
from svc.web.response import Response
from svc.web.routing import PUBLIC, Call, Routes

_VARIES: Final = (("Vary", "Accept"),)


@attrs.frozen
class Health:
    """Whether it is well, whether it lives, and whether it can serve."""

    routes = Routes()

    rounds: Rounds
    dialect: Dialect

    @routes.add("GET", "/health", caller=PUBLIC, query=False, vital=True)
    async def show(self, call: Call) -> Response:
        """Tell the state of this server: 200, or 502 when anything fails (source document, endpoint 4).

        To whom accepts ``application/health+json`` it is told in that form.
        """
        report = self.rounds.report(self.dialect)
        if MEDIA_TYPE in (call.header("Accept") or "").lower():
            return attrs.evolve(Response.json(health_json(report), report.status, headers=_VARIES), content_type=MEDIA_TYPE)
        return Response.json(report.document(), report.status, headers=_VARIES)

    @routes.add("GET", "/livez", caller=PUBLIC, query=False, vital=True)
    async def live(self, call: Call) -> Response:  # noqa: ARG002 (every route takes its call)
        """Tell that the reactor turns, which an answer proves by itself (rulings: health)."""
        return Response.json({"ok": True})

    @routes.add("GET", "/readyz", caller=PUBLIC, query=False, vital=True)
    async def ready(self, call: Call) -> Response:  # noqa: ARG002 (every route takes its call)
        """Tell whether this server can serve, as of the last round: 200, or 503 (rulings: health)."""
        ready = self.rounds.report(self.dialect).ready
        return Response.json({"ok": ready}, 200 if ready else 503)

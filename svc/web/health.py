"""The health route, which anyone may ask and which asks nobody: it tells the last round."""

from __future__ import annotations

import attrs

from svc.dialect import Dialect
from svc.health.rounds import Rounds
from svc.web.response import Response
from svc.web.routing import PUBLIC, Call, Routes


@attrs.frozen
class Health:
    """The route of health."""

    routes = Routes()

    rounds: Rounds
    dialect: Dialect

    @routes.add("GET", "/health", caller=PUBLIC)
    async def show(self, call: Call) -> Response:  # noqa: ARG002 (every route takes its call)
        """Tell the state of this server: 200, or 502 when anything fails (source document, endpoint 4)."""
        report = self.rounds.report(self.dialect)
        return Response.json(report.document(), report.status)

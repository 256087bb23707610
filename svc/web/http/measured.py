"""Requests counted: around the router, for servers whose metrics are served, and absent elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from svc.web.http.incoming import Incoming
from svc.web.http.response import Response

#: The operation of a request that no route answers, and the status of one whose client left before there was an answer.
NO_ROUTE: Final = "none"
GONE: Final = "gone"


@attrs.frozen
class Measured:
    """A counter around ``respond``: ``count`` gets the route, the status and the seconds until there was an answer."""

    respond: Callable[[Incoming], Deferred[Response]]
    clock: IReactorTime
    count: Callable[[str, str, float], object]

    def __call__(self, incoming: Incoming) -> Deferred[Response]:
        """Answer a request."""
        began = self.clock.seconds()

        def answered(result: Response | Failure) -> Response | Failure:
            operation = NO_ROUTE if incoming.route is None else str(incoming.route)
            status = str(result.status) if isinstance(result, Response) else GONE
            self.count(operation, status, max(0.0, self.clock.seconds() - began))
            return result

        return self.respond(incoming).addBoth(answered)

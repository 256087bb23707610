"""Requests counted: around the router, for servers whose metrics are served, and absent elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from svc.web.http.incoming import IncomingRequest
from svc.web.http.response import Response

#: The operation of a request that no route answers, and the status of one whose client left before there was an answer.
NO_ROUTE: Final = "none"
CLIENT_GONE: Final = "gone"


@attrs.frozen
class RequestMeter:
    """A counter around ``respond``: ``count`` gets the route, the status and the seconds until there was an answer."""

    respond: Callable[[IncomingRequest], Deferred[Response]]
    clock: IReactorTime
    count: Callable[[str, str, float], object]

    def __call__(self, incoming: IncomingRequest) -> Deferred[Response]:
        """Answer a request."""
        began = self.clock.seconds()

        def count_response(result: Response | Failure) -> Response | Failure:
            operation = NO_ROUTE if incoming.route is None else str(incoming.route)
            status = str(result.status) if isinstance(result, Response) else CLIENT_GONE
            self.count(operation, status, max(0.0, self.clock.seconds() - began))
            return result

        return self.respond(incoming).addBoth(count_response)

"""``python -m bench.unaudited TWISTD-ARGUMENTS``: ``twistd`` with a service that records nothing. There is no such switch.

Where a request is performed, the route is called as if it had no events; so none are made, written down, waited for, or
stored with a change. Nothing else of the service is changed.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import Any

from twisted.scripts import twistd

from svc.events import Trail
from svc.web.response import Response
from svc.web.routing import Call, Router


async def _unaudited(router: Router, answer: Coroutine[Any, Any, Response], call: Call) -> Response:  # noqa: ARG001
    return await answer


def main(*arguments: str) -> None:
    """Be ``twistd`` with these arguments."""
    Router._audited = _unaudited  # type: ignore[method-assign, assignment]
    Call.trail = property(lambda call: Trail(call.origin))  # type: ignore[method-assign, assignment]
    sys.argv = ["twistd", *arguments]
    twistd.run()


if __name__ == "__main__":
    main(*sys.argv[1:])

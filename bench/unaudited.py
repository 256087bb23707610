"""``python -m bench.unaudited TWISTD-ARGUMENTS``: ``twistd`` with a service that records nothing. There is no such switch.

Where a request is performed, the route is called as if it had no events; so none are made, written down, waited for, or
stored with a change. Nothing else of the service is changed.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import Any

from twisted.application.reactors import installReactor
from twisted.scripts import twistd

from bench import settings


async def _unaudited(router: object, answer: Coroutine[Any, Any, Any], call: object) -> Any:  # noqa: ARG001
    return await answer


def main(*arguments: str) -> None:
    """Be ``twistd`` with these arguments."""
    installReactor(settings.REACTOR)
    # These load what wants a reactor.
    from svc.events import Trail  # noqa: PLC0415
    from svc.web.router import Router  # noqa: PLC0415
    from svc.web.routing import Call  # noqa: PLC0415

    Router._audited = _unaudited  # type: ignore[method-assign, assignment]
    Call.trail = property(lambda call: Trail(call.origin))  # type: ignore[method-assign, assignment]
    sys.argv = ["twistd", *arguments]
    twistd.run()


if __name__ == "__main__":
    main(*sys.argv[1:])

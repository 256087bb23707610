"""``twistd`` with a switch that the service doesn't have: whenever it is sent ``SIGUSR2``, it records nothing, or again.

Routes are called then as if they had no events: none is made, written down, waited for, or stored with a change.
``python -m bench.unaudited ARGUMENTS…`` runs ``twistd ARGUMENTS…`` with the audit on, in one process, so that both are
measured in the same.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from twisted.application.reactors import installReactor
from twisted.scripts import twistd

from bench import settings


async def _unaudited(noun: Any, route: Any, call: Any) -> Any:
    return await route.handler(noun, call, **route.read_arguments(call))


def main(*arguments: str) -> None:
    """Be ``twistd`` with these arguments."""
    installReactor(settings.REACTOR)
    # These load what wants a reactor.
    from svc.model.events import EventBatch  # noqa: PLC0415
    from svc.web.http.router import Router  # noqa: PLC0415
    from svc.web.http.routing import Call  # noqa: PLC0415

    audited, trail, on = Router._perform_audited, Call.event_batch, True

    def switch(*_: object) -> None:
        nonlocal on
        on = not on

    def answered(router: Any, noun: Any, route: Any, audit: Any, call: Any) -> Any:
        return audited(router, noun, route, audit, call) if on else _unaudited(noun, route, call)

    def events(call: Any) -> Any:
        return trail.__get__(call) if on else EventBatch(call.origin)

    Router._perform_audited = answered  # type: ignore[method-assign, assignment]
    Call.event_batch = property(events)  # type: ignore[method-assign, assignment]
    signal.signal(signal.SIGUSR2, switch)
    sys.argv = ["twistd", *arguments]
    twistd.run()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The start of a server that is one process, and the console, which only servers that have it import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.interfaces import IStreamClientEndpoint

from svc.server.bootstrap import Installation
from svc.server.graph import Server
from svc.server.lifecycle import Started
from svc.server.listening import Endpoint
from svc.server.singletons import prepare_account
from svc.settings.config import Settings
from svc.storage.memory.slots import Slots
from svc.telemetry.exposition import metrics_site
from svc.telemetry.metrics import Metrics
from svc.web.http.console import IConsole


def load_console(settings: Settings) -> Callable[[Server], tuple[IConsole, Sequence[Any]]] | None:
    """Return what makes the console, where the settings want it: few servers do, and its library takes time to import."""
    if not settings.console:
        return None
    from svc.server.console import make_console  # noqa: PLC0415

    return make_console


async def start_server(
    services: MultiService,
    reactor: Any,
    settings: Settings,
    installation: Installation,
    endpoints: Sequence[Endpoint],
    metrics_endpoint: Endpoint | None,
    audit_syslog: IStreamClientEndpoint | None,
    show_admin_key: Callable[[str], bool] | None,
) -> Started:
    """Start a server that is one process, each part when those that it depends on run.

    ``show_admin_key`` is as for ``tap.build``.

    :raises StartRefused: it can't start; the reason is for operators.
    """
    server = Server(
        reactor=reactor,
        settings=settings,
        installation=installation,
        services=services,
        slots=Slots.private(),
        metrics=None if metrics_endpoint is None else Metrics(),
        endpoints=[*filter(None, (*endpoints, metrics_endpoint))],
        audit_syslog=audit_syslog,
        daemon=show_admin_key is None,
        make_console=load_console(settings),
    )
    singletons = server.singletons
    server.start()
    announced = await prepare_account(server, show_admin_key)
    await singletons.start()
    urls = await server.open(endpoints)
    if metrics_endpoint is not None and server.metrics is not None:
        server.metrics.watch_key_sets(singletons.provider_keys.ages)
        singletons.watch(server.metrics)
        await singletons.serve_metrics(metrics_endpoint, metrics_site(server.metrics.registry))
    await singletons.checks_loop.first_round()
    return Started(urls, announced)

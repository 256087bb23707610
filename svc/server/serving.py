"""The start of a server that is one process, and the console, which only servers that have it import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from svc.server.bootstrap import StartPlan
from svc.server.first_account import prepare_account
from svc.server.graph import Server
from svc.server.lifecycle import Started
from svc.server.listening import serve_metrics
from svc.settings.config import Settings
from svc.storage.cache.commit_counters import CommitCounters
from svc.telemetry.exposition import metrics_site
from svc.telemetry.metrics import Metrics
from svc.web.http.console import IConsole


def load_console(settings: Settings) -> Callable[[Server], tuple[IConsole, Sequence[Any]]] | None:
    """Return what makes the console, where the settings want it: few servers do, and its library takes time to import."""
    if not settings.console:
        return None
    from svc.server.console import make_console  # noqa: PLC0415

    return make_console


async def start_server(plan: StartPlan) -> Started:
    """Start a server that is one process, each part when those that it depends on run.

    :raises StartRefused: it can't start; the reason is for operators.
    """
    server = Server(
        reactor=plan.reactor,
        settings=plan.settings,
        installation=plan.installation,
        services=plan.services,
        commit_counters=CommitCounters.for_one_process(),
        metrics=None if plan.metrics_endpoint is None else Metrics(),
        endpoints=[*filter(None, (*plan.endpoints, plan.metrics_endpoint))],
        audit_syslog=plan.audit_syslog,
        daemon=plan.show_admin_key is None,
        make_console=load_console(plan.settings),
    )
    singletons = server.singletons
    server.start()
    announced = await prepare_account(server, plan.show_admin_key)
    await singletons.start()
    urls = await server.open(plan.endpoints)
    if plan.metrics_endpoint is not None and server.metrics is not None:
        server.metrics.watch_key_sets(singletons.provider_keys.key_set_ages)
        singletons.watch(server.metrics)
        await serve_metrics(plan.services, plan.metrics_endpoint, metrics_site(server.metrics.registry))
    await singletons.checks_loop.first_round()
    server.effective_settings.note_urls(urls)
    return Started(urls, announced)

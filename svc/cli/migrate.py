"""The schema of the database: brought up to date by hand, or what that would do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import click

from svc.cli.admin import with_settings
from svc.server.bootstrap import run_on_database
from svc.settings.config import Settings
from svc.storage.driver.migration_heads import LOCKS
from svc.storage.driver.migrations import (
    LOCK_ATTEMPTS,
    LOCK_PAUSE,
    LOCK_TIMEOUT,
    Forecast,
    LockedTable,
    MigrationStep,
    forecast_migrations,
)
from svc.tap import run_on_installation


@click.command()
@click.option("--check", is_flag=True, help="Say what would be done, what it locks and how long that takes; do nothing.")
@with_settings
async def migrate(reactor: Any, settings: Settings, check: bool) -> None:
    """Bring the schema of the database up to date, as every start of the server does.

    Run it beside the running servers, which may be older: --check reports what they can't work with. It works on the
    database itself, that of --data-dir or --database-url: give it the options or the environment that the server has.

    Example: svc migrate --check
    """
    if check:
        for line in _describe_forecast(await run_on_database(reactor, settings, forecast_migrations)):
            click.echo(line)
        return

    async def do_nothing(_: object) -> None:
        """Opening it has done the work."""

    await run_on_installation(reactor, settings, do_nothing)
    click.echo("The schema is up to date.")


def _describe_forecast(found: Forecast) -> Iterator[str]:
    version, known = found.state.version, found.known
    if version > known:
        yield f"The schema is at version {version}, which this program works with, though it knows it up to {known} only."
        return
    if not found.steps:
        yield f"The schema is at version {version}, as this program needs it: nothing is to be done."
        return
    yield f"The schema is at version {version}, and this program brings it to {known}:"
    for step in found.steps:
        yield from _describe_step(step)
    if found.state.standby:
        yield "This database is a standby, which gets its schema from the primary: run the command there."
    seconds = sum(max((each.seconds for each in step.locked), default=0.0) for step in found.steps)
    yield (
        f"The work takes about {_format_duration(seconds)}. For a lock, others wait {LOCK_TIMEOUT:g} s at most; then they"
        f" go first, and it is tried again, for {LOCK_ATTEMPTS * (LOCK_TIMEOUT + LOCK_PAUSE):.0f} s."
    )


def _describe_step(step: MigrationStep) -> Iterator[str]:
    needs = step.migration.head.needs
    borne = "programs of before go on" if needs == 0 else f"stop programs of before schema version {needs} first"
    yield f"  {step.migration.name} ({'expands' if needs == 0 else 'contracts'}: {borne})"
    alike: dict[tuple[str, str], list[LockedTable]] = defaultdict(list)
    for each in step.locked:
        alike[each.lock.mode, each.lock.work].append(each)
    for (mode, work), tables in alike.items():
        sizes = ", ".join(f"{each.lock.table} ({_format_size(each.size)})" for each in tables)
        longest = max(each.seconds for each in tables)
        yield f"    {LOCKS[mode]} wait: {sizes}; {work}{f', about {_format_duration(longest)}' if longest else ''}"
    for holder in step.waits_for:
        yield f"    its tables are in use: {holder}"


def _format_duration(seconds: float) -> str:
    return "a moment" if seconds < 1 else f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _format_size(size: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}"

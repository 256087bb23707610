"""Followers: the PostgreSQL of a new one, and the end of one that is gone."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click

from svc.cli.progress import show_progress
from svc.cli.reactor import run_reactor
from svc.model.errors import Refusal
from svc.server.startup import describe_refusal
from svc.storage.standbys import Primary, change_owner, prepare_directory, standby_name

_FROM = click.option(
    "--from",
    "dsn",
    required=True,
    metavar="DSN",
    help="The primary, as a role with REPLICATION: host=… user=replicator passfile=… sslmode=verify-full …",
)


@click.group()
def follower() -> None:
    """Add followers to a primary, and take them off.

    A follower is a machine with a PostgreSQL that is a hot standby of the primary, and a server on it.
    """


def _run_on_primary(work: Callable[[Primary, str], Awaitable[None]], dsn: str, name: str) -> None:
    async def run_in_reactor(reactor: Any) -> None:
        try:
            await work(Primary(reactor, dsn), standby_name(name))
        except Refusal as refusal:
            raise click.ClickException(describe_refusal(refusal)) from None
        except OSError as error:
            raise click.ClickException(str(error)) from None

    run_reactor(run_in_reactor)


@follower.command()
@click.argument("name")
@_FROM
@click.option(
    "--pgdata",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The data directory of the new PostgreSQL: an empty one, or none yet.",
)
def create(name: str, dsn: str, pgdata: Path) -> None:
    """Copy the primary into DIR, for the PostgreSQL of the new follower NAME, on its machine.

    Run it as PostgreSQL's user, or as root if DIR is there, empty and that user's. A slot of this name on the primary keeps
    what the follower has yet to fetch. After a failure, run the command again. It runs pg_basebackup, of PATH.

    Example: svc follower create two --pgdata /var/lib/postgresql/17/main --from 'host=10.0.0.1 user=replicator …'
    """

    async def copy_primary(primary: Primary, standby: str) -> None:
        directory = pgdata.absolute()
        owner = prepare_directory(directory)
        made = await primary.add_slot(standby)
        click.echo(f"The primary {'has a new slot' if made else 'has had a slot'} {standby}.", err=True)
        await show_progress(primary.copy_data(standby, directory), f"Copying the primary into {directory}", sys.stderr)
        if owner is not None:
            change_owner(directory, owner)
        click.echo(f"{directory} is a copy of the primary. Start PostgreSQL on it, then svc, which will be a follower.")

    _run_on_primary(copy_primary, dsn, name)


@follower.command()
@click.argument("name")
@_FROM
def remove(name: str, dsn: str) -> None:
    """Take the follower NAME off the primary, which keeps nothing for it from then on.

    Its PostgreSQL must have been stopped, or be gone: a running one is refused. If changes wait for it, that is reported.
    Take it out of "cluster" in the settings of the other servers, and out of the proxy's, too.

    Example: svc follower remove two --from 'host=10.0.0.1 user=replicator …'
    """

    async def remove_slot(primary: Primary, standby: str) -> None:
        gone = await primary.drop_slot(standby)
        click.echo(f"The primary keeps nothing for {standby} any more." if gone else f"The primary has no slot {standby}.")
        if await primary.is_synchronous(standby):
            raise click.ClickException(
                f"synchronous_standby_names of the primary has {standby}, for which changes wait: take it out there, with"
                " ALTER SYSTEM SET synchronous_standby_names and SELECT pg_reload_conf()"
            )

    _run_on_primary(remove_slot, dsn, name)

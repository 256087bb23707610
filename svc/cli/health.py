"""The command that asks for a server's health."""

from __future__ import annotations

import json

import click

from svc.cli.connection import Connection, anonymously


@click.command()
@anonymously
async def health(connection: Connection) -> None:
    """Print a server's health report; exit code 0 when all is well, 1 when it is not."""
    answer = (await connection.request("GET", "/health")).expect(200, 502)
    click.echo(json.dumps(answer.json(), indent=2))
    if answer.status != 200:
        raise click.ClickException(f"{connection.url} is not healthy")

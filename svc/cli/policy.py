"""Commands that load policy."""

from __future__ import annotations

from typing import IO, Final

import click

from svc.cli.connection import Connection, over_http

_METHODS: Final = {"load": "POST", "update": "PATCH", "replace": "PUT"}


@click.group()
def policy() -> None:
    """Load policy: who there is, and who may do what."""


async def _send(connection: Connection, mode: str, branch: str, file: IO[bytes]) -> None:
    path = f"/policies/{connection.segment(connection.account)}/policy/{connection.segment(branch)}"
    answer = await connection.call(_METHODS[mode], path, file.read(), Content_Type="application/x-yaml")
    result = answer.expect(201).json()
    for role in result["created_roles"].values():
        click.echo(f"{role['id']}\tAPI key: {role['api_key']}")
    for warning in result.get("warnings", []):
        click.echo(f"Warning: {warning}", err=True)
    click.echo(f"Policy {branch} is now at version {result['version']}.", err=True)


@policy.command()
@click.argument("branch")
@click.argument("file", type=click.File("rb"))
@over_http
async def load(connection: Connection, branch: str, file: IO[bytes]) -> None:
    """Add what FILE declares to policy BRANCH (root, or the id of a policy); change and remove nothing.

    Prints the API keys of the users and hosts that were made: they are not shown again.
    """
    await _send(connection, "load", branch, file)


@policy.command()
@click.argument("branch")
@click.argument("file", type=click.File("rb"))
@over_http
async def update(connection: Connection, branch: str, file: IO[bytes]) -> None:
    """Add what FILE declares to policy BRANCH and change what is there to match; remove nothing."""
    await _send(connection, "update", branch, file)


@policy.command()
@click.argument("branch")
@click.argument("file", type=click.File("rb"))
@over_http
async def replace(connection: Connection, branch: str, file: IO[bytes]) -> None:
    """Make policy BRANCH what FILE declares, and remove everything else that was loaded into it, with its secrets."""
    await _send(connection, "replace", branch, file)

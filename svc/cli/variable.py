"""Commands that read and write secrets."""

from __future__ import annotations

import sys
from typing import IO

import click

from svc.cli.connection import Connection, over_http


@click.group()
def variable() -> None:
    """Read and write the values of variables."""


def _path(connection: Connection, identifier: str) -> str:
    return f"/secrets/{connection.segment(connection.account)}/variable/{connection.segment(identifier)}"


@variable.command()
@click.argument("identifier")
@click.option("--version", type=click.IntRange(min=1), help="An older version than the newest.")
@over_http
async def get(connection: Connection, identifier: str, version: int | None) -> None:
    """Write the value of variable IDENTIFIER to standard output: its exact bytes, without a newline of our own."""
    value = await connection.workload().secret(identifier, version)
    output = sys.stdout.buffer
    output.write(value)
    output.flush()


@variable.command("set")
@click.argument("identifier")
@click.option("--file", "file", type=click.File("rb"), help="File that holds the value; - is standard input.")
@over_http
async def set_value(connection: Connection, identifier: str, file: IO[bytes] | None) -> None:
    """Set the value of variable IDENTIFIER, which keeps its older versions.

    The value comes from --file, or else from standard input; on a terminal it is asked for, without an echo. It is taken as
    it is: mind the newline that echo adds.
    """
    if file is None and sys.stdin.isatty():
        value = click.prompt("Value", hide_input=True, confirmation_prompt=True).encode()
    else:
        value = (file or sys.stdin.buffer).read()
    (await connection.call("POST", _path(connection, identifier), value)).expect(201)
    click.echo(f"The value of {identifier} is set.", err=True)

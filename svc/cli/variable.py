"""Commands that read and write secrets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO

import click

from svc.cli.connection import ApiConnection, over_http, query
from svc.cli.kept_login import write_private
from svc.cli.options import FILE


@click.group()
def variable() -> None:
    """Read and write the values of variables."""


def _path(connection: ApiConnection, identifier: str) -> str:
    return connection.path("secrets", connection.account, "variable", identifier)


@variable.command()
@click.argument("identifier")
@click.option("--version", type=click.IntRange(min=1), help="An older version than the newest.")
@click.option(
    "--output", type=FILE, help="File to write the value to, which nobody else may read; one that is there is replaced."
)
@click.option("--tag", is_flag=True, help="Print the tag of the value instead, as `svc variable set --if-match` takes it.")
@over_http
async def get(connection: ApiConnection, identifier: str, version: int | None, output: Path | None, tag: bool) -> None:
    """Write the value of variable IDENTIFIER to standard output: its exact bytes, without a newline of our own."""
    if tag:
        if output is not None:
            raise click.UsageError("--tag writes no value, so that there is nothing for --output")
        answer = await connection.call("HEAD", _path(connection, identifier) + query(version=version))
        click.echo(answer.expect(200).headers.get("etag", ""))
        return
    value = await (await connection.workload()).secret(identifier, version)
    if output is not None:
        try:
            write_private(output, value)
        except OSError as error:
            raise click.ClickException(f"{output} cannot be written: {error.strerror}") from None
    else:
        sys.stdout.buffer.write(value)
        sys.stdout.buffer.flush()


@variable.command("set")
@click.argument("identifier")
@click.option("--file", "file", type=click.File("rb"), help="File that holds the value; - is standard input.")
@click.option("--if-match", metavar="TAG", help="Replace this value alone, as `svc variable get --tag` tells it.")
@click.option("--create-only", is_flag=True, help="Set a value only where there is none.")
@over_http
async def set_value(
    connection: ApiConnection, identifier: str, file: IO[bytes] | None, if_match: str | None, create_only: bool
) -> None:
    """Set the value of variable IDENTIFIER, which keeps its older versions.

    The value comes from --file, or else from standard input; on a terminal it is asked for, without an echo. It is taken as
    it is: mind the newline that echo adds. There is no way to give it on the command line, where all users of the machine
    could read it.
    """
    if if_match is not None and create_only:
        raise click.UsageError("--create-only sets a first value, and --if-match replaces one: give one of them")
    if file is None and sys.stdin.isatty():
        value = click.prompt("Value", hide_input=True, confirmation_prompt=True).encode()
    else:
        value = (file or sys.stdin.buffer).read()
    demands = {"If-Match": if_match} if if_match is not None else {"If-None-Match": "*"} if create_only else {}
    (await connection.call("POST", _path(connection, identifier), value, **demands)).expect(201)
    click.echo(f"The value of {identifier} is set.", err=True)


@variable.command()
@click.argument("identifier")
@over_http
async def rotate(connection: ApiConnection, identifier: str) -> None:
    """Have variable IDENTIFIER be rotated now, if policy says how; where it doesn't, have its values not expire.

    The new value is there within moments. `svc list --kind variable --json` tells what kept it from being rotated.
    """
    (await connection.call("POST", f"{_path(connection, identifier)}?expirations")).expect(201)
    click.echo(f"{identifier} is due.", err=True)

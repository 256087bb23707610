"""Commands that ask about resources: which there are, and what may be done with them."""

from __future__ import annotations

from typing import Any, Final

import click

from svc.cli.connection import ApiConnection, authenticated_command, build_query
from svc.cli.options import AS_JSON
from svc.cli.table import print_result

#: Resources that the server lists by default (RES-5).
DEFAULT_LIMIT: Final = 1000


def _full_role_id(connection: ApiConnection, role: str | None) -> str | None:
    """Return the full id of a role that may lack its account; anything else is left for the server to check."""
    return role if role is None or role.count(":") != 1 else f"{connection.account}:{role}"


@click.command()
@click.option("--kind", help="Only resources of this kind: variable, host, group, policy, webservice …")
@click.option("--search", help="Only those that have these words in their id, kind or annotations.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many; 1000 by default.")
@click.option("--offset", type=click.IntRange(min=0), help="Skip so many first.")
@click.option("--role", metavar="KIND:ID", help="What this role sees, which you must hold, instead of what you see.")
@click.option("--count", is_flag=True, help="Print how many there are instead.")
@AS_JSON
@authenticated_command
async def list(  # noqa: A001 (the command is called so)
    connection: ApiConnection, role: str | None, count: bool, as_json: bool, **asked: Any
) -> None:
    """List the resources that you see, with their owners."""
    asked |= {"role": _full_role_id(connection, role), "count": count}
    path = connection.encode_path("resources", connection.account) + build_query(**asked)
    answer = (await connection.request_with_token("GET", path)).expect(200).json()
    if count and not as_json:
        click.echo(answer["count"])
    else:
        own = f"{connection.account}:"
        rows = ((found["id"].removeprefix(own), found["owner"].removeprefix(own)) for found in answer)
        empty = "You see no such resource." if any(asked.values()) else "You see no resource."
        print_result(as_json, answer, ("RESOURCE", "OWNER"), rows, empty)
    if not count and asked["limit"] is None and asked["offset"] is None and len(answer) == DEFAULT_LIMIT:
        click.echo(
            f"These are the first {DEFAULT_LIMIT}; --offset {DEFAULT_LIMIT} --limit {DEFAULT_LIMIT} has those after them",
            err=True,
        )


def _read_question(first: str, second: str) -> tuple[str, str, str]:
    """Return the privilege that is asked about, and the kind and id of the resource, in whichever order they were given."""
    if ":" in first and ":" in second:
        message = (
            f"{first} and {second} both have a colon, so either may be the resource: one of them is a privilege, such as"
            " execute; `svc can ROLE PRIVILEGE RESOURCE` asks about a role"
        )
        raise click.UsageError(message)
    resource, privilege = (first, second) if ":" in first else (second, first)
    kind, _, identifier = resource.partition(":")
    if not (kind and identifier):
        raise click.UsageError("a resource is written KIND:ID, such as variable:db/password")
    return privilege, kind, identifier


@click.command()
@click.argument("first", metavar="PRIVILEGE")
@click.argument("second", metavar="KIND:ID")
@click.option("--role", metavar="KIND:ID", help="Whether this role may, which you must hold, instead of yourself.")
@authenticated_command
async def check(connection: ApiConnection, first: str, second: str, role: str | None) -> None:
    """Print whether you have PRIVILEGE on a resource, such as variable:db/password: "yes", or "no" with exit code 1.

    A resource that you don't see can't be told from one that doesn't exist: that is an error, with exit code 1 too.

    The resource may come first, too: it is the one with the colon. `svc can` asks about any role, and says why.

    Example: svc check execute variable:db/password
    """
    privilege, kind, identifier = _read_question(first, second)
    path = connection.encode_path("resources", connection.account, kind, identifier)
    asked = build_query(check=True, privilege=privilege, role=_full_role_id(connection, role))
    answer = await connection.request_with_token("GET", path + asked)
    if answer.status == 404 and not answer.body:
        click.echo("no")
        raise click.exceptions.Exit(1)
    answer.expect(204)
    click.echo("yes")

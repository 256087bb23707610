"""The command that lists who reads a secret, and the warning of commands that change one."""

from __future__ import annotations

from typing import Any, Final

import click

from svc.cli.connection import ApiConnection, authenticated_command, build_query
from svc.cli.expiring import ALL, LIMIT, fetch_pages, print_continuation
from svc.cli.options import AS_JSON, parse_lifetime
from svc.cli.table import escape_text, print_result

#: The days of a warning, and the most readers that it names.
_WARNED_DAYS: Final = 30
_NAMED: Final = 3


@click.command()
@click.argument("identifier", metavar="VARIABLE")
@click.option("--since", callback=parse_lifetime, help="Only who read it in this time: 12h, 30d. Whole days count, in UTC.")
@LIMIT
@ALL
@AS_JSON
@authenticated_command
async def readers(
    connection: ApiConnection, identifier: str, since: int | None, limit: int, everything: bool, as_json: bool
) -> None:
    """List the roles that have read a variable, those that did last first: before you rotate or delete it, for example.

    You need to own or inspect it. Batches, watches, answers without a value to clients that have it already, the console and
    agents count as reads; each appears within a minute, and within two where a follower answered.

    Example: svc readers shop/database/password --since 30d
    """
    answer = await fetch_pages(
        connection,
        _api_path(connection, identifier),
        {"readers": True, "since": since},
        "readers",
        None if everything else limit,
    )
    rows = (
        (found["role"].partition(":")[2], found["last_read"], str(len(found["days"])), str(found["count"]))
        for found in answer["readers"]
    )
    print_result(as_json, answer, ("ROLE", "LAST READ", "DAYS OF 64", "READS"), rows, "Nobody is known to have read it.")
    if not answer["certain"]:
        click.echo(describe_uncertainty(answer), err=True)
    print_continuation(answer)


async def warn_of_readers(connection: ApiConnection, identifier: str) -> None:
    """Print on standard error who has read a variable in the last 30 days, where the caller may know."""
    asked = build_query(readers=True, since=_WARNED_DAYS * 86_400, limit=1000)
    answer = await connection.request_with_token("GET", _api_path(connection, identifier) + asked)
    # An older server answers with the variable.
    if answer.status == 200 and "readers" in answer.json():
        click.echo(describe_recent(answer.json()), err=True)


def describe_recent(answer: dict[str, Any]) -> str:
    """Return the sentence of who has read a variable in the last 30 days."""
    names = [escape_text(found["role"].partition(":")[2]) for found in answer["readers"]]
    within = f"in the last {_WARNED_DAYS} days"
    if not names:
        sentence = f"Nobody has read it {within}."
    else:
        number = f"{len(names)}{' or more' if answer['after'] is not None else ''}"
        roles = "role has" if number == "1" else "roles have"
        others = "" if len(names) <= _NAMED else " and others"
        sentence = f"{number} {roles} read it {within}: {', '.join(names[:_NAMED])}{others}."
    return sentence if answer["certain"] else f"{sentence} {describe_uncertainty(answer)}"


def describe_uncertainty(answer: dict[str, Any]) -> str:
    """Return why there may be more reads than are counted."""
    if answer["missing"]:
        return f"That is uncertain: counts of these servers are missing: {', '.join(map(escape_text, answer['missing']))}."
    return f"That is uncertain: reads are known since {answer['kept_since'][:10]}, and some may not have been counted."


def _api_path(connection: ApiConnection, identifier: str) -> str:
    return connection.encode_path("resources", connection.account, "variable", identifier)

"""Commands that list expiring credentials and inactive roles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from svc.cli.connection import ApiConnection, authenticated_command, build_query
from svc.cli.options import AS_JSON, parse_lifetime
from svc.cli.table import escape_text, print_result

#: How many things a page has.
PAGE: Final = 1000

LIMIT: Final = click.option("--limit", type=click.IntRange(min=1), default=PAGE, show_default=True, help="At most so many.")
ALL: Final = click.option("--all", "everything", is_flag=True, help="All, however many there are.")

#: The kinds, and what each ends with.
_VERBS: Final = {
    "certificate": "expires",
    "signing-key": "retires",
    "provider-keys": "are dropped",
    "api-key": "expires",
    "host-factory-token": "expires",
    "rotation": "is rotated",
    "value": "expires",
}


@click.command()
@click.option("--within", callback=parse_lifetime, default="30d", show_default=True, help="How far ahead: 12h, 30d.")
@click.option(
    "--age",
    callback=parse_lifetime,
    default="365d",
    show_default=True,
    help="Keys that have no end are listed when they become so old.",
)
@click.option("--kind", type=click.Choice(list(_VERBS)), multiple=True, help="Can be repeated.")
@LIMIT
@ALL
@AS_JSON
@authenticated_command
async def expiring(
    connection: ApiConnection, within: int, age: int, kind: Sequence[str], limit: int, everything: bool, as_json: bool
) -> None:
    """List what ends soon: values and their rotations, tokens of host factories, API keys, signing keys, certificates.

    Example: svc expiring --within 30d --kind value --kind rotation
    """
    asked = {"within": within, "age": age, "kind": kind}
    answer = await fetch_pages(connection, "/expiring", asked, "expiring", None if everything else limit)
    rows = (
        (found["at"][:19] + "Z", found["kind"], _describe_item(found), _describe_reason(found))
        for found in answer["expiring"]
    )
    print_result(as_json, answer, ("WHEN", "KIND", "WHAT", "WHY"), rows, "You see nothing that ends so soon.")
    print_continuation(answer)


@click.command()
@click.option(
    "--since", callback=parse_lifetime, default="90d", show_default=True, help="For how long there was no login, or no read."
)
@click.option("--secrets", is_flag=True, help="Variables that nobody has read, instead of roles.")
@LIMIT
@ALL
@AS_JSON
@authenticated_command
async def unused(connection: ApiConnection, since: int, secrets: bool, limit: int, everything: bool, as_json: bool) -> None:
    """List the users and hosts that have not logged in for long, those first that never have.

    Logins at followers aren't counted. With --secrets the list is of variables whose values nobody has read for so long,
    among those that you own or inspect; reads at followers are counted.

    Example: svc unused --since 90d

    Example: svc unused --secrets --since 90d
    """
    if secrets:
        answer = await fetch_pages(
            connection, "/unused", {"secrets": True, "since": since}, "unused", None if everything else limit
        )
        rows = (
            (
                found["variable"].split(":", 2)[2],
                found["last_read"] or "none",
                found["created_at"][:10],
                "" if found["certain"] else f"not known before {found['unread_since']}",
            )
            for found in answer["unused"]
        )
        empty = "All variables that you own or inspect were read, or made, since."
        print_result(as_json, answer, ("VARIABLE", "LAST READ", "MADE", "NOTE"), rows, empty)
        if answer["missing"]:
            missing = ", ".join(map(escape_text, answer["missing"]))
            click.echo(f"This is uncertain: counts of these servers are missing: {missing}.", err=True)
        elif not all(found["certain"] for found in answer["unused"]):
            click.echo(
                f"This is uncertain: reads are known since {answer['kept_since'][:10]}, and some may not have been counted.",
                err=True,
            )
        print_continuation(answer)
        return
    answer = await fetch_pages(connection, "/unused", {"since": since}, "unused", None if everything else limit)
    rows = (
        (
            found["role"].partition(":")[2],
            found["last_login"] or "none",
            found["created_at"][:10],
            "" if found["certain"] else f"not known before {found['idle_since']}",
        )
        for found in answer["unused"]
    )
    empty = "All users and hosts that you see have logged in, or were made, since."
    print_result(as_json, answer, ("ROLE", "LAST LOGIN", "MADE", "NOTE"), rows, empty)
    if not all(found["certain"] for found in answer["unused"]):
        click.echo(f"Last logins are kept since {answer['kept_since'][:10]}: older ones aren't known.", err=True)
    if answer["followers"]:
        click.echo(f"Logins at followers aren't counted: {', '.join(map(escape_text, answer['followers']))}.", err=True)
    print_continuation(answer)


async def fetch_pages(
    connection: ApiConnection, path: str, asked: dict[str, Any], field: str, most: int | None
) -> dict[str, Any]:
    """Return a list of at most so many, in one answer."""
    found: list[Any] = []
    after: str | None = None
    while True:
        limit = PAGE if most is None else min(PAGE, most - len(found))
        answer = await connection.request_with_token("GET", path + build_query(**asked, limit=limit, after=after))
        page: dict[str, Any] = answer.expect(200).json()
        found += page[field]
        after = page["after"]
        if after is None or len(found) == most:
            return {**page, field: found}


def _describe_item(found: dict[str, Any]) -> str:
    name = found["id"].partition(":")[2] or found["id"]
    return f"{name} ({found['part']})" if "part" in found else name


def _describe_reason(found: dict[str, Any]) -> str:
    if found["by_age"]:
        return f"old: since {found['since'][:10]}"
    why = _VERBS.get(found["kind"], "ends")
    if "failures" in found:
        why += f", after {found['failures']} failures"
    return f"{why}: {found['fault']}" if "fault" in found else why


def print_continuation(answer: dict[str, Any]) -> None:
    """Print that a list goes on, where it does."""
    if answer["after"] is not None:
        click.echo("There are more: ask for them with a larger --limit, or --all.", err=True)

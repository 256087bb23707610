"""Commands that ask about roles."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from svc.cli.connection import ApiAnswer, ApiConnection, over_http
from svc.cli.table import plain, print_table

#: How many rows a page has when all pages are asked for.
PAGE: Final = 1000

_NEXT: Final = re.compile('<(/roles/[^>]*)>; rel="next"')

_ROLE = click.argument("role_id", metavar="KIND:ID")
_KIND = click.option(
    "--kind", "kinds", multiple=True, help="Only this kind: user, host, group, layer, policy, host_factory. Can be repeated."
)
_SEARCH = click.option("--search", help="Only those that match all of these words, by their id, annotations or kind.")
_COUNT = click.option("--count", is_flag=True, help="Print how many there are instead.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the server's JSON.")


@click.group()
def role() -> None:
    """Ask who belongs to a role, and what it belongs to."""


@role.command()
@_ROLE
@_KIND
@_SEARCH
@click.option("--limit", type=click.IntRange(min=1), help="At most so many; with --all-pages, so many at a time.")
@click.option("--offset", type=click.IntRange(min=0), help="Skip so many first.")
@click.option("--all-pages", is_flag=True, help="Fetch one page after another, to the end.")
@click.option("--transitive", is_flag=True, help="Members of members too, each with a way by which it is one.")
@_COUNT
@_JSON
@over_http
async def members(
    connection: ApiConnection,
    role_id: str,
    kinds: Sequence[str],
    search: str | None,
    limit: int | None,
    offset: int | None,
    all_pages: bool,
    transitive: bool,
    count: bool,
    as_json: bool,
) -> None:
    """List the direct members of a role, such as group:ops; with --transitive, all that hold it.

    Example: svc role members group:ops --kind host --search "web blue" --limit 20
    """
    if all_pages and not count:
        limit = limit or PAGE
    asked = [
        ("members", None),
        *_narrowed(kinds, search, count),
        *([("transitive", "true")] if transitive else []),
        *([("limit", str(limit))] if limit else []),
        *([("offset", str(offset))] if offset is not None else []),
    ]
    answer = await _ask(connection, role_id, asked)
    found = answer.json()
    while all_pages and (following := _NEXT.fullmatch(answer.headers.get("link", ""))):
        answer = (await connection.call("GET", following[1])).expect(200)
        found += answer.json()
    if as_json or count:
        _print_json(found, count and not as_json)
    elif transitive:
        print_table(
            ("MEMBER", "BY WAY OF"), [(_short(row["member"]), " > ".join(map(_short, row["path"][1:-1]))) for row in found]
        )
    else:
        print_table(("MEMBER", "NOTES"), [(_short(row["member"]), _notes(row)) for row in found])


@role.command()
@_ROLE
@_KIND
@_SEARCH
@_COUNT
@_JSON
@over_http
async def memberships(
    connection: ApiConnection, role_id: str, kinds: Sequence[str], search: str | None, count: bool, as_json: bool
) -> None:
    """List the roles that a role is a direct member of, or owns.

    Example: svc role memberships host:web/blue --kind group
    """
    found = (await _ask(connection, role_id, [("memberships", None), *_narrowed(kinds, search, count)])).json()
    if as_json or count:
        _print_json(found, count and not as_json)
    else:
        print_table(("ROLE", "NOTES"), [(_short(row["role"]), _notes(row)) for row in found])


@role.command()
@_ROLE
@_JSON
@over_http
async def show(connection: ApiConnection, role_id: str, as_json: bool) -> None:
    """Show a role: when it was made, by which policy, and its direct members.

    Example: svc role show policy:web
    """
    found = (await _ask(connection, role_id, [])).json()
    if as_json:
        _print_json(found)
        return
    rows = [("role", _short(found["id"])), ("created at", found["created_at"])]
    rows += [("policy", _short(found["policy"]))] if "policy" in found else []
    rows += [("member", f"{_short(row['member'])}  {_notes(row)}".rstrip()) for row in found["members"]]
    print_table(("WHAT", "VALUE"), rows)


@role.command()
@_ROLE
@click.option("--dot", is_flag=True, help="Print a graph in the language of Graphviz.")
@_JSON
@over_http
async def graph(connection: ApiConnection, role_id: str, dot: bool, as_json: bool) -> None:
    """List who is a member of what around a role: above it, below it, and beside it, as far as you may see.

    Example: svc role graph group:ops --dot | dot -Tsvg > ops.svg
    """
    found = (await _ask(connection, role_id, [("graph", None)])).json()
    if as_json:
        _print_json(found)
    elif dot:
        click.echo("digraph roles {\n    rankdir = LR;\n    node [shape = box];")
        for edge in found:
            click.echo(f"    {_quoted(_short(edge['parent']))} -> {_quoted(_short(edge['child']))};")
        click.echo("}")
    else:
        print_table(("ROLE", "MEMBER"), [(_short(edge["parent"]), _short(edge["child"])) for edge in found])


async def _ask(connection: ApiConnection, role_id: str, parameters: Sequence[tuple[str, str | None]]) -> ApiAnswer:
    kind, colon, identifier = role_id.partition(":")
    if not colon:
        raise click.UsageError("a role is written KIND:ID, such as group:ops")
    path = "".join(f"/{connection.segment(part)}" for part in ("roles", connection.account, kind, identifier))
    query = "&".join(name if value is None else f"{name}={connection.segment(value)}" for name, value in parameters)
    return (await connection.call("GET", f"{path}?{query}" if query else path)).expect(200)


def _narrowed(kinds: Sequence[str], search: str | None, count: bool) -> list[tuple[str, str | None]]:
    return [
        *(("kind", kind) for kind in kinds),
        *([] if search is None else [("search", search)]),
        *([("count", "true")] if count else []),
    ]


def _short(name: str) -> str:
    """Return a full id without the account, which is known."""
    return name.partition(":")[2]


def _notes(row: Mapping[str, Any]) -> str:
    notes = [note for note, holds in (("owner", row["ownership"]), ("may grant", row["admin_option"])) if holds]
    return f"({', '.join(notes)})" if notes else ""


def _quoted(text: str) -> str:
    """Return a text as an identifier of Graphviz."""
    text = plain(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _print_json(found: Any, count: bool = False) -> None:
    click.echo(found["count"] if count else json.dumps(found, indent=2))

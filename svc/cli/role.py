"""Commands that ask about roles, and that revoke what they have logged in with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from svc.cli.connection import ApiAnswer, ApiConnection, authenticated_command, build_query
from svc.cli.options import AS_JSON
from svc.cli.table import escape_text, print_result

#: How many rows a page has when all pages are requested.
PAGE: Final = 1000

_NEXT: Final = re.compile('<(/roles/[^>]*)>; rel="next"')

_ROLE = click.argument("role_id", metavar="KIND:ID")
_KIND = click.option(
    "--kind", multiple=True, help="Only this kind: user, host, group, layer, policy, host_factory. Can be repeated."
)
_SEARCH = click.option("--search", help="Only those that match all of these words, by their id, annotations or kind.")
_COUNT = click.option("--count", is_flag=True, help="Print how many there are instead.")


@click.group()
def role() -> None:
    """Ask who belongs to a role, and what it belongs to; revoke its access tokens."""


@role.command()
@_ROLE
@_KIND
@_SEARCH
@click.option("--limit", type=click.IntRange(min=1), help="At most so many; with --all-pages, so many at a time.")
@click.option("--offset", type=click.IntRange(min=0), help="Skip so many first.")
@click.option("--all-pages", is_flag=True, help="Fetch one page after another, to the end.")
@click.option("--transitive", is_flag=True, help="Members of members too, each with a way by which it is one.")
@_COUNT
@AS_JSON
@authenticated_command
async def members(
    connection: ApiConnection, role_id: str, all_pages: bool, transitive: bool, count: bool, as_json: bool, **asked: Any
) -> None:
    """List the direct members of a role, such as group:ops; with --transitive, all that hold it.

    Example: svc role members group:ops --kind host --search "web blue" --limit 20
    """
    if all_pages and not count:
        asked["limit"] = asked["limit"] or PAGE
    answer = await _fetch_role(connection, role_id, members="", count=count, transitive=transitive, **asked)
    found = answer.json()
    while all_pages and (following := _NEXT.fullmatch(answer.headers.get("link", ""))):
        answer = (await connection.request_with_token("GET", following[1])).expect(200)
        found += answer.json()
    if transitive:
        rows = ((_short_id(row["member"]), " > ".join(map(_short_id, row["path"][1:-1]))) for row in found)
        _print_rows(found, count, as_json, ("MEMBER", "BY WAY OF"), rows, "Nobody holds it.")
    else:
        _print_rows(found, count, as_json, ("MEMBER", "NOTES"), _member_rows(found, "member"), "It has no such member.")


@role.command()
@_ROLE
@_KIND
@_SEARCH
@_COUNT
@AS_JSON
@authenticated_command
async def memberships(
    connection: ApiConnection, role_id: str, kind: Sequence[str], search: str | None, count: bool, as_json: bool
) -> None:
    """List the roles that a role is a direct member of, or owns.

    Example: svc role memberships host:web/blue --kind group
    """
    found = (await _fetch_role(connection, role_id, memberships="", kind=kind, search=search, count=count)).json()
    _print_rows(found, count, as_json, ("ROLE", "NOTES"), _member_rows(found, "role"), "It is a member of no such role.")


@role.command()
@_ROLE
@AS_JSON
@authenticated_command
async def show(connection: ApiConnection, role_id: str, as_json: bool) -> None:
    """Show a role: when it was made, by which policy, when it logged in last, and its direct members.

    Example: svc role show policy:web
    """
    found = (await _fetch_role(connection, role_id)).json()
    rows = [("role", _short_id(found["id"])), ("created at", found["created_at"])]
    rows += [("policy", _short_id(found["policy"]))] if "policy" in found else []
    if "last_login" in found:
        rows.append(("last login", found["last_login"]["day"] or f"none since {found['last_login']['kept_since'][:10]}"))
    rows += [("member", f"{name}  {notes}".rstrip()) for name, notes in _member_rows(found["members"], "member")]
    print_result(as_json, found, ("WHAT", "VALUE"), rows)


@role.command()
@_ROLE
@click.option("--dot", is_flag=True, help="Print a graph in the language of Graphviz.")
@AS_JSON
@authenticated_command
async def graph(connection: ApiConnection, role_id: str, dot: bool, as_json: bool) -> None:
    """List who is a member of what around a role: above it, below it, and beside it, as far as you may see.

    Example: svc role graph group:ops --dot | dot -Tsvg > ops.svg
    """
    found = (await _fetch_role(connection, role_id, graph="")).json()
    edges = [(_short_id(edge["parent"]), _short_id(edge["child"])) for edge in found]
    if dot and not as_json:
        lines = (f"    {_quote_dot(parent)} -> {_quote_dot(child)};\n" for parent, child in edges)
        click.echo(f"digraph roles {{\n    rankdir = LR;\n    node [shape = box];\n{''.join(lines)}}}")
    else:
        print_result(as_json, found, ("ROLE", "MEMBER"), edges, "You see no members or memberships of it.")


@role.command("revoke-tokens")
@click.argument("role_id", metavar="[KIND:ID]", required=False)
@click.option("--whole-account", is_flag=True, help="Those of all roles of the account, yours too.")
@authenticated_command
async def revoke_tokens(connection: ApiConnection, role_id: str | None, whole_account: bool) -> None:
    """End all access tokens that a user or host has been given, and its sessions, on every server at once.

    It logs in again with its own credential, unless that is changed first: rotate a key that was stolen, then revoke. You
    need the privilege update on the role, unless it is you; with --whole-account, update on the root policy.

    Example: svc role revoke-tokens host:ci/runner
    """
    if (role_id is None) is not whole_account:
        raise click.UsageError("say whose tokens: KIND:ID, such as host:ci/runner, or --whole-account")
    if role_id is None:
        (
            await connection.request_with_token("DELETE", connection.encode_path("accounts", connection.account, "tokens"))
        ).expect(204)
        click.echo(
            f"All access tokens of the account {connection.account} are revoked, and all its sessions have ended.", err=True
        )
        return
    path = connection.encode_path("authn", connection.account, "tokens") + build_query(role=role_id)
    (await connection.request_with_token("DELETE", path)).expect(204)
    click.echo(f"The access tokens of {role_id} are revoked, and its sessions have ended.", err=True)


async def _fetch_role(connection: ApiConnection, role_id: str, **asked: Any) -> ApiAnswer:
    kind, _, identifier = role_id.partition(":")
    if not (kind and identifier):
        raise click.UsageError("a role is written KIND:ID, such as group:ops")
    path = connection.encode_path("roles", connection.account, kind, identifier)
    return (await connection.request_with_token("GET", path + build_query(**asked))).expect(200)


def _print_rows(
    found: Any, count: bool, as_json: bool, header: Sequence[str], rows: Iterator[Sequence[str]], empty: str
) -> None:
    if count and not as_json:
        click.echo(found["count"])
    else:
        print_result(as_json, found, header, rows, empty)


def _short_id(name: str) -> str:
    """Return a full id without the account, which is known."""
    return name.partition(":")[2]


def _member_rows(rows: Sequence[Mapping[str, Any]], who: str) -> Iterator[tuple[str, str]]:
    for row in rows:
        notes = [note for note, holds in (("owner", row["ownership"]), ("may grant", row["admin_option"])) if holds]
        yield _short_id(row[who]), f"({', '.join(notes)})" if notes else ""


def _quote_dot(text: str) -> str:
    """Return a text as an identifier of Graphviz."""
    text = escape_text(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'

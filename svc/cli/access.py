"""Commands that ask who can do what, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from svc.cli.connection import ApiConnection, authenticated_command, build_query
from svc.cli.options import AS_JSON
from svc.cli.table import escape_text, print_json, print_result
from svc.model.access import PathStep, StepKind, describe_path

_LIMIT = click.option("--limit", type=click.IntRange(1, 1000), help="At most so many; 100 by default.")
_AFTER = click.option("--after", help="Go on where the last page ended, as that said.")
_ALL_PAGES = click.option("--all-pages", is_flag=True, help="Fetch one page after another, to the end.")


@click.command("who-can")
@click.argument("privilege")
@click.argument("resource_id", metavar="KIND:ID")
@click.option("--direct", is_flag=True, help="Only the owner, and the roles that are permitted it themselves.")
@click.option("--count", is_flag=True, help="Print how many there are instead.")
@_LIMIT
@_AFTER
@_ALL_PAGES
@AS_JSON
@authenticated_command
async def who_can(
    connection: ApiConnection,
    privilege: str,
    resource_id: str,
    direct: bool,
    count: bool,
    limit: int | None,
    after: str | None,
    all_pages: bool,
    as_json: bool,
) -> None:
    """List the roles that have PRIVILEGE on a resource, and how each comes to it: the nearest first, by a shortest way.

    Example: svc who-can execute variable:db/password
    """
    path = _api_path(connection, "resources", resource_id)
    asked: dict[str, Any] = {"who_can": True, "privilege": privilege, "direct": direct}
    if count:
        number = (await connection.request_with_token("GET", path + build_query(**asked, count=True))).expect(200).json()
        if as_json:
            print_json(number)
        else:
            click.echo(number["count"])
        return
    answer = await _fetch_pages(connection, path, asked, "holders", limit, after, all_pages)
    rows = ((_short_id(holder["role"]), describe_path(_parse_path(holder["way"]))) for holder in answer["holders"])
    empty = f"You see nobody who has {escape_text(privilege)} on {escape_text(resource_id)}."
    print_result(as_json, answer, ("ROLE", "WHY"), rows, empty)
    _print_continuation(answer, as_json)


@click.command()
@click.argument("role_id", metavar="ROLE")
@click.argument("privilege")
@click.argument("resource_id", metavar="KIND:ID")
@AS_JSON
@authenticated_command
async def can(connection: ApiConnection, role_id: str, privilege: str, resource_id: str, as_json: bool) -> None:
    """Print whether a role, such as host:ci/runner, has PRIVILEGE on a resource, and why; "no" comes with exit code 1, and
    with what is missing.

    Example: svc can host:ci/runner execute variable:db/password
    """
    path = _api_path(connection, "resources", resource_id)
    asked = build_query(can=True, privilege=privilege, role=_full_id(connection, role_id))
    answer = (await connection.request_with_token("GET", path + asked)).expect(200).json()
    if as_json:
        print_json(answer)
    else:
        for line in _explain_answer(
            answer, escape_text(_short_id(_full_id(connection, role_id))), escape_text(privilege), escape_text(resource_id)
        ):
            click.echo(line)
    if not answer["can"]:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("role_id", metavar="ROLE")
@click.option(
    "--privilege", multiple=True, help="Only this privilege; read, execute and update by default. Can be repeated."
)
@_LIMIT
@_AFTER
@_ALL_PAGES
@AS_JSON
@authenticated_command
async def reach(
    connection: ApiConnection,
    role_id: str,
    privilege: Sequence[str],
    limit: int | None,
    after: str | None,
    all_pages: bool,
    as_json: bool,
) -> None:
    """List the resources that a role, such as user:alice, can read, execute or update, and how it comes to that.

    Example: svc reach user:alice --privilege execute
    """
    path = _api_path(connection, "roles", role_id)
    answer = await _fetch_pages(
        connection, path, {"reach": True, "privilege": privilege}, "resources", limit, after, all_pages
    )
    rows = (
        (_short_id(found["resource"]), ", ".join(found["privileges"]), _describe_path(found["way"]))
        for found in answer["resources"]
    )
    asked_for = " or ".join(map(escape_text, privilege)) or "read, execute or update"
    empty = f"There is nothing that you see and {escape_text(role_id)} can {asked_for}."
    print_result(as_json, answer, ("RESOURCE", "PRIVILEGES", "WHY"), rows, empty)
    _print_continuation(answer, as_json)


async def _fetch_pages(
    connection: ApiConnection,
    path: str,
    asked: dict[str, Any],
    field: str,
    limit: int | None,
    after: str | None,
    all_pages: bool,
) -> dict[str, Any]:
    """Return a page, or all from there on as one. One that has nothing, and goes on, is followed by the next in any case."""
    found: list[Any] = []
    while True:
        part = {"limit": 1000 if all_pages and limit is None else limit, "after": after}
        answer: dict[str, Any] = (
            (await connection.request_with_token("GET", path + build_query(**asked, **part))).expect(200).json()
        )
        found += answer[field]
        after = answer["after"]
        if after is None or (found and not all_pages):
            return {field: found, "after": after}


def _explain_answer(answer: dict[str, Any], role: str, privilege: str, resource: str) -> list[str]:
    """Return the lines that say whether a role can, and why or what is missing."""
    if answer["can"]:
        return [f"yes: {role} {escape_text(_describe_path(answer['way']))}"]
    lines = [f"no: {role} has no {privilege} on {resource}, and neither has a role that it holds"]
    if answer["privileges"]:
        lines.append(f"it has: {', '.join(map(escape_text, answer['privileges']))}")
    for step in answer["missing"]:
        has = "owns it" if step["by"] == StepKind.OWNER else f"is permitted {privilege}"
        lines.append(f"as a member of {escape_text(_short_id(step['role']))}, which {has}, it could")
    if not answer["missing"]:
        lines.append(f"you see no role that has {privilege} on it")
    return lines


def _describe_path(way: list[dict[str, Any]] | None) -> str:
    return "has it by a way that is too long to be found" if way is None else describe_path(_parse_path(way))


def _parse_path(steps: list[dict[str, Any]]) -> tuple[PathStep, ...]:
    return tuple(PathStep(step["role"], StepKind(step["by"])) for step in steps)


def _print_continuation(answer: dict[str, Any], as_json: bool) -> None:
    if answer["after"] is not None and not as_json:
        click.echo(f"There may be more: --all-pages has all, --after {answer['after']} goes on", err=True)


def _api_path(connection: ApiConnection, collection: str, name: str) -> str:
    kind, _, identifier = name.partition(":")
    if not (kind and identifier):
        what, example = ("role", "group:ops") if collection == "roles" else ("resource", "variable:db/password")
        raise click.UsageError(f"a {what} is written KIND:ID, such as {example}")
    return connection.encode_path(collection, connection.account, kind, identifier)


def _full_id(connection: ApiConnection, role: str) -> str:
    """Return the full id of a role that may lack its account; anything else is left for the server to check."""
    return role if role.count(":") != 1 else f"{connection.account}:{role}"


def _short_id(name: str) -> str:
    """Return a full id without the account, which is known."""
    return name.partition(":")[2]

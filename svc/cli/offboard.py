"""``svc offboard``: the end of a leaver's logins and memberships."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

import click

from svc.cli.connection import ApiConnection, authenticated_command
from svc.cli.options import AS_JSON
from svc.cli.readers import describe_uncertainty
from svc.cli.table import escape_text, print_json

_KIND = "user:"

_COULD_BE_READ: Final = "These variables could be read; rotate those whose values may be known:"


@click.command()
@click.argument("user")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.option("--dry-run", is_flag=True, help="Only show what would end and change.")
@AS_JSON
@authenticated_command
async def offboard(connection: ApiConnection, user: str, yes: bool, dry_run: bool, as_json: bool) -> None:
    """End all logins of a USER who leaves, and revoke the memberships, once you have seen what that changes.

    Access tokens, sessions, API key and password end, and each membership is revoked in the policy that made it: all at
    once, or nothing. It prints the policy that was written, for the repository from which you load it: otherwise the next
    load makes the memberships again. It also lists the variables that the user has read in the last 90 days, for you to
    rotate, and besides what it could read if it isn't certain what it has read. Reads of the last two minutes may be
    missing. The user stays, with its own permissions and what it owns: delete it by policy when that is settled.

    You need the privilege update on the user, and on each policy that made a membership.

    Example: svc offboard alice --dry-run

    Example: svc offboard alice
    """
    if yes and dry_run:
        raise click.UsageError("--yes does it, and --dry-run doesn't: give one of them")
    if as_json and not (yes or dry_run):
        raise click.UsageError("--json asks nothing: give --yes or --dry-run with it")
    name = user.removeprefix(_KIND)
    path = connection.encode_path("offboarding", connection.account, "user", name)
    if as_json and yes:
        print_json(await _do(connection, path, name))
        return
    plan = (await connection.request_with_token("GET", path)).expect(200).json()
    if as_json:
        print_json(plan)
        return
    _print_plan(plan)
    if dry_run:
        return
    denied = [_short_id(each["policy"]) for each in plan["policies"] if not each["may_update"]]
    if denied:
        raise click.ClickException(f"you may not update {', '.join(map(escape_text, denied))}: nothing was changed")
    if not yes:
        if not _on_terminal():
            raise click.ClickException("nothing was changed: off a terminal, --yes does it, and --dry-run only shows it")
        if not click.confirm(f"Offboard {escape_text(name)} now?", err=True):
            raise click.ClickException("nothing was changed")
    _print_done(await _do(connection, path, name))


def _on_terminal() -> bool:
    return sys.stdin.isatty()


async def _do(connection: ApiConnection, path: str, name: str) -> dict[str, Any]:
    shows = f"svc offboard {name} --dry-run"
    done: dict[str, Any] = (await connection.request_with_token("POST", path, b"", shows=shows)).expect(200).json()
    return done


def _print_plan(plan: Mapping[str, Any]) -> None:
    user = escape_text(_short_id(plan["user"]))
    sessions = {0: "no session", 1: "1 session"}.get(plan["sessions"], f"{plan['sessions']} sessions")
    click.echo(f"{user}: all access tokens, {sessions}, the API key and the password end.")
    for policy in plan["policies"]:
        mark = "" if policy["may_update"] else " (which you may not update)"
        click.echo(f"In {escape_text(_short_id(policy['policy']))}{mark} these memberships are revoked:")
        for grant in policy["revoked"]:
            click.echo(f"  {escape_text(_short_id(grant['role']))}{' (may grant it)' if grant['admin_option'] else ''}")
    if not plan["policies"]:
        click.echo("It is a member of nothing.")
    _print_names(f"What {user} owns stays so; give it to somebody else by policy:", plan["owns"], True)
    _print_variables(plan)


def _print_variables(found: Mapping[str, Any]) -> None:
    """Print the variables to rotate: those that were read, and those that could be, where it isn't certain what was."""
    variables, read = found["variables"], found.get("read")
    if read is None:  # an older server's
        _print_names(_COULD_BE_READ, variables["ids"], variables["complete"])
        return
    known = {each["variable"]: None for each in read["variables"]}
    since = escape_text(read["since"])
    if known:
        _print_names(f"These variables were read since {since}; rotate them:", [*known], True)
    else:
        click.echo(f"No variable {'was' if read['certain'] else 'is known to have been'} read since {since}.")
    if not read["complete"]:
        click.echo("  … and more than are listed")
    if read["certain"]:
        return
    if read["hidden"]:
        click.echo("Others were read, which you neither own nor inspect.")
    if read["missing"] or not read["hidden"]:
        click.echo(describe_uncertainty(read))
    others = [name for name in variables["ids"] if name not in known]
    _print_names(_COULD_BE_READ, others, variables["complete"])


def _print_done(done: Mapping[str, Any]) -> None:
    user = escape_text(_short_id(done["user"]))
    click.echo(f"{user} is offboarded: nothing that it logged in with works any more.")
    for policy in done["policies"]:
        name = escape_text(_short_id(policy["policy"]))
        click.echo(f"{name} has a version with this; if you load it from a repository, remove the grants there:")
        click.echo("".join(f"    {line}\n" for line in policy["document"].splitlines()), nl=False)
    remaining = done["remaining"]
    _print_names(
        f"By its own permissions and as an owner, {user} would still reach this, if a directory or provider let it in:",
        remaining["ids"],
        remaining["complete"],
    )


def _print_names(heading: str, names: list[str], complete: bool) -> None:
    if names or not complete:
        click.echo(heading)
        for name in names:
            click.echo(f"  {escape_text(_short_id(name))}")
    if not complete:
        click.echo("  … and more: `svc reach` has all")


def _short_id(name: str) -> str:
    """Return a full id without the account, which is known."""
    return name.partition(":")[2]

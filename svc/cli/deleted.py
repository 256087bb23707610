"""Commands about what policy deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Any, Final

import click

from svc.cli.connection import ApiConnection, authenticated_command, build_query
from svc.cli.options import AS_JSON
from svc.cli.table import escape_text, print_json, print_result, print_table
from svc.model.names import is_role_kind

#: How many records are listed, and restored or purged, by one request.
PAGE: Final = 1000
BATCH: Final = 100

#: Kinds that others belong to come first, so that grants between batches find both ends; other kinds than roles come last.
_FIRST: Final = ("policy", "group", "layer", "host_factory", "user", "host")

_SKIP_REASONS: Final = {
    "not-kept": "it is not kept, or not yours to have back",
    "owner-gone": "its owner is not there: restore that first",
    "other-owner": "what has its name now belongs to another owner or policy",
    "record-missing": "its variable is not there: restore or declare that first",
    "record-exists": "it is there already, and has no values to restore",
    "other-record": "its variable was deleted since: restore that instead of the new one of the name",
    "other-readers": "others than before may read the variable: deny them, restore, then permit them again",
    "newer-values": "the variable has been set since",
    "forbidden": "a policy around it belongs to others now",
    "too-much": "it is too much to come back with others at once: restore it by itself",
}

_HEADER: Final = ("NUMBER", "ID", "VERSIONS", "DELETED", "KEPT UNTIL", "WHY")

_BRANCH: Final = click.argument("branch")
_NUMBERS: Final = click.argument("numbers", nargs=-1, type=click.IntRange(1))


@click.group()
def deleted() -> None:
    """See what policy deleted, have it back, or purge it.

    Deleted records, and values that newer ones push out, are kept for a while (--deleted-retention of the server). They are
    for callers that may update the policy that they belonged to.
    """


@deleted.command("list")
@_BRANCH
@AS_JSON
@authenticated_command
async def list_deleted(connection: ApiConnection, branch: str, as_json: bool) -> None:
    """List what policy BRANCH (root, or the id of a policy) deleted, the newest first.

    Example: svc deleted list root
    """
    records = await _fetch_records(connection, branch)
    empty = f"Nothing that {escape_text(branch)} deleted can be restored."
    print_result(as_json, records, _HEADER, map(_record_row, records), empty)


@deleted.command()
@_BRANCH
@_NUMBERS
@click.option(
    "--all", "everything", is_flag=True, help="The last of each record that was deleted, without overwritten values."
)
@click.option("--recursive", is_flag=True, help="With --all: and what the policies held that come back, and so on.")
@AS_JSON
@authenticated_command
async def restore(
    connection: ApiConnection, branch: str, numbers: tuple[int, ...], everything: bool, recursive: bool, as_json: bool
) -> None:
    """Restore records that policy BRANCH deleted: those of these NUMBERS, as `svc deleted list` shows them.

    Roles come back without API keys, passwords and tokens, and without grants that other policies made. Values come back to
    the variable's owner of then. Records that can't be restored are reported, with the reason, and stay kept: it is safe to
    repeat.
    """
    _demand_choice(numbers, everything)
    if recursive and not everything:
        raise click.UsageError("--recursive is for --all")
    done: dict[str, list[Any]] = {"restored": [], "left": []}
    left_out, coming = 0, [branch]
    while coming:
        policy = coming.pop(0)
        try:
            chosen = list(numbers) if not everything else _newest_numbers(await _fetch_records(connection, policy))
        except click.ClickException as refusal:
            if policy == branch:
                raise
            # Only its own members see a policy that owns itself (POL-33).
            done["left"].append({"policy": policy, "reason": refusal.message})
            click.echo(f"The records of policy {escape_text(policy)} are left: {refusal.message}", err=True)
            continue
        for some in _split_batches(chosen):
            outcome = await _restore_records(connection, policy, some)
            done["restored"] += outcome["restored"]
            done["left"] += outcome["left"]
            left_out += outcome["rows_left_out"]
            if not as_json:
                _print_outcome(outcome)
            if recursive:
                ids = (record["id"].split(":", 2) for record in outcome["restored"])
                coming += [identifier for _, kind, identifier in ids if kind == "policy"]
    if as_json:
        print_json({**done, "rows_left_out": left_out})
    else:
        click.echo(f"{len(done['restored'])} restored, {len(done['left'])} left.", err=True)
        if left_out:
            text = "grants and permissions did not come back: load the document again, with authority over what they concern"
            click.echo(f"{left_out} {text}.", err=True)
    if done["left"]:
        raise click.exceptions.Exit(1)


async def _restore_records(connection: ApiConnection, policy: str, numbers: Sequence[int]) -> dict[str, Any]:
    """Have records back, in several requests where that is too much for one; return the outcome of all."""
    restored, left_out, coming = list[Any](), 0, list(numbers)
    while True:
        shows = f"svc deleted list {quote(policy)}"
        answer = await connection.request_with_token(
            "POST", _api_path(connection, policy) + build_query(number=coming), shows=shows
        )
        outcome = answer.expect(200).json()
        restored += outcome["restored"]
        left_out += outcome["rows_left_out"]
        left = {record["number"]: record["reason"] for record in outcome["left"]}
        # In the requested order: others wait for those that were too much.
        coming = [number for number in coming if number in left]
        if not outcome["restored"] or "too-much" not in left.values():
            return {**outcome, "restored": restored, "rows_left_out": left_out}


@deleted.command()
@_BRANCH
@_NUMBERS
@click.option("--all", "everything", is_flag=True, help="All that `svc deleted list` shows.")
@authenticated_command
async def purge(connection: ApiConnection, branch: str, numbers: tuple[int, ...], everything: bool) -> None:
    """Purge what policy BRANCH deleted, for good: the records of these NUMBERS, or with --all everything."""
    _demand_choice(numbers, everything)
    count = 0
    for some in [[]] if everything else _split_batches(list(numbers)):
        answer = await connection.request_with_token(
            "DELETE", _api_path(connection, branch) + build_query(number=some or None)
        )
        count += answer.expect(200).json()["purged"]
    click.echo(f"{count} purged.", err=True)


def _demand_choice(numbers: Sequence[int], everything: bool) -> None:
    if bool(numbers) == everything:
        raise click.UsageError("give the numbers that `svc deleted list` shows, or --all")


def _api_path(connection: ApiConnection, branch: str) -> str:
    return connection.encode_path("deleted", connection.account, "policy", branch)


async def _fetch_records(connection: ApiConnection, branch: str) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    while True:
        answer = await connection.request_with_token(
            "GET", _api_path(connection, branch) + build_query(limit=PAGE, offset=len(records))
        )
        page = answer.expect(200).json()
        records += page
        if len(page) < PAGE:
            return records


def _newest_numbers(records: Sequence[dict[str, Any]]) -> list[int]:
    """Return the numbers of the last deletion of each id, in the order in which they are to come back."""
    newest = {record["id"]: record for record in reversed(records) if not record["overwritten"]}
    order = {kind: place for place, kind in enumerate(_FIRST)}

    def kind_order(record: dict[str, Any]) -> int:
        kind = record["id"].split(":", 2)[1]
        return order.get(kind, len(order) + (not is_role_kind(kind)))

    return [record["number"] for record in sorted(newest.values(), key=kind_order)]


def _split_batches(numbers: Sequence[int]) -> Iterator[list[int]]:
    for start in range(0, len(numbers), BATCH):
        yield list(numbers[start : start + BATCH])


def _record_row(record: dict[str, Any]) -> Sequence[str]:
    versions, why = _format_versions(record), "overwritten" if record["overwritten"] else "deleted"
    return str(record["number"]), record["id"], versions, record["deleted_at"], record["kept_until"], why


def _print_outcome(outcome: dict[str, Any]) -> None:
    if outcome["restored"]:
        rows = [(str(record["number"]), record["id"], _format_versions(record)) for record in outcome["restored"]]
        print_table(("NUMBER", "RESTORED", "VERSIONS"), rows)
    for left in outcome["left"]:
        click.echo(f"{left['number']} is left: {_SKIP_REASONS.get(left['reason'], escape_text(left['reason']))}.", err=True)


def _format_versions(record: dict[str, Any]) -> str:
    return ",".join(map(str, record["versions"]))

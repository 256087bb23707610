"""Commands about the audit: the changes, by whom, and when."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import attrs
import click

from svc.cli.connection import ApiConnection, authenticated_command, build_query
from svc.cli.distributions import import_command, is_installed
from svc.cli.options import FILE, parse_moment
from svc.cli.table import escape_text, format_table, print_result
from svc.model.clocks import MachineClock, iso_milliseconds

#: Seconds between polls for new events, events in a page, the most that a server lists at a time, the most that are shown of
#: files, and pages that are read to find the last event that was shown.
POLL_INTERVAL: Final = 2.0
PAGE: Final = 100
SERVER_LIMIT: Final = 1000
MAX_LIMIT: Final = 1_000_000
MAX_PAGES: Final = 10

HEADER: Final = ("TIME", "WHAT", "OUTCOME", "FROM", "REQUEST", "EVENT")
_RECORD_HEADER: Final = ("TIME", "SERVER", *HEADER[1:])

_FILTERS: Final = (
    ("msgid", "--sort", "The sort of event: update, policy, membership, authn, host-factory, account …"),
    ("action@43868/operation", "--operation", "What was done: add, change, remove, update, create …"),
    ("auth@43868/user", "--who --user", "Who did it: the id of the role, user:alice."),
    ("client@43868/ip", "--from", "From which address."),
    ("procid", "--id --request", "In which request: its X-Request-Id."),
)

#: Commands that load the server's own parts, each in a module that has it.
_PROOF_COMMANDS: Final = ("verify", "anchor", "export-key")

_OUTCOMES: Final = ("success", "failure", "unknown")


class _AuditGroup(click.Group):
    """A group of which some commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands that are installed, in order."""
        return sorted({*super().list_commands(ctx), *(_PROOF_COMMANDS if is_installed("audit_proof") else ())})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name."""
        if cmd_name not in _PROOF_COMMANDS:
            return super().get_command(ctx, cmd_name)
        command = getattr(import_command("audit_proof", f"svc audit {cmd_name}"), f"{cmd_name.replace('-', '_')}_command")
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_AuditGroup)
def audit() -> None:
    """See what was done, by whom and when, and prove that the records of it are whole.

    A search asks the servers of the cluster for what their audit files have, logins and reads too. The owner of the root
    policy sees all of the account; others see what concerns a resource or role that they own. --file needs no server.
    """


def run_on_files(**options: Any) -> bool:
    """Do in files what a command is to do, if any are named, and return whether they are."""
    if "files" in options:
        options["files"] += options.pop("more")  # what a shell makes of --file audit.log*
    if not (options.get("files") or options.get("file")):
        return False
    import_command("audit_files", "svc audit --file").work(**options)
    return True


def _parse_moment_option(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:  # noqa: ARG001 (click's)
    return None if value is None else parse_moment(value, MachineClock().seconds(), end=parameter.name == "until")


def _filter_options(command: Any) -> Any:
    text = "What was done, or to what: an operation, a sort of event, or kind:id of a role or resource."
    command = click.option("--what", help=text)(command)
    command = click.option("--outcome", type=click.Choice(_OUTCOMES), help="How it ended.")(command)
    text = "From then on, or up to then: 2026-11-22, 2026-11-22T09:30:00Z, or 30m, 2h, 7d ago. Without a zone it is UTC."
    command = click.option("--until", callback=_parse_moment_option, help="Up to then; a date counts whole.")(command)
    command = click.option("--since", callback=_parse_moment_option, help=text)(command)
    for name, options, text in reversed(_FILTERS):
        command = click.option(*options.split(), name.replace("@43868/", "_"), help=text)(command)
    command = click.option("--role", help="Only events about this role: kind:id.")(command)
    command = click.option("--resource", help="Only events about this resource: kind:id.")(command)
    command = click.option("--about", help="Only events about this, as resource, role or member: kind:id.")(command)
    text = "Print the server's JSON, for tail an event a line."
    return click.option("--json", "as_json", is_flag=True, help=text)(command)


@audit.command()
@_filter_options
@click.option("--limit", type=click.IntRange(1, MAX_LIMIT), default=PAGE, show_default=True, help="How many, at most.")
@click.option("--after", help="Where a search ended, to go on from there.")
@click.option("--offset", type=click.IntRange(0), default=0, help="After how many, in files and with --changes.")
@click.option("--changes", is_flag=True, help="Ask the database instead, which has what was changed, for a year.")
@click.option("-f", "--file", "files", type=FILE, multiple=True, help="A server's audit file, also rotated or .gz; several.")
@click.argument("more", type=FILE, nargs=-1, metavar="[FILE]…")
@partial(authenticated_command, instead=run_on_files)
async def search(
    connection: ApiConnection,
    as_json: bool,
    limit: int,
    after: str | None,
    offset: int,
    changes: bool,
    **filters: Any,
) -> None:
    """List what was done, the newest first: all that the servers of the cluster recorded, logins and reads too.

    Each server searches its audit files. The exit code is 1 if one couldn't, or couldn't read a file; standard error has
    the reason. --changes asks the database, which has the changes of all servers, and --file searches files here.

    Example: svc audit search --what login --outcome failure --since 2h

    Example: svc audit search --changes --resource variable:app/password --who user:alice --since 7d

    Example: svc audit search --id r-42 --file /var/log/svc/audit.log
    """
    if changes:
        if after is not None:
            raise click.UsageError("--after is for audit files: go on by --offset with --changes")
        if limit > SERVER_LIMIT:
            raise click.UsageError(f"the database lists {SERVER_LIMIT} at a time: go on by --offset")
        events = await _fetch_events(connection, filters, limit, offset)
        print_result(as_json, events, HEADER, map(event_row, events))
        print_continuation(len(events) == limit, limit + offset)
        return
    if offset:
        raise click.UsageError("--offset is for --file and --changes: go on by --after, with what the search before printed")
    found = await _fetch_records(connection, filters, limit, after)
    print_result(as_json, found.records, _RECORD_HEADER, map(_record_row, found.records))
    if found.after is not None:
        click.echo(f"There are older ones: go on by --after {found.after}", err=True)
    for fault in found.faults:
        click.echo(escape_text(fault), err=True)
    if found.faults:
        click.echo("Records may be missing. --changes lists what changed something, whatever became of the files.", err=True)
        raise click.exceptions.Exit(1)


@attrs.frozen
class _FoundRecords:
    """Records, where to go on, and sentences about what may be missing."""

    records: list[dict[str, Any]]
    after: str | None
    faults: list[str]


async def _fetch_records(connection: ApiConnection, filters: dict[str, Any], limit: int, after: str | None) -> _FoundRecords:
    """Ask for records, page by page."""
    names = {"action_operation": "operation", "procid": "request", "auth_user": "user"}
    asked: dict[str, Any] = {names.get(name, name): value for name, value in filters.items() if value is not None}
    for name in ("user", "role", "resource", "about"):
        if name in asked:
            asked[name] = _full_id(connection, asked[name])
    for name in ("since", "until"):
        if name in asked:
            asked[name] = iso_milliseconds(asked[name])
    records: list[dict[str, Any]] = []
    faults: dict[str, None] = {}
    while True:
        page = min(limit - len(records), SERVER_LIMIT)
        path = "/audit/records" + build_query(limit=page, after=after, **asked)
        answer = await connection.request_with_token("GET", path)
        if answer.status == 404 and "no route" in answer.error_message:
            raise click.ClickException(
                "this server is older, and can't search its audit files over HTTP: use --changes or --file"
            )
        document = answer.expect(200).json()
        records += document["records"]
        after = document["after"]
        for server in document["servers"]:
            faults.update(dict.fromkeys(f"{server['server']}: {fault}" for fault in server["faults"]))
        if after is None or len(records) >= limit:
            return _FoundRecords(records, after, [*faults])


def _record_row(record: dict[str, Any]) -> Sequence[str]:
    time, *rest = event_row(record)
    return time, record["server"], *rest


def print_continuation(more: bool, offset: int) -> None:
    """Say how to go on, where a list was cut."""
    if more:
        click.echo(f"There may be older ones: go on by --offset {offset}.", err=True)


@audit.command()
@_filter_options
@click.option("--lines", type=click.IntRange(0, 1000), default=10, show_default=True, help="How many to begin with.")
@click.option("-f", "--file", type=FILE, help="A server's audit file; the one that takes its place when it is rotated, too.")
@partial(authenticated_command, instead=run_on_files)
async def tail(connection: ApiConnection, as_json: bool, lines: int, **filters: Any) -> None:
    """Show the last events, and those that come, the newest last. Ctrl-C ends it.

    Example: svc audit tail -f /var/log/svc/audit.log --outcome failure
    """
    seen: set[int] = set()
    events = await _fetch_events(connection, filters, max(lines, 1), 0)
    print_events(events[:lines], as_json)
    while True:
        seen = {event["number"] for event in events} or seen
        await connection.requester.sleep(POLL_INTERVAL)
        events = await _fetch_newer(connection, filters, seen)
        print_events([event for event in events if event["number"] not in seen], as_json)


async def _fetch_newer(connection: ApiConnection, filters: dict[str, Any], seen: set[int]) -> list[dict[str, Any]]:
    """Return the newest events, back to those that were seen: one that took longer may stand among these, unseen."""
    found: list[dict[str, Any]] = []
    oldest = min(seen, default=0)
    for page in range(MAX_PAGES):
        events = await _fetch_events(connection, filters, PAGE, page * PAGE)
        found += [event for event in events if event["number"] >= oldest]
        if len(events) < PAGE or events[-1]["number"] <= oldest:
            break
    return found


async def _fetch_events(connection: ApiConnection, filters: dict[str, Any], limit: int, offset: int) -> list[dict[str, Any]]:
    if (outcome := filters.get("outcome")) not in {None, "success"}:
        raise click.UsageError(f"the database has what was changed, and so no {outcome}: name the servers' files by --file")
    places = {"resource": "resources", "role": "roles", "about": "entities", "what": "entities"}
    given = {name: value for name in places if (value := filters.get(name)) is not None}
    what = given.pop("what") if ":" not in given.get("what", ":") else None
    if len(given) > 1:
        raise click.UsageError(f"--{' and --'.join(given)} can't be given together")
    path = "/audit"
    for name, value in given.items():
        path += connection.encode_path(places[name], _full_id(connection, value))
    narrowed: dict[str, object] = {name: filters.get(name.replace("@43868/", "_")) for name, _, _ in _FILTERS}
    if (user := filters.get("auth_user")) is not None:
        narrowed["auth@43868/user"] = _full_id(connection, user)
    bounds = {name: iso_milliseconds(at) for name in ("since", "until") if (at := filters.get(name)) is not None}
    answer = await connection.request_with_token(
        "GET", path + build_query(limit=limit, offset=offset, **narrowed, what=what, **bounds)
    )
    if answer.status == 404 and isinstance(none := answer.json(), list):
        return none
    events: list[dict[str, Any]] = answer.expect(200).json()
    return events


def _full_id(connection: ApiConnection, value: str) -> str:
    """Return a full id; a user like "svc", which is no role, as it is."""
    return f"{connection.account}:{value}" if value.count(":") == 1 else value


def event_row(event: dict[str, Any]) -> Sequence[str]:
    """Return the row of an event in a table."""
    action, client = event["sdata"].get("action@43868", {}), event["sdata"].get("client@43868", {})
    what = f"{event['msgid']} {action.get('operation', '')}"
    return event["timestamp"], what, action.get("result", ""), client.get("ip", ""), event["procid"], event["message"]


def print_events(events: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Print events, the newest last."""
    for event in reversed(events):
        if as_json:
            click.echo(json.dumps(event))
        elif sys.stdout.isatty():
            click.echo("  ".join(map(escape_text, event_row(event))))
        else:
            click.echo("\n".join(format_table(HEADER, [event_row(event)], terminal=False)))
    sys.stdout.flush()

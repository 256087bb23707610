"""Commands about the audit: what changed, by whom, and when."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, Final

import click
from twisted.internet.task import deferLater

from svc.cli.connection import ApiConnection, over_http, query
from svc.cli.table import plain, print_found, table

#: Seconds between looks for new events, events in a page, and pages that are read to find the last event that was shown.
PAUSE: Final = 2.0
PAGE: Final = 100
PAGES: Final = 10

_HEADER: Final = ("TIME", "WHAT", "OUTCOME", "FROM", "REQUEST", "EVENT")

_FILTERS: Final = (
    ("msgid", "--sort", "The sort of event: update, policy, membership, authn, host-factory, account …"),
    ("action@43868/operation", "--operation", "What was done: add, change, remove, update, create …"),
    ("auth@43868/user", "--user", "Who did it, by the full id of the role."),
    ("client@43868/ip", "--from", "From which address."),
    ("procid", "--request", "In which request: its X-Request-Id."),
)


@click.group()
def audit() -> None:
    """See what was changed, by whom and when.

    Who owns the root policy sees all of the account; others see what concerns a resource or role that they own. Logins
    and readings are in the server's audit file alone.
    """


def _filtered(command: Any) -> Any:
    for name, option, text in reversed(_FILTERS):
        command = click.option(option, name.replace("@43868/", "_"), help=text)(command)
    command = click.option("--role", help="Only events about this role: kind:id.")(command)
    command = click.option("--resource", help="Only events about this resource: kind:id.")(command)
    command = click.option("--about", help="Only events about this, as resource, role or member: kind:id.")(command)
    text = "Print the server's JSON, for tail an event a line."
    return click.option("--json", "as_json", is_flag=True, help=text)(command)


@audit.command()
@_filtered
@click.option("--limit", type=click.IntRange(1, 1000), default=PAGE, show_default=True, help="How many, at most.")
@click.option("--offset", type=click.IntRange(0), default=0, help="After how many.")
@over_http
async def search(connection: ApiConnection, as_json: bool, limit: int, offset: int, **filters: str | None) -> None:
    """List events, the newest first.

    Example: svc audit search --resource variable:app/password --user acme:user:alice
    """
    events = await _asked(connection, filters, limit, offset)
    print_found(as_json, events, _HEADER, map(_row, events))


@audit.command()
@_filtered
@click.option("--lines", type=click.IntRange(0, 1000), default=10, show_default=True, help="How many to begin with.")
@over_http
async def tail(connection: ApiConnection, as_json: bool, lines: int, **filters: str | None) -> None:
    """Show the last events, and those that come, the newest last. Ctrl-C ends it."""
    seen: set[int] = set()
    events = await _asked(connection, filters, max(lines, 1), 0)
    _show(events[:lines], as_json)
    while True:
        seen = {event["number"] for event in events} or seen
        await deferLater(connection.reactor, PAUSE)
        events = await _newer(connection, filters, seen)
        _show([event for event in events if event["number"] not in seen], as_json)


async def _newer(connection: ApiConnection, filters: dict[str, str | None], seen: set[int]) -> list[dict[str, Any]]:
    """Return the newest events, back to those that were seen: one that took longer may stand among these, unseen."""
    found: list[dict[str, Any]] = []
    oldest = min(seen, default=0)
    for page in range(PAGES):
        events = await _asked(connection, filters, PAGE, page * PAGE)
        found += [event for event in events if event["number"] >= oldest]
        if len(events) < PAGE or events[-1]["number"] <= oldest:
            break
    return found


async def _asked(connection: ApiConnection, filters: dict[str, str | None], limit: int, offset: int) -> list[dict[str, Any]]:
    places = {"resource": "resources", "role": "roles", "about": "entities"}
    given = {name: value for name in places if (value := filters.get(name)) is not None}
    if len(given) > 1:
        raise click.UsageError(f"--{' and --'.join(given)} can't be given together")
    path = "/audit"
    for name, value in given.items():
        path += connection.path(places[name], value if value.count(":") > 1 else f"{connection.account}:{value}")
    narrowed = {name: filters.get(name.replace("@43868/", "_")) for name, _, _ in _FILTERS}
    answer = await connection.call("GET", path + query(limit=limit, offset=offset, **narrowed))
    if answer.status == 404 and isinstance(none := answer.json(), list):
        return none
    events: list[dict[str, Any]] = answer.expect(200).json()
    return events


def _row(event: dict[str, Any]) -> Sequence[str]:
    action, client = event["sdata"]["action@43868"], event["sdata"]["client@43868"]
    what = f"{event['msgid']} {action['operation']}"
    return event["timestamp"], what, action["result"], client["ip"], event["procid"], event["message"]


def _show(events: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Print events, the newest last."""
    for event in reversed(events):
        if as_json:
            click.echo(json.dumps(event))
        elif sys.stdout.isatty():
            click.echo("  ".join(map(plain, _row(event))))
        else:
            click.echo("\n".join(table(_HEADER, [_row(event)], terminal=False)))
    sys.stdout.flush()

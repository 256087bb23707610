"""``svc explain-request``: which check refused a request, found by its id, in plain words, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from svc.cli.connection import ApiConnection, authenticated_command, build_query
from svc.cli.options import AS_JSON, FILE
from svc.cli.reason import describe_reason
from svc.cli.table import escape_text, print_json

#: Refusals and events that are shown of one request: a client may give many the same id.
_LIMIT: Final = 100

_NOT_FOUND: Final = (
    "a server keeps its own refusals for an hour, the database has changes, and the rest is in the servers' audit files:"
    " name these by --file. Of requests to another account nothing is shown: compare the account in the client's message."
    " Requests that were wrong in themselves, without an access token, leave no record"
)


def _explain_from_files(request_id: str, files: Sequence[Path], as_json: bool) -> bool:
    if not files:
        return False
    # The module that reads files takes time to load.
    from svc.cli.audit_files import find_request_events  # noqa: PLC0415

    events = [_summarize_event(event) for event in find_request_events(files, request_id, _LIMIT)]
    _print_findings(request_id, [], events, as_json, f"the files name no request {escape_text(request_id)}")
    return True


@click.command()
@click.argument("request_id", metavar="ID")
@click.option("-f", "--file", "files", type=FILE, multiple=True, help="A server's audit file, also rotated or .gz; several.")
@AS_JSON
@partial(authenticated_command, instead=_explain_from_files)
async def explain_request(connection: ApiConnection, request_id: str, files: Sequence[Path], as_json: bool) -> None:  # noqa: ARG001
    """Say which check refused the request ID, the X-Request-Id of its answer, and what to do.

    It is looked for among the server's recent refusals, then among the events in its database, or with --file in servers'
    audit files alone. This takes the right to see all of the account. The exit code is 1 when it is found nowhere.

    Example: svc explain-request 1f0c5a9be77d4c21
    """
    answer = await connection.request_with_token("GET", "/refusals" + build_query(request=request_id, limit=_LIMIT))
    recent = answer.expect(200).json()
    events: list[dict[str, Any]] = []
    if not recent["refusals"]:
        found = await connection.request_with_token("GET", "/audit" + build_query(procid=request_id, limit=_LIMIT))
        events = [_summarize_event(event) for event in found.expect(200, 404).json()]
    server, since = escape_text(recent["server"]), escape_text(recent["since"])
    missing = (
        f"the server {server} knows of no request {escape_text(request_id)} to the account {connection.account}"
        f" since {since}; {_NOT_FOUND}"
    )
    _print_findings(request_id, recent["refusals"], events, as_json, missing)


def _summarize_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of an event is shown."""
    action = event["sdata"].get("action@43868", {})
    return {
        "at": event["timestamp"],
        "what": f"{event['msgid']} {action.get('operation', '')}",
        "result": action.get("result", ""),
        "reason": action.get("reason"),
        "message": event["message"],
    }


def _print_findings(
    request_id: str, refusals: Sequence[dict[str, Any]], events: Sequence[dict[str, Any]], as_json: bool, missing: str
) -> None:
    """Print what was found.

    :raises click.ClickException: that is nothing.
    """
    if not refusals and not events:
        raise click.ClickException(missing)
    if as_json:
        print_json({"request": request_id, "refusals": refusals, "events": events})
        return
    for refused in refusals:
        _print_refusal(refused)
    for event in events:
        click.echo(escape_text(f"{event['at']}  {event['what']}  {event['result']}: {event['message']}"))
    if len(events) == _LIMIT:
        click.echo(f"(There may be more: these are {_LIMIT}. `svc audit search --id` has all.)")
    reasons = [found["reason"] for found in (*refusals, *events) if found["reason"]]
    for reason in dict.fromkeys(reasons):
        click.secho(f"\n{escape_text(reason)}", bold=True)
        click.echo(describe_reason(reason))
    if not reasons:
        click.echo("It was not refused.")


def _print_refusal(refused: Mapping[str, Any]) -> None:
    where = f"{refused['at']}  {refused['route']}, from {refused['client_ip']}"
    who = "" if refused["role"] is None else f", by {refused['role']}"
    service = "" if refused["service"] is None else f"/{refused['service']}"
    at = "" if refused["authenticator"] is None else f" at {refused['authenticator']}{service}"
    detail = f": {refused['detail']}" if refused["detail"] else ""
    click.echo(escape_text(where + who))
    click.secho(escape_text(f"refused{at}, {refused['reason']}{detail}"), fg="red")

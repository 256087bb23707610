"""Commands that ask about roles."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import click

from svc.cli.connection import Connection, over_http


@click.group()
def role() -> None:
    """Ask who belongs to a role."""


@role.command()
@click.argument("role_id", metavar="KIND:ID")
@click.option("--kind", help="Only members of this kind: user, host, group, layer, policy.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many.")
@click.option("--offset", type=click.IntRange(min=0), help="Skip so many first.")
@click.option("--count", is_flag=True, help="Print how many there are instead.")
@click.option("--json", "as_json", is_flag=True, help="Print the server's JSON.")
@over_http
async def members(
    connection: Connection, role_id: str, kind: str | None, limit: int | None, offset: int | None, count: bool, as_json: bool
) -> None:
    """List the direct members of a role, such as group:ops."""
    role_kind, colon, identifier = role_id.partition(":")
    if not colon:
        raise click.UsageError("a role is written KIND:ID, such as group:ops")
    asked = {"kind": kind, "limit": limit, "offset": offset, "count": "true" if count else None}
    query = urlencode({name: value for name, value in asked.items() if value is not None})
    path = "".join(f"/{connection.segment(part)}" for part in ("roles", connection.account, role_kind, identifier))
    answer = (await connection.call("GET", f"{path}?members" + (f"&{query}" if query else ""))).expect(200).json()
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    elif count:
        click.echo(answer["count"])
    else:
        for row in answer:
            notes = [note for note, holds in (("owner", row["ownership"]), ("may grant", row["admin_option"])) if holds]
            click.echo(row["member"].partition(":")[2] + (f"\t({', '.join(notes)})" if notes else ""))

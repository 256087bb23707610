"""Commands about sessions: where a user stays logged in."""

from __future__ import annotations

import click

from svc.cli.connection import ApiConnection, authenticated_command, build_query
from svc.cli.options import AS_JSON
from svc.cli.table import print_result

_ROLE = click.option("--role", help="Whose, such as user:alice, on which you need update; your own if left out.")


@click.group()
def sessions() -> None:
    """See where you stay logged in (`svc login --for`), and end that."""


@sessions.command("list")
@_ROLE
@AS_JSON
@authenticated_command
async def list_sessions(connection: ApiConnection, role: str | None, as_json: bool) -> None:
    """List sessions that can be renewed, with when and from which address each was used last.

    Example: svc sessions list --role user:alice
    """
    path = connection.encode_path("authn", connection.account, "sessions") + build_query(role=role)
    found = (await connection.request_with_token("GET", path)).expect(200).json()
    columns = ("id", "created_at", "ends_at", "used_at", "used_from")
    rows = ([session[column] for column in columns] for session in found)
    empty = "There is no session that can be renewed: `svc login --for 8h` opens one."
    print_result(as_json, found, ("ID", "SINCE", "UNTIL", "USED LAST", "FROM"), rows, empty)


@sessions.command()
@click.argument("session_id", metavar="[ID]", required=False)
@click.option("--all", "every", is_flag=True, help="All of them.")
@_ROLE
@authenticated_command
async def revoke(connection: ApiConnection, session_id: str | None, every: bool, role: str | None) -> None:
    """End a session, or with --all all of them: they can't be renewed any more.

    The access token that a session was given last lives on for some minutes. `svc role revoke-tokens` ends tokens and
    sessions at once.

    Example: svc sessions revoke --all --role user:alice
    """
    if (session_id is None) is not every:
        raise click.UsageError("say which session: an ID that `svc sessions list` shows, or --all")
    segments = ("authn", connection.account, "sessions", *filter(None, (session_id,)))
    (await connection.request_with_token("DELETE", connection.encode_path(*segments) + build_query(role=role))).expect(204)
    click.echo("All sessions have ended." if every else f"The session {session_id} has ended.", err=True)

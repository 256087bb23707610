"""Commands about host factories: tokens for machines, and the hosts that machines make of themselves with them."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from shlex import quote
from typing import Any, Final
from urllib.parse import urlencode

import click

from svc.cli.connection import ApiConnection, anonymous_command, authenticated_command, build_query
from svc.cli.options import AS_JSON, HOST_FACTORY_TOKEN, parse_lifetime, secret_option
from svc.cli.table import print_json, print_result

#: How many tokens are requested at once.
_PAGE: Final = 1000

_ID: Final = re.compile("sha256:[0-9a-f]{12}")
_TOKEN = secret_option("--token", HOST_FACTORY_TOKEN, "a token")


@click.group()
def hostfactory() -> None:
    """Make tokens with which machines make hosts of themselves, and those hosts."""


@hostfactory.group()
def tokens() -> None:
    """Make tokens of a host factory, list and revoke them."""


@tokens.command()
@click.argument("factory")
@click.option("--count", type=click.IntRange(1, 1000), default=1, show_default=True, help="How many.")
@click.option("--expires-in", default="1h", show_default=True, callback=parse_lifetime, help="How long: 30m, 12h or 7d.")
@click.option("--cidr", "networks", multiple=True, help="From where: an address, or a network. Can be repeated.")
@AS_JSON
@authenticated_command
async def create(
    connection: ApiConnection, factory: str, count: int, expires_in: int, networks: Sequence[str], as_json: bool
) -> None:
    """Make tokens of the host factory FACTORY, and print them, one a line: they are not shown again.

    While its answer is lost on the way, it asks again, for eleven minutes at most; the change is made once.

    Example: svc hostfactory tokens create web/fleet --expires-in 12h --cidr 10.0.0.0/8
    """
    until = datetime.fromtimestamp(connection.wall.seconds() + expires_in, UTC).isoformat(timespec="seconds")
    fields = [("host_factory", f"{connection.account}:host_factory:{factory}"), ("expiration", until), ("count", str(count))]
    fields += [("cidr[]", network) for network in networks]
    shows = f"svc hostfactory tokens list {quote(factory)}"
    request = ("POST", "/host_factory_tokens", urlencode(fields).encode())
    made = (await connection.send_change(connection.request_with_token, *request, shows=shows)).expect(200).json()
    if as_json:
        print_json(made)
        return
    for token in made:
        click.echo(token["token"])
    click.echo(f"Good until {made[0]['expiration']}, from {', '.join(made[0]['cidr']) or 'everywhere'}.", err=True)


@tokens.command("list")
@click.argument("factory")
@AS_JSON
@authenticated_command
async def list_tokens(connection: ApiConnection, factory: str, as_json: bool) -> None:
    """List the tokens of the host factory FACTORY: the id of each, when it expires, and from where it can be used.

    The id is what logs and the audit call it. It makes no host, and "svc hostfactory tokens revoke --id" takes it.
    """
    found: list[dict[str, Any]] = []
    asked = {"host_factory": f"{connection.account}:host_factory:{factory}", "limit": _PAGE}
    while len(found) % _PAGE == 0:
        answer = await connection.request_with_token("GET", "/host_factory_tokens" + build_query(**asked, offset=len(found)))
        if not (page := answer.expect(200).json()):
            break
        found += page
    rows = [(token["id"], token["expiration"], ", ".join(token["cidr"]) or "everywhere") for token in found]
    print_result(as_json, found, ("ID", "EXPIRES", "FROM"), rows, f"{factory} has no token.")


@tokens.command()
@_TOKEN
@click.option("--id", "token_id", metavar="ID", help="The token's id, instead of itself, as it is listed.")
@authenticated_command
async def revoke(connection: ApiConnection, token: str | None, token_id: str | None) -> None:
    """Revoke a token: no more hosts are made with it. Those that were, stay.

    Without --id the token comes from SVC_HOST_FACTORY_TOKEN, or else from standard input; on a terminal there is a prompt.

    Example: svc hostfactory tokens revoke --id sha256:0f3a96c1d2e4
    """
    if token_id is not None and not _ID.fullmatch(token_id):
        raise click.UsageError("an id is written sha256:0f3a96c1d2e4, as `svc hostfactory tokens list` shows it")
    asked = token_id or token or _read_token()
    (await connection.request_with_token("DELETE", connection.encode_path("host_factory_tokens", asked))).expect(204)
    click.echo("The token is revoked.", err=True)


@hostfactory.group()
def hosts() -> None:
    """Make hosts with a token of a host factory."""


@hosts.command("create")
@click.argument("host_id", metavar="HOST")
@click.option("--annotation", "annotations", multiple=True, metavar="NAME=VALUE", help="An annotation. Can be repeated.")
@_TOKEN
@AS_JSON
@anonymous_command
async def create_host(
    connection: ApiConnection, host_id: str, annotations: Sequence[str], token: str | None, as_json: bool
) -> None:
    """Make the host HOST, and print its API key. Made again, it gets another one.

    The token comes from SVC_HOST_FACTORY_TOKEN, or else from standard input; on a terminal it is asked for. It takes the
    place of a login, and says which account the host is in.

    While its answer is lost on the way, it asks again, for eleven minutes at most; the change is made once.

    Example: svc hostfactory hosts create web/1 --annotation role=frontend
    """
    fields = [("id", host_id)]
    for annotation in annotations:
        name, equals, value = annotation.partition("=")
        if not equals:
            raise click.UsageError(f"an annotation is written NAME=VALUE, not {annotation!r}")
        fields.append((f"annotations[{name}]", value))
    header = f'Token token="{token or _read_token()}"'
    request = ("POST", "/host_factories/hosts", urlencode(fields).encode())
    shows = "svc list --kind host"
    answer = await connection.send_change(connection.request, *request, shows=shows, Authorization=header)
    if answer.status == 401:
        message = "the server refused this token: it is wrong, expired or revoked, or isn't meant for this address"
        raise click.ClickException(message)
    if answer.status == 403:
        raise click.ClickException(
            f"this host factory may not make {host_id}: it is beneath another policy, or somebody else made it"
        )
    host = answer.expect(201).json()
    if as_json:
        print_json(host)
        return
    if host["api_key"] is None:
        click.echo(f"{host['id']} has no API key: its annotation authn/api-key is false.", err=True)
        return
    click.echo(host["api_key"])
    click.echo(f"This is the API key of {host['id']}; it is not shown again.", err=True)


def _read_token() -> str:
    """Return the token that is given on standard input."""
    if sys.stdin.isatty():
        return str(click.prompt("Token", hide_input=True))
    token = sys.stdin.readline().strip()
    if not token:
        raise click.UsageError("give the token in SVC_HOST_FACTORY_TOKEN, or on standard input")
    return token

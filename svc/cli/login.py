"""Commands that prove who one is: ``login``, ``whoami`` and ``authenticate``."""

from __future__ import annotations

import json
import sys
from typing import IO, Any

import click

from svc.cli.connection import Connection, claims_of, keep_token, over_http


@click.command()
@over_http
async def login(connection: Connection) -> None:
    """Log in with an API key and keep the access token for later commands.

    Asks for the login and the API key unless SVC_LOGIN and SVC_API_KEY say them; off a terminal it reads them from standard
    input, a line each. The token is kept in a file that only you can read; it ends after some minutes, then log in again.
    """
    name = connection.login or _asked("Login", default="admin")
    api_key = connection.api_key or _asked("API key", hide_input=True)
    token = await connection.authenticate(name, api_key)
    path = keep_token(connection.url, connection.account, token)
    claims = claims_of(token)
    click.echo(f"Logged in as {name} for {claims['exp'] - claims['iat']} seconds; the token is in {path}")


def _asked(what: str, **options: Any) -> str:
    answer: str = click.prompt(what, **options) if sys.stdin.isatty() else sys.stdin.readline().strip()
    if not answer:
        raise click.ClickException(f"no {what} given")
    return answer


@click.command()
@over_http
async def whoami(connection: Connection) -> None:
    """Say who the server takes you for."""
    answer = (await connection.call("GET", "/whoami")).expect(200)
    click.echo(json.dumps(answer.json(), indent=2))


@click.group()
def authenticate() -> None:
    """Exchange a workload's proof of identity for an access token."""


@authenticate.command()
@click.argument("service_id")
@click.option(
    "--jwt", "jwt_file", type=click.File("rb"), default="-", help="File that holds the JWT; standard input by default."
)
@click.option("--host", "host", help="Id of the host, such as host/ci/runner, when the token does not name it.")
@click.option("--json", "as_json", is_flag=True, help="Print the token's JSON instead of its base64.")
@over_http
async def jwt(connection: Connection, service_id: str, jwt_file: IO[bytes], host: str | None, as_json: bool) -> None:
    """Exchange a JWT for an access token, at the authenticator authn-jwt/SERVICE_ID.

    Prints the token as it stands in the header: Authorization: Token token="…".
    """
    token = jwt_file.read().strip()
    segments = ["authn-jwt", service_id, connection.account, *([host] if host else []), "authenticate"]
    path = "".join(f"/{connection.segment(segment)}" for segment in segments)
    encoding = {} if as_json else {"Accept_Encoding": "base64"}
    answer = await connection.request(
        "POST", path, b"jwt=" + token, Content_Type="application/x-www-form-urlencoded", **encoding
    )
    if answer.status == 401:
        raise click.ClickException("the server refused this token; its log says why")
    click.echo(answer.expect(200).body.decode())

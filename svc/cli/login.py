"""Commands that prove who one is: ``login``, ``whoami`` and ``authenticate``."""

from __future__ import annotations

import base64
from typing import IO, Any

import click

from svc.cli.connection import ApiConnection, keep_token, over_http, own_proof
from svc.cli.options import HOST_OF_JWT, JWT_FILE, cloud_options, metadata
from svc.cli.table import print_json
from svc.workload.client import claims_of
from svc.workload.evidence import CloudIdentity, Evidence, Jwt


@click.command()
@over_http
async def login(connection: ApiConnection) -> None:
    """Log in with an API key or a password, and keep the access token for later commands.

    Asks for the login and the API key or password unless SVC_LOGIN and SVC_API_KEY say them; off a terminal it reads them
    from standard input, a line each. The token is kept in a file that only you can read; it ends after some minutes, then
    log in again.
    """
    name, secret = own_proof(connection)
    api_key = (await connection.proven(name, secret, "GET", "login")).expect(200).body.decode()
    token = await connection.authenticate(name, api_key)
    path = keep_token(connection.url, connection.account, token)
    claims = claims_of(token)
    click.echo(f"Logged in as {name} for {claims['exp'] - claims['iat']} seconds; the token is in {path}")


@click.command()
@over_http
async def whoami(connection: ApiConnection) -> None:
    """Say who the server takes you for."""
    print_json((await connection.call("GET", "/whoami")).expect(200).json())


@click.group()
def authenticate() -> None:
    """Exchange a workload's proof of identity for an access token."""


_JSON = click.option("--json", "as_json", is_flag=True, help="Print the token's JSON instead of its base64.")


@authenticate.command()
@click.argument("service_id")
@JWT_FILE
@HOST_OF_JWT
@_JSON
@over_http
async def jwt(connection: ApiConnection, service_id: str, jwt_file: IO[bytes], host: str | None, as_json: bool) -> None:
    """Exchange a JWT for an access token, at the authenticator authn-jwt/SERVICE_ID.

    Prints the token as it stands in the header: Authorization: Token token="…".
    """
    await _print_token(connection, Jwt(service_id, jwt_file.read, host), as_json)


@authenticate.command()
@click.argument("service_id")
@click.option("--host", required=True, help="Id of the host, such as host/apps/shop.")
@cloud_options
@_JSON
@over_http
async def cloud(connection: ApiConnection, service_id: str, host: str, as_json: bool, **options: Any) -> None:
    """Exchange this machine's cloud identity for an access token, at the authenticator authn-cloud/SERVICE_ID.

    Asks the platform's metadata service for an identity token, and presents that. Prints the access token as it stands in
    the header: Authorization: Token token="…". "svc cloud inspect" tells which annotations the host needs.

    Example: svc authenticate cloud prod --host host/apps/shop

    Where the authenticator has another name, as in the conjur dialect, SERVICE_ID is written with it: authn-azure/prod.
    """
    await _print_token(connection, CloudIdentity(service_id, host, metadata(connection.reactor, **options)), as_json)


async def _print_token(connection: ApiConnection, evidence: Evidence, as_json: bool) -> None:
    token = await connection.workload(evidence).access_token()
    click.echo(base64.b64decode(token) if as_json else token)

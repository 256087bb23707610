"""Commands that prove an identity: ``login``, ``whoami`` and ``authenticate``."""

from __future__ import annotations

import base64
from typing import IO, Any

import click

from svc.cli.connection import ApiConnection, authenticated_command, prompt_credentials
from svc.cli.oidc_login import sign_in
from svc.cli.options import HOST_OF_JWT, JWT_FILE, cloud_evidence, cloud_login_options, parse_lifetime
from svc.cli.saved_login import forget_login, has_saved_login, save_login
from svc.cli.table import escape_text, print_json
from svc.workload.access_tokens import token_claims
from svc.workload.evidence import Evidence, Jwt
from svc.workload.faults import Fault


@click.command()
@click.option(
    "--for",
    "seconds",
    callback=parse_lifetime,
    metavar="TIME",
    help="How long to stay logged in, in minutes, hours or days: 30m, 8h or 2d; else for one access token.",
)
@click.option("--oidc", "provider", metavar="NAME", help="Sign in at a provider of OpenID Connect: authn-oidc/NAME.")
@click.option("--device", is_flag=True, help="With --oidc: sign in on another device, by a code.")
@authenticated_command
async def login(connection: ApiConnection, seconds: int | None, provider: str | None, device: bool) -> None:
    """Log in with an API key or a password, and keep the access token for later commands.

    Asks for the login and the API key or password unless SVC_LOGIN and SVC_API_KEY say them; off a terminal it reads them
    from standard input, a line each. The token is kept in a file that only you can read; it ends after some minutes, then
    log in again.

    With --for you stay logged in for as long, as far as the server allows it (--user-session-max): commands get new tokens
    by themselves, with a refresh token in the same file, which works once and on this machine. `svc sessions list` shows
    where you are logged in, and `svc sessions revoke` ends that. This is for users: hosts log in by themselves.

    With --oidc you sign in at your organisation's provider instead, in the browser. Where there is none it says at which
    address, or, if the provider can do that, which code to enter on another device. The token ends after an hour, or when
    the server says.

    Example: svc login --for 8h

    Example: svc login --oidc corp
    """
    if provider is not None:
        if seconds is not None:
            raise click.UsageError("--for is for logins by API key or password: how long --oidc lasts is set on the server")
        _save_token(connection, await sign_in(connection, provider, device=device))
        return
    if device:
        raise click.UsageError("--device is for --oidc NAME")
    name, secret = prompt_credentials(connection)
    api_key = (await connection.request_with_secret(name, secret, "GET", "login")).expect(200).api_key()
    if seconds is not None:
        ends_at, path = await connection.open_session(name, api_key, seconds)
        click.echo(f"Logged in as {name} until {ends_at}; the tokens are in {path}")
        return
    _save_token(connection, await connection.authenticate(name, api_key), name)


def _save_token(connection: ApiConnection, token: str, name: str | None = None) -> None:
    """Keep an access token; its role is that of the token, unless it is known already."""
    path = save_login(connection.url, connection.account, token)
    claims = token_claims(token)
    who = escape_text(name or claims["sub"])
    click.echo(f"Logged in as {who} for {claims['exp'] - claims['iat']} seconds; the token is in {path}")


@click.command()
@click.option("--everywhere", is_flag=True, help="End all your access tokens and sessions, those of other machines too.")
@authenticated_command
async def logout(connection: ApiConnection, everywhere: bool) -> None:
    """Log out: end the session that `svc login --for` has opened, and remove what this machine keeps of the login.

    A server can't end a single access token: one that was given to you ends by itself within minutes. --everywhere ends all
    of them at once, and all your sessions.

    The login is removed from this machine even if the server can't be reached; the exit code is 1 then.

    Example: svc logout
    """
    url, account = connection.url, connection.account
    where = f"account {account} at {url}"
    if not has_saved_login(url, account):
        click.echo(f"Nobody is logged in to {where} on this machine.", err=True)
        return
    ends_at, fault, ended = connection.saved_token_end(), "", False
    try:
        if everywhere:
            ended = await connection.end_all_logins()
        else:
            ended = await connection.end_saved_session()
    except (Fault, click.ClickException) as refusal:
        fault = refusal.format_message() if isinstance(refusal, click.ClickException) else str(refusal)
    finally:
        forget_login(url, account)
    if fault:
        raise click.ClickException(f"the login to {where} is removed from this machine, but goes on at the server: {fault}")
    what = "all access tokens and sessions have ended" if everywhere else "the session has ended" if ended else ""
    left = "" if everywhere or ends_at is None else f"the access token ends at {ends_at}"
    click.echo(f"Logged out of {where}" + "".join(f"; {each}" for each in (what, left) if each), err=True)
    if connection.login is not None:
        click.echo(f"SVC_LOGIN is set: commands go on as {escape_text(connection.login)}.", err=True)


@click.command()
@authenticated_command
async def whoami(connection: ApiConnection) -> None:
    """Say who the server takes you for."""
    print_json((await connection.request_with_token("GET", "/whoami")).expect(200).json())


@click.group()
def authenticate() -> None:
    """Exchange a workload's proof of identity for an access token."""


_JSON = click.option("--json", "as_json", is_flag=True, help="Print the token's JSON instead of its base64.")


@authenticate.command()
@click.argument("service_id")
@JWT_FILE
@HOST_OF_JWT
@_JSON
@authenticated_command
async def jwt(connection: ApiConnection, service_id: str, jwt_file: IO[bytes], host: str | None, as_json: bool) -> None:
    """Exchange a JWT for an access token, at the authenticator authn-jwt/SERVICE_ID.

    Prints the token as it stands in the header: Authorization: Token token="…".
    """
    await _print_token(connection, Jwt(service_id, jwt_file.read, host), as_json)


@authenticate.command()
@click.argument("service_id", required=False)
@click.option("--host", help="Id of the host, such as host/apps/shop; the token of Kubernetes may name it itself.")
@cloud_login_options
@_JSON
@authenticated_command
async def cloud(connection: ApiConnection, service_id: str | None, host: str | None, as_json: bool, **options: Any) -> None:
    """Exchange this machine's cloud identity for an access token, at the authenticator authn-cloud/SERVICE_ID; on Google
    Cloud at authn-gcp, which has no service id, on AWS at authn-iam/SERVICE_ID, and in a pod at authn-jwt/SERVICE_ID.

    Asks the platform's metadata service for an identity token or credentials, and presents that; in a pod it presents the
    projected token of the service account. Prints the access token
    as it stands in the header: Authorization: Token token="…". "svc cloud inspect" shows which annotations, or which id, the
    host needs.

    Example: svc authenticate cloud prod --host host/apps/shop

    Example: svc authenticate cloud --platform google --host host/apps/shop

    Example: svc authenticate cloud prod --platform aws --host host/apps/123456789012/shop

    Example: svc authenticate cloud k8s --platform kubernetes

    Where the authenticator has another name, as in the conjur dialect, SERVICE_ID is written with it: authn-azure/prod.
    """
    evidence = cloud_evidence(connection.elsewhere or connection.requester, connection.url, service_id, host, **options)
    await _print_token(connection, evidence, as_json)


async def _print_token(connection: ApiConnection, evidence: Evidence, as_json: bool) -> None:
    token = await (await connection.workload_client(evidence)).access_token()
    click.echo(base64.b64decode(token) if as_json else token)

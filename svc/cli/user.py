"""Commands about one's own password, and about API keys."""

from __future__ import annotations

from typing import IO

import click

from svc.cli.connection import ApiConnection, authenticated_command, build_query, prompt_credentials, prompt_line


@click.group()
def user() -> None:
    """Change your password, and rotate API keys."""


@user.command("change-password")
@click.option("--new-password-file", "file", type=click.File("r"), help="File that holds the new password, on one line.")
@authenticated_command
async def change_password(connection: ApiConnection, file: IO[str] | None) -> None:
    """Choose another password for yourself.

    Asks for the login, the present password or API key, and the new password, unless SVC_LOGIN, SVC_API_KEY and
    --new-password-file say them; off a terminal it reads them from standard input, a line each. None of them is shown.

    A password has 12 to 128 characters, with at least 2 uppercase letters, 2 lowercase letters, 1 digit and 1 special
    character.
    """
    login, secret = prompt_credentials(connection)
    if file is not None:
        password = file.read().removesuffix("\n").removesuffix("\r")
    else:
        password = prompt_line("New password", hide_input=True, confirmation_prompt=True)
    answer = await connection.request_with_secret(login, secret, "PUT", "password", password.encode())
    if answer.status == 403:
        raise click.ClickException("only users have a password: a host proves itself with its API key")
    answer.expect(204)
    click.echo(f"The password of {login} is changed.", err=True)


@user.command("rotate-api-key")
@click.option("--role", help="Whose, such as user:alice or host:ci/runner; your own if left out.")
@authenticated_command
async def rotate_api_key(connection: ApiConnection, role: str | None) -> None:
    """Replace an API key by a new one, and print that; the old one works no more.

    For your own it asks for the login and the API key or password, unless SVC_LOGIN and SVC_API_KEY say them; off a
    terminal it reads them from standard input, a line each. For another role's you need the privilege update on it, and to
    be logged in.

    While its answer is lost on the way, it asks again, for eleven minutes at most; the change is made once.

    Example: svc user rotate-api-key --role host:ci/runner
    """
    if role is None:
        login, secret = prompt_credentials(connection)
        answer = await connection.send_change(connection.request_with_secret, login, secret, "PUT", "api_key")
    else:
        path = connection.encode_path("authn", connection.account, "api_key") + build_query(role=role)
        answer = await connection.send_change(connection.request_with_token, "PUT", path)
        if answer.status == 401 and b"strength" in answer.body:
            raise click.ClickException("this is your own API key: leave --role out, and give a password or key")
    click.echo(answer.expect(200).api_key())
    click.echo(f"This is the API key of {role or login}; it is not shown again, and the old one works no more.", err=True)

"""Administration of a server, beside a running one or without: accounts, the data key, the schema.

These commands read the options, the environment and the file that ``twistd svc`` reads, and work on the database themselves.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import click

from svc.cli.coroutines import react
from svc.crypto.keyring import AccountKeys
from svc.crypto.vault import new_data_key
from svc.model.credentials import new_api_key
from svc.model.errors import Conflict, InvalidName, OutcomeUnknown, RecordNotFound, Refusal
from svc.model.names import account_name, admin_of
from svc.server.bootstrap import Installation
from svc.server.startup import reason_of
from svc.settings.config import OPTIONS, Settings
from svc.settings.reading import read_settings
from svc.tap import administer

#: The rooms whose settings bear on these commands; the others are taken, and not listed.
_GROUPS = ("server", "storage")


def of_the_server(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a coroutine function of an installation and its settings a command with the server's options."""

    def run(**options: Any) -> None:
        given = {option.field: options.pop(option.field) for option in OPTIONS if option.on_command_line}

        async def work(reactor: Any) -> None:
            try:
                settings = read_settings(given)
                await administer(reactor, settings, lambda installation: command(installation, settings, **options))
                click.echo(f"(in {place(settings)})", err=True)
            except Refusal as refusal:
                raise click.ClickException(_reason(refusal)) from None

        react(work)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    decorated: Callable[..., None] = run
    for option in reversed([option for option in OPTIONS if option.on_command_line]):
        decorated = click.option(
            f"--{option.name}",
            option.field,
            is_flag=option.parser.metavar is None,
            default=None,
            metavar=option.parser.metavar,
            hidden=option.group not in _GROUPS or option.field in {"account", "dialect"},
            help=f"{option.help} [default: {option.default}; env var: {option.variable}]",
        )(decorated)
    return decorated


def place(settings: Settings) -> str:
    """Return which database the settings mean, in words. Its address isn't shown: a password may be in it."""
    return f"the database of {settings.data_dir if settings.database_url is None else settings.key('database_url')}"


def _reason(refusal: Refusal) -> str:
    match refusal:
        case Conflict() | InvalidName():
            return refusal.message
        case RecordNotFound():
            return f"there is no account {refusal.account}"
        case _:
            return reason_of(refusal)


@click.group()
def account() -> None:
    """Create and list accounts, and rotate their signing keys.

    These commands work on the database itself, that of --data-dir or --database-url, and not on the server at SVC_URL. Give
    them the options or the environment that the server has.
    """


@account.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print an object with account, admin and api_key.")
@of_the_server
async def create(installation: Installation, settings: Settings, name: str, as_json: bool) -> None:  # noqa: ARG001 (of all)
    """Create the account NAME, and print the API key of its admin: it is not shown again.

    It works on the database itself, that of --data-dir or --database-url, and not on the server at SVC_URL.
    """
    api_key = new_api_key()
    try:
        await installation.create_account(account_name(name), api_key)
    except OutcomeUnknown:
        click.echo(f"If the account was made, the API key of its admin is: {api_key}", err=True)
        raise
    if as_json:
        click.echo(json.dumps({"account": name, "admin": str(admin_of(name)), "api_key": api_key}))
    else:
        click.echo(f"API key for admin: {api_key}")


@account.command("list")
@of_the_server
async def list_accounts(installation: Installation, settings: Settings) -> None:  # noqa: ARG001 (of all)
    """List the accounts, one a line.

    It works on the database itself, that of --data-dir or --database-url, and not on the server at SVC_URL.
    """
    for name in await installation.accounts.names():
        click.echo(name)


@account.command()
@click.argument("name")
@of_the_server
async def rotate_signing_key(installation: Installation, settings: Settings, name: str) -> None:
    """Give the account NAME a new key to sign access tokens with.

    The old key goes on verifying until the last token that it signed has died. Running servers sign with the new one from
    the next login on.

    It works on the database itself, that of --data-dir or --database-url, and not on the server at SVC_URL.
    """
    keys = AccountKeys(installation.accounts, installation.vault, installation.wall)
    await keys.rotate(name, max(settings.user_token_ttl, settings.host_token_ttl))
    click.echo(f"Account {name} signs with a new key.")


@click.group("data-key")
def data_key() -> None:
    """Make the key under which everything of value is sealed."""


@data_key.command()
def generate() -> None:
    """Print a new data key, for SERVICE_DATA_KEY. Keep it safe: without it no secret can be read."""
    click.echo(new_data_key())


@click.command()
@of_the_server
async def migrate(installation: Installation, settings: Settings) -> None:  # noqa: ARG001 (of all)
    """Bring the schema of the database up to date, as every start of the server does."""
    click.echo("The schema is up to date.")

"""Administration of a server, beside a running one or without: accounts and the data key.

These commands read the options, the environment and the file that ``twistd svc`` reads, and work on the database themselves.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import click

from svc.audit.recoveries import recovery_event
from svc.cli.reactor import run_reactor
from svc.cli.table import print_table
from svc.crypto.tokens import SigningKeys
from svc.crypto.vault import new_data_key
from svc.model.credentials import new_api_key
from svc.model.errors import Conflict, InvalidName, OutcomeUnknown, RecordNotFound, Refusal
from svc.model.events import WARNING, AuditContext, Event, EventBatch
from svc.model.events import EventSource as EventServer
from svc.model.names import admin_of, check_account_name
from svc.server.bootstrap import Installation
from svc.server.data_keys import begin_rotation, describe_keys, format_status, member_queries
from svc.server.startup import describe_refusal
from svc.settings.config import OPTIONS, Settings
from svc.settings.reading import read_settings
from svc.tap import run_on_installation

#: The sections whose settings apply to these commands; the others are accepted, and not listed.
_GROUPS = ("server", "storage")

#: Settings of these sections that only a server uses.
_SERVER_ONLY = {
    "account",
    "dialect",
    "processes",
    "data_key_pace",
    "memory_lag",
    "memory_limit",
    "serve_stale",
    "deleted_retention",
    "deleted_limit",
}

_WAIT = "How long to wait for servers that don't know the key; one that has ended counts as running for 20 seconds."


def with_installation(command: Callable[..., Awaitable[None]], *, making: bool = False) -> Callable[..., None]:
    """Make a coroutine function of an installation and its settings a command with the server's options.

    ``making``: it makes an embedded database where there is none. Others would make one in a mistyped folder.
    """

    async def run_command(reactor: Any, settings: Settings, **options: Any) -> None:
        await run_on_installation(
            reactor, settings, lambda installation: command(installation, settings, **options), making=making
        )

    run_command.__name__, run_command.__doc__ = command.__name__, command.__doc__
    return with_settings(run_command)


def with_settings(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a coroutine function of the reactor and a server's settings a command with the server's options."""

    def run_command(given: dict[str, Any], **options: Any) -> None:
        async def run_with_settings(reactor: Any) -> None:
            try:
                settings = read_settings(given)
                await command(reactor, settings, **options)
                click.echo(f"(in {describe_database(settings)})", err=True)
            except Refusal as refusal:
                raise click.ClickException(_describe_refusal(refusal)) from None

        run_reactor(run_with_settings)

    run_command.__name__, run_command.__doc__ = command.__name__, command.__doc__
    return with_server_options(run_command)


def with_server_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the server's options; it is called with those that were given, by field, and with its own by name."""

    def run_command(**options: Any) -> None:
        command({option.field: options.pop(option.field) for option in OPTIONS if option.on_command_line}, **options)

    run_command.__name__, run_command.__doc__ = command.__name__, command.__doc__
    decorated: Callable[..., None] = run_command
    for option in reversed([option for option in OPTIONS if option.on_command_line]):
        decorated = click.option(
            f"--{option.name}",
            option.field,
            is_flag=option.parser.metavar is None,
            default=None,
            metavar=option.parser.metavar,
            hidden=option.group not in _GROUPS or option.field in _SERVER_ONLY,
            help=f"{option.help} [default: {option.default}; env var: {option.variable}]",
        )(decorated)
    return decorated


def describe_database(settings: Settings) -> str:
    """Return which database the settings mean, in words. Its address isn't shown: a password may be in it."""
    return f"the database of {settings.data_dir if settings.database_url is None else settings.name_of('database_url')}"


def _describe_refusal(refusal: Refusal) -> str:
    match refusal:
        case Conflict() | InvalidName():
            return refusal.message
        case RecordNotFound(kind="user"):
            return f"the account {refusal.account} has no user {refusal.identifier} any more: load policy that makes it"
        case RecordNotFound():
            return f"there is no account {refusal.account}"
        case _:
            return describe_refusal(refusal)


@click.group()
def account() -> None:
    """Create and list accounts, rotate their signing keys, recover a lost admin key, and revoke access tokens.

    These commands work on the database itself, that of --data-dir or --database-url, and not on the server at SVC_URL. Give
    them the options or the environment that the server has.
    """


@account.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print an object with account, admin and api_key.")
@partial(with_installation, making=True)
async def create(installation: Installation, settings: Settings, name: str, as_json: bool) -> None:  # noqa: ARG001 (of all)
    """Create the account NAME, and print the API key of its admin: it is not shown again.

    It works on the database itself, that of --data-dir or --database-url, and not on the server at SVC_URL. Where --data-dir
    has no database yet, it makes one, as the first start of the server does.
    """
    api_key = new_api_key()
    try:
        await installation.create_account(check_account_name(name), api_key)
    except OutcomeUnknown:
        click.echo(f"If the account was made, the API key of its admin is: {api_key}", err=True)
        raise
    _print_key(name, api_key, as_json)


def _print_key(name: str, api_key: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"account": name, "admin": str(admin_of(name)), "api_key": api_key}))
    else:
        click.echo(f"API key for admin: {api_key}")


@account.command("list")
@with_installation
async def list_accounts(installation: Installation, settings: Settings) -> None:  # noqa: ARG001 (of all)
    """List the accounts, one a line; on a terminal under a heading.

    It works on the database itself, that of --data-dir or --database-url, and not on the server at SVC_URL.
    """
    rows = [(name,) for name in await installation.accounts.list_accounts()]
    print_table(("ACCOUNT",), rows, "There is no account: `svc account create NAME` makes one.")


@account.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print an object with account, admin and api_key.")
@with_installation
async def recover(installation: Installation, settings: Settings, name: str, as_json: bool) -> None:
    """Give the admin of the account NAME a new API key, and print it: it is not shown again.

    For a key that is lost. The old key works no more, and the admin's sessions end; a password and access tokens stay. If
    the key was stolen, run `svc account revoke-tokens` next, and have the admin change the password. Where policy restricts
    the admin to networks, the new key works from there alone. Each server reports it in its log and audit.

    It works on the database itself, that of --data-dir or --database-url, and not on the server at SVC_URL. It takes the
    server's data key.
    """
    api_key, account_ = new_api_key(), check_account_name(name)
    try:
        await installation.recover_account(
            account_, api_key, _event_batch(settings, recovery_event(account_, _describe_invoker()))
        )
    except OutcomeUnknown:
        click.echo(f"If the account was recovered, the API key of its admin is: {api_key}", err=True)
        raise
    _print_key(name, api_key, as_json)


@account.command()
@click.argument("name")
@with_installation
async def revoke_tokens(installation: Installation, settings: Settings, name: str) -> None:
    """End all access tokens and sessions of all roles of the account NAME, on every server.

    They log in again with their own credentials.

    It works on the database itself, that of --data-dir or --database-url, and not on the server at SVC_URL. With an API key,
    `svc role revoke-tokens` does the same through a server, and for single roles.
    """
    words, admin = f"all access tokens of the account {name}{_describe_invoker()}", str(admin_of(name))
    subject = (("account", name), ("resource", admin))
    event = Event("account", "revoke-tokens", subject, f"revoked {words}", f"revoke {words}", "svc", severity=WARNING)
    await installation.accounts.revoke_tokens(check_account_name(name), _event_batch(settings, event))
    click.echo(f"All access tokens of the account {name} are revoked, and all its sessions have ended.", err=True)


def _describe_invoker() -> str:
    """Return the user who runs the command, for the audit."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    return f", as the system's user {name}, on this machine"


def _event_batch(settings: Settings, event: Event) -> EventBatch:
    """Return an event with the origin of what is done beside a server."""
    server = EventServer(os.uname().nodename, settings.dialect.prefix)
    return EventBatch(AuditContext(server, None, "-", "-"), (event,))


@account.command()
@click.argument("name")
@with_installation
async def rotate_signing_key(installation: Installation, settings: Settings, name: str) -> None:
    """Give the account NAME a new key to sign access tokens with.

    The old key goes on verifying until the last token that it signed has died. Running servers sign with the new one from
    the next login on.

    It works on the database itself, that of --data-dir or --database-url, and not on the server at SVC_URL.
    """
    keys = SigningKeys(installation.accounts, installation.vault, installation.wall)
    await keys.rotate_key(name, max(settings.user_token_ttl, settings.host_token_ttl))
    click.echo(f"Account {name} signs with a new key.")


@click.group("data-key")
def data_key() -> None:
    """Make and rotate the key under which everything of value is sealed.

    A key is called by its id, 16 hexadecimal digits that reveal nothing of it.
    """


@data_key.command()
def generate() -> None:
    """Print a new data key, for SERVICE_DATA_KEY or a file (--data-key-file).

    Keep a copy where no backup of the database is: without the key no secret can be read.
    """
    click.echo(new_data_key())


@data_key.command()
@click.option("--wait", type=click.FloatRange(0, 3600), default=30.0, show_default=True, metavar="SECONDS", help=_WAIT)
@with_installation
async def rotate(installation: Installation, settings: Settings, wait: float) -> None:
    """Begin to seal everything under a new data key, while the servers run.

    Give the new key to every server first, before the old one, from wherever it gets its key; `svc data-key generate` makes
    one. This command waits until all of them know both, and changes nothing if one doesn't: those that run on this database,
    and those that --cluster names. With the key file of an embedded database it makes the new key, and puts it into that
    file: keep a copy.

    Then everything new is sealed under the new key, and the servers seal the rest again; `svc data-key status` says how far
    that has come, and when the old key is not needed any more. It may be given again: a rotation is begun once.

    It works on the database itself, that of --data-dir or --database-url, and not on the server at SVC_URL.
    """
    reactor: Any = installation.clock
    before = installation.vault.current_id
    members = member_queries(reactor, settings, installation.vault)
    new = await begin_rotation(reactor, installation, settings, members, wait, lambda text: click.echo(text, err=True))
    if new == before:
        click.echo(f"The rotation to the data key {new} is under way: svc data-key status tells of it.")
    else:
        click.echo(
            f"Values are sealed under the data key {new} from now on, and those under {before} again, by the servers."
        )
        click.echo("Keep both keys until svc data-key status says that the old one is not needed.")


@data_key.command()
@click.option("--json", "as_json", is_flag=True, help="Print an object with keys, servers and values.")
@with_installation
async def status(installation: Installation, settings: Settings, as_json: bool) -> None:  # noqa: ARG001 (of all)
    """Show which data keys the database and its servers have, and how far a rotation has come.

    It works on the database itself, that of --data-dir or --database-url, and not on the server at SVC_URL.
    """
    vault, store = installation.vault, installation.data_keys
    document = describe_keys(vault, await store.list_key_users(), await store.read_progress())
    if as_json:
        click.echo(json.dumps(document))
        return
    for line in format_status(document):
        click.echo(line)

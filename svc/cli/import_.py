"""Commands that move what another server holds into this one."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import IO, Any, Final

import attrs
import click

from svc.cli.connection import ANSWER_LIMIT, ApiConnection, authenticated_command, check_url, is_unencrypted, prompt_line
from svc.cli.import_run import import_options, run_import
from svc.cli.import_vault import vault
from svc.cli.options import SOURCE_API_KEY, secret_option
from svc.client.async_exchange import AsyncExchange, async_transport
from svc.importing.conjur import ConjurReader
from svc.importing.conjur_session import ConjurSession
from svc.importing.conjur_values import ConjurValues
from svc.importing.inventory import Inventory, Note, NoteKind, Progress, Record, Values

_LOGIN: Final = "CONJUR_AUTHN_LOGIN"


@click.group("import")
def import_() -> None:
    """Move what another server holds into this one: who there is, who may do what, and all values.

    The source is only read. `--plan` prints what would be made and what can't be; an import that ends early goes on where it
    was when the same command is run again; `--verify` compares both servers in the end.
    """


@attrs.frozen
class ConjurSource:
    """Conjur as a source of an import."""

    session: ConjurSession
    reader: ConjurReader
    values: ConjurValues

    @property
    def place(self) -> str:
        """Return its address and account."""
        return self.session.place

    async def read_inventory(self, progress: Progress) -> Inventory:
        """See ``svc.importing.inventory``."""
        inventory = await self.reader.read_inventory(progress)
        read = sum(len(each.versions) for each in inventory.records)
        audit = Note(NoteKind.TO_KNOW, f"{read:,} values", "reading each leaves a line in the source's audit")
        return attrs.evolve(inventory, notes=(*inventory.notes, audit) if read else inventory.notes)

    def read_values(self, variables: Iterable[Record]) -> AsyncIterator[Values]:
        """See ``svc.importing.inventory``."""
        return self.values.read_values(variables)


@import_.command()
@click.argument("source_url", metavar="URL", callback=check_url)
@click.option("--source-account", envvar="CONJUR_ACCOUNT", show_envvar=True, required=True, help="Account to move from.")
@click.option(
    "--credentials",
    type=click.File("rb"),
    help="File with two lines, the login at URL and its API key; - is standard input. By default both come from"
    f" {_LOGIN} and {SOURCE_API_KEY}, or a prompt.",
)
@click.option(
    "--source-ca-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="PEM file of the authority that signed the certificate of URL, instead of the system's authorities.",
)
@click.option("--source-login", envvar=_LOGIN, hidden=True)
@secret_option("--source-api-key", SOURCE_API_KEY, "an API key")
@import_options
@authenticated_command
async def conjur(
    connection: ApiConnection,
    source_url: str,
    source_account: str,
    credentials: IO[bytes] | None,
    source_ca_file: Path | None,
    source_login: str | None,
    source_api_key: str | None,
    **options: Any,
) -> None:
    """Move the account of a Conjur at URL (1.19 or later, or this server in the dialect conjur) into this server.

    Log in there as the account's admin, or as a role that sees everything: what it doesn't see isn't moved, which is listed.
    The source is only read. Ids, owners, annotations, networks, public keys, memberships, permissions, authenticators and
    the versions of all values are moved; API keys, passwords and tokens can't be.

    \b
    For example, first the plan, then the import with new API keys, then the comparison:
      svc import conjur https://conjur.example.org --source-account myorg --plan
      svc import conjur https://conjur.example.org --source-account myorg --new-keys keys
      svc import conjur https://conjur.example.org --source-account myorg --verify

    An import that was interrupted goes on when it is run again: what is here and equal is skipped, and what is here and
    other is listed and left as it is. Exit code 3: something was left out, or the servers differ.
    """  # noqa: D301 (click's mark for lines that stay as they are is a backspace)
    if (source_url, source_account) == (connection.url, connection.account):
        raise click.UsageError("the source is the server and account that is moved into: give another URL, or another --url")
    if is_unencrypted(source_url):
        raise click.UsageError("an API key and all values would go over http, and can be read on the way: use https")
    login, api_key = _read_credentials(credentials, source_login, source_api_key)
    exchange = AsyncExchange(async_transport(source_ca_file), ANSWER_LIMIT)
    try:
        session = ConjurSession(source_url, source_account, login, api_key, exchange)
        source = ConjurSource(session, ConjurReader(session, connection.wall, session.role), ConjurValues(session))
        await run_import(connection, source, session, **options)
    finally:
        await exchange.close()


def _read_credentials(file: IO[bytes] | None, login: str | None, api_key: str | None) -> tuple[str, str]:
    """Return login and API key at the source, from a file, the environment, or a prompt."""
    if file is not None:
        lines = file.read(65536).decode("utf-8", "replace").splitlines()
        if len(lines) < 2 or not lines[0].strip() or not lines[1].strip():
            raise click.UsageError("--credentials has two lines: the login, such as admin, then its API key")
        return lines[0].strip(), lines[1].strip()
    if (login is None) != (api_key is None):
        raise click.UsageError(f"set both {_LOGIN} and {SOURCE_API_KEY}, or neither")
    if login is not None and api_key is not None:
        return login, api_key
    if not sys.stdin.isatty():
        raise click.UsageError(f"no login at the source: set {_LOGIN} and {SOURCE_API_KEY}, or give --credentials FILE")
    return prompt_line("Login at the source", default="admin").strip(), prompt_line("API key there", hide_input=True)


import_.add_command(vault)

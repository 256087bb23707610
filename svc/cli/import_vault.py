"""The command that moves a Vault or OpenBao into this server."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any, Final

import attrs
import click

from svc.cli.connection import ANSWER_LIMIT, ApiConnection, authenticated_command, check_url, is_unencrypted
from svc.cli.import_run import import_options, run_import
from svc.client.async_exchange import AsyncExchange, async_transport
from svc.importing.inventory import SourceStopped
from svc.importing.vault_http import VaultConnection
from svc.importing.vault_source import VaultSource
from svc.workload.metadata import environment

#: The variables by which programs of Vault and OpenBao get a token; other commands leave them to programs that they start.
VAULT_TOKEN: Final = "VAULT_TOKEN"
BAO_TOKEN: Final = "BAO_TOKEN"

#: The longest file of a token or a login, in bytes.
_FILE_LIMIT: Final = 65536


@attrs.frozen
class _Evidence:
    """A token, or the role id and secret id of a role of AppRole."""

    token: str = attrs.field(default="", repr=False)
    role_id: str = attrs.field(default="", repr=False)
    secret_id: str = attrs.field(default="", repr=False)


@click.command()
@click.argument("source_url", metavar="URL", callback=check_url)
@click.option(
    "--token-file",
    type=click.File("rb"),
    help=f"File that holds a token of the source; - is standard input. By default {VAULT_TOKEN} or {BAO_TOKEN} has it.",
)
@click.option(
    "--approle-file",
    type=click.File("rb"),
    help="File with two lines, the role id and the secret id of a role of AppRole, to log in there instead of a token.",
)
@click.option("--approle-mount", default="approle", show_default=True, help="Where AppRole is mounted there, below auth/.")
@click.option(
    "--namespace",
    envvar=["VAULT_NAMESPACE", "BAO_NAMESPACE"],
    default="",
    help="Namespace to move, with all below it; the root by default. VAULT_NAMESPACE and BAO_NAMESPACE say it, too.",
)
@click.option(
    "--mount", "engines", multiple=True, help="Move the secrets of this engine alone, without logins and permissions."
)
@click.option("--into", default="", metavar="BRANCH", help="Branch here for all that is moved; by default there is none.")
@click.option("--as-json", is_flag=True, help="Make one variable of JSON of each secret, instead of one of each field.")
@click.option(
    "--source-ca-file",
    envvar=["VAULT_CACERT", "BAO_CACERT"],
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="PEM file of the authority that signed the certificate of URL, instead of the system's authorities.",
)
@import_options
@authenticated_command
async def vault(
    connection: ApiConnection,
    source_url: str,
    token_file: IO[bytes] | None,
    approle_file: IO[bytes] | None,
    approle_mount: str,
    namespace: str,
    engines: tuple[str, ...],
    into: str,
    as_json: bool,
    source_ca_file: Path | None,
    **options: Any,
) -> None:
    """Move the secrets, policies and logins of a Vault or OpenBao at URL into this server.

    The source is only read, with a token that may read and list everything: what it doesn't see isn't moved, and is listed.
    Each folder becomes a branch, each field of a secret a variable with its newest 20 versions, policies become groups and
    permissions on what there is, roles become hosts. Passwords, secret-ids and other engines can't be moved.

    \b
    For example, first the plan, then the import with new API keys, then the comparison:
      svc import vault https://vault.example.org --token-file token --plan
      svc import vault https://vault.example.org --token-file token --new-keys keys
      svc import vault https://vault.example.org --token-file token --verify

    An import that was interrupted goes on when it is run again: what is here and equal is skipped, and what is here and
    other is listed and left as it is. Exit code 3: something was left out, or the servers differ.
    """  # noqa: D301 (click's mark for lines that stay as they are is a backspace)
    if is_unencrypted(source_url):
        raise click.UsageError("a token and all values would go over http, and can be read on the way: use https")
    evidence = _read_evidence(token_file, approle_file)
    at = f"{namespace.strip('/')}/" if namespace.strip("/") else ""
    exchange = AsyncExchange(async_transport(source_ca_file), ANSWER_LIMIT)
    source = VaultConnection(source_url, exchange, evidence.token)
    try:
        if evidence.role_id:
            await _log_in(source, approle_mount, evidence, at)
        reader = VaultSource(source, at, into.strip("/"), as_json, engines, connection.wall)
        try:
            await run_import(connection, reader, None, **options)
        finally:
            if evidence.role_id:
                await source.end_login(at)
    finally:
        await exchange.close()


async def _log_in(source: VaultConnection, mount: str, evidence: _Evidence, namespace: str) -> None:
    try:
        await source.login_by_approle(mount, evidence.role_id, evidence.secret_id, namespace)
    except SourceStopped as stopped:
        raise click.ClickException(f"{stopped}; {stopped.remedy}") from None


def _read_evidence(token_file: IO[bytes] | None, approle_file: IO[bytes] | None) -> _Evidence:
    """Return the proof for the source, from a file or the environment."""
    if token_file is not None and approle_file is not None:
        raise click.UsageError("--token-file and --approle-file are two ways to log in: give one of them")
    if approle_file is not None:
        lines = _read_lines(approle_file, "--approle-file")
        if not lines or len(lines) > 2:
            raise click.UsageError("--approle-file has two lines: the role id, then the secret id")
        return _Evidence(role_id=lines[0], secret_id=lines[1] if len(lines) > 1 else "")
    if token_file is not None:
        lines = _read_lines(token_file, "--token-file")
        if len(lines) != 1:
            raise click.UsageError("--token-file has one line: the token")
        return _Evidence(lines[0])
    vault_token, bao_token = (environment().get(name, "").strip() for name in (VAULT_TOKEN, BAO_TOKEN))
    if vault_token and bao_token and vault_token != bao_token:
        raise click.UsageError(f"{VAULT_TOKEN} and {BAO_TOKEN} are two tokens: unset one of them, or give --token-file")
    token = vault_token or bao_token
    if not token:
        raise click.UsageError(f"no token of the source: set {VAULT_TOKEN}, or give --token-file or --approle-file")
    return _Evidence(token)


def _read_lines(file: IO[bytes], option: str) -> list[str]:
    try:
        text = file.read(_FILE_LIMIT).decode("ascii")
    except UnicodeDecodeError:
        raise click.UsageError(f"{option} holds something else than a token or an id") from None
    return [line.strip() for line in text.splitlines() if line.strip()]

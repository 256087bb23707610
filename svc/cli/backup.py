"""Backups: dumps of the database, made, and tried before they are needed."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from svc.cli.admin import of_the_server, place
from svc.cli.coroutines import react
from svc.cli.options import FILE
from svc.cli.progress import shown
from svc.crypto.keyfiles import data_key_file, read_data_key
from svc.crypto.vault import parse_data_key
from svc.model.errors import Refusal
from svc.server.backup import Verified, verify
from svc.server.bootstrap import Installation
from svc.server.lifecycle import OrderedMultiService
from svc.server.startup import reason_of
from svc.settings.config import Settings
from svc.settings.reading import read_settings
from svc.storage.dumps import dump


@click.group()
def backup() -> None:
    """Make backups of a server's database, and try them.

    A backup is worthless without the data key, which is not in it: keep copies of both, and not in one place.
    """


@backup.command()
@click.argument("file", type=FILE)
@of_the_server
async def create(installation: Installation, settings: Settings, file: Path) -> None:
    """Write a dump of the database to FILE, in PostgreSQL's custom format.

    It is made beside the running server, of the state of one moment; on a follower, too. It works on the database itself,
    that of --data-dir or --database-url, and not on the server at SVC_URL: give it the options or the environment that the
    server has.

    A database at --database-url is dumped by the pg_dump that this machine has, if it is not older than the database.
    """
    try:
        dumping = dump(installation.clock, installation.dsn, file, embedded=settings.database_url is None)
        await shown(dumping, f"Dumping {place(settings)}", installation.clock, sys.stderr)
    except OSError as error:
        raise click.ClickException(f"{file} can't be written: {error.strerror}") from None
    click.echo(f"{file}: {os.path.getsize(file)} bytes. Try it with: svc backup verify {file}")


@backup.command("verify")
@click.argument("file", type=FILE)
@click.option("--data-dir", metavar="DIR", help="Where the data key is, unless SERVICE_DATA_KEY has it.")
@click.option("--config", metavar="FILE", help="The server's TOML file, for its data_dir.")
def verify_command(file: Path, data_dir: str | None, config: str | None) -> None:
    """Restore the dump FILE on trial, and open every secret, API key, password and signing key in it.

    It is restored into a PostgreSQL of its own in a temporary directory (TMPDIR says where), which is removed again; the
    server's database isn't touched. Values are never shown. The exit code is 1 if anything is wrong.

    It is looked at whether PostgreSQL restores the dump, as a whole; whether this program can serve with it, after bringing
    its schema up to date; and whether the data key (SERVICE_DATA_KEY, or the file data-key of --data-dir) opens all that is
    sealed in it.
    """

    async def work(reactor: Any) -> None:
        try:
            data_key = _data_key(read_settings({"data_dir": data_dir, "config": config}))
            verified = await shown(_verified(reactor, file, data_key), f"Verifying {file}", reactor, sys.stderr)
        except Refusal as refusal:
            raise click.ClickException(f"{file}: {reason_of(refusal)}") from None
        _tell(file, verified)

    react(work)


def _data_key(settings: Settings) -> bytes:
    if settings.data_key is not None:
        return parse_data_key(settings.data_key)
    path = data_key_file(settings.data_dir)
    key = read_data_key(path)
    if key is None:
        raise click.ClickException(f"there is no data key: give it as SERVICE_DATA_KEY, or --data-dir; there is no {path}")
    return key


async def _verified(reactor: Any, file: Path, data_key: bytes) -> Verified:
    with tempfile.TemporaryDirectory(prefix="svc-backup-") as directory:
        services = OrderedMultiService()  # type: ignore[no-untyped-call] # Twisted's
        services.startService()  # type: ignore[no-untyped-call] # Twisted's
        try:
            return await verify(services, reactor, file, Path(directory, "data"), data_key)
        finally:
            await services.stopService()


def _tell(file: Path, verified: Verified) -> None:
    version, current = verified.version, verified.current
    brought = "" if version == current else f"; this program brought it to {current}"
    click.echo(f"Schema: version {version}{brought}.")
    click.echo("Opened: " + ", ".join(f"{kind}: {count}" for kind, count in verified.opened.items()))
    for told in verified.first_failed:
        click.echo(f"Does not open: {told}", err=True)
    if verified.failed > len(verified.first_failed):
        click.echo(f"… and {verified.failed - len(verified.first_failed)} more", err=True)
    if verified.failed:
        raise click.ClickException(f"{file}: {verified.failed} of its values can't be opened")
    click.echo("The backup can be restored, and all of it opens.")

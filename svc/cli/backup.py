"""Backups: dumps of the database, made, and tried before they are needed."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from svc.cli.admin import place, with_settings
from svc.cli.options import FILE
from svc.cli.progress import shown
from svc.cli.reactor import react
from svc.model.errors import Refusal
from svc.server.backup import Verified, verify
from svc.server.bootstrap import Installation
from svc.server.data_key_source import DataKeySource
from svc.server.lifecycle import running_services
from svc.server.startup import reason_of
from svc.settings.config import Settings
from svc.settings.reading import read_settings
from svc.storage.dumps import dump
from svc.tap import administer


@click.group()
def backup() -> None:
    """Make backups of a server's database, and try them.

    A backup is worthless without the data key, which is not in it: keep copies of both, and not in one place.
    """


@backup.command()
@click.argument("file", type=FILE)
@with_settings
async def create(reactor: Any, settings: Settings, file: Path) -> None:
    """Write a dump of the database to FILE, in PostgreSQL's custom format.

    It is made beside the running server, of the state of one moment; on a follower, too. It works on the database itself,
    that of --data-dir or --database-url, and not on the server at SVC_URL: give it the options or the environment that the
    server has.

    A database at --database-url is dumped by the pg_dump that this machine has, if it is not older than the database.
    """
    await administer(reactor, settings, lambda installation: _create(installation, settings, file))


async def _create(installation: Installation, settings: Settings, file: Path) -> None:
    try:
        dumping = dump(installation.clock, installation.dsn, file, embedded=settings.database_url is None)
        await shown(dumping, f"Dumping {place(settings)}", sys.stderr)
    except OSError as error:
        raise click.ClickException(f"{file} can't be written: {error.strerror}") from None
    try:
        await installation.state.backed_up()
    except Refusal as refusal:
        click.echo(f"That it was made couldn't be noted for metrics and svc doctor: {reason_of(refusal)}", err=True)
    keys = " and ".join(installation.vault.needed)
    click.echo(
        f"{file}: {os.path.getsize(file)} bytes, sealed under the data key {keys}. Try it with: svc backup verify {file}"
    )


@backup.command("verify")
@click.argument("file", type=FILE)
@click.option("--data-dir", metavar="DIR", help="Where the data key is, unless SERVICE_DATA_KEY has it.")
@click.option("--config", metavar="FILE", help="The server's TOML file, which says where the key is.")
def verify_command(file: Path, data_dir: str | None, config: str | None) -> None:
    """Restore the dump FILE on trial, and open every secret, API key, password, signing key and audit key in it.

    It is restored into a PostgreSQL of its own in a temporary directory (TMPDIR says where), which is removed again; the
    server's database isn't touched. Values are never shown. The exit code is 1 if anything is wrong.

    It is looked at whether PostgreSQL restores the dump, as a whole; whether this program can serve with it, after bringing
    its schema up to date; and whether the data key opens all that is sealed in it. The key comes from where the server gets
    it: SERVICE_DATA_KEY, data_key_file or data_key_command of the configuration, or the file data-key of --data-dir. The
    output names it by its id, as `svc data-key status` does.
    """

    async def work(reactor: Any) -> None:
        try:
            data_keys = await _data_keys(reactor, read_settings({"data_dir": data_dir, "config": config}))
            verified = await shown(_verified(reactor, file, data_keys), f"Verifying {file}", sys.stderr)
        except Refusal as refusal:
            raise click.ClickException(f"{file}: {reason_of(refusal)}") from None
        _tell(file, verified)

    react(work)


async def _data_keys(reactor: Any, settings: Settings) -> tuple[bytes, ...]:
    source = DataKeySource.of(reactor, settings)
    keys = await source.read()
    if keys is None:
        where = source.where
        raise click.ClickException(f"there is no data key: give it as SERVICE_DATA_KEY, or --data-dir; there is no {where}")
    return keys


async def _verified(reactor: Any, file: Path, data_keys: tuple[bytes, ...]) -> Verified:
    with tempfile.TemporaryDirectory(prefix="svc-backup-") as directory:
        async with running_services() as services:
            return await verify(services, reactor, file, Path(directory, "data"), data_keys)


def _tell(file: Path, verified: Verified) -> None:
    version, current = verified.version, verified.current
    brought = "" if version >= current else f"; this program brought it to {current}"
    click.echo(f"Schema: version {version}{brought}.")
    click.echo(f"Data key: {' and '.join(verified.data_keys)}")
    click.echo("Opened: " + ", ".join(f"{kind}: {count}" for kind, count in verified.opened.items()))
    for told in verified.first_failed:
        click.echo(f"Does not open: {told}", err=True)
    if verified.failed > len(verified.first_failed):
        click.echo(f"… and {verified.failed - len(verified.first_failed)} more", err=True)
    if verified.failed:
        raise click.ClickException(f"{file}: {verified.failed} of its values can't be opened")
    click.echo("The backup can be restored, and all of it opens.")

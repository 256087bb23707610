"""Backups: dumps of the database, made, tried before they are needed, and restored."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from svc.cli.admin import describe_database, with_server_options, with_settings
from svc.cli.coroutines import raising_on_signals
from svc.cli.options import FILE
from svc.cli.progress import show_progress
from svc.cli.reactor import run_reactor
from svc.model.errors import Refusal
from svc.server.backup import RestoreResult, VerificationResult, record_verification, restore_backup, verify_backup
from svc.server.bootstrap import Installation, demand_database
from svc.server.data_key_source import DataKeySource, is_key_given, parse_command
from svc.server.lifecycle import running_services
from svc.server.startup import describe_refusal
from svc.settings.config import Settings
from svc.settings.reading import read_settings
from svc.storage.dumps import dump_database
from svc.storage.restoring import NAMED
from svc.tap import run_on_installation

T = TypeVar("T")

#: The name of a file that stands for standard input or output.
_STANDARD: Final = Path("-")


@click.group()
def backup() -> None:
    """Make backups of a server's database, try them, and restore them.

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

    With - as FILE the dump goes to standard output: svc backup create - | ssh elsewhere 'cat > svc.dump'
    """
    if file == _STANDARD and sys.stdout.isatty():
        raise click.ClickException("a dump isn't for a terminal: name a file, or pass it on to another program")
    await run_on_installation(reactor, settings, lambda installation: _create_dump(installation, settings, file))


async def _create_dump(installation: Installation, settings: Settings, file: Path) -> None:
    try:
        path = None if file == _STANDARD else file
        dumping = dump_database(installation.clock, installation.dsn, path, embedded=settings.database_url is None)
        await show_progress(dumping, f"Dumping {describe_database(settings)}", sys.stderr)
    except OSError as error:
        raise click.ClickException(f"{error.filename or file} can't be written: {error.strerror}") from None
    try:
        await installation.state.record_backup()
    except Refusal as refusal:
        click.echo(f"That it was made couldn't be noted for metrics and svc doctor: {describe_refusal(refusal)}", err=True)
    keys = " and ".join(installation.vault.needed_ids)
    trial = f"Try it with: {_trial_command(file)}"
    if path is None:
        click.echo(f"The dump is sealed under the data key {keys}. {trial}", err=True)
    else:
        click.echo(f"{file}: {os.path.getsize(file)} bytes, sealed under the data key {keys}. {trial}")


def _trial_command(file: Path) -> str:
    """Return the command that verifies a dump, with the options by which this one has found the data key."""
    context = click.get_current_context()
    words = ["svc", "backup", "verify"]
    for name in ("config", "data_dir", "data_key_file", "data_key_command"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            words += [f"--{name.replace('_', '-')}", str(context.params[name])]
    return shlex.join([*words, "FILE" if file == _STANDARD else str(file)])


@backup.command("verify")
@click.argument("file", type=FILE)
@with_server_options
def verify_command(given: dict[str, Any], file: Path) -> None:
    """Restore the dump FILE on trial, and open every secret, API key, password, signing key and audit key in it.

    It is restored into a PostgreSQL of its own in a temporary directory (TMPDIR says where), which is removed again; the
    server's database isn't touched. Values are never shown. The exit code is 1 if anything is wrong.

    It is looked at whether PostgreSQL restores the dump, as a whole; whether this program can serve with it, after bringing
    its schema up to date; and whether the data key opens all that is sealed in it. The key comes from where the server gets
    it: SERVICE_DATA_KEY, --data-key-file, --data-key-command, or the file data-key of --data-dir. The output names it by its
    id, as `svc data-key status` does. The server's database, of --data-dir or --database-url, gets to know of it, where it
    is in reach.
    """

    async def verify_file(reactor: Any) -> None:
        try:
            settings = read_settings(given)
            data_keys = await _read_data_keys(reactor, settings)
            with _seekable_file(file) as path:
                verified = await show_progress(_verify_dump(reactor, path, data_keys), f"Verifying {file}", sys.stderr)
                _print_verified(file, verified)
                if file != _STANDARD:
                    await _record_verified(reactor, settings, path.absolute(), verified)
        except Refusal as refusal:
            raise click.ClickException(f"{file}: {describe_refusal(refusal)}") from None

    run_reactor(verify_file)


async def _record_verified(reactor: Any, settings: Settings, path: Path, verified: VerificationResult) -> None:
    """Have the server's database know, where it is in reach."""
    try:
        demand_database(settings)
    except Refusal:
        return  # this isn't its machine
    try:
        await run_on_installation(
            reactor, settings, lambda installation: record_verification(installation.state, settings, path, verified)
        )
    except Refusal as refusal:
        click.echo(
            f"That it was verified couldn't be noted for metrics and svc doctor: {describe_refusal(refusal)}", err=True
        )


async def _read_data_keys(reactor: Any, settings: Settings) -> tuple[bytes, ...]:
    source = DataKeySource.from_settings(reactor, settings)
    keys = await source.read_keys()
    if keys is None:
        where = source.where
        raise click.ClickException(f"there is no data key: give it as SERVICE_DATA_KEY, or --data-dir; there is no {where}")
    return keys


async def _verify_dump(reactor: Any, file: Path, data_keys: tuple[bytes, ...]) -> VerificationResult:
    with tempfile.TemporaryDirectory(prefix="svc-backup-") as directory:
        async with running_services() as services:
            return await verify_backup(services, reactor, file, Path(directory, "data"), data_keys)


@contextmanager
def _seekable_file(file: Path) -> Iterator[Path]:
    """Have a file that can be read twice: standard input is written to a temporary one first."""
    if file != _STANDARD:
        yield file
        return
    with tempfile.NamedTemporaryFile(prefix="svc-backup-") as spooled:
        with raising_on_signals():  # no reactor turns meanwhile
            shutil.copyfileobj(sys.stdin.buffer, spooled)
        spooled.flush()
        yield Path(spooled.name)


@backup.command("restore")
@click.argument("file", type=FILE)
@click.option("--damaged", is_flag=True, help="Restore it although some of its values can't be opened.")
@with_settings
async def restore_command(reactor: Any, settings: Settings, file: Path, damaged: bool) -> None:
    """Restore the dump FILE into a new --data-dir, or into an empty database at --database-url.

    A directory that a server has used, and a database that isn't empty, are refused. The data key comes from
    --data-key-file, --data-key-command or SERVICE_DATA_KEY, and is compared with the dump before anything is made; a new
    data directory gets it as its file data-key. An older dump is brought up to this program's schema, and all that is sealed
    in it is opened. With - as FILE it is read from standard input.

    All access tokens and sessions of before end. The output says what may have come back that was taken away after the
    dump was made. A restore that was killed can be run again, which removes what that one has left; until then no server
    starts there.

    Example: svc backup restore --data-dir /var/lib/svc --data-key-file /root/data-key svc.dump
    """
    if not is_key_given(settings):
        raise click.ClickException(
            "there is no data key: give it as --data-key-file, --data-key-command or SERVICE_DATA_KEY"
        )
    if settings.data_key_command is not None:
        parse_command(settings.name_of("data_key_command"), settings.data_key_command)
    key_file, new = settings.data_key_file, settings.data_dir.absolute()
    if settings.database_url is None and key_file is not None and new in key_file.absolute().parents:
        raise click.ClickException(
            f"{key_file} is in the new data directory: keep the data key elsewhere until that is made"
        )
    data_keys = await _read_data_keys(reactor, settings)

    is_unfinished = False

    def warn_interrupted() -> None:
        if is_unfinished:
            click.echo(
                "The restore was interrupted: run it again, which removes what this one has left. Until then no server"
                " starts there.",
                err=True,
            )

    async def report_step(work: Awaitable[T], what: str) -> T:
        nonlocal is_unfinished
        is_unfinished = True
        if not sys.stderr.isatty():
            click.echo(f"{what} …", err=True)
        return await show_progress(work, what, sys.stderr)

    reactor.addSystemEventTrigger("before", "shutdown", warn_interrupted)
    with _seekable_file(file) as path:
        try:
            async with running_services() as services:
                restored = await restore_backup(
                    services, reactor, settings, path, data_keys, report_step, warn=_print_warning, damaged=damaged
                )
                _print_restored(restored)
        except Refusal as refusal:
            raise click.ClickException(f"{file}: {describe_refusal(refusal)}") from None
        finally:
            is_unfinished = False
    kept = (
        "" if settings.database_url is not None else " The data key is in its file data-key, of which a copy must be kept."
    )
    click.echo(f"Restored into {describe_database(settings)}.{kept}")


def _print_warning(text: str) -> None:
    click.echo(f"Warning: {text}", err=True)


def _print_restored(restored: RestoreResult) -> None:
    """Print what there is, and what may have come back."""
    counts, verified = restored.counts, restored.verified
    since = datetime.fromtimestamp(verified.dumped, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if restored.resumed:
        click.echo("What an earlier restore had left was removed.")
    _print_opened(verified)
    click.echo(
        f"There are: accounts: {counts.accounts}, roles: {counts.roles}, resources: {counts.resources},"
        f" values: {counts.values}"
    )
    click.echo(
        f"All access tokens and {restored.sessions} sessions have ended, and each account has a new signing key: everybody"
        " logs in again."
    )
    click.echo(f"The backup is of {since}. It can't know of what was changed after that, so these may have come back:")
    click.echo("  API keys and passwords that were rotated or changed since: rotate those that were stolen again")
    click.echo("  users, hosts, memberships and permissions that policy took away since: load the newest policy again")
    click.echo("  values that were changed since, in the version of before: set them again")
    click.echo(f"  host factory tokens that were revoked since, among {counts.factory_tokens} that haven't expired: look")
    click.echo("    with svc hostfactory, and revoke them again")
    click.echo(f"  keys of providers that were distrusted since, beside {counts.distrusted} that are: distrust them again")
    click.echo("  authenticators that were disabled since: disable them again")
    if restored.rotated:
        click.echo(f"  values that a rotator has replaced elsewhere since, of these {len(restored.rotated)} variables:")
        for name in restored.rotated[:NAMED]:
            click.echo(f"    {name}")
        if len(restored.rotated) > NAMED:
            click.echo(f"    … and {len(restored.rotated) - NAMED} more")
        click.echo("    set each to the password that is in force there, or have it rotated")


def _print_verified(file: Path, verified: VerificationResult) -> None:
    _print_opened(verified)
    if verified.failed:
        raise click.ClickException(f"{file}: {verified.failed} of its values can't be opened")
    click.echo("The backup can be restored, and all of it opens.")


def _print_opened(verified: VerificationResult) -> None:
    version, current = verified.version, verified.current
    brought = "" if version >= current else f"; this program brought it to {current}"
    click.echo(f"Schema: version {version}{brought}.")
    click.echo(f"Data key: {' and '.join(verified.data_keys)}")
    click.echo("Opened: " + ", ".join(f"{kind}: {count}" for kind, count in verified.opened.items()))
    for name in verified.first_failed:
        click.echo(f"Does not open: {name}", err=True)
    if verified.failed > len(verified.first_failed):
        click.echo(f"… and {verified.failed - len(verified.first_failed)} more", err=True)

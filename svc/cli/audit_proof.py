"""Commands that prove records: verified by their digests, up to an anchor that was kept elsewhere."""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from codecs import BOM_UTF8
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import click

from svc.audit.record import KEY_BYTES, ChainEnd
from svc.audit.record_files import read_chain_ends
from svc.audit.verification import MAX_FINDINGS, AuditVerification, RecordFinding, anchors_in
from svc.audit.verification import verify_files as verified
from svc.cli.admin import with_installation, with_server_options
from svc.cli.coroutines import Then
from svc.cli.options import FILE
from svc.cli.reactor import run_reactor
from svc.cli.table import escape_text, print_json
from svc.model.errors import Refusal
from svc.server.bootstrap import Installation
from svc.server.startup import describe_refusal
from svc.settings.config import Settings
from svc.settings.reading import read_settings
from svc.tap import run_on_installation

_FILES: Final = click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE…")


@click.command("verify")
@_FILES
@click.option("--anchor", "anchors", type=FILE, multiple=True, help="File with an anchor that was kept elsewhere; several.")
@click.option("--key-file", type=FILE, help="File with the audit key, where the database can't be reached.")
@click.option("--unordered", is_flag=True, help="Records may stand in another order: for what a syslog receiver wrote.")
@click.option("--json", "as_json", is_flag=True, help="Print an object: whole, chains, findings, notes and counts.")
@with_server_options
def verify_command(given: dict[str, Any], files: tuple[Path, ...], key_file: Path | None, **options: Any) -> None:
    """Verify that no record in audit files was changed, left out, put in or moved. The exit code is 1 if one was.

    Give all files of a server together, rotated and compressed ones too; those of several servers may be among them. A cut
    end shows only against an anchor: see `svc audit anchor`. A line that a server couldn't finish is reported separately.

    The audit key is read from the database of --data-dir or --database-url, or from --key-file (`svc audit export-key`).

    Example: svc audit verify --config /etc/svc/svc.toml --anchor /mnt/safe/anchors /var/log/svc/audit.log*
    """
    if key_file is not None:
        _verify_files(_read_key_file(key_file), files, **options)
        return

    async def read_audit_key(reactor: Any) -> Then:
        try:
            settings = read_settings(given)
            key = await run_on_installation(reactor, settings, _audit_key)
        except Refusal as refusal:
            raise click.ClickException(describe_refusal(refusal)) from None
        return partial(_verify_files, key, files, **options)

    run_reactor(read_audit_key)


@click.command("anchor")
@_FILES
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects: chain, number and digest.")
def anchor_command(files: tuple[Path, ...], as_json: bool) -> None:
    """Print the present end of each chain in audit files: an anchor, to be kept where no server can write.

    `svc audit verify --anchor` finds by it that later the end was cut off, or that anything before it was written again,
    even by somebody who has the key. A record that a syslog receiver has is an anchor too.

    Example: svc audit anchor /var/log/svc/audit.log | ssh safe 'cat >> anchors'
    """
    try:
        ends = read_chain_ends(files)
    except OSError as error:
        raise click.ClickException(f"{error.filename or files[0]} can't be read: {error.strerror or error}") from None
    if not ends:
        raise click.ClickException("there is no record with a digest")
    rows = [(end.chain, end.number, b64encode(end.digest).decode("ascii")) for end in ends]
    if as_json:
        print_json([dict(zip(("chain", "number", "digest"), row, strict=True)) for row in rows])
    else:
        for row in rows:
            click.echo(" ".join(map(str, row)))


@click.command("export-key")
@click.argument("file", type=FILE)
@with_installation
async def export_key_command(installation: Installation, settings: Settings, file: Path) -> None:  # noqa: ARG001 (of all)
    """Write the audit key to FILE, which must not exist, to verify records where the database can't be reached.

    Keep it as you keep the data key: with it records can be verified, and also forged.

    Example: svc audit export-key --config /etc/svc/svc.toml /root/audit.key
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as written:
            written.write(b64encode(installation.audit_key) + b"\n")
    except OSError as error:
        raise click.ClickException(f"{file} can't be written: {error.strerror}") from None


async def _audit_key(installation: Installation) -> bytes:
    return installation.audit_key


def _read_key_file(path: Path) -> bytes:
    try:
        key = b64decode(path.read_bytes().removeprefix(BOM_UTF8).strip(), validate=True)
    except OSError as error:
        raise click.ClickException(f"{path} can't be read: {error.strerror}") from None
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise click.ClickException(f"{path} holds no audit key: `svc audit export-key` writes one")
    return key


def _verify_files(
    key: bytes, files: tuple[Path, ...], anchors: tuple[Path, ...], *, unordered: bool = False, as_json: bool = False
) -> None:
    try:
        verdict = verified(files, key, _read_anchors(anchors), unordered=unordered)
    except OSError as error:
        raise click.ClickException(f"{error.filename or 'a file'} can't be read: {error.strerror or error}") from None
    if as_json:
        print_json({"whole": verdict.is_intact, **json.loads(json.dumps(attrs.asdict(verdict)))})
    else:
        _print_result(verdict, anchored=bool(anchors))
    if not verdict.is_intact:
        raise click.exceptions.Exit(1)


def _read_anchors(paths: tuple[Path, ...]) -> list[ChainEnd]:
    found: list[ChainEnd] = []
    for path in paths:
        try:
            found += anchors_in(path.read_bytes())
        except OSError as error:
            raise click.ClickException(f"{path} can't be read: {error.strerror}") from None
        except ValueError as error:
            raise click.ClickException(f"{path}: {error}") from None
    return found


def _print_result(verdict: AuditVerification, *, anchored: bool) -> None:
    for chain in verdict.chains:
        click.echo(
            f"Chain {chain.chain} of {chain.hostname}: {chain.count} records, {chain.first} to {chain.last},"
            f" {chain.since} to {chain.until}"
        )
        if not chain.verified:
            click.echo(f"  record {chain.first} can't be verified itself: the one before it is not in these files")
        if chain.anchored is not None:
            click.echo(f"  anchored up to record {chain.anchored}")
        elif not anchored:
            click.echo("  without an anchor: that its end was not cut off is not shown")
    for count, what in (
        (verdict.unproven, "records without a digest"),
        (verdict.others, "lines that are no records"),
    ):
        if count:
            click.echo(f"{count} {what}")
    for note in verdict.notes:
        click.echo(f"Note: {_format_finding(note)}")
    for finding in verdict.findings:
        click.echo(f"WRONG: {_format_finding(finding)}")
    if verdict.count > MAX_FINDINGS:
        click.echo(f"… and {verdict.count - MAX_FINDINGS} more")
    if not verdict.chains:
        click.echo("There is no record with a digest.")
    click.echo("All is well." if verdict.is_intact else f"{verdict.count} findings: records are not as they were written.")


def _format_finding(finding: RecordFinding) -> str:
    chain = "" if finding.chain is None else f" (chain {finding.chain})"
    place = "" if finding.place is None else f"{finding.place}: "
    return escape_text(f"{place}{finding.what}{chain}")

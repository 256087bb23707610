"""Commands that read and write secrets."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from shlex import quote
from typing import IO, Any, Final

import attrs
import click

from svc.cli.connection import RETRIED_DEADLINE, ApiConnection, authenticated_command, build_query
from svc.cli.options import FILE
from svc.cli.readers import warn_of_readers
from svc.cli.saved_login import write_private
from svc.cli.table import escape_text
from svc.model.clocks import WallClock, iso_seconds
from svc.workload.faults import Fault
from svc.workload.watching import NewVersions, Watch, WatchEvent

#: The state of a variable that can't be read any more.
_GONE: Final = "gone"


#: The kind that may stand before the id of a variable, as ids of other resources are written.
_KIND: Final = "variable:"


@click.group()
def variable() -> None:
    """Read and write the values of variables.

    A variable is written db/password, or variable:db/password as in other commands.
    """


def _without_kind(context: click.Context, parameter: click.Parameter, value: Any) -> Any:  # noqa: ARG001 (click's)
    """Return the id of a variable without its kind, or several; the callback of an argument."""
    return value.removeprefix(_KIND) if isinstance(value, str) else tuple(each.removeprefix(_KIND) for each in value)


_IDENTIFIER: Final = click.argument("identifier", callback=_without_kind)


def _api_path(connection: ApiConnection, identifier: str) -> str:
    return connection.encode_path("secrets", connection.account, "variable", identifier)


@variable.command()
@_IDENTIFIER
@click.option("--version", type=click.IntRange(min=1), help="An older version than the newest.")
@click.option(
    "--output", type=FILE, help="File to write the value to, which nobody else may read; one that is there is replaced."
)
@click.option("--tag", is_flag=True, help="Print the tag of the value instead, as `svc variable set --if-match` takes it.")
@authenticated_command
async def get(connection: ApiConnection, identifier: str, version: int | None, output: Path | None, tag: bool) -> None:
    """Write the value of variable IDENTIFIER to standard output: its exact bytes, without a newline of our own.

    Example: svc variable get db/password
    """
    if tag:
        if output is not None:
            raise click.UsageError("--tag writes no value, so that there is nothing for --output")
        answer = await connection.request_with_token(
            "HEAD", _api_path(connection, identifier) + build_query(version=version)
        )
        click.echo(answer.expect(200).headers.get("etag", ""))
        return
    value = await (await connection.workload_client()).secret(identifier, version)
    if output is not None:
        try:
            write_private(output, value)
        except OSError as error:
            raise click.ClickException(f"{output} cannot be written: {error.strerror}") from None
    else:
        sys.stdout.buffer.write(value)
        sys.stdout.buffer.flush()


@variable.command("set")
@_IDENTIFIER
@click.option("--file", "file", type=click.File("rb"), help="File that holds the value; - is standard input.")
@click.option("--if-match", metavar="TAG", help="Replace this value alone, as `svc variable get --tag` tells it.")
@click.option("--create-only", is_flag=True, help="Set a value only where there is none.")
@authenticated_command
async def set_value(
    connection: ApiConnection, identifier: str, file: IO[bytes] | None, if_match: str | None, create_only: bool
) -> None:
    """Set the value of variable IDENTIFIER, which keeps its older versions.

    The value comes from --file, or else from standard input; on a terminal there is a prompt, without an echo. It is taken
    as it is: mind the newline that echo adds. There is no way to give it on the command line, where all users of the machine
    could read it.

    Example: printf %s "$PASSWORD" | svc variable set db/password
    """
    if if_match is not None and create_only:
        raise click.UsageError("--create-only sets a first value, and --if-match replaces one: give one of them")
    if file is None and sys.stdin.isatty():
        value = click.prompt("Value", hide_input=True, confirmation_prompt=True).encode()
    else:
        value = (file or sys.stdin.buffer).read()
    demands = {"If-Match": if_match} if if_match is not None else {"If-None-Match": "*"} if create_only else {}
    shows = f"svc variable get --tag {quote(identifier)}"
    (await connection.request_with_token("POST", _api_path(connection, identifier), value, shows=shows, **demands)).expect(
        201
    )
    click.echo(f"The value of {identifier} is set.", err=True)


@variable.command()
@_IDENTIFIER
@authenticated_command
async def rotate(connection: ApiConnection, identifier: str) -> None:
    """Have variable IDENTIFIER be rotated now, whose policy names a rotator: annotations rotation/rotator and rotation/ttl.

    The new value is there within moments. `svc list --kind variable --json` shows why a rotation failed. A variable that no
    rotator can rotate is refused, and nothing of it is changed; `svc variable expire --never` removes an expiration.

    Example: svc variable rotate shop/database/password
    """
    await warn_of_readers(connection, identifier)
    path = f"{_api_path(connection, identifier)}?rotation"
    (await connection.request_with_token("POST", path, shows="svc list --kind variable --json")).expect(201)
    click.echo(f"{identifier} is due to be rotated.", err=True)


@variable.command()
@_IDENTIFIER
@click.option("--never", is_flag=True, help="No value that there is expires any more; those that have expired are back.")
@authenticated_command
async def expire(connection: ApiConnection, identifier: str, *, never: bool) -> None:
    """Remove the expiration of the values of variable IDENTIFIER.

    When values expire is a matter of policy, by the annotation expiration/ttl, which applies to the next value again. The
    value of a rotated variable never expires: it is refused.

    Example: svc variable expire shop/promotion --never
    """
    if not never:
        raise click.UsageError(
            "say --never; when values expire is said by policy: the annotation expiration/ttl, such as P30D"
        )
    path = f"{_api_path(connection, identifier)}?expirations"
    (await connection.request_with_token("DELETE", path, shows="svc list --kind variable --json")).expect(204)
    click.echo(f"The values of {identifier} that there are don't expire any more.", err=True)


@variable.command()
@click.argument("identifiers", metavar="IDENTIFIER…", nargs=-1, required=True, callback=_without_kind)
@click.option("--once", is_flag=True, help="End after the first change.")
@click.option("--json", "as_json", is_flag=True, help="Print an object of JSON a line.")
@authenticated_command
async def watch(connection: ApiConnection, identifiers: tuple[str, ...], *, once: bool, as_json: bool) -> None:
    """Print a line for each new version of variables, within a second. Ctrl-C ends it.

    A line has the time at which the news came, the variable, and the number of its newest version: "none" without a value,
    "gone" once you may not read the variable any more, or it is not there any more. First of all come the versions that are
    there. You need `execute` on each of the variables, as to read them.

    Values are never printed. A script that needs one reads it, which the audit records:

    \b
        svc variable watch shop/cert | while read -r time variable version; do
            svc variable get "$variable" --output /run/shop/cert && systemctl reload shop
        done

    It goes on while the server is away or is restarted, and prints afterwards what has changed meanwhile; outages are
    reported on standard error. `svc agent` keeps files and programs up to date without a script.

    With --once it ends with 0 when something has changed since it began. In a loop, leave that out: what changes between two
    runs would be missed.
    """  # noqa: D301 (click's mark for lines that stay as they are is a backspace)
    assert connection.streams is not None
    outage = _Outage()
    watching = Watch(
        connection.url,
        connection.account,
        identifiers,
        connection.token_source(),
        connection.streams,
        deadline=RETRIED_DEADLINE,
        chance=random.random,
        lost=outage.begin,
        back=outage.end,
    )
    lines = _VersionLines(connection.wall, as_json=as_json)
    if sys.stdout.isatty() and not as_json:
        click.echo("  ".join(word.ljust(width) for word, width in (("TIME", 20), ("VARIABLE", 0), ("VERSION", 0))))
    try:
        lines.print_changes(await watching.next())
        while True:
            if lines.print_changes(await watching.next()) and once:
                return
    finally:
        await watching.close()


class _Outage:
    """The messages about an outage of the server: one when it begins, whatever fails then, and one when it ends."""

    _is_on = False

    def begin(self, fault: Fault) -> None:
        """Report that it has begun, once."""
        if not self._is_on:
            self._is_on = True
            click.echo(f"The watch is interrupted, and goes on as soon as it can: {fault}", err=True)

    def end(self) -> None:
        """Report that it is over."""
        self._is_on = False
        click.echo("The watch goes on.", err=True)


@attrs.define
class _VersionLines:
    """The lines, with the state in the last one of each variable: after an outage the server may send all versions again."""

    _wall: WallClock
    _as_json: bool = attrs.field(kw_only=True)
    _last_states: dict[str, int | str | None] = attrs.field(factory=dict, init=False)

    def print_changes(self, event: WatchEvent) -> bool:
        """Print what is new, and return whether anything is."""
        states: dict[str, int | str | None]
        states = {**event.versions} if isinstance(event, NewVersions) else dict.fromkeys(event.variables, _GONE)
        news = {
            name: state
            for name, state in states.items()
            if name not in self._last_states or self._last_states[name] != state
        }
        self._last_states |= news
        at = iso_seconds(self._wall.seconds())
        for name, state in news.items():
            click.echo(self._format_line(at, name, state))
        return bool(news)

    def _format_line(self, at: str, name: str, state: int | str | None) -> str:
        if self._as_json:
            version = None if state == _GONE else state
            return json.dumps({"time": at, "variable": name, "version": version, "gone": state == _GONE})
        row = (at, escape_text(name), "none" if state is None else str(state))
        return ("  " if sys.stdout.isatty() else "\t").join(row)

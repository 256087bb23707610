"""One import, from whichever source: its plan in words, the load with its progress, and the comparison.

The target is the server of all commands. Each of its loads and values is sent again while the answer is lost, which changes
nothing twice.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TextIO
from urllib.parse import quote

import attrs
import click

from svc.cli.connection import ApiAnswer, ApiConnection
from svc.cli.options import FILE
from svc.cli.table import escape_text, print_table
from svc.importing.authenticator_clashes import Planner
from svc.importing.conjur import ConjurReader
from svc.importing.conjur_session import AGAIN, FIRST_PAUSE, LONGEST_PAUSE, PATIENCE, Server
from svc.importing.inventory import Inventory, Note, NoteKind, Progress, Record, RecordId, SourceStopped, Values
from svc.importing.load import Load
from svc.importing.new_keys import TEMPLATE, KeyFiles
from svc.importing.plan import Plan
from svc.importing.translation import Translation, find_target_dialect
from svc.importing.verify import Verification
from svc.model.clocks import steady_seconds
from svc.model.dialect import Dialect
from svc.workload.address import public_origin
from svc.workload.faults import Unreachable
from svc.workload.replies import Reply

#: The exit code where something was refused or clashed, or where both servers differ or couldn't be compared.
DIFFERENT: Final = 3

#: The statuses after which the target may do the same: a load of the policy is running, busy, unavailable.
_LATER: Final = {409, 429, 502, 503, 504}

#: How many names are printed of those that have the same reason, unless all are asked for.
_FIRST: Final = 5

_HEADINGS: Final = {
    NoteKind.LEFT_OUT: "Not moved",
    NoteKind.CHANGED: "Moved, and other than it was",
    NoteKind.UNSEEN: "Not seen, so neither moved nor compared",
    NoteKind.TO_KNOW: "To know",
}


class Source(Protocol):
    """A source, as ``svc.importing.inventory`` describes it."""

    @property
    def place(self) -> str:
        """Return its address, for messages."""

    async def read_inventory(self, progress: Progress) -> Inventory:
        """Return what it holds."""

    def read_values(self, variables: Iterable[Record]) -> AsyncIterator[Values]:
        """Read values."""


def import_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that :func:`run_import` takes."""
    for option in (
        click.option("--key-template", type=FILE, help="Template of these files, with $login, $api_key, $url and $account."),
        click.option(
            "--replace-keys",
            is_flag=True,
            help="With --new-keys: also give those who were here before another key, which ends theirs.",
        ),
        click.option(
            "--new-keys",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="Write a file of mode 0600 to DIR for each host and user that gets an API key here.",
        ),
        click.option("--sample", type=click.IntRange(min=1), help="With --verify: compare so many roles and variables."),
        click.option("--all", "show_all", is_flag=True, help="Print every name, instead of the first few of each reason."),
        click.option("--verify", is_flag=True, help="Change nothing; compare both servers, and print the differences."),
        click.option("--plan", "plan_only", is_flag=True, help="Change nothing; print what would be made, and what can't."),
    ):
        command = option(command)
    return command


@attrs.define
class TargetServer:
    """The server of the command as a ``Target``."""

    connection: ApiConnection

    @property
    def account(self) -> str:
        """Return the account."""
        return self.connection.account

    @property
    def place(self) -> str:
        """Return the address and the account, for messages."""
        return f"{public_origin(self.connection.url)} (account {self.account})"

    async def ask(self, path: str, **headers: str) -> ApiAnswer:
        """See ``Server``."""
        answer = await self._repeat(lambda: self.connection.request_with_token("GET", path, None, **headers))
        if answer.status == 401:
            raise answer.as_exception()
        return answer

    async def load_policy(self, method: str, path: str, body: bytes) -> Reply:
        """See ``Target``."""
        options = {"shows": "svc import with --plan", "Content_Type": "application/x-yaml"}
        send = self.connection.request_with_token
        return await self._repeat(lambda: self.connection.send_change(send, method, path, body, **options))

    async def set_value(self, path: str, body: bytes) -> Reply:
        """See ``Target``."""
        return await self._repeat(lambda: self.connection.request_with_token("POST", path, body, shows=""))

    async def switch(self, path: str, body: bytes) -> Reply:
        """See ``Target``."""
        options = {"shows": "", "Content_Type": "application/x-www-form-urlencoded"}
        return await self._repeat(lambda: self.connection.request_with_token("PATCH", path, body, **options))

    async def rotate_key(self, name: RecordId) -> str:
        """Give a host or user another API key, and return it."""
        path = f"/authn{self.connection.encode_path(self.account)}/api_key?role={quote(str(name), safe='')}"
        send = self.connection.request_with_token
        answer = await self.connection.send_change(send, "PUT", path, None, shows="svc import with --new-keys")
        return answer.expect(200).api_key()

    async def _repeat(self, send: Callable[[], Awaitable[ApiAnswer]]) -> ApiAnswer:
        """Return the answer to what may be sent twice, asked for again while the server is away or busy."""
        requester = self.connection.requester
        ends, pause = requester.seconds() + PATIENCE, FIRST_PAUSE
        while True:
            wanted: float | None = None
            try:
                answer = await send()
                if answer.status not in _LATER or requester.seconds() + pause > ends:
                    return answer
                wanted = answer.retry_after
            except Unreachable:
                if requester.seconds() + pause > ends:
                    raise
            await requester.sleep(pause if wanted is None else max(wanted, FIRST_PAUSE))
            pause = min(2 * pause, LONGEST_PAUSE)


@attrs.define
class ProgressLine:
    """How far an import is: on a terminal in one line that changes, else in a line every ten seconds."""

    stream: TextIO
    _shown_at: float = attrs.field(init=False)
    _what: str = attrs.field(default="", init=False)
    _is_open: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        """Begin to count."""
        self._shown_at = steady_seconds()

    def show(self, what: str, done: int, total: int | None) -> None:
        """See ``Progress``."""
        now, terminal = steady_seconds(), self.stream.isatty()
        due = now - self._shown_at > (0.2 if terminal else 10.0)
        if not (due or (terminal and what != self._what)):
            return
        self._shown_at, self._what = now, what
        text = escape_text(f"{what}: {done:,}" + (f" of {total:,}" if total is not None else ""))
        if terminal:
            click.echo(f"\r\x1b[K{text}", file=self.stream, nl=False)
            self._is_open = True
        else:
            click.echo(text, file=self.stream)

    def close(self) -> None:
        """End the line."""
        if self._is_open:
            click.echo("\r\x1b[K", file=self.stream, nl=False)
            self._is_open = False


async def run_import(
    connection: ApiConnection,
    source: Source,
    source_server: Server | None,
    *,
    plan_only: bool,
    verify: bool,
    show_all: bool,
    sample: int | None,
    new_keys: Path | None,
    replace_keys: bool,
    key_template: Path | None,
) -> None:
    """Plan, load or compare, as the options of :func:`import_options` say.

    :param source_server: the source as a server that decides who may do what, where it is one of Conjur's interface.
    :raises click.ClickException: the source or the target can't be used on; the message says how to go on.
    """
    _check_options(plan_only, verify, sample, new_keys, replace_keys, key_template)
    target = TargetServer(connection)
    files = _prepare_files(connection, new_keys, key_template)
    line = ProgressLine(sys.stderr)
    try:
        dialect = await _read_dialect(target)
        translation = Translation.to_dialect(dialect)
        theirs = await source.read_inventory(_named(line, "source"))
        wanted = translation.translate(theirs)
        reader = ConjurReader(target, connection.wall, is_source=False, prefix=dialect.prefix)
        ours = translation.ignore_rotation(await reader.read_inventory(_named(line, "target")))
        names = translation.source_ids(theirs)
        if verify:
            compared = Verification(
                wanted, ours, source_server, target, source, source_ids=names, progress=line.show, sample=sample
            )
            await compared.run()
            line.close()
            _print_comparison(compared, show_all)
            return
        plan = await Planner(wanted, ours, source, target, names).make_plan(dialect)
        line.close()
        _print_plan(plan, source, target, dialect, translation, show_all)
        if plan_only:
            click.echo("This was the plan: nothing has been changed.", err=True)
            return
        await _load(plan, source, target, names, line, files, replace_keys, show_all)
    except SourceStopped as stopped:
        line.close()
        raise click.ClickException(f"{stopped}; {stopped.remedy}") from None
    finally:
        line.close()


def _check_options(
    plan_only: bool,
    verify: bool,
    sample: int | None,
    new_keys: Path | None,
    replace_keys: bool,
    key_template: Path | None,
) -> None:
    if plan_only and verify:
        raise click.UsageError("--plan prints what an import would do, and --verify compares after one: give one of them")
    if sample is not None and not verify:
        raise click.UsageError("--sample is for --verify")
    if new_keys is not None and (plan_only or verify):
        raise click.UsageError("--new-keys is for the import itself: --plan and --verify change nothing")
    if new_keys is None and (replace_keys or key_template is not None):
        raise click.UsageError("--replace-keys and --key-template are for --new-keys")


def _prepare_files(connection: ApiConnection, folder: Path | None, template: Path | None) -> KeyFiles | None:
    if folder is None:
        return None
    try:
        text = TEMPLATE if template is None else template.read_text(encoding="utf-8")
        files = KeyFiles(folder, {"url": connection.url, "account": connection.account}, text)
        files.prepare()
    except OSError as error:
        raise click.ClickException(f"{error.filename} cannot be used: {error.strerror}") from None
    except ValueError as error:
        raise click.ClickException(f"{template}: {error}") from None
    return files


async def _read_dialect(target: TargetServer) -> Dialect:
    services = (await target.ask("/info")).expect(200).json().get("services")
    return find_target_dialect(services if isinstance(services, dict) else ())


def _named(line: ProgressLine, name: str) -> Progress:
    return lambda what, done, total: line.show(f"{name}: {what}", done, total)


async def _load(
    plan: Plan,
    source: Source,
    target: TargetServer,
    names: Mapping[RecordId, RecordId],
    line: ProgressLine,
    files: KeyFiles | None,
    replace_keys: bool,
    show_all: bool,
) -> None:
    got: set[RecordId] = set()

    def take_keys(keys: Mapping[RecordId, str]) -> None:
        got.update(keys)
        if files is not None:
            files.take(keys)

    def expect_keys(actors: Sequence[RecordId]) -> None:
        if files is not None:
            files.expect(actors)

    load = Load(plan, source, target, names, progress=line.show, take_keys=take_keys, expect_keys=expect_keys)
    try:
        await load.run()
        if files is not None:
            await _replace_keys(plan, target, files, replace_keys)
    except BaseException:
        line.close()
        click.echo(f"Stopped. {_describe_done(load)} Nothing of it is half done: {AGAIN}.", err=True)
        raise
    line.close()
    if files is not None:
        load.notes += _note_keyless(plan, files, plan.keyed if replace_keys else got)
    _print_notes(load.notes, show_all)
    click.echo(f"{_describe_done(load)} Compare both servers with --verify.", err=True)
    if files is not None:
        click.echo(f"{files.written} files with new API keys are in {files.folder}.", err=True)
    elif got:
        click.echo(
            f"{len(got)} hosts and users have an API key here that nobody has seen:"
            " `--new-keys DIR --replace-keys` writes another one for each.",
            err=True,
        )
    if plan.clashes or any(note.kind is NoteKind.LEFT_OUT for note in load.notes):
        raise click.exceptions.Exit(DIFFERENT)


async def _replace_keys(plan: Plan, target: TargetServer, files: KeyFiles, replace_keys: bool) -> None:
    """Write the files that an interrupted run didn't write, and with ``replace_keys`` those of all others."""
    lost, here = files.expected(), {each.id for each in plan.records}
    keyed = [name for name in plan.keyed if files.accepts(name)]
    wanted = [name for name in keyed if not files.has(name) and (replace_keys or name in lost)]
    for name in wanted:
        files.take({name: await target.rotate_key(name)})
    files.finish(without=lost.difference(keyed))
    old = [name for name in keyed if not files.has(name) and name not in here]
    if old:
        click.echo(
            f"{len(old)} hosts and users were here before, and keep the keys that they have here:"
            " with --replace-keys they get others.",
            err=True,
        )


def _note_keyless(plan: Plan, files: KeyFiles, names: Collection[RecordId]) -> list[Note]:
    """Return notes on those who should have a file, and can't have one."""
    return [
        Note(
            NoteKind.LEFT_OUT,
            f"file with the API key of {name}",
            "its login has a blank, a quote or another character that a shell would read otherwise",
            f"`svc user rotate-api-key --role {name.kind}:ID` makes a key and prints it",
        )
        for name in plan.keyed
        if name in names and not files.accepts(name)
    ]


def _describe_done(load: Load) -> str:
    return (
        f"{load.loaded:,} statements of policy were loaded, {load.versions_set:,} versions of values set,"
        f" and {load.equal_values:,} variables had theirs already."
    )


def _print_plan(
    plan: Plan,
    source: Source,
    target: TargetServer,
    dialect: Dialect,
    translation: Translation,
    show_all: bool,
) -> None:
    click.echo(f"From {plan.source} at {source.place} to {target.place}, dialect {dialect.name}.")
    if translation.rules:
        click.echo("\nNames that are other ones here:")
        print_table(("OF", "THERE", "HERE"), translation.table())
    click.echo(f"\nHere already, and equal: {plan.equal:,} records, memberships and permissions.")
    if counts := plan.counts():
        click.echo("To make:")
        print_table(("WHAT", "COUNT"), [(name, f"{count:,}") for name, count in counts])
    else:
        click.echo("Nothing is missing.")
    if plan.clashes:
        click.echo("\nClashes, left as they are here:")
        _print_grouped(plan.clashes, show_all)
    _print_notes(plan.notes, show_all)


def _print_notes(notes: Iterable[Note], show_all: bool) -> None:
    kinds: dict[NoteKind, list[Note]] = defaultdict(list)
    for note in notes:
        kinds[note.kind].append(note)
    for kind, heading in _HEADINGS.items():
        if found := kinds.get(kind):
            click.echo(f"\n{heading}:")
            _print_grouped(found, show_all)


def _print_grouped(notes: Iterable[Note], show_all: bool) -> None:
    """Print notes, a line for all that have one reason."""
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for note in notes:
        reasons[note.why, note.remedy].append(note.what)
    for (why, remedy), whats in reasons.items():
        shown = whats if show_all else whats[:_FIRST]
        more = f" and {len(whats) - len(shown):,} more (--all prints them)" if len(whats) > len(shown) else ""
        end = f"; {remedy}" if remedy else ""
        click.echo(f"- {escape_text(', '.join(shown))}{more}: {escape_text(why)}{escape_text(end)}")


def _print_comparison(compared: Verification, show_all: bool) -> None:
    for difference in compared.differences:
        click.echo(escape_text(str(difference)))
    if compared.unseen:
        click.echo("Not compared:")
        shown = compared.unseen if show_all else compared.unseen[: 4 * _FIRST]
        for each in shown:
            click.echo(f"- {escape_text(each)}")
        if len(shown) < len(compared.unseen):
            click.echo(f"- and {len(compared.unseen) - len(shown):,} more (--all prints them)")
    parts = ", ".join(f"{count:,} {what}" for what, count in compared.compared.items())
    click.echo(f"Compared: {parts}.", err=True)
    end = f"; {len(compared.unseen):,} not compared" if compared.unseen else ""
    click.echo(f"{len(compared.differences):,} differences{end}.")
    if compared.differences or compared.unseen:
        raise click.exceptions.Exit(DIFFERENT)

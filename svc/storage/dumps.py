"""Dumps of the database, in PostgreSQL's custom format, by PostgreSQL's own programs; and what they may hold (DATA-39).

Note [Whose pg_dump]. The programs that come with the embedded PostgreSQL speak no TLS, and older ones can't restore what
they dump. So an operator's database is dumped by this machine's ``pg_dump``, and by ours where that is missing or too old;
and a dump is restored into it by this machine's ``pg_restore``, and by ours where that can't read the dump.

Note [Altered dumps]. PostgreSQL runs the definitions in a dump as they are. So before anything of it is run, each object
that a dump lists must be one that a migration makes; and after that, before a row is written, functions must have the text
of the migrations, and triggers must call them. This detects the dump of a database in which somebody has planted code. It
doesn't detect every dump that was forged by hand: definitions of tables, views and conditions aren't compared, and rows
can't be.

Note [One writer]. A killed command leaves its ``pg_dump`` at work. So each dump goes into a file that was created for it,
whose descriptor ``pg_dump`` has as its standard output: the lock on that lasts until the last of the two has ended. A
leftover is removed while its lock is held, so that nobody writes to it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO, Final

import attrs
from psycopg2.extensions import make_dsn, parse_dsn
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from svc.model.errors import StartRefused
from svc.storage.driver.migrations import Migration
from svc.storage.driver.statements import ReadSource, Statement
from svc.storage.embedded.binaries import find_installed

#: The first bytes of a dump in the custom format.
_MAGIC: Final = b"PGDMP"

#: The error of ``pg_dump`` about a database newer than itself, where it names the versions, and our own text about that.
_MISMATCH: Final = "server version mismatch"
_SERVER_VERSION: Final = re.compile(r"server version: ([0-9]+)")
_TOO_OLD: Final = "must not be older than the server"

#: The error of ``pg_restore`` about a dump that a newer ``pg_dump`` has made.
_TOO_NEW: Final = "unsupported version"

#: Precedes the one line of a program's error output that is repeated: later lines may quote rows.
_COMPLAINT: Final = "error:"

#: The parameters of libpq that are secrets, and for which it has no environment variable: a service file has them.
SECRETS: Final = frozenset({"oauth_client_secret", "scram_client_key", "scram_server_key", "sslpassword"})
#: The longest line of a service file that every libpq reads, in bytes.
_LONGEST_LINE: Final = 1000

#: The exit code of a program whose output nobody reads any more.
_PIPE_CLOSED: Final = 128 + signal.SIGPIPE

#: How many bytes of a program's error output are read at most.
_COMPLAINTS: Final = 65536

#: A line of a dump's contents; and when the dump was made.
_ENTRY: Final = re.compile(r"[0-9]+; [0-9]+ [0-9]+ (.*)")
_CREATED: Final = re.compile(r"; Archive created at ([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2})")

#: The first line of a table's rows in a script.
_COPY: Final = re.compile(r"COPY .+\.(\S+) \((.*)\) FROM stdin;")

#: A byte in the older form of ``bytea_output``, as three octal digits, or a backslash.
_ESCAPE: Final = re.compile(rb"\\(?:([0-3][0-7]{2})|\\)")


@attrs.frozen
class DumpContents:
    """The contents of a dump: when it was made, in epoch seconds, its tables and other objects, and some rows.

    ``entries`` are all lines of its contents; ``rows`` are by table, each with the columns' names, ``None`` for NULL.
    """

    dumped_at: float | None
    entries: Sequence[str]
    rows: Mapping[str, Sequence[Mapping[str, str | None]]] = attrs.field(repr=False)


def is_dump(path: Path) -> bool:
    """Return whether a file is a dump in the custom format, by its first bytes.

    :raises OSError: it can't be read.
    """
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def program_candidates(*, embedded: bool, own: str | None) -> list[str | None]:
    """Return the programs to dump a database with, one after the other (Note [Whose pg_dump]).

    ``own`` is the path of this machine's ``pg_dump``; ``None`` in the list is that of the embedded PostgreSQL.
    """
    return [None] if embedded or own is None else [own, None]


async def dump_database(reactor: Any, dsn: str, path: Path | None, *, embedded: bool) -> None:
    """Write a dump of the database into a new file, which only its owner may read; none is left when that fails.

    It is made beside that file, and gets its name when it is complete (Note [One writer]).

    :param path: the file; ``None`` for the standard output of this process.
    :param embedded: whether it is the embedded PostgreSQL (Note [Whose pg_dump]).
    :raises StartRefused: the file exists, or PostgreSQL can't be dumped; the message says why.
    :raises OSError: the file can't be made.
    """
    if path is None:
        await _run_pg_dump(reactor, dsn, None, embedded)
        return
    _require_new(path)
    partial = path.with_name(f"{path.name}.partial")
    _remove_leftover(partial)
    with _create_locked(partial) as file:
        try:
            _require_new(path)  # the process whose leftover seemed to be there may have ended just now
            await _run_pg_dump(reactor, dsn, file, embedded)
            os.fsync(file.fileno())
            _require_new(path)
            if not _is_at(partial, file):
                raise StartRefused(f"{partial} was removed or replaced while it was written: make the backup again")
            partial.rename(path)
        except BaseException:
            if _is_at(partial, file):
                partial.unlink()
            raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _require_new(path: Path) -> None:
    if os.path.lexists(path):
        raise StartRefused(f"{path} exists: name a new file")


def _remove_leftover(partial: Path) -> None:
    """Remove the file that a killed process has left, if there is one (Note [One writer]).

    :raises StartRefused: another process writes it, or it is nothing that this user's command has left.
    """
    try:
        found = os.lstat(partial)
        if not (stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == 1):
            raise StartRefused(
                f"{partial} is not the file of an earlier backup by this user: remove it, or name another file"
            )
        descriptor = os.open(partial, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    with open(descriptor, "rb") as left:
        _lock(left, partial)
        if _is_at(partial, left):
            partial.unlink()


@contextmanager
def _create_locked(partial: Path) -> Iterator[BinaryIO]:
    """Create a file that only its owner may read, and lock it (Note [One writer]).

    :raises StartRefused: another process has just done so.
    """
    try:
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise _explain_writer(partial) from None
    with open(descriptor, "wb") as file:
        _lock(file, partial)
        if not _is_at(partial, file):  # another process has taken it for a leftover
            raise _explain_writer(partial)
        os.fchmod(file.fileno(), 0o600)
        yield file


def _lock(file: BinaryIO, partial: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _explain_writer(partial) from None


def _explain_writer(partial: Path) -> StartRefused:
    return StartRefused(
        f"another process writes {partial}: wait for it, or name another file. It may be the pg_dump of a killed command"
    )


def _is_at(path: Path, file: BinaryIO) -> bool:
    """Return whether an open file has this name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(path))
    except FileNotFoundError:
        return False


async def _run_pg_dump(reactor: Any, dsn: str, file: BinaryIO | None, embedded: bool) -> None:
    """Dump the database into a file, or to the standard output of this process."""
    # The rows of ``changes`` belong to the history of this PostgreSQL, and mean nothing in another.
    whole = ["--format=custom", "--no-password", "--encoding=UTF8", "--exclude-table-data=changes"]
    # To its standard output pg_dump appends the contents with the places of the data, which belong at the beginning: so it
    # opens that file by its descriptor, which no other file can take the place of.
    whole += [] if file is None else ["--file=/dev/fd/1"]
    output = 1 if file is None else file.fileno()
    first, *others = program_candidates(embedded=embedded, own=shutil.which("pg_dump"))
    try:
        await run_program(reactor, "pg_dump", dsn, whole, first, output=output)
    except StartRefused as refused:
        if not others or _TOO_OLD not in str(refused):
            raise
        # A program that is too old has written nothing.
        await run_program(reactor, "pg_dump", dsn, whole, output=output)


async def read_contents(reactor: Any, path: Path, tables: Sequence[str], *, embedded: bool) -> DumpContents:
    """Return the contents that a dump lists, with the rows of some small tables; nothing is restored.

    :raises StartRefused: it is no dump, or can't be read; the message says why.
    """
    try:
        if not is_dump(path):
            raise StartRefused("it is no dump in PostgreSQL's custom format, as pg_dump --format=custom makes it")
    except OSError as error:
        raise StartRefused(f"it can't be read: {error.strerror}") from None
    listed = (await _pg_restore(reactor, None, ["--list", str(path)], embedded=embedded)).decode("utf-8", "replace")
    named = [f"--table={table}" for table in tables]
    script = await _pg_restore(reactor, None, ["--data-only", *named, "--file=-", str(path)], embedded=embedded)
    rows: dict[str, Sequence[Mapping[str, str | None]]] = {table: [] for table in tables}
    rows |= dict(_rows_of(script.decode("utf-8", "replace").split("\n")))
    created = _CREATED.search(listed)
    made = None if created is None else datetime.fromisoformat(created[1]).replace(tzinfo=UTC).timestamp()
    lines = [line for line in listed.split("\n") if line and not line.startswith(";")]
    entries = [line if (entry := _ENTRY.fullmatch(line)) is None else entry[1] for line in lines]
    return DumpContents(made, entries, rows)


def _rows_of(lines: Sequence[str]) -> Iterator[tuple[str, list[Mapping[str, str | None]]]]:
    """Yield the tables of a script with their rows; values are as ``COPY`` writes them, but for backslashes."""
    remaining = iter(lines)
    for line in remaining:
        if (begins := _COPY.fullmatch(line)) is None:
            continue
        columns, rows = [column.strip().strip('"') for column in begins[2].split(",")], list[Mapping[str, str | None]]()
        for row in remaining:
            if row == "\\.":
                break
            values = [None if value == "\\N" else value.replace("\\\\", "\\") for value in row.split("\t")]
            rows.append(dict(zip(columns, values, strict=True)))
        yield begins[1].strip('"'), rows


def parse_bytea(text: str) -> bytes:
    """Return bytes from their text, in either form of the ``bytea_output`` that the dump's role may have set.

    :raises ValueError: it is neither.
    """
    if text.startswith("\\x"):
        return bytes.fromhex(text[2:])
    return _ESCAPE.sub(lambda found: bytes([int(found[1], 8)]) if found[1] else b"\\", text.encode("ascii"))


async def restore_dump(reactor: Any, dsn: str, path: Path, schema: str, *, embedded: bool) -> None:
    """Restore the objects of a dump in a schema into the database's schema of that name: all of them, or nothing.

    Neither the schema itself nor extensions are made.

    :param embedded: as for :func:`dump_database`.
    :raises StartRefused: it can't be restored; the message says why.
    """
    whole = ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction", "--no-password"]
    await _pg_restore(reactor, dsn, [*whole, f"--schema={schema}", str(path)], embedded=embedded)


async def _pg_restore(reactor: Any, dsn: str | None, arguments: Sequence[str], *, embedded: bool) -> bytes:
    first, *others = program_candidates(embedded=embedded, own=shutil.which("pg_restore"))
    try:
        return await run_program(reactor, "pg_restore", dsn, arguments, first)
    except StartRefused as refused:
        if not others or _TOO_NEW not in str(refused):
            raise
        return await run_program(reactor, "pg_restore", dsn, arguments)


async def run_program(
    reactor: Any,
    program: str,
    dsn: str | None,
    arguments: Sequence[str],
    place: str | None = None,
    *,
    output: int | None = None,
) -> bytes:
    """Run one of PostgreSQL's programs, and return what it wrote to standard output.

    :param dsn: the database that it works on, if any.
    :param place: where the program is, unless it is that of the embedded PostgreSQL.
    :param output: the descriptor that it writes to instead.
    """
    # The DSN may contain a password, and everybody on the machine may read the arguments of a program.
    parameters = {} if dsn is None else parse_dsn(dsn)
    environment = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", "PGPASSWORD": parameters.pop("password", "")}
    executable = place or find_installed().program_path(program)
    secrets = [f"{name}={parameters.pop(name)}" for name in SECRETS.intersection(parameters)]
    run = _ProgramRun()
    with ExitStack() as files:
        if secrets:
            _refuse_unwritable(secrets, "service" in parameters)
            service = files.enter_context(tempfile.NamedTemporaryFile())  # only its owner may read it
            service.write("\n".join(["[svc]", *secrets, ""]).encode())
            service.flush()
            parameters["service"], environment["PGSERVICEFILE"] = "svc", service.name
        command = [executable, *([] if dsn is None else [f"--dbname={make_dsn(**parameters)}"]), *arguments]
        nothing = files.enter_context(open(os.devnull, "rb"))
        descriptors: dict[int, Any] = {0: nothing.fileno(), 1: "r" if output is None else output, 2: "r"}
        surroundings = {name: value for name, value in environment.items() if value}
        reactor.spawnProcess(run, executable, command, surroundings, childFDs=descriptors)
        try:
            code = await run.ended
        except BaseException:
            run.kill()
            raise
    if code:
        raise StartRefused(f"{program} failed: {complaint_of(program, run.complaints.decode('utf-8', 'replace'), code)}")
    return b"".join(run.output)


def _refuse_unwritable(secrets: Sequence[str], has_service: bool) -> None:
    """Refuse parameters that no service file can have, or beside a service that is the operator's."""
    for line in secrets:
        name = line.partition("=")[0]
        if has_service:
            raise StartRefused(f"{name} of database_url must be in the service file, beside what that has for the service")
        if "\n" in line or line != line.rstrip() or len(line.encode()) > _LONGEST_LINE:
            raise StartRefused(f"{name} of database_url has a line end, a blank at its end, or more than 980 bytes")


def complaint_of(program: str, complaints: str, code: int) -> str:
    """Return why a program of PostgreSQL failed, from its standard error; for a version mismatch, with the remedy."""
    server = _SERVER_VERSION.search(complaints)
    if server is not None and _MISMATCH in complaints:
        return f"install postgresql-client-{server[1]}: {program} {_TOO_OLD}"
    if code == _PIPE_CLOSED:
        return "the reader of standard output went away before the end"
    complaint = next((line for line in complaints.splitlines() if _COMPLAINT in line), f"exit code {code}")
    return complaint.partition(_COMPLAINT)[2].strip() or complaint


class _ProgramRun(ProcessProtocol):
    """A run of a program; ``ended`` fires with its exit code, which is 128 plus the number of a signal that ended it."""

    transport: Any

    def __init__(self) -> None:
        self.output: list[bytes] = []
        self.complaints = b""
        self.ended: Deferred[int] = Deferred()

    def outReceived(self, data: bytes) -> None:
        """Keep it."""
        self.output.append(data)

    def errReceived(self, data: bytes) -> None:
        """Keep the beginning."""
        self.complaints = (self.complaints + data)[:_COMPLAINTS]

    def processEnded(self, reason: Failure) -> None:
        """Fire ``ended`` with the exit code."""
        ended = reason.value
        code = 0 if not isinstance(ended, ProcessTerminated) else ended.exitCode or 128 + (ended.signal or 0)
        if not self.ended.called:
            self.ended.callback(code)

    def kill(self) -> None:
        """Kill the program: nobody waits for it any more."""
        if self.transport is not None and self.transport.pid is not None:
            self.transport.signalProcess("KILL")


#: The kinds of objects that migrations make.
KINDS: Final = ("CONSTRAINT", "FK CONSTRAINT", "FUNCTION", "INDEX", "SEQUENCE", "TABLE", "TRIGGER", "VIEW")

#: Entries of dumps that are no object of this program: privileges, which aren't restored, comments, extensions and schemas.
_OTHERS: Final = ("ACL ", "DEFAULT ACL ", "COMMENT ", "EXTENSION - ", "SCHEMA - ")

#: The rows that belong to an object.
_ROWS: Final = {"TABLE": "TABLE DATA", "SEQUENCE": "SEQUENCE SET"}

#: How many unexpected objects are named.
_NAMED: Final = 3

_VERSIONS: Final = re.compile(r"TABLE (?!DATA )(.+?) schema_versions ")
_FUNCTION: Final = re.compile(r"(?ms)^CREATE (?:OR REPLACE )?FUNCTION ([a-z0-9_]+)\(.*?\$\$(.*?)\$\$")

_CODE: Final = Statement.with_name("restoring_code")("""
    SELECT 'FUNCTION', proname::text, prosrc
    FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace
    WHERE nspname NOT IN ('pg_catalog', 'information_schema') AND NOT starts_with(nspname, 'pg_')
        AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = pg_proc.oid AND deptype = 'e')
    UNION ALL
    SELECT 'TRIGGER', relname || ' ' || tgname, proname
    FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_proc ON pg_proc.oid = tgfoid
    WHERE NOT tgisinternal
        AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = tgrelid AND deptype = 'e')
    UNION ALL
    SELECT 'RULE', relname || ' ' || rulename, ''
    FROM pg_rewrite JOIN pg_class ON pg_class.oid = ev_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE rulename <> '_RETURN' AND nspname NOT IN ('pg_catalog', 'information_schema')
        AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = ev_class AND deptype = 'e')
""")


@cache
def known_objects() -> frozenset[tuple[str, str]]:
    """Return the kinds and names of all objects that this program's migrations have ever made."""
    text = (resources.files("svc.storage") / "schema" / "objects.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return frozenset(
        next((kind, line.removeprefix(f"{kind} ")) for kind in KINDS if line.startswith(f"{kind} ")) for line in lines
    )


def require_own_objects(entries: Sequence[str]) -> tuple[str, frozenset[tuple[str, str, str]]]:
    """Return the schema of a dump that holds objects of this program alone, and their kinds, schemas and names.

    :param entries: kind, schema, name and owner of each, as a dump lists them.
    :raises StartRefused: it holds others, or none of this program; the message names them.
    """
    found = next(filter(None, map(_VERSIONS.match, entries)), None)
    if found is None:
        raise StartRefused("it holds no database of this program")
    schema = found[1]
    own = {
        f"{each} {schema} {name}": (kind, schema, name.partition("(")[0])
        for kind, name in known_objects()
        for each in (kind, _ROWS.get(kind))
        if each
    }
    missing = set(own)
    _refuse_unexpected(_unexpected_entries(entries, missing))
    return schema, frozenset(own[entry] for entry in own.keys() - missing)


def _unexpected_entries(entries: Iterable[str], expected: set[str]) -> Iterator[str]:
    """Yield the entries that aren't expected, or come twice."""
    for entry in entries:
        if entry.startswith(_OTHERS):
            continue
        # An owner may have blanks in its name, and a name of ours may be followed by more: then it comes a second time.
        # With quote_all_identifiers, the types of a function's arguments have quotes.
        start, opening, arguments = entry.partition("(")
        words = (start + opening + arguments.replace('"', "")).split(" ")
        known = next((name for end in range(3, len(words)) if (name := " ".join(words[:end])) in expected), None)
        if known is None:
            yield " ".join(words[:-1])
        else:
            expected.remove(known)


async def require_own_code(database: ReadSource, migrations: Sequence[Migration]) -> None:
    """Return if the functions of a restored database are those of the migrations, and nothing else runs by itself.

    :raises StartRefused: there is other code; the message names it.
    """
    bodies = {body for each in migrations for body in _FUNCTION.findall(each.sql)}
    functions = {name for name, _ in bodies}

    def is_own(kind: str, name: str, text: str) -> bool:
        return (name, text) in bodies if kind == "FUNCTION" else (kind, name) in known_objects() and text in functions

    _refuse_unexpected(f"{kind} {name}" for kind, name, text in await database.fetch(_CODE) if not is_own(kind, name, text))


def _refuse_unexpected(strange: Iterable[str]) -> None:
    names = sorted(strange)
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        raise StartRefused(
            f"it holds {', '.join(map(repr, names[:_NAMED]))}{more}, which this program doesn't make: it was altered, or"
            " is of a newer program, or of a database that isn't this program's alone"
        )

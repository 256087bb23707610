"""Dumps of the database, in PostgreSQL's custom format, by PostgreSQL's own programs.

Note [Whose pg_dump]. The programs that come with the embedded PostgreSQL speak no TLS, and older ones can't restore what
they dump. So an operator's database is dumped by this machine's ``pg_dump``, and by ours where that is missing or too old.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from psycopg2.extensions import make_dsn, parse_dsn
from twisted.internet.utils import getProcessOutputAndValue

from svc.model.errors import StartRefused
from svc.storage.embedded.binaries import installed

#: The first bytes of a dump in the custom format.
_MAGIC: Final = b"PGDMP"

#: What ``pg_dump`` says of a database that is newer than itself, where it names the versions, and what is said of that here.
_MISMATCH: Final = "server version mismatch"
_SERVER_VERSION: Final = re.compile(r"server version: ([0-9]+)")
_TOO_OLD: Final = "must not be older than the server"

#: Before the one line of a program's complaint that is repeated: what follows may quote rows.
_COMPLAINT: Final = "error:"


def is_dump(path: Path) -> bool:
    """Return whether a file is a dump in the custom format, by its first bytes.

    :raises OSError: it can't be read.
    """
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def dumpers(*, embedded: bool, own: str | None) -> list[str | None]:
    """Return the programs to dump a database with, one after the other (Note [Whose pg_dump]).

    ``own`` is the path of this machine's ``pg_dump``; ``None`` in the list is that of the embedded PostgreSQL.
    """
    return [None] if embedded or own is None else [own, None]


async def dump(reactor: Any, dsn: str, path: Path, *, embedded: bool) -> None:
    """Write a dump of the database into a new file, which only its owner may read; none is left when that fails.

    :param embedded: whether it is the embedded PostgreSQL (Note [Whose pg_dump]).
    :raises StartRefused: the file exists, or PostgreSQL can't be dumped; says why.
    :raises OSError: the file can't be made.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise StartRefused(f"{path} exists: name a new file") from None
    try:
        # Changes are of the history of this PostgreSQL, which ends with it.
        whole = ["--format=custom", "--no-password", f"--file={path}", "--exclude-table-data=changes"]
        first, *others = dumpers(embedded=embedded, own=shutil.which("pg_dump"))
        try:
            await run_program(reactor, "pg_dump", dsn, whole, first)
        except StartRefused as refused:
            if not others or _TOO_OLD not in str(refused):
                raise
            await run_program(reactor, "pg_dump", dsn, whole)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


async def restore(reactor: Any, dsn: str, path: Path) -> None:
    """Restore a dump into an empty database: all of it, or nothing.

    :raises StartRefused: it can't be restored; says why.
    """
    whole = ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction", "--no-password", str(path)]
    await run_program(reactor, "pg_restore", dsn, whole)


async def run_program(reactor: Any, program: str, dsn: str, arguments: Sequence[str], place: str | None = None) -> None:
    """Run one of PostgreSQL's programs; ``place`` is where it is, unless it is that of the embedded PostgreSQL."""
    # A password may stand in the DSN, and everybody on the machine may read the arguments of a program.
    parameters = parse_dsn(dsn)
    environment = {"PATH": os.defpath, "LC_ALL": "C", "PGPASSWORD": parameters.pop("password", "")}
    command = [f"--dbname={make_dsn(**parameters)}", *arguments]
    _, said, code = await getProcessOutputAndValue(
        place or installed().program(program), command, {k: v for k, v in environment.items() if v}, reactor=reactor
    )
    if code:
        raise StartRefused(f"{program} failed: {complaint_of(program, said.decode('utf-8', 'replace'), code)}")


def complaint_of(program: str, said: str, code: int) -> str:
    """Return why a program of PostgreSQL failed, of what it wrote to standard error; of a version mismatch, the remedy."""
    server = _SERVER_VERSION.search(said)
    if server is not None and _MISMATCH in said:
        return f"install postgresql-client-{server[1]}: {program} {_TOO_OLD}"
    complaint = next((line for line in said.splitlines() if _COMPLAINT in line), f"exit code {code}")
    return complaint.partition(_COMPLAINT)[2].strip() or complaint

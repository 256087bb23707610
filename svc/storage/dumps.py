"""Dumps of the database, in PostgreSQL's custom format, by PostgreSQL's own programs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from psycopg2.extensions import make_dsn, parse_dsn
from twisted.internet.utils import getProcessOutputAndValue

from svc.errors import StartRefused
from svc.storage.binaries import installed

#: What a dump in the custom format begins with.
_MAGIC: Final = b"PGDMP"

#: What of a program's complaint is repeated: what follows may quote rows.
_COMPLAINT: Final = "error:"


def is_dump(path: Path) -> bool:
    """Whether a file is a dump in the custom format, by its first bytes.

    :raises OSError: it can't be read.
    """
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


async def dump(reactor: Any, dsn: str, path: Path) -> None:
    """Write a dump of the database into a new file, which only its owner may read; none is left when that fails.

    :raises StartRefused: the file exists, or PostgreSQL can't be dumped; says why.
    :raises OSError: the file can't be made.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise StartRefused(f"{path} exists: name a new file") from None
    try:
        await _run(reactor, "pg_dump", dsn, ["--format=custom", "--no-password", f"--file={path}"])
    except BaseException:
        path.unlink(missing_ok=True)
        raise


async def restore(reactor: Any, dsn: str, path: Path) -> None:
    """Restore a dump into an empty database: all of it, or nothing.

    :raises StartRefused: it can't be restored; says why.
    """
    whole = ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction", "--no-password", str(path)]
    await _run(reactor, "pg_restore", dsn, whole)


async def _run(reactor: Any, program: str, dsn: str, arguments: Sequence[str]) -> None:
    # A password may stand in the DSN, and everybody on the machine may read the arguments of a program.
    parameters = parse_dsn(dsn)
    environment = {"PATH": os.defpath, "LC_ALL": "C", "PGPASSWORD": parameters.pop("password", "")}
    command = [f"--dbname={make_dsn(**parameters)}", *arguments]
    _, said, code = await getProcessOutputAndValue(
        installed().program(program), command, {k: v for k, v in environment.items() if v}, reactor=reactor
    )
    if code:
        lines = said.decode("utf-8", "replace").splitlines()
        complaint = next((line for line in lines if _COMPLAINT in line), f"exit code {code}")
        raise StartRefused(f"{program} failed: {complaint.partition(_COMPLAINT)[2].strip() or complaint}")

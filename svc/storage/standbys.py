"""Hot standbys: copies of a primary that follow it, added and removed with PostgreSQL's own programs and protocol.

Note [Slots]. The primary keeps the log that a standby has yet to fetch as long as its slot is there, up to
``max_slot_wal_keep_size``. So the slot is made before the copy begins, which then lacks nothing, and must be dropped with
the standby. It has the standby's name, as have its sessions with the primary, which identifies it by that.

Note [One role]. All is done over connections for replication, on which PostgreSQL lets a role with ``REPLICATION`` make and
drop slots, and read settings. So the role that standbys have suffices, and the entry in ``pg_hba.conf`` that they need.

Note [Nobody's link]. Root gives files to PostgreSQL's user, who owns the folder around them and could replace a folder by a
link, to be given what it leads to. So no name is followed: folders are held open, and the owner of each is changed after its
contents.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeVar

import psycopg2
from psycopg2 import errors as sqlstates
from psycopg2.extensions import make_dsn
from psycopg2.extras import PhysicalReplicationConnection
from twisted.internet.threads import deferToThreadPool

from svc.model.errors import ConfigurationInvalid, StartRefused
from svc.storage.driver.failures import summarize_error
from svc.storage.driver.location import dsn_parameters
from svc.storage.dumps import SECRETS, run_program

#: Seconds for which a connection to the primary is tried.
CONNECT_TIMEOUT: Final = 10

_NAME: Final = re.compile(r"[a-z0-9_]{1,63}")

T = TypeVar("T")


def standby_name(text: str) -> str:
    """Return the name of a standby, which is one of a slot, too.

    :raises ConfigurationInvalid: it is none.
    """
    if not _NAME.fullmatch(text):
        raise ConfigurationInvalid(
            "NAME", "must be 1 to 63 of the characters a-z, 0-9 and _, as PostgreSQL's slots are named"
        )
    return text


class Primary:
    """A primary, by the DSN of a role with ``REPLICATION`` (Note [One role]).

    :raises ConfigurationInvalid: the DSN can't be read.
    """

    def __init__(self, reactor: Any, dsn: str) -> None:
        self._reactor = reactor
        try:
            given = dsn_parameters(dsn)
        except ConfigurationInvalid as refusal:
            raise ConfigurationInvalid("--from", refusal.message) from None
        if not SECRETS.isdisjoint(given):
            # pg_basebackup would write a service of ours into the settings of the standby, which has none of that name.
            secret = min(SECRETS.intersection(given))
            raise ConfigurationInvalid("--from", f"has {secret}, which only the arguments of pg_basebackup could have")
        self._parameters = {"connect_timeout": str(CONNECT_TIMEOUT), **given}

    async def add_slot(self, name: str) -> bool:
        """Make the slot of a standby, unless it is there; return whether it was made.

        :raises StartRefused: PostgreSQL can't be reached, is a standby itself, or refuses.
        """

        def run_commands(cursor: Any) -> bool:
            cursor.execute("SHOW in_hot_standby")
            if cursor.fetchone() == ("on",):
                raise StartRefused("the server of --from is a standby: name the primary")
            try:
                cursor.execute(f"CREATE_REPLICATION_SLOT {name} PHYSICAL RESERVE_WAL")
            except sqlstates.DuplicateObject:
                return False
            return True

        return await self._run_on_primary(run_commands)

    async def drop_slot(self, name: str) -> bool:
        """Drop the slot of a standby; return whether there was one.

        :raises StartRefused: PostgreSQL can't be reached, or refuses, as while the standby uses it.
        """

        def run_commands(cursor: Any) -> bool:
            try:
                cursor.execute(f"DROP_REPLICATION_SLOT {name}")
            except sqlstates.UndefinedObject:
                return False
            except sqlstates.ObjectInUse:
                raise StartRefused(f"{name} is connected: stop its PostgreSQL first, and disable it") from None
            return True

        return await self._run_on_primary(run_commands)

    async def is_synchronous(self, name: str) -> bool:
        """Return whether the primary's ``synchronous_standby_names`` include it: changes may wait for it."""

        def run_commands(cursor: Any) -> bool:
            cursor.execute("SHOW synchronous_standby_names")
            ((names,),) = cursor.fetchall()
            return re.search(rf'(?<![\w"]){name}(?![\w"])|"{name}"', names) is not None

        return await self._run_on_primary(run_commands)

    async def copy_data(self, name: str, directory: Path) -> None:
        """Copy it into an empty directory, which becomes the data of a hot standby of this name (Note [Slots]).

        :raises StartRefused: it can't be copied; the message says why, and the directory is as it was.
        """
        dsn = make_dsn(**{**self._parameters, "application_name": name})
        arguments = [
            f"--pgdata={directory}",
            "--write-recovery-conf",
            "--checkpoint=fast",
            f"--slot={name}",
            "--no-password",
        ]
        await run_program(self._reactor, "pg_basebackup", dsn, arguments, shutil.which("pg_basebackup"))

    async def _run_on_primary(self, work: Callable[[Any], T]) -> T:
        """Run ``work`` on a cursor of a connection for replication, in a thread."""

        def run_in_thread() -> T:
            try:
                connection = psycopg2.connect(**self._parameters, connection_factory=PhysicalReplicationConnection)
                with closing(connection), connection.cursor() as cursor:
                    return work(cursor)
            except psycopg2.Error as error:
                # The words of a server begin with a severity, in its own language, a colon and two blanks.
                refuses = error.pgcode is not None or ":  " in str(error)
                does = "refuses" if refuses else "can't be reached"
                raise StartRefused(f"the primary {does}: {summarize_error(error)}") from None

        return await deferToThreadPool(self._reactor, self._reactor.getThreadPool(), run_in_thread)


def prepare_directory(directory: Path) -> int | None:
    """Make sure that a standby can be made in a directory, which nobody else may read then, as PostgreSQL demands.

    Return the user who is to own it, ``None`` for this one.

    :raises StartRefused: it isn't empty; or this is root, as whom PostgreSQL doesn't run, and nobody else owns it.
    """
    owner = directory.stat().st_uid if directory.is_dir() else None
    if owner is not None and any(directory.iterdir()):
        raise StartRefused(f"{directory} isn't empty: stop the PostgreSQL that uses it, move its data away, and try again")
    if os.geteuid() == 0 and not owner:
        raise StartRefused(f"PostgreSQL doesn't run as root: make {directory}, empty and owned by PostgreSQL's user")
    directory.mkdir(mode=0o700, exist_ok=True)
    directory.chmod(0o700)
    return owner if os.geteuid() == 0 else None


def change_owner(directory: Path, owner: int) -> None:
    """Give all that a directory of this owner holds to it, too (Note [Nobody's link]).

    :raises StartRefused: it isn't the owner's any more.
    """
    top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        status = os.fstat(top)
        if status.st_uid != owner:
            raise StartRefused(f"{directory} was replaced while the primary was copied into it")
        for _, directories, names, place in os.fwalk(".", topdown=False, dir_fd=top):
            for name in (*directories, *names):
                os.chown(name, owner, status.st_gid, dir_fd=place, follow_symlinks=False)
    finally:
        os.close(top)

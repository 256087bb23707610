"""The settings of the embedded PostgreSQL: those of its cluster, the users that may connect, and its DSN."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

#: The database, and the role that owns it; ``svc`` has no more rights than that.
DATABASE: Final = "svc"
#: The superuser, for operators at the machine.
SUPERUSER: Final = "postgres"
#: The options of ``initdb``: PostgreSQL's own C.UTF-8, the same on every system, and never trust, not even for a moment.
INITDB: Final = (
    f"--username={SUPERUSER} --auth-local=peer --auth-host=reject --encoding=UTF8 --locale=C --locale-provider=builtin"
    " --builtin-locale=C.UTF-8 --data-checksums --no-instructions"
).split()

#: The statements for a new cluster, for PostgreSQL in single-user mode, one a line.
FIRST_STATEMENTS: Final = f"CREATE ROLE {DATABASE} LOGIN;\nCREATE DATABASE {DATABASE} OWNER {DATABASE};\n".encode()
#: The first Linux whose syncfs(2) reports what could not be written.
_SYNCFS_RELIABLE: Final = (5, 8)


def sync_method(platform: str, release: str) -> str:
    """Return how PostgreSQL makes sure, before it recovers from a crash, that all files are on the disk.

    It is one call if the system, whose ``release`` this is, reports when that failed: file by file takes seconds.
    """
    numbers = tuple(map(int, re.findall(r"\d+", release)[:2]))
    return "syncfs" if platform == "linux" and numbers >= _SYNCFS_RELIABLE else "fsync"


#: Settings of the server. They are given on the command line, where they win over any file in the cluster.
SETTINGS: Final = {
    "cluster_name": "svc",  # shown by ps
    # A socket in its own directory of mode 0700, never the network; relative, since its path may have a hundred bytes only.
    "listen_addresses": "",
    "unix_socket_directories": ".",
    "unix_socket_permissions": "0700",
    "port": "5432",
    # Acknowledged commits are on the disk: these are the defaults, and may not be changed.
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "wal_level": "replica",
    "recovery_init_sync_method": sync_method(sys.platform, os.uname().release),
    # A small server beside its only client. Without parallel workers it needs nothing of /dev/shm, tiny in containers.
    # It has room for the sessions of as many processes as a server may have (CFG-28).
    "max_connections": "300",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "io_method": "sync",
    "max_parallel_workers_per_gather": "0",
    "max_parallel_maintenance_workers": "0",
    "max_logical_replication_workers": "0",
    # Its log goes where svc has opened a file for it, and quotes no statement: those hold sealed values and names.
    "logging_collector": "off",
    "log_destination": "stderr",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "log_statement": "none",
    "log_min_error_statement": "panic",
    "log_timezone": "UTC",
    "TimeZone": "UTC",
}

#: The access rules: nobody but those in ``user_map`` may connect, and each of them only as these two roles.
ACCESS: Final = f"local {DATABASE} {DATABASE} peer map=svc\nlocal all {SUPERUSER} peer map=svc\n"
#: The name of the socket.
SOCKET: Final = f".s.PGSQL.{SETTINGS['port']}"
#: The longest path of a socket's directory, in bytes; macOS allows the whole path 103 and Linux 107.
_SOCKET_DIRECTORY_LIMIT: Final = 103 - len(f"/{SOCKET}")


def user_map(users: Iterable[str]) -> str:
    """Return the map by which users of the operating system, and no others, may connect."""
    quoted = ['"' + user.replace('"', '""') + '"' for user in sorted(set(users))]
    return "".join(f"svc {user} {role}\n" for user in quoted for role in (DATABASE, SUPERUSER))


def is_addressable(directory: Path) -> bool:
    """Return whether libpq takes this path of a socket's directory: short, without a comma (between hosts), in UTF-8."""
    text = str(directory)
    return len(os.fsencode(text)) <= _SOCKET_DIRECTORY_LIMIT and "," not in text and text.isprintable()


def socket_dsn(directory: Path) -> str:
    """Return the libpq DSN of the database behind the socket in ``directory``.

    It has a ``hostaddr`` because libpq would prefer one of the environment to the socket.
    """
    host = str(directory).replace("\\", "\\\\").replace("'", "\\'")
    return f"host='{host}' hostaddr='' port={SETTINGS['port']} dbname={DATABASE} user={DATABASE}"

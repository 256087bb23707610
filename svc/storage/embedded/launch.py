"""The launcher of PostgreSQL: a program that changes user and directory, then executes PostgreSQL.

It is run on its own, ``python -I -S launch.py ORDER``, and imports only the standard library. The process that becomes
PostgreSQL must first:

* start a session, so that Ctrl-C at a terminal doesn't take the database from under a ``svc`` that is still answering;
* take the lock of note [Who is a postmaster] in ``postmaster``;
* enter the cluster's directory while it may still pass the directories above, then give up root for good;
* write files in the cluster as PostgreSQL's user: root doesn't write where another user could have laid a symbolic link.

Note [Unreachable directories]. PostgreSQL changes into its directory by absolute path, which fails where a directory above
is closed to its user (root's 0700 home, say) or the path is longer than 1024 bytes. But the process stands in the cluster's
directory already, and on Linux ``/proc/self/cwd`` names it, for all its children too. Elsewhere the place is refused.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from contextlib import suppress
from typing import Any, Final

#: The descriptor under which ``svc`` passes the lock file.
LOCK: Final = 3
#: Longest path of a directory that PostgreSQL is given, in bytes; it adds names of files, and takes 1023 in all.
PATH_LIMIT: Final = 800
#: Exit code when one of the order's ``reach`` can't be reached by the user.
UNREACHABLE: Final = 77


def run_order(order: dict[str, Any]) -> None:
    """Change user and directory as the order says, then execute its program; returns only when it names none.

    An order has the ``directory``, the ``uid`` and ``gid``; paths to ``reach``, each with the mode of access(2) that this
    user must have; files of the directory to ``remove`` and to ``write``; the arguments of the ``program`` to become, the
    program first, and its ``environment`` but for ``PGDATA``.
    """
    os.setsid()
    os.umask(0o077)
    # The lock must outlive the change of program; it dies with this process, or when this process closes the file.
    os.set_inheritable(LOCK, True)
    fcntl.lockf(LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.chdir(order["directory"])
    if os.geteuid() == 0:
        os.setgroups([])
    # Real, effective and saved ids at once. PostgreSQL wants them equal, and ``twistd --euid`` may have left them different.
    os.setregid(order["gid"], order["gid"])
    os.setreuid(order["uid"], order["uid"])
    for path, mode in order["reach"]:
        if not os.access(path, mode):
            raise SystemExit(UNREACHABLE)
    for name in order["remove"]:
        if os.path.lexists(name):
            os.unlink(name)
    for name, text in order["write"].items():
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(file, "w", encoding="utf-8") as stream:
            stream.write(text)
    if order["program"]:
        environment = {**order["environment"], "PGDATA": reachable_name(order["directory"])}
        os.execve(order["program"][0], order["program"], environment)  # noqa: S606 # no shell is wanted


def reachable_name(directory: str) -> str:
    """Return the name by which this process can reach the directory that it stands in, ``directory`` where that works.

    :raises SystemExit: there is none; standard error has the message.
    """
    with suppress(PermissionError):
        if len(os.fsencode(directory)) <= PATH_LIMIT and os.path.samestat(os.stat(directory), os.stat(".")):
            return directory
    if os.path.isdir("/proc/self/cwd"):
        return "/proc/self/cwd"
    raise SystemExit(
        f"The user with the id {os.geteuid()}, as which PostgreSQL runs, cannot reach {directory}:"
        " it is too long, or a directory above it is closed to that user. Choose another data directory."
    )


if __name__ == "__main__":
    run_order(json.loads(sys.argv[1]))

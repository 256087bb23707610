"""Users of the operating system: the one of this process, and the one that PostgreSQL runs as."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from typing import Final

import attrs

from svc.model.errors import StartRefused

#: Users for PostgreSQL when ``svc`` runs as root, the first that exists.
UNPRIVILEGED: Final = ("postgres", "nobody")


@attrs.frozen
class User:
    """A user of the operating system, with the group to run as."""

    name: str
    uid: int
    gid: int


def user_name(uid: int) -> str | None:
    """Return the name of the user with that id; ``None`` when it has none, as in containers that run under any id."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def list_clients() -> list[str]:
    """Return the names of the users that may connect: that of this process, and root."""
    return [name for name in map(user_name, (0, os.geteuid())) if name is not None]


def postgres_user(owner: int | None) -> User:
    """Return the user that PostgreSQL runs as: this process's, or as root an unprivileged one.

    ``owner`` is the user id that owns the cluster, where there is one: PostgreSQL runs as no other.

    :raises StartRefused: there is no user for it.
    """
    if own := os.geteuid():
        name = user_name(own)
        if name is None:
            raise StartRefused(
                f"PostgreSQL cannot run as the user with the id {own}, which has no name:"
                " give it one, or name a database with --database-url"
            )
        if owner not in (None, own):
            raise StartRefused(f"PostgreSQL's cluster belongs to the user with the id {owner}, and svc runs as {name}")
        return User(name, own, os.getegid())
    if owner is not None:
        name = user_name(owner)
        if owner == 0 or name is None:
            raise StartRefused(
                f"PostgreSQL's cluster belongs to the user with the id {owner}, as which PostgreSQL cannot run: "
                f"give it, with all that is in it, to one of {', '.join(UNPRIVILEGED)}"
            )
        return User(name, owner, pwd.getpwuid(owner).pw_gid)
    for name in UNPRIVILEGED:
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return User(name, entry.pw_uid, entry.pw_gid)
    raise StartRefused(
        f"PostgreSQL does not run as root, and there is no user {' or '.join(UNPRIVILEGED)} to run it as:"
        " run svc as another user, or name a database with --database-url"
    )

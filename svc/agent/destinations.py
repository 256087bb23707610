"""Destinations as operators write them: a path, an owner, a group and a mode (AGT-5)."""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from svc.agent.faults import BadConfiguration
from svc.agent.files import Destination
from svc.agent.tables import Table

#: The largest number of a user or a group: the next one tells the system to leave them as they are.
_LARGEST: Final = 2**32 - 2
_DIGITS: Final = len(str(_LARGEST))

_MODE: Final = re.compile("0?[0-7]{3}", re.ASCII)


def destination_of(table: Table, path: Path, *, owes: bool) -> Destination:
    """Return where a file goes, by ``owner``, ``group`` and ``mode`` of its table.

    :raises BadConfiguration: it can't be there, or be theirs.
    """
    if not path.is_absolute() or ".." in path.parts or not path.name:
        raise BadConfiguration(f"{table.place}destination must be a path that begins with /, without ..")
    uid, gid = os.geteuid(), os.getegid()
    owner, group = table.text("owner"), table.text("group")
    if owner is not None:
        uid = _number(table, "owner", owner, lambda name: pwd.getpwnam(name).pw_uid)
        if os.geteuid() not in {0, uid}:
            raise BadConfiguration(
                f"{table.place}owner is {owner}: only root gives files to others; run the agent as {owner}"
            )
        if group is None:
            gid = _group_of(uid, gid)
    if group is not None:
        gid = _number(table, "group", group, lambda name: grp.getgrnam(name).gr_gid)
        if os.geteuid() != 0 and gid not in {os.getegid(), *os.getgroups()}:
            raise BadConfiguration(f"{table.place}group is {group}: the agent's user is no member of it")
    text = table.text("mode") or "0600"
    if not _MODE.fullmatch(text):
        raise BadConfiguration(f'{table.place}mode is written as for chmod, in three octal digits: "0640"')
    mode = int(text, 8)
    if mode & 0o002:
        raise BadConfiguration(f"{table.place}mode {text} lets everybody write the file")
    return Destination(path, uid, gid, mode, owes)


def _number(table: Table, key: str, name: str, known: Callable[[str], int]) -> int:
    try:
        number = int(name) if name.isascii() and name.isdecimal() and len(name) <= _DIGITS else known(name)
    except KeyError:
        raise BadConfiguration(f"{table.place}{key}: this machine has no {name}") from None
    if number > _LARGEST:
        raise BadConfiguration(f"{table.place}{key}: {name} is larger than any number of a user or a group")
    return number


def _group_of(uid: int, otherwise: int) -> int:
    """Return the group of a user, as a login has it."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return otherwise

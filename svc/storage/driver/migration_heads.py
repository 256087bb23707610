"""The first lines of a migration, which declare what programs may be running while it is applied, and what it locks.

Note [Expand, then contract]. During an upgrade two programs use one database, and the older one may be started again. So
what a newer program needs comes first, in migrations that the older program doesn't notice: new tables, new columns that may
be left out, triggers, indexes. A later release removes what only the older program needs. Each file says in its first line
which it is::

    -- expand
    -- contract since 12

The second means that programs that know the schema up to 12, and newer ones, don't need what is removed; older ones must be
gone. A file that says neither is taken to be incompatible with every older program.

Note [Declared locks]. The lines that follow declare which of the existing tables are locked against others, and what is done
with them meanwhile, from which ``svc migrate --check`` estimates how long it takes. A test compares them with what
PostgreSQL does::

    -- locks heartbeat: access exclusive, at once
    -- locks secrets roles: share row exclusive, reads all
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import attrs

#: The locks that make others wait, and who waits.
LOCKS: Final = {
    "share": "writes",
    "share row exclusive": "writes",
    "exclusive": "writes",
    "access exclusive": "reads and writes",
}

#: The kinds of work on a table while it is locked, each with the bytes that a slow disk handles in a second.
WORK: Final = {"at once": None, "reads all": 100_000_000, "writes all": 10_000_000}

_KIND: Final = re.compile(r"-- (?:(expand)|contract since ([0-9]+))")
_LOCKS: Final = re.compile(rf"-- locks ([a-z_]+(?: [a-z_]+)*): ({'|'.join(LOCKS)}), ({'|'.join(WORK)})")


@attrs.frozen
class Lock:
    """A table that a migration locks: ``mode`` is one of ``LOCKS``, and ``work`` one of ``WORK``."""

    table: str
    mode: str
    work: str

    def seconds(self, size: int) -> float:
        """Return how long the work takes on a table of this size, in bytes."""
        speed = WORK[self.work]
        return 0.0 if speed is None else size / speed


@attrs.frozen
class MigrationHead:
    """The first lines. ``needs`` is the oldest version of the schema whose programs can run with the migration; 0 is any."""

    needs: int
    locks: tuple[Lock, ...] = ()


def parse_head(version: int, sql: str) -> MigrationHead:
    """Read the head of the migration with this version.

    :raises ValueError: a line begins like one of a head, and isn't one.
    """
    first, *others = sql.split("\n")
    if not first.startswith(("-- expand", "-- contract")):
        return MigrationHead(version)
    kind = _KIND.fullmatch(first)
    if kind is None or (not kind[1] and not 0 < int(kind[2]) <= version):
        raise ValueError(f"migration {version:04} must begin with `-- expand` or `-- contract since N`, and has {first!r}")
    return MigrationHead(0 if kind[1] else int(kind[2]), tuple(_parse_locks(version, others)))


def _parse_locks(version: int, lines: list[str]) -> Iterator[Lock]:
    for line in lines:
        if not line.startswith("-- locks"):
            return
        matched = _LOCKS.fullmatch(line)
        if matched is None:
            raise ValueError(f"migration {version:04} has {line!r}, which isn't `-- locks TABLE …: MODE, WORK`")
        for table in matched[1].split():
            yield Lock(table, matched[2], matched[3])

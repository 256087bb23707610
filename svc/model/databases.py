"""Facts about a database, its standbys, and the other servers of the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs

#: The oldest PostgreSQL that the program works with, and the oldest that it is tested with, as major versions.
OLDEST_POSTGRESQL: Final = 14
OLDEST_TESTED_POSTGRESQL: Final = 15


@attrs.frozen
class AttachedStandby:
    """A standby as its primary sees it: ``name`` is its ``application_name``, ``state`` and ``sync`` are PostgreSQL's words.

    ``lag_bytes`` is what it has yet to replay, ``lag_seconds`` how long that took recently; ``None`` where PostgreSQL
    doesn't report it. ``since`` is when it connected, in epoch seconds.
    """

    name: str
    state: str
    sync: str
    lag_bytes: int | None
    lag_seconds: float | None
    since: float


@attrs.frozen
class DatabaseNode:
    """A database as a node of its cluster: ``since`` when it has been what it is, in epoch seconds, ``None`` if not known.

    ``release`` is PostgreSQL's version, ``schema`` that of the tables. ``standbys`` is ``None`` of a standby, and where the
    database's role may not see them.
    """

    timeline: int
    since: float | None
    release: str
    schema: int
    standbys: tuple[AttachedStandby, ...] | None


@attrs.frozen
class ReplicationPosition:
    """The position of the database's log: the written one of a primary, the last replayed one of a standby.

    ``text`` has the form ``<hex>/<hex>``, ``position`` is the same in bytes. Of a standby, ``lag_bytes`` is what it has
    received since its start and not replayed; ``lag_seconds`` is the age of the last heartbeat of its primary that it has
    replayed, never negative. Both are ``None`` of a primary. ``node`` is the rest that is known of the database.
    """

    text: str
    position: int
    standby: bool
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    node: DatabaseNode | None = None


@attrs.frozen
class VerifiedBackup:
    """A backup that was found whole: when it was made, in epoch seconds, its bytes, and its file at that time.

    ``beside``: whether the file was on the database's own disk; ``None`` where that isn't known.
    """

    dumped: float
    size: int | None
    file: str
    beside: bool | None


@attrs.frozen
class Ages:
    """Since when something is as it is, in epoch seconds; ``None`` where that isn't known, or there is none.

    ``signing_key`` is when the oldest of the keys was made that accounts sign with now, ``backup`` when ``svc backup
    create`` last made a backup, and ``verified`` the newest backup that ``svc backup verify`` found whole.
    """

    signing_key: float | None
    backup: float | None
    verified: VerifiedBackup | None = None


@attrs.frozen(kw_only=True)
class DatabaseFacts:
    """The facts about PostgreSQL that ``svc doctor`` evaluates.

    ``schema_behind`` counts migrations that are lacking, ``server_version`` is as ``server_version_num`` has it, ``listens``
    is ``listen_addresses``. ``open_rules`` counts rules of ``pg_hba.conf`` that admit any address, ``None`` where the role
    may not see them. ``durable``: a COMMIT is on disk. ``archived`` is when a part of the log was archived last, in epoch
    seconds. ``password_expires_at`` is when the password of the program's role expires, in epoch seconds; ``None`` for
    never. ``lag`` is a standby's, in seconds. ``directory`` is that of its data on its machine, ``None`` where the role may
    not see it.
    """

    schema_behind: int
    server_version: int
    listens: str
    open_rules: int | None
    most_connections: int
    connections: int
    durable: bool
    superuser: bool
    archived: float | None
    password_expires_at: float | None
    ages: Ages
    lag: float | None
    directory: str | None = None


@attrs.frozen
class DatabaseIdentity:
    """A database server: copies share its ``system``, ``timeline`` counts promotions, ``started`` is in microseconds."""

    system: int
    timeline: int
    started: int
    standby: bool


@attrs.frozen
class ClusterMember:
    """Another server of the cluster; ``url`` ends without a slash. ``ca`` has its authorities; ``None``: all members'."""

    name: str
    url: str
    ca: Path | None = None

"""Values of last logins: the day of a role's last login, and the roles that have not logged in for long.

A day is the number of days since 1970-01-01, in UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Final, NamedTuple

import attrs

from svc.model.names import RoleName

DAY: Final = 86_400
_FIRST: Final = date(1970, 1, 1).toordinal()


def day_of(seconds: float) -> int:
    """Return the day of a moment, in seconds since the epoch."""
    return int(seconds // DAY)


def iso_day(day: int) -> str:
    """Return a day as ``2026-05-09``."""
    return date.fromordinal(day + _FIRST).isoformat()


@attrs.frozen
class LoginRecord:
    """A role that logged in on a day; ``creation`` as in ``Caller``: the next role of its name hasn't.

    ``day`` is ``None`` where it was given its API key, which is no login (END-20). ``directory`` is the full id of the LDAP
    authenticator that it was admitted by, empty for another one that takes no API key, and ``None`` for neither.
    """

    role: RoleName
    creation: int
    day: int | None
    directory: str | None = None


@attrs.frozen
class LastLogin:
    """The day on which a role logged in last, ``None`` for none since these are kept, in epoch seconds."""

    day: int | None
    kept_since: float


@attrs.frozen
class IdleRole:
    """A user or host: its full id, when it was made, in epoch seconds, and the day of its last login, if there was one."""

    role: str
    created_at: float
    day: int | None


class IdleRolesCursor(NamedTuple):
    """Where a part of the list of roles ends: first those without a login, by when they were made, then others by day.

    ``at`` is that moment or that day.
    """

    logged_in: bool
    at: float
    role: str


#: Before the first.
IDLE_ROLES_START: Final = IdleRolesCursor(False, 0.0, "")


@attrs.frozen
class IdleRolesPage:
    """A part of that list, and how far it goes: ``None`` for the end of the list."""

    roles: Sequence[IdleRole]
    last: IdleRolesCursor | None

"""The use case of roles that have not logged in for long (END-24 to END-26).

Note [What is not known]. A last login is the day of one that this cluster's primary has recorded. Logins at a follower are
in no database, and those from before last logins were kept are unknown. The answer states both: an operator who takes a list
to be complete would delete a host that is in use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs

from svc.model.authentication import IDLE_ROLES_START, IdleRole, IdleRolesCursor, day_of
from svc.model.clocks import WallClock
from svc.model.errors import Forbidden
from svc.services.invocation import Invocation, can_read_all
from svc.storage.last_logins import LastLoginStore
from svc.storage.roles import RoleStore

#: How many roles are read at once, and in one request.
WINDOW: Final = 2000
WINDOWS: Final = 10


@attrs.frozen
class InactiveRolesQuery:
    """Roles without a login in the last ``since`` seconds."""

    since: int
    limit: int = 100
    after: IdleRolesCursor = IDLE_ROLES_START


@attrs.frozen
class InactiveRole:
    """A role, and the day since which no login of it is known.

    ``certain``: that goes back as far as requested. Otherwise it may have logged in before last logins were kept.
    """

    role: IdleRole
    idle_since: int
    certain: bool


@attrs.frozen
class InactiveRolesPage:
    """A page of roles; ``after`` as in ``UpcomingExpirationsPage``. ``recorded_since``: epoch seconds, and no login before
    is known.

    ``followers`` are the servers whose logins aren't counted, as far as they are known.
    """

    roles: Sequence[InactiveRole]
    after: IdleRolesCursor | None
    recorded_since: float
    followers: Sequence[str]


@attrs.frozen
class InactiveRoleService:
    """The use case; ``followers`` returns the names of the other servers that are followers now."""

    store: LastLoginStore
    roles: RoleStore
    followers: Callable[[], Awaitable[Sequence[str]]]
    wall: WallClock

    async def list_inactive(self, invocation: Invocation, query: InactiveRolesQuery) -> InactiveRolesPage:
        """Return users and hosts of the caller's account that it sees; all, if it may look at the whole account.

        First those without any login, by when they were made, then others by the day of the last. A page may have less than
        was requested, or nothing, and yet not be the last.

        :raises Forbidden: the caller's role is gone.
        """
        caller = invocation.caller
        if not await self.roles.caller_exists(caller):
            raise Forbidden("the token's role no longer exists")
        everything = await can_read_all(self.roles, caller)
        kept_since, before = await self.store.read_recording_start(), self.wall.seconds() - query.since
        found: list[IdleRole] = []
        after: IdleRolesCursor | None = query.after
        for _ in range(WINDOWS):
            assert after is not None
            reading = await self.store.list_idle_roles(caller.role.account, day_of(before), before, after, WINDOW)
            some, after = reading.roles, reading.last
            if not everything and some:
                visible = await self.store.filter_visible(caller.role, [role.role for role in some])
                some = [role for role in some if role.role in visible]
            found += some
            if len(found) > query.limit:
                found = found[: query.limit]
                after = _place_of(found[-1])
                break
            if after is None:
                break
        roles = [_evaluate_role(role, kept_since, before) for role in found]
        return InactiveRolesPage(roles, after, kept_since, await self.followers())


def _evaluate_role(role: IdleRole, kept_since: float, before: float) -> InactiveRole:
    known = max(role.created_at, kept_since)
    return InactiveRole(role, day_of(known), known <= before) if role.day is None else InactiveRole(role, role.day, True)


def _place_of(role: IdleRole) -> IdleRolesCursor:
    if role.day is None:
        return IdleRolesCursor(False, role.created_at, role.role)
    return IdleRolesCursor(True, float(role.day), role.role)

"""The use cases of who reads a variable, and of variables that nobody reads (READ-10 to READ-15).

Note [What isn't known]. Counts begin with the first server that counts, those of a server that can't be reached are missing,
and those of more pairs than a server can keep are lost. Each answer says so, and then doesn't call "never" certain: an
operator who took it for that would delete a secret that is in use.

Note [Read by the server]. The reads of an authenticator are no role's. So these variables are never listed
as unread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from svc.model.authentication import DAY, day_of
from svc.model.clocks import WallClock
from svc.model.dialect import Dialect
from svc.model.errors import Forbidden, RecordNotFound
from svc.model.names import ResourceName, RoleName
from svc.model.readings import (
    READERS_START,
    CountingState,
    Reader,
    ReadersCursor,
    ReadersOfSeveral,
    VariableRead,
    VariableReaders,
    VariableUse,
)
from svc.services.invocation import Invocation, can_read_all, require_inspection
from svc.storage.readings import ReadingStore
from svc.storage.roles import RoleStore

#: How many variables are read at once, and how often in one request.
WINDOW: Final = 2000
WINDOWS: Final = 10

#: How many of several variables are named with their readers, how many of them are read for that, and how many readers each.
NAMED_VARIABLES: Final = 20
READ_VARIABLES: Final = 100
NAMED_READERS: Final = 20


@attrs.frozen
class ReadersQuery:
    """Readers of a variable: those of the last ``since`` seconds, all that are kept if that is ``None``."""

    variable: ResourceName
    since: int | None = None
    limit: int = 100
    after: ReadersCursor = READERS_START


@attrs.frozen
class ReadersPage:
    """A page of readers; ``after`` is the last, if there may be more.

    ``kept_since``: epoch seconds, and nothing before is known. ``missing``: names of servers whose counts are missing.
    ``certain``: there are no other readers in the time that was asked for.
    """

    readers: Sequence[Reader]
    after: ReadersCursor | None
    kept_since: float
    missing: Sequence[str]
    certain: bool


@attrs.frozen
class UnreadQuery:
    """Variables without a read in the last ``since`` seconds, behind the full id ``after``."""

    since: int
    limit: int = 100
    after: str = ""


@attrs.frozen
class UnreadVariable:
    """A variable, the day since which no read of it is known, and whether that is certain for the time asked for."""

    use: VariableUse
    unread_since: int
    certain: bool


@attrs.frozen
class UnreadPage:
    """A page of variables; ``after`` is the full id that ends it. The rest is as in ``ReadersPage``."""

    variables: Sequence[UnreadVariable]
    after: str | None
    kept_since: float
    missing: Sequence[str]


@attrs.frozen
class RoleReads:
    """The variables that a role has read since the day ``since``, those read last first, as far as the caller owns or
    inspects them.

    ``hidden``: there are others, of which the caller may not know. ``complete``: there are no more than were read of the
    counts. ``certain``: neither is so, and none is missing. The rest is as in ``ReadersPage``.
    """

    variables: Sequence[VariableRead]
    since: int
    complete: bool
    hidden: bool
    kept_since: float
    missing: Sequence[str]
    certain: bool


@attrs.frozen
class ReaderService:
    """The use cases; ``retention``: seconds for which reads are kept after the last."""

    store: ReadingStore
    roles: RoleStore
    wall: WallClock
    dialect: Dialect
    retention: float

    async def list_readers(self, invocation: Invocation, query: ReadersQuery) -> ReadersPage:
        """Return roles that read a variable, those that did last first.

        :raises NotFound: there is no such variable, or the caller may not see it.
        :raises Forbidden: the caller neither owns nor inspects it, or its own role is gone.
        """
        variable, account = query.variable, invocation.caller.role.account
        if variable.account != account or variable.kind != "variable":
            raise RecordNotFound.for_name(variable)
        await require_inspection(self.roles, invocation.caller, variable)
        state, now = await self.store.read_state(), self.wall.seconds()
        oldest = now - self.retention
        begin = oldest if query.since is None else now - query.since
        found = await self.store.list_readers(variable, max(day_of(begin), 0), query.after, query.limit + 1)
        page = found[: query.limit]
        after = ReadersCursor(page[-1].last_day, page[-1].role) if len(found) > query.limit else None
        kept_since = max(state.since, oldest)
        certain = kept_since <= begin and _is_complete(state, begin)
        return ReadersPage(page, after, kept_since, state.missing, certain)

    async def list_variables_read(self, invocation: Invocation, role: RoleName, since: int) -> RoleReads:
        """Return the variables that a role of the caller's account has read in the last ``since`` seconds."""
        state, now = await self.store.read_state(), self.wall.seconds()
        begin = now - since
        day = max(day_of(begin), 0)
        found = await self.store.list_read_by(role, day, WINDOW + 1)
        page = found[:WINDOW]
        known = await self.store.filter_inspectable(invocation.caller.role, [read.variable for read in page])
        shown = [read for read in page if read.variable in known]
        complete, hidden = len(found) <= WINDOW, len(shown) < len(page)
        kept_since = max(state.since, now - self.retention)
        certain = complete and not hidden and kept_since <= begin and _is_complete(state, begin)
        return RoleReads(shown, day, complete, hidden, kept_since, state.missing, certain)

    async def list_readers_of_several(
        self, invocation: Invocation, variables: Sequence[str], since: int
    ) -> ReadersOfSeveral | None:
        """Return who has read these variables in the last ``since`` seconds; ``None`` if the caller may know it of none."""
        window = variables[:WINDOW]
        known = await self.store.filter_inspectable(invocation.caller.role, window)
        if not known:
            return None
        state, now = await self.store.read_state(), self.wall.seconds()
        begin = now - since
        day = max(day_of(begin), 0)
        read = await self.store.filter_read(sorted(known), day)
        found, left = list[VariableReaders](), len(read)
        for name in read[:READ_VARIABLES]:
            if len(found) == NAMED_VARIABLES:
                break
            left -= 1
            some = await self.store.list_readers(ResourceName.parse(name), day, READERS_START, NAMED_READERS + 1)
            if some:
                found.append(VariableReaders(name, some[:NAMED_READERS], len(some) > NAMED_READERS))
        complete = not left and len(window) == len(variables)
        kept_since = max(state.since, now - self.retention)
        certain = kept_since <= begin and _is_complete(state, begin)
        return ReadersOfSeveral(found, day, complete, kept_since, state.missing, certain)

    async def list_unread(self, invocation: Invocation, query: UnreadQuery) -> UnreadPage:
        """Return variables of the caller's account that it owns or inspects and that were made before that time, by id.

        A page may have less than was requested, or nothing, and yet not be the last.

        :raises Forbidden: the caller's role is gone.
        """
        caller = invocation.caller
        if not await self.roles.caller_exists(caller):
            raise Forbidden("the token's role no longer exists")
        everything = await can_read_all(self.roles, caller)
        state, before = await self.store.read_state(), self.wall.seconds() - query.since
        found: list[VariableUse] = []
        after: str | None = query.after
        for _ in range(WINDOWS):
            window = await self.store.list_variables(caller.role.account, after or "", WINDOW)
            after = str(window[-1].variable) if len(window) == WINDOW else None
            some = [use for use in window if self._is_unread(use, before)]
            if not everything and some:
                allowed = await self.store.filter_inspectable(caller.role, [str(use.variable) for use in some])
                some = [use for use in some if str(use.variable) in allowed]
            found += some
            if len(found) > query.limit:
                found = found[: query.limit]
                after = str(found[-1].variable)
                break
            if after is None:
                break
        return UnreadPage([_evaluate_use(use, state, before) for use in found], after, state.since, state.missing)

    def _is_unread(self, use: VariableUse, before: float) -> bool:
        if use.variable.identifier.startswith(f"{self.dialect.prefix}/authn-"):
            return False  # Note [Read by the server]
        return use.made_at < before and (use.last_day is None or use.last_day < day_of(before))


def _evaluate_use(use: VariableUse, state: CountingState, before: float) -> UnreadVariable:
    complete = _is_complete(state, before)
    if use.last_day is not None:
        return UnreadVariable(use, use.last_day, complete)
    known = max(use.made_at, state.since)
    return UnreadVariable(use, day_of(known), complete and known <= before)


def _is_complete(state: CountingState, begin: float) -> bool:
    """Return whether all reads since then are counted, as far as reads were counted at all."""
    return not state.missing and (state.lost_day is None or (state.lost_day + 1) * DAY <= begin)

"""Users of directories in memory: the fake of ``DirectoryUserStore`` (see ``memory``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from svc.model.ldap_directories import DirectoryEventsOf, DirectoryUser, DirectoryUsersChange, ScheduledRound
from svc.model.names import ResourceName, RoleName
from svc.storage.directory_users import DirectoryUserStore
from tests.memory import MemoryStore


class MemoryDirectoryUsers(MemoryStore, DirectoryUserStore):
    """A fake of ``DirectoryUserStore``."""

    async def begin_rounds(
        self, webservices: Mapping[ResourceName, float], every: float, apart: float
    ) -> Sequence[ScheduledRound]:
        """See ``DirectoryUserStore``."""
        self.memory.write()
        turns = []
        for name, again in sorted((str(webservice), again) for webservice, again in webservices.items()):
            if name in self.memory.resources:
                begun, _, fault = self.memory.directory_rounds.get(name, (float("-inf"), 0.0, None))
                due = begun <= self.memory.now - (every if fault is None else min(every, again))
                due = due or (begun <= self.memory.now - apart and self._doubted(name, self.memory.now - apart))
                self.memory.directory_rounds[name] = (self.memory.now if due else begun, self.memory.now, fault)
                turns.append(ScheduledRound(ResourceName.parse(name), due, fault))
        return turns

    async def list_users(self, webservice: ResourceName, after: str, most: int) -> Sequence[DirectoryUser]:
        """See ``DirectoryUserStore``."""
        self.memory.ask()
        found = sorted((role, row) for role, row in self.memory.directory_users.items() if row[0] == str(webservice))
        rows = [(role, row) for role, row in found if role > after]
        return [DirectoryUser(RoleName.parse(role), since is not None, refused) for role, (_, since, refused) in rows][:most]

    async def record_findings(
        self,
        webservice: ResourceName,
        missing: Sequence[RoleName],
        found: Sequence[RoleName],
        apart: float,
        trail: DirectoryEventsOf,
    ) -> DirectoryUsersChange:
        """See ``DirectoryUserStore``."""
        self.memory.write()
        users, name = self.memory.directory_users, str(webservice)
        admitted = self._admitted(role for role in map(str, found) if users.get(role, ("",))[0] == name)
        begun, refused = self.memory.directory_rounds[name][0], []
        for role in sorted(map(str, missing)):
            where, since, already = users.get(role, ("", None, False))
            if where == name and since is None:
                users[role] = (name, self.memory.now, False)
            elif where == name and since is not None and not already and since <= begun - apart:
                users[role] = (name, since, True)
                self.memory.epochs[role] = self.memory.epochs.get(role, 0) + 1
                refused.append((RoleName.parse(role), webservice))
        return self._recorded(DirectoryUsersChange(tuple(refused), admitted), trail)

    async def record_fault(self, webservice: ResourceName, fault: str | None) -> None:
        """See ``DirectoryUserStore``."""
        self.memory.write()
        if str(webservice) in self.memory.directory_rounds:
            begun, kept, _ = self.memory.directory_rounds[str(webservice)]
            self.memory.directory_rounds[str(webservice)] = (begun, kept, fault)

    async def clear_mark(self, role: RoleName, trail: DirectoryEventsOf) -> DirectoryUsersChange:
        """See ``DirectoryUserStore``."""
        self.memory.write()
        return self._recorded(DirectoryUsersChange(enabled=self._admitted([str(role)])), trail)

    async def clear_stale_marks(self, seconds: float, trail: DirectoryEventsOf) -> DirectoryUsersChange:
        """See ``DirectoryUserStore``."""
        self.memory.write()
        old = self._of_turns(lambda kept: kept < self.memory.now - seconds)
        roles = [role for role, row in self.memory.directory_users.items() if row[0] in old]
        return self._recorded(DirectoryUsersChange(enabled=self._admitted(roles)), trail)

    async def read_fault(self, webservice: ResourceName, seconds: float) -> str | None:
        """See ``DirectoryUserStore``."""
        self.memory.ask()
        recent = self._of_turns(lambda kept: kept >= self.memory.now - seconds)
        return self.memory.directory_rounds[str(webservice)][2] if str(webservice) in recent else None

    def _of_turns(self, condition: Callable[[float], bool]) -> set[str]:
        return {name for name, (_, kept, _) in self.memory.directory_rounds.items() if condition(kept)}

    def _doubted(self, webservice: str, before: float) -> bool:
        rows = self.memory.directory_users.values()
        return any(
            where == webservice and since is not None and since <= before and not refused for where, since, refused in rows
        )

    def _admitted(self, roles: Iterable[str]) -> tuple[tuple[RoleName, ResourceName], ...]:
        admitted = []
        for role in sorted(roles):
            where, since, refused = self.memory.directory_users.get(role, ("", None, False))
            if since is not None:
                self.memory.directory_users[role] = (where, None, False)
            if refused:
                admitted.append((RoleName.parse(role), ResourceName.parse(where)))
        return tuple(admitted)

    def _recorded(self, change: DirectoryUsersChange, trail: DirectoryEventsOf) -> DirectoryUsersChange:
        if change:
            self.memory.record(trail(change))
        return change

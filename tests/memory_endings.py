"""The fakes of what ends and of last logins, on the same :class:`Memory` as the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from svc.model.authentication import IdleRole, IdleRolesCursor, IdleRolesPage, LastLogin, LoginRecord
from svc.model.expiration import ROTATOR, ExpirationCursor, ExpirationKind, ExpirationsPage, UpcomingExpiration
from svc.model.host_factories import name_token
from svc.model.names import ACTOR_KINDS, RoleName
from svc.storage.last_logins import LastLoginStore
from svc.storage.upcoming_expirations import UpcomingExpirationStore
from tests.memory import MemoryStore, kind_of


class MemoryEndings(MemoryStore, UpcomingExpirationStore):
    """A fake of ``UpcomingExpirationStore``."""

    async def list_variables(self, account: str, after: ExpirationCursor, until: float, most: int) -> ExpirationsPage:
        """See ``UpcomingExpirationStore``."""
        return self._read(self._variables(), account, after, until, most)

    async def list_factory_tokens(self, account: str, after: ExpirationCursor, until: float, most: int) -> ExpirationsPage:
        """See ``UpcomingExpirationStore``."""
        tokens = self.memory.factory_tokens.items()
        kind = ExpirationKind.HOST_FACTORY_TOKEN
        found = [
            UpcomingExpiration(kind, token.expires_at, str(token.factory), name_token(digest)) for digest, token in tokens
        ]
        return self._read(found, account, after, until, most)

    async def list_expiring_api_keys(
        self, account: str, after: ExpirationCursor, until: float, most: int
    ) -> ExpirationsPage:
        """See ``UpcomingExpirationStore``."""
        ends = self.memory.key_expirations
        found = [UpcomingExpiration(ExpirationKind.API_KEY, at, role, "", self._set_at(role)) for role, at in ends.items()]
        return self._read(found, account, after, until, most)

    async def list_rotated_api_keys(
        self, account: str, after: ExpirationCursor, until: float, age: float, most: int
    ) -> ExpirationsPage:
        """See ``UpcomingExpirationStore``."""
        return self._read(self._aged(age, rotated=True), account, after, until, most)

    async def list_unrotated_api_keys(
        self, account: str, after: ExpirationCursor, until: float, age: float, most: int
    ) -> ExpirationsPage:
        """See ``UpcomingExpirationStore``."""
        return self._read(self._aged(age, rotated=False), account, after, until, most)

    async def filter_visible(self, caller: RoleName, ids: Sequence[str]) -> frozenset[str]:
        """See ``UpcomingExpirationStore``."""
        return self.memory.seen(caller, ids)

    def _variables(self) -> Iterable[UpcomingExpiration]:
        for name, row in self.memory.expirations.items():
            values = self.memory.secrets.get(name, {})
            rotated = (name, ROTATOR) in self.memory.annotations
            if name in self.memory.resources and (rotated or row.due_at > self.memory.now):
                kind = ExpirationKind.ROTATION if rotated else ExpirationKind.VALUE
                since = self.memory.lives[name, max(values)][0] if values else None
                yield UpcomingExpiration(kind, row.due_at, name, "", since, False, row.failures, row.fault)

    def _aged(self, age: float, *, rotated: bool) -> Iterable[UpcomingExpiration]:
        for role in self.memory.credentials:
            if role not in self.memory.key_expirations and (role in self.memory.rotations) is rotated:
                since = self._set_at(role)
                yield UpcomingExpiration(ExpirationKind.API_KEY, since + age, role, "", since, True)

    def _set_at(self, role: str) -> float:
        return self.memory.rotations.get(role, self.memory.made_at)

    def _read(
        self, found: Iterable[UpcomingExpiration], account: str, after: ExpirationCursor, until: float, most: int
    ) -> ExpirationsPage:
        self.memory.ask()
        endings = sorted(
            (
                ending
                for ending in found
                if ending.id.startswith(f"{account}:") and after < ending.cursor and ending.at <= until
            ),
            key=lambda ending: ending.cursor,
        )
        return ExpirationsPage(endings[:most], endings[most - 1].cursor if len(endings) >= most else None)


class MemoryLastLogins(MemoryStore, LastLoginStore):
    """A fake of ``LastLoginStore``; nothing is ever locked but the roles of ``Memory.locked_roles``."""

    async def record_logins(self, logins: Sequence[LoginRecord]) -> Sequence[LoginRecord]:
        """See ``LastLoginStore``."""
        self.memory.write()
        kept = self.memory.last_logins
        locked = [login for login in logins if str(login.role) in self.memory.locked_roles]
        for login in logins:
            role = str(login.role)
            if login not in locked and role in self.memory.roles and self.memory.numbers(role)[0] == login.creation:
                if login.day is not None:
                    kept[role] = max(login.day, kept.get(role, login.day))
                self._note_directory(role, login.directory)
        return locked

    def _note_directory(self, role: str, directory: str | None) -> None:
        users = self.memory.directory_users
        before, _, refused = users.get(role, ("", None, False))
        if directory is None or refused or directory == before:
            return
        users.pop(role, None)
        if directory in self.memory.resources:
            users[role] = (directory, None, False)

    async def read_last_login(self, role: RoleName) -> LastLogin:
        """See ``LastLoginStore``."""
        self.memory.ask()
        return LastLogin(self.memory.last_logins.get(str(role)), self.memory.logins_kept_since)

    async def read_recording_start(self) -> float:
        """See ``LastLoginStore``."""
        self.memory.ask()
        return self.memory.logins_kept_since

    async def list_idle_roles(
        self, account: str, day: int, made_before: float, after: IdleRolesCursor, most: int
    ) -> IdleRolesPage:
        """See ``LastLoginStore``."""
        self.memory.ask()
        found: list[tuple[IdleRolesCursor, IdleRole]] = []
        for role in self.memory.roles:
            seen = self.memory.last_logins.get(role)
            if not role.startswith(f"{account}:") or kind_of(role) not in ACTOR_KINDS:
                continue
            made = self.memory.made_at
            if seen is None and made < made_before:
                found.append((IdleRolesCursor(False, made, role), IdleRole(role, made, None)))
            elif seen is not None and seen < day:
                found.append((IdleRolesCursor(True, float(seen), role), IdleRole(role, made, seen)))
        rows = sorted(row for row in found if after < row[0])
        return IdleRolesPage([role for _, role in rows[:most]], rows[most - 1][0] if len(rows) >= most else None)

    async def filter_visible(self, caller: RoleName, roles: Sequence[str]) -> frozenset[str]:
        """See ``LastLoginStore``."""
        return self.memory.seen(caller, roles)

"""The fake of sessions, on the same :class:`Memory` as the others."""

from __future__ import annotations

from ipaddress import ip_network

from svc.model.authentication import SESSIONS_PER_USER, Admitted, SessionFacts, UserSession
from svc.model.errors import RecordNotFound
from svc.model.events import EventBatch
from svc.model.names import RoleName
from svc.storage.sessions import SessionStore
from tests.memory import MemoryStore, SessionRow, remove


class MemorySessions(MemoryStore, SessionStore):
    """A fake of ``SessionStore``."""

    async def open_session(
        self, session: UserSession, admitted: Admitted, token: bytes, trail: EventBatch | None = None
    ) -> None:
        """See ``SessionStore``."""
        self.memory.write()
        name = str(admitted.role)
        if name not in self.memory.roles:
            raise RecordNotFound.for_name(admitted.role)
        remove(self.memory.sessions, lambda key, row: key[0] == name and row.session.expires_at <= session.created_at)
        kept = sorted((row.session.used_at, key) for key, row in self.memory.sessions.items() if key[0] == name)
        for _, key in kept[: max(0, len(kept) - SESSIONS_PER_USER + 1)]:
            del self.memory.sessions[key]
        self.memory.sessions[name, session.id] = SessionRow(session, admitted, token)
        self.memory.record(trail)

    async def read_session(self, role: RoleName, session_id: str, now: float) -> SessionFacts | None:
        """See ``SessionStore``."""
        self.memory.ask()
        row = self.memory.sessions.get((str(role), session_id))
        if row is None:
            return None
        return SessionFacts(
            row.session,
            row.token,
            row.used,
            row.seed,
            self._outdated(role, row, now),
            self.memory.newest_key(role.account),
            tuple(ip_network(cidr) for name, cidr in sorted(self.memory.restrictions) if name == str(role)),
            *self.memory.numbers(str(role)),
        )

    async def rotate_token(self, role: RoleName, session: UserSession, used: bytes, seed: bytes, token: bytes) -> bool:
        """See ``SessionStore``."""
        self.memory.write()
        row = self.memory.sessions.get((str(role), session.id))
        if row is None or row.token != used:
            return False
        self.memory.sessions[str(role), session.id] = SessionRow(session, row.admitted, token, used, seed)
        return True

    async def list_sessions(self, role: RoleName, now: float) -> list[UserSession]:
        """See ``SessionStore``."""
        self.memory.ask()
        rows = [row for (name, _), row in self.memory.sessions.items() if name == str(role) and row.session.expires_at > now]
        found = [row.session for row in rows if self._outdated(role, row, now) is None]
        return sorted(found, key=lambda session: (-session.used_at, session.id))

    async def end_sessions(self, role: RoleName, session_id: str | None = None, trail: EventBatch | None = None) -> int:
        """See ``SessionStore``."""
        self.memory.write()
        keys = [key for key in self.memory.sessions if key[0] == str(role) and session_id in {None, key[1]}]
        for key in keys:
            del self.memory.sessions[key]
        self.memory.record(trail if keys else None)
        return len(keys)

    def _outdated(self, role: RoleName, row: SessionRow, now: float) -> str | None:
        admitted, name = row.admitted, str(role)
        if (admitted.creation, admitted.epoch) != self.memory.numbers(name):
            return "the tokens of the role were revoked"
        if admitted.credential_version != self.memory.editions.get(name, 0) or name not in self.memory.credentials:
            return "the role has been given another credential"
        if self.memory.api_key_off(name):
            return "policy has said that the role has no API key"
        expires_at = self.memory.key_expirations.get(name)
        if expires_at is not None and expires_at <= now:
            return "the API key of the role has expired"
        keys = [key for key in self.memory.accounts.get(role.account, []) if key.key_id == admitted.signing_key]
        if not any(key.retires_at is None or key.retires_at > now for key in keys):
            return "the signing key of the account has been replaced"
        return None

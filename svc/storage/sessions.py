"""The store of sessions on PostgreSQL.

Note [Read where it is written]. A token that a standby hasn't replayed yet would look like one that was used before, and end
its session. So for a renewal a session is read from the primary.
"""

from __future__ import annotations

from ipaddress import ip_network
from typing import Final

import attrs

from svc.model.authentication import RESTRICTIONS_LIMIT, SESSIONS_PER_USER, Admitted, SessionFacts, UserSession
from svc.model.errors import RecordNotFound
from svc.model.events import EventBatch
from svc.model.names import RoleName
from svc.storage.driver.failures import ForeignKeyViolation
from svc.storage.driver.statements import Statement, Statements
from svc.storage.events import change_and_record
from svc.storage.sql.access_facts import NUMBERS
from svc.storage.sql.api_keys import API_KEY_OFF

# A session that is ended meanwhile may be counted among the others: then there is room for one more.
_OPEN: Final = Statement.with_name("session_open")(f"""
    WITH removed AS (
        DELETE FROM sessions WHERE role_id = $1::text AND (ends_at <= $8::double precision OR session_id NOT IN (
            SELECT session_id FROM sessions WHERE role_id = $1 AND ends_at > $8
            ORDER BY used_at DESC LIMIT {SESSIONS_PER_USER - 1}
        ))
    )
    INSERT INTO sessions (
        role_id, session_id, creation, epoch, edition, key_id, token, created_at, ends_at, used_at, used_from
    )
    VALUES (
        $1, $2::text, $3::bigint, $4::bigint, $5::bigint, $6::text, $7::bytea, $8, $9::double precision, $8, $10::text
    )
    RETURNING session_id
""")

#: Sessions with what bears on renewing them at the moment ``$2``.
_SESSIONS: Final = f"""
    SELECT sessions.*, roles.number[1] AS creation_now, roles.number[2] AS epoch_now,
        CASE
            WHEN roles.number <> ARRAY[sessions.creation, sessions.epoch] THEN 'the tokens of the role were revoked'
            WHEN stored.edition IS DISTINCT FROM sessions.edition THEN 'the role has been given another credential'
            WHEN {API_KEY_OFF.format(role="$1")} THEN 'policy has said that the role has no API key'
            WHEN stored.expires_at <= $2::double precision THEN 'the API key of the role has expired'
            WHEN NOT EXISTS (
                SELECT FROM signing_keys
                WHERE signing_keys.key_id = sessions.key_id AND (retires_at IS NULL OR retires_at > $2) OFFSET 0
            ) THEN 'the signing key of the account has been replaced'
        END AS outdated
    FROM sessions
        JOIN (SELECT role_id, {NUMBERS} AS number FROM roles WHERE roles.role_id = $1::text) AS roles USING (role_id)
        LEFT JOIN credentials AS stored USING (role_id)
    WHERE sessions.role_id = $1
"""
_READ: Final = Statement.with_name("session_read")(f"""
    SELECT session_id, created_at, ends_at, used_at, used_from, token, used, seed, outdated,
        (SELECT key_id FROM signing_keys WHERE account = split_part($1, ':', 1) ORDER BY serial DESC LIMIT 1),
        ARRAY(SELECT cidr FROM restrictions WHERE role_id = $1 ORDER BY cidr LIMIT {RESTRICTIONS_LIMIT}),
        creation_now, epoch_now
    FROM ({_SESSIONS} AND session_id = $3::text) AS judged
""")
_LISTED: Final = Statement.with_name("sessions_listed")(f"""
    SELECT session_id, created_at, ends_at, used_at, used_from
    FROM ({_SESSIONS}) AS judged WHERE outdated IS NULL AND ends_at > $2 ORDER BY used_at DESC, session_id
""")
_ROTATE: Final = Statement.with_name("session_turn")("""
    UPDATE sessions SET token = $6::bytea, used = $3::bytea, seed = $7::bytea, used_at = $4::double precision,
        used_from = $5::text
    WHERE role_id = $1::text AND session_id = $2::text AND token = $3 RETURNING session_id
""")
_END: Final = Statement.with_name("session_end")("""
    DELETE FROM sessions WHERE role_id = $1::text AND ($2::text IS NULL OR session_id = $2) RETURNING session_id
""")


@attrs.frozen
class SessionStore:
    """The store of sessions, each known by its role and its id."""

    _database: Statements

    async def open_session(
        self, session: UserSession, admitted: Admitted, token: bytes, trail: EventBatch | None = None
    ) -> None:
        """Add a session of a role as it was admitted, with the digest of its first refresh token.

        Those of the role that have ended are removed, and of ``SESSIONS_PER_USER`` others the least recently used one.

        :raises NotFound: the role went meanwhile.
        """
        numbers = (admitted.creation, admitted.epoch, admitted.credential_version)
        name, when = str(admitted.role), (session.created_at, session.expires_at)
        asked = (name, session.id, *numbers, admitted.signing_key, token, *when, session.used_from)
        try:
            await change_and_record(self._database, trail, _OPEN, *asked)
        except ForeignKeyViolation:
            raise RecordNotFound.for_name(admitted.role) from None

    async def read_session(self, role: RoleName, session_id: str, now: float) -> SessionFacts | None:
        """Return a session with the facts for renewing it at ``now``; ``None`` where there is none, or no role."""
        for row in await self._database.change(_READ, str(role), now, session_id):
            token, used, seed, outdated, signing_key, cidrs, creation, epoch = row[5:]
            networks = tuple(map(ip_network, cidrs))
            return SessionFacts(
                UserSession(*row[:5]),
                token=token,
                used=used,
                seed=seed,
                outdated=outdated,
                signing_key=signing_key,
                restrictions=networks,
                creation=creation,
                epoch=epoch,
            )
        return None

    async def rotate_token(self, role: RoleName, session: UserSession, used: bytes, seed: bytes, token: bytes) -> bool:
        """Replace the digest ``used`` by the next one, ``token``, made from ``seed``, and note when and where it was used.

        Return whether that was done: not where ``used`` is none for the next renewal.
        """
        where = (session.used_at, session.used_from)
        return bool(await self._database.change(_ROTATE, str(role), session.id, used, *where, token, seed))

    async def list_sessions(self, role: RoleName, now: float) -> list[UserSession]:
        """Return the sessions of a role that can be renewed at ``now``, the one that was used last first."""
        return [UserSession(*row) for row in await self._database.fetch(_LISTED, str(role), now)]

    async def end_sessions(self, role: RoleName, session_id: str | None = None, trail: EventBatch | None = None) -> int:
        """End a session of a role, or all; return how many."""
        return len(await change_and_record(self._database, trail, _END, str(role), session_id))

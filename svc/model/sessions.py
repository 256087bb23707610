"""Values and port of sessions: a user stays logged in for hours by a refresh token, which renews short access tokens.

Times are in seconds since 1970, by the clocks of servers.
"""

from __future__ import annotations

from typing import Final

import attrs
from zope.interface import Interface

from svc.model.authentication import Admitted
from svc.model.events import EventBatch
from svc.model.names import RoleName
from svc.model.query_results import Network

#: How many sessions a user has at once; the least recently used one is removed for a new one.
SESSIONS_PER_USER: Final = 20


@attrs.frozen
class UserSession:
    """A session as it is listed: when it began and ends, and when and from which address it was last used."""

    id: str
    created_at: float
    expires_at: float
    used_at: float
    used_from: str


@attrs.frozen
class SessionFacts:
    """A session with all facts for renewing it, read in one round trip.

    ``token`` and ``used`` are digests of refresh tokens: of the one for the next renewal, and of the one that made it, from
    ``seed``. ``outdated`` says what about the role has changed since the login, ``None`` for nothing. The rest is as in
    ``Credential``.
    """

    session: UserSession
    token: bytes = attrs.field(repr=False)
    used: bytes | None = attrs.field(repr=False)
    seed: bytes | None = attrs.field(repr=False)
    outdated: str | None
    signing_key: str | None
    restrictions: tuple[Network, ...] = ()
    #: The role's (see ``Caller``). Not compared: no two stores make the same.
    creation: int = attrs.field(default=0, eq=False)
    epoch: int = attrs.field(default=0, eq=False)


@attrs.frozen
class Renewed(Admitted):
    """A proven role whose session continues, with the refresh token for the next renewal."""

    session: str = attrs.field(kw_only=True)
    expires_at: float = attrs.field(kw_only=True)
    refresh_token: str = attrs.field(kw_only=True, repr=False)


class ISessions(Interface):
    """The store of sessions, each known by its role and its id. Errors and ``trail``: see ``ports``."""

    async def open_session(session: UserSession, admitted: Admitted, token: bytes, trail: EventBatch | None = None) -> None:
        """Add a session of a role as it was admitted, with the digest of its first refresh token.

        Those of the role that have ended are removed, and of ``SESSIONS_PER_USER`` others the least recently used one.

        :raises NotFound: the role went meanwhile.
        """

    async def read_session(role: RoleName, session_id: str, now: float) -> SessionFacts | None:
        """Return a session with the facts for renewing it at ``now``; ``None`` where there is none, or no role."""

    async def rotate_token(role: RoleName, session: UserSession, used: bytes, seed: bytes, token: bytes) -> bool:
        """Replace the digest ``used`` by the next one, ``token``, made from ``seed``, and note when and where it was used.

        Return whether that was done: not where ``used`` is none for the next renewal.
        """

    async def list_sessions(role: RoleName, now: float) -> list[UserSession]:
        """Return the sessions of a role that can be renewed at ``now``, the one that was used last first."""

    async def end_sessions(role: RoleName, session_id: str | None = None, trail: EventBatch | None = None) -> int:
        """End a session of a role, or all; return how many."""

"""Values of sessions: a user stays logged in for hours by a refresh token, which renews short access tokens.

Times are in seconds since 1970, by the clocks of servers.
"""

from __future__ import annotations

from typing import Final

import attrs

from svc.model.authentication import Admitted
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

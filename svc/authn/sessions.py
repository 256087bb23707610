"""Renewals of sessions: a refresh token is the evidence, and is replaced by the next one.

Note [Used once]. A refresh token is used once (RFC 9700 4.14.2). One that was used before is known to somebody besides the
user, or to a thief alone: nobody can know which, so its session ends for both. There is one exception. The answer to a
renewal may be lost, and two commands may renew at the same moment. So the token that was used last is answered again, with
the same next token, for ``GRACE`` seconds and to the address that used it. A thief who comes in that time from the user's
own address gets a token that the user has too; the first of the two that either uses late gives both away. Where a failover
lost the last renewal, the token that it issued looks like a used one: the user logs in again.

Note [Verified again]. Each renewal is a login: the address is compared with the role's networks, and what the session was
opened with must still be so: the role, its epoch, its credential, the account's signing key. All is read in one statement,
with the epoch that the access token gets (``svc/storage/sql/access_facts.py``, Note [Epochs]).
"""

from __future__ import annotations

import hmac
import os
from typing import Final

import attrs
from twisted.logger import Logger

from svc.crypto.refresh_tokens import SEED_BYTES, RefreshTokens
from svc.model.authentication import LoginRequest, Refused, Renewed, SessionFacts, UserSession
from svc.model.clocks import WallClock
from svc.model.errors import InvalidName, StoreUnavailable
from svc.model.names import RoleName
from svc.model.query_results import is_within
from svc.model.reasons import Reason
from svc.model.text import escape_unprintable, quote_text
from svc.storage.sessions import SessionStore

#: Seconds for which a token that was used is answered again (Note [Used once]).
GRACE: Final = 10.0

#: How often a renewal is decided afresh because another one came first.
_MAX_DECISIONS: Final = 3

_log = Logger()


@attrs.frozen(eq=False, repr=False)
class SessionAuthenticator:
    """Admits a user by a refresh token, as ``Renewed``; sessions last ``max_lifetime`` seconds, 0 for none."""

    _sessions: SessionStore
    _tokens: RefreshTokens
    _wall: WallClock
    _max_lifetime: float

    async def authenticate(self, request: LoginRequest) -> Renewed | Refused:
        """Decide on one renewal, and make it.

        :raises ReadOnlyStandby: the store is a standby's.
        :raises StoreUnavailable: the store can't be reached, or others kept renewing the session.
        """
        try:
            role = RoleName.from_login(request.account, request.login or "")
        except InvalidName as refusal:
            return Refused(Reason.REQUEST_MALFORMED, str(refusal))
        session_id = self._tokens.find_session(role, request.evidence)
        if session_id is None:
            return Refused(Reason.CREDENTIALS_WRONG, "the evidence is no refresh token of the role", str(role))
        for _ in range(_MAX_DECISIONS):
            now = self._wall.seconds()
            reading = await self._sessions.read_session(role, session_id, now)
            if reading is None:
                return Refused(Reason.SESSION_ENDED, f"there is no session {session_id} any more", str(role))
            seed, again = self._choose_seed(reading, request, now)
            if seed is None:
                return await self._end_reused_session(role, session_id, request)
            problem = self._find_problem(reading, request.client_ip, now)
            if problem is not None:
                return Refused.for_reason(*problem, str(role), known=True)
            following = self._tokens.next_token(role, session_id, request.evidence, seed)
            turned = again or await self._sessions.rotate_token(
                role,
                attrs.evolve(reading.session, used_at=now, used_from=request.client_ip),
                self._tokens.digest_token(request.evidence),
                seed,
                self._tokens.digest_token(following.encode("ascii")),
            )
            if turned:
                return self._renewed_session(role, reading, following)
        raise StoreUnavailable(f"the session {session_id} of {role} kept being renewed by others")

    def _choose_seed(self, reading: SessionFacts, request: LoginRequest, now: float) -> tuple[bytes | None, bool]:
        """Return the seed of the next token, and whether it was given out before; ``None`` for a token that was used."""
        digest = self._tokens.digest_token(request.evidence)
        if hmac.compare_digest(digest, reading.token):
            return os.urandom(SEED_BYTES), False
        last = reading.session
        late = abs(now - last.used_at) > GRACE or request.client_ip != last.used_from
        if reading.used is None or late or not hmac.compare_digest(digest, reading.used):
            return None, False
        return reading.seed, True

    async def _end_reused_session(self, role: RoleName, session_id: str, request: LoginRequest) -> Refused:
        await self._sessions.end_sessions(role, session_id)
        facts = {
            "role": escape_unprintable(str(role)),
            "client_ip": escape_unprintable(request.client_ip),
            "session": session_id,
        }
        _log.warn("A used refresh token of {role} came from {client_ip}: session {session} has ended for everybody", **facts)
        detail = f"the refresh token was used before: somebody else may have it, and session {session_id} is ended"
        return Refused(Reason.REFRESH_TOKEN_REUSED, detail, str(role), known=True)

    def _find_problem(self, reading: SessionFacts, client_ip: str, now: float) -> tuple[Reason, str] | None:
        """Return why the session doesn't go on, or not from here; ``None`` where it does (Note [Verified again])."""
        session, networks = reading.session, reading.restrictions
        if self._session_end(session) - now < 1.0:  # an access token lives for whole seconds
            return Reason.SESSION_ENDED, f"the time of session {session.id} is over"
        if reading.outdated is not None:
            return Reason.SESSION_ENDED, f"since session {session.id} began {reading.outdated}"
        if networks and not is_within(client_ip, networks):
            among = ", ".join(map(str, networks[:10]))
            return (
                Reason.ORIGIN_REFUSED,
                f"the request comes from {quote_text(client_ip)}; the role is restricted to {among}",
            )
        if reading.signing_key is None:
            return Reason.SIGNING_KEY_UNUSABLE, "the account has no signing key"
        return None

    def _session_end(self, session: UserSession) -> float:
        return min(session.expires_at, session.created_at + self._max_lifetime)

    def _renewed_session(self, role: RoleName, reading: SessionFacts, token: str) -> Renewed:
        assert reading.signing_key is not None
        return Renewed(
            role,
            reading.signing_key,
            reading.creation,
            reading.epoch,
            session=reading.session.id,
            expires_at=self._session_end(reading.session),
            refresh_token=token,
        )

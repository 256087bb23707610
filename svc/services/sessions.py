"""The use cases of sessions: a user opens one by a login, renews it, and it is listed and ended (TOK-40 to TOK-51)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
from twisted.logger import Logger

from svc.crypto.refresh_tokens import RefreshTokens, new_session_id
from svc.model.authentication import LoginRequest, Renewed, UserSession
from svc.model.clocks import WallClock
from svc.model.errors import (
    AuthenticationRefused,
    Forbidden,
    InvalidParameter,
    ReadOnlyStandby,
    RecordNotFound,
    RenewalElsewhere,
)
from svc.model.reasons import Reason
from svc.services.credentials import Named
from svc.services.invocation import Invocation, Recorder, printable_facts
from svc.services.login import LoginService
from svc.services.revocation import require_revocation
from svc.storage.roles import RoleStore
from svc.storage.sessions import SessionStore

_log = Logger()

#: Raises ``ReadOnlyStandby`` on a follower.
DemandPrimary = Callable[[], Awaitable[None]]


@attrs.frozen
class OpenSession:
    """The tokens that a client gets from its session: an access token, in JSON, and the refresh token for the next one."""

    id: str
    ends_at: float
    refresh_token: str = attrs.field(repr=False)
    access_token: bytes = attrs.field(repr=False)


@attrs.frozen
class SessionService:
    """The use cases of sessions.

    ``login`` takes API keys as evidence, ``renewals`` refresh tokens. ``longest``: how many seconds a session may last; with
    0 there are none.
    """

    login: LoginService
    renewals: LoginService
    store: SessionStore
    roles: RoleStore
    refresh_tokens: RefreshTokens
    wall: WallClock
    longest: int

    async def open_session(
        self, request: LoginRequest, lifetime: int | None, ensure_writable: DemandPrimary, recorder: Recorder
    ) -> OpenSession:
        """Open a session of the user whom an API key proves, for so many seconds, or as long as permitted.

        :raises AuthenticationRefused: nobody is proven, or not from this address.
        :raises Forbidden: it is no user, or the server has no sessions.
        :raises InvalidParameter: sessions don't last that long.
        :raises ReadOnlyStandby: this is a follower.
        """
        admitted = await self.login.admit_request(request, recorder)
        if admitted.role.kind != "user":
            raise Forbidden(f"{admitted.role} is no user", "sessions are for users: a host logs in again with its own proof")
        if not self.longest:
            raise Forbidden("there are no sessions here", "this server has no sessions: --user-session-max is 0")
        if lifetime is not None and lifetime > self.longest:
            most = f"'lifetime': a session lasts {self.longest} seconds at most here (--user-session-max)"
            raise InvalidParameter("lifetime", most)
        await ensure_writable()
        now = self.wall.seconds()
        session = UserSession(new_session_id(), now, now + (lifetime or self.longest), now, request.client_ip)
        recorder.add_audit_facts(session=session.id)
        access_token = await self.login.issue_token(admitted, session.expires_at)
        token = self.refresh_tokens.first_token(admitted.role, session.id)
        try:
            await self.store.open_session(
                session, admitted, self.refresh_tokens.digest_token(token.encode("ascii")), recorder.event_batch
            )
        except RecordNotFound:  # it was deleted in between
            raise AuthenticationRefused(Reason.ROLE_UNKNOWN) from None
        facts = printable_facts(role=admitted.role, session=session.id, client_ip=request.client_ip)
        _log.info("{role} opened the session {session}, from {client_ip}", **facts)
        return OpenSession(session.id, session.expires_at, token, access_token)

    async def renew_session(self, request: LoginRequest, ensure_writable: DemandPrimary, recorder: Recorder) -> OpenSession:
        """Renew a session by its refresh token.

        :raises AuthenticationRefused: the token is none, or the session can't continue.
        :raises RenewalElsewhere: this is a follower.
        """
        try:
            await ensure_writable()
            renewed = await self.renewals.admit_request(request, recorder)
        except ReadOnlyStandby:
            raise RenewalElsewhere from None
        assert isinstance(renewed, Renewed)
        recorder.add_audit_facts(session=renewed.session)
        access_token = await self.renewals.issue_token(renewed, renewed.expires_at)
        return OpenSession(renewed.session, renewed.expires_at, renewed.refresh_token, access_token)

    async def list_sessions(self, invocation: Invocation, named: Named) -> list[UserSession]:
        """Return the sessions of the named role, or of the caller, the one that was used last first.

        :raises Forbidden: by this method and the next as ``require_revocation``, as are ``NotFound`` and
        ``CredentialImpossible``.
        """
        role = named() or invocation.caller.role
        invocation.recorder.add_audit_facts(target=str(role))
        await require_revocation(self.roles, invocation.caller, role)
        return await self.store.list_sessions(role, self.wall.seconds())

    async def end_sessions(self, invocation: Invocation, named: Named, session_id: str | None = None) -> None:
        """End a session of the named role, or of the caller, or all of them. Access tokens that it issued stay valid.

        :raises NotFound: there is no session of that id.
        """
        role = named() or invocation.caller.role
        invocation.recorder.add_audit_facts(target=str(role), session=session_id or "all")
        await require_revocation(self.roles, invocation.caller, role)
        ended = await self.store.end_sessions(role, session_id, invocation.recorder.event_batch)
        if session_id is not None and not ended:
            raise RecordNotFound(role.account, "session", session_id)
        facts = printable_facts(caller=invocation.caller.role, count=ended, role=role, client_ip=invocation.client_ip)
        _log.info("{caller} ended {count} sessions of {role}, from {client_ip}", **facts)

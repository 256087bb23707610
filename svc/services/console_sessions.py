"""The use cases of the console's sessions: a role signs in, and its session is checked at each request.

Note [Verified at each request]. A session names the role that a login has proven. At each request it is compared with the
role's current credential: the role must have the same creation and epoch, the same API key and password, and a permitted
address. So a session ends for everybody, on every server, when the role is deleted, when its tokens are revoked, and when
its credential is replaced. The server stores nothing to delete: signing out removes the cookie from one browser.
"""

from __future__ import annotations

from typing import Final

import attrs
from twisted.logger import Logger

from svc.crypto.console_cookies import ConsoleCookies, ConsoleSession
from svc.model.authentication import Admitted, LoginRequest
from svc.model.clocks import WallClock
from svc.model.errors import AuthenticationRefused, BearerRefused
from svc.model.oidc import CodeLogin
from svc.model.query_results import Caller, is_within
from svc.model.reasons import Reason
from svc.services.invocation import Recorder, printable_facts
from svc.services.login import ApiKeyService, LoginService
from svc.storage.credentials import CredentialStore

#: Seconds after which a session ends, however much it is used.
LONGEST: Final = 12 * 3600

_log = Logger()


@attrs.frozen
class ConsoleSessionService:
    """The use cases of the console's sessions, which expire when they aren't used for ``idle`` seconds.

    ``api_keys`` takes an API key or a password, ``login`` an API key, as the routes of ``authn`` do; ``by_code`` a code.
    """

    login: LoginService
    by_code: LoginService
    api_keys: ApiKeyService
    credentials: CredentialStore
    cookies: ConsoleCookies
    wall: WallClock
    idle: int

    async def begin_session(self, request: LoginRequest, recorder: Recorder) -> ConsoleSession:
        """Return a new session of the role that a login and its API key or password prove.

        :raises AuthenticationRefused: they prove none, or not from this address.
        :raises PasswordsBusy: too many passwords wait to be compared.
        """
        api_key = await self.api_keys.read_api_key(request, recorder)
        recorder.add_audit_facts(proven=True)
        admitted = await self.login.admit_request(attrs.evolve(request, evidence=api_key), recorder)
        return self._make_session(admitted, admitted.credential_version, request)

    async def begin_by_code(self, request: CodeLogin, recorder: Recorder) -> ConsoleSession:
        """Return a new session of the user whom a provider names; raises as the login does."""
        admitted = await self.by_code.admit_request(request, recorder)
        credential = await self.credentials.read_credential(admitted.role)
        if (credential.creation, credential.epoch) != (admitted.creation, admitted.epoch):
            raise AuthenticationRefused(Reason.ROLE_UNKNOWN, detail="the user was deleted or revoked just now")
        return self._make_session(admitted, credential.version, request)

    def _make_session(self, admitted: Admitted, credential_version: int, request: LoginRequest) -> ConsoleSession:
        self.login.record_login(admitted)
        now = int(self.wall.seconds())
        _log.info("{role} signed in to the console, from {ip}", **printable_facts(role=admitted.role, ip=request.client_ip))
        return ConsoleSession(admitted.role, admitted.creation, admitted.epoch, credential_version, now, now)

    async def resume_session(self, text: str, client_ip: str) -> ConsoleSession:
        """Return the session in the text of a cookie, marked as used now (Note [Verified at each request]).

        :raises BearerRefused: there is none, or it has ended.
        """
        session, now = self.cookies.open_session(text), int(self.wall.seconds())
        if session is None:
            raise BearerRefused("the cookie has no session of this service")
        # Clocks of servers differ: another may have recorded a use slightly later than now.
        if now - session.used_at > self.idle or now - session.began_at > LONGEST:
            raise BearerRefused("the session's time is over")
        credential = await self.credentials.read_credential(session.role)
        proven = (session.creation, session.epoch, session.credential_version)
        if not credential.role_exists or (credential.creation, credential.epoch, credential.version) != proven:
            raise BearerRefused("the session's role, its tokens or its credential aren't those of the sign-in")
        if credential.is_expired(now) or credential.api_key is None or credential.api_key_off:
            raise BearerRefused("the role's API key has expired, or policy has said that it has none")
        if credential.restrictions and not is_within(client_ip, credential.restrictions):
            raise BearerRefused("the role may not come from this address")
        return attrs.evolve(session, used_at=max(now, session.used_at))


def caller_of(session: ConsoleSession) -> Caller:
    """Return the caller that a session proves, as the access token of its sign-in would."""
    return Caller(session.role, session.began_at, session.creation, session.epoch)

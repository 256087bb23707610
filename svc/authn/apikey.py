"""The API key authenticator: a role's own key proves the role; at login its password does too.

Note [Alike]. A client can't tell an unknown role from a wrong key: the answers are alike, and so is the work (FAIL-18).
Each request asks the store one question, opens one sealed key, a decoy where the role has none, and compares it. At a
login, evidence that isn't the key and can be a user's password is also compared with one hash: the user's, or a decoy.
"""

from __future__ import annotations

from twisted.logger import Logger
from zope.interface import implementer

from svc.crypto.passwords import Passwords, can_be_password
from svc.crypto.vault import DECOY, Vault, api_key_name, password_name
from svc.model.authentication import Admitted, IAuthenticator, ILogin, LoginRequest, Refused
from svc.model.clocks import WallClock
from svc.model.credentials import Credential, ICredentials, new_api_key, same_key
from svc.model.errors import InvalidName, PasswordsBusy, WrongDataKey
from svc.model.names import RoleName
from svc.model.query_results import Sealed, is_within
from svc.model.reasons import Reason
from svc.model.text import shown

_log = Logger()

_Problem = tuple[Reason, str]


@implementer(IAuthenticator, ILogin)
class ApiKeyAuthenticator:
    """Admits a user or host whose API key is the evidence, byte for byte (TOK-2 and TOK-4)."""

    def __init__(self, credentials: ICredentials, vault: Vault, passwords: Passwords, wall: WallClock) -> None:
        self._credentials = credentials
        self._vault = vault
        self._passwords = passwords
        self._wall = wall
        self._decoy = vault.seal(DECOY, new_api_key().encode("ascii"))

    async def authenticate(self, request: LoginRequest) -> Admitted | Refused:
        """Decide on one request. The client's address is checked last (TOK-6)."""
        found = await self._found(request)
        if isinstance(found, Refused):
            return found
        role, credential = found
        problem = self._problem(role, credential, request.evidence) or _misplaced(credential, request.client_ip)
        if problem is not None:
            return Refused(*problem, str(role))
        if credential.signing_key is None:
            return Refused.of(Reason.SIGNING_KEY_UNUSABLE, "the account has no signing key", str(role))
        return Admitted(role, credential.signing_key, credential.creation)

    async def api_key(self, request: LoginRequest) -> bytes | Refused:
        """Return the role's API key when that, or the role's password, is the evidence; from any address.

        :raises PasswordsBusy: too many passwords wait to be compared.
        """
        # Nothing that a role has or lacks decides about the work of hashing (Note [Alike]).
        may_be_password = can_be_password(request.evidence)
        if may_be_password:
            # Before the store is asked: a storm of passwords is to cost others little.
            await self._passwords.room()
        found = await self._found(request)
        if isinstance(found, Refused):
            return found
        role, credential = found
        problem = self._problem(role, credential, request.evidence)
        if problem is None:
            return request.evidence
        if may_be_password and role.kind == "user":
            try:
                if await self._proves(role, credential.password, request.evidence) and credential.api_key is not None:
                    return self._vault.open(api_key_name(role), credential.api_key)
            except WrongDataKey:
                problem = Reason.CREDENTIALS_UNREADABLE, "what is stored doesn't open under the data key"
        return Refused(*problem, str(role))

    async def _found(self, request: LoginRequest) -> tuple[RoleName, Credential] | Refused:
        """Return the role that would be proven, with its credential."""
        try:
            role = RoleName.from_login(request.account, request.login or "")
        except InvalidName as refusal:
            return Refused(Reason.REQUEST_MALFORMED, str(refusal))
        return role, await self._credentials.credential(role)

    def _problem(self, role: RoleName, credential: Credential, evidence: bytes) -> _Problem | None:
        """Return why the evidence is not the role's API key; ``None`` when it is (Note [Alike])."""
        try:
            stored = credential.api_key
            key = self._vault.open(DECOY, self._decoy) if stored is None else self._vault.open(api_key_name(role), stored)
        except WrongDataKey:
            return Reason.CREDENTIALS_UNREADABLE, "the stored API key doesn't open under the data key"
        matches = same_key(key, evidence)
        if not credential.account_exists:
            return Reason.ACCOUNT_UNKNOWN, "the account does not exist"
        if not credential.role_exists:
            return Reason.ROLE_UNKNOWN, "the role does not exist"
        if credential.api_key is None:
            return Reason.CREDENTIALS_MISSING, "the role has no API key"
        if not matches:
            return Reason.CREDENTIALS_WRONG, "the evidence is not the role's API key, nor, at a login, its password"
        if credential.is_expired(self._wall.seconds()):
            return Reason.CREDENTIALS_EXPIRED, "the role's API key has expired"
        return None

    async def _proves(self, role: RoleName, sealed: Sealed | None, evidence: bytes) -> bool:
        """Return whether the evidence is the role's password, of which ``sealed`` has the hash."""
        hashed = None if sealed is None else self._vault.open(password_name(role), sealed)
        if not await self._passwords.matches(hashed, evidence):
            return False
        if sealed is not None and hashed is not None and self._passwords.outdated(hashed):
            await self._renew(role, sealed, evidence)
        return True

    async def _renew(self, role: RoleName, sealed: Sealed, password: bytes) -> None:
        """Hash a proven password again, at today's cost, unless it was changed meanwhile, or this can't be done now."""
        try:
            renewed = self._vault.seal(password_name(role), await self._passwords.hashed(password))
        except PasswordsBusy:
            return
        self._credentials.renew_password(role, renewed, sealed)


def _misplaced(credential: Credential, client_ip: str) -> _Problem | None:
    """Return why the role may not authenticate from this address; ``None`` when it may (TOK-20)."""
    networks = credential.restrictions
    if not networks or is_within(client_ip, networks):
        return None
    among = ", ".join(map(str, networks[:10]))
    return Reason.ORIGIN_REFUSED, f"the request comes from {shown(client_ip)}; the role is restricted to {among}"

"""The API key authenticator: a role's own key, as it stands in the vault, proves the role.

Note [Alike]. A client can't tell an unknown role from a wrong key: the answers are alike, and so is the work (rulings 2.11).
Each attempt asks the store one question, opens one sealed key and compares it. Where the role has none, a decoy is opened
and compared in its place.
"""

from __future__ import annotations

from zope.interface import implementer

from svc.authentication import Admitted, Attempt, Credential, IAuthenticator, ILogin, Refused
from svc.credentials import new_api_key, same_key
from svc.errors import InvalidName, Reason, WrongDataKey
from svc.interfaces import ICredentials
from svc.names import RoleName
from svc.vault import DECOY, Vault, api_key_name


@implementer(IAuthenticator, ILogin)
class ApiKeyAuthenticator:
    """Admits a user or host whose API key is the evidence, byte for byte (wire facts, authn 1.2 and 1.3)."""

    def __init__(self, credentials: ICredentials, vault: Vault) -> None:
        self._credentials = credentials
        self._vault = vault
        self._decoy = vault.seal(DECOY, new_api_key().encode("ascii"))

    async def authenticate(self, attempt: Attempt) -> Admitted | Refused:
        """Decide on one attempt."""
        proven = await self._prove(attempt)
        if isinstance(proven, Refused):
            return proven
        role, credential = proven
        if credential.signing_key is None:
            return Refused(Reason.CONFIGURATION_INVALID, "the account has no signing key", str(role))
        return Admitted(role, credential.signing_key)

    async def api_key(self, attempt: Attempt) -> bytes | Refused:
        """Return the role's API key. So far nothing but the key itself proves a role, so it is the evidence."""
        proven = await self._prove(attempt)
        return proven if isinstance(proven, Refused) else attempt.evidence

    async def _prove(self, attempt: Attempt) -> tuple[RoleName, Credential] | Refused:
        try:
            role = RoleName.from_login(attempt.account, attempt.login or "")
        except InvalidName as refusal:
            return Refused(Reason.REQUEST_MALFORMED, str(refusal))
        credential = await self._credentials.credential(role)
        problem = self._problem(role, credential, attempt.evidence)
        return (role, credential) if problem is None else Refused(*problem, str(role))

    def _problem(self, role: RoleName, credential: Credential, evidence: bytes) -> tuple[Reason, str] | None:
        """Why the evidence doesn't prove the role; ``None`` when it does (Note [Alike])."""
        try:
            if credential.api_key is None:
                key = self._vault.open(DECOY, self._decoy)
            else:
                key = self._vault.open(api_key_name(role), credential.api_key)
        except WrongDataKey:
            return Reason.CREDENTIALS_UNREADABLE, "the stored API key doesn't open under the data key"
        matches = same_key(key, evidence)
        if not credential.account_exists:
            return Reason.ACCOUNT_UNKNOWN, "there is no such account"
        if not credential.role_exists:
            return Reason.ROLE_UNKNOWN, "there is no such role"
        if credential.api_key is None:
            return Reason.CREDENTIALS_MISSING, "the role has no API key"
        if not matches:
            return Reason.CREDENTIALS_WRONG, "the evidence is not the role's API key"
        return None

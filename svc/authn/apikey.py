"""The API key authenticator: a role's own key proves the role; at login its password does too.

Note [Alike]. A client can't tell an unknown role from a wrong key: the answers are alike, and so is the work (FAIL-18).
Each request asks the store one question, opens one sealed key, a decoy where the role has none, and compares it. At a
login, evidence that isn't the key and can be a user's password is also compared with one hash: the user's, or a decoy. To
have it explained is the same work, done by the same code.
"""

from __future__ import annotations

from typing import Final

import attrs

from svc.authn.evaluation import FactCheck, Objection, explain_steps, first_objection
from svc.crypto.passwords import Passwords, can_be_password
from svc.crypto.vault import Decoy, Vault, api_key_name, password_name
from svc.model.authentication import (
    Admitted,
    ExplainedRefusal,
    Explanation,
    ExplanationRequest,
    LoginRequest,
    Refused,
)
from svc.model.clocks import WallClock, iso_seconds
from svc.model.credentials import API_KEY_ANNOTATION, Credential, is_same_key, new_api_key
from svc.model.errors import InvalidName, PasswordsBusy, WrongDataKey
from svc.model.names import RoleName
from svc.model.query_results import Sealed, is_within
from svc.model.reasons import Reason
from svc.model.text import quote_text
from svc.storage.credentials import CredentialStore


@attrs.frozen
class _KeyFacts:
    """The findings about a login of ``role``.

    ``readable``: what is stored opens under the data key. ``is_key`` and ``is_password``: what the evidence is found to be.
    """

    role: RoleName
    credential: Credential
    readable: bool
    is_key: bool
    now: float
    address: str
    is_password: bool = False


def _evidence_problem(facts: _KeyFacts) -> Objection | None:
    if facts.is_key or facts.is_password:
        return None
    return Reason.CREDENTIALS_WRONG, "the evidence is not the role's API key, nor, at a login, its password"


def _missing_entry_problem(facts: _KeyFacts) -> Objection | None:
    """Return why a user whose directory has no usable entry any more is refused (LDAP-22); ``None`` for others."""
    missing_from = facts.credential.missing_from
    return (Reason.LDAP_ENTRY_GONE, missing_entry_detail(missing_from)) if missing_from else None


def missing_entry_detail(webservice: str) -> str:
    """Return the words for a user without a usable entry in the directory of an LDAP authenticator."""
    return f"the directory of {quote_text(webservice)} has no usable entry of the user any more"


def _expiry_problem(facts: _KeyFacts) -> Objection | None:
    return (Reason.CREDENTIALS_EXPIRED, "the role's API key has expired") if _is_expired(facts) else None


def _is_expired(facts: _KeyFacts) -> bool:
    return facts.credential.is_expired(facts.now)


def _origin_problem(facts: _KeyFacts) -> Objection | None:
    """Return why the role may not authenticate from this address; ``None`` when it may (TOK-20)."""
    networks = facts.credential.restrictions
    if not networks or is_within(facts.address, networks):
        return None
    among = ", ".join(map(str, networks[:10]))
    return Reason.ORIGIN_REFUSED, f"the request comes from {quote_text(facts.address)}; the role is restricted to {among}"


def _describe_expiry(facts: _KeyFacts) -> str:
    ends = facts.credential.expires_at
    return "it does not expire" if ends is None else f"it expires at {iso_seconds(ends)}"


def _describe_origin(facts: _KeyFacts) -> str:
    if not facts.credential.restrictions:
        return "the role is not restricted to networks"
    return f"{quote_text(facts.address)} is in a network that the role is restricted to"


#: The sentence about a role that has no API key by policy (TOK-52).
API_KEY_OFF: Final = f"the role's annotation {API_KEY_ANNOTATION} is false: it has no API key, and logs in otherwise"

#: The checks in the order in which failures count (TOK-6).
_ACCOUNT: Final = FactCheck[_KeyFacts](
    "account",
    lambda f: None if f.credential.account_exists else (Reason.ACCOUNT_UNKNOWN, "the account does not exist"),
    lambda f: f"the account {quote_text(f.role.account)} exists",
)
_ROLE: Final = FactCheck[_KeyFacts](
    "role",
    lambda f: None if f.credential.role_exists else (Reason.ROLE_UNKNOWN, "the role does not exist"),
    lambda f: f"there is the role {quote_text(str(f.role))}",
)
_ALLOWED: Final = FactCheck[_KeyFacts](
    "annotation",
    lambda f: (Reason.API_KEY_OFF, API_KEY_OFF) if f.credential.api_key_off else None,
    lambda _: f"no annotation {API_KEY_ANNOTATION} says that the role has no API key",
)
_STORED: Final = FactCheck[_KeyFacts](
    "api-key",
    lambda f: (Reason.CREDENTIALS_MISSING, "the role has no API key") if f.credential.api_key is None else None,
    lambda _: "the role has an API key",
)
_READABLE: Final = FactCheck[_KeyFacts](
    "data-key",
    lambda f: None if f.readable else (Reason.CREDENTIALS_UNREADABLE, "what is stored doesn't open under the data key"),
    lambda _: "what is stored opens under the data key",
)
_EVIDENCE: Final = FactCheck[_KeyFacts](
    "credentials",
    _evidence_problem,
    lambda f: f"the evidence is the {'user' if f.is_password else 'role'}'s {'password' if f.is_password else 'API key'}",
    of_evidence=True,
)
_ENTRY: Final = FactCheck[_KeyFacts](
    "entry", _missing_entry_problem, lambda _: "no directory is known to have lost the entry of the role"
)
_EXPIRY: Final = FactCheck[_KeyFacts]("expiry", _expiry_problem, _describe_expiry)
_ORIGIN: Final = FactCheck[_KeyFacts]("origin", _origin_problem, _describe_origin)
_SIGNING_KEY: Final = FactCheck[_KeyFacts](
    "signing-key",
    lambda f: (Reason.SIGNING_KEY_UNUSABLE, "the account has no signing key") if f.credential.signing_key is None else None,
    lambda _: "the account has a key to sign access tokens with",
)
_PROOF: Final = (_ACCOUNT, _ROLE, _ALLOWED, _READABLE, _STORED, _EVIDENCE, _ENTRY)
_LOGIN: Final = (*_PROOF, _EXPIRY)
_ALL: Final = (*_LOGIN, _ORIGIN, _SIGNING_KEY)


class ApiKeyAuthenticator:
    """Admits a user or host whose API key is the evidence, byte for byte (TOK-2 and TOK-4)."""

    def __init__(self, credentials: CredentialStore, vault: Vault, passwords: Passwords, wall: WallClock) -> None:
        self._credentials = credentials
        self._vault = vault
        self._passwords = passwords
        self._wall = wall
        self._decoy = Decoy(vault, new_api_key().encode("ascii"))

    async def authenticate(self, request: LoginRequest) -> Admitted | Refused:
        """Decide on one request. The client's address is checked last (TOK-6)."""
        facts = await self._gather_key_facts(request, request.client_ip)
        if isinstance(facts, Refused):
            return facts
        credential = facts.credential
        objection = first_objection(_ALL, facts)
        if objection is not None:
            return Refused.for_reason(*objection, str(facts.role), known=credential.role_exists)
        assert credential.signing_key is not None
        return Admitted(facts.role, credential.signing_key, credential.creation, credential.epoch, credential.version)

    async def api_key(self, request: LoginRequest) -> bytes | Refused:
        """Return the role's API key when that, or the role's password, is the evidence; from any address.

        :raises PasswordsBusy: too many passwords wait to be compared.
        """
        facts = await self._gather_all_facts(request, request.client_ip)
        if isinstance(facts, Refused):
            return facts
        # A password gets even an expired key: authentication with that is refused.
        objection = first_objection(_PROOF if facts.is_password else _LOGIN, facts)
        if objection is not None:
            return Refused(*objection, str(facts.role), known=facts.credential.role_exists)
        if facts.is_key:
            return request.evidence
        assert facts.credential.api_key is not None
        return self._vault.open(api_key_name(facts.role), facts.credential.api_key)

    async def explain(self, request: ExplanationRequest) -> Explanation | Refused:
        """Decide as a login by key or password, and what follows it, are decided, and explain it (REF-12).

        :raises PasswordsBusy: too many passwords wait to be compared.
        """
        facts = await (self._gather_all_facts if request.tried else self._gather_key_facts)(request, request.address)
        if isinstance(facts, Refused):
            return facts
        steps, role = explain_steps(_ALL, facts, tried=request.tried), str(facts.role)
        objection = first_objection(_ALL, facts, tried=request.tried)
        if objection is None:
            return Explanation(steps, role, True if request.tried else None)
        return ExplainedRefusal(*objection, role, known=facts.credential.role_exists, steps=steps)

    async def _gather_all_facts(self, request: LoginRequest, address: str) -> _KeyFacts | Refused:
        """Return the findings about evidence that may be a password, too.

        :raises PasswordsBusy: too many passwords wait to be compared.
        """
        # Nothing that a role has or lacks decides about the work of hashing (Note [Alike]).
        may_be_password = can_be_password(request.evidence)
        if may_be_password:
            # Before the query to the store: a storm of passwords is to cost others little.
            await self._passwords.wait_for_room()
        facts = await self._gather_key_facts(request, address)
        if isinstance(facts, Refused) or facts.is_key or not may_be_password or facts.role.kind != "user":
            return facts
        try:
            proven = await self._is_password(facts.role, facts.credential.password, request.evidence)
        except WrongDataKey:
            return attrs.evolve(facts, readable=False)
        return attrs.evolve(facts, is_password=proven)

    async def _gather_key_facts(self, request: LoginRequest, address: str) -> _KeyFacts | Refused:
        """Return the findings about the role that would be proven, and evidence that may be its key (Note [Alike])."""
        try:
            role = RoleName.from_login(request.account, request.login or "")
        except InvalidName as refusal:
            return Refused(Reason.REQUEST_MALFORMED, str(refusal))
        credential = await self._credentials.read_credential(role)
        stored, readable = credential.api_key, True
        try:
            key = self._decoy.open() if stored is None else self._vault.open(api_key_name(role), stored)
        except WrongDataKey:
            key, readable = b"", False
        is_key = is_same_key(key, request.evidence) and stored is not None and readable
        return _KeyFacts(role, credential, readable, is_key, self._wall.seconds(), address)

    async def _is_password(self, role: RoleName, sealed: Sealed | None, evidence: bytes) -> bool:
        """Return whether the evidence is the role's password, of which ``sealed`` has the hash."""
        hashed = None if sealed is None else self._vault.open(password_name(role), sealed)
        if not await self._passwords.verify_password(hashed, evidence):
            return False
        if sealed is not None and hashed is not None and self._passwords.is_outdated(hashed):
            await self._rehash_password(role, sealed, evidence)
        return True

    async def _rehash_password(self, role: RoleName, sealed: Sealed, password: bytes) -> None:
        """Hash a proven password again, at today's cost, unless it was changed meanwhile, or this can't be done now."""
        try:
            renewed = self._vault.seal(password_name(role), await self._passwords.hash_password(password))
        except PasswordsBusy:
            return
        self._credentials.renew_password(role, renewed, sealed)

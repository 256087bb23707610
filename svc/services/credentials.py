"""The use cases of credentials: passwords are changed, and API keys rotated (TOK-9, TOK-14).

Note [Strength]. An access token lasts for minutes, and may have been stolen: it may not be turned into a key that lasts. So
one's own credentials are changed only with a password or API key. Others' API keys are rotated only with a token, by a role
that has ``update`` on them; an API key that is found in a log rotates nobody else's.

Note [The key that is gone]. An API key that replaces itself proves nothing afterwards, so a lost answer would lock its role
out. A request that presents the replaced key, with the ``Idempotency-Key`` by which it was replaced, gets the new one, as
long as that one would be admitted now. It is refused first, and counted as a failure, like every key that proves nothing;
then the new key is looked up, whether the role exists or not. The old key is identified by its digest, from which nobody can
guess its 256 random bits. For a password no digest is kept there.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
from twisted.logger import Logger

from svc.crypto.passwords import Passwords, can_be_password, demand_password
from svc.crypto.vault import Vault, api_key_name, password_name
from svc.model.authentication import LoginRequest
from svc.model.authorization import require_privilege, require_visible
from svc.model.credentials import new_api_key
from svc.model.errors import (
    AuthenticationRefused,
    CredentialImpossible,
    CredentialInsufficient,
    CredentialUnknown,
    Forbidden,
    InvalidName,
    RecordNotFound,
)
from svc.model.idempotency import AlreadyAnswered, RequestKey, digest_secret
from svc.model.names import ACTOR_KINDS, RoleName
from svc.model.query_results import Caller
from svc.model.reasons import Reason, RefusalKind
from svc.services.idempotency import make_once, open_answer
from svc.services.invocation import Recorder, printable_facts
from svc.services.login import ApiKeyService
from svc.storage.credentials import CredentialStore
from svc.storage.idempotency import IdempotencyStore
from svc.storage.roles import RoleStore

_log = Logger()

#: Returns the role that a request names, ``None`` where it names none, and refuses what is no role's name. It is called
#: after the caller is authenticated.
Named = Callable[[], RoleName | None]


@attrs.frozen
class ApiKeyRotation:
    """When the API key of a role was last rotated, in seconds since the epoch; ``None`` when it never was."""

    role: RoleName
    at: float | None


@attrs.frozen
class CredentialService:
    """The use cases of passwords and API keys. A caller without an access token is authenticated by ``login``."""

    login: ApiKeyService
    store: CredentialStore
    roles: RoleStore
    vault: Vault
    passwords: Passwords
    answers: IdempotencyStore

    async def change_password(
        self, caller: Caller | LoginRequest, named: Named, password: bytes, client_ip: str, recorder: Recorder
    ) -> None:
        """Replace the caller's password. Access tokens, and the API key, stay as they are.

        :raises AuthenticationRefused: nobody is proven, or another role is named.
        :raises CredentialInsufficient: an access token proves the caller.
        :raises Forbidden: the token's role is gone, or the caller is none that can have a password.
        :raises InvalidParameter: the password is none that may be chosen.
        :raises PasswordsBusy: too many passwords wait to be hashed.
        """
        if isinstance(caller, Caller):
            if not await self.roles.caller_exists(caller):
                raise Forbidden("the token's role no longer exists")
            if named() in {None, caller.role}:
                raise CredentialInsufficient
            raise AuthenticationRefused(Reason.CREDENTIALS_WRONG)
        user = await self._authenticate_request(caller, recorder)
        if named() not in {None, user}:
            raise AuthenticationRefused(Reason.CREDENTIALS_WRONG)
        if user.kind != "user":
            raise Forbidden(f"{user} can have no password: users have one")
        sealed = self.vault.seal(password_name(user), await self.passwords.hash_password(demand_password(password)))
        if not await self.store.set_password(user, sealed, trail=recorder.event_batch):
            raise AuthenticationRefused(Reason.ROLE_UNKNOWN)  # it was deleted in between
        _log.info("{role} changed its password, from {client_ip}", **printable_facts(role=user, client_ip=client_ip))

    async def rotate_api_key(
        self,
        caller: Caller | LoginRequest,
        named: Named,
        client_ip: str,
        recorder: Recorder,
        request: RequestKey | None = None,
    ) -> str:
        """Replace the API key of the caller, or of the named role, and return the new one; raises what ``read_rotation``
        does.

        With ``request`` it is replaced once.

        :raises CredentialImpossible: also where the role has no API key by policy (TOK-54).
        """
        try:
            proven = await self._identify_caller(caller, recorder)
        except AuthenticationRefused as refusal:
            # The new key is looked up only now: for an address that fails too often there are no look-ups (TOK-22).
            if refusal.kind is not RefusalKind.UNPROVEN or request is None or not isinstance(caller, LoginRequest):
                raise
            if (lost := await self._find_lost_key(caller, named, request)) is None:
                raise
            await self._authenticate_request(attrs.evolve(caller, evidence=lost.encode("ascii")), recorder)
            recorder.add_audit_facts(repeated=True)
            return lost
        role = await self._find_changeable_role(caller, proven, named, recorder)
        credential = await self.store.read_credential(role)
        if credential.api_key_off:
            raise CredentialImpossible(str(role), by_policy=True)
        api_key = new_api_key()
        sealed = self.vault.seal(api_key_name(role), api_key.encode("ascii"))
        whose = caller if isinstance(caller, Caller) else _key_caller(caller, proven) or f"{proven} {credential.creation}"
        repeatable = make_once(self.vault, request, whose, api_key)
        try:
            await self.store.set_api_key(role, sealed, recorder.event_batch, repeatable)
        except AlreadyAnswered as before:
            recorder.add_audit_facts(repeated=True)
            return str(open_answer(self.vault, before))
        except RecordNotFound:  # it was deleted in between
            raise CredentialUnknown(str(role)) from None
        facts = printable_facts(caller=proven, role=role, client_ip=client_ip)
        _log.info("{caller} rotated the API key of {role}, from {client_ip}", **facts)
        return api_key

    async def read_rotation(self, caller: Caller | LoginRequest, named: Named, recorder: Recorder) -> ApiKeyRotation:
        """Return when an API key was rotated that the caller may rotate.

        :raises AuthenticationRefused: nobody is proven, or by a key or password and for another role.
        :raises CredentialInsufficient: it is the caller's own, and a token proves the caller.
        :raises CredentialUnknown: there is no such role, or the caller doesn't see it.
        :raises CredentialImpossible: the role can have no API key, though the caller could change one.
        :raises Forbidden: the caller sees the role, and lacks ``update`` on it.
        """
        role = await self._find_changeable_role(caller, await self._identify_caller(caller, recorder), named, recorder)
        return ApiKeyRotation(role, await self.store.read_rotation_time(role))

    async def _identify_caller(self, caller: Caller | LoginRequest, recorder: Recorder) -> RoleName:
        return caller.role if isinstance(caller, Caller) else await self._authenticate_request(caller, recorder)

    async def _find_changeable_role(
        self, caller: Caller | LoginRequest, proven: RoleName, named: Named, recorder: Recorder
    ) -> RoleName:
        """Return the role whose API key a caller may change, given the role that is ``proven`` (Note [Strength])."""
        by_token = isinstance(caller, Caller)
        role = named() or proven
        recorder.add_audit_facts(target=str(role))
        if role == proven and not by_token:
            return role
        access_facts = await self.roles.access_facts(caller if isinstance(caller, Caller) else proven, role.resource)
        try:
            require_visible(access_facts, role.resource)
        except RecordNotFound as missing:
            if role == proven:
                raise CredentialInsufficient from None
            raise CredentialUnknown(str(role), missing.hidden) from None
        if role == proven:
            raise CredentialInsufficient
        if not by_token:
            raise AuthenticationRefused(Reason.CREDENTIALS_WRONG)
        require_privilege(access_facts, "update", role.resource)
        if role.kind not in ACTOR_KINDS:
            raise CredentialImpossible(str(role))
        return role

    async def _find_lost_key(self, caller: LoginRequest, named: Named, request: RequestKey) -> str | None:
        """Return the API key that replaced this one by this very request (Note [The key that is gone])."""
        try:
            role = RoleName.from_login(caller.account, caller.login or "")
        except InvalidName:
            return None
        if (whose := _key_caller(caller, role)) is None:
            return None
        own = request.for_caller(whose)
        kept = await self.answers.read_answer(own)
        if kept is None or kept.request != own.request_digest or named() not in {None, role}:
            return None
        return str(open_answer(self.vault, AlreadyAnswered(own, kept)))

    async def _authenticate_request(self, request: LoginRequest, recorder: Recorder) -> RoleName:
        await self.login.read_api_key(request, recorder)
        return RoleName.from_login(request.account, request.login or "")


def _key_caller(caller: LoginRequest, role: RoleName) -> str | None:
    """Return the caller of a key whom an API key proves; ``None`` where it is a password, whose digest could be guessed."""
    return None if can_be_password(caller.evidence) else f"{role} key {digest_secret(caller.evidence)}"

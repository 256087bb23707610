"""The use cases of credentials: a user changes his password, and API keys are rotated (TOK-9, TOK-14).

Note [Strength]. An access token lasts for minutes, and may have been stolen: it may not be turned into a key that lasts. So
one's own credentials are changed with a password or API key alone. Others' API keys are rotated with a token alone, by who
has ``update`` on them; an API key that is found in a log rotates nobody else's.

Note [Read late]. A caller is known here by an access token, or says who he is in a ``LoginRequest`` and is to be proven. The
role that he asks for is a function, which is called once he is: it returns ``None`` where he names none, and refuses what
is no role's name.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
from twisted.logger import Logger

from svc.crypto.passwords import Passwords, demand_password
from svc.crypto.vault import Vault, api_key_name, password_name
from svc.model.authentication import LoginRequest
from svc.model.authorization import require, require_visible
from svc.model.credentials import ICredentials, new_api_key
from svc.model.errors import (
    AuthenticationRefused,
    CredentialImpossible,
    CredentialInsufficient,
    CredentialUnknown,
    Forbidden,
    RecordNotFound,
)
from svc.model.names import ACTOR_KINDS, RoleName
from svc.model.ports import IRoles
from svc.model.query_results import Caller
from svc.model.reasons import Reason
from svc.model.text import printable
from svc.services.invocation import Recorder
from svc.services.login import ApiKeyService

_log = Logger()

#: The role that a caller asks for (Note [Read late]).
Named = Callable[[], RoleName | None]


@attrs.frozen
class ApiKeyRotation:
    """When the API key of a role was last rotated, in seconds since the epoch; ``None`` when it never was."""

    role: RoleName
    at: float | None


@attrs.frozen
class CredentialService:
    """Passwords and API keys. ``login`` decides who is proven, as it does at a login."""

    login: ApiKeyService
    store: ICredentials
    roles: IRoles
    vault: Vault
    passwords: Passwords

    async def change_password(
        self, caller: Caller | LoginRequest, named: Named, password: bytes, client_ip: str, recorder: Recorder
    ) -> None:
        """Give the caller another password. Access tokens, and the API key, stay as they are.

        :raises AuthenticationRefused: nobody is proven, or another role is named.
        :raises CredentialInsufficient: an access token proves the caller.
        :raises Forbidden: the token's role is gone, or the caller is none that can have a password.
        :raises InvalidParameter: the password is none that may be chosen.
        :raises PasswordsBusy: too many passwords wait to be hashed.
        """
        if isinstance(caller, Caller):
            if not await self.roles.remains(caller):
                raise Forbidden("the token's role no longer exists")
            if named() in {None, caller.role}:
                raise CredentialInsufficient
            raise AuthenticationRefused(Reason.CREDENTIALS_WRONG)
        user = await self._proven(caller, recorder)
        if named() not in {None, user}:
            raise AuthenticationRefused(Reason.CREDENTIALS_WRONG)
        if user.kind != "user":
            raise Forbidden(f"{user} can have no password: users have one")
        hashed = await self.passwords.hashed(demand_password(password))
        sealed = self.vault.seal(password_name(user), hashed)
        if not await self.store.set_password(user, sealed, trail=recorder.trail):
            # It was deleted in between.
            raise AuthenticationRefused(Reason.ROLE_UNKNOWN)
        _log.info("{role} changed its password, from {client_ip}", role=printable(str(user)), client_ip=printable(client_ip))

    async def rotate_api_key(self, caller: Caller | LoginRequest, named: Named, client_ip: str, recorder: Recorder) -> str:
        """Give the caller, or the role that he names, another API key, and return it; the old one proves nothing any more.

        It raises what ``rotation`` does.
        """
        proven, role = await self._changeable(caller, named, recorder)
        api_key = new_api_key()
        sealed = self.vault.seal(api_key_name(role), api_key.encode("ascii"))
        try:
            await self.store.set_api_key(role, sealed, recorder.trail)
        except RecordNotFound:
            # It was deleted in between.
            raise CredentialUnknown(str(role)) from None
        _log.info(
            "{caller} rotated the API key of {role}, from {client_ip}",
            caller=printable(str(proven)),
            role=printable(str(role)),
            client_ip=printable(client_ip),
        )
        return api_key

    async def rotation(self, caller: Caller | LoginRequest, named: Named, recorder: Recorder) -> ApiKeyRotation:
        """Return when an API key was rotated that the caller may rotate.

        :raises AuthenticationRefused: nobody is proven, or by his own key or password and for another role.
        :raises CredentialInsufficient: it is the caller's own, and a token proves him.
        :raises CredentialUnknown: there is no such role, or the caller doesn't see it.
        :raises CredentialImpossible: the role can have no API key, though the caller could change one.
        :raises Forbidden: the caller sees the role, and lacks ``update`` on it.
        """
        _, role = await self._changeable(caller, named, recorder)
        return ApiKeyRotation(role, await self.store.rotated_at(role))

    async def _changeable(
        self, caller: Caller | LoginRequest, named: Named, recorder: Recorder
    ) -> tuple[RoleName, RoleName]:
        """Return the caller's role, and the role whose API key he may change (Note [Strength])."""
        by_token = isinstance(caller, Caller)
        proven = caller.role if isinstance(caller, Caller) else await self._proven(caller, recorder)
        role = named() or proven
        recorder.tell(target=str(role))
        if role == proven and not by_token:
            return proven, role
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
        require(access_facts, "update", role.resource)
        if role.kind not in ACTOR_KINDS:
            raise CredentialImpossible(str(role))
        return proven, role

    async def _proven(self, request: LoginRequest, recorder: Recorder) -> RoleName:
        """Return the role that a request proves."""
        await self.login.api_key(request, recorder)
        return RoleName.from_login(request.account, request.login or "")

"""Credentials over HTTP: a user changes his password, and API keys are rotated (wire facts, authn 1.4).

Note [Strength]. Whoever has an access token has it for minutes, perhaps because it was stolen: it may not be turned into a
key that lasts. So one's own credentials are changed with a password or API key alone, by HTTP Basic. Others' API keys are
rotated with a token alone, by who has ``update`` on them; an API key that is found in a log rotates nobody else's.
"""

from __future__ import annotations

import attrs
from twisted.logger import Logger

from svc.crypto.passwords import Passwords, demand_password
from svc.crypto.vault import Vault, api_key_name, password_name
from svc.model.authentication import ILogin, LoginRequest, Refused
from svc.model.authorization import demand, see
from svc.model.credentials import ICredentials, new_api_key
from svc.model.errors import (
    AuthenticationRefused,
    CredentialImpossible,
    CredentialInsufficient,
    CredentialUnknown,
    Forbidden,
    InvalidName,
    InvalidParameter,
    NotFound,
)
from svc.model.names import ACTOR_KINDS, ROLE_KINDS, RoleName
from svc.model.ports import IRoles
from svc.model.reasons import Reason
from svc.model.text import printable
from svc.web.http.basic import basic
from svc.web.http.response import Response
from svc.web.http.routing import OPTIONAL, Call, Routes
from svc.web.routes import auditing
from svc.web.routes.description import expiration

_log = Logger()


@attrs.frozen
class Credentials:
    """The routes of passwords and API keys. ``login`` decides who has proven himself, as it does at a login."""

    routes = Routes()

    login: ILogin
    store: ICredentials
    roles: IRoles
    vault: Vault
    passwords: Passwords

    @routes.add("PUT", "/authn/<flat:account>/password", caller=OPTIONAL, audit=auditing.password_changed)
    async def change_password(self, call: Call, account: str) -> Response:
        """Make the raw body the caller's password. Access tokens, and the API key, stay as they are."""
        if call.caller_if_any is not None:
            if not await self.roles.remains(call.caller):
                raise Forbidden("the token's role no longer exists")
            if _named(call, account) in {None, call.caller.role}:
                raise CredentialInsufficient
            raise AuthenticationRefused(Reason.CREDENTIALS_WRONG)
        user = await self._proven(call, account)
        if _named(call, account) not in {None, user}:
            raise AuthenticationRefused(Reason.CREDENTIALS_WRONG)
        if user.kind != "user":
            raise Forbidden(f"{user} can have no password: users have one")
        hashed = await self.passwords.hashed(demand_password(call.body))
        if not await self.store.set_password(user, self.vault.seal(password_name(user), hashed), trail=call.trail):
            # It was deleted in between.
            raise AuthenticationRefused(Reason.ROLE_UNKNOWN)
        _log.info(
            "{role} changed its password, from {client_ip}",
            role=printable(str(user)),
            client_ip=printable(call.client_ip),
        )
        return Response.empty()

    @routes.add("PUT", "/authn/<flat:account>/api_key", caller=OPTIONAL, audit=auditing.api_key_rotated)
    async def rotate_api_key(self, call: Call, account: str) -> Response:
        """Give the caller, or the role ``role``, another API key, and tell it; the old one proves nothing any more."""
        caller, role = await self._changeable(call, account)
        api_key = new_api_key()
        try:
            await self.store.set_api_key(role, self.vault.seal(api_key_name(role), api_key.encode("ascii")), call.trail)
        except NotFound:
            # It was deleted in between.
            raise CredentialUnknown(str(role)) from None
        _log.info(
            "{caller} rotated the API key of {role}, from {client_ip}",
            caller=printable(str(caller)),
            role=printable(str(role)),
            client_ip=printable(call.client_ip),
        )
        return Response.content(api_key.encode("ascii"), "text/plain; charset=utf-8")

    @routes.add("GET", "/authn/<flat:account>/api_key", caller=OPTIONAL, audit=auditing.rotation_asked)
    async def tell_rotation(self, call: Call, account: str) -> Response:
        """Tell when an API key was rotated, to whom may do that; an empty text when it never was."""
        _, role = await self._changeable(call, account)
        rotated_at = await self.store.rotated_at(role)
        return Response.json({"role": str(role), "timestamp": "" if rotated_at is None else expiration(rotated_at)})

    async def _changeable(self, call: Call, account: str) -> tuple[RoleName, RoleName]:
        """The caller, and the role whose API key he may change (Note [Strength]).

        :raises AuthenticationRefused: nobody is proven, or by Basic and for another role.
        :raises CredentialInsufficient: it is his own, and a token proves him.
        :raises CredentialUnknown: there is no such role, or the caller doesn't see it.
        :raises CredentialImpossible: the role can have no API key, though the caller could change one.
        :raises Forbidden: he sees the role, and lacks ``update`` on it.
        """
        by_token = call.caller_if_any is not None
        caller = call.caller.role if by_token else await self._proven(call, account)
        role = _named(call, account) or caller
        call.tell(target=str(role))
        if role == caller and not by_token:
            return caller, role
        standing = await self.roles.standing(call.caller if by_token else caller, role.resource)
        try:
            see(standing, role.resource)
        except NotFound as missing:
            if role == caller:
                raise CredentialInsufficient from None
            raise CredentialUnknown(str(role), missing.hidden) from None
        if role == caller:
            raise CredentialInsufficient
        if not by_token:
            raise AuthenticationRefused(Reason.CREDENTIALS_WRONG)
        demand(standing, "update", role.resource)
        if role.kind not in ACTOR_KINDS:
            raise CredentialImpossible(str(role))
        return caller, role

    async def _proven(self, call: Call, account: str) -> RoleName:
        """The role that HTTP Basic credentials prove."""
        name, password = basic(call.header("Authorization"))
        call.tell(login=name)
        told = await self.login.api_key(LoginRequest(account, name, password, call.client_ip))
        if isinstance(told, Refused):
            call.tell(role=told.role, unknown=told.reason is Reason.ROLE_UNKNOWN)
            raise AuthenticationRefused(told.reason, told.kind, told.retry_after)
        return RoleName.from_login(account, name)


def _named(call: Call, account: str) -> RoleName | None:
    """The role that the query names, ``kind:id`` or ``account:kind:id``; ``None`` when it names none.

    :raises InvalidParameter: it is no name.
    :raises CredentialUnknown: there are no roles of this kind.
    """
    text = call.query.text("role")
    if not text:
        return None
    first, colon, rest = text.partition(":")
    if not colon:
        raise InvalidParameter("role", "'role' has the form kind:id or account:kind:id")
    kind, inner, identifier = rest.partition(":")
    full = (first, kind, identifier) if inner and (kind in ROLE_KINDS or first not in ROLE_KINDS) else (account, first, rest)
    if full[1] not in ROLE_KINDS:
        raise CredentialUnknown(":".join(full))
    try:
        return RoleName.of(*full)
    except InvalidName as refusal:
        raise InvalidParameter("role", f"'role': {refusal.message}") from None

"""The use cases of logging in, and of checking access tokens. An authenticator's wrappers have logged its refusals."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
from twisted.logger import Logger

from svc.crypto.tokens import AccessTokens, AccountKeys
from svc.model.authentication import Admitted, Authenticate, LoginRequest, ReadApiKey, Refused, spread_retry_after
from svc.model.errors import AuthenticationRefused, Forbidden, InvalidName, RecordNotFound, WrongDataKey
from svc.model.names import check_account_name
from svc.model.query_results import Caller
from svc.model.reasons import Reason, RefusalKind
from svc.services.invocation import Recorder
from svc.storage.roles import RoleStore

_log = Logger()


@attrs.frozen
class LoginService:
    """Logins at one authenticator: evidence is exchanged for an access token. ``record_login`` is called when there is one.

    ``by_token``: the evidence is a third party's token, which names its role; elsewhere people type names.
    """

    decide: Authenticate
    tokens: AccessTokens
    record_login: Callable[[Admitted], object]
    by_token: bool = False

    async def authenticate(self, request: LoginRequest, recorder: Recorder) -> bytes:
        """Return an access token for the role that a request proves.

        :raises AuthenticationRefused: the authenticator refuses, or the account's signing key can't be used.
        """
        return await self.issue_token(await self.admit_request(request, recorder))

    async def admit_request(self, request: LoginRequest, recorder: Recorder) -> Admitted:
        """Return the role that a request proves; raises as ``authenticate`` does."""
        decision = await self.decide(request)
        if isinstance(decision, Refused):
            recorder.add_audit_facts(role=decision.role, unknown=decision.reason is Reason.ROLE_UNKNOWN)
            raise _make_refusal(decision, by_token=self.by_token)
        recorder.add_audit_facts(role=str(decision.role))
        return decision

    async def issue_token(self, admitted: Admitted, until: float = math.inf) -> bytes:
        """Return an access token for a role that was admitted, which expires at a moment at the latest; raises the same."""
        try:
            token = await self.tokens.issue_token(admitted, until)
        except WrongDataKey as refusal:
            role = str(admitted.role)
            _log.error("No access token for {role}: the signing key {name} doesn't open", role=role, name=refusal.name)
            raise AuthenticationRefused(Reason.SIGNING_KEY_UNUSABLE, RefusalKind.POSTPONED, spread_retry_after()) from None
        self.record_login(admitted)
        return token


@attrs.frozen
class ApiKeyService:
    """Logins at one authenticator: evidence is exchanged for the role's own API key."""

    decide: ReadApiKey

    async def read_api_key(self, request: LoginRequest, recorder: Recorder) -> bytes:
        """Return the API key of the role that a request proves.

        :raises AuthenticationRefused: it proves none.
        """
        recorder.add_audit_facts(login=request.login)
        result = await self.decide(request)
        if isinstance(result, Refused):
            recorder.add_audit_facts(role=result.role, unknown=result.reason is Reason.ROLE_UNKNOWN)
            raise _make_refusal(result)
        return result


@attrs.frozen
class AccessTokenService:
    """Checks of access tokens by others."""

    roles: RoleStore
    keys: AccountKeys

    async def check_caller(self, caller: Caller) -> None:
        """Refuse with ``Forbidden`` when the role of a verified access token is gone."""
        if not await self.roles.caller_exists(caller):
            raise Forbidden("the token's role no longer exists")

    async def list_public_keys(self, account: str) -> list[dict[str, str]]:
        """Return the keys that verify an account's access tokens now, as members of a JWK set (TOK-33).

        :raises NotFound: there is no such account.
        """
        try:
            keys = await self.keys.public_keys(check_account_name(account))
        except InvalidName:
            keys = []
        if not keys:
            raise RecordNotFound(account, "account", account)
        return keys


def _make_refusal(refused: Refused, *, by_token: bool = False) -> AuthenticationRefused:
    """Return a refusal to raise; a name that no role has may be a password in the wrong field, and isn't passed on."""
    detail = refused.detail if refused.known or by_token else ""
    return AuthenticationRefused(
        refused.reason, refused.kind, refused.retry_after, detail=detail, known_role=refused.known_role
    )

"""Revocation of access tokens before they expire: those of a role, or of all roles of an account (TOK-36 to TOK-38).

Note [Who may revoke]. Revocation only takes access away. So one's own tokens are revoked with an access token, even one that
may have been stolen: the thief loses it. Another role's tokens are revoked by a caller that may rotate its API key, by the
privilege ``update`` on it; those of an account by a caller that has ``update`` on its root policy, whose owner holds all
roles.
"""

from __future__ import annotations

import attrs
from twisted.logger import Logger

from svc.model.authorization import require_privilege
from svc.model.errors import CredentialImpossible, Forbidden, InvalidName, RecordNotFound
from svc.model.names import ACTOR_KINDS, RoleName, check_account_name, root_policy
from svc.model.query_results import Caller
from svc.services.credentials import Named
from svc.services.invocation import Invocation, printable_facts
from svc.storage.accounts import AccountStore
from svc.storage.credentials import CredentialStore
from svc.storage.roles import RoleStore

_log = Logger()


async def require_revocation(roles: RoleStore, caller: Caller, role: RoleName) -> None:
    """Return if a caller may revoke a role's access tokens and end its sessions (Note [Who may revoke]).

    :raises Forbidden: the caller's role is gone, or sees the other and lacks ``update`` on it.
    :raises NotFound: the role doesn't exist, or the caller may not see it.
    :raises CredentialImpossible: roles of its kind don't log in.
    """
    if role == caller.role:
        if not await roles.caller_exists(caller):
            raise Forbidden("the token's role no longer exists")
        return
    require_privilege(await roles.access_facts(caller, role.resource), "update", role.resource)
    if role.kind not in ACTOR_KINDS:
        raise CredentialImpossible(str(role))


@attrs.frozen
class RevocationService:
    """The use cases of revoking access tokens; sessions end with them."""

    roles: RoleStore
    credentials: CredentialStore
    accounts: AccountStore

    async def revoke_role_tokens(self, invocation: Invocation, named: Named) -> None:
        """Revoke all access tokens of the named role, or of the caller's; it raises what ``require_revocation`` does."""
        role = named() or invocation.caller.role
        invocation.recorder.add_audit_facts(target=str(role))
        await require_revocation(self.roles, invocation.caller, role)
        await self.credentials.revoke_tokens(role, invocation.recorder.event_batch)
        facts = printable_facts(caller=invocation.caller.role, role=role, client_ip=invocation.client_ip)
        _log.warn("{caller} revoked the access tokens of {role}, from {client_ip}", **facts)

    async def may_revoke(self, caller: Caller, role: RoleName) -> bool:
        """Return whether ``revoke_role_tokens`` would revoke the access tokens of a role for this caller."""
        try:
            await require_revocation(self.roles, caller, role)
        except (Forbidden, RecordNotFound, CredentialImpossible):
            return False
        return True

    async def revoke_account_tokens(self, invocation: Invocation, account: str) -> None:
        """Revoke the access tokens of all roles of an account.

        :raises Forbidden: the caller's role is gone, or sees the root policy and lacks ``update`` on it.
        :raises NotFound: the account doesn't exist, or the caller may not see it.
        """
        try:
            root = root_policy(check_account_name(account)).resource
        except InvalidName:
            raise RecordNotFound(account, "account", account) from None
        require_privilege(await self.roles.access_facts(invocation.caller, root), "update", root)
        await self.accounts.revoke_tokens(account, invocation.recorder.event_batch)
        facts = printable_facts(caller=invocation.caller.role, account=account, client_ip=invocation.client_ip)
        _log.warn("{caller} revoked all access tokens of the account {account}, from {client_ip}", **facts)

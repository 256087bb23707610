"""The use case of reading the effective policy (POL-75)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from svc.crypto.vault import Vault
from svc.model.dialect import Dialect
from svc.model.errors import InvalidParameter, RecordNotFound
from svc.model.names import RoleName, root_policy
from svc.model.policy_loads import EffectivePolicyRows, Excess
from svc.policy.effective_policy import build_statements, make_query
from svc.policy.statement_writer import Comment, Tagged
from svc.services.invocation import Invocation, can_read_all, require_inspection
from svc.storage.effective_policy import EffectivePolicyStore
from svc.storage.roles import RoleStore

#: The greatest limit, which is also the usual one (POL-81).
LIMIT_MOST: Final = 100_000


@attrs.frozen
class PolicyReading:
    """A policy as it stood at one moment: its statements, with pauses, and the version of its last load, 0 for none."""

    statements: Iterator[Tagged | Comment | None]
    version: int


@attrs.frozen
class EffectivePolicyService:
    """The use case of reading an effective policy."""

    store: EffectivePolicyStore
    roles: RoleStore
    vault: Vault
    dialect: Dialect
    clock: IReactorTime

    async def read_policy(
        self, invocation: Invocation, policy: RoleName, depth: int | None = None, limit: int = LIMIT_MOST
    ) -> PolicyReading:
        """Return the statements that declare a policy's records; parameters are as in ``EffectiveQuery``.

        :raises Forbidden: the caller sees the policy, and neither owns nor inspects it.
        :raises NotFound: there is no such policy, or the caller may not see it.
        :raises InvalidParameter: it holds more than the limit.
        """
        caller = invocation.caller
        await require_inspection(self.roles, caller, policy.resource)
        sees_all = policy == root_policy(policy.account) or await can_read_all(self.roles, caller)
        effective = await self.store.read_effective_policy(
            make_query(policy, depth, limit, None if sees_all else caller.role)
        )
        if effective is None:
            raise RecordNotFound.for_name(policy)
        if isinstance(effective, Excess):
            raise _too_large(effective)
        statements = build_statements(policy, effective, await self._decrypt_public_keys(effective), self.dialect)
        return PolicyReading(statements, effective.version)

    async def _decrypt_public_keys(self, effective: EffectivePolicyRows) -> dict[str, str]:
        """Open the public keys."""
        opened = {}
        for step, (full, sealed) in enumerate(effective.public_keys.items(), 1):
            opened[full] = self.vault.open(full, sealed).decode("utf-8", "replace")
            if not step % 1000:  # lets other requests be served
                await deferLater(self.clock, 0)
        return opened


def _too_large(excess: Excess) -> InvalidParameter:
    if excess.unit == "objects":
        message = f"Policy max allowed 'limit' = {excess.limit} exceeded. Value for policy is: {excess.value}"
        return InvalidParameter("limit", message, "unprocessable_entity", "CONJ00164E")
    message = f"the policy is too large: its 'limit' is {excess.limit} {excess.unit}, and it has {excess.value}"
    return InvalidParameter("limit", message, "unprocessable_entity")

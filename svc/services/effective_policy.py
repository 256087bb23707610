"""The effective policy: what stands in a policy now, whoever recorded it (POL-75)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from svc.crypto.vault import Vault
from svc.model.authorization import require_ownership
from svc.model.errors import InvalidParameter, RecordNotFound
from svc.model.names import RoleName, root_policy
from svc.model.policy_rows import Effective, Excess
from svc.model.ports import IEffectivePolicies, IRoles
from svc.policy.effective import asked, statements
from svc.policy.writing import Tagged
from svc.services.invocation import Invocation

#: The greatest limit, which is also the usual one (POL-81).
LIMIT_MOST: Final = 100_000

#: How many public keys are opened before others get their turn.
_KEYS: Final = 1000


@attrs.frozen
class EffectivePolicyService:
    """What is asked of what policies hold."""

    store: IEffectivePolicies
    roles: IRoles
    vault: Vault
    clock: IReactorTime

    async def statements(
        self, invocation: Invocation, policy: RoleName, depth: int | None = None, limit: int = LIMIT_MOST
    ) -> Iterator[Tagged | None]:
        """Return the statements that declare what a policy holds, with pauses: see ``policy.effective``.

        :param depth: how many more slashes than the policy an id may have; ``None`` for any number.
        :param limit: how many resources, annotations and permissions there may be together.
        :raises Forbidden: the caller sees the policy and doesn't own it.
        :raises NotFound: there is no such policy, or as good as.
        :raises InvalidParameter: it holds more than the limit.
        """
        caller = invocation.caller
        require_ownership(await self.roles.access_facts(caller, policy.resource), policy.resource)
        root = root_policy(policy.account).resource
        sees_all = policy.resource == root or (await self.roles.access_facts(caller, root)).owns
        effective = await self.store.effective(asked(policy, depth, limit, None if sees_all else caller.role))
        if effective is None:
            raise RecordNotFound.of(policy)
        if isinstance(effective, Excess):
            raise _too_large(effective)
        return statements(policy, effective, await self._public_keys(effective))

    async def _public_keys(self, effective: Effective) -> dict[str, str]:
        """Open the public keys, and let others work meanwhile."""
        opened = {}
        for step, (full, sealed) in enumerate(effective.public_keys.items(), 1):
            opened[full] = self.vault.open(full, sealed).decode("utf-8", "replace")
            if not step % _KEYS:
                await deferLater(self.clock, 0)
        return opened


def _too_large(excess: Excess) -> InvalidParameter:
    if excess.unit == "objects":
        message = f"CONJ00164E Policy max allowed 'limit' = {excess.limit} exceeded. Value for policy is: {excess.value}"
    else:
        message = f"the policy is too large: its 'limit' is {excess.limit} {excess.unit}, and it has {excess.value}"
    return InvalidParameter("limit", message, "unprocessable_entity")

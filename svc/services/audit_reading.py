"""The use cases of reading the audit: the events that changed something, newest first (AUD-27).

Who owns the account's root policy, as its admin does, reads all of the account's events. Others read those of a resource or
role that they own. Nobody reads another account's.
"""

from __future__ import annotations

import attrs

from svc.model.authorization import require_ownership
from svc.model.errors import Forbidden, RecordNotFound
from svc.model.events import EventsQuery, IEvents, StoredEvent
from svc.model.names import ResourceName, root_policy
from svc.model.ports import IRoles
from svc.services.invocation import Invocation


@attrs.frozen
class AuditService:
    """Each use case lists events that ``query`` matches, of the caller's account alone."""

    events: IEvents
    roles: IRoles

    async def all_events(self, invocation: Invocation, query: EventsQuery) -> list[StoredEvent]:
        """List events of the whole account.

        :raises Forbidden: the caller doesn't own its root policy.
        """
        if not await self._reads_all(invocation):
            raise Forbidden("does not own the root policy, which the whole audit takes")
        return await self.events.listed(attrs.evolve(query, account=invocation.caller.role.account))

    async def events_of(
        self, invocation: Invocation, query: EventsQuery, name: ResourceName, parameter: str | None = None
    ) -> list[StoredEvent]:
        """List events about ``name``: those whose subject has it as ``parameter``, ``resource`` or ``role``, or as anything.

        :raises NotFound: it is of another account, or the caller may not know that it exists.
        :raises Forbidden: the caller owns neither it nor the root policy.
        """
        account = invocation.caller.role.account
        if name.account != account:
            raise RecordNotFound.of(name)
        if not await self._reads_all(invocation):
            require_ownership(await self.roles.access_facts(invocation.caller, name), name)
        query = attrs.evolve(query, account=account)
        if parameter is None:
            return await self.events.listed(attrs.evolve(query, about=str(name)))
        wanted = ("subject", parameter, str(name))
        if any(given[:2] == wanted[:2] and given != wanted for given in query.data):
            return []
        return await self.events.listed(attrs.evolve(query, data=tuple({*query.data, wanted})))

    async def _reads_all(self, invocation: Invocation) -> bool:
        caller = invocation.caller
        return (await self.roles.access_facts(caller, root_policy(caller.role.account).resource)).owns

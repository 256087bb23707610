"""The use cases of reading the audit: the events that changed something, newest first (AUD-27).

A role that owns or inspects the account's root policy, as its admin and auditors do, reads all of the account's events.
Others read those of a resource or role that they own or inspect. Nobody reads another account's.
"""

from __future__ import annotations

import attrs

from svc.model.errors import Forbidden, RecordNotFound
from svc.model.events import EventsQuery, StoredEvent
from svc.model.names import ResourceName
from svc.services.invocation import Invocation, can_read_all, require_inspection
from svc.storage.events import EventStore
from svc.storage.roles import RoleStore


@attrs.frozen
class AuditService:
    """Each use case lists events that ``query`` matches, of the caller's account alone."""

    events: EventStore
    roles: RoleStore

    async def list_all_events(self, invocation: Invocation, query: EventsQuery) -> list[StoredEvent]:
        """List events of the whole account.

        :raises Forbidden: the caller neither owns nor inspects its root policy.
        """
        if not await can_read_all(self.roles, invocation.caller):
            raise Forbidden("neither owns nor inspects the root policy, which the whole audit takes")
        return await self.events.list_events(attrs.evolve(query, account=invocation.caller.role.account))

    async def list_events_about(
        self, invocation: Invocation, query: EventsQuery, name: ResourceName, parameter: str | None = None
    ) -> list[StoredEvent]:
        """List events about ``name``: those whose subject has it as ``parameter``, ``resource`` or ``role``, or as anything.

        :raises NotFound: it is of another account, or the caller may not know that it exists.
        :raises Forbidden: the caller neither owns nor inspects it or the root policy.
        """
        account = invocation.caller.role.account
        if name.account != account:
            raise RecordNotFound.for_name(name)
        if not await can_read_all(self.roles, invocation.caller):
            await require_inspection(self.roles, invocation.caller, name)
        query = attrs.evolve(query, account=account)
        if parameter is None:
            return await self.events.list_events(attrs.evolve(query, about=str(name)))
        wanted = ("subject", parameter, str(name))
        if any(given[:2] == wanted[:2] and given != wanted for given in query.data):
            return []
        return await self.events.list_events(attrs.evolve(query, data=tuple({*query.data, wanted})))

"""Policies: the routes that load documents in their three modes, or rehearse it."""

from __future__ import annotations

from typing import Final

import attrs

from svc.model.authorization import demand
from svc.model.events import IEvents, IJournal, Origin, Outcome
from svc.model.names import RoleName
from svc.model.policy_rows import Load, LoadMode
from svc.model.ports import ILoads, IRoles
from svc.services.dry_run import rehearsing
from svc.services.policy_loads import PRIVILEGES
from svc.web.http.declarations import Body, BodySize
from svc.web.http.response import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.routes import auditing

#: How many events are read and recorded at once: what the reactor does within a few milliseconds, for others wait meanwhile.
EVENTS: Final = 100

_DOCUMENT: Final = Body("a policy document", ("application/x-yaml",), size=BodySize.POLICY)

_PATH: Final = "/policies/<flat:account>/policy/<tail:identifier>"


@attrs.frozen
class Policies:
    """The routes of policies (wire facts, core 1)."""

    routes = Routes()

    loads: ILoads
    roles: IRoles
    events: IEvents
    journal: IJournal

    @routes.add("POST", _PATH, caller=REQUIRED, body=_DOCUMENT, audit=auditing.policy_loaded)
    async def append(self, call: Call, account: str, identifier: str) -> Response:
        """Add what the document declares; change and delete nothing."""
        return await self._load(call, RoleName.of(account, "policy", identifier), LoadMode.APPEND)

    @routes.add("PATCH", _PATH, caller=REQUIRED, body=_DOCUMENT, audit=auditing.policy_loaded)
    async def update(self, call: Call, account: str, identifier: str) -> Response:
        """Add what the document declares, and change what is there to match; delete nothing."""
        return await self._load(call, RoleName.of(account, "policy", identifier), LoadMode.UPDATE)

    @routes.add("PUT", _PATH, caller=REQUIRED, body=_DOCUMENT, audit=auditing.policy_loaded)
    async def replace(self, call: Call, account: str, identifier: str) -> Response:
        """Make the policy what the document declares: add, change and delete."""
        return await self._load(call, RoleName.of(account, "policy", identifier), LoadMode.REPLACE)

    async def _load(self, call: Call, policy: RoleName, mode: LoadMode) -> Response:
        caller, rehearsed = call.caller, rehearsing(call.query)
        call.tell(rehearsed=rehearsed)
        # What a document costs to read is not spent on those who may not load it.
        demand(await self.roles.standing(caller, policy.resource), PRIVILEGES[mode], policy.resource)
        load = Load(policy, mode, caller, call.client_ip, call.body, rehearsed, call.origin)
        answer = await self.loads.load(load)
        await self._tell(call.origin, answer.audited)
        return Response.content(answer.json, "application/json", answer.status)

    async def _tell(self, origin: Origin, numbers: tuple[int, int]) -> None:
        """Have the journal take the events of the rows that a load changed; the database has them, by these numbers."""
        after, last = numbers
        while after < last:
            found = await self.events.after(after, last, origin, EVENTS)
            if not found:
                return
            await self.journal.take(origin, [event for _, event in found], Outcome())
            after = found[-1][0]

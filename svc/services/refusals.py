"""The use case of recent refusals, for those who read all of their account (REF-5)."""

from __future__ import annotations

import attrs

from svc.model.errors import Forbidden
from svc.model.refusals import IRefusals, RefusalGroup, RefusalsFound, RefusalsQuery
from svc.services.invocation import Invocation, can_read_all
from svc.storage.roles import RoleStore


@attrs.frozen
class RefusalService:
    """Recent refusals, of this server alone."""

    refusals: IRefusals
    roles: RoleStore

    async def list_recent(
        self,
        invocation: Invocation,
        request_id: str | None = None,
        before: int | None = None,
        limit: int = 100,
        *,
        sort: RefusalGroup | None = None,
    ) -> RefusalsFound:
        """Return refusals of the caller's account, the newest first; the other parameters are as in ``RefusalsQuery``.

        :raises Forbidden: the caller may not look at all of the account.
        """
        caller = invocation.caller
        if not await can_read_all(self.roles, caller):
            raise Forbidden("may not look at all of the account, which refusals take")
        return await self.refusals.find_recent(RefusalsQuery(caller.role.account, request_id, before, limit, sort))

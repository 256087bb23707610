"""Accounts over HTTP (wire facts, core 5)."""

from __future__ import annotations

import attrs

from svc.services.accounts import Accounts
from svc.web.http.parameters import Parameters
from svc.web.http.response import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.routes import auditing


@attrs.frozen
class AccountRoutes:
    """The routes of accounts."""

    routes = Routes()

    accounts: Accounts

    @routes.add("POST", "/accounts", caller=REQUIRED, audit=auditing.account_made)
    async def create(self, call: Call) -> Response:
        """Make the account ``id``, and return the API key of its admin; takes ``execute``."""
        account = await self.accounts.create(call.invocation, lambda: Parameters.of(call).text("id"))
        return Response.json({"id": account.name, "api_key": account.api_key}, 201)

    @routes.add("GET", "/accounts", caller=REQUIRED, audit=auditing.accounts_listed)
    async def list_names(self, call: Call) -> Response:
        """Return the names of all accounts, in order; takes ``read``."""
        return Response.json(await self.accounts.names(call.invocation))

    @routes.add("DELETE", "/accounts/<account>", caller=REQUIRED, audit=auditing.account_deleted)
    async def delete(self, call: Call, account: str) -> Response:
        """Delete an account with all that it holds; takes ``update``."""
        await self.accounts.delete(call.invocation, account)
        return Response.empty()

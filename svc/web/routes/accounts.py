"""Accounts over HTTP, for those whom the policy of the service's own account lets (wire facts, core 5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import attrs
from twisted.logger import Logger

from svc.audit.refusals import printable
from svc.crypto.jose import shown
from svc.crypto.keyring import AccountKeys
from svc.model.authorization import Allowed, use
from svc.model.credentials import new_api_key
from svc.model.errors import Conflict, Forbidden, InvalidName, InvalidParameter, NotFound
from svc.model.events import Trail
from svc.model.names import ACCOUNTS_WEBSERVICE, RESERVED_ACCOUNT, account_name
from svc.model.ports import IAccounts, IRoles
from svc.web.http.response import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.routes import auditing

#: What no name of an account may hold, of all that people try.
_APART: Final = " :/"

_log = Logger()


@attrs.frozen
class Accounts:
    """The routes of accounts. ``create`` makes one, whose admin has the API key.

    They take privileges on the webservice ``accounts`` of the account ``!``, which nobody has until that account is made on
    the command line.
    """

    routes = Routes()

    store: IAccounts
    roles: IRoles
    keys: AccountKeys
    create: Callable[[str, str, Trail | None], Awaitable[None]]

    @routes.add("POST", "/accounts", caller=REQUIRED, audit=auditing.account_made)
    async def make(self, call: Call) -> Response:
        """Make the account ``id``, and tell the API key of its admin; takes ``execute``."""
        await self._demand(call, "execute")
        asked = call.parameters.text("id")
        call.tell(account=asked or "-")
        account, api_key = _new_name(asked), new_api_key()
        await self.create(account, api_key, call.trail)
        _log_change(call, "made", account)
        return Response.json({"id": account, "api_key": api_key}, 201)

    @routes.add("GET", "/accounts", caller=REQUIRED, audit=auditing.accounts_listed)
    async def tell_all(self, call: Call) -> Response:
        """Tell the names of all accounts, in order; takes ``read``."""
        await self._demand(call, "read")
        return Response.json(await self.store.names())

    @routes.add("DELETE", "/accounts/<account>", caller=REQUIRED, audit=auditing.account_deleted)
    async def delete(self, call: Call, account: str) -> Response:
        """Delete an account with all that it holds; takes ``update``."""
        await self._demand(call, "update")
        if account == RESERVED_ACCOUNT:
            raise NotFound(account, "account", account)
        await self.store.delete(account, call.trail)
        # Its tokens die here at once, and on other servers within a round of health checks.
        self.keys.forget(account)
        _log_change(call, "deleted", account)
        return Response.empty()

    async def _demand(self, call: Call, privilege: str) -> None:
        """Return when the caller may; whoever may not is told no more than that."""
        if use(await self.roles.standing(call.caller, ACCOUNTS_WEBSERVICE), privilege) != Allowed():
            raise Forbidden(f"{call.caller.role} lacks {privilege} on {ACCOUNTS_WEBSERVICE}")


def _new_name(text: str | None) -> str:
    """The name for a new account.

    :raises InvalidParameter: it is missing, or none.
    :raises Conflict: it is the service's own.
    """
    if text is None:
        raise InvalidParameter("id", "id")
    try:
        account = account_name(text)
    except InvalidName as refusal:
        apart = "".join(char for char in _APART if char in text)
        message = f'account name "{shown(text)[1:-1]}" contains invalid characters ({apart})' if apart else refusal.message
        raise InvalidParameter("id", message) from None
    if account == RESERVED_ACCOUNT:
        raise Conflict("account", account, f'account "{account}" already exists')
    return account


def _log_change(call: Call, does: str, account: str) -> None:
    _log.info(
        "{role} {does} the account {account}", role=printable(str(call.caller.role)), does=does, account=printable(account)
    )

"""Accounts: made, listed and deleted by those whom the policy of the service's own account permits (NAME-20).

They take privileges on the webservice ``accounts`` of the account ``!``, which nobody has until that account is made on the
command line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import attrs
from twisted.logger import Logger

from svc.crypto.keyring import AccountKeys
from svc.model.authorization import Allowed, use
from svc.model.credentials import new_api_key
from svc.model.errors import Conflict, Forbidden, InvalidName, InvalidParameter, RecordNotFound
from svc.model.events import EventBatch
from svc.model.names import ACCOUNTS_WEBSERVICE, RESERVED_ACCOUNT, account_name
from svc.model.ports import IAccounts, IRoles
from svc.model.text import printable, shown
from svc.services.invocation import Invocation

#: What no name of an account may hold, of all that people try.
_APART: Final = " :/"

_log = Logger()


@attrs.frozen
class NewAccount:
    """An account that was made, and the API key of its admin."""

    name: str
    api_key: str = attrs.field(repr=False)


@attrs.frozen
class AccountService:
    """The use cases of accounts. ``make`` makes one, whose admin has the API key, and records the events."""

    store: IAccounts
    roles: IRoles
    keys: AccountKeys
    make: Callable[[str, str, EventBatch | None], Awaitable[None]]

    async def create(self, invocation: Invocation, name: Callable[[], str | None]) -> NewAccount:
        """Make an account; the caller needs ``execute``.

        :param name: returns the name, ``None`` when none was given; it is called once the caller has proved to be allowed.
        :raises Forbidden: the caller isn't.
        :raises InvalidParameter: the name is missing, or can't be one.
        :raises Conflict: the account exists.
        """
        await self._demand(invocation, "execute")
        asked = name()
        invocation.recorder.tell(account=asked or "-")
        account = NewAccount(_new_name(asked), new_api_key())
        await self.make(account.name, account.api_key, invocation.recorder.trail)
        _log_change(invocation, "made", account.name)
        return account

    async def names(self, invocation: Invocation) -> list[str]:
        """Return the names of all accounts, in order; the caller needs ``read``.

        :raises Forbidden: the caller lacks it.
        """
        await self._demand(invocation, "read")
        return await self.store.names()

    async def delete(self, invocation: Invocation, account: str) -> None:
        """Delete an account with all that it holds; the caller needs ``update``.

        Its tokens are refused here at once, and on other servers after their next round of health checks.

        :raises Forbidden: the caller lacks it.
        :raises NotFound: the account doesn't exist, or is the service's own.
        """
        await self._demand(invocation, "update")
        if account == RESERVED_ACCOUNT:
            raise RecordNotFound(account, "account", account)
        await self.store.delete(account, invocation.recorder.trail)
        self.keys.forget(account)
        _log_change(invocation, "deleted", account)

    async def _demand(self, invocation: Invocation, privilege: str) -> None:
        """Return when the caller has the privilege; one who hasn't is told no more than that."""
        caller = invocation.caller
        if use(await self.roles.access_facts(caller, ACCOUNTS_WEBSERVICE), privilege) != Allowed():
            raise Forbidden(f"{caller.role} lacks {privilege} on {ACCOUNTS_WEBSERVICE}")


def _new_name(text: str | None) -> str:
    """Return the name for a new account.

    :raises InvalidParameter: it is missing, or can't be one.
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


def _log_change(invocation: Invocation, does: str, account: str) -> None:
    role = printable(str(invocation.caller.role))
    _log.info("{role} {does} the account {account}", role=role, does=does, account=printable(account))

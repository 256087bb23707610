"""Accounts: made, listed and deleted by roles that the policy of the service's own account permits (NAME-20).

They require privileges on the webservice ``accounts`` of the account ``!``, which nobody has until that account is made on
the command line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
from twisted.logger import Logger

from svc.crypto.tokens import SigningKeys
from svc.crypto.vault import Vault
from svc.model.authorization import Allowed, decide_privilege
from svc.model.credentials import new_api_key
from svc.model.errors import Conflict, Forbidden, InvalidName, InvalidParameter, RecordNotFound
from svc.model.events import EventBatch
from svc.model.idempotency import AlreadyAnswered, Once, RequestKey
from svc.model.names import ACCOUNTS_WEBSERVICE, RESERVED_ACCOUNT, check_account_name
from svc.model.text import quote_text
from svc.services.idempotency import make_once, open_answer
from svc.services.invocation import Invocation, printable_facts
from svc.storage.accounts import AccountStore
from svc.storage.roles import RoleStore

_log = Logger()


@attrs.frozen
class NewAccount:
    """An account that was made, and the API key of its admin."""

    name: str
    api_key: str = attrs.field(repr=False)


@attrs.frozen
class AccountService:
    """The use cases of accounts. ``make`` makes an account of a name, with its admin's API key, and records the events.

    :raises Forbidden: by all methods: the caller lacks the privilege.
    """

    store: AccountStore
    roles: RoleStore
    keys: SigningKeys
    make: Callable[[str, str, EventBatch | None, Once[None] | None], Awaitable[None]]
    vault: Vault

    async def create_account(
        self, invocation: Invocation, name: Callable[[], str | None], request: RequestKey | None = None
    ) -> NewAccount:
        """Make an account, with ``request`` once; the caller needs ``execute``.

        :param name: returns the name, ``None`` when none was given; it is called only after the caller's privilege is
            checked.
        :raises InvalidParameter: the name is missing, or can't be one.
        :raises Conflict: the account exists, or is the service's own.
        """
        await self._require_privilege(invocation, "execute")
        asked = name()
        invocation.recorder.add_audit_facts(account=asked or "-")
        account = NewAccount(_parse_new_name(asked), new_api_key())
        repeatable = make_once(self.vault, request, invocation.caller, account.api_key)
        try:
            await self.make(account.name, account.api_key, invocation.recorder.event_batch, repeatable)
        except AlreadyAnswered as before:
            invocation.recorder.add_audit_facts(repeated=True)
            return NewAccount(account.name, open_answer(self.vault, before))
        facts = printable_facts(role=invocation.caller.role, does="made", account=account.name)
        _log.info("{role} {does} the account {account}", **facts)
        return account

    async def list_accounts(self, invocation: Invocation) -> list[str]:
        """Return the names of all accounts, in order; the caller needs ``read``."""
        await self._require_privilege(invocation, "read")
        return await self.store.list_accounts()

    async def delete_account(self, invocation: Invocation, account: str) -> None:
        """Delete an account with all that it holds; the caller needs ``update``.

        Its tokens are refused here at once, and on other servers after their next round of health checks.

        :raises NotFound: the account doesn't exist, or is the service's own.
        """
        await self._require_privilege(invocation, "update")
        if account == RESERVED_ACCOUNT:
            raise RecordNotFound(account, "account", account)
        await self.store.delete_account(account, invocation.recorder.event_batch)
        self.keys.drop_account(account)
        facts = printable_facts(role=invocation.caller.role, does="deleted", account=account)
        _log.info("{role} {does} the account {account}", **facts)

    async def _require_privilege(self, invocation: Invocation, privilege: str) -> None:
        caller = invocation.caller
        if decide_privilege(await self.roles.access_facts(caller, ACCOUNTS_WEBSERVICE), privilege) != Allowed():
            raise Forbidden(f"{caller.role} lacks {privilege} on {ACCOUNTS_WEBSERVICE}")


def _parse_new_name(text: str | None) -> str:
    if text is None:
        raise InvalidParameter("id", "id")
    try:
        account = check_account_name(text)
    except InvalidName as refusal:
        apart = "".join(char for char in " :/" if char in text)
        message = (
            f'account name "{quote_text(text)[1:-1]}" contains invalid characters ({apart})' if apart else refusal.message
        )
        raise InvalidParameter("id", message) from None
    if account == RESERVED_ACCOUNT:
        raise Conflict("account", account, f'account "{account}" already exists')
    return account

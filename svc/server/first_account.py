"""The account that the settings name, made at a server's start, and the dialect of what is there already."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable

from twisted.logger import Logger

from svc.model.dialect import CONJUR, NATIVE, Dialect
from svc.model.errors import StoreUnavailable
from svc.model.text import escape_unprintable
from svc.server.authenticator_list import report_unlisted
from svc.server.foundation import Foundation
from svc.server.lifecycle import do_nothing
from svc.storage.authenticators import AuthenticatorStore

#: Log records keep the name that they had, until 2.0.
log = Logger("svc.server.duties")


async def prepare_account(base: Foundation, show_admin_key: Callable[[str], bool] | None) -> Callable[[], Awaitable[None]]:
    """Make the account that the settings name, and warn where policy doesn't fit the dialect.

    Return what to call when the operator knows that the server is ready: then the key isn't shown again.
    """
    announced: Callable[[], Awaitable[None]] = do_nothing
    if await make_account(base, show_admin_key) and (account := base.settings.account) is not None:
        announced = functools.partial(base.installation.accounts.mark_announced, account)
    store, dialect = AuthenticatorStore(base.read_source), base.settings.dialect
    await compare_dialect(store, dialect)
    await report_unlisted(store, base.listed, dialect)
    return announced


async def make_account(base: Foundation, show_admin_key: Callable[[str], bool] | None) -> bool:
    """Make the account that the settings name, unless it is there; a follower waits for its primary's.

    Return whether the API key of its admin was shown, or written.
    """
    account, installation = base.settings.account, base.installation
    if account is None:
        return False
    try:
        standby = await base.replication.is_standby()
    except StoreUnavailable:
        if not base.settings.reads_from_standby:
            raise
        return False  # It began without a primary, which has the account.
    if not standby:
        return await installation.ensure_account(account, base.settings.data_dir, show_admin_key)
    if account not in await installation.accounts.list_accounts():
        warning = "There is no account {account} yet: this server is a follower, so make it on the primary"
        log.warn(warning, account=account)
    return False


async def compare_dialect(authenticators: AuthenticatorStore, dialect: Dialect) -> None:
    """Warn where policy has authenticators in the other dialect's names, and none in this one's (CFG-27)."""
    other = CONJUR if dialect.prefix == NATIVE.prefix else NATIVE
    try:
        found = [name for name, _ in await authenticators.list_webservices(other.prefix)]
        first = next((name for name in found if name.identifier.startswith(f"{other.prefix}/authn-")), None)
        if first is None or await authenticators.list_webservices(dialect.prefix):
            return
    except StoreUnavailable:
        return  # It began without a primary.
    warning = "Policy has {what}, in the dialect {other}: this server has {here}, and takes no logins there"
    log.warn(warning, what=escape_unprintable(str(first)), other=other.name, here=dialect.name)

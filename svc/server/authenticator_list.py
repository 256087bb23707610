"""The server's list of authenticators: read again at ``SIGHUP``, and compared with those that policy defines.

Note [As before]. A list that can't be read, or is no list, changes nothing: neither is anybody locked out by a file that is
half written, nor does an authenticator stay in use that the operator believes to be off without a line in the log.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from twisted.logger import Logger

from svc.model.dialect import CLOUD_NAMES, SINGLE_TYPES, Dialect
from svc.model.errors import ConfigurationInvalid, StoreUnavailable
from svc.model.listed_authenticators import ListedAuthenticators
from svc.model.text import escape_unprintable
from svc.services.authenticators import is_nested
from svc.settings.config import Settings
from svc.settings.parsers import SERVICE_TYPES
from svc.settings.reading import fixed_source, reread_authenticators
from svc.storage.authenticators import AuthenticatorStore

#: The names that a line of the log, or of the doctor, has.
NAMED_MOST: Final = 10

log = Logger()


def reread_list(settings: Settings, listed: ListedAuthenticators) -> None:
    """Read the list again from the file of the settings, and put it in force (CFG-91; Note [As before])."""
    if (source := fixed_source(settings, "authenticators")) is not None:
        log.info("{source} lists the authenticators: a change there needs a new start of the server", source=source)
        return
    if settings.config is None:
        return
    path, before = str(settings.config), listed.items
    try:
        items = reread_authenticators(settings)
    except ConfigurationInvalid as refusal:
        why = f"{refusal.key} {refusal.message}"
        log.warn("The list of authenticators can't be read again, so the one before stays: {why}", why=why)
        return
    listed.replace_items(items)
    added, removed = (name_some(sorted({*one} - {*other})) for one, other in ((items, before), (before, items)))
    if added or removed:
        changes = "; ".join(filter(None, (f"it also has {added}" * bool(added), f"it lacks {removed}" * bool(removed))))
        log.info("The list of authenticators was read again from {path}: {changes}", path=path, changes=changes)


async def report_unlisted(store: AuthenticatorStore, listed: Collection[str], dialect: Dialect) -> None:
    """Log which authenticators policy defines that nothing lists (CFG-92)."""
    try:
        unlisted = await find_unlisted(store, listed, dialect)
    except StoreUnavailable:
        return  # It began without a primary.
    if unlisted:
        warning = "Policy defines {names}, which the setting authenticators doesn't list: nobody can log in there"
        log.warn(warning, names=name_some(unlisted))


async def find_unlisted(store: AuthenticatorStore, listed: Collection[str], dialect: Dialect) -> list[str]:
    """Return the authenticators that policy defines in some account and that nothing lists, in order (CFG-92).

    Those that somebody switched off, and in a dialect where a switch is enough those that somebody switched on, are left
    out.
    """
    types = {*SERVICE_TYPES, *SINGLE_TYPES} - {*CLOUD_NAMES} | {dialect.cloud}
    found = set()
    for webservice, switched in await store.list_webservices(dialect.prefix):
        name = webservice.identifier.removeprefix(f"{dialect.prefix}/")
        kind, slash, _ = name.partition("/")
        if kind not in types or bool(slash) == (kind in SINGLE_TYPES) or is_nested(name) or name in listed:
            continue
        if switched is None or (switched and not dialect.switch_enables):
            found.add(name)
    return sorted(found)


def name_some(names: Sequence[str]) -> str:
    """Return the first names, for people, and how many more there are; nothing for none."""
    more = f" and {len(names) - NAMED_MOST} more" if len(names) > NAMED_MOST else ""
    return ", ".join(escape_unprintable(name) for name in names[:NAMED_MOST]) + more

"""Groups of people in Active Directory, by the security identifiers that it computes for an entry (``tokenGroups``).

One query for one entry returns all groups of a person, also nested ones and the primary one. They are returned as security
identifiers (SIDs), and mappings have names. So the SIDs of the names that are mapped are read, as the account that searches,
and cached for a minute.

Note [Cached for a minute]. A SID is never given twice. A group that is deleted has its SID no longer in anybody's
``tokenGroups``, and one that is made again under its name has another. So the cache errs in two ways: for a minute a group
that was made just now is taken for none, and a name stands for the group that was renamed since.

Note [The name as it is written]. Active Directory takes for equal what this service doesn't (accents, blanks, letters of
other scripts). So an entry counts only if its name, as the directory writes it, is the one that is mapped by the rules of
``ldap_directories``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from svc.authn.ldap import messages
from svc.authn.ldap.conversation import Conversation, demand_success
from svc.model.ldap_directories import DirectoryRefused, InvalidDirectoryName, LdapServer, escape_dn_value, group_key
from svc.model.reasons import Reason

_TOKEN_GROUPS: Final = "tokenGroups"
_SID: Final = "objectSid"

#: How long the SIDs of names are cached, in seconds, and of how many directories.
CACHE_SECONDS: Final = 60.0
MAX_DIRECTORIES: Final = 64

#: Bytes that the answer about one name may have, beyond what a conversation has: its entry, in a record of TLS.
_ANSWER_BYTES: Final = 4096

#: A SID (MS-DTYP 2.4.2.2): its revision, how many parts of four bytes it has, and an authority of six bytes.
_REVISION: Final = 1
_PARTS_MOST: Final = 15
_HEAD: Final = 8


@attrs.define
class _CachedSids:
    """The SIDs of names at one directory, ``None`` for a name that has none; read since a moment."""

    since: float
    sids: dict[str, bytes | None] = attrs.field(factory=dict)


class MappedSids:
    """The SIDs of mapped groups, by directory (Note [Cached for a minute]); ``clock`` provides ``IReactorTime``.

    A directory is that of its settings, password included: where these change, nothing is known.
    """

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self._cached: dict[LdapServer, _CachedSids] = {}

    async def groups_among(
        self, mapped: Sequence[str], server: LdapServer, conversation: Conversation, dn: bytes
    ) -> list[str]:
        """Return those of the mapped groups that the entry of that name is in, by their distinguished names.

        :raises DirectoryRefused: the directory doesn't return them.
        """
        held = await _read_token_groups(conversation, dn)
        names = list(dict.fromkeys(_qualify_names(mapped, server.group_base_dn)))
        known = self._get_cached(server)
        known.sids = {name: known.sids[name] for name in names if name in known.sids}
        found = []
        for name in names:
            if name not in known.sids:
                known.sids[name] = await _read_sid(conversation, name)
            if known.sids[name] in held:
                found.append(name)
        return found

    def _get_cached(self, server: LdapServer) -> _CachedSids:
        """Return the cached SIDs of a directory, and drop those that are too old, or too many."""
        now = self._clock.seconds()
        kept = {each: known for each, known in self._cached.items() if 0 <= now - known.since < CACHE_SECONDS}
        known = kept.pop(server, None) or _CachedSids(now)
        self._cached = dict([*kept.items(), (server, known)][-MAX_DIRECTORIES:])
        return known


def _qualify_names(mapped: Sequence[str], base: str | None) -> Sequence[str]:
    """Return the names in full; a plain one stands right below ``base``, and without that for nothing (LDAP-2)."""
    return [name if "=" in name else f"cn={escape_dn_value(name)},{base}" for name in mapped if "=" in name or base]


async def _read_token_groups(conversation: Conversation, dn: bytes) -> frozenset[bytes]:
    shown, result = await conversation.read_attribute(dn, _TOKEN_GROUPS)
    demand_success(result, f"the search for {_TOKEN_GROUPS} of the entry", Reason.LDAP_GROUPS_UNKNOWN)
    sids = [] if shown is None else [sid for several in shown.values.values() for sid in several]
    if shown is None or not sids:  # everybody has a primary group
        detail = (
            f"the directory shows no {_TOKEN_GROUPS} of the entry: it is no Active Directory, or the account may not read it"
        )
        raise DirectoryRefused(Reason.LDAP_GROUPS_UNKNOWN, detail)
    if any(";" in description for description in shown.values):
        raise DirectoryRefused(Reason.LDAP_GROUPS_UNKNOWN, f"the entry has more {_TOKEN_GROUPS} than it tells at once")
    return frozenset(map(_check_sid, sids))


async def _read_sid(conversation: Conversation, name: str) -> bytes | None:
    """Return the SID of an entry, ``None`` where the directory has none of that name (Note [The name as it is written])."""
    conversation.extend_limit(_ANSWER_BYTES)
    shown, result = await conversation.read_attribute(name.encode("utf-8"), _SID)
    if result.code in messages.NO_ENTRY:
        return None
    demand_success(result, f"the search for {_SID} of {name!r}", Reason.LDAP_GROUPS_UNKNOWN)
    if shown is None:
        return None
    try:
        if group_key(shown.dn.decode("utf-8")) != group_key(name):
            return None
    except (UnicodeDecodeError, InvalidDirectoryName):
        return None
    sids = shown.values.get(_SID.lower(), [])
    if len(sids) > 1:
        raise DirectoryRefused(Reason.LDAP_ANSWER_MALFORMED, f"the entry {name!r} has several {_SID}")
    return _check_sid(sids[0]) if sids else None


def _check_sid(sid: bytes) -> bytes:
    """Return a SID that is one."""
    if len(sid) < _HEAD or sid[0] != _REVISION or sid[1] > _PARTS_MOST or len(sid) != _HEAD + 4 * sid[1]:
        raise DirectoryRefused(Reason.LDAP_ANSWER_MALFORMED, "the directory tells a security identifier that is none")
    return sid

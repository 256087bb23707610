"""The client of LDAP directories: it finds entries, checks passwords by binding, and reads groups.

A login is one conversation: connect, secure the connection, bind as the account that searches, search, and bind as the entry
that was found. It has one deadline. A directory that hangs holds ``MAX_PER_DIRECTORY`` conversations; others wait for their
turn, and give up at their own deadline.

Note [Next host]. A directory may have several hosts, and a host several addresses. They are tried one after the other, until
one has done all that comes before the person's password: each gets its share of the time that is left, for each answer, and
at least an eighth of the whole, so that a host far away isn't given up only because there are many. The next is tried when
one can't be connected to, is silent, ends the conversation, is busy or unavailable, or fails TLS. Any other answer is final:
a password that is refused, be it that of the account that searches, is sent to no second host. Once the person's password
has been sent no other is tried, whatever its outcome: it may have been counted.

Note [Groups last]. Groups are requested when the directory has taken the password, as the account that searches. So guesses
cost the directory no more than before, and a fault of a person's groups is reported to that person alone.

Note [Cached for a minute]. A SID is never given twice. A group that is deleted has its SID no longer in anybody's
``tokenGroups``, and one that is made again under its name has another. So the cache errs in two ways: for a minute a group
that was made just now is taken for none, and a name stands for the group that was renamed since.

Note [The name as it is written]. Active Directory takes for equal what this service doesn't (accents, blanks, letters of
other scripts). So an entry counts only if its name, as the directory writes it, is the one that is mapped by the rules of
``ldap_directories``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import attrs
from ldaptor.protocols import pureldap
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.error import ConnectError, ConnectingCancelledError
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from zope.interface import implementer

from svc.authn.ldap import messages
from svc.authn.ldap.bind_guard import BindGuard, BindOutcome
from svc.authn.ldap.conversation import Conversation, LdapConnection, SingleProtocolFactory, demand_success, raise_timeout
from svc.authn.ldap.filters import group_filter, search_filter
from svc.model.errors import AddressRefused, KeysUnavailable
from svc.model.ldap_directories import (
    GROUPS_MOST,
    STATES_DEADLINE,
    BaseUnreadable,
    DirectoryBase,
    DirectoryRefused,
    EntryState,
    GroupSource,
    IDirectories,
    InvalidDirectoryName,
    LdapServer,
    Security,
    Unanswered,
    escape_dn_value,
    group_key,
)
from svc.model.reasons import Reason
from svc.net.addresses import Address
from svc.net.lookup import HostResolver, client_endpoints

#: Makes the TLS of a connection, of a host, the authorities to trust, and the variable's name that has these:
#: ``net.trust.client_tls``.
ClientTLS = Callable[[str, str | None, str], IOpenSSLClientConnectionCreator]

#: Binds as the account that searches, at a host if there are others to ask.
BindSearcher = Callable[[Conversation, tuple[Address, int] | None], Awaitable[None]]

#: Conversations at the same time: with one directory, and with all of them.
MAX_PER_DIRECTORY: Final = 16
MAX_CONVERSATIONS: Final = 256

#: Addresses of a host that are tried at most.
ADDRESSES_MOST: Final = 64

#: The least share of the whole time that a host has for an answer (Note [Next host]).
_LEAST_SHARE: Final = 1 / 8

#: Bytes that the answer about the state of an entry may have, beyond what a conversation has.
_STATE_BYTES: Final = 4096

#: How many hosts a refusal names, when all failed.
_MAX_LISTED: Final = 8

#: The attribute of a person's entry that lists groups.
_MEMBER_OF: Final = "memberOf"


@implementer(IDirectories)
@attrs.define(eq=False, repr=False)
class DirectoryClient:
    """Provides ``IDirectories`` over TCP, in plain only if ``allow_plain``.

    ``reactor`` provides ``IReactorTCP`` and ``IReactorTime``.
    """

    _reactor: Any
    _host_resolver: HostResolver
    _tls: ClientTLS
    _guard: BindGuard = attrs.field(kw_only=True)
    _allow_plain: bool = attrs.field(default=False, kw_only=True)
    _semaphores: dict[LdapServer, DeferredSemaphore] = attrs.field(factory=dict, init=False)
    _running_count: int = attrs.field(default=0, init=False)
    _sids: MappedSids = attrs.field(init=False)

    @_sids.default
    def _make_sids(self) -> MappedSids:
        return MappedSids(self._reactor)

    async def verify_password(self, server: LdapServer, login: str, password: bytes, *, by_operator: bool = False) -> None:
        """See ``IDirectories``."""
        async with self._open_conversation(server, login, by_operator=by_operator) as (conversation, dn):
            await self._bind_person(server, conversation, dn, login, password)

    async def read_groups(
        self, server: LdapServer, login: str, password: bytes, mapped: Sequence[str] = (), *, by_operator: bool = False
    ) -> Sequence[str]:
        """See ``IDirectories`` (Note [Groups last])."""
        async with self._open_conversation(server, login, by_operator=by_operator) as (conversation, dn):
            await self._bind_person(server, conversation, dn, login, password)
            await self._bind_searcher(server, conversation, as_nobody=True)
            if server.group_source is GroupSource.TOKEN_GROUPS:
                return await self._sids.groups_among(mapped, server, conversation, dn)
            found = await _read_group_names(server, conversation, login, dn)
        if len(found) > GROUPS_MOST:
            raise DirectoryRefused(Reason.LDAP_GROUPS_UNKNOWN, f"the person is in more than {GROUPS_MOST} groups")
        # A name that is no text is no mapping's.
        return [name.decode("utf-8") for name in found if _is_text(name)]

    async def check_connection(self, server: LdapServer, within: float | None = None, *, by_operator: bool = False) -> None:
        """See ``IDirectories``."""
        async with self._open_conversation(server, within=within, by_operator=by_operator):
            pass

    async def read_bases(self, server: LdapServer) -> Sequence[DirectoryBase]:
        """See ``IDirectories``."""
        named = (("base_dn", server.base_dn), ("group_base_dn", server.group_base_dn))
        async with self._open_conversation(server) as (conversation, _):
            return [
                DirectoryBase(f"ldap-authn/{word}", dn, await _base_fault(conversation, dn))
                for word, dn in named
                if dn is not None
            ]

    async def read_entry_states(self, server: LdapServer, logins: Sequence[str]) -> Sequence[EntryState]:
        """See ``IDirectories``."""
        # Its binds count as those of health checks: no login waits for what is done to them.
        patient = attrs.evolve(server, timeout=STATES_DEADLINE)
        async with self._open_conversation(patient, within=STATES_DEADLINE) as (conversation, _):
            if (fault := await _base_fault(conversation, server.base_dn)) is not None:
                raise BaseUnreadable(Reason.LDAP_SEARCH_REFUSED, f"nothing is found below {server.base_dn!r}: {fault}")
            found = []
            for login in logins:
                conversation.extend_limit(_STATE_BYTES)
                found.append(
                    await conversation.read_entry_state(server.base_dn, search_filter(server.filter_template, login))
                )
            return found

    @asynccontextmanager
    async def _open_conversation(
        self, server: LdapServer, login: str | None = None, *, within: float | None = None, by_operator: bool = False
    ) -> AsyncIterator[tuple[Conversation, bytes]]:
        """Open a conversation in which the account that searches is bound; end the connection in any case.

        With a ``login`` the name of its entry is found, too. For ``by_operator`` see ``IDirectories``.
        """
        check = within is not None
        await self._guard.require_allowed(server, login, by_operator=by_operator, check=check)
        bind = partial(self._bind_searcher, server, by_operator=by_operator, check=check)
        timeout = server.timeout if within is None else min(within, server.timeout)
        deadline = self._reactor.seconds() + timeout
        turns = self._semaphores.setdefault(server, DeferredSemaphore(MAX_PER_DIRECTORY))
        await turns.acquire().addTimeout(timeout, self._reactor, raise_timeout)
        try:
            if self._running_count >= MAX_CONVERSATIONS:
                raise DirectoryRefused(Reason.LDAP_UNAVAILABLE, "too many directories are being asked at once")
            self._running_count += 1
            try:
                conversation, dn = await self._connect_any_host(server, login, deadline, timeout * _LEAST_SHARE, bind)
                try:
                    yield conversation, dn
                finally:
                    conversation.hang_up()
            finally:
                self._running_count -= 1
        finally:
            turns.release()
            if turns.tokens == turns.limit and self._semaphores.get(server) is turns:
                del self._semaphores[server]

    async def _connect_any_host(
        self, server: LdapServer, login: str | None, deadline: float, least: float, bind: BindSearcher
    ) -> tuple[Conversation, bytes]:
        """Return a conversation with the first host that does all that comes before a password (Note [Next host])."""
        if server.security is Security.PLAIN and not self._allow_plain:
            detail = "passwords would be sent in plain, and allow_plain_ldap is off"
            raise DirectoryRefused(Reason.CONFIGURATION_INVALID, detail)
        tls = [None if server.security is Security.PLAIN else self._tls_of(server, host) for host, _ in server.host_ports]
        left = partial(self._seconds_left, deadline)
        refused: list[tuple[str, Unanswered]] = []
        for number, (host, port) in enumerate(server.host_ports):
            further = len(server.host_ports) - number - 1
            addresses: Sequence[Address] = ()
            try:
                addresses = await self._look_up_host(host, port, left() / (further + 1))
            except Unanswered as refusal:
                refused.append(("", refusal))
            for tried, address in enumerate(addresses):
                if refused and not left():
                    break
                patience = max(left() / (len(addresses) - tried + further), least)
                secured = server.security is Security.PLAIN
                conversation = Conversation(self._reactor, deadline, patience, secured=secured)
                last = not further and tried == len(addresses) - 1
                try:
                    await self._open_connection(server, conversation, tls[number], address, port)
                    await bind(conversation, None if last else (address, port))
                    return conversation, b"" if login is None else await self._find_entry(server, conversation, login)
                except BaseException as failure:
                    conversation.hang_up()
                    if not isinstance(failure, Unanswered):
                        raise
                    refused.append((f"{address} port {port}", failure))
        raise _all_hosts_failed(refused)

    def _seconds_left(self, deadline: float) -> float:
        return float(max(0.0, deadline - self._reactor.seconds()))

    async def _open_connection(
        self,
        server: LdapServer,
        conversation: Conversation,
        tls: IOpenSSLClientConnectionCreator | None,
        address: Address,
        port: int,
    ) -> None:
        """Connect to one address, and secure the connection."""
        await self._connect_address(conversation, tls if server.security is Security.TLS else None, address, port)
        if server.security is Security.START_TLS and tls is not None:
            await conversation.start_tls(tls)

    async def _bind_searcher(
        self,
        server: LdapServer,
        conversation: Conversation,
        place: tuple[Address, int] | None = None,
        *,
        by_operator: bool = False,
        check: bool = False,
        as_nobody: bool = False,
    ) -> None:
        """Bind as the account that searches; where that is nobody, only if somebody else was bound before.

        ``place`` is the host, if there are others to ask.
        """
        if server.bind_dn is None:
            if as_nobody:
                demand_success(await conversation.bind_anonymously(), "the bind as nobody", Reason.LDAP_BIND_REFUSED)
            return
        async with self._guard.account_permit(
            server, conversation.with_deadline, place, by_operator=by_operator, check=check
        ) as bind:
            if bind.needs_probe and not by_operator:
                await conversation.read_attribute(b"", "1.1")  # whatever it answers, it answers
            bind.mark_sent()
            try:
                result = await conversation.bind(server.bind_dn, server.bind_password or b"")
            except Unanswered:
                if not conversation.secured:  # it never left
                    bind.mark_ended(BindOutcome.UNCOUNTED)
                raise
            outcome, detail = (
                _searcher_outcome(result),
                f"the bind as {server.bind_dn!r} ended with {_describe_result(result)}",
            )
            bind.mark_ended(outcome, detail)
        if outcome is BindOutcome.REFUSED:
            # The refusal is recorded now, with its duration.
            await self._guard.require_allowed(server)
            raise DirectoryRefused(Reason.LDAP_BIND_REFUSED, detail)
        demand_success(result, f"the bind as {server.bind_dn!r}", Reason.LDAP_BIND_REFUSED)

    async def _find_entry(self, server: LdapServer, conversation: Conversation, login: str) -> bytes:
        """Return the name of the entry that a login stands for; one without is counted."""
        try:
            return (await conversation.find_entry(server.base_dn, search_filter(server.filter_template, login))).dn
        except DirectoryRefused as refusal:
            if refusal.reason in {Reason.LDAP_ENTRY_UNKNOWN, Reason.LDAP_ENTRY_AMBIGUOUS}:
                await self._guard.count_missing_entry(server, login)
            raise

    async def _bind_person(
        self, server: LdapServer, conversation: Conversation, dn: bytes, login: str, password: bytes
    ) -> None:
        """Bind as the entry that was found; no other host is tried from here on (Note [Next host])."""
        conversation.commit_to_host()
        async with self._guard.entry_permit(server, dn, login, conversation.with_deadline) as bind:
            bind.mark_sent()
            result = await conversation.bind(dn, password)
            bind.mark_ended(_person_outcome(result))
        if (objection := _read_objection(result)) is not None:
            raise DirectoryRefused(Reason.LDAP_ENTRY_REFUSED, f"{objection}: the bind as the entry ended with {result}")
        if result.code in {messages.INVALID_CREDENTIALS, messages.INAPPROPRIATE_AUTHENTICATION}:
            raise DirectoryRefused(Reason.CREDENTIALS_WRONG, f"the directory doesn't take the password: {result}")
        demand_success(result, "the bind as the entry that was found", Reason.LDAP_ENTRY_REFUSED)

    def _tls_of(self, server: LdapServer, host: str) -> IOpenSSLClientConnectionCreator:
        try:
            return self._tls(host, server.ca_cert, "tls-ca-cert")
        except KeysUnavailable as error:
            raise DirectoryRefused(Reason.CONFIGURATION_INVALID, error.why) from None
        except UnicodeError:
            raise DirectoryRefused(Reason.CONFIGURATION_INVALID, "no certificate can be for a host of that name") from None

    async def _look_up_host(self, host: str, port: int, seconds: float) -> Sequence[Address]:
        try:
            return await self._host_resolver.resolve_host(host, port, seconds, ADDRESSES_MOST)
        except AddressRefused as refusal:
            raise Unanswered(Reason.LDAP_UNAVAILABLE, f"{host}: {refusal.why}") from None
        except TimeoutError:
            raise Unanswered(Reason.LDAP_UNAVAILABLE, f"{host}: no name service answered in time") from None

    async def _connect_address(
        self, conversation: Conversation, tls: IOpenSSLClientConnectionCreator | None, address: Address, port: int
    ) -> None:
        [(_, endpoint)] = client_endpoints(self._reactor, [address], port, conversation.seconds_left)
        connecting: Deferred[Any] = endpoint.connect(SingleProtocolFactory(LdapConnection(conversation, self._reactor, tls)))
        try:
            await conversation.with_deadline(connecting)
        except ConnectError as error:
            raise Unanswered(Reason.LDAP_UNAVAILABLE, f"no connection to {address} port {port}: {error}") from None
        except ConnectingCancelledError:  # the client has left
            raise CancelledError from None


def _all_hosts_failed(refused: Sequence[tuple[str, Unanswered]]) -> DirectoryRefused:
    """Return the refusal of a login for which no host could be reached: its words are theirs."""
    details = [
        refusal.detail if place in refusal.detail or len(refused) == 1 else f"{place}: {refusal.detail}"
        for place, refusal in refused[:_MAX_LISTED]
    ]
    if len(refused) > _MAX_LISTED:
        details.append(f"and {len(refused) - _MAX_LISTED} more")
    failed_tls = any(refusal.reason is Reason.LDAP_TLS_FAILED for _, refusal in refused)
    return DirectoryRefused(Reason.LDAP_TLS_FAILED if failed_tls else Reason.LDAP_UNAVAILABLE, "; ".join(details))


async def _read_group_names(server: LdapServer, conversation: Conversation, login: str, dn: bytes) -> list[bytes]:
    """Return the names of a person's groups, or some more than there may be."""
    if server.group_base_dn is not None:
        wanted = group_filter(server.group_filter_template, login, dn)
        found, result = await conversation.find_all(server.group_base_dn, wanted, GROUPS_MOST + 1)
        if result.code == messages.SIZE_LIMIT_EXCEEDED:
            raise DirectoryRefused(Reason.LDAP_GROUPS_UNKNOWN, f"the directory doesn't tell all groups: {result}")
        demand_success(result, f"the search below {server.group_base_dn!r}", Reason.LDAP_GROUPS_UNKNOWN)
        return found
    shown, result = await conversation.read_attribute(dn, _MEMBER_OF)
    demand_success(result, "the search for the groups of the entry", Reason.LDAP_GROUPS_UNKNOWN)
    if shown is None:
        raise DirectoryRefused(Reason.LDAP_GROUPS_UNKNOWN, "the directory doesn't show the entry whose groups are asked for")
    if any(";range=" in description for description in shown.values):
        raise DirectoryRefused(
            Reason.LDAP_GROUPS_UNKNOWN, f"the entry has more values of {_MEMBER_OF} than it tells at once"
        )
    return [name for several in shown.values.values() for name in several]


async def _base_fault(conversation: Conversation, dn: str) -> str | None:
    """Return why nothing is found below an entry; ``None`` if it can be read, or for the root, searched."""
    if not dn:
        found, result = await conversation.find_all("", pureldap.LDAPFilter_present("objectClass"), 1)
        if found:
            return None
    else:
        shown, result = await conversation.read_attribute(dn.encode("utf-8"), "1.1")
        if shown is not None and result.code == messages.SUCCESS:
            return None
    if result.code != messages.SUCCESS:
        return f"the search for it ended with {result}"
    return "the directory doesn't show it to the account that searches"


def _person_outcome(result: messages.Result) -> BindOutcome:
    """Return how a person's bind ended, as it is counted: a password that is taken with an objection was refused."""
    if result.code in messages.SERVER_FAILURES:
        return BindOutcome.UNCOUNTED
    taken = result.code == messages.SUCCESS and _read_objection(result) is None
    return BindOutcome.TAKEN if taken else BindOutcome.REFUSED


def _searcher_outcome(result: messages.Result) -> BindOutcome:
    """Return the outcome of a bind of the account that searches, as it is recorded: a qualified success counts as refused.

    An account that must change its password finds nothing, and each bind uses up one of the last logins.
    """
    if result.code == messages.SUCCESS:
        return BindOutcome.TAKEN if _read_objection(result) is None else BindOutcome.REFUSED
    return BindOutcome.REFUSED if result.code in messages.COUNTED_FAILURES else BindOutcome.UNCOUNTED


def _read_objection(result: messages.Result) -> str | None:
    try:
        return result.objection
    except messages.MalformedMessage as error:
        raise DirectoryRefused(Reason.LDAP_ANSWER_MALFORMED, f"the directory's answer can't be read: {error}") from None


def _describe_result(result: messages.Result) -> str:
    objection = _read_objection(result)
    return f"{result}" if objection is None else f"{result}: {objection}"


def _is_text(octets: bytes) -> bool:
    try:
        octets.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


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

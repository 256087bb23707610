"""The questions before a bind to a directory, and their digests: each process asks the one that counts (``refused_binds``).

Note [One directory]. A directory is identified by all its hosts together, in any order. So what one host refused is sent to
none of the others, and failures at any of them count together.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from hashlib import blake2b
from ipaddress import ip_address
from typing import Final

import attrs
from twisted.internet.defer import CancelledError, Deferred

from svc.model.ldap_directories import DirectoryRefused, InvalidDirectoryName, LdapServer, Unanswered, group_key
from svc.model.reasons import Reason
from svc.net.addresses import Address

_DIGEST_BYTES: Final = 16


class BindOutcome(enum.Enum):
    """The outcome of a bind: nothing that counts, no answer, taken, or refused."""

    UNCOUNTED = "uncounted"
    UNANSWERED = "unanswered"
    TAKEN = "taken"
    REFUSED = "refused"


@attrs.frozen
class LoginKeys:
    """The digests of a login at a directory: as it was written, and as most directories compare it."""

    written: bytes
    folded: bytes


@attrs.frozen
class DirectoryQuestion:
    """Asks whether a directory may be queried, by this account, about this login; ``check``: by a health check."""

    account: bytes | None
    login: LoginKeys | None
    check: bool = False


@attrs.frozen
class SearchAccountBindQuestion:
    """The question for a permit to bind as the account that searches, under a number; ``by_operator``: an operator wants it.

    ``host`` is the digest of the host, if there are others to ask. ``check``: a health check wants it.
    """

    number: int
    account: bytes
    by_operator: bool
    host: bytes = b""
    check: bool = False


@attrs.frozen
class EntryBindQuestion:
    """The question for a permit to bind as a person's entry, under a number, for a login."""

    number: int
    entry: bytes
    login: LoginKeys


@attrs.frozen
class MissingEntryReport:
    """The question whether a login may be answered that it has no entry: that counts as a failure."""

    login: LoginKeys


@attrs.frozen
class BindEnded:
    """A permit is over, or not wanted any more."""

    number: int
    outcome: BindOutcome
    detail: str = ""


#: Bounds the wait for a permit: ``Conversation.with_deadline``.
Until = Callable[[Deferred[None]], Deferred[None]]

BindPermitQuestion = DirectoryQuestion | SearchAccountBindQuestion | EntryBindQuestion | MissingEntryReport


@attrs.define(eq=False)
class BindPermit:
    """A bind that may be sent, and how it ended."""

    outcome: BindOutcome = BindOutcome.UNCOUNTED
    detail: str = ""
    #: Whether an earlier one had no answer, so that the host is to be heard of first.
    needs_probe: bool = False

    def mark_sent(self) -> None:
        """Note that it is on its way: until there is an answer it may have been counted."""
        self.outcome = BindOutcome.UNANSWERED

    def mark_ended(self, outcome: BindOutcome, detail: str = "") -> None:
        """Note how it ended."""
        self.outcome, self.detail = outcome, detail


@attrs.define(eq=False, repr=False)
class BindGuard:
    """Asks for a permit before each bind of this process, and reports how the bind ended; ``key`` is for digests."""

    _request: Callable[[BindPermitQuestion], Awaitable[object]]
    _report: Callable[[BindEnded], object]
    _key: bytes
    _numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)

    async def require_allowed(
        self, server: LdapServer, login: str | None = None, *, by_operator: bool = False, check: bool = False
    ) -> None:
        """Return if the directory may be queried; a request ``by_operator`` isn't refused for the account's sake.

        :raises DirectoryRefused: a recorded failure forbids it.
        """
        account = None if by_operator or server.bind_dn is None else self._account_digest(server)
        if account is not None or login is not None:
            await self._request(
                DirectoryQuestion(account, None if login is None else self._login_keys(server, login), check)
            )

    async def count_missing_entry(self, server: LdapServer, login: str) -> None:
        """Count a login without an entry.

        :raises DirectoryRefused: it has failed too often.
        """
        await self._request(MissingEntryReport(self._login_keys(server, login)))

    def account_permit(
        self,
        server: LdapServer,
        until: Until,
        place: tuple[Address, int] | None = None,
        *,
        by_operator: bool = False,
        check: bool = False,
    ) -> AbstractAsyncContextManager[BindPermit]:
        """Return a context in which one may bind as the account that searches, once ``until`` has bounded the wait for it.

        ``place``: the host that is tried, if another might be in its place.

        :raises Unanswered: the host doesn't answer others.
        :raises DirectoryRefused: it may not.
        """
        number, where = next(self._numbers), b"" if place is None else self._keyed_digest("place", *place)
        return self._hold_permit(
            SearchAccountBindQuestion(number, self._account_digest(server), by_operator, where, check), number, until
        )

    def entry_permit(
        self, server: LdapServer, dn: bytes, login: str, until: Until
    ) -> AbstractAsyncContextManager[BindPermit]:
        """Return a context in which one may bind as a person's entry.

        :raises DirectoryRefused: it may not.
        """
        number = next(self._numbers)
        return self._hold_permit(
            EntryBindQuestion(number, self._entry_digest(server, dn), self._login_keys(server, login)), number, until
        )

    @asynccontextmanager
    async def _hold_permit(
        self, question: SearchAccountBindQuestion | EntryBindQuestion, number: int, until: Until
    ) -> AsyncIterator[BindPermit]:
        bind = BindPermit()
        try:
            bind.needs_probe = await self._await_permit(question, until)
            yield bind
        except CancelledError:
            if isinstance(question, SearchAccountBindQuestion):
                bind.mark_ended(BindOutcome.UNCOUNTED)  # Note [No answer]
            raise
        finally:
            self._report(BindEnded(number, bind.outcome, bind.detail))

    async def _await_permit(self, question: SearchAccountBindQuestion | EntryBindQuestion, until: Until) -> bool:
        doubtful = False

        async def send_question() -> None:
            nonlocal doubtful
            doubtful = await self._request(question) is True

        try:
            await until(Deferred.fromCoroutine(send_question()))
            return doubtful
        except DirectoryRefused as refusal:
            if refusal.reason is not Reason.LDAP_UNAVAILABLE:
                raise
            if isinstance(question, SearchAccountBindQuestion):
                if refusal.retry_after is None:
                    raise Unanswered(refusal.reason, refusal.detail) from None
                raise
            # Concurrent logins of this entry are reported as any failure of an entry is.
            detail = "as many logins of the entry as may fail are under way, and none has ended in time"
            raise DirectoryRefused(Reason.LDAP_FAILURES_TOO_MANY, detail) from None

    def _account_digest(self, server: LdapServer) -> bytes:
        places = sorted({(_normalize_host(host), port) for host, port in server.host_ports})
        parts: list[str | int] = [len(places), server.security.value]
        for place in places:
            parts.extend(place)
        return self._keyed_digest("account", *parts, server.bind_dn or "", server.bind_password or b"")

    def _entry_digest(self, server: LdapServer, dn: bytes) -> bytes:
        name = dn.decode("utf-8", "surrogateescape")
        with suppress(InvalidDirectoryName):
            name = group_key(name)
        return self._keyed_digest("entry", *_directory_identity(server), name)

    def _login_keys(self, server: LdapServer, login: str) -> LoginKeys:
        place = (*_directory_identity(server), server.base_dn, server.filter_template)
        folded = " ".join(login.casefold().split())
        return LoginKeys(self._keyed_digest("login", *place, login), self._keyed_digest("folded", *place, folded))

    def _keyed_digest(self, *parts: str | int | bytes | Address) -> bytes:
        """Return a digest of a place and what is there; without the key nobody can check a guess of it."""
        digest = blake2b(digest_size=_DIGEST_BYTES, key=self._key[:64], person=b"svc-ldap-binds")
        for part in parts:
            octets = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogateescape")
            digest.update(len(octets).to_bytes(4) + octets)
        return digest.digest()


def _normalize_host(host: str) -> str:
    """Return a host as it is compared (Note [One directory])."""
    name = host.strip("[]").rstrip(".").lower()
    with suppress(ValueError):
        return str(ip_address(name))
    return name


def _directory_identity(server: LdapServer) -> tuple[int | str, ...]:
    """Return the identity of a directory: its hosts, in any order and spelling, and their number."""
    hosts = sorted({_normalize_host(host) for host, _ in server.host_ports})
    return len(hosts), *hosts

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

from svc.model.directory_names import InvalidDirectoryName, group_key
from svc.model.ldap_directories import DirectoryRefused, LdapServer, Unanswered
from svc.model.reasons import Reason
from svc.net.addresses import Address

_DIGEST: Final = 16


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
class LookWanted:
    """Asks whether a directory may be queried, by this account, about this login; ``check``: by a health check."""

    account: bytes | None
    login: LoginKeys | None
    check: bool = False


@attrs.frozen
class AccountWanted:
    """The question for a turn to bind as the account that searches, under a number; ``asked``: an operator wants it.

    ``place`` is the digest of the host, if there are others to ask. ``check``: a health check wants it.
    """

    number: int
    account: bytes
    asked: bool
    place: bytes = b""
    check: bool = False


@attrs.frozen
class EntryWanted:
    """The question for a turn to bind as a person's entry, under a number, for a login."""

    number: int
    entry: bytes
    login: LoginKeys


@attrs.frozen
class EntryMissed:
    """The question whether a login may be answered that it has no entry: that counts as a failure."""

    login: LoginKeys


@attrs.frozen
class BindOver:
    """A turn is over, or not wanted any more."""

    number: int
    outcome: BindOutcome
    detail: str = ""


#: Bounds the wait for a turn: ``Conversation.until``.
Until = Callable[[Deferred[None]], Deferred[None]]

BindQuestion = LookWanted | AccountWanted | EntryWanted | EntryMissed


@attrs.define(eq=False)
class Bind:
    """A bind that may be sent, and how it ended."""

    outcome: BindOutcome = BindOutcome.UNCOUNTED
    detail: str = ""
    #: Whether an earlier one had no answer, so that the host is to be heard of first.
    doubtful: bool = False

    def sent(self) -> None:
        """Note that it is on its way: until there is an answer it may have been counted."""
        self.outcome = BindOutcome.UNANSWERED

    def ended(self, outcome: BindOutcome, detail: str = "") -> None:
        """Note how it ended."""
        self.outcome, self.detail = outcome, detail


@attrs.define(eq=False, repr=False)
class BindGuard:
    """Asks before each bind of this process: ``ask`` a question, ``tell`` when a turn is over; ``key`` is for digests."""

    _ask: Callable[[BindQuestion], Awaitable[object]]
    _tell: Callable[[BindOver], object]
    _key: bytes
    _numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)

    async def look(self, server: LdapServer, login: str | None = None, *, asked: bool = False, check: bool = False) -> None:
        """Return if the directory may be queried; an operator's request (``asked``) isn't refused for the account's sake.

        :raises DirectoryRefused: a recorded failure forbids it.
        """
        account = None if asked or server.bind_dn is None else self._account(server)
        if account is not None or login is not None:
            await self._ask(LookWanted(account, None if login is None else self._login(server, login), check))

    async def missed(self, server: LdapServer, login: str) -> None:
        """Count a login without an entry.

        :raises DirectoryRefused: it has failed too often.
        """
        await self._ask(EntryMissed(self._login(server, login)))

    def account(
        self,
        server: LdapServer,
        until: Until,
        place: tuple[Address, int] | None = None,
        *,
        asked: bool = False,
        check: bool = False,
    ) -> AbstractAsyncContextManager[Bind]:
        """Return a context in which one may bind as the account that searches, once ``until`` has bounded the wait for it.

        ``place``: the host that is tried, if another might be in its place.

        :raises Unanswered: the host doesn't answer others.
        :raises DirectoryRefused: it may not.
        """
        number, where = next(self._numbers), b"" if place is None else self._digest("place", *place)
        return self._turn(AccountWanted(number, self._account(server), asked, where, check), number, until)

    def entry(self, server: LdapServer, dn: bytes, login: str, until: Until) -> AbstractAsyncContextManager[Bind]:
        """Return a context in which one may bind as a person's entry.

        :raises DirectoryRefused: it may not.
        """
        number = next(self._numbers)
        return self._turn(EntryWanted(number, self._entry(server, dn), self._login(server, login)), number, until)

    @asynccontextmanager
    async def _turn(self, question: AccountWanted | EntryWanted, number: int, until: Until) -> AsyncIterator[Bind]:
        bind = Bind()
        try:
            bind.doubtful = await self._begun(question, until)
            yield bind
        except CancelledError:
            if isinstance(question, AccountWanted):
                bind.ended(BindOutcome.UNCOUNTED)  # Note [No answer]
            raise
        finally:
            self._tell(BindOver(number, bind.outcome, bind.detail))

    async def _begun(self, question: AccountWanted | EntryWanted, until: Until) -> bool:
        doubtful = False

        async def ask() -> None:
            nonlocal doubtful
            doubtful = await self._ask(question) is True

        try:
            await until(Deferred.fromCoroutine(ask()))
            return doubtful
        except DirectoryRefused as refusal:
            if refusal.reason is not Reason.LDAP_UNAVAILABLE:
                raise
            if isinstance(question, AccountWanted):
                if refusal.again is None:
                    raise Unanswered(refusal.reason, refusal.detail) from None
                raise
            # Concurrent logins of this entry are reported as any failure of an entry is.
            detail = "as many logins of the entry as may fail are under way, and none has ended in time"
            raise DirectoryRefused(Reason.LDAP_FAILURES_TOO_MANY, detail) from None

    def _account(self, server: LdapServer) -> bytes:
        places = sorted({(_host(host), port) for host, port in server.places})
        parts: list[str | int] = [len(places), server.security.value]
        for place in places:
            parts.extend(place)
        return self._digest("account", *parts, server.bind_dn or "", server.bind_password or b"")

    def _entry(self, server: LdapServer, dn: bytes) -> bytes:
        name = dn.decode("utf-8", "surrogateescape")
        with suppress(InvalidDirectoryName):
            name = group_key(name)
        return self._digest("entry", *_hosts(server), name)

    def _login(self, server: LdapServer, login: str) -> LoginKeys:
        place = (*_hosts(server), server.base_dn, server.filter_template)
        folded = " ".join(login.casefold().split())
        return LoginKeys(self._digest("login", *place, login), self._digest("folded", *place, folded))

    def _digest(self, *parts: str | int | bytes | Address) -> bytes:
        """Return a digest of a place and what is there; without the key nobody can check a guess of it."""
        digest = blake2b(digest_size=_DIGEST, key=self._key[:64], person=b"svc-ldap-binds")
        for part in parts:
            octets = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogateescape")
            digest.update(len(octets).to_bytes(4) + octets)
        return digest.digest()


def _host(host: str) -> str:
    """Return a host as it is compared (Note [One directory])."""
    name = host.strip("[]").rstrip(".").lower()
    with suppress(ValueError):
        return str(ip_address(name))
    return name


def _hosts(server: LdapServer) -> tuple[int | str, ...]:
    """Return the identity of a directory: its hosts, in any order and spelling, and their number."""
    hosts = sorted({_host(host) for host, _ in server.places})
    return len(hosts), *hosts

"""The client of LDAP directories: it finds entries, and checks passwords by binding.

A login is one conversation: connect, secure the connection, bind as the account that searches, search, and bind as what was
found. It has one deadline, whatever the directory does, and a directory that hangs holds only so many conversations: others
wait for their turn, and give up at their own deadline.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.error import ConnectError, ConnectingCancelledError
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IStreamClientEndpoint
from zope.interface import implementer

from svc.authn.ldap import messages
from svc.authn.ldap.conversation import Conversation, Line, LineFactory
from svc.authn.ldap.filters import InvalidTemplate, search_filter
from svc.model.directories import DirectoryRefused, IDirectories, LdapServer, Security
from svc.model.errors import AddressRefused, KeysUnavailable
from svc.model.reasons import Reason
from svc.net.addresses import Address
from svc.net.lookup import LookUps

#: Makes the TLS of a connection to the host of that name, with the certificates of the authorities to trust, which the
#: variable of that name has: ``client_tls`` of ``net.trust``.
ClientTLS = Callable[[str, str | None, str], IOpenSSLClientConnectionCreator]

#: Seconds for a whole conversation, the wait for its turn included.
DEADLINE: Final = 5.0

#: Conversations at the same time: with one directory, and with all of them.
PER_SERVER: Final = 16
IN_ALL: Final = 256

_CA_VARIABLE: Final = "tls-ca-cert"


@implementer(IDirectories)
class Directories:
    """Provides ``IDirectories`` over TCP.

    ``reactor`` provides ``IReactorTCP`` and ``IReactorTime``. Without ``allow_plain`` no directory is asked in plain.
    ``deadline`` is in seconds.
    """

    def __init__(
        self, reactor: Any, look_ups: LookUps, tls: ClientTLS, *, allow_plain: bool = False, deadline: float = DEADLINE
    ) -> None:
        self._reactor = reactor
        self._look_ups = look_ups
        self._tls = tls
        self._allow_plain = allow_plain
        self._seconds = deadline
        self._turns: dict[LdapServer, DeferredSemaphore] = {}
        self._under_way = 0

    async def prove(self, server: LdapServer, login: str, password: bytes) -> None:
        """See ``IDirectories``."""
        try:
            wanted = search_filter(server.filter_template, login)
        except InvalidTemplate as error:
            raise DirectoryRefused(Reason.CONFIGURATION_INVALID, f"the filter template is not usable: {error}") from None
        async with self._conversation(server) as conversation:
            dn = await conversation.find(server.base_dn, wanted)
            result = await conversation.bind(dn, password)
        if result.code in {messages.INVALID_CREDENTIALS, messages.INAPPROPRIATE_AUTHENTICATION}:
            raise DirectoryRefused(Reason.CREDENTIALS_WRONG, f"the directory doesn't take the password: {result}")
        _check_bound(result, "the bind as the entry that was found", Reason.LDAP_ENTRY_REFUSED)

    async def reach(self, server: LdapServer) -> None:
        """See ``IDirectories``."""
        async with self._conversation(server):
            pass

    @asynccontextmanager
    async def _conversation(self, server: LdapServer) -> AsyncIterator[Conversation]:
        """A conversation in which the account that searches is bound; in the end the connection is ended, come what may."""
        conversation = Conversation(self._reactor, self._reactor.seconds() + self._seconds)
        turns = self._turns.setdefault(server, DeferredSemaphore(PER_SERVER))
        await conversation.until(turns.acquire())
        try:
            if self._under_way >= IN_ALL:
                raise DirectoryRefused(Reason.LDAP_UNAVAILABLE, "too many directories are being asked at once")
            self._under_way += 1
            try:
                await self._open(server, conversation)
                yield conversation
            finally:
                self._under_way -= 1
                conversation.hang_up()
        finally:
            turns.release()
            if turns.tokens == turns.limit and self._turns.get(server) is turns:
                del self._turns[server]

    async def _open(self, server: LdapServer, conversation: Conversation) -> None:
        if server.security is Security.PLAIN and not self._allow_plain:
            raise DirectoryRefused(
                Reason.CONFIGURATION_INVALID, "passwords would be sent in plain, and allow_plain_ldap is off"
            )
        tls = None if server.security is Security.PLAIN else self._tls_of(server)
        await self._connect(server, conversation, tls if server.security is Security.TLS else None)
        if server.security is Security.START_TLS and tls is not None:
            await conversation.start_tls(tls)
        if server.bind_dn is not None:
            result = await conversation.bind(server.bind_dn, server.bind_password or b"")
            _check_bound(result, f"the bind as {server.bind_dn!r}", Reason.LDAP_BIND_REFUSED)

    def _tls_of(self, server: LdapServer) -> IOpenSSLClientConnectionCreator:
        try:
            return self._tls(server.host, server.ca_cert, _CA_VARIABLE)
        except KeysUnavailable as error:
            raise DirectoryRefused(Reason.CONFIGURATION_INVALID, error.why) from None
        except UnicodeError:
            raise DirectoryRefused(Reason.CONFIGURATION_INVALID, "no certificate can be for a host of that name") from None

    async def _connect(
        self, server: LdapServer, conversation: Conversation, tls: IOpenSSLClientConnectionCreator | None
    ) -> None:
        """Try the addresses of the host in turn until one is connected; each gets its share of the time."""
        try:
            addresses = await self._look_ups.addresses(server.host, server.port, conversation.left())
        except AddressRefused as refusal:
            raise DirectoryRefused(Reason.LDAP_UNAVAILABLE, f"{server.host}: {refusal.why}") from None
        except TimeoutError:
            raise DirectoryRefused(Reason.LDAP_UNAVAILABLE, f"{server.host}: no name service answered in time") from None
        refused = []
        for number, address in enumerate(addresses):
            line = Line(conversation, self._reactor, tls)
            endpoint = self._endpoint(address, server.port, conversation.left() / (len(addresses) - number))
            connecting: Deferred[Any] = endpoint.connect(LineFactory(line))
            try:
                await conversation.until(connecting)
                return
            except ConnectError as error:
                refused.append(f"no connection to {address} port {server.port}: {error}")
            except ConnectingCancelledError:  # whoever asked has left
                raise CancelledError from None
        raise DirectoryRefused(Reason.LDAP_UNAVAILABLE, "; ".join(refused))

    def _endpoint(self, address: Address, port: int, patience: float) -> IStreamClientEndpoint:
        kind = TCP4ClientEndpoint if address.version == 4 else TCP6ClientEndpoint
        endpoint: IStreamClientEndpoint = kind(self._reactor, str(address), port, timeout=patience)
        return endpoint


def _check_bound(result: messages.Result, what: str, otherwise: Reason) -> None:
    if result.code in messages.FAILED:
        raise DirectoryRefused(Reason.LDAP_UNAVAILABLE, f"{what} ended with {result}")
    if result.code != messages.SUCCESS:
        raise DirectoryRefused(otherwise, f"{what} ended with {result}")

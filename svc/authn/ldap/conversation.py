"""A conversation with a directory: one connection, and the few requests on it, one after the other.

Note [Nothing before TLS]. Bytes sent before TLS, by the directory or another host, must not be taken for a message within
it. So StartTLS is refused when anything has arrived behind its answer, and no request is sent in plain once TLS was asked
for. ldaptor's own client keeps what has arrived, and goes on with it.

Note [One line]. Bytes that arrive are counted below TLS, and at the limit the connection ends. Every wait has the
conversation's one deadline, and ends before that when the host has been silent for longer than its ``patience``.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import attrs
from ldaptor.protocols import pureldap
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionClosed
from twisted.internet.interfaces import IHandshakeListener, IOpenSSLClientConnectionCreator
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.authn.ldap import messages
from svc.authn.ldap.messages import Entry, LdapMessage, MalformedMessage, Result, SearchReference
from svc.model.ldap_directories import DirectoryRefused, EntryState, Unanswered
from svc.model.reasons import Reason
from svc.net.trust import tls_fault

T = TypeVar("T")

#: The bytes that are read of one conversation.
CONVERSATION_LIMIT: Final = 256 * 1024

#: The bytes by which records of TLS begin, alerts and handshakes: one in the place of an answer is a port for LDAPS.
_TLS_RECORDS: Final = (b"\x15", b"\x16")


@attrs.frozen
class AttributeValues:
    """An entry that is read by its name, as the directory writes that, and the ``values`` of an attribute."""

    dn: bytes
    values: dict[str, list[bytes]]


@implementer(IHandshakeListener)
class Conversation(Protocol):
    """Ask one question at a time. ``deadline`` is a moment of ``clock``, which provides ``IReactorTime``.

    ``patience``: the seconds for an answer, while another host could be tried in place of this one. ``secured``: nothing is
    to be secured, or TLS is up.
    """

    def __init__(self, clock: Any, deadline: float, patience: float, *, secured: bool) -> None:
        self._clock = clock
        self._deadline = deadline
        self._patience = patience
        self.secured = secured
        self._connection: LdapConnection | None = None
        self._buffer = b""
        self._inbox: deque[LdapMessage] = deque()
        self._waiting: Deferred[LdapMessage] | None = None
        self._failure: DirectoryRefused | None = None
        self._number = 0

    async def start_tls(self, tls: IOpenSSLClientConnectionCreator) -> None:
        """Ask for TLS, and go on with nothing else (Note [Nothing before TLS])."""
        result = await self._request_result(messages.EXTENDED, messages.start_tls_request(self._next_number()))
        if result.code != messages.SUCCESS:
            raise Unanswered(Reason.LDAP_TLS_FAILED, f"the directory refuses StartTLS: {result}")
        if self._buffer or self._inbox:
            raise Unanswered(Reason.LDAP_TLS_FAILED, "the directory spoke in plain after it had agreed to TLS")
        assert self._connection is not None
        self._connection.wrap_in_tls(tls)

    def handshakeCompleted(self) -> None:  # noqa: N802 - Twisted's
        """Note that TLS is up."""
        self.secured = True

    async def bind(self, dn: str | bytes, password: bytes) -> Result:
        """Bind as an entry; without a name or a password a directory would report success to anybody (RFC 4513 5.1)."""
        if not dn or not password:
            raise DirectoryRefused(Reason.CREDENTIALS_MISSING, "a bind needs a name and a password")
        return await self._request_result(messages.BIND, messages.bind_request(self._next_number(), dn, password))

    async def bind_anonymously(self) -> Result:
        """Bind anonymously (RFC 4513 5.1.1): the directory's answers after that are public."""
        return await self._request_result(messages.BIND, messages.bind_request(self._next_number(), "", b""))

    async def find_entry(self, base_dn: str, wanted: pureldap.LDAPFilter, attributes: Sequence[str] = ()) -> Entry:
        """Return the one entry that a search finds; references to other directories are not followed."""
        request = messages.search_request(self._next_number(), base_dn, wanted, self._time_limit(), attributes=attributes)
        entries, elsewhere, result = await self._run_search(request)
        if len(entries) > 1 or result.code == messages.SIZE_LIMIT_EXCEEDED:
            raise DirectoryRefused(Reason.LDAP_ENTRY_AMBIGUOUS, "the login stands for more than one entry")
        below = repr(base_dn) if base_dn else "the root"
        if result.code in messages.TRY_OTHER_HOST:
            raise Unanswered(Reason.LDAP_UNAVAILABLE, f"the search below {below} ended with {result}")
        if result.code != messages.SUCCESS:
            raise DirectoryRefused(Reason.LDAP_SEARCH_REFUSED, f"the search below {below} ended with {result}")
        if not entries:
            beside = f"; the directory refers to {elsewhere} others, which are not asked" if elsewhere else ""
            raise DirectoryRefused(Reason.LDAP_ENTRY_UNKNOWN, f"the login stands for no entry below {below}{beside}")
        if not entries[0].dn:
            raise _malformed_answer("the directory found an entry without a name")
        return entries[0]

    async def read_entry_state(self, base_dn: str, wanted: pureldap.LDAPFilter) -> EntryState:
        """Return the state of the one entry that a search is to find."""
        try:
            entry = await self.find_entry(base_dn, wanted, messages.DISABLING_ATTRIBUTES)
            return EntryState.DISABLED if entry.is_disabled else EntryState.PRESENT
        except DirectoryRefused as refusal:
            if refusal.reason is Reason.LDAP_ENTRY_AMBIGUOUS:
                return EntryState.AMBIGUOUS
            if refusal.reason is not Reason.LDAP_ENTRY_UNKNOWN:
                raise
            return EntryState.GONE
        except MalformedMessage as error:
            raise _malformed_answer(f"the directory's answer can't be read: {error}") from None

    async def find_all(self, base_dn: str, wanted: pureldap.LDAPFilter, most: int) -> tuple[list[bytes], Result]:
        """Return the names of the entries that a search finds, as far as they are as many, and how it ended."""
        request = messages.search_request(self._next_number(), base_dn, wanted, self._time_limit(), most)
        entries, _, result = await self._run_search(request)
        return [entry.dn for entry in entries], result

    async def read_attribute(self, dn: bytes, attribute: str) -> tuple[AttributeValues | None, Result]:
        """Return an entry with the values of an attribute, as ``Entry.values``, and how the search ended.

        ``None`` stands for an entry that isn't shown.
        """
        request = messages.attribute_request(self._next_number(), dn, attribute, self._time_limit())
        entries, _, result = await self._run_search(request)
        if len(entries) > 1:
            raise _malformed_answer("the directory tells more than the one entry that it was asked for")
        try:
            return (AttributeValues(entries[0].dn, entries[0].values(attribute.lower())) if entries else None), result
        except MalformedMessage as error:
            raise _malformed_answer(f"the directory's answer can't be read: {error}") from None

    async def _run_search(self, request: bytes) -> tuple[list[Entry], int, Result]:
        """Return the entries that a search finds, how many references there are, and how it ended."""
        self._send_request(request)
        found: list[Entry] = []
        elsewhere = 0
        while True:
            match await self._await_answer():
                case Entry() as entry:
                    found.append(entry)
                case SearchReference():
                    elsewhere += 1
                case Result(operation=messages.SEARCH) as result:
                    return found, elsewhere, result
                case _:
                    raise _malformed_answer("the directory answers a search with something else")

    def _time_limit(self) -> int:
        return max(1, int(self.seconds_left()))

    def hang_up(self) -> None:
        """End the connection at once."""
        if self._connection is not None:
            self._connection.hang_up()

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _send_request(self, request: bytes) -> None:
        if self._inbox or self._buffer:
            raise _malformed_answer("the directory answers what it wasn't asked")
        if self._failure is None:
            assert self.transport is not None
            self.transport.write(request)

    async def _request_result(self, operation: int, request: bytes) -> Result:
        self._send_request(request)
        answer = await self._await_answer()
        if not isinstance(answer, Result) or answer.operation != operation:
            raise _malformed_answer("the directory answers another question")
        return answer

    async def _await_answer(self) -> Result | Entry | SearchReference:
        """Return the next answer to the request that was sent last."""
        if self._inbox:
            message = self._inbox.popleft()
        elif self._failure is not None:
            raise self._failure
        else:
            self._waiting = Deferred()
            message = await self.with_deadline(self._waiting)
        if message.number == 0 and isinstance(message.content, Result):
            raise Unanswered(Reason.LDAP_UNAVAILABLE, f"the directory ends the conversation: {message.content}")
        if message.number != self._number:
            raise _malformed_answer("the directory answers what it wasn't asked")
        return message.content

    def with_deadline(self, result: Deferred[T]) -> Deferred[T]:
        """Bound a result by the time for an answer."""
        return result.addTimeout(self.seconds_left(), self._clock, self._raise_timeout)

    def _raise_timeout(self, *_: object) -> Any:
        if self.secured or self._connection is None:
            raise_timeout()
        raise Unanswered(Reason.LDAP_UNAVAILABLE, "the directory took too long before TLS was up")

    def seconds_left(self) -> float:
        """Return the seconds for an answer."""
        return float(min(self._patience, max(0.0, self._deadline - self._clock.seconds())))

    def commit_to_host(self) -> None:
        """Leave all remaining time to this host: from here on no other may be tried."""
        self._patience = math.inf

    def extend_limit(self, more: int) -> None:
        """Read so many bytes more than ``CONVERSATION_LIMIT``."""
        assert self._connection is not None
        self._connection.extend_limit(more)

    def set_connection(self, line: LdapConnection) -> None:
        """Take the line that was opened for this conversation."""
        self._connection = line

    def dataReceived(self, data: bytes) -> None:
        """Parse whole messages; one that can't be parsed ends the conversation."""
        self._buffer += data
        try:
            while self._failure is None and (message := messages.first_message(self._buffer)) is not None:
                self._buffer = self._buffer[len(message) :]
                self._accept_message(messages.parse_message(message))
        except MalformedMessage as error:
            by_tls = not self.secured and self._buffer[:1] in _TLS_RECORDS
            detail = "the directory answers by TLS before it was asked for that, as a port for LDAPS does"
            why = Unanswered(Reason.LDAP_TLS_FAILED, detail) if by_tls else None
            self._fail_waiting(why or _malformed_answer(f"the directory's answer can't be read: {error}"))
            self.hang_up()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Fail the question that waits for an answer."""
        self._fail_waiting(_connection_lost(reason.value, secured=self.secured))

    def fail_over_limit(self) -> None:
        """Fail the question that waits for an answer: too much has arrived."""
        self._fail_waiting(_malformed_answer(f"the directory sent more than {CONVERSATION_LIMIT} bytes"))

    def _accept_message(self, message: LdapMessage) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            self._inbox.append(message)
        else:
            waiting.callback(message)

    def _fail_waiting(self, why: DirectoryRefused) -> None:
        self._failure = self._failure or why
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.errback(Failure(self._failure))


class LdapConnection(Protocol):
    """The connection below a conversation, which counts and encrypts its bytes (Note [One line])."""

    def __init__(self, conversation: Conversation, clock: Any, tls: IOpenSSLClientConnectionCreator | None) -> None:
        self.conversation = conversation
        self._clock = clock
        self._initial_tls = tls
        self._upper_protocol: Protocol = conversation
        self._bytes_left = CONVERSATION_LIMIT
        conversation.set_connection(self)

    def connectionMade(self) -> None:
        """Begin, with TLS where that starts with the first byte."""
        if self._initial_tls is None:
            self.conversation.makeConnection(self.transport)  # type: ignore[no-untyped-call] # Twisted's
        else:
            self.wrap_in_tls(self._initial_tls)

    def wrap_in_tls(self, tls: IOpenSSLClientConnectionCreator) -> None:
        """Put TLS between the conversation and the connection; its failure ends both."""
        factory = TLSMemoryBIOFactory(tls, True, SingleProtocolFactory(self.conversation), self._clock)
        self._upper_protocol = factory.buildProtocol(None)
        self._upper_protocol.makeConnection(self.transport)

    def dataReceived(self, data: bytes) -> None:
        """Count bytes, and pass them on or hang up."""
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            self.conversation.fail_over_limit()
            self.hang_up()
        else:
            self._upper_protocol.dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Pass it on."""
        self._upper_protocol.connectionLost(reason)

    def extend_limit(self, more: int) -> None:
        """Read so many bytes more."""
        self._bytes_left += more

    def hang_up(self) -> None:
        """End the connection at once."""
        if self.transport is not None:
            self.transport.abortConnection()  # type: ignore[attr-defined] # every connection over TCP has it


class SingleProtocolFactory(Factory):
    """A factory of one protocol that exists already."""

    noisy = False

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol

    def buildProtocol(self, addr: Any) -> Protocol:  # noqa: ARG002 (Twisted's)
        """Return it."""
        return self._protocol


def raise_timeout(*_: object) -> Any:
    """Give up.

    :raises Unanswered: always.
    """
    raise Unanswered(Reason.LDAP_UNAVAILABLE, "the directory took too long")


def demand_success(result: Result, what: str, otherwise: Reason) -> None:
    """Return when an operation succeeded.

    :raises Unanswered: the host is busy or unavailable.
    :raises DirectoryRefused: it has an error of its own; or for the reason ``otherwise``.
    """
    if result.code == messages.SUCCESS:
        return
    detail = f"{what} ended with {result}"
    if result.code in messages.TRY_OTHER_HOST:
        raise Unanswered(Reason.LDAP_UNAVAILABLE, detail)
    raise DirectoryRefused(Reason.LDAP_UNAVAILABLE if result.code in messages.SERVER_FAILURES else otherwise, detail)


def _malformed_answer(detail: str) -> DirectoryRefused:
    return DirectoryRefused(Reason.LDAP_ANSWER_MALFORMED, detail)


def _connection_lost(cause: BaseException | None, *, secured: bool) -> Unanswered:
    fault = tls_fault(cause)
    if fault is not None:
        return Unanswered(Reason.LDAP_TLS_FAILED, fault)
    suffix = f": {cause}" if isinstance(cause, ConnectionClosed) else ""
    if not secured:
        return Unanswered(Reason.LDAP_TLS_FAILED, f"the directory closed the connection before TLS was up{suffix}")
    return Unanswered(Reason.LDAP_UNAVAILABLE, f"the directory closed the connection{suffix}")

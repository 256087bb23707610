"""A directory in memory: it reads what it is asked with ldaptor, and answers as a test wants, in plain or within TLS.

``DirectoryCase`` has a client on a memory reactor. A test begins to ask, lets the connection be made to a ``Directory``, and
``run`` carries bytes to and fro until both sides are silent.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_network
from typing import Any

import attrs
from ldaptor.protocols import pureber, pureldap
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError, ConnectionDone
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.ssl import PrivateCertificate
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.authn.ldap.client import DirectoryClient
from svc.authn.ldap.refused_binds import RefusedBinds
from svc.model.ldap_directories import DirectoryRefused, LdapServer, Security
from svc.model.reasons import Reason
from svc.net.lookup import HostResolver
from svc.net.trust import client_tls
from tests.authn.providers.authority import Authority
from tests.authn.providers.names import Names

AUTHORITY = Authority()
HOST = "ldap.example"
CERTIFICATE = AUTHORITY.issue(HOST)

ALICE = b"uid=alice,ou=people,dc=example"
SERVICE = "cn=svc,dc=example"
GROUPS = "ou=groups,dc=example"

SERVER = LdapServer(
    HOST,
    389,
    Security.START_TLS,
    "ou=people,dc=example",
    "(&(objectClass=posixAccount)(uid=%s))",
    SERVICE,
    b"service password",
    AUTHORITY.pem,
)

_DECODER = pureldap.LDAPBERDecoderContext_TopLevel(
    inherit=pureldap.LDAPBERDecoderContext_LDAPMessage(
        fallback=pureldap.LDAPBERDecoderContext(fallback=pureber.BERDecoderContext()),
        inherit=pureldap.LDAPBERDecoderContext(fallback=pureber.BERDecoderContext()),
    )
)


def decoded(octets: bytes) -> tuple[Any, int]:
    """A message as ldaptor reads it, and its length."""
    message, length = pureber.berDecodeObject(_DECODER, octets)
    return message, length


def message(number: int, content: Any) -> bytes:
    """A message as ldaptor writes it."""
    written: bytes = pureldap.LDAPMessage(content, id=number).toWire()
    return written


def equality(wanted: Any, attribute: bytes) -> bytes | None:
    """The value that a filter, a comparison or some of them, asks of an attribute."""
    if isinstance(wanted, pureldap.LDAPFilter_equalityMatch):
        return bytes(wanted.assertionValue.value) if wanted.attributeDesc.value == attribute else None
    if isinstance(wanted, pureldap.LDAPFilterSet):
        return next(filter(None, (equality(part, attribute) for part in wanted)), None)
    return None


@functools.cache
def without_accents(dn: bytes) -> str:
    """A distinguished name as Active Directory compares it."""
    letters = unicodedata.normalize("NFKD", dn.decode().replace("\\,", "\\2c"))
    return "".join(letter for letter in letters if not unicodedata.combining(letter)).casefold()


@attrs.define(eq=False)
class Directory:
    """What a directory holds and how it behaves.

    ``codes`` are the results of binds, by name, that aren't those of the password.
    ``answers`` has, by the type of request, what is answered in the place of the truth: octets, as many messages as wanted,
    from the request's number. ``by_operator`` are all requests as ldaptor reads them, each with whether it came within TLS.
    """

    entries: dict[bytes, list[bytes]] = attrs.field(factory=lambda: {b"alice": [ALICE]})
    passwords: dict[bytes, bytes] = attrs.field(
        factory=lambda: {ALICE: b"alice's password", SERVICE.encode(): b"service password"}
    )
    certificate: PrivateCertificate = CERTIFICATE
    codes: dict[bytes, int] = attrs.field(factory=dict)
    #: What else is said of a bind, by name: a code, a message, and controls with their values.
    qualified: dict[bytes, tuple[int, bytes, Mapping[str, bytes | None]]] = attrs.field(factory=dict)
    answers: dict[type, Callable[[int], bytes]] = attrs.field(factory=dict)
    asked: list[tuple[Any, bool]] = attrs.field(factory=list)
    tls_from_the_start: bool = False
    greeting: bytes = b""
    #: The names of the groups that a search for groups finds, and the attributes of an entry that is asked for by its name.
    groups: list[bytes] = attrs.field(factory=list)
    attributes: list[tuple[bytes, list[bytes]]] = attrs.field(factory=list)
    groups_code: int = 0
    #: Whether an entry that is asked for by its name isn't shown.
    hidden: bool = False
    #: The SIDs of entries that are asked for by their names, in the place of ``attributes``, and of the person's groups.
    sids: dict[bytes, bytes] | None = None
    tokens: list[bytes] = attrs.field(factory=list)
    #: The attributes of entries that a search finds, by their names.
    shown: dict[bytes, list[tuple[bytes, list[bytes]]]] = attrs.field(factory=dict)

    def answer(self, request: Any, secure: bool) -> bytes:
        """Answer one message."""
        content, number = request.value, request.id
        self.asked.append((content, secure))
        other = self.answers.get(type(content))
        if other is not None:
            return other(number)
        if isinstance(content, pureldap.LDAPExtendedRequest):
            return message(number, pureldap.LDAPExtendedResponse(resultCode=0, responseName=content.requestName))
        if isinstance(content, pureldap.LDAPBindRequest):
            if content.dn in self.qualified:
                code, text, values = self.qualified[content.dn]
                controls = [(name, False, value) for name, value in values.items()]
                response = pureldap.LDAPBindResponse(resultCode=code, errorMessage=text)
                whole: bytes = pureldap.LDAPMessage(response, controls or None, number).toWire()
                return whole
            right = self.passwords.get(content.dn) == content.auth
            code = self.codes.get(content.dn, 0 if right else 49)
            return message(number, pureldap.LDAPBindResponse(resultCode=code))
        assert isinstance(content, pureldap.LDAPSearchRequest), content
        if content.baseObject == GROUPS.encode():
            return entries(*self.groups, code=self.groups_code)(number)
        if content.scope == pureldap.LDAP_SCOPE_baseObject and self.sids is not None:
            return self.sids_told(content, number)
        if content.scope == pureldap.LDAP_SCOPE_baseObject:
            told = message(number, pureldap.LDAPSearchResultEntry(content.baseObject, self.attributes))
            return (b"" if self.hidden else told) + message(
                number, pureldap.LDAPSearchResultDone(resultCode=self.groups_code)
            )
        found = self.entries.get(equality(content.filter, b"uid") or b"", [])
        wanted = set(content.attributes)
        attributes = {name: [each for each in self.shown.get(name, []) if each[0] in wanted] for name in found}
        return entries(*found, shown=attributes)(number)

    def sids_told(self, content: Any, number: int) -> bytes:
        """Answer as Active Directory does, to which names are the same whatever their accents."""
        sids = self.sids or {}
        if content.attributes == [b"tokenGroups"]:
            told: list[bytes] = [message(number, pureldap.LDAPSearchResultEntry(ALICE, [(b"tokenGroups", self.tokens)]))]
        else:
            assert content.attributes == [b"objectSid"], content.attributes
            found = [name for name in sids if without_accents(name) == without_accents(content.baseObject)]
            told = [message(number, pureldap.LDAPSearchResultEntry(name, [(b"objectSid", [sids[name]])])) for name in found]
        code = self.groups_code or (0 if told else 32)
        return b"".join([*told, message(number, pureldap.LDAPSearchResultDone(resultCode=code))])

    def kinds(self) -> list[str]:
        """What it was asked, in order."""
        return [type(request).__name__.removeprefix("LDAP").removesuffix("Request") for request, _ in self.asked]


class Serving(Protocol):
    """The directory's side of one connection."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.arrived = b""
        self.secure = False
        self.lost = False

    def dataReceived(self, data: bytes) -> None:
        """Answer each whole message."""
        self.arrived += data
        while self.arrived:
            try:
                request, length = decoded(self.arrived)
            except pureber.BERExceptionInsufficientData:
                return
            self.arrived = self.arrived[length:]
            answer = self.directory.answer(request, self.secure)
            assert self.transport is not None
            self.transport.write(answer)
            if isinstance(request.value, pureldap.LDAPExtendedRequest):
                self.wire.secure()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Note it."""
        self.lost = True

    wire: Wire


class Wire(Protocol):
    """The server's end of the wire, and who has it: the directory, or TLS between."""

    def __init__(self, serving: Serving, clock: Any) -> None:
        self.serving = serving
        self.above: Any = serving
        self.clock = clock
        serving.wire = self

    def connectionMade(self) -> None:
        """Begin."""
        assert self.transport is not None
        if self.serving.directory.greeting:
            self.transport.write(self.serving.directory.greeting)
        if self.serving.directory.tls_from_the_start:
            self.secure()
        else:
            self.serving.makeConnection(self.transport)

    def secure(self) -> None:
        """Put TLS between."""
        serving = self.serving
        serving.secure = True
        options = serving.directory.certificate.options()
        factory = TLSMemoryBIOFactory(options, False, Factory.forProtocol(lambda: serving), self.clock)
        factory.noisy = False
        self.above = factory.buildProtocol(None)
        self.above.makeConnection(self.transport)

    def dataReceived(self, data: bytes) -> None:
        """Pass it on."""
        self.above.dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Pass it on."""
        self.above.connectionLost(reason)


@attrs.define(eq=False)
class Connection:
    """One connection between the client's line and a directory, or a test that plays one by ``theirs``."""

    clock: Any
    line: Any
    ours: StringTransport
    theirs: StringTransport
    wire: Wire | None = None
    over: bool = False

    def run(self) -> None:
        """Carry bytes, until both sides are silent."""
        while not self.over and self.step():
            pass

    def step(self) -> bool:
        """Carry the bytes that are there, and return whether there may be more."""
        if self.over:
            return False
        self.clock.advance(0)
        to_directory, to_client = self.ours.value(), self.theirs.value()
        self.ours.clear()
        self.theirs.clear()
        if self.wire is not None and to_directory:
            self.wire.dataReceived(to_directory)
        if to_client and not self.ours.disconnected:
            self.line.dataReceived(to_client)
        if self.ours.disconnecting or self.ours.disconnected or self.theirs.disconnecting:
            self.close()
            return False
        return bool(to_directory or to_client or self.ours.value() or self.theirs.value())

    def close(self, cause: Exception | None = None) -> None:
        """End the connection."""
        if not self.over:
            self.over = True
            self.line.connectionLost(Failure(cause or ConnectionDone()))
            if self.wire is not None:
                self.wire.connectionLost(Failure(ConnectionDone()))


class DirectoryCase(SynchronousTestCase):
    """A client, and a directory with one person in it."""

    def setUp(self) -> None:
        """Nobody was asked, and no time has passed."""
        self.reactor: Any = MemoryReactorClock()
        self.directory = Directory()
        self.names = Names(["93.184.216.34"])
        self.begin_counting(0)

    def begin_counting(self, failures: int) -> None:
        """Make a client that knows of no refused bind, and sends so many of an entry."""
        self.binds = RefusedBinds(self.reactor, self.reactor, failures, 900.0)
        self.directories = self.client()

    def client(self, **options: Any) -> DirectoryClient:
        """A client; TLS is that of the product."""
        networks = [ip_network(text) for text in options.pop("networks", ())]
        look_ups = HostResolver(self.reactor, self.names, networks)
        guard = self.binds.make_guard(b"key")
        return DirectoryClient(self.reactor, look_ups, client_tls, **{"guard": guard, **options})

    def begin(
        self, login: str = "alice", password: bytes = b"alice's password", server: LdapServer = SERVER
    ) -> Deferred[None]:
        """Begin to ask."""
        return Deferred.fromCoroutine(self.directories.verify_password(server, login, password))

    def ask_groups(
        self,
        login: str = "alice",
        password: bytes = b"alice's password",
        server: LdapServer = SERVER,
        mapped: Sequence[str] = (),
    ) -> Deferred[Sequence[str]]:
        """Ask for groups, and carry all that is said."""
        asked = Deferred.fromCoroutine(self.directories.read_groups(server, login, password, mapped))
        self.connect().run()
        return asked

    def connect(self, directory: Directory | None = None, played: bool = False) -> Connection:
        """Let the newest connection be made, to a directory or to a test that plays one."""
        return self.connect_to(-1, directory, played)

    def connect_to(self, place: int, directory: Directory | None = None, played: bool = False) -> Connection:
        """Let the connection be made that was wanted at this place."""
        host, port, factory, _, _ = self.reactor.tcpClients[place]
        line = factory.buildProtocol(IPv4Address("TCP", host, port))
        connection = Connection(self.reactor, line, StringTransport(), StringTransport())
        if not played:
            connection.wire = Wire(Serving(directory or self.directory), self.reactor)
            connection.wire.makeConnection(connection.theirs)
        line.makeConnection(connection.ours)
        return connection

    def refuse(self) -> None:
        """Let the newest connection be refused."""
        _, _, factory, _, _ = self.reactor.tcpClients[-1]
        factory.clientConnectionFailed(self.reactor.connectors[-1], Failure(ConnectError()))

    def ask(self, *args: Any, **options: Any) -> Deferred[None]:
        """Ask the directory, and carry all that is said."""
        asked = self.begin(*args, **options)
        self.connect().run()
        return asked

    def assert_refused(self, asked: Deferred[Any], reason: Reason, *parts: str) -> DirectoryRefused:
        """It ended in a refusal for this reason that says so, shows no password, and left nothing behind."""
        refused = self.failureResultOf(asked, DirectoryRefused).value
        assert isinstance(refused, DirectoryRefused)
        self.assertEqual(refused.reason, reason, refused.detail)
        for part in parts:
            self.assertIn(part, refused.detail)
        self.assertNotIn("password'", refused.detail.replace("take the password", ""))
        self.assert_idle()
        return refused

    def assert_reason(self, asked: Deferred[Any], reason: Reason) -> None:
        """It ended in a refusal for this reason."""
        refused = self.failureResultOf(asked, DirectoryRefused).value
        assert isinstance(refused, DirectoryRefused)
        self.assertEqual(refused.reason, reason, refused.detail)

    def assert_idle(self) -> None:
        """No time runs, no connection is open and no turn is taken."""
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.assertEqual((self.directories._semaphores, self.directories._running_count), ({}, 0))


def results(*codes: int, content: type, **fields: Any) -> Callable[[int], bytes]:
    """Answers of one type, one for each code."""
    return lambda number: b"".join(message(number, content(resultCode=code, **fields)) for code in codes)


def referral(*addresses: bytes) -> Callable[[int], bytes]:
    """The answer of a search that refers to other directories, which ldaptor can't write."""

    def answer(number: int) -> bytes:
        parts = [pureber.BERSequence([pureber.BEROctetString(each) for each in addresses], tag=0xA3)] if addresses else []
        result = [pureber.BEREnumerated(10), pureber.BEROctetString(b""), pureber.BEROctetString(b""), *parts]
        done = pureber.BERSequence(result, tag=0x65)
        written: bytes = pureber.BERSequence([pureber.BERInteger(number), done]).toWire()
        return written

    return answer


def entries(
    *names: bytes, code: int = 0, shown: Mapping[bytes, list[tuple[bytes, list[bytes]]]] | None = None
) -> Callable[[int], bytes]:
    """The answer of a search; ``shown`` has the attributes of entries."""

    def answer(number: int) -> bytes:
        each = shown or {}
        found = [message(number, pureldap.LDAPSearchResultEntry(name, each.get(name, []))) for name in names]
        return b"".join([*found, message(number, pureldap.LDAPSearchResultDone(resultCode=code))])

    return answer

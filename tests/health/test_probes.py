"""Each probe finds what it is there to find."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svc.authentication import Admitted, Caller
from svc.directories import DirectoryRefused, IDirectories, LdapServer, Security
from svc.errors import AuditUnavailable, BearerRefused, StoreUnavailable, WrongDataKey
from svc.events import Server
from svc.health.probes import (
    AuditProbe,
    AuthnProbe,
    AuthzProbe,
    CoreProbe,
    DatabaseProbe,
    ExpirationProbe,
    HostFactoryProbe,
    LdapProbe,
    ProbeFailed,
    PublicKeysProbe,
)
from svc.interfaces import IDatabaseState, IProbe
from svc.journal.files import RETRY, FileSink
from svc.journal.journal import Journal
from svc.names import admin_of
from svc.reasons import Reason
from svc.tokens import SigningKey, parse_authorization
from svc.vault import CANARY, Vault
from tests.expiration.world import INTERVAL, LoopCase
from tests.health.fakes import POSITION, VAULT, FakeState
from tests.memory import Memory
from tests.memory_factories import MemoryHostFactories, MemoryPublicKeys


async def _fail() -> None:
    raise StoreUnavailable("connection refused")


@attrs.define
class FakeTokens:
    """Real tokens of the keys that it was given; ``mistaken`` makes it prove another role."""

    keys: Sequence[SigningKey]
    mistaken: bool = False
    issued: list[str] = attrs.field(factory=list)

    async def issue(self, admitted: Admitted) -> bytes:
        """Sign with the key that the identity names."""
        self.issued.append(admitted.signing_key)
        return self._key(admitted.signing_key).mint(admitted.role, 0, 480)

    async def caller(self, authorization: bytes | None) -> Caller:
        """Verify."""
        token = parse_authorization(authorization)
        read = self._key(token.key_id).verification.verify(token, 0)
        return Caller(admin_of("someone-else") if self.mistaken else read.role, read.issued_at)

    def _key(self, key_id: str) -> SigningKey:
        found = [key for key in self.keys if key.verification.key_id == key_id]
        if not found:
            raise BearerRefused("no such key")
        return found[0]


class CoreProbeTests(SynchronousTestCase):
    """The probe of ``core``."""

    def setUp(self) -> None:
        """Prepare a healthy database."""
        self.state = FakeState()
        self.probe = CoreProbe(self.state, lambda sealed: VAULT.open(CANARY, sealed))

    def check(self) -> Deferred[None]:
        """Check once."""
        return Deferred.fromCoroutine(self.probe.check())

    def test_well(self) -> None:
        """It opens the canary, and writes nothing."""
        verifyObject(IProbe, self.probe)
        verifyObject(IDatabaseState, self.state)
        self.successResultOf(self.check())
        self.assertEqual(self.state.asked, ["canary"])
        self.assertEqual(self.probe.service, "core")

    def test_canary_does_not_open(self) -> None:
        """It fails when the canary doesn't open, as after the data key was mistaken."""
        self.state.sealed = Vault(bytes([1] * 32)).seal(CANARY, b"sings")
        self.failureResultOf(self.check(), WrongDataKey)

    def test_no_answer(self) -> None:
        """It fails when the database doesn't answer."""
        self.state.work["canary"] = _fail
        self.failureResultOf(self.check(), StoreUnavailable)


class AuthnProbeTests(SynchronousTestCase):
    """The probe of ``authn``."""

    def setUp(self) -> None:
        """Prepare the keys of two accounts."""
        self.clock = Clock()
        self.keys = [SigningKey.new("one"), SigningKey.new("two")]
        self.tokens = FakeTokens(self.keys)

    async def in_use(self) -> list[Admitted]:
        """The admin of each account."""
        return [Admitted(admin_of(key.verification.account), key.verification.key_id) for key in self.keys]

    def check(self) -> Deferred[None]:
        """Check once, with a turn of the reactor after each key."""
        probe = AuthnProbe(self.in_use, self.tokens, self.clock)
        verifyObject(IProbe, probe)
        self.assertEqual(probe.service, "authn")
        checked = Deferred.fromCoroutine(probe.check())
        self.clock.pump([0.0] * len(self.keys))
        return checked

    def test_every_key(self) -> None:
        """It issues a token with each key in use and verifies it."""
        self.successResultOf(self.check())
        self.assertEqual(self.tokens.issued, [key.verification.key_id for key in self.keys])

    def test_one_key_fails(self) -> None:
        """It fails when one key of many doesn't verify what it signed."""
        self.tokens.keys = self.keys[:1]
        self.failureResultOf(self.check(), BearerRefused)

    def test_wrong_caller(self) -> None:
        """It fails when a token proves a role that it wasn't issued to."""
        self.tokens.mistaken = True
        failure = self.failureResultOf(self.check(), ProbeFailed)
        self.assertIn("one:user:admin", str(failure.value))

    def test_no_accounts(self) -> None:
        """A server without accounts is well."""
        self.keys = []
        self.successResultOf(self.check())

    def test_requests_have_their_turn(self) -> None:
        """Between two keys the reactor turns."""
        Deferred.fromCoroutine(AuthnProbe(self.in_use, self.tokens, self.clock).check())
        self.assertEqual(len(self.tokens.issued), 1)
        self.clock.advance(0)
        self.assertEqual(len(self.tokens.issued), 2)


class AuthzProbeTests(SynchronousTestCase):
    """The probe of ``authz``."""

    def test_known_answer(self) -> None:
        """It is satisfied by the right answer alone."""
        probe = AuthzProbe(FakeState())
        verifyObject(IProbe, probe)
        self.assertEqual(probe.service, "authz")
        self.successResultOf(Deferred.fromCoroutine(probe.check()))
        self.failureResultOf(Deferred.fromCoroutine(AuthzProbe(FakeState(knows=False)).check()), ProbeFailed)

    def test_no_answer(self) -> None:
        """It fails when the database doesn't answer."""
        probe = AuthzProbe(FakeState(work={"privilege_known": _fail}))
        self.failureResultOf(Deferred.fromCoroutine(probe.check()), StoreUnavailable)


class DatabaseProbeTests(SynchronousTestCase):
    """The probe of the database section."""

    def test_position(self) -> None:
        """It returns where the log stands, once a connection has answered."""
        state = FakeState()
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(DatabaseProbe(state).check())), POSITION)
        self.assertEqual(state.asked, ["connected", "position"])

    def test_no_answer(self) -> None:
        """It fails when no connection answers, and when the position can't be told."""
        for broken in ("connected", "position"):
            probe = DatabaseProbe(FakeState(work={broken: _fail}))
            self.failureResultOf(Deferred.fromCoroutine(probe.check()), StoreUnavailable)

    def test_write(self) -> None:
        """Whether it commits a write is asked by itself: it fails when it doesn't, though it can be read."""
        state = FakeState()
        self.successResultOf(Deferred.fromCoroutine(DatabaseProbe(state).write()))
        self.assertEqual(state.asked, ["transaction"])
        state.work["transaction"] = _fail
        self.failureResultOf(Deferred.fromCoroutine(DatabaseProbe(state).write()), StoreUnavailable)
        self.successResultOf(Deferred.fromCoroutine(DatabaseProbe(state).check()))


class HostFactoryProbeTests(SynchronousTestCase):
    """The probe of ``host-factory``."""

    def test_known_tokens(self) -> None:
        """It is satisfied by the right answers, and not while there are none."""
        memory = Memory()
        probe = HostFactoryProbe(MemoryHostFactories(memory))
        verifyObject(IProbe, probe)
        self.assertEqual(probe.service, "host-factory")
        self.successResultOf(Deferred.fromCoroutine(probe.check()))
        memory.down = True
        self.failureResultOf(Deferred.fromCoroutine(probe.check()), StoreUnavailable)

    def test_wrong_answers(self) -> None:
        """It fails when a token that is there isn't found, or another is."""
        self.failureResultOf(Deferred.fromCoroutine(HostFactoryProbe(Forgetful(Memory())).check()), ProbeFailed)


class AuditProbeTests(SynchronousTestCase):
    """The probe of ``audit``."""

    def test_recorded(self) -> None:
        """It is satisfied when a record was taken, not while the sink takes none, and again when it does."""
        clock, path = Clock(), Path(self.mktemp())
        sink = FileSink(clock, path)
        journal = Journal(Server("machine", "svc"), clock, [sink], refuses=True)
        journal.startService()
        self.successResultOf(Deferred.fromCoroutine(journal.open()))
        probe = AuditProbe(journal)
        verifyObject(IProbe, probe)
        self.assertEqual(probe.service, "audit")
        for expected in (1, 2):
            checked = Deferred.fromCoroutine(probe.check())
            clock.advance(0)
            self.successResultOf(checked)
            self.assertEqual(path.read_bytes().count(b"svc checked the audit"), expected)
        path.unlink()
        path.mkdir()
        sink.reopen()
        self.failureResultOf(Deferred.fromCoroutine(probe.check()), AuditUnavailable)
        path.rmdir()
        clock.advance(RETRY)
        checked = Deferred.fromCoroutine(probe.check())
        clock.advance(0)
        self.successResultOf(checked)


class PublicKeysProbeTests(SynchronousTestCase):
    """The probe of ``pubkeys``."""

    def test_known_key(self) -> None:
        """It is satisfied when the key is found, and not while there is no answer."""
        memory = Memory()
        probe = PublicKeysProbe(MemoryPublicKeys(memory))
        verifyObject(IProbe, probe)
        self.assertEqual(probe.service, "pubkeys")
        self.successResultOf(Deferred.fromCoroutine(probe.check()))
        memory.down = True
        self.failureResultOf(Deferred.fromCoroutine(probe.check()), StoreUnavailable)

    def test_wrong_answer(self) -> None:
        """It fails when the key isn't found."""
        self.failureResultOf(Deferred.fromCoroutine(PublicKeysProbe(Bare(Memory())).check()), ProbeFailed)


class Forgetful(MemoryHostFactories):
    """Host factories whose known token went."""

    async def token_known(self) -> bool:
        """It isn't there."""
        return False


class Bare(MemoryPublicKeys):
    """Public keys without the known one."""

    async def key_known(self) -> bool:
        """It isn't there."""
        return False


@implementer(IDirectories)
@attrs.define
class FakeDirectories:
    """Those at the hosts in ``down`` can't be reached; those at hosts in ``slow`` answer when the test lets them."""

    down: set[str] = attrs.field(factory=set)
    slow: dict[str, Deferred[None]] = attrs.field(factory=dict)
    reached: list[str] = attrs.field(factory=list)

    async def prove(self, server: LdapServer, login: str, password: bytes) -> None:
        """A probe has nobody's password."""
        raise NotImplementedError

    async def reach(self, server: LdapServer) -> None:
        """Answer."""
        self.reached.append(server.host)
        if server.host in self.slow:
            await self.slow[server.host]
        if server.host in self.down:
            raise DirectoryRefused(Reason.LDAP_UNAVAILABLE, "nobody there")


class LdapProbeTests(SynchronousTestCase):
    """Directories."""

    def setUp(self) -> None:
        """No directory is configured."""
        self.servers: list[tuple[str, object]] = []
        self.directories = FakeDirectories()

    async def _all(self) -> list[tuple[str, object]]:
        return self.servers

    def check(self) -> Deferred[None]:
        """Run the probe."""
        probe = LdapProbe(self._all, lambda: self.directories)
        self.assertTrue(verifyObject(IProbe, probe))
        self.assertTrue(verifyObject(IDirectories, self.directories))
        return Deferred.fromCoroutine(probe.check())

    def add(self, *hosts: str) -> None:
        """Configure directories."""
        for host in hosts:
            name = f"acme:webservice:svc/authn-ldap/{host}{len(self.servers)}"
            self.servers.append((name, LdapServer(host, 389, Security.TLS, "dc=example", "(uid=%s)")))

    def test_none(self) -> None:
        """Where no directory is configured all is well, and no client is made."""
        self.successResultOf(Deferred.fromCoroutine(LdapProbe(self._all, self.fail).check()))

    def test_all_are_reached(self) -> None:
        """Every directory is bound to, once, however many name it."""
        self.add("a", "b", "a")
        self.successResultOf(self.check())
        self.assertEqual(sorted(self.directories.reached), ["a", "b"])

    def test_one_is_down(self) -> None:
        """A directory that can't be bound to fails the probe, which names it; all were asked at once."""
        self.add("a", "b", "c")
        self.directories.down = {"b"}
        self.directories.slow = {"a": Deferred()}
        checked = self.check()
        self.assertEqual(self.directories.reached, ["a", "b", "c"])
        self.assertNoResult(checked)
        self.directories.slow["a"].callback(None)
        failure = self.failureResultOf(checked, ProbeFailed)
        self.assertIn("acme:webservice:svc/authn-ldap/b1: nobody there (ldap-unavailable)", str(failure.value))
        self.assertNotIn("authn-ldap/a", str(failure.value))

    def test_unusable(self) -> None:
        """A directory whose settings are of no use fails the probe; of many faults a few are told."""
        self.servers.append(("acme:webservice:svc/authn-ldap/x", "It is not said which directory is asked."))
        self.add(*(f"h{number}" for number in range(20)))
        self.directories.down = {f"h{number}" for number in range(20)}
        failure = self.failureResultOf(self.check(), ProbeFailed)
        self.assertIn("authn-ldap/x: It is not said", str(failure.value))
        self.assertIn("and 16 more", str(failure.value))


class ExpirationProbeTests(LoopCase):
    """The probe of ``expiration``."""

    def setUp(self) -> None:
        """Make the probe of a loop that hasn't begun."""
        super().setUp()
        self.probe = ExpirationProbe(self.loop, self.clock)

    def check(self) -> Deferred[None]:
        """Check once."""
        return Deferred.fromCoroutine(self.probe.check())

    def test_provides(self) -> None:
        """It is a probe, of the name in the report."""
        verifyObject(IProbe, self.probe)
        self.assertEqual(self.probe.service, "expiration")

    def test_before_the_first_round(self) -> None:
        """Before a round has ended it waits for that, and can be told not to."""
        given_up, checked = self.check(), self.check()
        self.memory.down = True
        self.start()
        self.assertNoResult(checked)
        given_up.cancel()
        self.failureResultOf(given_up, CancelledError)
        self.memory.down = False
        self.clock.advance(INTERVAL)
        self.successResultOf(checked)

    def test_rounds(self) -> None:
        """A loop that ends its rounds works, also where the turn is another's and where it rests beside a standby."""
        self.start()
        for others, standby in ((False, False), (True, False), (False, True)):
            self.store.others, self.memory.standby = others, standby
            self.clock.advance(INTERVAL)
            self.clock.advance(self.loop.patience - INTERVAL - 1)
            self.successResultOf(self.check())

    def test_rounds_that_fail(self) -> None:
        """A loop has failed with its last round, and works again with the next."""
        self.start()
        self.memory.down = True
        self.clock.advance(INTERVAL)
        self.memory.down = False
        self.assertIn("the last round", str(self.failureResultOf(self.check(), ProbeFailed).value))
        self.clock.advance(INTERVAL)
        self.successResultOf(self.check())

    def test_what_is_due_cannot_be_read(self) -> None:
        """A loop that can't read what is due has failed before its next round has."""
        self.start()
        self.memory.down = True
        self.failureResultOf(self.check(), StoreUnavailable)
        self.memory.down = False
        self.successResultOf(self.check())

    def test_rounds_that_hang(self) -> None:
        """A loop whose round hangs has failed, once that takes too long."""
        self.start()
        self.store.take_turn = lambda work: Deferred()  # type: ignore[method-assign, assignment, return-value]
        self.clock.advance(self.loop.patience)
        self.successResultOf(self.check())
        self.clock.advance(1)
        self.failureResultOf(self.check(), ProbeFailed)

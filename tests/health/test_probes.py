"""Each probe finds what it is there to find."""

from __future__ import annotations

from pathlib import Path

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.audit.file_sinks import RETRY_SECONDS, FileSink
from svc.audit.journal import Journal
from svc.crypto.vault import CANARY, Vault
from svc.health.probes import (
    AuditProbe,
    AuthzProbe,
    CoreProbe,
    DatabaseProbe,
    ExpirationProbe,
    HostFactoryProbe,
    ProbeFailed,
    PublicKeysProbe,
)
from svc.model.errors import AuditUnavailable, StoreUnavailable, WrongDataKey
from svc.model.events import EventSource
from svc.model.probes import IProbe
from tests.fakes import inherited_methods
from tests.health.fakes import POSITION, VAULT, FakeState
from tests.memory import Memory
from tests.memory_factories import MemoryHostFactories, MemoryPublicKeys
from tests.rotation.world import INTERVAL, LoopCase


async def _fail() -> None:
    raise StoreUnavailable("connection refused")


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
        """It opens the canary, and writes nothing (HEALTH-15)."""
        verifyObject(IProbe, self.probe)
        self.assertEqual(inherited_methods(FakeState), [])
        self.successResultOf(self.check())
        self.assertEqual(self.state.asked, ["canary"])
        self.assertEqual(self.probe.service, "core")

    def test_canary_does_not_open(self) -> None:
        """It fails when the canary doesn't open, as after the data key was mistaken (HEALTH-15)."""
        self.state.sealed = Vault(bytes([1] * 32)).seal(CANARY, b"sings")
        self.failureResultOf(self.check(), WrongDataKey)

    def test_no_answer(self) -> None:
        """It fails when the database doesn't answer."""
        self.state.work["canary"] = _fail
        self.failureResultOf(self.check(), StoreUnavailable)


class AuthzProbeTests(SynchronousTestCase):
    """The probe of ``authz``."""

    def test_known_answer(self) -> None:
        """It is satisfied by the right answer alone (HEALTH-15)."""
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
        """It returns where the log stands, once a connection has answered (HEALTH-5)."""
        state = FakeState()
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(DatabaseProbe(state).check())), POSITION)
        self.assertEqual(state.asked, ["connected", "position"])

    def test_no_answer(self) -> None:
        """It fails when no connection answers, and when the position can't be told."""
        for broken in ("connected", "position"):
            probe = DatabaseProbe(FakeState(work={broken: _fail}))
            self.failureResultOf(Deferred.fromCoroutine(probe.check()), StoreUnavailable)

    def test_write(self) -> None:
        """Whether it commits a write is asked by itself: it fails when it doesn't, though it can be read (HEALTH-15)."""
        state = FakeState()
        self.successResultOf(Deferred.fromCoroutine(DatabaseProbe(state).write()))
        self.assertEqual(state.asked, ["transaction"])
        state.work["transaction"] = _fail
        self.failureResultOf(Deferred.fromCoroutine(DatabaseProbe(state).write()), StoreUnavailable)
        self.successResultOf(Deferred.fromCoroutine(DatabaseProbe(state).check()))


class HostFactoryProbeTests(SynchronousTestCase):
    """The probe of ``host-factory``."""

    def test_known_tokens(self) -> None:
        """It is satisfied by the right answers, and not while there are none (HEALTH-15)."""
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
        """It is satisfied while the sink takes records, and asks it quietly; not while it takes none (HEALTH-15)."""
        clock, path = Clock(), Path(self.mktemp())
        sink = FileSink(clock, path)
        journal = Journal(EventSource("machine", "svc"), clock, clock, [sink], refuses=True)
        journal.startService()
        self.successResultOf(Deferred.fromCoroutine(journal.open()))
        probe = AuditProbe(journal)
        verifyObject(IProbe, probe)
        self.assertEqual(probe.service, "audit")
        for _ in range(3):
            self.successResultOf(Deferred.fromCoroutine(probe.check()))
        self.assertEqual(path.read_bytes().count(b"svc checked the audit"), 1)
        path.unlink()
        path.mkdir()
        self.failureResultOf(Deferred.fromCoroutine(probe.check()), AuditUnavailable)
        path.rmdir()
        clock.advance(RETRY_SECONDS)
        checked = Deferred.fromCoroutine(probe.check())
        clock.advance(0)
        self.successResultOf(checked)


class PublicKeysProbeTests(SynchronousTestCase):
    """The probe of ``pubkeys``."""

    def test_known_key(self) -> None:
        """It is satisfied when the key is found, and not while there is no answer (HEALTH-15)."""
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

    async def can_find_known_token(self) -> bool:
        """It isn't there."""
        return False


class Bare(MemoryPublicKeys):
    """Public keys without the known one."""

    async def can_find_known_key(self) -> bool:
        """It isn't there."""
        return False


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
        """A loop that ends its rounds works, also where the turn is another's and where it rests beside a standby
        (HEALTH-15).
        """
        self.start()
        for others, standby in ((False, False), (True, False), (False, True)):
            self.store.others, self.memory.standby = others, standby
            self.clock.advance(INTERVAL)
            self.clock.advance(self.loop.max_round_seconds - INTERVAL - 1)
            self.successResultOf(self.check())

    def test_rounds_that_fail(self) -> None:
        """A loop has failed with its last round, and works again with the next (HEALTH-15)."""
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
        self.store.run_exclusively = lambda work: Deferred()  # type: ignore[method-assign, assignment, return-value]
        self.clock.advance(self.loop.max_round_seconds)
        self.successResultOf(self.check())
        self.clock.advance(1)
        self.failureResultOf(self.check(), ProbeFailed)

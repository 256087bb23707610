"""What becomes of values and tokens by themselves, in the audit: the whole loop on the store in memory."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.audit.expiration_events import AuditedExpirations, LoggedExpirations
from svc.model.errors import AuditUnavailable
from svc.model.events import EventsQuery
from svc.model.expiration import IExpirationEvents
from svc.model.host_factories import ExpiredToken, FactoryToken, name_token
from svc.model.names import ResourceName, RoleName
from tests.chronicle import Chronicle
from tests.memory_events import MemoryEvents
from tests.rotation.world import INTERVAL, LoopCase

DAY = 86400.0


class RecordedTests(LoopCase):
    """``AuditedExpirations``."""

    def setUp(self) -> None:
        """Have the loop tell the journal as well."""
        self.journal = Chronicle()
        super().setUp()
        self.memory.since["a"] = 0

    def listener(self) -> IExpirationEvents:
        """The journal, and after it what others are told."""
        return AuditedExpirations(self.events, self.journal)

    def stored(self) -> list[tuple[str, dict[str, str]]]:
        """Operation and subject of what the account is told, the newest first."""
        listing = MemoryEvents(self.memory).list_events(EventsQuery("a"))
        found = self.successResultOf(Deferred.fromCoroutine(listing))
        return [(event.data["action"]["operation"], dict(event.data["subject"])) for event in found]

    def test_provides(self) -> None:
        """It can be told what others are told."""
        verifyObject(IExpirationEvents, self.listener())

    def test_rotation(self) -> None:
        """A rotation is recorded once it is done, and in the store with the value; the program did it (AUD-7)."""
        self.declare_door()
        self.start()
        subject = {"resource": "a:variable:house/key", "rotator": "door"}
        [(origin, event, outcome)] = self.journal.taken
        self.assertEqual((origin.user, event.user, outcome.reason), (None, "svc", None))
        self.assertEqual((event.msgid, event.operation, dict(event.subject)), ("expiration", "rotate", subject))
        self.assertEqual(event.did, "rotated a:variable:house/key by door")
        self.assertEqual(self.stored(), [("rotate", subject)])
        self.assertEqual(self.events.told, [("rotated", "house/key", "door", 2)])
        for secret in ("key 0", "key 1"):
            self.assertNotIn(secret, repr(self.journal.taken))

    def test_failure(self) -> None:
        """A rotation that fails is a failure of which the record says why; the store has nothing to keep (AUD-7)."""
        self.declare_door()
        self.door.shut = True
        self.start()
        [(_, event, outcome)] = self.journal.taken
        self.assertEqual((event.operation, outcome.reason), ("rotate", "rotation-failed"))
        self.assertEqual(event.does, "rotate a:variable:house/key by door (the door is shut)")
        self.assertEqual(self.stored(), [])

    def test_unusable(self) -> None:
        """Annotations that can't be used are a failure, whatever they are about (SEC-27)."""
        self.declare("v", b"value", expiration__ttl="soon")
        self.declare("w", b"value", rotation__rotator="none", rotation__ttl="P1D")
        self.start()
        self.assertEqual(
            [(operation, subject["resource"], reason) for _, operation, subject, reason in self.journal.told()],
            [
                ("expire", "a:variable:v", "annotations-unusable"),
                ("rotate", "a:variable:w", "rotation-failed"),
            ],
        )

    def test_expiry(self) -> None:
        """A value that ends is recorded once; that changes nothing in the store (AUD-7)."""
        self.declare("v", b"value", expiration__ttl="P1D")
        self.start()
        self.advance(DAY)
        self.advance(DAY)
        self.assertEqual(self.journal.told(), [("expiration", "expire", {"resource": "a:variable:v"}, None)])
        self.assertEqual(self.stored(), [])

    def test_tokens(self) -> None:
        """Each token of a host factory that is removed is recorded, by what it is called, and in the store too (HF-26,
        AUD-7).
        """
        self.memory.resources["a:host_factory:f"] = ("a:user:admin", None)
        for digest in (b"one", b"two"):
            self.memory.factory_tokens[digest] = FactoryToken(RoleName("a", "host_factory", "f"), 0.0)
        self.start()
        subjects = [{"resource": "a:host_factory:f", "token": name_token(digest)} for digest in (b"one", b"two")]
        self.assertEqual(self.journal.told(), [("host-factory", "expire-token", subject, None) for subject in subjects])
        self.assertEqual(self.stored(), [("expire-token", subject) for subject in reversed(subjects)])

    def test_no_journal(self) -> None:
        """While nothing can be recorded nothing is rotated and no token removed, and no round ends; then all is done
        (AUD-7).
        """
        name = self.declare_door()
        self.memory.resources["a:host_factory:f"] = ("a:user:admin", None)
        self.memory.factory_tokens[b"one"] = FactoryToken(RoleName("a", "host_factory", "f"), 0.0)
        self.journal.away = True
        self.start()
        self.assertEqual((self.door.tried, len(self.memory.factory_tokens)), (0, 1))
        self.assertIsNone(self.loop.last_round_at())
        self.journal.away = False
        self.advance(INTERVAL)
        self.assertEqual((self.value(name), len(self.memory.factory_tokens)), (b"key 1", 0))

    def test_the_journal_fails_meanwhile(self) -> None:
        """An end that couldn't be recorded is told again in the next round; a rotation isn't done twice."""

        async def refuse(*_: object) -> None:
            raise AuditUnavailable("full")

        name = self.declare_door()
        self.declare("v", b"value", expiration__ttl="PT1H")
        self.start()
        self.journal.told()
        patched = self.patch(self.journal, "record_events", refuse)
        self.advance(DAY)
        self.assertEqual(self.journal.told(), [])
        patched.restore()
        self.advance(INTERVAL)
        self.advance(INTERVAL)
        self.assertEqual([event[1] for event in self.journal.told()], ["expire"])
        self.assertEqual((self.door.key, self.value(name), self.door.made), (b"key 2", b"key 2", 2))


class LoggedTests(SynchronousTestCase):
    """``LoggedExpirations``."""

    def test_what_became_of_values(self) -> None:
        """Each event names its variable, on one line, and holds no value."""
        logged = LoggedExpirations()
        verifyObject(IExpirationEvents, logged)
        variable = ResourceName("acct", "variable", "db/pass\nword")
        with capturedLogs() as events:
            self.tell(logged.record_expiration(variable, 5.0))
            self.tell(logged.record_rotation(variable, "postgresql/password", 3))
            self.tell(logged.record_failure(variable, "postgresql/password", "the server\nrefused"))
            self.tell(logged.record_failure(variable, None, "no duration"))
            self.tell(logged.record_removal([ExpiredToken("sha256:1", RoleName("acct", "host_factory", "f"))]))
        self.assertEqual(
            [formatEvent(event) for event in events],
            [
                "The value of acct:variable:db/pass\\nword expired",
                "postgresql/password rotated acct:variable:db/pass\\nword to version 3",
                "postgresql/password did not rotate acct:variable:db/pass\\nword: the server\\nrefused",
                "- did not rotate acct:variable:db/pass\\nword: no duration",
                "1 tokens of host factories had expired and were removed",
            ],
        )

    def tell(self, telling: Coroutine[Any, Any, None]) -> None:
        """Note it: the log needs no transaction."""
        self.successResultOf(Deferred.fromCoroutine(telling))

"""Tests of ``svc.rotation.rotation_loop``, ``plans`` and ``rotation``: the whole loop on the store in memory."""

from __future__ import annotations

from math import inf

from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from svc.model.errors import StoreUnavailable
from svc.model.expiration import Duration, IExpirationEvents, IRotator, RoundOwner
from svc.model.host_factories import FactoryToken
from svc.model.names import RoleName
from svc.model.query_results import Sealed
from svc.rotation.plans import ExpirationPlan, RotationPlan, UnusablePlan, find_rotation_fault, parse_plan
from svc.rotation.rotation_loop import BATCH, RETRY_SECONDS
from svc.rotation.runner import DEADLINE, FIRST_PAUSE, LEASE_SECONDS, LONGEST_PAUSE, pause_after
from tests.rotation.world import INTERVAL, Door, Events, LoopCase

DAY = 86400.0


class EndingTests(LoopCase):
    """Values that end."""

    def test_provides(self) -> None:
        """The door is a rotator, and what it is told to are events."""
        verifyObject(IRotator, Door())
        verifyObject(IExpirationEvents, Events())

    def test_an_annotation_that_came_later(self) -> None:
        """A value that was there before the annotation ends so long after it was set, and that is told once (SEC-24)."""
        self.declare("v", b"value", expiration__ttl="P1D")
        end = self.memory.now + DAY
        self.start()
        self.assertEqual(self.memory.lives["a:variable:v", 1][1], end)
        self.assertEqual(self.memory.expirations["a:variable:v"].due_at, end)
        self.advance(DAY - 1)
        self.assertEqual(self.events.told, [])
        self.advance(INTERVAL)
        self.advance(INTERVAL)
        self.assertEqual(self.events.told, [("expired", "v", end)])
        self.assertEqual(self.memory.expirations["a:variable:v"].due_at, inf)

    def test_an_old_value(self) -> None:
        """A value that is older than the annotation lets it be has ended as soon as the loop looks (SEC-24)."""
        self.declare("v", b"value", expiration__ttl="PT1H")
        self.advance(7200)
        self.start()
        self.assertEqual([event[0] for event in self.events.told], ["expired"])

    def test_no_annotation_any_more(self) -> None:
        """When the annotation goes, values don't end any more (SEC-24)."""
        self.declare("v", b"value", expiration__ttl="P1D")
        self.start()
        del self.memory.annotations["a:variable:v", "expiration/ttl"]
        self.advance(INTERVAL)
        self.assertIsNone(self.memory.lives["a:variable:v", 1][1])
        self.advance(2 * DAY)
        self.assertEqual(self.events.told, [])

    def test_annotations_that_cannot_be_used(self) -> None:
        """A bad annotation is told once, on the resource and to the log, and values are left as they are (SEC-27)."""
        self.declare("v", b"value", expiration__ttl="soon")
        self.declare("w", b"value", rotation__rotator="none", rotation__ttl="P1D")
        self.declare("x", b"value", rotation__rotator="door")
        self.start()
        self.advance(DAY)
        self.assertEqual(
            [event[:3] for event in self.events.told],
            [("failed", "v", None), ("failed", "w", "none"), ("failed", "x", "door")],
        )
        faults = [self.memory.expirations[f"a:variable:{name}"].fault or "" for name in "vwx"]
        self.assertIn("ISO 8601", faults[0])
        self.assertIn("there are: door", faults[1])
        self.assertIn("rotation/ttl is missing", faults[2])
        self.memory.annotations["a:variable:v", "expiration/ttl"] = ("P1D", None)
        self.advance(INTERVAL)
        self.assertIsNone(self.memory.expirations["a:variable:v"].fault)

    def test_too_often(self) -> None:
        """A value is rotated once a second at most: what asks for more would fill the disk with records (SEC-28)."""
        hasty, quick = (
            self.declare_door(branch, rotation__ttl=ttl) for branch, ttl in (("a", "PT0.999999S"), ("b", "PT1S"))
        )
        self.start()
        self.advance(INTERVAL)
        self.assertEqual({event[:2] for event in self.events.told}, {("failed", "a/key"), ("rotated", "b/key")})
        self.assertIn("at least PT1S", self.memory.expirations[hasty].fault or "")
        self.assertIsNone(self.memory.expirations[quick].fault)

    def test_tokens_of_host_factories(self) -> None:
        """Tokens of host factories that have expired are removed, and no others (HF-26)."""
        self.memory.resources["a:host_factory:f"] = ("a:user:admin", None)
        factory = RoleName("a", "host_factory", "f")
        for digest, seconds in ((b"old", -1.0), (b"new", 5.0)):
            self.memory.factory_tokens[digest] = FactoryToken(factory, self.memory.now + seconds)
        self.start()
        self.assertEqual(list(self.memory.factory_tokens), [b"new"])
        self.advance(INTERVAL)
        self.assertEqual(list(self.memory.factory_tokens), [])
        self.assertEqual(self.events.told, 2 * [("removed", 1)])
        for number in range(5):
            self.memory.factory_tokens[b"%d" % number] = FactoryToken(factory, self.memory.now)
        self.advance(INTERVAL)
        self.assertEqual(list(self.memory.factory_tokens), [])

    def test_tokens_when_the_machines_clock_was_set(self) -> None:
        """Whether a token of a host factory has expired is told by the time of day, wherever the loop's own clock began."""
        self.memory.resources["a:host_factory:f"] = ("a:user:admin", None)
        self.memory.factory_tokens[b"new"] = FactoryToken(RoleName("a", "host_factory", "f"), self.memory.now + DAY)
        self.wall.ahead = -10 * DAY
        self.clock.advance(10 * DAY)
        self.start()
        self.assertEqual(list(self.memory.factory_tokens), [b"new"])
        self.wall.ahead = 0.0
        self.advance(INTERVAL)
        self.assertEqual(list(self.memory.factory_tokens), [])


class RotatingTests(LoopCase):
    """Values that are rotated."""

    def test_rotation(self) -> None:
        """A value that was never rotated is at once, and again after each interval; the old versions stay (SEC-28)."""
        name = self.declare_door()
        self.start()
        self.assertEqual((self.door.key, self.value(name)), (b"key 1", b"key 1"))
        self.assertEqual(self.events.told, [("rotated", "house/key", "door", 2)])
        self.assertEqual(self.memory.expirations[name].due_at, self.memory.now + DAY)
        self.advance(DAY - 1)
        self.assertEqual(self.door.tried, 1)
        self.advance(INTERVAL)
        self.assertEqual((self.door.key, self.value(name)), (b"key 2", b"key 2"))
        self.assertEqual(len(self.memory.secrets[name]), 3)
        self.assertIsNone(self.memory.expirations[name].candidate)

    def test_set_by_hand(self) -> None:
        """A value that somebody sets is rotated in the next round: that person knows it (SEC-28)."""
        name = self.declare_door()
        self.start()
        self.door.key = b"by hand"
        self.memory.add_value(name, self.vault.seal(name, b"by hand"))
        self.advance(INTERVAL)
        self.assertEqual(self.door.key, self.value(name))
        self.assertNotEqual(self.door.key, b"by hand")

    def test_failures(self) -> None:
        """A rotation that fails is tried again, each time after a longer pause, with its fault told; the value stays
        (SEC-30).
        """
        name = self.declare_door()
        self.door.shut = True
        self.start()
        row = self.memory.expirations[name]
        self.assertEqual((row.failures, row.fault, row.due_at), (1, "the door is shut", self.memory.now + FIRST_PAUSE))
        self.advance(INTERVAL)
        row = self.memory.expirations[name]
        self.assertEqual((row.failures, row.due_at), (2, self.memory.now + 2 * FIRST_PAUSE))
        self.assertEqual(self.value(name), b"key 0")
        self.assertEqual(self.events.told, 2 * [("failed", "house/key", "door", "the door is shut")])
        self.door.shut = False
        self.advance(INTERVAL)
        self.advance(INTERVAL)
        row = self.memory.expirations[name]
        self.assertEqual((row.failures, row.fault), (0, None))
        self.assertEqual(self.door.key, self.value(name))

    def test_pauses(self) -> None:
        """Pauses double, and have an end (SEC-30)."""
        self.assertEqual([pause_after(count) for count in (0, 1, 2)], [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE])
        self.assertEqual(pause_after(10**9), LONGEST_PAUSE)

    def test_what_is_missing(self) -> None:
        """A rotation that lacks a value to begin with, a neighbour or a policy to stand in says so (SEC-32)."""
        self.declare_door("a", None)
        self.declare("b/key", b"x", rotation__rotator="door", rotation__ttl="P1D")
        self.declare("key", b"x", rotation__rotator="door", rotation__ttl="P1D")
        self.declare("place", b"here")
        binary = self.declare_door("c")
        self.memory.add_value("a:variable:c/place", self.vault.seal("a:variable:c/place", b"\xff"))
        broken = self.declare_door("d")
        self.memory.secrets[broken][1] = (1, Sealed(b"broken"))
        self.start()
        faults = {name: row.fault or "" for name, row in self.memory.expirations.items()}
        self.assertIn("no value yet", faults["a:variable:a/key"])
        self.assertIn("a value of place", faults["a:variable:b/key"])
        self.assertIn("in a policy, beside place", faults["a:variable:key"])
        self.assertIn("UTF-8", faults[binary])
        self.assertIn("data key", faults[broken])
        self.assertEqual(self.door.tried, 0)

    def test_a_commit_that_fails(self) -> None:
        """A value that is in force, and whose commit failed, is promoted by the next attempt; until then it is kept
        (SEC-31).
        """
        name = self.declare_door()
        self.store.failing, self.store.error = "promote", StoreUnavailable("connection lost")
        self.start()
        self.assertEqual((self.door.key, self.value(name)), (b"key 1", b"key 0"))
        self.store.failing = ""
        self.advance(INTERVAL)
        self.assertEqual(self.value(name), b"key 0")
        self.advance(LEASE_SECONDS)
        self.assertEqual((self.door.key, self.value(name)), (b"key 1", b"key 1"))
        self.assertEqual(len(self.memory.secrets[name]), 2)

    def test_set_by_hand_while_nobody_knows(self) -> None:
        """A value that is set by hand doesn't take away the only one that opens the door."""
        name = self.declare_door()
        self.store.failing, self.store.error = "promote", StoreUnavailable("connection lost")
        self.start()
        self.store.failing = ""
        self.memory.add_value(name, self.vault.seal(name, b"a guess"))
        self.advance(INTERVAL)
        self.assertEqual((self.door.key, self.value(name)), (b"key 1", b"key 1"))

    def test_a_rotator_that_hangs(self) -> None:
        """A rotator that hangs, and doesn't heed that it is told to stop, holds up neither others nor the loop (SEC-30)."""
        name = self.declare_door()
        self.declare("v", b"value", expiration__ttl="PT1S")
        self.door.stuck = True
        self.start()
        self.assertIsNone(self.loop.last_round_at())
        self.assertIsNotNone(self.memory.lives["a:variable:v", 1][1])
        self.advance(DEADLINE)
        self.assertEqual(self.loop.last_round_at(), self.clock.seconds())
        self.assertEqual(self.memory.expirations[name].failures, 1)
        self.assertIn("longer than 10 seconds", self.memory.expirations[name].fault or "")
        self.advance(INTERVAL)
        self.assertIn("expired", [event[0] for event in self.events.told])

    def test_a_late_end(self) -> None:
        """A rotator that ends after its time has changed nothing of what was noted, and the next attempt finds its work."""
        name = self.declare_door()
        self.door.stuck = True
        self.start()
        self.advance(DEADLINE)
        self.door.stuck = False
        for waiting in self.door.waiting:
            if not waiting.called:
                waiting.callback(None)
        self.assertEqual((self.door.key, self.value(name)), (b"key 1", b"key 0"))
        self.advance(FIRST_PAUSE)
        self.assertEqual(self.value(name), b"key 1")

    def test_a_stop(self) -> None:
        """A stop breaks off what hangs, and ends when the round has; the next start takes the kept value up again."""
        name = self.declare_door()
        self.door.stuck = True
        self.loop.startService()
        stopped = self.loop.stopService()
        assert isinstance(stopped, Deferred)
        self.successResultOf(stopped)
        self.assertIn("stopped", self.memory.expirations[name].fault or "")
        self.assertIsNotNone(self.memory.expirations[name].candidate)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_an_interval_that_changes(self) -> None:
        """A new interval counts from when the value was set."""
        name = self.declare_door()
        self.start()
        set_at = self.memory.now
        self.memory.annotations[name, "rotation/ttl"] = ("PT1H", None)
        self.advance(INTERVAL)
        self.assertEqual(self.memory.expirations[name].due_at, set_at + 3600)


class LoopTests(LoopCase):
    """The loop itself."""

    def test_turns(self) -> None:
        """While it is another server's turn, or the database is a standby, nothing is done, and that is a round (SEC-29,
        CLU-7).
        """
        name = self.declare_door()
        for others, standby in ((True, False), (False, True)):
            self.store.others, self.memory.standby = others, standby
            self.loop = self.make_loop()
            self.start()
            self.assertEqual(self.loop.last_round_at(), self.clock.seconds())
            self.assertEqual(self.value(name), b"key 0")
        self.store.others = self.memory.standby = False
        self.advance(INTERVAL)
        self.assertEqual(self.value(name), b"key 1")

    def test_another_primary(self) -> None:
        """While another primary forbids writes nothing is rotated, and the round has failed (SEC-29)."""
        name = self.declare_door()
        self.contested = True
        self.start()
        self.assertEqual(self.value(name), b"key 0")
        self.assertIn("the server b", self.loop.failure or "")
        self.contested = False
        self.advance(INTERVAL)
        self.assertIsNone(self.loop.failure)
        self.assertEqual(self.value(name), b"key 1")

    def test_a_database_that_is_away(self) -> None:
        """While the database is away no round ends, and when it is back the loop goes on at once."""
        name = self.declare_door()
        self.memory.down = True
        self.start()
        self.advance(INTERVAL)
        self.assertIsNone(self.loop.last_round_at())
        self.memory.down = False
        self.advance(RETRY_SECONDS)
        self.assertEqual(self.loop.last_round_at(), self.clock.seconds())
        self.assertIsNone(self.loop.failure)
        self.assertEqual(self.value(name), b"key 1")
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)

    def test_a_database_that_hangs(self) -> None:
        """Rounds that fail follow each other one at a time, however long each takes, and none follows a stop."""
        self.memory.down = True
        self.start()
        waiting: list[Deferred[None]] = []

        async def hang(_: object) -> RoundOwner:
            waiting.append(Deferred())
            await waiting[-1]
            raise StoreUnavailable("no answer")

        self.patch(type(self.store), "run_exclusively", lambda _, work: hang(work))
        self.advance(RETRY_SECONDS)
        self.advance(3 * INTERVAL)
        self.assertEqual(len(waiting), 1)
        waiting[0].callback(None)
        self.advance(RETRY_SECONDS)
        self.assertEqual(len(waiting), 2)
        stopped = self.loop.stopService()
        assert stopped is not None
        waiting[1].callback(None)
        self.successResultOf(stopped)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_faults_of_one(self) -> None:
        """What a variable meets with, a fault in the program even, is not its neighbours' trouble, and is tried again."""
        self.store.failing = "rest"
        self.declare("v", b"value", expiration__ttl="bad")
        name = self.declare_door()
        self.start()
        self.assertEqual(self.value(name), b"key 1")
        self.assertEqual(len(self.flushLoggedErrors(Exception)), 1)
        self.assertEqual(self.loop.last_round_at(), self.clock.seconds())
        self.store.failing = ""
        self.advance(INTERVAL)
        self.assertIsNotNone(self.memory.expirations["a:variable:v"].fault)

    def test_faults_of_the_store(self) -> None:
        """A fault in the program ends the round and not the loop."""

        async def fail(*_: object) -> int:
            raise ZeroDivisionError

        self.patch(type(self.factories), "remove_expired", fail)
        self.start()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertIsNone(self.loop.last_round_at())
        for _ in range(2):
            self.advance(INTERVAL)
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_very_many(self) -> None:
        """However many are due, all are seen to, a batch at a time."""
        for number in range(3 * BATCH + 1):
            self.declare(f"v{number}", b"value", expiration__ttl="P1D")
        self.start()
        self.assertEqual([row.due_at for row in self.memory.expirations.values()], (3 * BATCH + 1) * [self.memory.now + DAY])


class PlanTests(LoopCase):
    """What annotations mean."""

    def test_plans(self) -> None:
        """A rotator counts before a lifetime, and what can't be used is told with the name of the annotation (SEC-27,
        SEC-28).
        """
        rotators = {"door": self.door}
        self.assertEqual(parse_plan({}, rotators), ExpirationPlan(None))
        self.assertEqual(parse_plan({"rotation/ttl": "P1D"}, rotators), ExpirationPlan(None))
        self.assertEqual(parse_plan({"expiration/ttl": "P1D"}, rotators), ExpirationPlan(Duration(days=1)))
        rotated = {"expiration/ttl": "P1D", "rotation/rotator": "door", "rotation/ttl": "P2D"}
        self.assertEqual(parse_plan(rotated, rotators), RotationPlan(self.door, Duration(days=2)))
        for bad, named in (
            ({"expiration/ttl": ""}, "expiration/ttl"),
            ({"rotation/rotator": "", "rotation/ttl": "P1D"}, "rotation/rotator"),
            ({"rotation/rotator": "door", "rotation/ttl": "often"}, "rotation/ttl"),
            ({"rotation/rotator": "door", "rotation/ttl": "PT0.999999S"}, "rotation/ttl must be at least PT1S"),
            ({**rotated, "rotation/door/bad": "x"}, "rotation/door/bad"),
        ):
            plan = parse_plan(bad, rotators)
            assert isinstance(plan, UnusablePlan)
            self.assertIn(named, plan.fault)

    def test_rotation_faults(self) -> None:
        """A variable can be rotated if its annotations are a plan of rotation; otherwise the fault names the missing part,
        and the rotators where they name none (SEC-25).
        """
        usable = {"rotation/rotator": "door", "rotation/ttl": "P2D"}
        for given, fault in (
            (usable, None),
            ({**usable, "expiration/ttl": "rubbish"}, None),
            ({}, "it has no annotation rotation/rotator; there are: door"),
            ({"expiration/ttl": "rubbish"}, "it has no annotation rotation/rotator; there are: door"),
            ({**usable, "rotation/rotator": "window"}, "rotation/rotator names no rotator; there are: door"),
            ({"rotation/rotator": "door"}, "rotation/ttl is missing: it says how often the value is replaced, such as P30D"),
        ):
            self.assertEqual(find_rotation_fault(given, {"door": self.door}), fault)

"""Tests of ``svc.web.routes.watches``, and of the use case."""

from __future__ import annotations

import itertools
import json
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from svc.model.dialect import CONJUR
from svc.model.names import RoleName
from svc.model.query_results import Caller
from svc.services.watches import HEARTBEAT, WatchEnded, Watches
from svc.web.routes.watches import SecretWatches
from tests.memory import MemorySecrets
from tests.memory_reads import uncounted
from tests.web.support import Client, Connection
from tests.web.world import ADMIN, Changes, WorldCase, user

ALICE, BOB, EVE = user("alice"), user("bob"), user("eve")

POLICY: Final = """
- !user alice
- !user bob
- !user eve
- !variable password
- !variable key
- !variable hidden
- !permit { role: !user alice, privileges: [ read, execute ], resources: [ !variable password, !variable key ] }
- !permit { role: !user bob, privileges: [ read, execute ], resource: !variable key }
- !permit { role: !user bob, privileges: [ read ], resource: !variable password }
"""

PASSWORD, KEY, HIDDEN = (f"acme:variable:{name}" for name in ("password", "key", "hidden"))

Event = tuple[str, Any]


class Stream:
    """What a client reads of a stream."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.last: str | None = None
        self._begun = False

    def read(self) -> list[Event]:
        """The events since the last time, each with its name and data; a comment is one without a name."""
        raw = self.connection.received()
        if not self._begun:
            head, _, raw = raw.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            assert b"Content-Type: text/event-stream\r\n" in head, head
            self._begun = True
        text = b""
        while raw:
            size, _, raw = raw.partition(b"\r\n")
            text, raw = text + raw[: int(size, 16)], raw[int(size, 16) + 2 :]
        events: list[Event] = []
        for block in text.decode("ascii").split("\n\n")[:-1]:
            fields = dict(line.split(":", 1) for line in block.split("\n"))
            self.last = fields.get("id", " " + (self.last or "")).strip() or None
            events.append((fields.get("event", "").strip(), json.loads(fields["data"]) if "data" in fields else None))
        return events


class WatchesTests(WorldCase):
    """Watches over HTTP."""

    def setUp(self) -> None:
        """Load a policy with variables, and set one."""
        super().setUp()
        self.load(POLICY)
        self.set_value("password")
        self.journal.told()

    def begin(self, *ids: str, role: RoleName = ALICE, last: str | None = None) -> Stream:
        """Begin to watch."""
        headers = [] if last is None else [("Last-Event-ID", last)]
        return Stream(self.client.begin("GET", f"/secrets/watch?variable_ids={','.join(ids)}", role=role, headers=headers))

    def set_and_tell(self, name: str, value: bytes) -> None:
        """Set a value, and have it told of."""
        self.set_value(name, value)
        self.changes.tell(f"acme:variable:{name}")

    def test_versions(self) -> None:
        """A watch tells the numbers of all versions at first, then of each new one, and never a value (SEC-47, SEC-48)."""
        stream = self.begin(PASSWORD, KEY)
        self.assertEqual(stream.read(), [("versions", {PASSWORD: 1, KEY: None})])
        self.set_and_tell("key", b"one")
        self.assertEqual(stream.read(), [("versions", {KEY: 1})])
        self.set_and_tell("hidden", b"one")
        self.changes.tell(PASSWORD)
        self.assertEqual(stream.read(), [])
        self.set_value("password", b"two")
        self.set_value("password", b"three")
        self.changes.tell(PASSWORD, KEY)
        self.assertEqual(stream.read(), [("versions", {PASSWORD: 3})])

    def test_refused(self) -> None:
        """Who may not read one is refused as for a batch, and what is hidden and what isn't there are alike (SEC-47)."""
        for role, ids, status in (
            (BOB, [HIDDEN, PASSWORD, KEY], 403),
            (ALICE, [KEY, HIDDEN], 404),
            (ALICE, [KEY, "acme:variable:none"], 404),
            (ALICE, ["x"], 404),
            (EVE, [KEY], 404),
            (user("gone"), [KEY], 403),
        ):
            for last in (None, "x"):
                headers = [] if last is None else [("Last-Event-ID", last)]
                answer = self.client.get(f"/secrets/watch?variable_ids={','.join(ids)}", role=role, headers=headers)
                self.assertEqual(answer.status, status, (role, ids))
        hidden, missing = (
            self.client.get(f"/secrets/watch?variable_ids=acme:variable:{name}", role=ALICE).body
            for name in ("hidden", "hiddes")
        )
        self.assertEqual(hidden.replace(b"hidden", b"hiddes"), missing)
        self.assertEqual(self.client.get("/secrets/watch?variable_ids=x").status, 401)
        for query in ("", "?variable_ids=", "?variable_ids=a,,b", "?variable_ids=" + ",".join(map(str, range(1001)))):
            self.error(self.client.get(f"/secrets/watch{query}", role=ALICE), 422, "argument_error")
        self.assertEqual(self.changes.followers, [])

    def test_head(self) -> None:
        """``HEAD`` answers without a stream."""
        self.assertEqual(self.client.head(f"/secrets/watch?variable_ids={KEY}", role=ALICE).status, 200)
        self.assertEqual(len(self.watches), 0)

    def test_resumed(self) -> None:
        """A client that names the last event which it had is told nothing that it knows, and everything where something is
        new (SEC-49).
        """
        stream = self.begin(PASSWORD, KEY)
        stream.read()
        self.set_and_tell("key", b"one")
        stream.read()
        last = stream.last
        stream.connection.leave()
        self.assertEqual(len(self.watches), 0)
        again = self.begin(PASSWORD, KEY, last=last)
        self.assertEqual(again.read(), [("", None)])
        self.set_and_tell("password", b"two")
        self.assertEqual(again.read(), [("versions", {PASSWORD: 2})])
        again.connection.leave()
        third = self.begin(PASSWORD, KEY, last=last)
        self.assertEqual(third.read(), [("versions", {PASSWORD: 2, KEY: 1})])
        self.assertEqual(self.begin(PASSWORD, KEY, last="nonsense").read(), [("versions", {PASSWORD: 2, KEY: 1})])
        self.assertEqual(third.last, again.last)

    def test_another_life(self) -> None:
        """A version of the same number of a variable that was deleted and made again is a new one (SEC-49)."""
        stream = self.begin(PASSWORD, role=ADMIN)
        stream.read()
        last = stream.last
        self.load("- !delete { record: !variable password }", method="PATCH")
        self.changes.tell(PASSWORD)
        self.assertEqual(stream.read(), [("gone", [PASSWORD])])
        self.load(POLICY)
        self.set_and_tell("password", b"value")
        self.assertEqual(stream.read(), [("versions", {PASSWORD: 1})])
        self.assertNotEqual(stream.last, last)

    def test_privileges(self) -> None:
        """Whether the caller may read is decided for each event: after a revocation it is told that the secret is gone, as
        when that was deleted, and no versions (SEC-50).
        """
        stream, other = self.begin(PASSWORD, KEY), self.begin(KEY, role=BOB)
        stream.read(), other.read()
        self.load("- !deny { role: !user alice, privilege: execute, resource: !variable key }", method="PATCH")
        self.set_and_tell("key", b"two")
        self.assertEqual((stream.read(), other.read()), ([("gone", [KEY])], [("versions", {KEY: 1})]))
        self.set_and_tell("key", b"three")
        self.assertEqual((stream.read(), other.read()), ([], [("versions", {KEY: 2})]))
        self.load("- !permit { role: !user alice, privilege: execute, resource: !variable key }")
        self.changes.tell(KEY)
        self.assertEqual(stream.read(), [("versions", {KEY: 2})])

    def test_whole_accounts(self) -> None:
        """A change that doesn't name what it touched has all looked at again (SEC-48)."""
        stream = self.begin(PASSWORD, KEY)
        stream.read()
        whole: list[dict[str, Any]] = [{"accounts": ["acme"]}, {"everything": True}]
        for number, told in enumerate(whole, 2):
            self.set_value("password", b"%d" % number)
            self.changes.tell(accounts=["other"])
            self.assertEqual(stream.read(), [])
            self.changes.tell(**told)
            self.assertEqual(stream.read(), [("versions", {PASSWORD: number})])

    def test_deleted_role(self) -> None:
        """A watch ends when its role is deleted, or its tokens are revoked (SEC-51)."""
        for role, policy in ((ALICE, "- !delete { record: !user alice }"), (BOB, "- !delete { record: !user bob }\n")):
            stream = self.begin(KEY, role=role)
            stream.read()
            self.load(policy, method="PATCH")
            self.changes.tell(str(role))
            self.assertEqual(stream.read(), [("end", {"reason": "role"})])
            if role == BOB:
                self.load("- !user bob")
        stream = self.begin(KEY, role=ADMIN)
        stream.read()
        self.memory.creations[str(ADMIN)] = 7
        self.changes.tell(accounts=["acme"])
        self.assertEqual(stream.read(), [("end", {"reason": "role"})])
        self.assertEqual((len(self.watches), self.changes.followers), (0, []))

    def test_drain(self) -> None:
        """Watches end when the server drains, and it takes no more (SEC-51)."""
        stream = self.begin(KEY)
        stream.read()
        self.watches.stopService()
        raw = stream.connection.received()
        self.assertTrue(raw.endswith(b"0\r\n\r\n"), raw)
        self.assertIn(b'event: end\ndata: {"reason":"drain"}\n\n', raw)
        self.assertEqual(self.client.get(f"/secrets/watch?variable_ids={KEY}", role=ALICE).status, 503)

    def test_heartbeats(self) -> None:
        """A watch that has nothing to tell shows a sign of life from time to time (SEC-52)."""
        stream = self.begin(KEY)
        stream.read()
        for _ in range(3):
            for _ in range(int(HEARTBEAT)):
                self.assertEqual(stream.read(), [])
                self.client.clock.advance(1)
            self.assertEqual(stream.read(), [("", None)])

    def test_heartbeats_are_in_time(self) -> None:
        """Less than 15 seconds pass from one sign of life to the next, whenever the look at it comes (SEC-52)."""
        stream = self.begin(KEY)
        stream.read()
        silent = 0.0
        for _ in range(100):
            # A reactor that is busy is late.
            self.client.clock.advance(1.37)
            silent = 0.0 if stream.read() else silent + 1.37
            self.assertLess(silent, 14)

    def test_slow_readers(self) -> None:
        """A client that takes nothing is owed one number for each secret at most, and is cut off like any (SEC-52)."""
        stream = self.begin(PASSWORD)
        stream.read()
        stream.connection.stall()
        for number in range(2, 50):
            self.set_and_tell("password", b"%d" % number)
            self.client.clock.advance(1)
        self.assertLess(len(stream.connection.sent), 500)
        stream.connection.resume()
        self.assertEqual(stream.read()[-1], ("versions", {PASSWORD: 49}))
        stream.connection.stall()
        self.set_and_tell("password", b"more")
        self.client.clock.advance(100)
        self.client.clock.advance(10)
        self.assertEqual((stream.connection.open, len(self.watches)), (False, 0))

    def test_too_many(self) -> None:
        """There are only so many watches at a time (SEC-52)."""
        streams = [self.begin(KEY) for _ in range(3)]
        self.error(self.client.get(f"/secrets/watch?variable_ids={KEY}", role=ALICE), 503, "unavailable")
        streams[0].connection.leave()
        self.assertEqual(self.begin(KEY).read(), [("versions", {KEY: None})])

    def test_questions(self) -> None:
        """A change is one question for each caller that watches it, however many watch, and none for others (SEC-52)."""
        asked = 0
        ask = self.memory.ask

        def counted() -> None:
            nonlocal asked
            asked += 1
            ask()

        streams = [self.begin(KEY), self.begin(KEY), self.begin(PASSWORD)]
        for stream in streams:
            stream.read()
        self.set_value("key", b"one")
        self.patch(type(self.memory), "ask", lambda _: counted())
        self.changes.tell(KEY)
        self.assertEqual([stream.read() for stream in streams], [[("versions", {KEY: 1})]] * 2 + [[]])
        self.assertEqual(asked, 1)

    def test_outage(self) -> None:
        """While the database is away nothing is told, and nothing is missed (SEC-52)."""
        stream = self.begin(KEY)
        stream.read()
        self.set_value("key", b"one")
        self.memory.down = True
        self.changes.tell(KEY)
        self.client.clock.pump([1] * 5)
        self.assertEqual(stream.read(), [])
        self.memory.down = False
        self.client.clock.advance(1)
        self.assertEqual(stream.read(), [("versions", {KEY: 1})])

    def test_audit(self) -> None:
        """The beginning of a watch has a record for each secret, also of one that is refused (SEC-53)."""
        self.begin(PASSWORD, KEY).read()
        self.assertEqual(self.journal.told(), [("watch", "watch", {"resource": full}, None) for full in (PASSWORD, KEY)])
        self.client.get(f"/secrets/watch?variable_ids={HIDDEN}", role=ALICE)
        self.assertEqual(self.journal.told(), [("watch", "watch", {"resource": HIDDEN}, "forbidden")])

    def test_no_memory(self) -> None:
        """A server that asks the database each time follows no changes, and says so (SEC-47)."""
        client = Client(SecretWatches(Watches(Clock(), Clock(), None, MemorySecrets(self.memory), 3, uncounted())))
        answer = client.get(f"/secrets/watch?variable_ids={KEY}", role=ALICE)
        self.assertEqual((answer.status, list(answer.json())), (501, ["error"]))

    def test_followers(self) -> None:
        """A follower tells of versions too (SEC-47)."""
        self.memory.standby = True
        self.assertEqual(self.begin(PASSWORD).read(), [("versions", {PASSWORD: 1})])

    def test_expired_token(self) -> None:
        """A watch ends with its token (SEC-51)."""
        clock, changes = Clock(), Changes()
        watches = Watches(clock, clock, changes.follow_changes, MemorySecrets(self.memory), 3, uncounted())
        watches.startService()
        told = watches.stream_events(Caller(ALICE, 0, expires_at=60.0), [KEY], None)
        self.result_of(anext(told))
        after = Deferred.fromCoroutine(anext(told))
        clock.pump([1] * (int(HEARTBEAT) - 1))
        self.assertNoResult(after)
        clock.pump([1] * 2)
        self.successResultOf(after)
        after = Deferred.fromCoroutine(anext(told))
        clock.advance(60)
        self.assertEqual(self.successResultOf(after), WatchEnded("token"))
        self.assertIsNone(self.result_of(anext(told, None)))
        self.assertEqual((len(watches), changes.followers), (0, []))

    def test_turns(self) -> None:
        """Where many are told of a change others get their turn in between, and signs of life are spread (SEC-52)."""
        clock, changes = Clock(), Changes()
        watches = Watches(clock, clock, changes.follow_changes, MemorySecrets(self.memory), 1000, uncounted())
        watches.startService()
        streams = [watches.stream_events(Caller(ALICE, 0), [KEY], None) for _ in range(250)]
        for stream in streams:
            self.result_of(anext(stream))
        waiting = [Deferred.fromCoroutine(anext(stream)) for stream in streams]
        self.set_value("key", b"one")
        changes.tell(KEY)
        self.assertEqual(sum(each.called for each in waiting), 100)
        clock.advance(0)
        self.assertEqual(sum(each.called for each in waiting), 250)
        waiting = [Deferred.fromCoroutine(anext(stream)) for stream in streams]
        shown = [0]
        for _ in range(int(HEARTBEAT)):
            clock.advance(1)
            shown.append(sum(each.called for each in waiting))
        self.assertEqual(shown[-1], 250)
        self.assertLess(max(later - before for before, later in itertools.pairwise(shown)), 30)
        watches.stopService()


class ConjurWatchesTests(WatchesTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR

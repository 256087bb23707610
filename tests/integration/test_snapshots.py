"""What PostgreSQL's snapshots tell of changes: facts that whatever remembers readings stands on.

A look at changes asks in one statement for the changes since the last look, and for the snapshot that the next look is to
begin at. Each row of the table ``changes`` has the xid of the transaction that wrote it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, cast

import attrs
import psycopg2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import blockingCallFromThread, deferToThread

from tests.integration.postgres import PostgresTestCase, Server
from tests.integration.replication import PairTestCase

TABLE: Final = """
    CREATE TABLE changes (number serial PRIMARY KEY, xid xid8 NOT NULL DEFAULT pg_current_xact_id(), touched text NOT NULL)
"""
NOW: Final = "SELECT pg_current_snapshot()::text"

#: What the last look didn't see, in three ways to say it.
UNSEEN: Final = "NOT pg_visible_in_snapshot(xid, '{last}')"
SINCE: Final = "xid >= pg_snapshot_xmin('{last}')"
EXACTLY: Final = "(xid >= pg_snapshot_xmax('{last}') OR xid IN (SELECT pg_snapshot_xip('{last}')))"


class Session:
    """A session of its own, for a transaction that others find open."""

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg2.connect(dsn)
        self._connection.autocommit = True
        self.close = self._connection.close

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a statement, if it has any."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def text(self, sql: str) -> str:
        """The one value of a statement."""
        ((value,),) = self.ask(sql)
        return str(value)

    def write(self, touched: str = "it") -> None:
        """Write a change, in the transaction that is open, or in one of its own."""
        self.ask(f"INSERT INTO changes (touched) VALUES ('{touched}')")

    def found(self, condition: str, last: str) -> set[str]:
        """What the changes touched that are visible now, and for which that holds."""
        return {touched for (touched,) in self.ask(f"SELECT touched FROM changes WHERE {condition.format(last=last)}")}


@attrs.frozen
class Snapshot:
    """A snapshot's parts: all transactions before ``xmin`` have ended, none from ``xmax`` on; ``open`` are in between."""

    xmin: int
    xmax: int
    open: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """Read how PostgreSQL writes one."""
        xmin, xmax, among = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(map(int, filter(None, among.split(",")))))


#: What the sessions of a history do, in proportion to how often.
ACTS: Final = (*["write"] * 4, "savepoint", "back", *["commit"] * 2, "rollback", *["look"] * 3)
SESSIONS: Final = 3


def histories(acts: tuple[str, ...], most: int) -> st.SearchStrategy[list[tuple[int, str]]]:
    """What the sessions do, one after the other, at ``most`` so much."""
    return st.lists(st.tuples(st.integers(0, SESSIONS - 1), st.sampled_from(acts)), min_size=most // 2, max_size=most)


#: What ends a transaction that was prepared, and how many of these there may be.
ENDINGS: Final = {"finish": "COMMIT", "forget": "ROLLBACK"}
PREPARED_MOST: Final = 10


@attrs.frozen
class Look:
    """What has become visible since the last look, and what each condition finds."""

    appeared: set[str]
    found: dict[str, set[str]]


@attrs.define
class Actor:
    """A session of a history: whether its transaction is open, and how many savepoints it has."""

    session: Session
    open: bool = False
    savepoints: int = 0


@attrs.define
class History:
    """Transactions of several sessions, the numbers of their changes, and the names of those that are prepared."""

    _actors: list[Actor]
    _numbers: itertools.count[int]
    _prepared: list[str] = attrs.field(factory=list)

    @classmethod
    def of(
        cls,
        acts: list[tuple[int, str]],
        sessions: list[Session],
        looker: Session,
        numbers: itertools.count[int],
        caught_up: Callable[[], object] = list,
    ) -> Iterator[Look]:
        """Let the sessions do that, and look; nobody does anything meanwhile, and what ``looker`` sees is ``caught_up``."""
        history = cls([Actor(session) for session in sessions], numbers)
        caught_up()
        last, seen = looker.text(NOW), looker.found("true", "")
        try:
            for actor, act in acts:
                if act != "look":
                    history.act(history._actors[actor], act)
                    continue
                caught_up()
                visible = looker.found("true", "")
                yield Look(visible - seen, {each: looker.found(each, last) for each in (EXACTLY, UNSEEN, SINCE)})
                last, seen = looker.text(NOW), visible
        finally:
            history.end()

    def act(self, actor: Actor, act: str) -> None:
        """Let a session do that, if it can."""
        ask = actor.session.ask
        if act == "write":
            if not actor.open:
                ask("BEGIN")
                actor.open, actor.savepoints = True, 0
            actor.session.write(str(next(self._numbers)))
        elif act in ENDINGS and self._prepared and not actor.open:
            ask(f"{ENDINGS[act]} PREPARED '{self._prepared.pop(0)}'")
        elif actor.open and act == "savepoint":
            ask(f"SAVEPOINT s{actor.savepoints}")
            actor.savepoints += 1
        elif actor.open and act == "back" and actor.savepoints:
            actor.savepoints -= 1
            ask(f"ROLLBACK TO s{actor.savepoints}")
        elif actor.open and act == "prepare" and len(self._prepared) < PREPARED_MOST:
            self._prepared.append(f"p{next(self._numbers)}")
            ask(f"PREPARE TRANSACTION '{self._prepared[-1]}'")
            actor.open = False
        elif actor.open and act in {"commit", "rollback"}:
            ask(act)
            actor.open = False

    def end(self) -> None:
        """Leave nothing open."""
        for actor in self._actors:
            self.act(actor, "rollback")
        while self._prepared:
            self.act(self._actors[0], "forget")


class PrimaryTests(PostgresTestCase):
    """Snapshots on a primary."""

    async def own_server(self, **parameters: str) -> Server:
        """A server of the test's own, with these settings, and with the table."""
        server = Server(settings=parameters)
        self.addCleanup(server.destroy)
        await server.start()
        server.command(TABLE)
        return server

    def session(self, dsn: str) -> Session:
        """A session that is closed when the test ends."""
        session = Session(dsn)
        self.addCleanup(session.close)
        return session

    async def test_crash(self) -> None:
        """After a crash xids are given out again that nothing was written by, so that a change is older than a snapshot from
        before, and no condition on that finds it; what tells is when the postmaster began.
        """
        # Nothing but a commit writes the log out.
        server = await self.own_server(wal_writer_delay="10s", autovacuum="off")
        session = self.session(server.dsn())
        began = session.text("SELECT pg_postmaster_start_time()")
        session.write("before")
        for _ in range(5):
            session.ask("BEGIN")
            aborted = int(session.text("SELECT pg_current_xact_id()"))
            session.ask("ROLLBACK")
        last = session.text(NOW)
        self.assertEqual(Snapshot.parse(last), Snapshot(aborted + 1, aborted + 1, frozenset()))

        await server.kill()
        await server.start()
        session = self.session(server.dsn())
        self.assertLess(Snapshot.parse(session.text(NOW)).xmax, Snapshot.parse(last).xmax)
        session.write("after")
        self.assertLessEqual(int(session.text("SELECT max(xid) FROM changes")), aborted)
        for condition in (UNSEEN, SINCE, EXACTLY):
            self.assertEqual(session.found(condition, last), set(), condition)
        self.assertNotEqual(session.text("SELECT pg_postmaster_start_time()"), began)

    async def test_other_databases(self) -> None:
        """A transaction that has written in one database of a PostgreSQL is open in the snapshots of all others, and holds
        back their ``xmin``; one that only reads does not.
        """
        writer, reader, session = [self.session(await self.create_database(migrated=False)) for _ in range(3)]
        writer.ask("BEGIN")
        open_one = int(writer.text("SELECT pg_current_xact_id()"))
        reader.ask("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.ask("SELECT 1")
        session.ask(TABLE)
        session.write()
        found = Snapshot.parse(session.text(NOW))
        self.assertEqual(found.xmin, open_one)
        self.assertGreater(found.xmax, open_one + 1)
        self.assertIn(open_one, found.open)

        writer.ask("ROLLBACK")
        self.assertEqual(reader.text("SELECT pg_current_xact_id_if_assigned() IS NULL"), "True")
        found = Snapshot.parse(session.text(NOW))
        self.assertGreater(found.xmin, open_one)
        self.assertEqual(found, Snapshot(found.xmax, found.xmax, frozenset()))

    async def test_every_interleaving(self) -> None:
        """However transactions of several sessions are interleaved, with savepoints, rollbacks and two-phase commits, a look
        finds exactly what has become visible since the last one: what is from its ``xmax`` on, or was open in it.
        """
        server = await self.own_server(max_prepared_transactions=str(PREPARED_MOST))
        sessions = [self.session(server.dsn()) for _ in range(SESSIONS)]
        looker, numbers = self.session(server.dsn()), itertools.count()

        @settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(histories((*ACTS, "prepare", "finish", "forget"), 60))
        def agree(acts: list[tuple[int, str]]) -> None:
            for look in History.of(acts, sessions, looker, numbers):
                self.assertEqual(look.found, {EXACTLY: look.appeared, UNSEEN: look.appeared, SINCE: look.found[SINCE]})
                self.assertLessEqual(look.appeared, look.found[SINCE])

        agree()


class StandbyTests(PairTestCase):
    """Snapshots on a hot standby."""

    migrated = False

    def session(self, server: Server) -> Session:
        """A session on the test's database, closed when the test ends."""
        session = Session(server.dsn(self.name))
        self.addCleanup(session.close)
        return session

    async def test_open_transaction(self) -> None:
        """A transaction that is open is named by a primary's snapshot, and not by a standby's, though that has replayed what
        it wrote. When it has committed, it counts there as visible in the snapshot from before; that its xid isn't before
        the snapshot's ``xmin`` finds it, with others that are named twice.
        """
        pair = self.pair
        writer, other = self.session(pair.primary), self.session(pair.primary)
        other.ask(TABLE)
        writer.ask("BEGIN")
        writer.write("slow")
        xid = int(writer.text("SELECT pg_current_xact_id()"))
        other.write("quick")
        await pair.caught_up()
        reader = self.session(pair.follower)
        self.assertEqual(Snapshot.parse(other.text(NOW)), Snapshot(xid, xid + 2, frozenset({xid})))
        last = reader.text(NOW)
        self.assertEqual(Snapshot.parse(last), Snapshot(xid, xid + 2, frozenset()))
        self.assertEqual(reader.found("true", last), {"quick"})

        writer.ask("COMMIT")
        await pair.caught_up()
        self.assertEqual(reader.found("true", last), {"quick", "slow"})
        self.assertEqual(reader.found(UNSEEN, last), set())
        self.assertEqual(reader.found(EXACTLY, last), set())
        self.assertEqual(reader.found(SINCE, last), {"quick", "slow"})

    async def test_every_interleaving(self) -> None:
        """However transactions of several sessions on the primary are interleaved, a look at the standby finds all that has
        become visible there since the last one among what isn't before that one's ``xmin``.
        """
        pair = self.pair
        pair.primary.command(TABLE, self.name)
        sessions = [self.session(pair.primary) for _ in range(SESSIONS)]
        looker, numbers = self.session(pair.follower), itertools.count()

        def caught_up() -> None:
            # A commit writes out the log before it, of transactions that are open, which is not sent before.
            pair.primary.command("SELECT pg_logical_emit_message(true, 'test', '')")
            replayed: Coroutine[Any, Any, Any] = pair.caught_up()
            blockingCallFromThread(cast(IReactorFromThreads, reactor), Deferred.fromCoroutine, replayed)

        @settings(max_examples=6, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(histories(ACTS, 30))
        def agree(acts: list[tuple[int, str]]) -> None:
            for look in History.of(acts, sessions, looker, numbers, caught_up):
                self.assertLessEqual(look.appeared, look.found[SINCE])

        await deferToThread(agree)

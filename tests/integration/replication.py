"""A primary and its hot standby, as real processes that stream to each other, for tests of what becomes of them.

Most tests want :class:`PairTestCase`, whose ``self.pair`` runs, with a migrated database of the test's own on both. There is
one pair for each test process, for as long as it is whole: a test may treat it as badly as it likes, the next one then has
another::

    class FollowerTests(PairTestCase):
        async def test_reads(self) -> None:
            \"\"\"…\"\"\"
            pair = self.pair
            pair.primary.command("INSERT …", self.name)
            await pair.caught_up()
            await pair.primary.kill()           # and stop(), freeze(), thaw(), start(), of either
            await pair.promote()

Both are :class:`tests.integration.postgres.Server`. ``pair.pause()`` has the standby keep what arrives without replaying it,
``pair.disconnect()`` has nothing arrive; ``pair.link`` is a place that leads to one of the two, whichever
``pair.lead_to(server)`` says, as the address of a cluster does.
"""

from __future__ import annotations

import atexit
import itertools
from collections.abc import Callable
from typing import Any, Final

import psycopg2
from twisted.internet import reactor
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from svc.storage.driver.database import Database
from tests.integration.postgres import PATIENCE, Server, unavailable

#: What makes a primary feed standbys, also one that was away, and a standby come back soon.
SETTINGS: Final = {"wal_keep_size": "256MB", "wal_retrieve_retry_interval": "100ms", "wal_receiver_status_interval": "1s"}

#: A conflict between replay and a query is decided after this long, for the query to lose.
CONFLICT_SETTINGS: Final = {"max_standby_streaming_delay": "200ms"}

_numbers = itertools.count(1)


class Pair:
    """Two servers, its own unless they are given. They belong to this process, and are removed by :meth:`destroy`."""

    def __init__(self, primary: Server | None = None, standby: Server | None = None) -> None:
        self.primary = primary or Server(settings=SETTINGS)
        self.standby = standby
        #: A directory by whose name sockets are reached, first the primary's.
        self.link = self.primary.directory.with_name(f"{self.primary.directory.name}-link")
        self.lead_to(self.primary)

    @property
    def follower(self) -> Server:
        """The standby, which must have been made."""
        assert self.standby is not None
        return self.standby

    async def start(self) -> None:
        """Start the primary, copy it, and start the copy as its hot standby."""
        await self.primary.start()
        await self.join()

    async def join(self, **settings: str) -> Server:
        """Make and start another hot standby of the primary; it takes the place of the one there was."""
        former, self.standby = self.standby, None
        if former is not None:
            former.destroy()
        self.standby = Server(origin=self.primary, settings={**SETTINGS, **CONFLICT_SETTINGS, **settings})
        await self.standby.start()
        return self.standby

    async def caught_up(self) -> None:
        """Wait until the standby has replayed all that the primary has written by now."""
        ((position,),) = self.primary.command("SELECT pg_current_wal_insert_lsn()::text")
        await self.until(
            lambda: self.follower.command(f"SELECT pg_last_wal_replay_lsn() >= '{position}'::pg_lsn") == [(True,)],
            "the standby does not catch up",
        )

    async def promote(self) -> Server:
        """Make the standby a primary, and return it; what was the primary is the test's business."""
        self.follower.command("SELECT pg_promote(wait => true)")
        await self.until(lambda: self.follower.command("SELECT pg_is_in_recovery()") == [(False,)], "no promotion")
        return self.follower

    async def exchange(self) -> None:
        """Promote the standby, and have a copy of it, for a standby of its own, take the place of the primary."""
        former, self.primary = self.primary, await self.promote()
        self.standby = None
        former.destroy()
        await self.join()

    async def disconnect(self) -> None:
        """Have the standby receive no more."""
        ((self._conninfo,),) = self.follower.command("SHOW primary_conninfo")
        await self._feed("''")
        await self.until(lambda: not self._receives(), "the standby goes on receiving")

    async def reconnect(self) -> None:
        """Take that back."""
        quoted = self._conninfo.replace("'", "''")
        await self._feed(f"'{quoted}'")
        await self.until(self._receives, "the standby does not receive")

    def pause(self) -> None:
        """Have the standby replay no more of what it receives."""
        self.follower.command("SELECT pg_wal_replay_pause()")

    def resume(self) -> None:
        """Take that back."""
        self.follower.command("SELECT pg_wal_replay_resume()")

    def lead_to(self, server: Server) -> None:
        """Have the link lead to that server; sessions that are open stay where they are."""
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(server.directory)

    def dsn(self, database: str) -> str:
        """How to reach a database of whichever server the link leads to."""
        return f"host={self.link} user=svc dbname={database}"

    def hosts(self, database: str) -> str:
        """How to reach a database of both, first the primary's."""
        return f"host={self.primary.directory},{self.follower.directory} user=svc dbname={database}"

    def whole(self) -> bool:
        """Whether both are as :meth:`start` left them."""
        try:
            return (
                self.standby is not None
                and self.primary.command("SELECT pg_is_in_recovery()") == [(False,)]
                and self.standby.command(
                    "SELECT pg_is_in_recovery() AND NOT pg_is_wal_replay_paused() FROM pg_stat_wal_receiver"
                    " WHERE status = 'streaming'"
                )
                == [(True,)]
            )
        except psycopg2.Error:
            return False

    def destroy(self) -> None:
        """Remove both, with their data; blocks until that is done."""
        self.link.unlink(missing_ok=True)
        for server in (self.standby, self.primary):
            if server is not None:
                server.destroy()

    async def until(self, holds: Callable[[], bool], complaint: str) -> None:
        """Wait until that holds, though not for ever."""
        for _ in range(int(PATIENCE / 0.02)):
            if holds():
                return
            await deferLater(reactor, 0.02)
        log = self.standby.log.read_text() if self.standby else ""
        raise AssertionError(f"{complaint}:\n{log[-4000:]}")

    def _receives(self) -> bool:
        return self.follower.command("SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'") == [(1,)]

    async def _feed(self, conninfo: str) -> None:
        self.follower.command(f"ALTER SYSTEM SET primary_conninfo = {conninfo}")
        self.follower.command("SELECT pg_reload_conf()")


class _Shared:
    """The pair that tests have one after the other."""

    pair: Pair | None = None

    @classmethod
    async def whole(cls) -> Pair:
        """The pair that there is, in whatever state the last test left it, if it is whole, else another."""
        if cls.pair is not None and not cls.pair.whole():
            cls.destroy()
        if cls.pair is None:
            cls.pair = Pair()
            atexit.register(cls.destroy)
            await cls.pair.start()
        cls.pair.lead_to(cls.pair.primary)
        return cls.pair

    @classmethod
    def destroy(cls) -> None:
        """Remove it, if there is one."""
        atexit.unregister(cls.destroy)
        pair, cls.pair = cls.pair, None
        if pair is not None:
            pair.destroy()


class PairTestCase(TestCase):
    """A test with a pair, and a database ``self.name`` on both, migrated unless ``migrated`` is false."""

    skip = unavailable()
    timeout = 240
    migrated = True
    pair: Pair
    name: str

    async def setUp(self) -> None:  # type: ignore[override]  # trial awaits what setUp returns
        """Call :meth:`prepare`."""
        await self.prepare()

    async def prepare(self) -> None:
        """Have the pair, and make the database."""
        self.pair = await _Shared.whole()
        self.name = f"test_{next(_numbers)}"
        await self.pair.primary.create_database(self.name, migrated=self.migrated)
        await self.pair.caught_up()

    async def opened(self, dsn: str, **options: Any) -> Database:
        """A database that is started and connected, and stopped when the test ends."""
        given = {"pool_size": 2, "statement_timeout": 5.0, "first_wait": 10.0, **options}
        database = Database(reactor, dsn, **given)
        database.startService()
        self.addCleanup(database.stopService)
        await database.wait_until_connected()
        return database

"""The pair of servers that other tests stand on does what it says."""

from __future__ import annotations

import psycopg2

from tests.integration.replication import PairTestCase


class PairTests(PairTestCase):
    """A primary and its hot standby."""

    async def test_streams(self) -> None:
        """What is written on the primary is soon read on the standby, which takes no writes itself."""
        pair = self.pair
        pair.primary.command("CREATE TABLE notes (id int); INSERT INTO notes VALUES (1)", self.name)
        await pair.caught_up()
        self.assertEqual(pair.follower.command("SELECT id FROM notes", self.name), [(1,)])
        with self.assertRaises(psycopg2.errors.ReadOnlySqlTransaction):
            pair.follower.command("INSERT INTO notes VALUES (2)", self.name)

    async def test_pause_and_disconnect(self) -> None:
        """A standby that is paused or disconnected falls behind, and catches up afterwards."""
        pair = self.pair
        pair.primary.command("CREATE TABLE notes (id int)", self.name)
        await pair.caught_up()
        pair.pause()
        pair.primary.command("INSERT INTO notes VALUES (1)", self.name)
        self.assertEqual(pair.follower.command("SELECT id FROM notes", self.name), [])
        pair.resume()
        await pair.caught_up()
        self.assertEqual(pair.follower.command("SELECT id FROM notes", self.name), [(1,)])
        await pair.disconnect()
        pair.primary.command("INSERT INTO notes VALUES (2)", self.name)
        self.assertEqual(pair.follower.command("SELECT id FROM notes", self.name), [(1,)])
        await pair.reconnect()
        await pair.caught_up()
        self.assertEqual(pair.follower.command("SELECT id FROM notes", self.name), [(1,), (2,)])

    async def test_kill_and_promote(self) -> None:
        """When the primary is gone the standby becomes one, and another takes its place beside it."""
        pair = self.pair
        await pair.primary.kill()
        await pair.exchange()
        pair.primary.command("CREATE TABLE notes (id int); INSERT INTO notes VALUES (1)", self.name)
        await pair.caught_up()
        self.assertEqual(pair.follower.command("SELECT id FROM notes", self.name), [(1,)])

    async def test_link(self) -> None:
        """The link leads to one server, then to another."""
        pair = self.pair
        asked = "SELECT pg_is_in_recovery()"
        for server, standby in ((pair.primary, False), (pair.follower, True)):
            pair.lead_to(server)
            connection = psycopg2.connect(pair.dsn(self.name))
            self.addCleanup(connection.close)
            with connection.cursor() as cursor:
                cursor.execute(asked)
                self.assertEqual(cursor.fetchall(), [(standby,)])

"""What of a server's bounds each of its processes has."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.server.bootstrap import POOL_SIZE, WRITERS
from svc.server.shares import SUPERVISOR, limit_settings, share_sessions
from svc.settings.reading import read_settings
from svc.storage.embedded.cluster import SETTINGS
from svc.worker.pool import MAX_WORKERS


class SharesTests(SynchronousTestCase):
    """Shares."""

    def test_connections(self) -> None:
        """Connections are divided among the processes, in all and from one address, rounded up (CFG-34)."""
        given = {"connection_limit": "101", "connection_limit_per_address": "9", "processes": "4"}
        share = limit_settings(read_settings(given, {}), 4)
        self.assertEqual((share.http_limits.connections, share.http_limits.connections_per_address), (26, 3))

    def test_sessions(self) -> None:
        """Sessions with the database are divided too, but for a few that each process needs (CFG-34)."""
        self.assertEqual(share_sessions(2), (POOL_SIZE // 2, WRITERS // 2))
        self.assertEqual(share_sessions(4), (2, 1))
        self.assertEqual(share_sessions(64), (2, 1))

    def test_embedded(self) -> None:
        """The embedded database has room for the sessions of as many processes as there may be, and for large loads."""
        readings, writers = share_sessions(64)
        needed = 64 * (readings + writers + 1) + sum(SUPERVISOR) + 2 * MAX_WORKERS
        self.assertLess(needed, int(SETTINGS["max_connections"]))

"""A server that has as many connections as it takes, and one whose process is out of descriptors, over real sockets."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
from typing import Final

import attrs
from twisted.internet.threads import deferToThread

from tests.integration.postgres import PostgresTestCase
from tests.integration.process import ServerProcess, ServerTestCase

#: Seconds that a client waits for anything at all.
PATIENCE: Final = 20

#: How many connections the server takes, and from one address.
LIMIT: Final = 8
EACH: Final = 2

LIVE: Final = b"GET /livez HTTP/1.1\r\nHost: h\r\n\r\n"

_METRICS: Final = re.compile(rb"Metrics are served at http://127\.0\.0\.1:(\d+)")


@attrs.frozen
class Visitor:
    """A client that connects from an address of this machine's."""

    port: int
    address: str = "127.0.0.1"

    def connect(self, sent: bytes = b"") -> socket.socket:
        """Connect, and send something."""
        connection = socket.create_connection(("127.0.0.1", self.port), PATIENCE, (self.address, 0))
        connection.sendall(sent)
        return connection

    def ask(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Ask once, on a connection that closes: the status, the headers by their names in lower case, the body."""
        with self.connect(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode()) as connection:
            received = b""
            while piece := connection.recv(1 << 16):
                received += piece
        head, _, body = received.partition(b"\r\n\r\n")
        line, *lines = head.decode().split("\r\n")
        headers = dict(header.lower().split(": ", 1) for header in lines)
        return int(line.split()[1]), headers, body

    def status(self, path: str) -> int:
        """Ask once; the status."""
        return self.ask(path)[0]


class ConnectionTests(PostgresTestCase, ServerTestCase):
    """A server that takes eight connections, two from one address, but for this machine's own."""

    async def prepare(self) -> None:
        """Start it."""
        await super().prepare()
        self.process = self.serve(
            f"--connection-limit={LIMIT}",
            f"--connection-limit-per-address={EACH}",
            "--metrics-listen=tcp:0:interface=127.0.0.1",
            database_url=await self.create_database(migrated=False),
        )
        self.port = int((await self.process.ready()).rpartition(":")[2])
        found = _METRICS.search(self.process.stdout)
        assert found is not None, self.process.said
        self.metrics_port = int(found[1])

    def taken(self, more: bytes = b"") -> list[socket.socket]:
        """As many connections as the server takes, from as many addresses as that needs, each of which was answered once.

        What is sent beyond that has arrived, too.
        """
        taken = []
        for number in range(LIMIT):
            connection = Visitor(self.port, f"127.0.1.{1 + number // EACH}").connect(LIVE + more)
            self.addCleanup(connection.close)
            self.assertIn(b"200 OK", connection.recv(1 << 16))
            taken.append(connection)
        return taken

    def counted(self, name: str) -> float:
        """A counter, from monitoring."""
        status, _, body = Visitor(self.metrics_port).ask("/metrics")
        self.assertEqual(status, 200)
        found = re.search(rf"(?m)^{name} (\S+)$", body.decode())
        assert found is not None, body
        return float(found[1])

    async def test_all_taken(self) -> None:
        """While strangers hold all connections, health and monitoring are answered to everybody, and nothing else
        (LIM-8).
        """
        await deferToThread(self._all_taken)
        self.assertIn(b"see connection_limit", self.process.stdout)

    def _all_taken(self) -> None:
        taken = self.taken(b"GET /livez HTTP/1.1\r\nHos")
        for address in ("127.0.0.1", "127.0.2.1", "127.0.1.1"):
            visitor = Visitor(self.port, address)
            self.assertEqual([visitor.status(path) for path in ("/livez", "/readyz")], [200] * 2)
            self.assertIn(visitor.status("/health"), {200, 502})  # its checks may be slow on a busy machine
            status, headers, body = visitor.ask("/whoami")
            self.assertEqual((status, headers["retry-after"], json.loads(body)["error"]["code"]), (503, "2", "unavailable"))
        self.assertGreaterEqual(self.counted("svc_connections"), LIMIT)
        self.assertGreaterEqual(self.counted("svc_connections_overflowed_total"), 12)
        taken[0].sendall(b"t: h\r\nConnection: close\r\n\r\n")
        while taken[0].recv(1 << 16):
            pass
        self.assertEqual(Visitor(self.port).status("/whoami"), 401)

    async def test_idle(self) -> None:
        """Idle connections make room, the oldest first, in good order; an address has no more than its share."""
        await deferToThread(self._idle)

    def _idle(self) -> None:
        taken = self.taken()
        self.assertEqual(Visitor(self.port, "127.0.2.1").status("/whoami"), 401)
        self.assertEqual(taken[0].recv(1), b"")
        self.assertEqual(Visitor(self.port, "127.0.1.4").status("/whoami"), 401)
        self.assertEqual(taken[6].recv(1), b"")
        for connection in (*taken[1:6], taken[7]):
            connection.sendall(LIVE)
            self.assertIn(b"200 OK", connection.recv(1 << 16))
        self.assertGreaterEqual(self.counted("svc_connections_evicted_total"), 2)

    async def test_out_of_descriptors(self) -> None:
        """A process that is out of descriptors closes who comes, serves who is there, and all when it has some again."""
        await deferToThread(self._out_of_descriptors, self.process)

    def _out_of_descriptors(self, process: ServerProcess) -> None:
        kept = Visitor(self.port).connect(LIVE)
        self.addCleanup(kept.close)
        kept.recv(1 << 16)
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        used = max(map(int, os.listdir(f"/proc/{process.pid}/fd"))) + 1
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used, hard))
        for _ in range(3):
            with Visitor(self.port).connect() as refused:
                self.assertEqual(refused.recv(1), b"")
        kept.sendall(LIVE)
        self.assertIn(b"200 OK", kept.recv(1 << 16))
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        self.assertEqual(Visitor(self.port).status("/livez"), 200)

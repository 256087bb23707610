"""The machine's clock is set while a server runs: what is to take so long takes so long, and what ends then ends then."""

from __future__ import annotations

import json
import socket
import time
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

from twisted.internet.threads import deferToThread

import svc
from tests.integration.client import Api
from tests.integration.postgres import PostgresTestCase
from tests.integration.process import ServerProcess, ServerTestCase, beat

_HOUR: Final = 3600.0

#: Where the module is that has Python read another clock.
_SHIFTED: Final = Path(__file__).resolve().parent / "shifted"

#: What shows the difference of a set clock, whatever the machine is busy with, in seconds.
_CLEARLY: Final = 1800.0


class ClockTests(ServerTestCase, PostgresTestCase):
    """A server whose clock the test sets."""

    timeout = 90

    async def begin(self, *options: str) -> tuple[ServerProcess, Api]:
        """Start it."""
        self.offset = Path(self.mktemp()).resolve()
        self.set_clock(0)
        self.audit = self.offset.with_suffix(".audit")
        environ = {
            "PYTHONPATH": f"{_SHIFTED}:{Path(svc.__file__).resolve().parent.parent}",
            "TESTS_CLOCK_OFFSET": str(self.offset),
        }
        server = self.serve(
            "--account=acme",
            f"--audit-file={self.audit}",
            *options,
            database_url=await self.create_database(migrated=False),
            environ=environ,
        )
        return server, Api.of(self, await server.ready())

    def set_clock(self, ahead: float) -> None:
        """Have the server's clock go so many seconds before ours."""
        fresh = self.offset.with_suffix(".new")
        fresh.write_text(str(ahead))
        fresh.replace(self.offset)

    async def told(self, api: Api) -> tuple[float, float, float]:
        """By how much what the server tells of the time is ahead: in its answers, its records, its report of health."""
        answer = await api.ask("GET", "/ui/health", Accept="application/json")
        page = (await api.ask("GET", "/health", Accept="application/health+json")).body
        recorded = self.audit.read_text().splitlines()[-1].split(" ")[1]
        now = time.time()
        return (
            parsedate_to_datetime(answer.headers["date"]).timestamp() - now,
            datetime.fromisoformat(recorded).timestamp() - now,
            datetime.fromisoformat(json.loads(page)["checks"]["core:state"][0]["time"]).timestamp() - now,
        )

    async def test_clock_set(self) -> None:
        """Set back by an hour, and then forwards, the server is well, and its rounds, time-outs and dates are right.

        An access token ends when its time has come by the machine's clock, no sooner and no later.
        """
        server, api = await self.begin("--health-interval=0.5", "--request-timeout=1")
        admin = await api.authenticate("admin", server.admin_key())
        for ahead in (-_HOUR, 0.0, _HOUR):
            self.set_clock(ahead)
            known = (await api.ask("GET", "/health", Accept="application/health+json")).body
            self.assertEqual((await api.ask("GET", "/whoami", token=admin)).status, 401 if ahead > 0 else 200)
            self.assertEqual((await deferToThread(_hesitate, api.url))[:12], b"HTTP/1.1 408")
            while (page := await api.ask("GET", "/health", Accept="application/health+json")).body == known:
                await beat()  # until another round has ended
            self.assertEqual((page.status, (await api.ask("GET", "/readyz")).status), (200, 200))
            await api.authenticate("admin", server.admin_key())
            for told in await self.told(api):
                self.assertLess(abs(told - ahead), _CLEARLY)
        self.assertEqual(await server.stop(), 0)


def _hesitate(url: str) -> bytes:
    """What a client is told that sends half a request."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"GET /whoami HTTP/1.1\r\nHost: a\r\n")
        return connection.recv(1000)

"""Whole servers in this process, on a real PostgreSQL."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import treq
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import capturedLogs
from twisted.web.client import Agent
from twisted.web.http_headers import Headers

from svc.model.errors import StartRefused
from svc.server.lifecycle import ServerService
from svc.settings.config import Settings
from svc.settings.reading import read_settings
from svc.tap import build_server
from tests.integration.postgres import PostgresTestCase
from tests.integration.process import DATA_KEY, beat

reactor: Any = installed_reactor

#: What the report tells of (HEALTH-2).
SERVICES = {"ldap", "authn", "authz", "expiration", "host-factory", "core", "pubkeys", "audit"}


class TapTests(PostgresTestCase):
    """Servers that are built and started."""

    async def prepare(self) -> None:
        """Make a database, and a list of the keys that were told."""
        await super().prepare()
        self.dsn = await self.create_database()
        self.told: list[str] = []

    def settings(self, **given: str) -> Settings:
        """Settings for a server on that database, on a free port."""
        defaults = {
            "database_url": self.dsn,
            "data_dir": str(Path(self.mktemp()).resolve()),
            "listen": "tcp:0:interface=127.0.0.1",
        }
        return read_settings({**defaults, **given}, {"SERVICE_DATA_KEY": DATA_KEY})

    def hear(self, key: str) -> bool:
        """Take notice of a key."""
        self.told.append(key)
        return True

    def start(self, settings: Settings, tell: Callable[[str], bool] | None) -> ServerService:
        """Start a server, which is stopped when the test ends."""
        server = build_server(reactor, settings, tell)
        server.startService()
        self.addCleanup(server.stopService)
        return server

    async def health(self, url: str) -> Any:
        """The health report."""
        return json.loads(await treq.content(await Agent(reactor).request(b"GET", f"{url}/health".encode("ascii"))))

    async def test_health(self) -> None:
        """When a server is ready its first round of health is done, and every service is in the report
        (CFG-12).
        """
        [url] = (await self.start(self.settings(account="acme"), self.hear).wait_until_ready()).urls
        while not (report := await self.health(url))["ok"]:
            await beat()  # a check that a busy machine made too slow works in the next round
        self.assertEqual(set(report["services"]), {*SERVICES, "ok"})
        self.assertEqual({name: word for name, word in report["services"].items() if word not in {"ok", True}}, {})
        self.assertEqual((report["database"]["connect"], report["ok"]), ({"main": "ok"}, True))
        status = report["database"]["replication_status"]
        self.assertRegex(status["db_current_xlog_location"], r"\A[0-9A-F]+/[0-9A-F]+\Z")
        high, low = (int(part, 16) for part in status["db_current_xlog_location"].split("/"))
        self.assertEqual(status["db_current_xlog_location_bytes"], (high << 32) + low)

    async def test_metrics(self) -> None:
        """Metrics are served on an endpoint of their own, which the log names, and on no other."""
        settings = self.settings(account="acme", metrics_listen="tcp:0:interface=127.0.0.1")
        with capturedLogs() as events:
            [url] = (await self.start(settings, self.hear).wait_until_ready()).urls
        [metrics] = [event["url"] for event in events if event["log_format"] == "Metrics are served at {url}"]
        agent = Agent(reactor)
        for other in ("", "/", "/x", "/metrics2"):
            self.assertEqual((await agent.request(b"GET", f"{metrics}{other}".encode("ascii"))).code, 404, other)
        await agent.request(b"POST", f"{url}/authn/acme/admin/authenticate".encode("ascii"))
        answer = await agent.request(b"GET", f"{metrics}/metrics".encode("ascii"))
        self.assertIn("text/plain", answer.headers.getRawHeaders("content-type", [""])[0])
        labels = b'authenticator="authn",outcome="refused",reason="credentials-wrong"'
        text = await treq.content(answer)
        self.assertIn(b"svc_authentications_total{%s} 1.0\n" % labels, text)
        self.assertRegex(text, rb'svc_requests_total{operation="POST /authn/[^"]*/authenticate",status="401"} 1\.0\n')
        self.assertRegex(text, rb'svc_request_seconds_count{operation="POST /authn/[^"]*/authenticate"} 1\.0\n')
        for service in (b"core", b"authn", b"authz", b"database"):
            self.assertIn(b'svc_probe_ok{service="%s"} 1.0\n' % service, text)
        for series in (
            b"svc_key_sets 0.0",
            b"svc_database_sessions ",
            b"svc_database_waiting 0.0",
            b"svc_audit_records_waiting{",
            b"svc_reactor_lag_seconds_count ",
        ):
            self.assertIn(b"\n" + series, text)
        answer = await agent.request(b"GET", f"{url}/metrics".encode("ascii"))
        self.assertEqual(answer.code, 404)

    async def test_dialect(self) -> None:
        """In the conjur dialect the report's replication fields have that dialect's names."""
        [url] = (await self.start(self.settings(dialect="conjur"), self.hear).wait_until_ready()).urls
        report = await self.health(url)
        self.assertEqual(
            set(report["database"]["replication_status"]), {"pg_current_xlog_location", "pg_current_xlog_location_bytes"}
        )

    async def test_key_is_told(self) -> None:
        """The key of a new account's admin is told once, and written nowhere, when somebody takes notice."""
        settings = self.settings(account="acme")
        first = self.start(settings, self.hear)
        await (await first.wait_until_ready()).announced()
        await self.start(self.settings(account="acme"), self.hear).wait_until_ready()
        [key] = self.told
        files = [path.read_bytes() for path in settings.data_dir.rglob("*") if path.is_file()]
        self.assertEqual([text for text in files if key.encode() in text], [])

    async def test_nobody_takes_notice(self) -> None:
        """A key that was told to nobody is kept in the file, so that the account can be used (CFG-20)."""
        settings = self.settings(account="acme")

        def ignore(key: str) -> bool:
            self.told.append(key)
            return False

        await self.start(settings, ignore).wait_until_ready()
        self.assertEqual([(settings.data_dir / "admin-key-acme").read_text()], [f"{key}\n" for key in self.told])

    async def test_at_once(self) -> None:
        """Of servers that start at once and make the same account, those that know the key know the right one (CFG-20)."""
        every = [self.settings(account="acme") for _ in range(3)]
        servers = [self.start(settings, None) for settings in every]
        results: list[Any] = await DeferredList([Deferred.fromCoroutine(server.wait_until_ready()) for server in servers])
        self.assertEqual([good for good, _ in results], [True] * 3)
        files = [settings.data_dir / "admin-key-acme" for settings in every]
        [key] = {path.read_text().strip() for path in files if path.exists()}
        [url] = results[0][1].urls
        response = await Agent(reactor).request(
            b"GET",
            f"{url}/authn/acme/login".encode("ascii"),
            Headers({"Authorization": [f"Basic {base64.b64encode(f'admin:{key}'.encode()).decode()}"]}),
        )
        await treq.content(response)
        self.assertEqual(response.code, 200)

    async def test_account_is_not_made_without_its_file(self) -> None:
        """When the file of the key can't be written, the account isn't made (CFG-20)."""
        settings = self.settings(account="acme")
        settings.data_dir.write_text("in the way")
        await self.assertFailure(Deferred.fromCoroutine(self.start(settings, None).wait_until_ready()), OSError)
        self.assertEqual(self.server.command("SELECT account FROM accounts", self.dsn.rpartition("=")[2]), [])

    async def test_port_in_use(self) -> None:
        """A server that can't listen refuses to start, and leaves nothing behind when it is stopped."""
        [url] = (await self.start(self.settings(), None).wait_until_ready()).urls
        listen = f"tcp:0:interface=127.0.0.1 tcp:{url.rpartition(':')[2]}:interface=127.0.0.1"
        second = self.start(self.settings(listen=listen), None)
        await self.assertFailure(Deferred.fromCoroutine(second.wait_until_ready()), StartRefused)

"""An installation on a real PostgreSQL: schema, data key, accounts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, DeferredList

from svc.audit.recoveries import recovery_event
from svc.crypto.vault import api_key_name, new_data_key
from svc.model.errors import ConfigurationInvalid, Conflict, RecordNotFound, StartRefused
from svc.model.events import AuditContext, EventBatch, EventsQuery
from svc.model.events import EventSource as EventServer
from svc.model.names import admin_of
from svc.model.query_results import Sealed
from svc.server.bootstrap import Installation
from svc.server.lifecycle import OrderedMultiService
from svc.settings.config import Settings
from svc.settings.reading import read_settings
from svc.storage.credentials import CredentialStore
from svc.storage.events import EventStore
from svc.tap import run_on_installation
from tests.integration.postgres import PostgresTestCase


class InstallationTests(PostgresTestCase):
    """Installations on one database."""

    async def prepare(self) -> None:
        """Make a database that nothing has been done to."""
        await super().prepare()
        self.dsn = await self.create_database(migrated=False)
        self.data_key = new_data_key()

    def settings(self, data_key: str | None = None) -> Settings:
        """Settings for that database."""
        given = {"database_url": self.dsn, "data_dir": str(Path(self.mktemp()).resolve())}
        return read_settings(given, {"SERVICE_DATA_KEY": data_key or self.data_key})

    def open(self, settings: Settings | None = None) -> Deferred[Installation]:
        """Open an installation that is closed when the test ends."""
        services = OrderedMultiService()
        services.startService()
        self.addCleanup(services.stopService)
        return Deferred.fromCoroutine(Installation.open(services, reactor, settings or self.settings()))

    async def refused(self, settings: Settings, kind: type[Exception] = StartRefused) -> str:
        """Return why there is no installation with these settings."""
        opened: Deferred[Any] = self.open(settings)
        return str(await self.assertFailure(opened, kind))

    async def test_again(self) -> None:
        """What was opened once is found again: the schema is there, and the data key fits."""
        first, second = await self.open(), await self.open()
        sealed = first.vault.seal("name", b"value")
        self.assertEqual(second.vault.open("name", sealed), b"value")

    async def test_another_data_key(self) -> None:
        """A data key that isn't the database's is refused (DATA-8)."""
        await self.open()
        self.assertIn("does not fit", await self.refused(self.settings(new_data_key())))

    async def test_at_once(self) -> None:
        """Of many servers that start at once on a new database those with one data key all succeed (DATA-8)."""
        results = await DeferredList([self.open() for _ in range(5)])
        self.assertEqual([good for good, _ in results], [True] * 5)

    async def test_at_once_with_other_keys(self) -> None:
        """Of servers that start at once with different data keys one succeeds, and the others are refused (DATA-8)."""
        results: list[Any] = await DeferredList(
            [self.open(self.settings(new_data_key())) for _ in range(3)], consumeErrors=True
        )
        self.assertEqual(sorted(good for good, _ in results), [False, False, True])
        for good, result in results:
            if not good:
                self.assertIsInstance(result.value, StartRefused)

    async def test_no_url(self) -> None:
        """A database URL that is none is refused by the name that the user wrote, and isn't repeated."""
        settings = read_settings({}, {"SERVICE_DATABASE_URL": "nonsense!hunter2", "SERVICE_DATA_KEY": self.data_key})
        refusal = await self.refused(settings, ConfigurationInvalid)
        self.assertIn("SERVICE_DATABASE_URL", refusal)
        self.assertNotIn("hunter2", refusal)

    async def test_accounts(self) -> None:
        """An account that is made has its admin's key, sealed, and a signing key; it is made once (NAME-17)."""
        installation = await self.open()
        await installation.create_account("acme", "the admin's key")
        self.assertEqual(await installation.accounts.list_accounts(), ["acme"])
        [(stored,)] = self.server.command("SELECT api_key FROM credentials", self.dsn.rpartition("=")[2])
        sealed = Sealed(bytes(stored))
        self.assertNotIn(b"the admin's key", sealed)
        self.assertEqual(installation.vault.open(api_key_name(admin_of("acme")), sealed), b"the admin's key")
        self.assertEqual(len(await installation.accounts.list_signing_keys("acme")), 1)
        await self.assertFailure(Deferred.fromCoroutine(installation.create_account("acme", "another")), Conflict)

    async def test_recovery(self) -> None:
        """The admin of an account is given another key, which doesn't expire and which no annotation forbids, where there is
        an account with an admin; its event is in the database, and servers find that it happened (CLI-31, AUD-32, TOK-57).
        """
        installation = await self.open()
        await installation.create_account("acme", "lost")
        admin, name = admin_of("acme"), self.dsn.rpartition("=")[2]
        self.server.command("UPDATE credentials SET expires_at = 1", name)
        credentials = CredentialStore(installation.database)
        before = await credentials.read_credential(admin)
        trail = EventBatch(
            AuditContext(EventServer("here", "svc"), None, "-", "-"), (recovery_event("acme", ", by a test"),)
        )
        await installation.recover_account("acme", "found", trail)
        after = await credentials.read_credential(admin)
        assert after.api_key is not None
        self.assertEqual(installation.vault.open(api_key_name(admin), after.api_key), b"found")
        self.assertEqual((after.expires_at, after.version), (None, before.version + 1))
        [event] = await EventStore(installation.database).list_events(EventsQuery("acme"))
        self.assertEqual(
            (event.severity, event.data["action"]["operation"], event.data["auth"]["user"]), (4, "recover", "svc")
        )
        self.assertIn("by a test", event.message)
        [(account, at)] = await installation.accounts.list_recovered(60.0)
        self.assertEqual(account, "acme")
        self.assertGreater(at, 1e9)
        self.server.command("UPDATE recoveries SET recovered_at = recovered_at - interval '2 days'", name)
        self.assertEqual(await installation.accounts.list_recovered(60.0), [])
        annotate = "INSERT INTO annotations (resource_id, name, value) VALUES ('acme:user:admin', %s, 'false')"
        for annotation in ("authn/api-key", "other"):
            self.server.command(annotate.replace("%s", f"'{annotation}'"), name)
        self.assertTrue((await credentials.read_credential(admin)).api_key_off)
        await installation.recover_account("acme", "again")
        self.assertFalse((await credentials.read_credential(admin)).api_key_off)
        left = self.server.command("SELECT name FROM annotations WHERE resource_id = 'acme:user:admin'", name)
        self.assertEqual(left, [("other",)])
        self.assertEqual(self.server.command("SELECT count(*) FROM recoveries", name), [(1,)])
        await self.assertFailure(Deferred.fromCoroutine(installation.recover_account("none", "key", trail)), RecordNotFound)
        self.server.command("DELETE FROM roles WHERE role_id = 'acme:user:admin'", name)
        await self.assertFailure(Deferred.fromCoroutine(installation.recover_account("acme", "key", trail)), RecordNotFound)

    async def test_administration(self) -> None:
        """A command's work is done on an installation of its own, of which nothing is left, also when the work fails."""

        async def create(installation: Installation) -> str:
            await installation.create_account("acme", "key")
            return "done"

        self.assertEqual(await run_on_installation(reactor, self.settings(), create), "done")
        await self.assertFailure(Deferred.fromCoroutine(run_on_installation(reactor, self.settings(), create)), Conflict)
        sessions = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'svc'"
        while self.server.command(sessions):
            await self.server.start()

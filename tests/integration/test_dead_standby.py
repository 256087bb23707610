"""A primary whose synchronous standby is away: a client that writes waits for it, and nobody else does."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater

from svc.crypto.keyfiles import admin_key_file
from svc.crypto.vault import api_key_name
from svc.model.errors import OutcomeUnknown, StoreUnavailable
from svc.model.names import RoleName, admin_of
from svc.model.query_results import Sealed, StoredSigningKey
from svc.server.bootstrap import WRITERS, Installation
from svc.server.lifecycle import OrderedMultiService
from svc.settings.reading import read_settings
from svc.storage.accounts import AccountStore
from svc.storage.credentials import CredentialStore
from svc.storage.driver.statements import Statement, Transaction
from tests.integration.client import Answer, Api
from tests.integration.process import DATA_KEY, ServerTestCase
from tests.integration.replication import PairTestCase

reactor: Any = installed_reactor

INSERT: Final = Statement("note", "INSERT INTO notes (id) VALUES ($1) ON CONFLICT DO NOTHING")
NOTES: Final = Statement("notes", "SELECT id FROM notes ORDER BY id")

#: Who waits for the standby, and as which process.
WAITING: Final = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' ORDER BY pid"

#: How many write, each over and over, and how many read and log in beside them.
WRITING: Final = 24
READING: Final = 4

#: For how long the standby is away, in seconds: longer than a server with a time-out of 1 s for statements waits for it.
AWAY: Final = 8.0

POLICY: Final = "".join(f"- !variable v{number}\n" for number in range(WRITING))


class SynchronousTestCase(PairTestCase):
    """A pair whose standby the primary waits for at each COMMIT."""

    async def prepare(self) -> None:
        """Have it wait, until the test ends."""
        await super().prepare()
        self.addCleanup(self.set_standbys, "")
        self.addCleanup(self.pair.follower.thaw)
        await self.set_standbys("*")

    async def set_standbys(self, names: str) -> None:
        """Say which standbys are waited for."""
        self.pair.primary.command(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        self.pair.primary.command("SELECT pg_reload_conf()")
        shown = [(names,)]
        await self.pair.until(
            lambda: self.pair.primary.command("SHOW synchronous_standby_names") == shown, "the setting isn't taken over"
        )

    def waiting(self) -> list[int]:
        """The processes of the primary that wait for the standby."""
        return [pid for (pid,) in self.pair.primary.command(WAITING)]


def begun(awaitable: Awaitable[Any]) -> Deferred[Any]:
    """Run it as far as it gets, and go on beside it."""

    async def run() -> Any:
        return await awaitable

    return Deferred.fromCoroutine(run())


class CommitTests(SynchronousTestCase):
    """What becomes of a COMMIT that waits."""

    async def prepare(self) -> None:
        """Make a table, and have a database with one session for writing."""
        await super().prepare()
        self.pair.primary.command("CREATE TABLE notes (id int PRIMARY KEY)", self.name)
        self.database = await self.opened(self.pair.primary.dsn(self.name), pool_size=1, statement_timeout=1.0)
        await self.database.change(INSERT, 0)
        await self.database.fetch(NOTES)
        await self.pair.follower.freeze()

    async def commits(self, note: int = 1) -> tuple[Deferred[Any], int]:
        """Begin to insert a note; what comes of it, and the process that waits for the standby now."""
        outcome = begun(self.database.change(INSERT, note))
        await self.pair.until(lambda: bool(self.waiting()), "nobody waits for the standby")
        (pid,) = self.waiting()
        return outcome, pid

    async def gone(self, pid: int) -> None:
        """Wait until a process of the primary is gone."""
        await self.pair.until(
            lambda: not self.pair.primary.command(f"SELECT pid FROM pg_stat_activity WHERE pid = {pid}"), "it isn't ended"
        )

    async def test_unknown(self) -> None:
        """A COMMIT whose wait is cancelled, ended or too long is of unknown outcome, and never a success (CLU-12)."""
        ends: dict[str, Callable[[int], object]] = {
            "cancelled": lambda pid: self.pair.primary.command(f"SELECT pg_cancel_backend({pid})"),
            "terminated": lambda pid: self.pair.primary.command(f"SELECT pg_terminate_backend({pid})"),
            "given up": lambda pid: None,
        }
        for note, (word, end) in enumerate(ends.items(), 1):
            outcome, pid = await self.commits(note)
            end(pid)
            with self.assertRaises(OutcomeUnknown, msg=word):
                await outcome
            if word != "cancelled":
                await self.gone(pid)
            self.assertIn((note,), await self.database.fetch(NOTES))

    async def test_readings(self) -> None:
        """While the only session for writing waits, readings go on, alone and in transactions (CLU-13, DATA-15)."""
        outcome, _ = await self.commits()
        for _ in range(3):
            self.assertEqual(await self.database.fetch(NOTES), [(0,)])
            self.assertEqual(await self.database.transact_read_only(lambda transaction: transaction.fetch(NOTES)), [(0,)])
        self.assertNoResult(outcome)
        await self.assertFailure(outcome, OutcomeUnknown)

    async def test_terminated(self) -> None:
        """The process of a session that was given up is terminated, and gone before another one writes (CLU-14)."""
        seen: set[int] = set()
        for note in (1, 2, 3):
            outcome = begun(self.database.change(INSERT, note))
            while not outcome.called:
                self.assertLessEqual(len(waiting := self.waiting()), 1)
                seen.update(waiting)
                await deferLater(reactor, 0.02)
            self.failureResultOf(outcome, OutcomeUnknown)
        self.assertEqual(len(seen), 3)
        for pid in seen:
            await self.gone(pid)

    async def test_terminated_at_a_stop(self) -> None:
        """A database that is stopped leaves nobody behind who waits (CLU-14)."""
        outcome, pid = await self.commits()
        await self.database.stopService()
        await self.assertFailure(outcome, OutcomeUnknown)
        await self.gone(pid)

    async def test_found_there(self) -> None:
        """A client that finds done what it wants has no success before that is known to last (CLU-12)."""
        outcome, _ = await self.commits(1)
        await self.assertFailure(outcome, OutcomeUnknown)
        outcome, _ = await self.commits(1)
        await self.assertFailure(outcome, OutcomeUnknown)
        await self.pair.follower.thaw()
        while True:
            try:
                await self.database.change(INSERT, 1)
            except StoreUnavailable:
                continue
            break
        self.assertEqual(self.pair.follower.command("SELECT id FROM notes ORDER BY id", self.name), [(0,), (1,)])

    async def test_login_that_writes(self) -> None:
        """A login whose password's hash is renewed waits for nobody, and however many do, one renewal is under way
        (CLU-13).
        """
        credentials = CredentialStore(self.database)
        admin = RoleName("acme", "user", "admin")
        key = StoredSigningKey("acme", "key", Sealed(b"k"), 0.0)
        await self.pair.follower.thaw()
        await AccountStore(self.database).create_account("acme", Sealed(b"api"), key)
        await credentials.set_password(admin, Sealed(b"a"))
        await self.pair.follower.freeze()
        for _ in range(20):
            credentials.renew_password(admin, Sealed(b"b"), Sealed(b"a"))
        self.assertEqual((await credentials.read_credential(admin)).password, b"a")
        self.assertEqual((self.database.count_sessions().lent, self.database.count_sessions().waiting), (1, 0))
        await self.pair.follower.thaw()
        await self.pair.until(lambda: not self.waiting(), "the renewal doesn't end")
        while (await credentials.read_credential(admin)).password != b"b":
            await deferLater(reactor, 0.02)

    async def test_refusal(self) -> None:
        """A transaction that is left by an exception waits for nobody."""

        async def refuse(transaction: Transaction) -> None:
            await transaction.fetch(INSERT, 1)
            raise KeyError("refused")

        with self.assertRaises(KeyError):
            await self.database.transact(refuse)
        self.assertEqual(await self.database.fetch(NOTES), [(0,)])


class AccountTests(SynchronousTestCase):
    """Accounts that are made while the standby is away."""

    async def test_key(self) -> None:
        """The key of an admin, whose account was perhaps made, isn't lost (NAME-29)."""
        given = {"database_url": self.pair.primary.dsn(self.name), "data_dir": str(Path(self.mktemp()).resolve())}
        settings = read_settings({**given, "statement_timeout": "1"}, {"SERVICE_DATA_KEY": DATA_KEY})
        services = OrderedMultiService()
        services.startService()
        self.addCleanup(services.stopService)
        installation = await Installation.open(services, reactor, settings)
        await self.pair.follower.freeze()
        for account, tell in (("shown", self.fail), ("written", None)):
            making = Deferred.fromCoroutine(installation.ensure_account(account, settings.data_dir, tell))
            await self.assertFailure(making, OutcomeUnknown)
            await self.pair.until(lambda: not self.waiting(), "the COMMIT waits on")
            sql = f"SELECT api_key FROM credentials WHERE role_id = '{account}:user:admin'"
            ((sealed,),) = self.pair.primary.command(sql, self.name)
            key = installation.vault.open(api_key_name(admin_of(account)), Sealed(bytes(sealed))).decode()
            self.assertEqual(admin_key_file(settings.data_dir, account).read_text(encoding="ascii").strip(), key)


@attrs.define
class Clients:
    """Who writes, reads and logs in, each as soon as it has an answer, until ``ended``.

    ``answers`` counts by what was asked and by status, ``acknowledged`` and ``unknown`` by variable; ``refused`` are the
    answers to writes of which nothing came for certain.
    """

    api: Api
    key: str
    admin: str
    ended: bool = False
    answers: dict[str, Counter[int]] = attrs.field(factory=lambda: defaultdict(Counter))
    acknowledged: Counter[int] = attrs.field(factory=Counter)
    unknown: Counter[int] = attrs.field(factory=Counter)
    refused: list[Answer] = attrs.field(factory=list)
    _values: Iterator[int] = attrs.field(factory=itertools.count)

    async def write(self, number: int) -> None:
        """Give a variable a value that it never had."""
        value = str(next(self._values)).encode()
        answer = await self.api.ask("POST", self.api.variable(f"v{number}"), value, self.admin)
        self.answers["write"][answer.status] += 1
        if answer.status == 201:
            self.acknowledged[number] += 1
        elif answer.json()["error"]["code"] == "outcome_unknown" and "retry-after" not in answer.headers:
            self.unknown[number] += 1
        else:
            self.refused.append(answer)

    async def writes(self, number: int) -> None:
        """Write one variable over and over."""
        while not self.ended:
            await self.write(number)

    async def reads(self) -> None:
        """Read and log in over and over."""
        while not self.ended:
            read = await self.api.ask("GET", self.api.variable("v0"), token=self.admin)
            self.answers["read"][read.status] += 1
            login = await self.api.ask("POST", "/authn/acme/admin/authenticate", self.key.encode())
            self.answers["login"][login.status] += 1


class ServerTests(SynchronousTestCase, ServerTestCase):
    """A server on that primary."""

    timeout = 300

    async def prepare(self) -> None:
        """Start it, and have variables with a value each."""
        await super().prepare()
        self.server = self.serve(
            "--account=acme",
            "--statement-timeout=1",
            "--health-interval=1",
            "--expiration-interval=1",
            "--login-throttle=off",
            database_url=self.pair.primary.dsn(self.name),
        )
        api = Api.of(self, await self.server.ready())
        key = self.server.admin_key()
        self.clients = Clients(api, key, await api.authenticate("admin", key))
        loaded = await api.ask("POST", "/policies/acme/policy/root", POLICY.encode(), self.clients.admin)
        self.assertEqual(loaded.status, 201, loaded)
        for number in range(WRITING):
            await self.clients.write(number)
        self.assertEqual(self.clients.answers["write"], {201: WRITING})

    async def test_started_meanwhile(self) -> None:
        """A server that is started while the standby is away serves readings and logins (CLU-13)."""
        await self.pair.follower.freeze()
        another = self.serve("--account=acme", database_url=self.pair.primary.dsn(self.name))
        api = Api.of(self, await another.ready())
        admin = await api.authenticate("admin", self.clients.key)
        self.assertEqual((await api.ask("GET", api.variable("v0"), token=admin)).status, 200)

    async def test_away(self) -> None:
        """While the standby is away readings and logins succeed; a few writes wait, and none is told to have succeeded
        (CLU-13).

        Once it is back, writes succeed. It has whatever was acknowledged, and nothing that wasn't asked for; and the audit
        tells of each write what was told to its client.
        """
        clients, most = self.clients, 0
        await self.pair.follower.freeze()
        asking = [begun(clients.writes(number)) for number in range(WRITING)]
        asking += [begun(clients.reads()) for _ in range(READING)]
        until = reactor.seconds() + AWAY
        while reactor.seconds() < until:
            most = max(most, len(self.waiting()))
            await deferLater(reactor, 0.1)
        self.assertEqual(clients.acknowledged.total(), WRITING)
        await self.pair.follower.thaw()
        await self.pair.until(lambda: clients.acknowledged.total() > 3 * WRITING, "writes don't succeed again")
        clients.ended = True
        await gatherResults(asking)
        self.assertEqual([set(clients.answers[what]) for what in ("read", "login", "write")], [{200}, {200}, {201, 503}])
        self.assertEqual(most, WRITERS)
        self.assertGreater(clients.unknown.total(), WRITERS)
        for answer in clients.refused:
            self.assertEqual((answer.json()["error"]["code"], answer.headers["retry-after"]), ("unavailable", "1"))
        await self.pair.caught_up()
        for number, acknowledged in clients.acknowledged.items():
            sql = f"SELECT max(version) FROM secrets WHERE resource_id = 'acme:variable:v{number}'"
            ((kept,),) = self.pair.follower.command(sql, self.name)
            self.assertTrue(acknowledged <= kept <= acknowledged + clients.unknown[number], (number, acknowledged, kept))
        await self.server.stop()
        told = Counter(re.findall(r'\[action@43868 result="(\w+)" operation="update"', self.server.stdout.decode()))
        success, unknown = clients.acknowledged.total(), clients.unknown.total()
        self.assertEqual(told, {"success": success, "unknown": unknown, "failure": len(clients.refused)})

"""The stores on PostgreSQL keep the contracts of the fakes, and stand what comes at once."""

from __future__ import annotations

import string
from functools import partial
from random import Random

import attrs
from twisted.internet import reactor
from twisted.internet.defer import Deferred, DeferredList, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from svc.model.dialect import CONJUR
from svc.model.errors import CallerReplaced, Conflict, PolicyConflict, RecordNotFound, StoreUnavailable
from svc.model.events import EventsQuery
from svc.model.host_factories import CreatedHost, FactoryToken, digest_token
from svc.model.idempotency import RequestKey
from svc.model.ldap_directories import MappingDifference
from svc.model.names import ACCOUNT_LIMIT, IDENTIFIER_LIMIT
from svc.model.policy_loads import Changes, LoadMode, PresentRows, ResourceRow, Rows
from svc.model.query_results import Caller, ResourcesQuery, Sealed, SecretReading
from svc.storage.database_state import DatabaseState
from svc.storage.driver.columns import BATCH
from svc.storage.driver.failures import StatementFailed
from svc.storage.driver.statements import Statement, Transaction
from svc.storage.events import RETENTION
from svc.storage.idempotency import claim_request_key
from svc.storage.ldap_mappings import MappingTransaction
from svc.storage.policies import PolicyTransaction
from svc.storage.sealed_columns import SealedValueStore
from svc.storage.secrets import SecretStore
from svc.storage.sql import visibility
from tests.contracts import (
    access,
    accounts,
    authenticators,
    base,
    callers,
    credentials,
    day,
    deleted,
    directory_users,
    effective,
    endings,
    events,
    expirations,
    factories,
    impact,
    inspection,
    kept_answers,
    last_logins,
    ldap_mappings,
    lists,
    loads,
    policies,
    policy_edits,
    publickeys,
    readings,
    record_limits,
    resources,
    roles,
    secrets,
    sessions,
    state,
)
from tests.contracts.base import ACCOUNT, ADMIN, ROOT, Draft, change, load, resource, role, scenario
from tests.contracts.ldap_mappings import no_trail
from tests.contracts.policies import sets
from tests.integration.stores import SHARED, InPostgres, begun


class AccountStoreTests(accounts.AccountsContract, InPostgres):
    """``AccountStore``."""

    @scenario
    async def test_made_at_once(self) -> None:
        """When an account is made twice at once, one attempt wins and the other is told of a conflict."""
        stores = await self.stores()

        async def attempt(number: int) -> bool:
            key = base.signing_key(ACCOUNT, f"k{number}")
            try:
                await stores.accounts.create_account(ACCOUNT, Sealed(b"%d" % number), key)
            except Conflict:
                return False
            return True

        outcomes = await gatherResults([begun(attempt(number)) for number in range(3)])
        self.assertEqual(sorted(outcomes), [False, False, True])
        winner = outcomes.index(True)
        credential = await stores.credentials.read_credential(ADMIN)
        self.assertEqual((credential.api_key, credential.signing_key), (b"%d" % winner, f"k{winner}"))

    @scenario
    async def test_rotated_at_once(self) -> None:
        """Of keys that are rotated in at once, one is left to be the newest."""
        stores = await self.stores_with_account()
        rotations = [
            begun(stores.accounts.rotate_signing_key(base.signing_key(ACCOUNT, f"new {number}"), 5.0)) for number in range(4)
        ]
        await gatherResults(rotations)
        keys = await stores.accounts.list_signing_keys(ACCOUNT)
        self.assertEqual([key.retires_at for key in keys], [5.0, 5.0, 5.0, 5.0, None])


class AuthenticatorStoreTests(authenticators.AuthenticatorsContract, InPostgres):
    """``AuthenticatorStore``."""


class RecordLimitTests(record_limits.RecordLimitsContract, InPostgres):
    """``PolicyTransaction`` and ``ResourceStore``, with records that carry much."""


class CallerTests(callers.CallersContract, InPostgres):
    """All stores that are given a caller."""

    @scenario
    async def test_before_the_numbers(self) -> None:
        """A role that was there before roles had numbers is that of tokens without one, until it is deleted."""
        stores = await self.stores_with_account()
        await self.made(stores)
        older = Caller(callers.ALICE, 0)
        with self.assertRaises(CallerReplaced):
            await stores.roles.caller_exists(older)
        await self.database.transact(partial(_executed, "UPDATE roles SET creation = 0 WHERE role_id LIKE '%:user:alice'"))
        self.assertTrue(await stores.roles.caller_exists(older))
        self.assertEqual((await stores.credentials.read_credential(callers.ALICE)).creation, 0)


class DayTests(day.DayContract, InPostgres):
    """All use cases together, without HTTP."""


class EndingStoreTests(endings.EndingsContract, InPostgres):
    """``UpcomingExpirationStore``."""

    async def end_key(self, role_id: str, at: float) -> None:
        """Have an API key end at a moment."""
        ended = "UPDATE credentials SET expires_at = %s WHERE role_id = %s"
        await self.database.transact(lambda transaction: transaction.execute(ended, [at, role_id]))


class PolicyEditStoreTests(policy_edits.PolicyEditsContract, InPostgres):
    """``PolicyEditStore``."""


class LdapMappingStoreTests(ldap_mappings.LdapMappingsContract, InPostgres):
    """``LdapMappingStore``."""

    @scenario
    async def test_logins_at_once(self) -> None:
        """Logins of one user at once make each membership once, and leave none that doesn't follow (LDAP-10)."""
        stores = await self._stores()
        await self.put(stores, ldap_mappings.DEVS, ldap_mappings.A, ldap_mappings.B)
        for names in ([ldap_mappings.DEVS], []):
            logins = [
                stores.mappings.apply_mappings(ldap_mappings.CORP, ldap_mappings.ALICE, names, no_trail) for _ in range(4)
            ]
            outcomes = await gatherResults([begun(login) for login in logins])
            self.assertEqual(sorted(bool(difference) for difference, _ in outcomes), [False, False, False, True])
            expected = [ldap_mappings.A, ldap_mappings.B] if names else []
            self.assertEqual(await self.roles(stores), expected)

    @scenario
    async def test_both_go_at_once(self) -> None:
        """Of two mappings that give the same, and go at once, none leaves the membership behind (LDAP-13)."""
        stores = await self._stores()
        services = (ldap_mappings.CORP, ldap_mappings.OTHER)
        for service in services:
            await self.put(stores, ldap_mappings.DEVS, ldap_mappings.A, to=service)
            await self.apply(stores, ldap_mappings.DEVS, to=service)
        removed, go_on = Deferred[None](), Deferred[None]()

        async def first(transaction: MappingTransaction) -> None:
            await transaction.set_mapping(services[0], ldap_mappings.DEVS, "devs", ())
            removed.callback(None)
            await go_on

        going = begun(stores.mappings.transact(first))
        await removed
        other = begun(self.put(stores, ldap_mappings.DEVS, to=services[1]))
        reactor.callLater(0.3, go_on.callback, None)
        await going
        await other
        self.assertEqual(await self.roles(stores), [])

    @scenario
    async def test_added_meanwhile(self) -> None:
        """A member whom somebody adds while a login makes the same membership stays when the mapping goes (LDAP-12)."""
        stores = await self._stores()
        await self.put(stores, ldap_mappings.DEVS, ldap_mappings.A)
        made, go_on = Deferred[None](), Deferred[None]()

        async def login(transaction: Transaction) -> None:
            ids = [ldap_mappings.A, str(ldap_mappings.ALICE)]
            await transaction.execute("SELECT FROM roles WHERE role_id = %s FOR UPDATE", ids[1:])
            await transaction.execute(
                "INSERT INTO memberships (role_id, member_id, ownership, admin_option) VALUES (%s, %s, false, false)", ids
            )
            await transaction.execute(
                "INSERT INTO mapped_memberships (role_id, member_id, webservice_id, kind, key)"
                " VALUES (%s, %s, %s, 'group', 'devs')",
                [*ids, str(ldap_mappings.CORP)],
            )
            made.callback(None)
            await go_on

        going = begun(self.database.transact(login))
        await made
        added = begun(stores.roles.add_member(ADMIN, role("group:a"), ldap_mappings.ALICE, lambda _: None))
        reactor.callLater(0.3, go_on.callback, None)
        await going
        self.assertTrue(await added)
        self.assertEqual(await self.put(stores, ldap_mappings.DEVS), [])
        self.assertEqual(await self.roles(stores), [ldap_mappings.A])

    @scenario
    async def test_removed_meanwhile(self) -> None:
        """A login that comes while its mapping is removed makes no membership that nobody is told about (LDAP-18)."""
        stores = await self._stores()
        await self.put(stores, ldap_mappings.DEVS, ldap_mappings.A)
        logins: list[Deferred[tuple[MappingDifference, bool]]] = []

        async def removal(transaction: MappingTransaction) -> list[tuple[str, str]]:
            await transaction.lock_mappings(ldap_mappings.CORP)
            losing = await transaction.list_lost_memberships(ldap_mappings.CORP, ldap_mappings.DEVS, [ldap_mappings.A])
            names = [ldap_mappings.DEVS]
            logins.append(begun(stores.mappings.apply_mappings(ldap_mappings.CORP, ldap_mappings.ALICE, names, no_trail)))
            waited = Deferred[None]()
            reactor.callLater(0.3, waited.callback, None)
            await waited
            await transaction.set_mapping(ldap_mappings.CORP, ldap_mappings.DEVS, "devs", ())
            return losing

        self.assertEqual(await stores.mappings.transact(removal), [])
        ((difference, _),) = await gatherResults(logins)
        self.assertFalse(difference)
        self.assertEqual(await self.roles(stores), [])


class ReadingStoreTests(readings.ReadingsContract, InPostgres):
    """``ReadingStore``."""

    async def test_locked(self) -> None:
        """Counts wait for no load, of a role and a variable that it is about to delete either (READ-4)."""
        stores = await self.prepared()

        async def work(transaction: Transaction) -> None:
            await transaction.execute("SELECT FROM roles WHERE role_id = %s FOR UPDATE", ["acct:host:a"])
            await transaction.execute("SELECT FROM resources WHERE resource_id = %s FOR UPDATE", ["acct:variable:db"])
            await self.read(stores, readings.A, 100)

        await self.database.transact(work)
        self.assertEqual(await self.readers(stores), [(readings.A, 100, 1)])


class LastLoginStoreTests(last_logins.LastLoginsContract, InPostgres):
    """``LastLoginStore``."""

    async def test_locked(self) -> None:
        """A role that a load is about to delete keeps nobody waiting, and comes back to be handed over again (END-22)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("host:a", "host:b"))
        logins = [await self.noted(stores, role(f"host:{name}"), 100) for name in "ab"]

        async def work(transaction: Transaction) -> None:
            await transaction.execute("SELECT FROM roles WHERE role_id = %s FOR UPDATE", ["acct:host:a"])
            self.assertEqual(list(await stores.last_logins.record_logins(logins)), logins[:1])

        await self.database.transact(work)
        self.assertEqual((await stores.last_logins.read_last_login(role("host:b"))).day, 100)
        self.assertEqual(list(await stores.last_logins.record_logins(logins)), [])
        self.assertEqual((await stores.last_logins.read_last_login(role("host:a"))).day, 100)


class DirectoryUserStoreTests(directory_users.DirectoryUsersContract, InPostgres):
    """``DirectoryUserStore``."""


class CredentialStoreTests(credentials.CredentialsContract, InPostgres):
    """``CredentialStore``."""


class KeptAnswerStoreTests(kept_answers.KeptAnswersContract, InPostgres):
    """Stores that make a change once."""

    async def pass_time(self, seconds: float) -> None:
        """Make all answers older."""
        older = f"UPDATE kept_answers SET made_at = made_at - interval '{seconds} seconds'"
        await self.database.transact(lambda transaction: transaction.execute(older))

    async def hold(self, request: RequestKey) -> None:
        """Have a request be under way, until the test ends."""
        claimed, ended = Deferred[None](), Deferred[None]()

        async def work(transaction: Transaction) -> None:
            self.assertIsNone(await claim_request_key(transaction, request))
            claimed.callback(None)
            await ended

        under_way = begun(self.database.transact(work)).addErrback(claimed.errback)

        def end() -> Deferred[None]:
            ended.callback(None)
            return under_way

        self.addCleanup(end)
        await claimed


class DeletedStoreTests(deleted.DeletedContract, InPostgres):
    """``DeletedStore``, and the service on it."""

    async def pass_time(self, seconds: float) -> None:
        """Move the times of values."""
        moved = ", ".join(f"{name} = {name} - interval '{seconds} s'" for name in ("created_at", "expires_at"))
        await self.sql(f"UPDATE secrets SET {moved}")

    async def grow_older(self, seconds: float) -> None:
        """Move the times of deletions."""
        await self.sql(f"UPDATE deleted_records SET deleted_at = deleted_at - interval '{seconds} s'")

    async def sql(self, text: str) -> None:
        """Run a statement."""
        await self.database.transact(lambda transaction: transaction.execute(text))

    @scenario
    async def test_sealed(self) -> None:
        """What is kept stays as it was sealed, under the name of its variable, and a backup is tried with it (DEL-25)."""
        world = await self.deleted_variable()
        found = [each async for each in SealedValueStore(self.database).stream_values() if "deleted" in each[1]]
        self.assertEqual(
            [shown for _, shown, _, _ in found], [f"acct:variable:app/db (version {n}, deleted)" for n in (1, 2)]
        )
        self.assertEqual([world.vault.open(name, sealed) for *_, name, sealed in found], [b"one", b"two"])

    @scenario
    async def test_set_meanwhile(self) -> None:
        """A value that is set while its variable is deleted is kept too, or was never set (DEL-1)."""
        world = await self.world()
        await world.put(deleted.DB, "before")
        setting = [begun(world.put(deleted.DB, f"value {number}")) for number in range(6)]
        deleting = begun(world.load("- !delete { record: !variable db }", deleted.APP, LoadMode.UPDATE))
        outcomes = [await each for each in (DeferredList([one], consumeErrors=True) for one in setting)]
        await deleting
        count = sum(succeeded for ((succeeded, _),) in outcomes)
        self.assertEqual(await world.listed(), [(deleted.DB, tuple(range(1, count + 2)))])

    @scenario
    async def test_at_once(self) -> None:
        """Of requests for the same record that come at once one has it back; who purges it meanwhile takes it, or comes too
        late (DEL-12).
        """
        world = await self.deleted_variable()
        numbers, caller = await world.numbers(), await world.caller(ADMIN)
        restoring = [begun(world.deleted.restore_records(caller, deleted.APP, numbers)) for _ in range(3)]
        purging = begun(world.deleted.purge_records(caller, deleted.APP, numbers))
        found = [await DeferredList([one], consumeErrors=True) for one in restoring]
        for ((succeeded, result),) in found:
            self.assertTrue(succeeded or (isinstance(result, Failure) and result.check(PolicyConflict)), result)
        restored = sum(len(result.records) for ((succeeded, result),) in found if succeeded)
        purged = await purging
        self.assertEqual(restored + len(purged), 1)
        self.assertEqual(await world.value(deleted.DB), "two" if restored else None)


class LittleDeletedStoreTests(deleted.LittleDeletedContract, InPostgres):
    """The same with little room."""


class NothingDeletedStoreTests(deleted.NothingDeletedContract, InPostgres):
    """The same when nothing is kept."""


class EventStoreTests(events.EventsContract, InPostgres):
    """``EventStore``."""

    @scenario
    async def test_events_stay(self) -> None:
        """Nothing changes an event, or removes one before its time; what is older than a year goes (AUD-25)."""
        stores = await self.stores_with_account()
        await events.record(stores, events.event())
        for statement in ("UPDATE audit_events SET did = 'x'", "DELETE FROM audit_events", "TRUNCATE audit_events"):
            await self.assertFailure(begun(self.database.transact(partial(_executed, statement))), StatementFailed)
        await self.database.transact(
            partial(
                _executed,
                "INSERT INTO audit_events (account, at, facility, severity, hostname, appname, procid, msgid, operation,"
                " user_id, client_ip, others, did) SELECT 'acct', now() - interval '366 days', 1, 1, '-', '-', '-', '-',"
                " 'old', '-', '-', '{}', '' FROM generate_series(1, 1500)",
            )
        )
        self.assertEqual(await stores.events.purge_before(IReactorTime(reactor).seconds() - RETENTION), 1500)
        self.assertEqual(await events.operations(stores), ["update"])

    @scenario
    async def test_loads_apart(self) -> None:
        """A policy that was deleted and made again has the events of its own load alone, not of an older one of the same
        number (CON-27).
        """
        stores = await self.stores_with_account()
        for operation in ("older", "newer"):
            made = events.event("policy", operation)._replace(policy=(str(ROOT), 1))
            self.assertEqual(await events.recorded_load(stores, made), 1)
            query = EventsQuery(ACCOUNT, load=(str(ROOT), 1))
            self.assertEqual(await events.operations(stores, query), [operation])
            await self.database.transact(partial(_executed, "DELETE FROM policy_versions"))
        self.assertEqual(await events.operations(stores, query), [])


async def _executed(statement: str, transaction: Transaction) -> int:
    return await transaction.execute(statement)


class ExpirationStoreTests(expirations.ExpirationsContract, InPostgres):
    """``ExpirationStore``."""


class HostFactoryStoreTests(factories.HostFactoriesContract, InPostgres):
    """``HostFactoryStore``."""

    @scenario
    async def test_kept_as_digests(self) -> None:
        """The database holds a token's SHA-256, and nothing from which the token could be had (HF-8, DATA-7)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("host_factory:f"))
        digest = digest_token("token")
        await stores.factories.add_tokens([digest], FactoryToken(role("host_factory:f"), 5.5, ("10.0.0.0/8",)))
        rows = self.server.command("SELECT * FROM host_factory_tokens WHERE expires_at < 'infinity'", SHARED)
        self.assertEqual([[bytes(row[0]), *row[1:]] for row in rows], [[digest, "acct:host_factory:f", 5.5, ["10.0.0.0/8"]]])

    @scenario
    async def test_made_while_the_factory_is_deleted(self) -> None:
        """A host that is made while its factory is deleted is not made (HF-25)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("layer:l", "host_factory:f").grant("layer:l", "host_factory:f"))
        digest = digest_token("token")
        await stores.factories.add_tokens([digest], FactoryToken(role("host_factory:f"), 5.5))
        late: list[Deferred[CreatedHost]] = []

        async def first(transaction: PolicyTransaction) -> None:
            gone = Rows(resources=(ResourceRow("acct:host_factory:f", "acct:user:admin"),))
            await transaction.apply_changes(ROOT, Changes(delete=gone), {})
            late.append(begun(stores.factories.create_host(digest, role("host:h"), {}, Sealed(b"key"))))
            await stores.state.check_connection()

        await stores.policies.transact(first)
        with self.assertRaises(RecordNotFound):
            await late[0]
        self.assertFalse(await stores.has_role(role("host:h")))

    @scenario
    async def test_made_while_declared(self) -> None:
        """A host that is made while a policy declares it is a conflict (HF-24)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("host_factory:f"))
        digest = digest_token("token")
        await stores.factories.add_tokens([digest], FactoryToken(role("host_factory:f"), 5.5))
        late: list[Deferred[CreatedHost]] = []

        async def first(transaction: PolicyTransaction) -> None:
            keys = {"acct:host:h": Sealed(b"declared")}
            await transaction.apply_changes(ROOT, Changes(create=Draft().define("host:h").rows), keys)
            late.append(begun(stores.factories.create_host(digest, role("host:h"), {}, Sealed(b"made"))))
            await stores.state.check_connection()

        await stores.policies.transact(first)
        with self.assertRaises(Conflict):
            await late[0]
        self.assertEqual((await stores.credentials.read_credential(role("host:h"))).api_key, b"declared")

    @scenario
    async def test_made_while_the_policy_is(self) -> None:
        """A factory that makes a host while its policy comes to be, and declares it, waits, and finds it taken (HF-24)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("host_factory:f"))
        digest = digest_token("token")
        await stores.factories.add_tokens([digest], FactoryToken(role("host_factory:f"), 5.5))
        draft = Draft().define("policy:p").define("host:p/h", owner="policy:p")
        late: list[Deferred[CreatedHost]] = []

        async def first(transaction: PolicyTransaction) -> None:
            await transaction.apply_changes(ROOT, Changes(create=draft.rows), {"acct:host:p/h": Sealed(b"declared")})
            late.append(begun(stores.factories.create_host(digest, role("host:p/h"), {}, Sealed(b"made"))))
            await stores.state.check_connection()

        await stores.policies.transact(first)
        with self.assertRaises(Conflict):
            await late[0]
        self.assertEqual((await stores.credentials.read_credential(role("host:p/h"))).api_key, b"declared")

    @scenario
    async def test_made_while_the_policy_waits(self) -> None:
        """A load that declares a host and its policy, while a factory makes the host, is a conflict."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("host_factory:f"))
        digest = digest_token("token")
        await stores.factories.add_tokens([digest], FactoryToken(role("host_factory:f"), 5.5))
        draft = Draft().define("policy:p").define("host:p/h", owner="policy:p")
        seen: list[PresentRows] = []

        async def second(transaction: PolicyTransaction) -> None:
            seen.append(await transaction.read_present_rows(ROOT, draft.rows, ()))
            await stores.factories.create_host(digest, role("host:p/h"), {}, Sealed(b"made"))
            await transaction.apply_changes(ROOT, Changes(create=draft.rows), {"acct:host:p/h": Sealed(b"declared")})

        with self.assertRaises(PolicyConflict):
            await stores.policies.transact(second)
        self.assertEqual(seen[0].foreign.resources, ())
        self.assertEqual((await stores.credentials.read_credential(role("host:p/h"))).api_key, b"made")
        self.assertFalse(await stores.has_role(role("policy:p")))


class PublicKeyStoreTests(publickeys.PublicKeysContract, InPostgres):
    """``PublicKeyStore``."""


class ListTests(lists.ListsContract, InPostgres):
    """``RoleStore``, as it lists."""


class LoadTests(loads.LoadsContract, InPostgres):
    """``PolicyStore``, as it changes rows."""

    @scenario
    async def test_batches(self) -> None:
        """Loads of more rows than go into one statement are made, told and taken away whole."""
        stores = await self.stores_with_account()
        count = BATCH * 2 + 1
        draft = Draft()
        for number in range(count):
            draft.define(f"variable:v{number}").annotate(f"variable:v{number}", {"number": str(number)})
        await load(stores, draft)
        names = [row.resource for row in draft.rows.resources]

        async def ask(transaction: PolicyTransaction) -> tuple[PresentRows, frozenset[str], list[str], list[str]]:
            return (
                await transaction.read_present_rows(role("policy:other"), draft.rows, names),
                await transaction.filter_existing(names),
                await transaction.not_permittable(role("user:nobody"), names),
                await transaction.not_permittable(ADMIN, names),
            )

        present, known, refused, none = await stores.policies.transact(ask)
        self.assertEqual(sets(present.foreign), sets(draft.rows))
        self.assertEqual(known, set(names))
        self.assertEqual(set(refused), set(names))
        self.assertEqual(none, [])
        await change(stores, Changes(delete=draft.rows))
        await self._assert_own(stores, ROOT, Rows())

    @scenario
    async def test_longest_names(self) -> None:
        """Names that are as long as they may be, and cannot be compressed, fit into every key."""
        chance = Random(1)

        def random_text(length: int) -> str:
            return "".join(chance.choices(string.ascii_letters + string.digits, k=length))

        stores = await self.stores()
        account = random_text(ACCOUNT_LIMIT)
        await stores.accounts.create_account(account, Sealed(b"key"), base.signing_key(account, "k"))
        first, second, thing = (f"{random_text(64)}:{random_text(IDENTIFIER_LIMIT)}" for _ in range(3))
        draft = Draft(account).define(first, second, thing, owner=first).grant(first, second).grant(second, first)
        draft.permit(thing, second, random_text(64)).annotate(thing, {random_text(1024): "value"})
        await load(stores, draft, role("policy:root", account))
        access_facts = await stores.roles.access_facts(role(second, account), resource(thing, account))
        self.assertTrue(access_facts.owns)

    @scenario
    async def test_owners_of_owners(self) -> None:
        """A thousand owners of owners can be deleted with the first of them."""
        stores = await self.stores_with_account()
        draft = Draft().define("group:0")
        for number in range(1, 2000):
            draft.define(f"group:{number}", owner=f"group:{number - 1}")
        await load(stores, draft.define("variable:last", owner="group:1999"))
        self.assertTrue((await stores.roles.access_facts(ADMIN, resource("variable:last"))).owns)
        self.assertTrue((await stores.roles.access_facts(role("group:0"), resource("variable:last"))).owns)
        await change(stores, Changes(delete=Rows(resources=(ResourceRow("acct:group:0", "?"),))))
        await self._assert_own(stores, ROOT, Rows())
        self.assertFalse(await stores.has_role(role("group:1999")))

    @scenario
    async def test_race(self) -> None:
        """Of two loads of different policies that create the same thing at once, the second is a conflict (POL-50)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("policy:a", "policy:b"))
        late: list[Deferred[None]] = []

        async def first(transaction: PolicyTransaction) -> None:
            await transaction.apply_changes(role("policy:a"), Changes(create=Draft().define("group:g").rows), {})
            late.append(begun(load(stores, Draft().define("group:g"), role("policy:b"))))
            # The second waits for the first by now, or will find it done: the outcome is the same.
            await stores.state.check_connection()

        await stores.policies.transact(first)
        with self.assertRaises(PolicyConflict):
            await late[0]
        await self._assert_own(stores, role("policy:a"), Draft().define("group:g").rows)

    @scenario
    async def test_race_with_deletion(self) -> None:
        """A load that refers to what another one deletes meanwhile is a conflict (POL-50)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("policy:a", "group:g", "variable:v"))
        late: list[Deferred[None]] = []

        async def first(transaction: PolicyTransaction) -> None:
            gone = Rows(resources=(ResourceRow("acct:group:g", "acct:user:admin"),))
            await transaction.apply_changes(ROOT, Changes(delete=gone), {})
            late.append(begun(load(stores, Draft().permit("variable:v", "group:g", "read"), role("policy:a"))))
            await stores.state.check_connection()

        await stores.policies.transact(first)
        with self.assertRaises(PolicyConflict):
            await late[0]
        await self._assert_own(stores, role("policy:a"), Rows())

    @scenario
    async def test_loaded_while_deleted(self) -> None:
        """What is loaded into a policy while it is deleted goes with it, or is a conflict; nothing is left behind."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("policy:a"))
        late: list[Deferred[None]] = []

        async def first(transaction: PolicyTransaction) -> None:
            await transaction.apply_changes(role("policy:a"), Changes(create=Draft().define("group:g").rows), {})
            gone = Rows(resources=(ResourceRow("acct:policy:a", "acct:user:admin"),))
            late.append(begun(change(stores, Changes(delete=gone))))
            await stores.state.check_connection()

        await stores.policies.transact(first)
        await late[0]
        self.assertFalse(await stores.has_role(role("group:g")))
        with self.assertRaises(PolicyConflict):
            await load(stores, Draft().define("group:g"), role("policy:a"))


class PolicyStoreTests(policies.PoliciesContract, InPostgres):
    """``PolicyStore``, as it answers."""

    @scenario
    async def test_history(self) -> None:
        """The history of a policy holds the texts of its newest twenty versions, as they were (POL-39)."""
        stores = await self.stores_with_account()
        for _ in range(22):
            await self._record(stores, ROOT)
        rows = self.server.command("SELECT * FROM policy_versions ORDER BY version", SHARED)
        self.assertEqual([row[1] for row in rows], list(range(3, 23)))
        self.assertEqual(rows[0][:6], (str(ROOT), 3, "- !user it's 100%\\\n", "0" * 64, str(ADMIN), "2001:db8::1"))


class ResourceStoreTests(resources.ResourcesContract, InPostgres):
    """``ResourceStore``, as it lists from starting points."""

    @scenario
    async def test_many(self) -> None:
        """Who sees more than is listed from starting points is told the same, and so is who sees a few of these."""
        stores = await self.stores_with_account()
        draft = Draft().define("policy:p", "host:h", "host:none")
        names = [f"variable:p/{number:05}" for number in range(visibility.POINTS_MOST + 1)]
        draft.define(*names, owner="policy:p").define("webservice:z").annotate(names[-2], {"name": "rare"})
        await load(stores, draft.permit(names[-1], "host:h", "read").permit("webservice:z", "host:h", "read"))
        everything = [f"{ACCOUNT}:{name}" for name in sorted([*names, "host:h", "host:none", "policy:p", "policy:root"])]
        everything += ["acct:user:admin", "acct:webservice:z"]
        everything.sort()
        for viewer, expected in (
            (ADMIN, everything),
            (role("host:h"), [f"{ACCOUNT}:{names[-1]}", "acct:webservice:z"]),
            (role("host:none"), []),
        ):
            query = ResourcesQuery(viewer, limit=10000)
            self.assertEqual(await stores.resources.list_visible(query), expected)
            self.assertEqual(await stores.resources.list_visible(attrs.evolve(query, limit=3, offset=1)), expected[1:4])
            near = max(len(expected) - 2, 0)
            self.assertEqual(await stores.resources.list_visible(attrs.evolve(query, limit=3, offset=near)), expected[near:])
            self.assertEqual(await stores.resources.count_visible(query), len(expected))
            rare = attrs.evolve(query, search=resources.native("rare"))
            self.assertEqual(len(await stores.resources.list_visible(rare)), int(viewer is ADMIN))
        few = ResourcesQuery(ADMIN, owner=role("host:h"))
        self.assertEqual(await stores.resources.list_visible(few), [])


class SearchingResourceStoreTests(resources.ResourcesContract, InPostgres):
    """``ResourceStore``, as it lists from documents."""

    async def prepare(self) -> None:
        """Have no starting point suffice."""
        await super().prepare()
        self.patch(visibility, "POINTS_MOST", 1)


class WalkingResourceStoreTests(resources.ResourcesContract, InPostgres):
    """``ResourceStore``, as it lists by walks."""

    async def prepare(self) -> None:
        """Have no starting point and no document suffice, and windows be small."""
        await super().prepare()
        self.patch(visibility, "POINTS_MOST", 1)
        self.patch(visibility, "MATCHES_MOST", 1)
        self.patch(visibility, "WINDOW_LEAST", 1)
        self.patch(visibility, "WINDOW_MOST", 4)


class InspectionTests(inspection.InspectionContract, InPostgres):
    """What auditors see."""


class WalkingInspectionTests(inspection.InspectionContract, InPostgres):
    """The same, as lists are made by walks."""

    async def prepare(self) -> None:
        """Have no starting point suffice, and windows be small."""
        await super().prepare()
        self.patch(visibility, "POINTS_MOST", 1)
        self.patch(visibility, "WINDOW_LEAST", 3)
        self.patch(visibility, "WINDOW_MOST", 50)


class EffectiveStoreTests(effective.EffectiveContract, InPostgres):
    """``EffectivePolicyStore``."""


class ImpactTests(impact.ImpactContract, InPostgres):
    """``PolicyStore``, as dry runs ask it."""


class RoleStoreTests(roles.RolesContract, InPostgres):
    """``RoleStore``."""


class SecretStoreTests(secrets.SecretsContract, InPostgres):
    """``SecretStore``."""

    @scenario
    async def test_other_dialect(self) -> None:
        """In the other dialect the MIME type is that of the annotation with its prefix (SEC-11)."""
        stores = await self.stores_with_account()
        await load(
            stores, Draft().define("variable:v").annotate("variable:v", {"svc/mime_type": "a", "conjur/mime_type": "b"})
        )
        reading = await SecretStore(self.database, CONJUR).read_value(ADMIN, resource("variable:v"))
        self.assertEqual(reading.mime_type, "b")

    @scenario
    async def test_written_while_deleted(self) -> None:
        """A writer that comes while the variable is deleted finds it gone."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("variable:v"))
        seen: list[SecretReading] = []
        late: list[Deferred[int | None]] = []

        async def first(transaction: PolicyTransaction) -> None:
            gone = Rows(resources=(ResourceRow("acct:variable:v", "acct:user:admin"),))
            await transaction.apply_changes(ROOT, Changes(delete=gone), {})
            late.append(begun(stores.secrets.write_value(ADMIN, resource("variable:v"), seen.append)))
            await stores.state.check_connection()

        await stores.policies.transact(first)
        self.assertIsNone(await late[0])
        self.assertEqual([reading.access_facts.exists for reading in seen], [False])


class AccessStoreTests(access.AccessContract, InPostgres):
    """``AccessStore``."""


class SessionStoreTests(sessions.SessionsContract, InPostgres):
    """``SessionStore``."""


class DatabaseStateTests(state.StateContract, InPostgres):
    """``DatabaseState``."""

    @scenario
    async def test_canaries_at_once(self) -> None:
        """Servers that start at once agree on one canary (DATA-8)."""
        states = (await self.stores()).state
        attempts = [begun(states.establish_canary(Sealed(b"%d" % number))) for number in range(4)]
        self.assertEqual(len(set(await gatherResults(attempts))), 1)

    @scenario
    async def test_write_moves(self) -> None:
        """The simple transaction writes: the heartbeat moves, and the log with it."""
        states = (await self.stores()).state
        beaten_at = Statement("test_beaten_at", "SELECT beaten_at FROM heartbeat")
        before, position = await self.database.fetch(beaten_at), await states.read_position()
        await states.check_transaction()
        self.assertGreater(await self.database.fetch(beaten_at), before)
        self.assertGreater((await states.read_position()).position, position.position)

    @scenario
    async def test_read_only(self) -> None:
        """A primary that is read-only for a while fails the simple transaction (DATA-51)."""
        database = await self.open_database(f"{self.server.dsn(SHARED)} options='-c default_transaction_read_only=on'")
        states = DatabaseState(database)
        await states.check_connection()
        with self.assertRaisesRegex(StoreUnavailable, "default_transaction_read_only"):
            await states.check_transaction()

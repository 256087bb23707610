"""The stores on PostgreSQL as a whole: on a standby, in a damaged database, on large tables, and beside the fakes."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from itertools import product
from typing import Any, cast

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet import reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import blockingCallFromThread, deferToThread
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import ReadOnlyStandby
from svc.model.names import ResourceName, RoleName
from svc.model.policy_loads import Changes, Rows
from svc.model.query_results import MembersQuery, ResourcesQuery, Sealed, Search
from svc.storage.database_state import DatabaseState
from svc.storage.driver.columns import to_array
from svc.storage.driver.database import Database
from svc.storage.driver.statements import Statement, Transaction
from svc.storage.policies import PolicyTransaction
from svc.storage.sql import visibility
from tests.contracts import base
from tests.contracts.authenticators import BRANCH, HOST, NAMES, UNDER, authenticator
from tests.contracts.base import (
    ACCOUNT,
    ADMIN,
    ODD_IDENTIFIERS,
    ROOT,
    Draft,
    Stores,
    change,
    described,
    load,
    resource,
    role,
    scenario,
)
from tests.contracts.resources import native
from tests.contracts.secrets import always
from tests.integration.postgres import DatabaseTestCase, PostgresTestCase, Server
from tests.integration.stores import InPostgres, database_of, statements, stores_on
from tests.memory import Memory
from tests.test_memory import stores_of

#: Has what was counted in this session shown to all before it answers the next statement.
FLUSH = Statement("test_flush", "SELECT pg_stat_force_next_flush()")
WHOLE_READS = Statement("test_whole_reads", "SELECT relname, seq_scan FROM pg_stat_user_tables ORDER BY relname")


def awaited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that runs in the reactor; called from another thread."""
    return blockingCallFromThread(cast(IReactorFromThreads, reactor), Deferred.fromCoroutine, coroutine)


class DamageTests(DatabaseTestCase):
    """A database whose rows are not what they should be."""

    async def test_privilege_lost(self) -> None:
        """A privilege that is gone, or that is more than it should be, is not the known answer."""
        states, database = DatabaseState(self.database), database_of(self.dsn)
        for damage, repair in (
            ("DELETE FROM permissions", "INSERT INTO permissions VALUES ('/:webservice:health', 'read', '/:group:health')"),
            ("UPDATE permissions SET privilege = 'update'", "UPDATE permissions SET privilege = 'read'"),
            (
                "UPDATE resources SET owner_id = '/:group:health'",
                "UPDATE resources SET owner_id = '/:policy:health'",
            ),
            ("DELETE FROM roles", "SELECT"),
        ):
            self.assertIs(await states.can_check_known_privileges(), True)
            self.server.command(damage, database)
            self.assertIs(await states.can_check_known_privileges(), False, damage)
            self.server.command(repair, database)


class StandbyTests(PostgresTestCase):
    """The stores on a hot standby."""

    async def test_standby(self) -> None:
        """A standby reads and answers health; whatever writes is refused."""
        server = Server()
        self.addCleanup(server.destroy)
        await server.start()
        dsn = await server.create_database("standby")
        database = await self.open_database(dsn)
        stores = stores_on(database)
        await stores.accounts.create_account(ACCOUNT, Sealed(b"key"), base.signing_key(ACCOUNT, "k"))
        await stores.state.establish_canary(Sealed(b"canary"))
        await load(stores, authenticator().define("variable:v"))
        await stores.secrets.write_value(ADMIN, resource("variable:v"), always(b"value"))
        written = await stores.state.read_position()
        await maybeDeferred(database.stopService)
        await server.demote()
        stores = stores_on(await self.open_database(dsn))

        await stores.state.check_connection()
        await stores.state.check_transaction()
        self.assertIs(await stores.state.can_check_known_privileges(), True)
        self.assertEqual(await stores.state.establish_canary(Sealed(b"another")), b"canary")
        position = await stores.state.read_position()
        self.assertTrue(position.standby)
        self.assertGreaterEqual(position.position, written.position)
        self.assertTrue((await stores.authenticators.read_candidate(HOST, BRANCH, NAMES, UNDER)).may_authenticate)
        self.assertEqual((await stores.secrets.read_value(ADMIN, resource("variable:v"))).sealed, b"value")
        self.assertEqual(len(await stores.roles.list_members(MembersQuery(ROOT))), 1)

        for refused in (
            stores.accounts.create_account("more", Sealed(b"key"), base.signing_key("more", "m")),
            stores.accounts.rotate_signing_key(base.signing_key(ACCOUNT, "n"), 1.0),
            stores.secrets.write_value(ADMIN, resource("variable:v"), always(b"other")),
            load(stores, Draft().define("group:new")),
        ):
            with self.assertRaises(ReadOnlyStandby):
                await refused


class PlanTests(DatabaseTestCase):
    """How PostgreSQL finds what the stores ask."""

    async def test_no_table_is_read_whole(self) -> None:
        """Statements that are prepared while the tables are as good as empty look rows up, and go on doing so."""
        # In one session, so that what is counted for it has been by the time that it answers the last question.
        database = await self.open_database(self.dsn, pool_size=1)
        stores = stores_on(database)
        await stores.accounts.create_account(ACCOUNT, Sealed(b"key"), base.signing_key(ACCOUNT, "k"))
        self.server.command("VACUUM ANALYZE", database_of(self.dsn))
        before = await self._whole_reads(database)
        await self._ask(stores)
        await load(stores, authenticator().define("variable:v", *(f"host:h{number}" for number in range(2000))))
        await self._ask(stores)
        self.assertEqual(await self._whole_reads(database), before)

    async def _ask(self, stores: Stores) -> None:
        for caller in (ADMIN, HOST, role("host:nobody")):
            await stores.authenticators.read_candidate(caller, BRANCH, NAMES, UNDER)
            await stores.authenticators.read_settings(ACCOUNT, BRANCH, NAMES)
            await stores.credentials.read_credential(caller)
            await stores.secrets.read_value(caller, resource("variable:v"))
            await stores.secrets.read_value(caller, resource("variable:v"), 1)
            await stores.roles.access_facts(caller, ROOT.resource)
            await stores.roles.list_members(MembersQuery(ROOT, limit=1))
            await stores.roles.count_members(MembersQuery(ROOT, kinds=("host", "user")))
            searched = MembersQuery(ROOT, search=Search("admin", split=True, by_class=True))
            for query in (MembersQuery(ROOT), searched):
                await stores.roles.list_members(query)
                await stores.roles.count_members(query)
                await stores.roles.list_memberships(query)
                await stores.roles.list_effective_members(query)
            await stores.roles.read_role(ROOT)
            await stores.roles.list_held_roles(caller)
            async for _ in stores.roles.stream_graph(caller, ROOT):
                pass
            found = ResourcesQuery(caller, ACCOUNT, owner=HOST, search=native("variable h1"))
            for most, wanted in product((5000, 1), (ResourcesQuery(caller), found)):
                # From starting points, and by walks.
                self.patch(visibility, "POINTS_MOST", most)
                self.patch(visibility, "MATCHES_MOST", most)
                await stores.resources.list_visible(wanted)
                await stores.resources.count_visible(wanted)
            await described(stores, [str(ROOT), "acct:variable:v"], 100)
            await stores.resources.list_permitted_roles(ROOT.resource, "read", 10)
        await stores.secrets.write_value(ADMIN, resource("variable:v"), lambda reading: None)

    async def _whole_reads(self, database: Database) -> list[tuple[Any, ...]]:
        """How often each table has been read from end to end."""
        await database.fetch(FLUSH)
        return await database.fetch(WHOLE_READS)


#: A few roles: the owner of each, one of them or the admin; grants, with or without admin option; what is permitted on two
#: variables and a group; the owners of the variables.
NUMBERS = st.integers(0, 4)
GRAPHS = st.tuples(
    st.lists(st.none() | NUMBERS, min_size=5, max_size=5),
    st.lists(st.tuples(NUMBERS, NUMBERS, st.booleans()), max_size=8, unique_by=lambda grant: grant[:2]),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["read", "update"]), NUMBERS), max_size=4, unique=True),
    st.lists(st.none() | NUMBERS, min_size=2, max_size=2),
)
Graph = tuple[list[int | None], list[tuple[int, int, bool]], list[tuple[int, str, int]], list[int | None]]

#: All roles of the account ``graph`` are given so many others that these are not listed for every question.
MANY_ROLES = """
    CREATE TEMPORARY TABLE drawn ON COMMIT DROP AS SELECT role_id FROM roles WHERE role_id LIKE 'graph:%';
    INSERT INTO roles (role_id) SELECT 'graph:layer:' || n FROM generate_series(0, 1000) AS n;
    INSERT INTO memberships (role_id, member_id, ownership, admin_option)
        SELECT 'graph:layer:' || n, 'graph:layer:0', false, false FROM generate_series(1, 1000) AS n;
    INSERT INTO memberships (role_id, member_id, ownership, admin_option)
        SELECT 'graph:layer:0', role_id, false, false FROM drawn
"""

#: And so many members, that these are not followed.
MANY_MEMBERS = """
    CREATE TEMPORARY TABLE drawn ON COMMIT DROP AS
        SELECT role_id FROM roles WHERE role_id LIKE 'graph:%' AND role_id NOT LIKE 'graph:layer:%';
    INSERT INTO roles (role_id) SELECT 'graph:host:' || n FROM generate_series(1, 150) AS n;
    INSERT INTO memberships (role_id, member_id, ownership, admin_option)
        SELECT role_id, 'graph:host:' || n, false, n % 2 = 0 FROM drawn, generate_series(1, 150) AS n
"""

ROLES = ["policy:p", *(f"group:p/{number}" for number in range(1, 5))]
VARIABLES = ["variable:p/0", "variable:p/1", ROLES[1]]


def drawn(account: str, graph: Graph) -> Draft:
    """The rows of a graph."""
    owners, grants, permits, variable_owners = graph
    draft = Draft(account)
    for name, owner in zip([*ROLES, *VARIABLES[:2]], [*owners, *variable_owners], strict=True):
        draft.define(name, owner="user:admin" if owner is None else ROLES[owner])
    for granted, member, admin in grants:
        draft.grant(ROLES[granted], ROLES[member], admin=admin)
    for thing, privilege, grantee in permits:
        draft.permit(VARIABLES[thing], ROLES[grantee], privilege)
    return draft


class AgreementTests(InPostgres):
    """The stores on PostgreSQL and the fakes."""

    @scenario
    async def test_standing(self) -> None:
        """They agree on how everybody stands towards everything, and on who may change what, in whatever graph of roles."""
        real = await self.stores()
        numbers = iter(range(10**6))

        async def compare(graph: Graph) -> None:
            account = f"graph{next(numbers)}"
            fake = stores_of(Memory())
            for stores in (real, fake):
                await stores.accounts.create_account(account, Sealed(b"key"), base.signing_key(account, account))
                draft = drawn(account, graph)
                policy = role("policy:p", account)
                root = role("policy:root", account)
                first = attrs.evolve(draft.rows, resources=draft.rows.resources[:5], permissions=())
                await change(stores, Changes(create=first), root)
                rest = Rows(resources=draft.rows.resources[5:], permissions=draft.rows.permissions)
                await change(stores, Changes(create=rest), policy)
            self.assertEqual(await self._answers(real, account), await self._answers(fake, account))
            expected = await self._allowed(fake, account)
            # With many roles there is much to clear away after the test: not each time.
            for growth in ("SELECT", MANY_ROLES, MANY_MEMBERS) if account.endswith("5") else ("SELECT",):
                grow = partial(Transaction.execute, sql=growth.replace("graph", account))
                await self.database.transact(grow)
                self.assertEqual(await self._allowed(real, account), expected, growth)

        @settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(GRAPHS)
        def agree(graph: Graph) -> None:
            awaited(compare(graph))

        await deferToThread(agree)

    async def _answers(self, stores: Stores, account: str) -> dict[object, object]:
        callers = [RoleName.parse(f"{account}:{name}") for name in (*ROLES, "user:admin", "user:nobody")]
        things = [ResourceName.parse(f"{account}:{name}") for name in (*ROLES, *VARIABLES[:2], "user:admin", "variable:no")]
        answers: dict[object, object] = {
            (caller, thing): await stores.roles.access_facts(caller, thing) for caller, thing in product(callers, things)
        }
        for most, caller, owner in product((5000, 1), callers, (None, callers[1])):
            # From starting points, and by walks.
            self.patch(visibility, "POINTS_MOST", most)
            query = ResourcesQuery(caller, owner=owner)
            answers["visible", most, caller, owner] = await stores.resources.list_visible(query)
            answers["counted", most, caller, owner] = await stores.resources.count_visible(query)
        for thing in things:
            answers["permitted", thing] = await stores.resources.list_permitted_roles(thing, "read", 100)
        return answers

    async def _allowed(self, stores: Stores, account: str) -> dict[object, object]:
        """What loads of everybody may do, and what they see."""
        callers = [RoleName.parse(f"{account}:{name}") for name in (*ROLES, "user:admin", "user:nobody")]
        ids = [f"{account}:{name}" for name in (*ROLES, *VARIABLES[:2], "user:admin", "variable:no")]
        answers: dict[object, object] = {}

        async def ask(transaction: PolicyTransaction) -> None:
            for caller in callers:
                answers[caller] = (
                    await transaction.not_grantable(caller, ids),
                    await transaction.not_permittable(caller, ids),
                    await transaction.owners_denying(caller, callers[0]),
                    await transaction.filter_visible(caller, ids),
                )

        await stores.policies.transact(ask)
        return answers

    @scenario
    async def test_held_twice(self) -> None:
        """What a role sees through others that it holds twice, by ownership and by a grant, is listed whole, however many
        roles are looked at.
        """
        stores = await self.stores_with_account()
        groups = [f"group:g{number}" for number in range(6)]
        draft = Draft().define("user:u").define(*groups, owner="user:u")
        for group in groups:
            draft.grant(group, "user:u").define(f"variable:of/{group}", owner=group)
        await load(stores, draft)
        for most in range(1, 16):
            self.patch(visibility, "ROLES_MOST", most)
            self.assertEqual(len(await stores.resources.list_visible(ResourcesQuery(role("user:u")))), 2 * len(groups), most)

    @scenario
    async def test_columns(self) -> None:
        """PostgreSQL reads a column as the values that it was made of, whatever they are."""
        reading = Statement("test_columns", "SELECT $1::text[], $2::bytea[], $3::boolean[]")
        texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20) | st.sampled_from(
            ODD_IDENTIFIERS
        )

        @settings(max_examples=50, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(texts), st.lists(st.binary(max_size=20)), st.lists(st.booleans()))
        def agree(words: list[str], values: list[bytes], flags: list[bool]) -> None:
            columns = (to_array(words), to_array(values), to_array(flags))
            (row,) = awaited(self.database.fetch(reading, *columns))
            self.assertEqual(row, (words, values, flags))

        await deferToThread(agree)


class StatementTests(SynchronousTestCase):
    """The statements of all stores."""

    def test_names(self) -> None:
        """No two statements have the same name, so that a session can prepare them all."""
        names = [statement.name for statement in statements()]
        self.assertEqual(sorted(names), sorted(set(names)))
        self.assertGreater(len(names), 100)

"""The plans that a session makes once and keeps, made when PostgreSQL knew little of the tables, and when it knew much."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from twisted.internet import reactor
from twisted.internet.defer import maybeDeferred

from svc.model.names import RoleName
from svc.model.policy_loads import Changes
from svc.model.query_results import Sealed
from svc.storage.driver.columns import to_array
from svc.storage.driver.connection import Session
from svc.storage.driver.database import Database
from svc.storage.driver.location import Location
from svc.storage.driver.statements import Statement
from svc.storage.policies import PolicyTransaction
from svc.storage.sealed_columns import SEALED_COLUMNS
from svc.storage.sql.role_closure import ROLES_FEW
from tests.contracts import base
from tests.contracts.base import ACCOUNT, ADMIN, Draft, change, load, role
from tests.integration.postgres import DatabaseTestCase
from tests.integration.stores import statements, stores_on

#: What is read from end to end, or by a condition that isn't on the first column of its index, and why that is meant.
WHOLE: Final[Mapping[tuple[str, str], str]] = {
    ("account_names", "accounts_pkey"): "lists all accounts",
    ("authenticator_webservices", "accounts_pkey"): "looks into all accounts",
    ("migration_applied", "schema_versions_pkey"): "reads every version of the schema",
    ("migration_applied_steps", "schema_versions_pkey"): "reads every version of the schema",
    ("migration_applied_steps", "schema_steps_pkey"): "reads every version of the schema",
    ("state_ages", "accounts_pkey"): "looks at every account, once a minute",
    ("state_node", "heartbeat"): "has one row",
    ("state_node", "schema_versions_pkey"): "reads the last version of the schema",
    ("state_node", "schema_steps_pkey"): "reads the last version of the schema",
    ("migration_users", "pg_database_datname_index"): "finds the one database",
    ("examination_facts", "pg_authid_rolname_index"): "finds the one role",
    ("deleted_excessive", "deleted_records_by_account"): "adds up what is kept of all accounts",
    ("deleted_totals", "deleted_records_by_account"): "adds up what is kept",
    ("canary", "canary"): "has one row",
    ("state_standby", "heartbeat"): "has one row",
    ("state_beat", "heartbeat"): "has one row",
    ("data_keys", "data_keys_pkey"): "reads all data keys, of which there are few",
    ("data_key_begin", "data_keys_pkey"): "as above",
    ("data_key_old", "data_keys_pkey"): "as above",
    ("data_key_laggards", "data_keys_pkey"): "as above",
    ("data_key_users", "data_key_users"): "has a row for each process",
    ("data_key_laggards", "data_key_users"): "as above",
    ("data_key_announce", "data_key_users"): "as above",
    ("data_key_positions", "data_key_progress"): "has a row for each sealed column",
    ("data_key_progress", "data_key_progress"): "as above",
    ("data_key_again", "data_key_progress"): "as above",
    ("data_key_forget", "data_key_progress"): "as above",
    ("data_key_progress", "data_key_pass"): "has one row",
    ("data_key_canary", "canary"): "has one row",
    ("readings_forget", "reading_servers"): "has a row for each server",
    ("readings_state", "reading_servers_pkey"): "as above",
    ("readings_state", "reading_losses_pkey"): "reads the last day",
    ("readings_purge_sources", "reading_sources"): "has a row for each start of a server in two months",
    **{
        (f"sealed_{each.table}_{each.column}_count", each.table): "counts all, once in a rotation" for each in SEALED_COLUMNS
    },
}

#: What asks for all that a policy recorded. Others that look there would read a policy for each row.
BY_POLICY: Final = frozenset(
    {
        "annotated_by_gone",
        "annotations_own",
        "deleted_listed",
        "deleted_owners",
        "deleted_purge",
        "effective_users",
        "memberships_own",
        "permissions_own",
        "policy_holds_more",
        "resources_own",
        "roles_delete",
        "impact_annotations",
        "impact_gone",
        "impact_memberships",
        "impact_permissions",
    }
)


def grown(account: str, policies: int, hosts: int) -> str:
    """SQL that fills an account: policies have recorded hosts and variables, and own them; a group has all hosts."""
    return f"""
        SET session_replication_role = replica;
        INSERT INTO accounts (account) VALUES ('{account}');
        INSERT INTO roles (role_id) VALUES ('{account}:user:admin'), ('{account}:policy:root'), ('{account}:group:all');
        INSERT INTO roles (role_id, policy_id)
            SELECT '{account}:policy:p' || n, '{account}:policy:root' FROM generate_series(1, {policies}) AS n;
        INSERT INTO roles (role_id, policy_id)
            SELECT '{account}:host:p' || p || '/h' || n, '{account}:policy:p' || p
            FROM generate_series(1, {hosts}) AS n, LATERAL (SELECT 1 + n % {policies}) AS of (p);
        INSERT INTO resources (resource_id, owner_id, policy_id)
            SELECT role_id, coalesce(policy_id, '{account}:user:admin'), policy_id FROM roles
            WHERE role_id LIKE '{account}:%';
        INSERT INTO resources (resource_id, owner_id, policy_id)
            SELECT replace(resource_id, ':host:', ':variable:'), owner_id, policy_id FROM resources
            WHERE resource_id LIKE '{account}:host:%';
        INSERT INTO memberships (role_id, member_id, ownership, admin_option, policy_id)
            SELECT role_id, coalesce(policy_id, '{account}:user:admin'), true, true, policy_id FROM roles
            WHERE role_id LIKE '{account}:%';
        INSERT INTO memberships (role_id, member_id, ownership, admin_option, policy_id)
            SELECT '{account}:group:all', role_id, false, false, '{account}:policy:root' FROM roles
            WHERE role_id LIKE '{account}:host:%';
        INSERT INTO permissions (resource_id, privilege, role_id, policy_id)
            SELECT replace(role_id, ':host:', ':variable:'), 'read', role_id, policy_id FROM roles
            WHERE role_id LIKE '{account}:host:%';
        INSERT INTO annotations (resource_id, name, value, policy_id)
            SELECT role_id, 'note', 'x', policy_id FROM roles WHERE role_id LIKE '{account}:host:%';
        RESET session_replication_role
    """


#: What becomes of a database: each of these in turn changes what PostgreSQL knows of its tables, or should know.
STEPS: Final = (
    "SELECT",
    "VACUUM ANALYZE",
    grown("small", 5, 60),
    "VACUUM ANALYZE",
    grown("large", 100, 20_000),
    "VACUUM ANALYZE",
)

#: A policy that the admin owns and a lead was granted, with very many hosts; beside it a policy with a group and a variable,
#: on which a user has been given a privilege.
HELD: Final = """
    SET session_replication_role = replica;
    INSERT INTO accounts (account) VALUES ('acct');
    INSERT INTO roles (role_id, policy_id) VALUES
        ('acct:user:admin', NULL), ('acct:policy:root', NULL), ('acct:policy:big', 'acct:policy:root'),
        ('acct:user:lead', 'acct:policy:root'), ('acct:user:reader', 'acct:policy:root'),
        ('acct:policy:small', 'acct:policy:root'), ('acct:group:small/g', 'acct:policy:small');
    INSERT INTO roles (role_id, policy_id)
        SELECT 'acct:host:big/h' || n, 'acct:policy:big' FROM generate_series(1, 200000) AS n;
    INSERT INTO memberships (role_id, member_id, ownership, admin_option)
        SELECT role_id, coalesce(nullif(policy_id, 'acct:policy:root'), 'acct:user:admin'), true, true FROM roles
        WHERE role_id LIKE 'acct:%';
    INSERT INTO memberships (role_id, member_id, ownership, admin_option)
        VALUES ('acct:policy:big', 'acct:user:lead', false, false);
    INSERT INTO resources (resource_id, owner_id, policy_id) VALUES
        ('acct:policy:root', 'acct:user:admin', NULL), ('acct:policy:big', 'acct:user:admin', 'acct:policy:root'),
        ('acct:policy:small', 'acct:user:admin', 'acct:policy:root'),
        ('acct:host:big/h1', 'acct:policy:big', 'acct:policy:big'),
        ('acct:group:small/g', 'acct:policy:small', 'acct:policy:small'),
        ('acct:variable:small/v', 'acct:policy:small', 'acct:policy:small');
    INSERT INTO permissions (resource_id, privilege, role_id) VALUES ('acct:variable:small/v', 'read', 'acct:user:reader');
    RESET session_replication_role
"""

#: Events of one account, of which few are about one resource.
EVENTS: Final = """
    INSERT INTO audit_events (
        account, facility, severity, hostname, appname, procid, client_ip, msgid, operation, user_id, role_id, resource_id,
        others, did
    )
        SELECT 'acct', 10, 6, '-', '-', 'id-' || n / 100, '-', 'policy', 'add', 'acct:user:admin', 'acct:group:g' || n % 100,
            'acct:variable:v' || n, '{}', 'x'
        FROM generate_series(1, 20000) AS n
"""

#: Columns, or expressions.
FIRST_COLUMNS: Final = """
    SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid, 1, false)
    FROM pg_index WHERE indrelid IN (SELECT relid FROM pg_stat_user_tables)
"""

READ: Final = Statement(
    "test_entries_read",
    """
    SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes) + (SELECT sum(seq_tup_read) FROM pg_stat_user_tables)
    """,
)

SESSIONS: Final = Statement(
    "test_sessions",
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'",
)

REFERENCES: Final = """
    SELECT conrelid::regclass::text, attname, atttypid::regtype::text
    FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[1]
    WHERE contype = 'f'
"""


def nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A plan, and all the plans in it."""
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


async def entries_read(database: Database) -> int:
    """How many entries of indexes were read by sessions that have ended, and rows by reading tables whole."""
    ending = {*await database.fetch(SESSIONS)}
    await maybeDeferred(database.stopService)
    database.startService()
    await database.wait_until_connected()
    while ending & {*await database.fetch(SESSIONS)}:  # PostgreSQL counts what one has read when it ends, after it was left
        pass
    ((count,),) = await database.fetch(READ)
    return int(count)


class PlansCase(DatabaseTestCase):
    """Where a session explains what it would do, with the settings of every other."""

    async def prepare(self) -> None:
        """Open the session."""
        await super().prepare()
        self.session = Session(reactor, lambda reason: None, 60.0)
        location = Location(reactor, self.dsn, 60.0)
        await self.session.open(await location.resolve_parameters(read_only=False))
        self.addCleanup(self.session.close)
        await self.session.apply_settings(location.session_settings(read_only=False))


class PlanTests(PlansCase):
    """How PostgreSQL finds the rows of each statement."""

    async def prepare(self) -> None:
        """Look what there is to plan for."""
        await super().prepare()
        self.first_columns: dict[str, str] = dict(await self.session.run(FIRST_COLUMNS))
        self.met: set[tuple[str, str]] = set()

    async def test_rows_are_looked_up(self) -> None:
        """Whatever is known of the tables, each is read where an index says, from the first column of the index on."""
        for step in STEPS:
            await self.session.run(step)
            # A restore has the database for itself, and looks at all of it.
            wanted = [statement for statement in statements() if not statement.name.startswith("restoring_")]
            faults = [fault for statement in wanted for fault in await self._faults(statement.name, statement.sql)]
            self.assertEqual(faults, [], step)
        self.assertEqual(self.met, WHOLE.keys())

    async def test_references_are_looked_up(self) -> None:
        """What refers to a row that is deleted is found by the first column of an index, too."""
        for step in STEPS:
            await self.session.run(step)
            faults = [
                fault
                for table, column, kind in await self.session.run(REFERENCES)
                for fault in await self._faults(
                    f"{table}.{column}", f"DELETE FROM ONLY {table} WHERE $1::{kind} OPERATOR(pg_catalog.=) {column}"
                )
                if not (column == "policy_id" and fault.endswith(f" {table}_by_policy"))
            ]
            self.assertEqual(faults, [], step)

    async def _faults(self, name: str, sql: str) -> list[str]:
        ((explained,),) = await self.session.run(f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {sql}")
        return [fault for node in nodes(explained[0]["Plan"]) for fault in self._faults_of(name, node)]

    def _faults_of(self, name: str, node: Mapping[str, Any]) -> Iterator[str]:
        where = node["Relation Name"] if node["Node Type"] == "Seq Scan" else node.get("Index Name")
        if where is None:
            return
        first = re.escape(self.first_columns.get(where, "").strip("()"))
        if re.search(rf"\((ROW\()?(\w+\.)?\(*{first}\)*(,| [=<>])", node.get("Index Cond", "")) is None:
            if (name, where) in WHOLE:
                self.met.add((name, where))
            else:
                yield f"{name}: {node['Node Type']} {where} {node.get('Index Cond')}"
        elif where.endswith("_by_policy") and name not in BY_POLICY:
            yield f"{name}: {node['Node Type']} {where}"


class EventPlanTests(PlansCase):
    """How PostgreSQL finds events."""

    async def test_by_the_index_of_what_is_asked(self) -> None:
        """Events of a role, a resource, a member, a request, who acted, or an operation are found by an index on that, and
        not among all of the account, whatever is known of the table (AUD-30).
        """
        found = {
            f"events_by_{name}": {f"audit_events_by_{name}"} for name in ("role", "resource", "member", "user", "operation")
        }
        # What was found in any of three ways is then fetched one by one.
        found |= {
            "events_by_procid": {"audit_events_by_request"},
            # Of a load it is known when it was.
            "events_by_time": {"audit_events_by_time"},
            "events_about": {*(f"audit_events_by_{name}" for name in ("role", "resource", "member")), "audit_events_pkey"},
        }
        by_name = {statement.name: statement.sql for statement in statements()}
        for step in ("SELECT", EVENTS, "VACUUM ANALYZE audit_events"):
            await self.session.run(step)
            for name, indexes in found.items():
                ((explained,),) = await self.session.run(f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {by_name[name]}")
                used = [node for node in nodes(explained[0]["Plan"]) if node.get("Relation Name") == "audit_events"]
                self.assertEqual({node.get("Index Name") for node in used}, indexes, (name, step))
                by_key = [node["Index Cond"] for node in used if node.get("Index Name") == "audit_events_pkey"]
                self.assertTrue(all("number = " in condition for condition in by_key), by_key)


class HeldTests(PlansCase):
    """Callers that hold very many roles."""

    #: A thing of the policy with many roles, and things of another.
    IDS = ("acct:host:big/h1", "acct:group:small/g", "acct:variable:small/v")

    async def prepare(self) -> None:
        """Fill an account."""
        await super().prepare()
        await self.session.run(HELD)

    async def test_cost(self) -> None:
        """What this caller may do and see is right, and costs no more than the roles that are listed for anybody, and a
        few rows for each thing.
        """
        await self._assert_right()
        by_name = {statement.name: statement for statement in statements()}
        for caller in ("acct:user:admin", "acct:user:lead"):
            for name, *parameters in (
                ("policy_not_grantable", to_array(self.IDS[:2]), caller),
                ("policy_not_permittable", to_array(self.IDS), caller),
                ("policy_owners_denying", caller, "acct", "small"),
                ("impact_visible", to_array(self.IDS), caller),
            ):
                statement = by_name[name]
                if caller == "acct:user:admin":
                    await self.session.run(statement.preparation)
                explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.execution}"
                ((explained,),) = await self.session.run(explain, parameters)
                plan = explained[0]["Plan"]
                blocks = sum(plan[f"{of} Blocks"] for of in ("Shared Hit", "Shared Read", "Temp Read", "Temp Written"))
                self.assertLess(blocks, 4 * ROLES_FEW, (name, caller))

    async def _assert_right(self) -> None:
        stores = stores_on(self.database)

        async def ask(caller: RoleName, transaction: PolicyTransaction) -> tuple[object, ...]:
            return (
                await transaction.not_grantable(caller, self.IDS[:2]),
                await transaction.not_permittable(caller, self.IDS),
                await transaction.owners_denying(caller, role("policy:small")),
                await transaction.filter_visible(caller, self.IDS),
            )

        for caller, expected in (
            (ADMIN, ([], [], [], {*self.IDS})),
            (role("user:lead"), ([self.IDS[1]], [*self.IDS[1:]], ["acct:policy:small"], {self.IDS[0]})),
            (role("user:reader"), (sorted(self.IDS[:2]), sorted(self.IDS), ["acct:policy:small"], {self.IDS[2]})),
        ):
            self.assertEqual(await stores.policies.transact(partial(ask, caller)), expected, caller)


class DeletionTests(DatabaseTestCase):
    """Deletions soon after the rows came."""

    async def test_reads(self) -> None:
        """What is deleted, and all that goes with it, is found by reading little more than that."""
        count = 2000
        stores = stores_on(self.database)
        await stores.accounts.create_account(ACCOUNT, Sealed(b"key"), base.signing_key(ACCOUNT, "k"))
        draft = Draft().define(*(f"user:u{number}" for number in range(count)))
        await load(stores, draft, api_keys={row.resource: Sealed(b"key") for row in draft.rows.resources})
        before = await entries_read(self.database)
        await change(stores, Changes(delete=draft.rows))
        self.assertLess(await entries_read(self.database) - before, 30 * count)

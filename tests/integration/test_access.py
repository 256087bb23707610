"""Who can do what, where many can, on a real PostgreSQL."""

from __future__ import annotations

from svc.model.access import HoldersCursor, PrivilegeHolder
from svc.model.dialect import NATIVE
from svc.model.names import ResourceName, RoleName, admin_of
from svc.model.query_results import Caller
from svc.services.access import AccessService
from svc.services.invocation import Invocation, NullRecorder
from svc.storage.driver.statements import Statement
from svc.storage.sql.access_facts import LOGIN_NUMBERS
from tests.integration.postgres import DatabaseTestCase
from tests.integration.stores import stores_on
from tests.integration.test_plans import entries_read, grown

ACCOUNT = "many"
HOSTS = 8000
POLICIES = 8
V = ResourceName(ACCOUNT, "variable", "v")

#: A variable of a policy's, which the group of all hosts may read.
READABLE = f"""
    SET session_replication_role = replica;
    INSERT INTO resources (resource_id, owner_id) VALUES ('{V}', '{ACCOUNT}:policy:p1');
    INSERT INTO permissions (resource_id, privilege, role_id) VALUES ('{V}', 'read', '{ACCOUNT}:group:all');
    RESET session_replication_role
"""


class ManyTests(DatabaseTestCase):
    """A group of thousands of hosts that policies own: so that these hold its privileges, each through many hosts."""

    async def prepare(self) -> None:
        """Fill an account."""
        await super().prepare()
        self.stores = stores_on(self.database)
        filled = f"{grown(ACCOUNT, POLICIES, HOSTS)}; {READABLE}"
        await self.database.transact(lambda transaction: transaction.execute(filled))
        numbers = f"SELECT {LOGIN_NUMBERS} FROM roles WHERE role_id = '{admin_of(ACCOUNT)}'"
        [(found,)] = await self.database.transact(lambda transaction: transaction.fetch(Statement("test_numbers", numbers)))
        self.caller = Invocation(Caller(admin_of(ACCOUNT), 0, *found), "192.0.2.1", NullRecorder())
        self.access = AccessService(self.stores.access, self.stores.roles, self.stores.resources, NATIVE)

    async def holders(self, limit: int) -> list[PrivilegeHolder]:
        """All pages together."""
        found: list[PrivilegeHolder] = []
        after: HoldersCursor | None = None
        while True:
            page = await self.access.list_holders(self.caller, V, "read", limit=limit, after=after)
            found += page.holders
            after = page.after
            if after is None:
                return found

    async def test_pages(self) -> None:
        """The pages have every holder once, whoever holds it through thousands, those with the shortest ways first; that is
        as many as are counted (ACC-3, ACC-5).
        """
        found = await self.holders(1000)
        permitted = await self.stores.resources.list_permitted_roles(V, "read", 100_000)
        self.assertEqual(len(permitted), HOSTS + POLICIES + 3)
        self.assertEqual(sorted(holder.role for holder in found), permitted)
        lengths = [len(holder.path) for holder in found]
        self.assertEqual(lengths, sorted(lengths))
        ways = {holder.role: [step.role for step in holder.path] for holder in found}
        root, admin = f"{ACCOUNT}:policy:root", str(admin_of(ACCOUNT))
        self.assertEqual(ways[root], [root, f"{ACCOUNT}:policy:p1"])
        self.assertEqual(ways[admin], [admin, f"{ACCOUNT}:group:all"])
        p2 = f"{ACCOUNT}:policy:p2"
        self.assertEqual((ways[p2][0], len(ways[p2]), ways[p2][2]), (p2, 3, f"{ACCOUNT}:group:all"))
        self.assertEqual(await self.access.count_holders(self.caller, V, "read"), len(found))

    async def test_first_page(self) -> None:
        """The first page, one in the middle, and a verdict read little of that."""
        host = RoleName(ACCOUNT, "host", f"p1/h{POLICIES}")
        middle = HoldersCursor(2, True, (f"{ACCOUNT}:group:all", f"{ACCOUNT}:host:p4"))
        before = await entries_read(self.database)
        for after in (None, middle):
            page = await self.access.list_holders(self.caller, V, "read", limit=50, after=after)
            self.assertEqual(len(page.holders), 50)
        verdict = await self.access.check_privilege(self.caller, V, "read", host)
        assert verdict.path is not None
        self.assertEqual([step.role for step in verdict.path], [str(host), f"{ACCOUNT}:group:all"])
        self.assertLess(await entries_read(self.database) - before, HOSTS)

    async def test_one_of_many(self) -> None:
        """A role that holds very many others gets the same verdict as by its pages, by a way as short (ACC-8, ACC-12)."""
        ways = {holder.role: holder.path for holder in await self.holders(1000)}
        for name in ("policy:p1", "policy:p2", "policy:root", "user:admin", "group:all"):
            role = RoleName.parse(f"{ACCOUNT}:{name}")
            verdict = await self.access.check_privilege(self.caller, V, "read", role)
            assert verdict.path is not None
            self.assertEqual((verdict.allowed, len(verdict.path)), (True, len(ways[str(role)])), name)
            no = await self.access.check_privilege(self.caller, V, "update", role)
            self.assertEqual(no.allowed, name not in {"policy:p2", "group:all"}, name)
            after: str | None = None
            reached: list[str] = []
            while True:
                page = await self.access.list_reachable_resources(self.caller, role, limit=1000, after=after)
                reached += [each.resource for each in page.resources]
                after = page.after
                if after is None:
                    break
            self.assertIn(str(V), reached, name)
            if name == "user:admin":
                self.assertEqual(len(reached), 2 * HOSTS + POLICIES + 4)

"""Search and pages on a real PostgreSQL: what English adds, what large values and races do, and how many rows are read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
from twisted.internet.defer import Deferred

from svc.model.errors import TooManyRoles
from svc.model.policy_loads import Changes
from svc.model.query_results import ListingKey, MembersQuery, Sealed, Search
from svc.storage.driver.migrations import Migration, load_migrations, migrate
from svc.storage.driver.statements import Statement
from svc.storage.policies import PolicyTransaction
from svc.storage.sql import membership_graph
from svc.storage.sql.search import SHORT
from svc.web.routes.listing import SEARCH_LIMIT
from tests.contracts import base
from tests.contracts.base import ACCOUNT, ADMIN, Draft, Stores, load, role, scenario
from tests.contracts.lists import GROUP, names, searching
from tests.integration.postgres import DatabaseTestCase, PostgresTestCase
from tests.integration.stores import InPostgres, begun, database_of, stores_on
from tests.integration.test_storage_facts import FLUSH

READ = Statement(
    "test_rows_read",
    """
    SELECT coalesce(sum(idx_tup_fetch + seq_tup_read), 0)::bigint FROM pg_stat_user_tables WHERE relname = ANY ($1::text[])
    """,
)


class EnglishTests(InPostgres):
    """What the fakes of the stores don't know."""

    async def _found(self, stores: Stores, text: str, *, split: bool = True) -> list[str]:
        return names(await stores.roles.list_members(searching(text, split=split)))

    @scenario
    async def test_english(self) -> None:
        """Words count by their stems, stop words not at all, accents do; what is stop words alone is found by its kind
        (RES-10).
        """
        stores = await self.stores_with_account()
        draft = Draft().define("group:g", "host:users/deploying", "host:the", "host:café", "user:u", "host_factory:x")
        draft.grant("group:g", "host:users/deploying", "host:the", "host:café", "user:u", "host_factory:x")
        await load(stores, draft)
        hosts = ["host:café", "host:the", "host:users/deploying"]
        for text, expected in (
            ("user", ["host:users/deploying", "user:admin", "user:u"]),
            ("deploys user", ["host:users/deploying"]),
            ("the", []),
            ("and or not the", []),
            ("the host", sorted([*hosts, "host_factory:x"])),
            ("café", ["host:café"]),
            ("cafe", []),
            ("factories", ["host_factory:x"]),
        ):
            self.assertEqual(await self._found(stores, text), expected, text)

    @scenario
    async def test_values(self) -> None:
        """In values that aren't split, hyphenated words are found in parts, and names of hosts not even whole (RES-11)."""
        stores = await self.stores_with_account()
        draft = Draft().define("group:g", "host:h").grant("group:g", "host:h")
        await load(stores, draft.annotate("host:h", {"a": "foo-bar", "b": "ci.example.com", "name": "web-01"}))
        for text, plain, split in (
            ("bar", True, True),
            ("foo-bar", True, True),
            ("example", False, True),
            ("ci.example.com", False, True),
            ("web", True, True),
            ("web-01", False, True),
        ):
            for wanted, is_split in ((plain, False), (split, True)):
                self.assertEqual(await self._found(stores, text, split=is_split), ["host:h"] * wanted, (text, is_split))

    @scenario
    async def test_any_text(self) -> None:
        """No text of a search, of any length that is let through, is more than text (RES-12)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("group:g", "host:h").grant("group:g", "host:h"))
        short = "".join(f"{chr(97 + n % 26)}{n} " for n in range(SEARCH_LIMIT))[:SEARCH_LIMIT]
        for text in (
            "'",
            "''",
            "\\",
            "a' & 'b",
            "!host",
            "host:*",
            "host | (",
            "<a href='x'>",
            "<!-- x",
            "&amp;",
            "http://a.b/c?d=e&f",
            "1.5e10 -3",
            "\ufeff\u200b☃𝄞",
            "%s $1 {}",
            "x" * SEARCH_LIMIT,
            "host " * (SEARCH_LIMIT // 5),
            "!" * SEARCH_LIMIT,
            short,
        ):
            for split in (True, False):
                found = await self._found(stores, text, split=split)
                self.assertLessEqual(set(found), {"host:h"})
                self.assertEqual(await stores.roles.count_members(searching(text, split=split)), len(found))

    @scenario
    async def test_large_values(self) -> None:
        """Annotations of any size and number load, and their beginning is found."""
        stores = await self.stores_with_account()
        words = {
            "many": " ".join(f"{n:x}" for n in range(400_000)),
            "wide": " ".join(chr(0x4E00 + n % 20_000) + chr(0x4E00 + n // 20_000) for n in range(100_000)),
            "hyphens": "-".join(f"{n:x}" for n in range(100_000)),
            "one": "x" * 3_000_000,
            "name": "first " + " ".join(f"{n:x}" for n in range(400_000)),
        }
        draft = Draft().define("group:g", "host:h").grant("group:g", "host:h").annotate("host:h", words)
        for name, value in words.items():
            draft.define(f"host:{name}").grant("group:g", f"host:{name}").annotate(
                f"host:{name}", {"x": value, "name": value}
            )
        await load(stores, draft)
        self.assertEqual(await self._found(stores, "first"), ["host:h", "host:name"])

    @scenario
    async def test_annotated_at_once(self) -> None:
        """Of two policies that annotate one thing at once, both annotations are found (RES-14)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("group:g", "host:h", "policy:a", "policy:b").grant("group:g", "host:h"))
        late: list[Deferred[None]] = []

        async def first(transaction: PolicyTransaction) -> None:
            await transaction.apply_changes(
                role("policy:a"), Changes(create=Draft().annotate("host:h", {"a": "orange"}).rows), {}
            )
            late.append(begun(load(stores, Draft().annotate("host:h", {"b": "lemon"}), role("policy:b"))))
            await stores.state.check_connection()

        await stores.policies.transact(first)
        await late[0]
        self.assertEqual(await self._found(stores, "orange lemon"), ["host:h"])


class MigrationTests(PostgresTestCase):
    """A database from before there was search."""

    async def test_what_is_there_is_indexed(self) -> None:
        """The migration makes documents of what is there already."""
        dsn = await self.create_database(migrated=False)
        database = await self.open_database(dsn)
        before: list[Migration] = load_migrations()[:2]
        await migrate(database, before)
        self.server.command(
            "INSERT INTO roles (role_id) VALUES ('acct:group:g'), ('acct:host:web/blue');"
            "INSERT INTO resources (resource_id, owner_id) VALUES ('acct:host:web/blue', 'acct:group:g');"
            "INSERT INTO annotations (resource_id, name, value) VALUES ('acct:host:web/blue', 'note', 'orange');"
            "INSERT INTO memberships VALUES ('acct:group:g', 'acct:host:web/blue', false, false, NULL)",
            database_of(dsn),
        )
        await migrate(database)
        stores = stores_on(database)
        for text in ("blue", "orange", "host"):
            self.assertEqual(names(await stores.roles.list_members(searching(text))), ["host:web/blue"])


class RowsReadTests(DatabaseTestCase):
    """How many rows PostgreSQL reads, by statements that were prepared while the tables were as good as empty."""

    async def prepare(self) -> None:
        """Ask everything once, then make many members."""
        await super().prepare()
        # In one session, so that what is counted for it has been by the time that it answers the last question.
        self.one = await self.open_database(self.dsn, pool_size=1)
        self.stores = stores_on(self.one)
        await self.stores.accounts.create_account(ACCOUNT, Sealed(b"key"), base.signing_key(ACCOUNT, "k"))
        self.server.command("VACUUM ANALYZE", database_of(self.dsn))
        for ask in self._questions(""):
            await ask()
        hosts = [f"host:h{number:05}" for number in range(2 * SHORT)]
        draft = Draft().define("group:g", *hosts).grant("group:g", *hosts)
        draft.define("layer:l").grant("layer:l", *hosts[:5]).annotate(hosts[-1], {"note": "orange"})
        await load(self.stores, draft)

    def _questions(self, after: str) -> list[Callable[[], Awaitable[Any]]]:
        roles, place = self.stores.roles, ListingKey(f"acct:host:{after}")
        orange = searching("orange", asked=GROUP)
        few = searching("host", asked=role("layer:l"))
        return [
            lambda: roles.list_members(MembersQuery(GROUP, limit=10)),
            lambda: roles.list_members(MembersQuery(GROUP, limit=10, after=place)),
            lambda: roles.list_members(MembersQuery(GROUP, ("host", "user"), limit=10, after=place)),
            lambda: roles.list_members(MembersQuery(GROUP, ("user",), limit=10)),
            lambda: roles.list_memberships(MembersQuery(ADMIN, limit=10, after=place)),
            lambda: roles.list_memberships(MembersQuery(ADMIN, ("layer",), limit=10)),
            lambda: roles.read_role(GROUP),
            lambda: roles.list_members(attrs.evolve(orange, limit=10)),
            lambda: roles.count_members(orange),
            lambda: roles.list_members(few),
        ]

    async def _read(self, ask: Callable[[], Awaitable[Any]], *tables: str) -> int:
        """How many rows of these tables an answer took."""
        counts = []
        for question in (None, ask):
            if question is not None:
                await question()
            await self.one.fetch(FLUSH)
            ((count,),) = await self.one.fetch(READ, list(tables))
            counts.append(count)
        return int(counts[1] - counts[0])

    async def test_pages(self) -> None:
        """A page anywhere, of few kinds or of all, reads as many rows as it has, give or take a few."""
        for number, ask in enumerate(self._questions("h03900")[:7]):
            self.assertLessEqual(await self._read(ask, "memberships"), 15, number)

    async def test_searches(self) -> None:
        """A search that matches little reads that, in a long list, and one in a short list reads the list."""
        for number, ask in enumerate(self._questions("")[7:]):
            read = await self._read(ask, "documents")
            self.assertLessEqual(read, 10, number)
        self.assertEqual(len(await self.stores.roles.list_members(searching("host", asked=role("layer:l")))), 5)
        self.assertEqual(names(await self.stores.roles.list_members(searching("orange", asked=GROUP))), ["host:h03999"])

    async def test_both_ways_agree(self) -> None:
        """A search in a long list, by class or not, finds what it would find in a short one."""
        query = searching("host", asked=GROUP)
        whole = await self.stores.roles.list_members(query)
        self.assertEqual(len(whole), 2 * SHORT)
        self.assertEqual(await self.stores.roles.count_members(query), 2 * SHORT)
        by_id = await self.stores.roles.list_members(attrs.evolve(query, search=Search("host", False, False), limit=5))
        self.assertEqual(names(by_id), names(whole)[:5])
        after = attrs.evolve(query, after=ListingKey("acct:host:h03997", rank=2))
        self.assertEqual(names(await self.stores.roles.list_members(after)), ["host:h03998", "host:h03999"])
        self.assertEqual(await self.stores.roles.list_members(attrs.evolve(query, kinds=("group", "user"))), [])

    async def test_graph_is_bounded(self) -> None:
        """Roles are followed over many batches, and no further than the bound (ROLE-32)."""
        effective = await self.stores.roles.list_effective_members(MembersQuery(GROUP))
        self.assertEqual(len(effective.members), 2 * SHORT + 1)
        self.assertEqual(effective.shortest_path(effective.members[0]), ("acct:group:g", "acct:host:h00000"))
        found = await self.stores.roles.list_effective_members(searching("orange", asked=GROUP))
        self.assertEqual(list(map(found.listing_key, found.members)), [ListingKey("acct:host:h03999", rank=1)])
        edges = [edge async for batch in self.stores.roles.stream_graph(ADMIN, GROUP) for edge in batch]
        self.assertEqual(len(edges), 2 * (2 * SHORT) + 2)
        self.assertEqual(edges, sorted(set(edges)))
        for name, bound in (("ROLES_LIMIT", 2 * SHORT), ("EDGES_LIMIT", 2 * SHORT), ("STEPS_LIMIT", 1)):
            patched = self.patch(membership_graph, name, bound)
            with self.assertRaises(TooManyRoles):
                await self.stores.roles.list_effective_members(MembersQuery(GROUP))
            with self.assertRaises(TooManyRoles):
                await self.stores.roles.list_held_roles(ADMIN)
            patched.restore()

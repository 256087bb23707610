"""The suite of ``RoleStore``, as far as it lists: what a role is a member of, pages by key, search, and the graph."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import attrs

from svc.model.errors import Forbidden, RecordNotFound
from svc.model.names import RoleName
from svc.model.policy_loads import Changes
from svc.model.query_results import (
    AccessFacts,
    EffectiveMembers,
    ListingKey,
    MemberChangeFacts,
    Membership,
    MembersQuery,
    Search,
)
from tests.contracts.base import ADMIN, ODD_IDENTIFIERS, ROOT, Contract, Draft, Stores, change, load, role, scenario

GROUP = role("group:g")


def searching(text: str, *, split: bool = True, by_class: bool = True, asked: RoleName = GROUP) -> MembersQuery:
    """A search among the members of a group."""
    return MembersQuery(asked, search=Search(text, split, by_class))


def short(found: EffectiveMembers) -> list[str]:
    """The members, without the account."""
    return [member.partition(":")[2] for member in found.members]


def names(rows: Sequence[Membership]) -> list[str]:
    """The members in rows, without their account."""
    return [row.member.partition(":")[2] for row in rows]


class ListsContract(Contract):
    """Lists of memberships."""

    @scenario
    async def test_memberships(self) -> None:
        """A role's memberships are those that it has itself, by granted role, with those of ownership; kinds narrow them
        (ROLE-28).
        """
        stores = await self.stores_with_account()
        draft = Draft().define("user:u").define("group:g", "layer:l", "group:other").define("policy:p", owner="user:u")
        await load(stores, draft.grant("layer:l", "user:u", admin=True).grant("group:g", "user:u", "layer:l"))
        await load(stores, Draft().grant("group:other", "group:g"))
        query = MembersQuery(role("user:u"))
        expected = [
            Membership("acct:group:g", "acct:user:u", False, False, str(ROOT)),
            Membership("acct:layer:l", "acct:user:u", True, False, str(ROOT)),
            Membership("acct:policy:p", "acct:user:u", True, True, str(ROOT)),
        ]
        self.assertEqual(await stores.roles.list_memberships(query), expected)
        self.assertEqual(await stores.roles.count_memberships(query), 3)
        for kinds, count in ((("group",), 1), (("policy", "group"), 2), (("user",), 0), (("dragon",), 0)):
            narrowed = attrs.evolve(query, kinds=kinds)
            self.assertEqual(
                await stores.roles.list_memberships(narrowed), [row for row in expected if row.role[5:].startswith(kinds)]
            )
            self.assertEqual(await stores.roles.count_memberships(narrowed), count)

    @scenario
    async def test_after(self) -> None:
        """A page after a key has the rows behind it, also behind one whose row is gone, in every narrowing (ROLE-25)."""
        stores = await self.stores_with_account()
        draft = Draft().define("group:g", *(f"host:{name}" for name in ODD_IDENTIFIERS), "user:a", "group:b")
        draft.grant("group:g", *(f"host:{name}" for name in ODD_IDENTIFIERS), "user:a", "group:b", "user:admin")
        await load(stores, draft)
        for kinds in ((), ("host",), ("group", "user")):
            query = MembersQuery(GROUP, kinds)
            whole = await stores.roles.list_members(query)
            for number, row in enumerate(whole):
                after = attrs.evolve(query, after=ListingKey(row.member, row.ownership))
                self.assertEqual(await stores.roles.list_members(after), whole[number + 1 :])
                self.assertEqual(await stores.roles.list_members(attrs.evolve(after, limit=2)), whole[number + 1 :][:2])
                self.assertEqual(await stores.roles.count_members(after), len(whole))
        for gone, first in (("host:a:b", "host:a:b:c"), ("user:aa", "user:admin"), ("group", "group:b")):
            rows = await stores.roles.list_members(MembersQuery(GROUP, after=ListingKey(f"acct:{gone}", ownership=True)))
            self.assertEqual(names(rows)[0], first)
        self.assertEqual(await stores.roles.list_members(MembersQuery(GROUP, after=ListingKey("acct:user:zz"))), [])

    async def _described(self) -> Stores:
        stores = await self.stores_with_account()
        draft = Draft().define("group:g", "host:web-01/blue", "host:mail.example.com", "host:bare", "user:web", "layer:red")
        draft.define("variable:web", "host:outside/blue")
        draft.annotate("host:bare", {"name": "Blue lagoon", "colour": "green-ish", "web": "nothing"})
        draft.annotate("host:mail.example.com", {"note": "served by web.example.org", "z": "BLUE"})
        draft.grant("group:g", "host:web-01/blue", "host:mail.example.com", "host:bare", "user:web", "layer:red")
        await load(stores, draft)
        return stores

    async def assert_found(self, stores: Stores, query: MembersQuery, expected: list[str]) -> None:
        """A search finds these members, in this order, and counts them."""
        self.assertEqual(names(await stores.roles.list_members(query)), expected, query.search)
        self.assertEqual(await stores.roles.count_members(query), len(expected), query.search)

    @scenario
    async def test_search_order(self) -> None:
        """A search by class has identifiers and names first, then other annotations, then kinds, each by id; else by id
        (RES-13).
        """
        stores = await self._described()
        blue = ["host:bare", "host:web-01/blue", "host:mail.example.com"]
        await self.assert_found(stores, searching("blue"), blue)
        await self.assert_found(stores, searching("blue", by_class=False), sorted(blue))
        self.assertEqual([row.rank for row in await stores.roles.list_members(searching("BLUE"))], [0, 0, 1])
        self.assertEqual({row.rank for row in await stores.roles.list_members(searching("blue", by_class=False))}, {None})
        hosts = ["host:bare", "host:mail.example.com", "host:web-01/blue"]
        await self.assert_found(stores, searching("host"), hosts)
        self.assertEqual({row.rank for row in await stores.roles.list_members(searching("host"))}, {2})
        # "blue" is in the identifier or the name, and so decides, though "host" is of the lowest class.
        await self.assert_found(stores, searching("host blue"), blue)

    @scenario
    async def test_search_words(self) -> None:
        """Every word of a search must be found, whole, in any case; the names of annotations are no words; values are split
        or not (RES-10).
        """
        stores = await self._described()
        for text, expected in (
            ("mail", ["host:mail.example.com"]),
            ("mai", []),
            ("blue lagoon", ["host:bare"]),
            ("blue_lagoon", ["host:bare"]),
            ("LAGOON/Blue", ["host:bare"]),
            ("blue red", []),
            ("colour", []),
            ("acct", []),
            ("", []),
            (" ./-", []),
            ("mail & !blue | (red:A)", []),
            ("'", []),
            ("\\' mail \\", ["host:mail.example.com"]),
            ("outside", []),
        ):
            await self.assert_found(stores, searching(text), expected)
            await self.assert_found(stores, searching(text, split=False), expected)
        served = ["host:web-01/blue", "user:web", "host:mail.example.com"]
        await self.assert_found(stores, searching("web"), served)
        await self.assert_found(stores, searching("web", split=False), served[:2])
        await self.assert_found(stores, searching("example.org"), served[2:])

    @scenario
    async def test_search_narrowed(self) -> None:
        """A search is narrowed by kinds and paged like every list, by offset and by key."""
        stores = await self._described()
        await self.assert_found(stores, attrs.evolve(searching("web"), kinds=("user", "layer")), ["user:web"])
        await self.assert_found(stores, attrs.evolve(searching("web"), kinds=("dragon",)), [])
        for query in (searching("web"), searching("web", by_class=False), searching("host")):
            whole = await stores.roles.list_members(query)
            for number, row in enumerate(whole):
                after = attrs.evolve(query, after=ListingKey(row.member, row.ownership, row.rank), limit=1)
                self.assertEqual(await stores.roles.list_members(after), whole[number + 1 : number + 2])
                self.assertEqual(await stores.roles.list_members(attrs.evolve(query, offset=number, limit=1)), [row])

    @scenario
    async def test_search_follows_changes(self) -> None:
        """A search finds what is now: annotations that were changed, deleted, or went with the policy that made them
        (RES-14).
        """
        stores = await self._described()
        await load(stores, Draft().define("policy:p"))
        await load(stores, Draft().annotate("user:web", {"note": "orange"}), role("policy:p"))
        await self.assert_found(stores, searching("orange"), ["user:web"])
        before = Draft().annotate("host:bare", {"name": "Blue lagoon", "colour": "green-ish"}).rows
        after = Draft().annotate("host:bare", {"name": "Orange"}).rows
        gone = attrs.evolve(before, annotations=before.annotations[1:])
        await change(stores, Changes(update=after, delete=gone))
        await self.assert_found(stores, searching("orange"), ["host:bare", "user:web"])
        await self.assert_found(stores, searching("lagoon"), [])
        await self.assert_found(stores, searching("green"), [])
        await change(stores, Changes(delete=Draft().define("policy:p").rows))
        await self.assert_found(stores, searching("orange"), ["host:bare"])

    @scenario
    async def test_search_among_memberships(self) -> None:
        """Among the memberships of a role, a search is for the roles that it is a member of (ROLE-28)."""
        stores = await self._described()
        await load(
            stores, Draft().define("group:web", "layer:b").annotate("layer:b", {"x": "web"}).grant("group:web", "user:web")
        )
        await load(stores, Draft().grant("layer:b", "user:web"))
        query = searching("web", asked=role("user:web"))
        self.assertEqual(
            [row.role for row in await stores.roles.list_memberships(query)], ["acct:group:web", "acct:layer:b"]
        )
        self.assertEqual(await stores.roles.count_memberships(query), 2)
        admin = searching("root", asked=ADMIN)
        self.assertEqual([row.role for row in await stores.roles.list_memberships(admin)], [str(ROOT)])

    @scenario
    async def test_search_for_accounts(self) -> None:
        """What every account begins with is found."""
        stores = await self.stores_with_account()
        self.assertEqual(names(await stores.roles.list_members(searching("admin", asked=ROOT))), ["user:admin"])

    # -- the graph

    async def _family(self) -> Stores:
        """``top`` has two groups, one of which is in the other, with a circle below; every role is owned by ``policy:p``."""
        stores = await self.stores_with_account()
        draft = Draft().define("policy:p").define("group:top", "group:a", "group:b", "host:h", "host:i", owner="policy:p")
        draft.define("group:out", "user:none", owner="policy:p")
        draft.grant("group:top", "group:a").grant("group:a", "group:b").grant("group:b", "host:h", "group:a")
        await load(stores, draft.grant("group:top", "group:b").grant("group:out", "group:top"))
        return stores

    @scenario
    async def test_effective_members(self) -> None:
        """All that hold a role are listed once, in order, each with a shortest way to it; circles end (ROLE-27)."""
        stores = await self._family()
        found = await stores.roles.list_effective_members(MembersQuery(role("group:top")))
        self.assertEqual(short(found), ["group:a", "group:b", "host:h", "policy:p", "user:admin"])
        paths = {member[5:]: [name[5:] for name in found.shortest_path(member)] for member in found.members}
        self.assertEqual(paths["group:b"], ["group:top", "group:b"])
        self.assertEqual(paths["host:h"], ["group:top", "group:b", "host:h"])
        self.assertEqual(paths["user:admin"], ["group:top", "policy:p", "user:admin"])
        for member in found.members:
            for parent, child in pairwise(found.shortest_path(member)):
                self.assertIn(
                    child, [m.member for m in await stores.roles.list_members(MembersQuery(RoleName.parse(parent)))]
                )

    @scenario
    async def test_effective_circle(self) -> None:
        """A role in a circle of memberships is its own member, round the circle; one in none is not (ROLE-27)."""
        stores = await self._family()
        found = await stores.roles.list_effective_members(MembersQuery(role("group:a")))
        self.assertEqual(found.shortest_path("acct:group:a"), ("acct:group:a", "acct:group:b", "acct:group:a"))
        self.assertNotIn("acct:group:top", found.members)
        await load(stores, Draft().define("group:self").grant("group:self", "group:self"))
        found = await stores.roles.list_effective_members(MembersQuery(role("group:self"), kinds=("group",)))
        self.assertEqual(list(map(found.shortest_path, found.members)), [("acct:group:self", "acct:group:self")])

    @scenario
    async def test_effective_pages(self) -> None:
        """Effective members are narrowed and paged as direct ones are (ROLE-27)."""
        stores = await self._family()
        query = MembersQuery(role("group:top"))
        whole = (await stores.roles.list_effective_members(query)).members
        for number, member in enumerate(whole):
            after = await stores.roles.list_effective_members(attrs.evolve(query, after=ListingKey(member), limit=2))
            self.assertEqual(after.members, whole[number + 1 :][:2])
            at = await stores.roles.list_effective_members(attrs.evolve(query, offset=number, limit=1))
            self.assertEqual((at.members, at.listing_key(member)), ([member], ListingKey(member)))
        groups = await stores.roles.list_effective_members(attrs.evolve(query, kinds=("group", "dragon")))
        self.assertEqual(short(groups), ["group:a", "group:b"])
        await load(stores, Draft().annotate("group:b", {"name": "host"}))
        found = await stores.roles.list_effective_members(searching("host", asked=query.role))
        places = [found.listing_key(member) for member in found.members]
        self.assertEqual(places, [ListingKey("acct:group:b", rank=0), ListingKey("acct:host:h", rank=2)])
        rest = attrs.evolve(searching("host", asked=query.role), after=ListingKey("acct:group:b", rank=0))
        self.assertEqual(short(await stores.roles.list_effective_members(rest)), ["host:h"])

    @scenario
    async def test_held(self) -> None:
        """The roles that a role holds are its own and those above it (ROLE-30)."""
        stores = await self._family()
        self.assertEqual(
            await stores.roles.list_held_roles(role("host:h")),
            [f"acct:{name}" for name in ("group:a", "group:b", "group:out", "group:top", "host:h")],
        )
        self.assertEqual(await stores.roles.list_held_roles(role("group:out")), ["acct:group:out"])
        self.assertIn("acct:host:i", await stores.roles.list_held_roles(ADMIN))

    async def _graph(self, stores: Stores, caller: RoleName, name: str) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        async for batch in stores.roles.stream_graph(caller, role(name)):
            self.assertTrue(batch)
            found.extend((parent[5:], child[5:]) for parent, child in batch)
        return found

    @scenario
    async def test_graph(self) -> None:
        """The graph of a role has the direct members of all roles above and below it, and its own, each pair once
        (ROLE-31).
        """
        stores = await self._family()
        await load(stores, Draft().grant("group:a", "policy:p").define("group:beside").grant("group:top", "group:beside"))
        owned = ("group:a", "group:b", "group:out", "group:top", "host:h")
        expected = {(name, "policy:p") for name in owned} | {("policy:p", "user:admin"), ("user:admin", "user:admin")}
        expected |= {("group:a", "group:b"), ("group:b", "group:a"), ("group:b", "host:h"), ("group:out", "group:top")}
        expected |= {("group:top", "group:a"), ("group:top", "group:b"), ("group:top", "group:beside")}
        self.assertEqual(await self._graph(stores, ADMIN, "host:h"), sorted(expected))

    @scenario
    async def test_graph_is_seen_in_part(self) -> None:
        """Of the graph a caller is told the pairs whose first it sees: that it owns, or has any privilege on (ROLE-31)."""
        stores = await self._family()
        await load(stores, Draft().permit("group:a", "host:h", "look").permit("group:b", "group:out", "read"))
        seen = await self._graph(stores, role("host:h"), "host:h")
        self.assertEqual(
            seen,
            [
                ("group:a", "group:b"),
                ("group:a", "policy:p"),
                ("group:b", "group:a"),
                ("group:b", "host:h"),
                ("group:b", "policy:p"),
            ],
        )
        self.assertEqual(await self._graph(stores, role("user:none"), "host:h"), [])
        self.assertEqual(len(await self._graph(stores, role("policy:p"), "group:out")), 11)

    # -- one role, and its members changed

    @scenario
    async def test_role(self) -> None:
        """A role by itself has its time, its policy and its owners; one that isn't there has nothing (ROLE-14)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("group:g").grant("group:g", "user:admin", admin=True))
        reading = await stores.roles.read_role(GROUP)
        assert reading is not None
        self.assertGreater(reading.created_at, 1_600_000_000)
        self.assertEqual(reading.policy, str(ROOT))
        self.assertEqual(reading.owners, (Membership(str(GROUP), str(ADMIN), True, True, str(ROOT)),))
        root = await stores.roles.read_role(ROOT)
        assert root is not None
        self.assertIsNone(root.policy)
        self.assertIsNone(await stores.roles.read_role(role("group:none")))
        await self.remain(role("user:left"))
        left = await stores.roles.read_role(role("user:left"))
        assert left is not None
        self.assertEqual((left.policy, left.owners), (None, ()))

    @scenario
    async def test_add_member(self) -> None:
        """A member is added once, recorded by no policy; a grant that is there stays as it is (ROLE-33)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("group:g", "user:u", "user:v").grant("group:g", "user:v", admin=True))
        seen: list[MemberChangeFacts] = []
        for name in ("user:u", "user:u", "user:v"):
            await stores.roles.add_member(ADMIN, GROUP, role(name), seen.append)
        rows = [row for row in await stores.roles.list_members(MembersQuery(GROUP)) if not row.ownership]
        self.assertEqual(
            [(row.member[5:], row.admin_option, row.policy) for row in rows],
            [
                ("user:u", False, None),
                ("user:v", True, str(ROOT)),
            ],
        )
        owner = AccessFacts(True, True, owns=True, holds=True, recorded_by=str(ROOT))
        self.assertEqual(seen[0], MemberChangeFacts(owner, attrs.evolve(owner, recorded_by=None), member_exists=True))
        for gone in ((GROUP, role("user:none")), (role("group:none"), role("user:u"))):
            with self.assertRaises(RecordNotFound) as caught:
                await stores.roles.add_member(ADMIN, *gone, seen.append)
            self.assertIn("none", caught.exception.name)
        self.assertFalse(seen[-2].member_exists)
        self.assertEqual((seen[-1].access_facts.exists, seen[-1].over_policy), (False, None))

    @scenario
    async def test_remove_member(self) -> None:
        """A grant is taken back of any policy; that a member owns the role is none, and stays (ROLE-34)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("group:g", "user:u").grant("group:g", "user:u", "user:admin"))
        for name, found in (("user:u", True), ("user:u", False), ("user:admin", True), ("user:admin", False)):
            self.assertIs(await stores.roles.remove_member(ADMIN, GROUP, role(name), lambda reading: None), found, name)
        [left] = await stores.roles.list_members(MembersQuery(GROUP))
        self.assertTrue(left.ownership)

    @scenario
    async def test_refused(self) -> None:
        """What the decision raises comes through, and nothing is changed (ROLE-35)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("group:g", "user:u", "user:v").grant("group:g", "user:v"))

        def refuse(reading: MemberChangeFacts) -> None:
            raise Forbidden("not you")

        before = await stores.roles.list_members(MembersQuery(GROUP))
        for work in (stores.roles.add_member, stores.roles.remove_member):
            with self.assertRaises(Forbidden):
                await work(ADMIN, GROUP, role("user:u" if work == stores.roles.add_member else "user:v"), refuse)
        self.assertEqual(await stores.roles.list_members(MembersQuery(GROUP)), before)

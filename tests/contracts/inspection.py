"""The suite of all seams, as far as auditors see what they don't own (INS-1)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from random import Random

import attrs

from svc.model.names import ROLE_KINDS, ResourceName, RoleName, root_policy
from svc.model.ownership import Ownership
from svc.model.policy_loads import Changes, RecordedOwner, Rows
from svc.model.query_results import AccessFacts, Caller, MembersQuery, ResourcesQuery, Sealed, Search
from svc.storage.deleted_records import DeletedTransaction
from svc.storage.policies import PolicyTransaction
from tests.contracts.base import ACCOUNT, ADMIN, ROOT, Contract, Draft, Stores, change, load, resource, role, scenario

AUDITOR = role("user:auditor")
#: A group in a policy within a policy has a variable; a policy beside it, which one within it made, has another.
SCENE = (
    Draft()
    .define("user:auditor", "group:auditors", "policy:a", "policy:b")
    .define("policy:a/x", "group:a/g", "user:bob@a", owner="policy:a")
    .define("group:a/x/g", owner="policy:a/x")
    .define("variable:v", owner="group:a/x/g")
    .define("variable:b/v", "group:b/g", owner="policy:b")
    .define("variable:own", owner="user:auditor")
    .grant("group:auditors", "user:auditor")
    .grant("group:a/g", "user:bob@a", "group:b/g")
)
WITHIN_A = {"policy:a/x", "group:a/g", "user:bob@a", "group:a/x/g", "variable:v"}


class InspectionContract(Contract):
    """What a privilege on a policy opens."""

    async def scene(self, *policies: str) -> Stores:
        """A store with the scene, in which the auditors inspect policies."""
        stores = await self.stores_with_account()
        await load(stores, SCENE)
        for policy in policies:
            await load(stores, Draft().permit(policy, "group:auditors", "inspect"))
        return stores

    async def seen(self, stores: Stores, viewer: RoleName = AUDITOR) -> set[str]:
        """What a role sees, which is the same whoever is asked."""
        ids = await stores.resources.list_visible(ResourcesQuery(viewer, limit=10_000))
        of_account = ResourcesQuery(viewer, account=ACCOUNT, limit=10_000)
        self.assertEqual(await stores.resources.list_visible(of_account), ids)
        self.assertEqual(await stores.resources.count_visible(of_account), len(ids))
        all_ids = await stores.resources.list_visible(ResourcesQuery(ADMIN, account=ACCOUNT, limit=10_000))
        facts = {full: await stores.roles.access_facts(viewer, ResourceName.parse(full)) for full in all_ids}
        self.assertEqual([full for full in all_ids if _sees(facts[full])], ids)
        self.assertEqual(
            facts, {full: await stores.roles.cached_access_facts(viewer, ResourceName.parse(full)) for full in all_ids}
        )

        async def work(transaction: PolicyTransaction) -> frozenset[str]:
            return await transaction.filter_visible(viewer, all_ids)

        self.assertEqual(sorted(await stores.policies.transact(work)), sorted(ids))
        around = [edges async for edges in stores.roles.stream_graph(viewer, ADMIN)]
        members = {full for full in ids if full.split(":", 2)[1] in ROLE_KINDS}
        self.assertLessEqual({parent for edges in around for parent, _ in edges}, members)
        return {full.partition(":")[2] for full in ids}

    @scenario
    async def test_policy(self) -> None:
        """Who inspects a policy sees it and all that it owns, directly or through what it owns, and nothing else (INS-1)."""
        stores = await self.scene()
        own = {"variable:own"}
        self.assertEqual(await self.seen(stores), own)
        await load(stores, Draft().permit("policy:a", "group:auditors", "inspect"))
        self.assertEqual(await self.seen(stores), own | {"policy:a"} | WITHIN_A)
        self.assertEqual(await stores.resources.list_visible(ResourcesQuery(role("user:bob@a"))), [])
        draft = Draft().permit("policy:a", "group:auditors", "inspect")
        await change(stores, Changes(delete=draft.rows))
        self.assertEqual(await self.seen(stores), own)

    @scenario
    async def test_narrower(self) -> None:
        """Who inspects a policy within another one sees nothing of the outer one."""
        stores = await self.scene("policy:a/x")
        self.assertEqual(await self.seen(stores), {"variable:own", "policy:a/x", "group:a/x/g", "variable:v"})

    @scenario
    async def test_root(self) -> None:
        """Who inspects the root sees all of the account, and nothing of another one (INS-2)."""
        stores = await self.scene("policy:root")
        await self.add_account(stores, "other")
        await load(stores, Draft("other").define("variable:v"), root_policy("other"))
        whole = await stores.resources.list_visible(ResourcesQuery(ADMIN, account=ACCOUNT))
        self.assertEqual({f"{ACCOUNT}:{name}" for name in await self.seen(stores)}, set(whole))
        self.assertEqual(await stores.resources.list_visible(ResourcesQuery(AUDITOR, account="other")), [])
        self.assertFalse(await stores.roles.can_inspect(AUDITOR, resource("variable:v", "other")))
        self.assertFalse(await stores.roles.can_inspect(AUDITOR, resource("variable:none")))

    @scenario
    async def test_no_policy(self) -> None:
        """On what is no policy the privilege opens nothing else, whatever it owns or is called (INS-3)."""
        stores = await self.scene("group:a/x/g", "variable:b/v")
        await load(stores, Draft().define("policy:b/root", "group:root").permit("group:root", "group:auditors", "inspect"))
        await load(stores, Draft().permit("policy:b/root", "group:auditors", "inspect"))
        await load(stores, Draft().permit("policy:a", "group:auditors", "Inspect", "inspect ", "inspects"))
        seen = {"variable:own", "variable:b/v", "group:a/x/g", "group:root", "policy:b/root", "policy:a"}
        self.assertEqual(await self.seen(stores), seen)

    @scenario
    async def test_whom_it_serves(self) -> None:
        """The privilege serves those who hold the role that it was given to, and no others (INS-1)."""
        stores = await self.scene("policy:a")
        for other in ("user:bob@a", "group:a/g", "policy:b", "user:nobody"):
            self.assertFalse(await stores.roles.can_inspect(role(other), resource("variable:v")), other)
        self.assertTrue(await stores.roles.can_inspect(role("group:auditors"), resource("variable:v")))

    @scenario
    async def test_facts(self) -> None:
        """The facts tell of inspection where the caller has nothing else, and it is no privilege (INS-4)."""
        stores = await self.scene("policy:a")
        here = AccessFacts(True, True, recorded_by=str(ROOT))
        opened = attrs.evolve(here, inspects=True)
        await load(stores, Draft().permit("group:a/x/g", "user:auditor", "read"))
        expected = [
            ("user:auditor", "variable:v", opened),
            ("user:auditor", "policy:a", attrs.evolve(here, privileges=frozenset({"inspect"}))),
            ("user:auditor", "group:a/x/g", attrs.evolve(here, privileges=frozenset({"read"}))),
            ("user:auditor", "variable:own", attrs.evolve(here, owns=True)),
            ("user:auditor", "variable:b/v", here),
            ("user:auditor", "variable:none", AccessFacts(True, False)),
            ("user:nobody", "variable:v", attrs.evolve(here, caller_exists=False)),
        ]
        await self.assert_standings(stores, expected)
        for name, inspects in (("variable:v", True), ("policy:a", True), ("group:a/x/g", True), ("variable:own", False)):
            self.assertEqual(await stores.roles.can_inspect(AUDITOR, resource(name)), inspects, name)
        self.assertTrue(await stores.roles.holds_role(await self.caller(stores), AUDITOR))
        self.assertFalse(await stores.roles.holds_role(await self.caller(stores), role("group:a/g")))

    async def caller(self, stores: Stores) -> Caller:
        """The auditor, by a token of today."""
        credential = await stores.credentials.read_credential(AUDITOR)
        return Caller(AUDITOR, 0, credential.creation, credential.epoch)

    @scenario
    async def test_members(self) -> None:
        """The members of a role that is inspected are listed, whoever they are; a list of another one is empty."""
        stores = await self.scene("policy:a")
        for whole in (True, False):
            for limit in (100, None):
                judged, rows = await stores.roles.list_members_with_facts(
                    AUDITOR, MembersQuery(role("group:a/g"), limit=limit), whole=whole
                )
                self.assertTrue(judged.inspects)
                self.assertEqual(next(row.member for row in rows), f"{ACCOUNT}:group:b/g")
                self.assertEqual(rows, await stores.roles.list_members(MembersQuery(role("group:a/g"), limit=limit)))
        judged, rows = await stores.roles.list_members_with_facts(
            AUDITOR, MembersQuery(role("group:b/g"), limit=100), whole=True
        )
        self.assertEqual((judged.inspects, rows), (False, []))
        graph = [edge async for edges in stores.roles.stream_graph(AUDITOR, role("group:a/g")) for edge in edges]
        self.assertEqual(
            {parent for parent, _ in graph}, {f"{ACCOUNT}:{name}" for name in ("group:a/g", "policy:a", "user:bob@a")}
        )

    @scenario
    async def test_held_role(self) -> None:
        """A member of a role that it inspects sees the role, which other members don't (ROLE-4)."""
        stores = await self.scene("policy:a")
        await load(stores, Draft().grant("group:a/x/g", "user:auditor", "user:bob@a"))
        for name, inspects in (("user:auditor", False), ("user:bob@a", False)):
            facts = await stores.roles.access_facts(role(name), resource("variable:v"))
            self.assertEqual((facts.owns, facts.inspects), (True, inspects))
        query = MembersQuery(role("group:a/x/g"), limit=100)
        for name, inspects in (("user:auditor", True), ("user:bob@a", False)):
            judged, rows = await stores.roles.list_members_with_facts(role(name), query, whole=True)
            self.assertEqual((judged.holds, judged.inspects, len(rows)), (True, inspects, 3))

    @scenario
    async def test_values(self) -> None:
        """Of a variable that is only inspected the store gives no value, though it tells that there is one (INS-5)."""
        stores = await self.scene("policy:a")
        for name in ("variable:v", "variable:b/v", "variable:own"):
            await stores.secrets.write_value(ADMIN, resource(name), lambda _: Sealed(b"sealed"))
        names = [resource(name) for name in ("variable:v", "variable:b/v", "variable:own", "variable:none")]
        readings = [await stores.secrets.read_value(AUDITOR, name) for name in names]
        told = [(each.access_facts.inspects, each.sealed, each.version) for each in readings]
        expected = [(True, None, 1), (False, b"sealed", 1), (False, b"sealed", 1), (False, None, None)]
        self.assertEqual(told, expected)
        batch = await stores.secrets.read_newest_values(AUDITOR, names, 1000)
        told = [(each.access_facts.inspects, each.sealed, each.version) for each in batch]
        self.assertEqual(told, [(True, None, 1), (False, None, 1), (False, b"sealed", 1), (False, None, None)])
        self.assertIsNone((await stores.secrets.read_value(AUDITOR, names[0], 1)).sealed)

        def decide(reading: object) -> Sealed | None:
            facts.append(reading)
            return None

        facts: list[object] = []
        await stores.secrets.write_value(AUDITOR, names[0], decide)
        self.assertEqual([(each.access_facts.inspects, each.sealed) for each in facts], [(True, None)])  # type: ignore[attr-defined]  # they are readings

    @scenario
    async def test_remaining_role(self) -> None:
        """A role without a resource is inspected by who inspects the root (ROLE-5) (INS-2)."""
        stores = await self.scene("policy:root")
        await self.remain(role("user:left"))
        facts = await stores.roles.access_facts(AUDITOR, resource("user:left"))
        self.assertEqual((facts.exists, facts.inspects), (False, True))
        self.assertFalse((await stores.roles.access_facts(role("user:bob@a"), resource("user:left"))).inspects)

    @scenario
    async def test_long_chain(self) -> None:
        """However long a chain of owners is, what is at its end is inspected (INS-1)."""
        stores = await self.scene("policy:a")
        groups = ["a/x/g", *(f"g{number}" for number in range(400))]
        draft = Draft()
        for upper, lower in pairwise(groups):
            draft.define(f"group:{lower}", owner=f"group:{upper}")
        await load(stores, draft.define("variable:hidden", owner=f"group:{groups[-1]}"))
        self.assertTrue(await stores.roles.can_inspect(AUDITOR, resource("variable:hidden")))
        ids = await stores.resources.list_visible(ResourcesQuery(AUDITOR, kinds=("variable",)))
        self.assertEqual(ids, [f"{ACCOUNT}:variable:{name}" for name in ("hidden", "own", "v")])

    @scenario
    async def test_ended(self) -> None:
        """What was opened ends with the permission, the membership or the owner, in every reading at once (CLU-31)."""
        stores = await self.scene()
        v, query = resource("variable:v"), ResourcesQuery(AUDITOR, account=ACCOUNT, limit=100)
        permit = Draft().permit("policy:a", "group:auditors", "inspect").rows
        member = Draft().grant("group:auditors", "user:auditor").rows
        own = [f"{ACCOUNT}:variable:own"]

        async def assert_open(opened: bool) -> None:
            for _ in range(2):
                facts = await stores.roles.cached_access_facts(AUDITOR, v)
                self.assertEqual((facts.inspects, await stores.roles.can_inspect(AUDITOR, v)), (opened, opened))
                self.assertEqual((await stores.secrets.read_value(AUDITOR, v)).access_facts.inspects, opened)
                page = await stores.resources.read_first_page(await self.caller(stores), query)
                ids = [*(found.id for found in page.first), *page.rest]
                self.assertEqual(str(v) in ids, opened)
                self.assertEqual(ids[-len(own) - opened :][:1], own)

        owners = {name: Draft().define("group:a/x/g", owner=name).rows.resources for name in ("policy:a/x", "policy:b")}
        for begin, end in (
            (Changes(create=permit), Changes(delete=member)),
            (Changes(create=member), Changes(update=Rows(resources=owners["policy:b"]))),
            (Changes(update=Rows(resources=owners["policy:a/x"])), Changes(delete=permit)),
        ):
            await assert_open(False)
            await change(stores, begin)
            await assert_open(True)
            await change(stores, end)
        await assert_open(False)

    @scenario
    async def test_search(self) -> None:
        """A search finds what is inspected, and nothing that is hidden (RES-10)."""
        stores = await self.scene("policy:a")
        for by_class in (False, True):
            query = ResourcesQuery(AUDITOR, search=Search("v", split=True, by_class=by_class))
            self.assertEqual(await stores.resources.list_visible(query), [f"{ACCOUNT}:variable:v"])
            self.assertEqual(await stores.resources.count_visible(query), 1)
        owned = ResourcesQuery(AUDITOR, owner=role("policy:a/x"))
        ids = [f"{ACCOUNT}:{name}" for name in ("group:a/x/g", "variable:v")]
        self.assertEqual(await stores.resources.list_visible(owned), ids)

    @scenario
    async def test_random_policies(self) -> None:
        """Over random policies, who inspects one sees exactly it and what it owns by the rule that loads go by (INS-1,
        POL-56).
        """
        stores = await self.stores()
        for seed in range(3):
            await self.add_account(stores, f"random{seed}")
            await self._assert_random(stores, f"random{seed}", Random(seed))

    async def _assert_random(self, stores: Stores, account: str, random: Random) -> None:
        kinds = ("policy", "policy", "group", "host", "variable", "layer")
        names = [f"{random.choice(kinds)}:n{number}" for number in range(24)]
        owners = [name for name in names if not name.startswith("variable")]
        draft = Draft(account)
        for name in names:
            owner = random.choice([*owners, "user:admin"])
            draft.define(name, owner="user:admin" if owner == name else owner)
        policies = [name for name in names if name.startswith("policy")]
        for number, policy in enumerate(policies):
            draft.define(f"user:u{number}").permit(policy, f"user:u{number}", "inspect")
        root = root_policy(account)
        await load(stores, draft, root)
        ownership = Ownership({row.resource: RecordedOwner(row.owner, None) for row in draft.rows.resources}, {})
        everything = [row.resource for row in draft.rows.resources]
        for number, policy in enumerate(policies):
            full, auditor = f"{account}:{policy}", role(f"user:u{number}", account)
            expected = sorted({full, *(one for one in everything if ownership.owns(full, one))})
            self.assertEqual(await stores.resources.list_visible(ResourcesQuery(auditor)), expected, policy)
            self.assertEqual(await self._inspected(stores, auditor, everything), expected, policy)
            self.assertEqual(
                sorted(await stores.deleted.transact_read_only(partial(_inspected, auditor, everything))), expected, policy
            )
            visible = await stores.policies.transact(partial(_visible, auditor, everything))
            self.assertEqual(sorted(visible), expected, policy)

    async def _inspected(self, stores: Stores, auditor: RoleName, ids: Iterable[str]) -> list[str]:
        return sorted([full for full in ids if await stores.roles.can_inspect(auditor, ResourceName.parse(full))])


async def _visible(viewer: RoleName, ids: list[str], transaction: PolicyTransaction) -> frozenset[str]:
    return await transaction.filter_visible(viewer, ids)


async def _inspected(viewer: RoleName, ids: list[str], transaction: DeletedTransaction) -> frozenset[str]:
    return await transaction.filter_inspected(viewer, ids)


def _sees(facts: AccessFacts) -> bool:
    return facts.owns or bool(facts.privileges) or facts.inspects

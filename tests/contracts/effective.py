"""The suite of ``EffectivePolicyStore``."""

from __future__ import annotations

import attrs

from svc.model.names import RoleName
from svc.model.policy_loads import Changes, EffectivePolicyRows, EffectiveQuery, Excess, ResourceRow, Rows
from svc.policy.effective_policy import make_query
from tests.contracts.base import ACCOUNT, ODD_IDENTIFIERS, ROOT, Contract, Draft, Stores, change, load, role, scenario
from tests.contracts.policies import TEAM, sets

_LIMIT = 100_000


def names(effective: EffectivePolicyRows) -> set[str]:
    """What was read, without the account."""
    return {row.resource.partition(":")[2] for row in effective.rows.resources}


class EffectiveContract(Contract):
    """What is read of a policy."""

    async def _read(self, stores: Stores, policy: RoleName, depth: int | None = None) -> EffectivePolicyRows:
        effective = await stores.effective.read_effective_policy(make_query(policy, depth, _LIMIT))
        assert isinstance(effective, EffectivePolicyRows), effective
        return effective

    @scenario
    async def test_root(self) -> None:
        """Of the root, the whole account is read, of any policy, and nothing of another account (POL-75)."""
        stores = await self.stores_with_account("acct2", "acc")
        draft = Draft().define("policy:team", "user:bob@x-y", "variable:v", "layer:team/l")
        draft.grant("layer:team/l", "user:bob@x-y", admin=True).permit("variable:v", "layer:team/l", "read")
        draft.annotate("variable:v", {"a": "1"})
        await load(stores, draft)
        await load(stores, Draft().define("host:team/h", owner="policy:team").annotate("variable:v", {"b": "2"}), TEAM)
        for other in ("acct2", "acc"):
            await load(stores, Draft(other).define("host:h"), role("policy:root", other))
        effective = await self._read(stores, ROOT)
        expected = draft.define("host:team/h", owner="policy:team").annotate("variable:v", {"b": "2"}).rows
        own = tuple(ResourceRow(f"{ACCOUNT}:{name}", f"{ACCOUNT}:user:admin") for name in ("user:admin", "policy:root"))
        granted = tuple(row for row in expected.memberships if not row.ownership)
        expected = attrs.evolve(expected, resources=(*expected.resources, *own), memberships=granted)
        self.assertEqual(sets(effective.rows), sets(expected))
        self.assertEqual(effective.around, frozenset())

    @scenario
    async def test_unseen(self) -> None:
        """A viewer is told nothing of resources that it doesn't see but of which kinds they are; of others, as ever
        (POL-80).
        """
        stores = await self.stores_with_account()
        draft = Draft().define("user:lead", "user:carol").define("policy:a", owner="user:lead")
        draft.define("variable:a/v", "group:a/g", "host:a/s", owner="policy:a")
        draft.define("host:a/h", "host:a/i", "variable:a/w", "user:bob@a", owner="user:carol")
        draft.grant("group:a/g", "host:a/h", "user:carol").grant("host:a/h", "group:a/g").annotate("host:a/h", {"x": "1"})
        draft.permit("variable:a/v", "user:carol", "read").permit("variable:a/w", "host:a/s", "read")
        draft.restrict("host:a/i", "192.0.2.0/24")
        await load(stores, draft)
        every = await self._read(stores, role("policy:a"))
        self.assertEqual((len(every.rows.resources), every.hidden), (7, ()))
        found = await stores.effective.read_effective_policy(
            attrs.evolve(make_query(role("policy:a"), None, 99), viewer=role("user:lead"))
        )
        assert isinstance(found, EffectivePolicyRows)
        seen = {"policy:a", "variable:a/v", "group:a/g", "host:a/s", "variable:a/w"}
        self.assertEqual((names(found), found.hidden), (seen, ("host", "host")))
        kept = {f"{ACCOUNT}:{name}" for name in seen}
        expected = attrs.evolve(
            every.rows,
            resources=tuple(row for row in every.rows.resources if row.resource in kept),
            memberships=tuple(row for row in every.rows.memberships if row.role in kept),
            annotations=(),
            restrictions=(),
        )
        self.assertEqual(sets(found.rows), sets(expected))

    @scenario
    async def test_beneath(self) -> None:
        """Of any other policy, what lies beneath it by its id is read, itself, and nothing that only begins alike
        (POL-75).
        """
        stores = await self.stores_with_account()
        draft = Draft().define("policy:a", "policy:a/b", "policy:a/b/c", "host:a/b/h", "host:a/b/c/h", "variable:a/b/c/d/v")
        draft.define("host:a/bb/h", "host:a/h", "host:h", "host:a/b-h", "policy:a/b0", "host:b/h", "group:a/B/g")
        await load(stores, draft)
        effective = await self._read(stores, role("policy:a/b"))
        inside = {"policy:a/b", "policy:a/b/c", "host:a/b/h", "host:a/b/c/h", "variable:a/b/c/d/v"}
        self.assertEqual(names(effective), inside)
        self.assertEqual(effective.around, {"a"})

    @scenario
    async def test_users(self) -> None:
        """Users belong to a policy by their id, and only when it, or something beneath it, owns or recorded them."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("policy:a/b", "policy:a-b", "policy:a/b/c", "group:a/b/g", "group:g"))
        users = ("user:own@a-b", "user:deep@a-b-c", "user:other@a-bc", "user:none", "user:x@a-b@z")
        await load(stores, Draft().define(*users, owner="policy:a/b"))
        await load(
            stores, Draft().define("user:deeper@a-b", owner="group:a/b/g").define("user:foreign@a-b", owner="policy:a-b")
        )
        await load(stores, Draft().define("user:recorded@a-b", owner="group:g"), role("policy:a/b"))
        await load(stores, Draft().define("user:below@a-b-c", owner="group:g"), role("policy:a/b/c"))
        found = names(await self._read(stores, role("policy:a/b")))
        expected = {"own@a-b", "deep@a-b-c", "deeper@a-b", "recorded@a-b", "below@a-b-c"}
        self.assertEqual({name for name in found if name.startswith("user:")}, {f"user:{name}" for name in expected})
        found = names(await self._read(stores, role("policy:a-b")))
        self.assertEqual({name for name in found if name.startswith("user:")}, {"user:foreign@a-b"})

    @scenario
    async def test_namesakes(self) -> None:
        """A thing that is called like a policy belongs to it when it is owned or recorded there, or shares its owner; for
        users, hosts and host factories the owner in common isn't enough (POL-75).
        """
        stores = await self.stores_with_account()
        await load(stores, Draft().define("group:g", "policy:a/b").define("policy:p", owner="group:g"))
        await load(
            stores, Draft().define("layer:p", owner="policy:p").define("webservice:p", owner="group:g").define("variable:p")
        )
        await load(stores, Draft().define("group:p"), role("policy:p"))
        await load(stores, Draft().define("user:b@a", "host:a/b", owner="policy:a/b").define("user:p"))
        await load(stores, Draft().define("host:p", "host_factory:p", owner="group:g"))
        self.assertEqual(
            names(await self._read(stores, role("policy:p"))), {"policy:p", "layer:p", "webservice:p", "group:p"}
        )
        self.assertEqual(names(await self._read(stores, role("policy:a/b"))), {"policy:a/b", "user:b@a", "host:a/b"})

    @scenario
    async def test_depth(self) -> None:
        """With a depth, ids with more slashes than that are left out, counted from the policy; users have none."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("policy:a", "host:a/h", "host:a/b/h", "user:bob@a-b", owner="user:admin"))
        await load(stores, Draft().define("user:eve@a-b", owner="policy:a").annotate("host:a/b/h", {"x": "y"}))
        root = {"user:admin", "policy:root", "policy:a", "user:bob@a-b", "user:eve@a-b"}
        self.assertEqual(names(await self._read(stores, ROOT, 0)), root)
        self.assertEqual(names(await self._read(stores, ROOT, 1)), root | {"host:a/h"})
        self.assertEqual(names(await self._read(stores, role("policy:a"), 0)), {"policy:a", "user:eve@a-b"})
        effective = await self._read(stores, role("policy:a"), 1)
        self.assertEqual(names(effective), {"policy:a", "user:eve@a-b", "host:a/h"})
        self.assertEqual(effective.rows.annotations, ())
        self.assertEqual(len((await self._read(stores, role("policy:a"), 2)).rows.annotations), 1)

    @scenario
    async def test_limit(self) -> None:
        """More resources, annotations and permissions than the limit are not read, and counted; memberships don't count
        (POL-81).
        """
        stores = await self.stores_with_account()
        draft = Draft().define("policy:a", "host:a/h", "group:a/g").annotate("host:a/h", {"x": "1", "y": "2"})
        await load(stores, draft.permit("host:a/h", "group:a/g", "read").grant("group:a/g", "host:a/h"))
        query = make_query(role("policy:a"), None, 5)
        self.assertEqual(await stores.effective.read_effective_policy(query), Excess(6, 5))
        self.assertIsInstance(
            await stores.effective.read_effective_policy(attrs.evolve(query, limit=6)), EffectivePolicyRows
        )
        self.assertEqual(await stores.effective.read_effective_policy(attrs.evolve(query, limit=0)), Excess(6, 0))

    @scenario
    async def test_kinds(self) -> None:
        """All resources are read but those of the kinds that aren't told."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("policy:a", "host:a/h", "group:a/g", "host_factory:a/f"))
        query = EffectiveQuery(role("policy:a"), ("host", "host_factory"), None, 10, "@a", ())
        effective = await stores.effective.read_effective_policy(query)
        assert isinstance(effective, EffectivePolicyRows)
        self.assertEqual(names(effective), {"policy:a", "group:a/g"})

    @scenario
    async def test_kinds_that_policies_made_up(self) -> None:
        """A record of such a kind is read beneath its policy, at its id as far as it is the policy's, and as an owner of
        users (NAME-30, POL-75).
        """
        stores = await self.stores_with_account()
        draft = Draft().define("policy:a", "policy:b", "food:b/x", "job:a", "user:other").define("zoo:a", owner="user:other")
        draft.define("food:a/x", "job:a/y", "job-a:a/z", owner="policy:a").define("user:u@a", owner="job:a/y")
        await load(
            stores, draft.grant("job:a/y", "user:u@a").permit("food:a/x", "job:a/y", "read").annotate("food:a/x", {"k": "v"})
        )
        found = await self._read(stores, role("policy:a"))
        self.assertEqual(names(found), {"policy:a", "job:a", "food:a/x", "job:a/y", "job-a:a/z", "user:u@a"})
        self.assertEqual((len(found.rows.permissions), len(found.rows.annotations), len(found.rows.memberships)), (1, 1, 1))
        every = names(await self._read(stores, ROOT))
        self.assertLess({"food:b/x", "zoo:a", "job:a", "food:a/x"}, every)
        query = attrs.evolve(make_query(role("policy:a"), None, 99), viewer=role("user:u@a"))
        seen = await stores.effective.read_effective_policy(query)
        assert isinstance(seen, EffectivePolicyRows)
        self.assertIn("job-a", seen.hidden)

    @scenario
    async def test_missing(self) -> None:
        """There is nothing to read of a policy that isn't there."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("host:a/h", "group:a"))
        self.assertIsNone(await stores.effective.read_effective_policy(make_query(role("policy:a"), None, 10)))
        self.assertIsNone(await stores.effective.read_effective_policy(make_query(role("policy:root", "other"), None, 10)))

    @scenario
    async def test_roles_without_resources(self) -> None:
        """Memberships and permissions of a role without a resource are left out."""
        stores = await self.stores_with_account()
        await self.remain(role("host:old"))
        draft = Draft().define("group:g", "variable:v").grant("group:g", "host:old").permit("variable:v", "host:old", "read")
        await load(stores, draft)
        effective = await self._read(stores, ROOT)
        self.assertEqual((effective.rows.memberships, effective.rows.permissions), ((), ()))

    @scenario
    async def test_odd_policies(self) -> None:
        """What lies beneath a policy is read whatever its id is made of."""
        stores = await self.stores_with_account()
        for identifier in ODD_IDENTIFIERS[:-1]:
            policy = RoleName(ACCOUNT, "policy", identifier)
            await change(stores, Changes(create=Draft().define(f"policy:{identifier}", f"layer:{identifier}/x").rows))
            self.assertEqual(names(await self._read(stores, policy)), {f"policy:{identifier}", f"layer:{identifier}/x"})
            await change(stores, Changes(delete=Rows(resources=(ResourceRow(str(policy), "?"),))))

"""The suite of what dry runs ask of ``PolicyTransaction``."""

from __future__ import annotations

from svc.model.policy_loads import (
    AnnotationRow,
    Changes,
    MembershipRow,
    PermissionRow,
    RecordedOwner,
    ResourceRow,
    Rows,
    Side,
)
from svc.storage.policies import PolicyTransaction
from tests.contracts.base import ACCOUNT, ADMIN, ROOT, Draft, Stores, load, role, scenario
from tests.contracts.policies import TEAM, PolicyCase, sets, team


def full(*names: str) -> list[str]:
    """Names of the account, whole."""
    return [f"{ACCOUNT}:{name}" for name in names]


class ImpactContract(PolicyCase):
    """What may go, what is there, and who sees it."""

    @scenario
    async def test_at_stake(self) -> None:
        """With a policy may go what it owns and recorded, and so on, and every row that names any of it."""
        stores = await self._team()
        await load(
            stores,
            Draft()
            .define("group:g")
            .grant("group:g", "host:team/h")
            .permit("variable:v", "host:team/h", "read")
            .define("variable:v", owner="host:team/h")
            .annotate("group:g", {"kept": "1"}),
        )
        await load(stores, Draft().grant("group:g", "user:outsider").annotate("group:g", {"gone": "1"}), TEAM)
        rows = await self._do(stores, lambda transaction: transaction.read_deletion_cascade(ROOT, [str(TEAM)], 1000))
        assert rows is not None
        mine = team().rows
        self.assertLessEqual(set(mine.resources), set(rows.resources))
        self.assertLessEqual(set(mine.memberships), set(rows.memberships))
        self.assertLessEqual(set(mine.permissions), set(rows.permissions))
        self.assertLessEqual(set(mine.annotations), set(rows.annotations))
        self.assertIn(ResourceRow("acct:variable:v", "acct:host:team/h"), rows.resources)
        self.assertIn(MembershipRow("acct:group:g", "acct:host:team/h", False, False), rows.memberships)
        self.assertIn(MembershipRow("acct:group:g", "acct:user:outsider", False, False), rows.memberships)
        self.assertIn(PermissionRow("acct:variable:v", "read", "acct:host:team/h"), rows.permissions)
        self.assertIn(AnnotationRow("acct:group:g", "gone", "1"), rows.annotations)
        self.assertNotIn(AnnotationRow("acct:group:g", "kept", "1"), rows.annotations)
        self.assertNotIn("acct:group:g", {row.resource for row in rows.resources})

    @scenario
    async def test_cascading_ids(self) -> None:
        """All ids of what may go are listed, those with which it begins among them, whatever their number (POL-99)."""
        stores = await self._team()
        await load(stores, Draft().define("variable:v", owner="host:team/h").define("group:stays"))
        found = await self._do(stores, lambda transaction: transaction.list_cascading_ids(ROOT, [str(TEAM)]))
        self.assertLessEqual({str(TEAM), "acct:variable:v"} | {row.resource for row in team().rows.resources}, found)
        self.assertNotIn("acct:group:stays", found)
        self.assertEqual(await self._do(stores, lambda transaction: transaction.list_cascading_ids(ROOT, [])), frozenset())

    @scenario
    async def test_at_stake_is_enough(self) -> None:
        """Whatever is deleted, all rows that go were at stake."""
        stores = await self._team()
        draft = (
            Draft()
            .define("policy:p", owner="host:team/h")
            .define("group:x", owner="policy:p")
            .grant("group:x", "user:outsider")
        )
        await load(stores, draft)
        await load(stores, Draft().define("layer:l").permit("layer:l", "group:x", "use"), role("policy:p"))
        for name in ("variable:team/v", "host:team/h", "policy:team", "user:outsider", "policy:p", "group:x"):
            everything = await self._everything(stores)

            async def work(transaction: PolicyTransaction, name: str = name, everything: Rows = everything) -> None:
                deleted_with = await transaction.read_deletion_cascade(ROOT, full(name), 1000)
                gone = Rows(resources=(ResourceRow(f"{ACCOUNT}:{name}", "?"),))
                await transaction.apply_changes(ROOT, Changes(delete=gone), {})
                assert deleted_with is not None
                after = await transaction.read_stored_rows(everything)
                for was, now, known in zip(sets(everything), sets(after), sets(deleted_with), strict=True):
                    self.assertLessEqual(was - now, known, name)
                raise _Undone

            with self.assertRaises(_Undone):
                await stores.policies.transact(work)

    @scenario
    async def test_too_much_impact(self) -> None:
        """More rows than the most are not told."""
        stores = await self._team()

        async def work(transaction: PolicyTransaction) -> None:
            self.assertIsNone(await transaction.read_deletion_cascade(ROOT, [str(TEAM)], 3))
            self.assertIsNotNone(await transaction.read_deletion_cascade(ROOT, [str(TEAM)], 1000))

        await stores.policies.transact(work)

    @scenario
    async def test_stored(self) -> None:
        """Rows with the asked keys are told with their stored values, of any policy."""
        stores = await self._team()
        asked = Rows(
            (ResourceRow("acct:host:team/h", ""), ResourceRow("acct:user:admin", ""), ResourceRow("acct:host:none", "")),
            (
                MembershipRow("acct:group:team/g", "acct:host:team/h", False, True),
                MembershipRow("acct:group:team/g", "acct:user:admin", False, True),
            ),
            (PermissionRow("acct:variable:team/v", "read", "acct:group:team/g"), PermissionRow("a:b:c", "read", "a:b:d")),
            (AnnotationRow("acct:host:team/h", "a", "?"), AnnotationRow("acct:host:team/h", "c", "?")),
        )
        stored = await self._do(stores, lambda transaction: transaction.read_stored_rows(asked))
        expected = Rows(
            (ResourceRow("acct:host:team/h", "acct:policy:team"), ResourceRow("acct:user:admin", "acct:user:admin")),
            (MembershipRow("acct:group:team/g", "acct:host:team/h", False, False),),
            (PermissionRow("acct:variable:team/v", "read", "acct:group:team/g"),),
            (AnnotationRow("acct:host:team/h", "a", "1"),),
        )
        self.assertEqual(sets(stored), sets(expected))

    @scenario
    async def test_surroundings(self) -> None:
        """Around things stand their owner and policy, and the rows that name them; of each sort so many."""
        stores = await self._team()
        ids = full("group:team/g", "user:admin", "host:none")
        around = await self._do(stores, lambda transaction: transaction.read_surroundings(ids[:1] + ids[2:], 100))
        self.assertEqual(around.recorded_owners, {"acct:group:team/g": RecordedOwner("acct:policy:team", str(TEAM))})
        self.assertEqual(
            sets(around.rows),
            sets(
                Rows(
                    (),
                    (
                        MembershipRow("acct:group:team/g", "acct:policy:team", True, True),
                        MembershipRow("acct:group:team/g", "acct:host:team/h", False, False),
                    ),
                    (
                        PermissionRow("acct:variable:team/v", "read", "acct:group:team/g"),
                        PermissionRow("acct:variable:team/v", "execute", "acct:group:team/g"),
                    ),
                )
            ),
        )
        around = await self._do(stores, lambda transaction: transaction.read_surroundings(ids, 1))
        self.assertEqual(around.recorded_owners["acct:user:admin"], RecordedOwner(str(ADMIN), None))
        self.assertEqual(len(around.rows.permissions), 1)
        self.assertLessEqual(len(around.rows.memberships), 4)

    @scenario
    async def test_leading(self) -> None:
        """From roles lead their members, what they are members of, own and are permitted; from resources owners and
        permissions; of each sort so many for each name, and in all.
        """
        stores = await self._team()
        group, host, variable = full("group:team/g", "host:team/h", "variable:team/v")

        async def led(side: Side, *names: str, each: int = 100, most: int = 100) -> Rows:
            return await self._do(stores, lambda transaction: transaction.read_adjacent_rows(side, names, each, most))

        owner = MembershipRow(group, str(TEAM), True, True)
        member = MembershipRow(group, host, False, False)
        self.assertEqual(sets(await led(Side.MEMBERS, group)), sets(Rows((), (owner, member))))
        self.assertEqual(sets(await led(Side.HELD, host)), sets(Rows((), (member,))))
        given = (PermissionRow(variable, "read", group), PermissionRow(variable, "execute", group))
        self.assertEqual(sets(await led(Side.GRANTED, group)), sets(Rows((), (), given)))
        self.assertEqual(sets(await led(Side.GIVEN, variable)), sets(Rows((ResourceRow(variable, str(TEAM)),), (), given)))
        owned = await led(Side.GRANTED, str(TEAM))
        self.assertLessEqual({ResourceRow(group, str(TEAM)), ResourceRow(variable, str(TEAM))}, set(owned.resources))
        self.assertEqual(len((await led(Side.MEMBERS, group, host, each=1)).memberships), 2)
        self.assertEqual(len((await led(Side.MEMBERS, group, host, most=1)).memberships), 1)
        self.assertEqual(len((await led(Side.GIVEN, variable, each=1)).permissions), 1)
        self.assertEqual(sets(await led(Side.MEMBERS, "acct:group:none")), sets(Rows()))

    @scenario
    async def test_visible(self) -> None:
        """Visible is what exists and is owned by a role that the caller holds, or permitted to one in whatever way."""
        stores = await self._team()
        await load(
            stores,
            Draft()
            .define("group:g", "variable:seen", "variable:hidden")
            .grant("group:g", "user:outsider")
            .permit("variable:seen", "group:g", "any")
            .define("variable:mine", owner="group:g"),
        )
        ids = full(
            "variable:seen", "variable:hidden", "variable:mine", "variable:none", "group:g", "policy:team", "host:team/h"
        )

        async def seen(caller: str) -> set[str]:
            found = await self._do(stores, lambda transaction: transaction.filter_visible(role(caller), ids))
            return {name.partition(":")[2] for name in found}

        self.assertEqual(await seen("user:outsider"), {"variable:seen", "variable:mine"})
        self.assertEqual(await seen("policy:team"), {"host:team/h"})
        self.assertEqual(await seen("user:admin"), {name.partition(":")[2] for name in ids} - {"variable:none"})
        self.assertEqual(await seen("user:nobody"), set())

    async def _everything(self, stores: Stores) -> Rows:
        owns = [(await self._present(stores, policy)).own for policy in (ROOT, TEAM, role("policy:p"), role("policy:other"))]
        return Rows(
            tuple(row for own in owns for row in own.resources),
            tuple(row for own in owns for row in own.memberships),
            tuple(row for own in owns for row in own.permissions),
            tuple(row for own in owns for row in own.annotations),
        )


class _Undone(Exception):
    """Ends a transaction, so that nothing of it has happened."""

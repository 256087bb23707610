"""The suite of ``PolicyTransaction.apply_changes``: what a load changes."""

from __future__ import annotations

from collections.abc import Awaitable

import attrs

from svc.crypto.vault import Vault
from svc.model.credentials import Credential
from svc.model.dialect import NATIVE
from svc.model.errors import PolicyConflict, PolicyInvalid
from svc.model.names import RoleName
from svc.model.policy_loads import (
    AnnotationRow,
    Changes,
    Load,
    LoadMode,
    LoadOutcome,
    LoadResult,
    MembershipRow,
    PermissionRow,
    ResourceRow,
    RestrictionRow,
    Rows,
)
from svc.model.query_results import AccessFacts, Caller, MembersQuery, Sealed
from svc.policy.document import Bounds
from svc.services.policy_loads import LocalLoads
from tests.contracts.base import ACCOUNT, ADMIN, ODD_IDENTIFIERS, ROOT, Draft, change, load, resource, role, scenario
from tests.contracts.policies import TEAM, PolicyCase, sets, team
from tests.contracts.secrets import always


class LoadsContract(PolicyCase):
    """The changes that a load makes."""

    @scenario
    async def test_round_trip(self) -> None:
        """Rows of every sort come back as they were applied, whatever their text is made of (DATA-18)."""
        stores = await self.stores_with_account()
        names = ODD_IDENTIFIERS
        draft = Draft().define(*(f"group:{name}" for name in names)).define(*(f"variable:{name}" for name in names))
        for name in names:
            draft.grant(f"group:{name}", "group:%s", admin=name < "a").grant("group:it's", f"group:{name}")
            draft.permit(f"variable:{name}", f"group:{name}", name[:80], "read")
            draft.annotate(f"variable:{name}", {other: f"{name}\\{other}" for other in names} | {"empty": ""})
        rows = draft.rows
        await change(stores, Changes(create=attrs.evolve(rows, memberships=tuple(set(rows.memberships)))))
        await self._assert_own(stores, ROOT, rows)

    @scenario
    async def test_order(self) -> None:
        """Rows are created in whatever order they refer to each other."""
        stores = await self.stores_with_account()
        draft = Draft().permit("variable:v", "group:b", "read").grant("group:a", "group:b")
        draft.define("variable:v", owner="group:a").define("group:a", owner="group:b").define("group:b", owner="policy:p")
        await load(stores, draft.define("policy:p"))
        await self.assert_standings(
            stores,
            [
                (
                    "user:admin",
                    "variable:v",
                    AccessFacts(caller_exists=True, exists=True, owns=True, recorded_by=str(ROOT)),
                )
            ],
        )

    @scenario
    async def test_update(self) -> None:
        """Updates change the values of rows that the policy recorded: owner, admin option, annotation."""
        stores = await self._team()
        moved = Draft().define("variable:team/v", owner="user:outsider").rows
        raised = Rows(
            memberships=(MembershipRow("acct:group:team/g", "acct:host:team/h", False, True),),
            annotations=(AnnotationRow("acct:host:team/h", "a", "it's\\new"),),
        )
        await change(stores, Changes(update=attrs.evolve(raised, resources=moved.resources)), TEAM)
        own = (await self._present(stores, TEAM)).own
        self.assertEqual(set(raised.memberships) - set(own.memberships), set())
        self.assertEqual(set(raised.annotations) - set(own.annotations), set())
        self.assertIn(AnnotationRow("acct:host:team/h", "b", "2"), own.annotations)
        self.assertEqual(len(own.annotations), 3)
        outsider = role("user:outsider")
        self.assertTrue((await stores.roles.access_facts(outsider, resource("variable:team/v"))).owns)
        self.assertFalse((await stores.roles.access_facts(TEAM, resource("variable:team/v"))).owns)

    @scenario
    async def test_owner_of_a_role_changes(self) -> None:
        """A role changes hands with its ownership row: the new owner holds it, the old one no more."""
        stores = await self._team()
        before = Draft().define("host:team/h", owner="policy:team").rows
        after = Draft().define("host:team/h", owner="user:outsider").rows
        await change(
            stores,
            Changes(
                create=Rows(memberships=after.memberships),
                update=Rows(resources=after.resources),
                delete=Rows(memberships=before.memberships),
            ),
            TEAM,
        )
        access_facts = await stores.roles.access_facts(role("user:outsider"), resource("host:team/h"))
        self.assertTrue(access_facts.owns and access_facts.holds)
        access_facts = await stores.roles.access_facts(TEAM, resource("host:team/h"))
        self.assertFalse(access_facts.owns or access_facts.holds)

    @scenario
    async def test_delete(self) -> None:
        """Deletions take away just the rows named."""
        stores = await self._team()
        gone = Rows(
            memberships=(MembershipRow("acct:group:team/g", "acct:host:team/h", False, False),),
            permissions=(PermissionRow("acct:variable:team/v", "read", "acct:group:team/g"),),
            annotations=(AnnotationRow("acct:host:team/h", "a", "1"),),
        )
        await change(stores, Changes(delete=gone), TEAM)
        left = [sort - other for sort, other in zip(sets(team().rows), sets(gone), strict=True)]
        present = await self._present(stores, TEAM)
        self.assertEqual(list(sets(present.own)), left)

    @scenario
    async def test_foreign_rows_stay(self) -> None:
        """A load neither changes nor deletes what another policy said of memberships, permissions and annotations."""
        stores = await self._team()
        rows = team().rows
        altered = Rows(
            resources=(ResourceRow("acct:variable:team/v", "acct:user:outsider"),),
            memberships=(MembershipRow("acct:group:team/g", "acct:host:team/h", False, True),),
            annotations=(AnnotationRow("acct:host:team/h", "a", "altered"),),
        )
        await change(stores, Changes(update=altered), ROOT)
        await change(stores, Changes(delete=attrs.evolve(rows, resources=())), ROOT)
        await self._assert_own(stores, TEAM, rows)

    @scenario
    async def test_delete_resource(self) -> None:
        """A resource is deleted by whichever policy, and takes with it all that was said of it."""
        stores = await self._team()
        await stores.secrets.write_value(ADMIN, resource("variable:team/v"), always(b"value"))
        variable, host = ResourceRow("acct:variable:team/v", "?"), ResourceRow("acct:host:team/h", "?")
        await change(stores, Changes(delete=Rows(resources=(variable, host))), ROOT)
        await self._assert_own(stores, TEAM, Draft().define("group:team/g", owner="policy:team").rows)
        self.assertFalse(await stores.has_role(role("host:team/h")))
        self.assertEqual(
            await stores.credentials.read_credential(role("host:team/h")), Credential(True, False, None, "acct-1")
        )
        self.assertIsNone((await stores.secrets.read_value(ADMIN, resource("variable:team/v"))).sealed)

    @scenario
    async def test_delete_policy(self) -> None:
        """A policy that is deleted takes with it what it owns and what it recorded, and so on, and nothing else (POL-45)."""
        stores = await self._team()
        await load(stores, Draft().define("policy:team/sub", owner="policy:team"), TEAM)
        sub = (
            Draft()
            .define("group:team/sub/g", "variable:elsewhere", owner="user:outsider")
            .annotate("user:outsider", {"a": "1"})
        )
        sub.permit("user:outsider", "group:team/sub/g", "read").grant("user:outsider", "group:team/sub/g")
        await load(stores, sub, role("policy:team/sub"))
        await load(stores, Draft().define("variable:owned", owner="policy:team"))
        await self._record(stores, TEAM)
        await change(stores, Changes(delete=Rows(resources=(ResourceRow(str(TEAM), "?"),))), ROOT)
        await self._assert_own(stores, ROOT, Draft().define("user:outsider", "policy:other").rows)
        for policy in (TEAM, role("policy:team/sub")):
            await self._assert_own(stores, policy, Rows())
            self.assertFalse(await stores.has_role(policy))
        gone = ["group:team/g", "group:team/sub/g", "variable:elsewhere", "variable:owned", "host:team/h", "policy:team"]
        self.assertEqual(await self._existing(stores, *gone), set())
        self.assertEqual(
            [found.member for found in await stores.roles.list_members(MembersQuery(role("user:outsider")))],
            ["acct:user:admin"],
        )

    @scenario
    async def test_replaced_with_what_it_refers_to(self) -> None:
        """A replacement that refers to what goes along with what it leaves out is refused, and leaves all as it was
        (POL-35).
        """
        stores = await self._team()
        recorded = (await self._present(stores, ROOT)).own
        caller = Caller(ADMIN, 0, (await stores.credentials.read_credential(ADMIN)).creation)
        loads = LocalLoads(stores.policies, Vault(b"k" * 32), NATIVE, Bounds())

        def replace(more: str) -> Awaitable[LoadOutcome]:
            text = f"- !user outsider\n- !policy other\n- !grant {{ role: !user outsider, member: !host team/h }}\n{more}"
            return loads.load_policy(Load(ROOT, LoadMode.REPLACE, caller, "192.0.2.7", text.encode(), dry_run=False))

        with self.assertRaisesRegex(PolicyInvalid, "Host 'team/h' not found in account 'acct'"):
            await replace("")
        self.assertEqual(sets((await self._present(stores, ROOT)).own), sets(recorded))
        await self._assert_own(stores, TEAM, team().rows)
        self.assertIsInstance(await replace("- !policy team\n"), LoadResult)
        own = (await self._present(stores, ROOT)).own
        self.assertIn(MembershipRow("acct:user:outsider", "acct:host:team/h", False, False), own.memberships)
        await self._assert_own(stores, TEAM, team().rows)

    @scenario
    async def test_recorder_deleted(self) -> None:
        """A load that deletes a policy records the grants, permissions and annotations that its document states and that
        policy had recorded (POL-94).
        """
        stores = await self._team()
        caller = Caller(ADMIN, 0, (await stores.credentials.read_credential(ADMIN)).creation)
        loads = LocalLoads(stores.policies, Vault(b"k" * 32), NATIVE, Bounds())

        async def load_text(text: str, policy: RoleName, mode: LoadMode) -> None:
            loaded = await loads.load_policy(Load(policy, mode, caller, "192.0.2.7", text.encode(), dry_run=False))
            self.assertIsInstance(loaded, LoadResult)

        stated = (
            "- !grant { role: !group /staff, member: !user /dora }\n"
            "- !permit { role: !user /dora, privilege: read, resource: !group /staff }\n"
        )
        declared = "- !host { id: old/h, owner: !user admin%s }\n"
        made = f"- !policy old\n- !policy new\n- !user dora\n- !group staff\n{declared % ''}"
        await load_text(made, ROOT, LoadMode.APPEND)
        await load_text(f"{stated}- !host {{ id: h, annotations: {{ a: b }} }}\n", role("policy:old"), LoadMode.APPEND)
        text = stated.replace("/", "") + declared % ", annotations: { a: b }" + "- !delete { record: !policy old }\n"
        await load_text(text, ROOT, LoadMode.UPDATE)
        own = (await self._present(stores, ROOT)).own
        self.assertIn(MembershipRow("acct:group:staff", "acct:user:dora", False, False), own.memberships)
        self.assertIn(PermissionRow("acct:group:staff", "read", "acct:user:dora"), own.permissions)
        self.assertIn(AnnotationRow("acct:host:old/h", "a", "b"), own.annotations)

    @scenario
    async def test_restrictions(self) -> None:
        """Restrictions come and go with rows of their own, and are told for the wanted roles that the policy recorded."""
        stores = await self._team()
        rows = (RestrictionRow("acct:host:team/h", "10.0.0.0/8"), RestrictionRow("acct:host:team/h", "::1/128"))
        admin = RestrictionRow(str(ADMIN), "1.2.3.4/32")
        await change(stores, Changes(create=Rows(restrictions=(*rows, admin))), TEAM)
        host = Rows(resources=(ResourceRow("acct:host:team/h", "?"), ResourceRow(str(ADMIN), "?")))

        async def told(policy: RoleName, wanted: Rows) -> set[RestrictionRow]:
            return set((await self._present(stores, policy, wanted)).own.restrictions)

        self.assertEqual(await told(TEAM, host), set(rows))
        self.assertEqual(await told(TEAM, Rows()), set())
        self.assertEqual(await told(ROOT, host), set())
        gone = Rows(restrictions=(rows[0], RestrictionRow("acct:host:team/h", "1.1.1.1/32"), admin))
        await change(stores, Changes(delete=gone), ROOT)
        self.assertEqual(await told(TEAM, host), set(rows))
        await change(stores, Changes(delete=gone), TEAM)
        self.assertEqual(await told(TEAM, host), {rows[1]})
        with self.assertRaises(PolicyConflict):
            await change(stores, Changes(create=Rows(restrictions=(rows[1],))), TEAM)
        with self.assertRaises(PolicyConflict):
            await change(stores, Changes(create=Rows(restrictions=(RestrictionRow("acct:host:none", "::/0"),))), TEAM)

    @scenario
    async def test_restrictions_go_with_their_role(self) -> None:
        """A role that is deleted and made again is not restricted."""
        stores = await self._team()
        restriction = RestrictionRow("acct:host:team/h", "10.0.0.0/8")
        await change(stores, Changes(create=Rows(restrictions=(restriction,))), TEAM)
        host = Draft().define("host:team/h")
        await change(stores, Changes(delete=host.rows), TEAM)
        await load(stores, host, TEAM)
        self.assertEqual((await self._present(stores, TEAM, host.rows)).own.restrictions, ())

    @scenario
    async def test_values(self) -> None:
        """Values are set as new versions, of which the newest is told, and as many are kept as of any secret."""
        stores = await self._team()
        names = [f"{ACCOUNT}:{name}" for name in ("variable:team/v", "group:team/g", "variable:none")]

        async def put(number: int) -> None:
            sealed = {name: Sealed(b"%d \x00\xff %s" % (number, name.encode())) for name in names}
            await self._do(stores, lambda transaction: transaction.set_values(sealed))

        self.assertEqual(await self._do(stores, lambda transaction: transaction.read_sealed_values(names)), {})
        for number in range(23):
            await put(number)
        self.assertEqual(
            await self._do(stores, lambda transaction: transaction.read_sealed_values([*names, "acct:user:outsider"])),
            {name: b"22 \x00\xff " + name.encode() for name in names[:2]},
        )
        for version, there in ((3, False), (4, True), (23, True), (24, False)):
            reading = await stores.secrets.read_value(ADMIN, resource("variable:team/v"), version)
            self.assertEqual(reading.sealed is not None, there, version)

    @scenario
    async def test_public_keys_go_with_their_user(self) -> None:
        """A user with a deleted user's name doesn't inherit its public keys; the keys of others stay (KEY-7)."""
        stores = await self._team()
        mine = ["public_key:user/bob/laptop", "public_key:user/bob/a/b"]
        others = ["public_key:user/bobby/laptop", "public_key:user/bob0/x", "public_key:users/bob/x", "public_key:user/bob"]
        draft = Draft().define("user:bob", owner="policy:team").define("group:bob")
        await load(stores, draft.define(*mine[1:], *others))
        await load(stores, Draft().define(mine[0]), TEAM)
        await change(stores, Changes(delete=Rows(resources=(ResourceRow("acct:group:bob", "?"),))))
        self.assertEqual(await self._existing(stores, *mine, *others), {*mine, *others})
        await change(stores, Changes(delete=Rows(resources=(ResourceRow(str(TEAM), "?"),))))
        self.assertEqual(await self._existing(stores, "user:bob", *mine, *others), set(others))

    @scenario
    async def test_delete_owner(self) -> None:
        """What a role owned goes with it, and so on, of any policy: nobody logs in as any of it (POL-45)."""
        stores = await self._team()
        draft = Draft().define("policy:p", "group:vip", "user:left").define("host:p/h", "group:p/g", owner="policy:p")
        draft.define("host:deep", "variable:deep", owner="group:p/g").grant("group:vip", "host:p/h", "host:deep")
        draft.grant("host:deep", "user:left")
        await load(stores, draft, ROOT, {"acct:host:p/h": Sealed(b"key"), "acct:host:deep": Sealed(b"key")})
        await load(stores, Draft().define("host:elsewhere", owner="host:deep"), TEAM)
        await change(stores, Changes(delete=Rows(resources=(ResourceRow("acct:policy:p", "?"),))))
        for name in ("host:p/h", "host:deep", "group:p/g", "policy:p", "host:elsewhere"):
            self.assertFalse(await stores.has_role(role(name)), name)
            self.assertEqual(await stores.credentials.read_credential(role(name)), Credential(True, False, None, "acct-1"))
        self.assertEqual(
            [found.member for found in await stores.roles.list_members(MembersQuery(role("group:vip")))], ["acct:user:admin"]
        )
        self.assertTrue(await stores.has_role(role("user:left")))
        await self._assert_own(stores, TEAM, team().rows)

    @scenario
    async def test_delete_owners_in_a_circle(self) -> None:
        """Roles that own each other go together."""
        stores = await self._team()
        await load(stores, Draft().define("group:a", owner="group:b").define("group:b", owner="group:a"))
        await change(stores, Changes(delete=Rows(resources=(ResourceRow("acct:group:a", "?"),))))
        for name in ("group:a", "group:b"):
            self.assertFalse(await stores.has_role(role(name)))
            self.assertFalse((await stores.roles.access_facts(ADMIN, resource(name))).exists)

    @scenario
    async def test_delete_owner_of_unrecorded(self) -> None:
        """A role that no policy recorded stays when its owner goes, though its resource does not."""
        stores = await self._team()
        await change(stores, Changes(delete=Rows(resources=(ResourceRow(str(ADMIN), "?"),))))
        self.assertFalse(await stores.has_role(ADMIN))
        self.assertTrue(await stores.has_role(ROOT))
        self.assertFalse((await stores.roles.access_facts(ROOT, ROOT.resource)).exists)

    @scenario
    async def test_remains(self) -> None:
        """A role that no policy recorded, without its resource, is no reference; defined in a policy it starts afresh."""
        stores = await self._team()
        await self.remain(role("host:h"))
        self.assertTrue(await stores.has_role(role("host:h")))
        self.assertEqual(await self._existing(stores, "host:h"), set())
        draft = Draft().define("group:vip").grant("group:vip", "host:h").permit("variable:team/v", "host:h", "read")
        await load(stores, draft)
        await load(stores, Draft().define("host:h"), TEAM, {"acct:host:h": Sealed(b"new")})
        self.assertEqual((await stores.credentials.read_credential(role("host:h"))).api_key, b"new")
        await self.assert_standings(
            stores,
            [
                ("host:h", "group:vip", AccessFacts(True, True, recorded_by=str(ROOT))),
                ("host:h", "variable:team/v", AccessFacts(True, True, recorded_by=str(TEAM))),
                ("user:admin", "host:h", AccessFacts(True, True, owns=True, holds=True, recorded_by=str(TEAM))),
            ],
        )

    @scenario
    async def test_conflict(self) -> None:
        """A load that creates what is there by now is a conflict, and changes nothing."""
        stores = await self._team()
        twice = [
            Rows(resources=(ResourceRow("acct:host:team/h", "acct:policy:team"),)),
            Rows(memberships=(MembershipRow("acct:group:team/g", "acct:host:team/h", False, True),)),
            Rows(permissions=(PermissionRow("acct:variable:team/v", "read", "acct:group:team/g"),)),
            Rows(annotations=(AnnotationRow("acct:host:team/h", "a", "other"),)),
        ]
        for rows in twice:
            with self.assertRaises(PolicyConflict):
                await change(stores, Changes(create=rows), ROOT)
        with self.assertRaises(PolicyConflict):
            await load(stores, Draft().define("group:team/new").annotate("host:team/h", {"a": "other"}), ROOT)
        self.assertFalse(await stores.has_role(role("group:team/new")))
        await self._assert_own(stores, TEAM, team().rows)

    @scenario
    async def test_dangling(self) -> None:
        """A load that refers to what is gone by now is a conflict, and changes nothing."""
        stores = await self._team()
        dangling = [
            Draft().define("variable:new", owner="user:gone"),
            Draft().grant("group:gone", "user:admin"),
            Draft().grant("group:team/g", "user:gone"),
            Draft().permit("variable:gone", "user:admin", "read"),
            Draft().permit("variable:team/v", "user:gone", "read"),
            Draft().annotate("variable:gone", {"a": "b"}),
        ]
        for draft in dangling:
            with self.assertRaises(PolicyConflict):
                await load(stores, draft, TEAM)
        await self._assert_own(stores, TEAM, team().rows)

    @scenario
    async def test_nothing_to_do(self) -> None:
        """A load that changes nothing, changes nothing."""
        stores = await self._team()
        await change(stores, Changes(), TEAM)
        await self._assert_own(stores, TEAM, team().rows)

"""The suite of ``PolicyStore`` and ``PolicyTransaction``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeVar

import attrs

from svc.model.credentials import Credential
from svc.model.errors import Forbidden, PolicyConflict
from svc.model.host_factories import FactoryToken, digest_token
from svc.model.names import RoleName
from svc.model.policy_loads import (
    AnnotationRow,
    Changes,
    MembershipRow,
    PermissionRow,
    PolicyVersion,
    PresentRows,
    RecordedOwner,
    ResourceRow,
    RestrictionRow,
    RowKeys,
    Rows,
)
from svc.model.query_results import Sealed
from svc.storage.policies import PolicyTransaction
from tests.contracts.base import ACCOUNT, ADMIN, ODD_IDENTIFIERS, ROOT, Contract, Draft, Stores, load, role, scenario

T = TypeVar("T")

TEAM = role("policy:team")
KEY = {f"{ACCOUNT}:host:team/h": Sealed(b"key")}


def team() -> Draft:
    """A policy as its members may have loaded it into itself."""
    draft = Draft().define("host:team/h", "group:team/g", "variable:team/v", owner="policy:team")
    draft.grant("group:team/g", "host:team/h").permit("variable:team/v", "group:team/g", "read", "execute")
    return draft.annotate("host:team/h", {"a": "1", "b": "2"}).annotate("variable:team/v", {"a": "3"})


def sets(rows: Rows) -> tuple[frozenset[object], ...]:
    """Rows regardless of their order."""
    return tuple(frozenset(sort) for sort in attrs.astuple(rows, recurse=False))


async def _named(transaction: PolicyTransaction, policy: RoleName, keys: RowKeys) -> PresentRows:
    present: PresentRows = await transaction.read_rows_by_key(policy, keys)
    return present


def _sorts(rows: Rows) -> tuple[tuple[object, ...], ...]:
    return attrs.astuple(rows, recurse=False)


class PolicyCase(Contract):
    """Ways of asking a store of policies."""

    async def _do(self, stores: Stores, work: Callable[[PolicyTransaction], Awaitable[T]]) -> T:
        return await stores.policies.transact(work)

    async def _present(
        self, stores: Stores, policy: RoleName, wanted: Rows | None = None, deleted: Sequence[str] = ()
    ) -> PresentRows:
        return await self._do(stores, lambda transaction: transaction.read_present_rows(policy, wanted or Rows(), deleted))

    async def _existing(self, stores: Stores, *names: str) -> set[str]:
        """Those of the names ``kind:identifier`` that exist."""
        asked = [f"{ACCOUNT}:{name}" for name in names]
        existing = await self._do(stores, lambda transaction: transaction.filter_existing(asked))
        return {full.partition(":")[2] for full in existing}

    async def _assert_own(self, stores: Stores, policy: RoleName, expected: Rows) -> None:
        """What ``policy`` recorded is just that."""
        present = await self._present(stores, policy)
        self.assertEqual(sets(present.own), sets(expected))
        self.assertEqual(present.foreign, Rows())

    async def _team(self) -> Stores:
        """A store with ``TEAM``, which root recorded, loaded with :func:`team`, beside an outsider."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("policy:team", "user:outsider", "policy:other"))
        await load(stores, team(), TEAM, KEY)
        return stores

    async def _record(self, stores: Stores, policy: RoleName) -> int:
        version = PolicyVersion(policy, "- !user it's 100%\\\n", "0" * 64, ADMIN, "2001:db8::1")
        return await self._do(stores, lambda transaction: transaction.record_version(version))


class PoliciesContract(PolicyCase):
    """What a load asks, and that it is all or nothing."""

    @scenario
    async def test_version(self) -> None:
        """The version of a policy is that of its last load, 0 before any, whatever others have (POL-102)."""
        stores = await self._team()
        for expected in range(25):
            found = await self._do(stores, lambda transaction: transaction.read_version(TEAM))
            self.assertEqual(found, expected)
            self.assertEqual(await self._record(stores, TEAM), expected + 1)
        self.assertEqual(await self._do(stores, lambda transaction: transaction.read_version(ROOT)), 0)

    @scenario
    async def test_result(self) -> None:
        """What the work returns is returned."""
        stores = await self.stores()

        async def work(transaction: PolicyTransaction) -> str:
            return "done"

        self.assertEqual(await stores.policies.transact(work), "done")

    @scenario
    async def test_refusal(self) -> None:
        """When the work refuses, nothing of it has happened."""
        stores = await self._team()

        async def work(transaction: PolicyTransaction) -> None:
            await transaction.apply_changes(TEAM, Changes(delete=team().rows), {})
            await transaction.apply_changes(TEAM, Changes(create=Draft().define("group:team/new").rows), {})
            await transaction.record_version(PolicyVersion(TEAM, "text", "sha", ADMIN, "::1"))
            raise Forbidden("after all, no")

        with self.assertRaises(Forbidden):
            await stores.policies.transact(work)
        await self._assert_own(stores, TEAM, team().rows)
        self.assertEqual(
            await stores.credentials.read_credential(role("host:team/h")), Credential(True, True, Sealed(b"key"), "acct-1")
        )
        self.assertEqual(await self._record(stores, TEAM), 1)

    # -- lock ---------------------------------------------------------------------------------------------------------

    @scenario
    async def test_lock(self) -> None:
        """While one load of a policy is under way another is refused; one of another policy is not (POL-50)."""
        stores = await self._team()

        async def second(transaction: PolicyTransaction) -> None:
            await transaction.lock_policy(TEAM)

        async def other(transaction: PolicyTransaction) -> None:
            await transaction.lock_policy(ROOT)

        async def first(transaction: PolicyTransaction) -> None:
            await transaction.lock_policy(TEAM)
            await transaction.lock_policy(TEAM)
            with self.assertRaises(PolicyConflict):
                await stores.policies.transact(second)
            await stores.policies.transact(other)

        await stores.policies.transact(first)

    @scenario
    async def test_lock_ends(self) -> None:
        """A load that has ended, well or not, is not in the way of the next."""
        stores = await self._team()

        async def refused(transaction: PolicyTransaction) -> None:
            await transaction.lock_policy(TEAM)
            raise Forbidden("no")

        async def work(transaction: PolicyTransaction) -> None:
            await transaction.lock_policy(TEAM)

        for _ in range(2):
            with self.assertRaises(Forbidden):
                await stores.policies.transact(refused)
            await stores.policies.transact(work)

    # -- who may ------------------------------------------------------------------------------------------------------

    @scenario
    async def test_standing(self) -> None:
        """The standing towards a policy is that of any other question, asked within the transaction."""
        stores = await self._team()

        async def work(transaction: PolicyTransaction) -> None:
            for caller in (ADMIN, TEAM, role("user:outsider"), role("user:nobody")):
                self.assertEqual(
                    await transaction.access_facts(caller, TEAM), await stores.roles.access_facts(caller, TEAM.resource)
                )
            await transaction.apply_changes(
                ROOT, Changes(create=Draft().permit("policy:team", "user:outsider", "update").rows), {}
            )
            access_facts = await transaction.access_facts(role("user:outsider"), TEAM)
            self.assertEqual(access_facts.privileges, {"update"})
            self.assertFalse((await transaction.access_facts(ADMIN, role("policy:none"))).exists)

        await stores.policies.transact(work)

    @scenario
    async def test_owners_denying(self) -> None:
        """Anyone who would replace a policy needs ``update`` on everything whose identifier begins with its own and a slash;
        the owners of what denies it are told, each once (POL-41).
        """
        stores = await self._team()
        beside = Draft().define("group:team2", "host:team", "variable:team-x/v", "user:x@team", "webservice:tea")
        await load(stores, beside)
        updater = Draft().define("group:updaters", "user:updater").grant("group:updaters", "user:updater")
        await load(stores, updater.permit("variable:team/v", "group:updaters", "update"))

        async def lacking(caller: str, policy: RoleName = TEAM) -> list[str]:
            return await self._do(stores, lambda transaction: transaction.owners_denying(role(caller), policy))

        self.assertFalse(await lacking("user:admin"))
        self.assertFalse(await lacking("policy:team"))
        self.assertTrue(await lacking("user:updater"))
        self.assertTrue(await lacking("user:outsider"))
        others = [f"{kind}:team/{name}" for kind, name in (("variable", "v"), ("host", "h"), ("group", "g"))]
        for name in others:
            await load(stores, Draft().permit(name, "user:outsider", "read", "create", "Update"))
        self.assertTrue(await lacking("user:outsider"))
        await load(stores, Draft().permit("host:team/h", "user:updater", "update", "read"))
        self.assertTrue(await lacking("user:updater"))
        await load(stores, Draft().permit("group:team/g", "group:updaters", "update"))
        self.assertFalse(await lacking("user:updater"))
        await load(stores, Draft().define("variable:team/foreign", owner="user:outsider"), role("policy:other"))
        self.assertTrue(await lacking("user:updater"))
        self.assertEqual(await lacking("policy:team"), [f"{ACCOUNT}:user:outsider"])
        self.assertEqual(await lacking("user:stranger"), [f"{ACCOUNT}:policy:team", f"{ACCOUNT}:user:outsider"])
        self.assertFalse(await lacking("user:outsider", role("policy:other")))

    @scenario
    async def test_hosts_of_factories_do_not_keep_out(self) -> None:
        """What a host factory made beneath a policy is no reason to deny a replacement of the policy (POL-41, POL-67)."""
        stores = await self._team()
        await load(stores, Draft().define("host_factory:f", owner="user:outsider"))
        await stores.factories.add_tokens([digest_token("one")], FactoryToken(role("host_factory:f"), 2000.5))
        await stores.factories.create_host(digest_token("one"), role("host:new/h"), {}, Sealed(b"key"))
        await load(stores, Draft().define("policy:new").permit("policy:new", "policy:team", "update"))

        async def lacking(transaction: PolicyTransaction) -> list[str]:
            return await transaction.owners_denying(TEAM, role("policy:new"))

        self.assertFalse(await self._do(stores, lacking))
        await load(stores, Draft().define("host:new/declared"))
        self.assertTrue(await self._do(stores, lacking))

    @scenario
    async def test_nothing_below_root(self) -> None:
        """Below the root policy is what begins with ``root/``; the rest of the account is not (POL-41)."""
        stores = await self._team()

        async def lacking() -> list[str]:
            return await self._do(stores, lambda transaction: transaction.owners_denying(role("user:outsider"), ROOT))

        self.assertFalse(await lacking())
        await load(stores, Draft().define("variable:root/v"))
        self.assertTrue(await lacking())

    @scenario
    async def test_below_odd_policies(self) -> None:
        """What lies below a policy is found, and nothing else, whatever its identifier is made of."""
        stores = await self.stores_with_account("acct2")
        await load(stores, Draft("acct2").define("variable:%/v"), role("policy:root", "acct2"))
        for identifier in ODD_IDENTIFIERS[:-1]:
            policy = RoleName(ACCOUNT, "policy", identifier)

            async def lacking(transaction: PolicyTransaction, policy: RoleName = policy) -> list[str]:
                return await transaction.owners_denying(role("user:nobody"), policy)

            self.assertFalse(await stores.policies.transact(lacking), identifier)
            await load(stores, Draft().define(f"layer:{identifier}/x"))
            self.assertTrue(await stores.policies.transact(lacking), identifier)

    @scenario
    async def test_kinds(self) -> None:
        """The kinds of an account are found, each once; what lies below a policy is found whatever its kind (NAME-30)."""
        stores = await self.stores_with_account("acct2")

        async def kinds(account: str = ACCOUNT) -> list[str]:
            return await self._do(stores, lambda transaction: transaction.list_kinds(account))

        async def denying() -> list[str]:
            return await self._do(stores, lambda transaction: transaction.owners_denying(role("user:bob"), TEAM))

        self.assertEqual(await kinds(), ["policy", "user"])
        self.assertEqual(await kinds("none"), [])
        made = ("Job:x", "job-a:x", "job:x", "job:y", "job2:x", "variable:v", "zoo:teams/x", "zoo:team")
        await load(stores, Draft().define("policy:team", "user:bob", owner="user:bob").define(*made))
        await load(stores, Draft("acct2").define("food:team/x"), role("policy:root", "acct2"))
        self.assertEqual(await kinds(), ["Job", "job-a", "job2", "job", "policy", "user", "variable", "zoo"])
        self.assertEqual(await kinds("acct2"), ["food", "policy", "user"])
        self.assertEqual(await denying(), [])
        for kind, owner in (("job", "job:x"), ("job-a", "job:y"), ("zoo", "zoo:team")):
            await load(stores, Draft().define(f"{kind}:team/x", owner=owner))
            self.assertIn(f"{ACCOUNT}:{owner}", await denying())

    @scenario
    async def test_not_grantable(self) -> None:
        """A role may be granted by one that holds it with admin option, whatever else it may (POL-58)."""
        stores = await self._team()
        await load(stores, Draft().define("group:mine", owner="user:outsider"), role("policy:other"))
        draft = Draft().define("group:lead", "user:lead", "user:updater", "user:member").grant("group:lead", "user:lead")
        await load(stores, draft.permit("policy:team", "user:updater", "update"))
        grants = Draft().grant("group:team/g", "group:lead", admin=True).grant("group:team/g", "user:member")
        await load(stores, grants.permit("group:team/g", "user:member", "update"), TEAM)
        roles = [f"{ACCOUNT}:{name}" for name in ("group:team/g", "host:team/h", "group:mine", "user:admin", "group:none")]

        async def refused(caller: str) -> list[str]:
            names = await self._do(stores, lambda transaction: transaction.not_grantable(role(caller), roles))
            return sorted(name.partition(":")[2] for name in names)

        self.assertEqual(await refused("user:admin"), [])
        self.assertEqual(await refused("policy:team"), ["group:mine", "user:admin"])
        self.assertEqual(await refused("user:lead"), ["group:mine", "host:team/h", "user:admin"])
        self.assertEqual(await refused("user:member"), ["group:mine", "group:team/g", "host:team/h", "user:admin"])
        self.assertEqual(await refused("user:updater"), ["group:mine", "group:team/g", "host:team/h", "user:admin"])
        self.assertEqual(await refused("user:outsider"), ["group:team/g", "host:team/h", "user:admin"])
        # Holding a role, as it holds itself, is not holding it with admin option.
        self.assertIn("group:team/g", await refused("group:team/g"))

    @scenario
    async def test_not_permittable_and_not_updatable(self) -> None:
        """A thing may be permitted by who owns it; who owns it or was given ``update`` on it may update it (POL-58)."""
        stores = await self._team()
        draft = Draft().define("user:updater", "group:updaters", "user:thing").grant("group:updaters", "user:updater")
        draft.permit("policy:team", "group:updaters", "update").permit("variable:team/v", "user:thing", "update")
        draft.permit("policy:team", "user:outsider", "read", "create")
        await load(stores, draft)
        await load(stores, Draft().define("variable:mine", owner="user:outsider"), role("policy:other"))
        names = ("variable:team/v", "variable:mine", "host:team/h", "policy:root", "policy:team", "variable:x")
        things = [f"{ACCOUNT}:{name}" for name in names]

        async def refused(caller: str) -> tuple[list[str], list[str]]:
            async def work(transaction: PolicyTransaction) -> tuple[list[str], list[str]]:
                permit = await transaction.not_permittable(role(caller), things)
                update = await transaction.not_updatable(role(caller), things)
                return tuple(sorted(full.partition(":")[2] for full in found) for found in (permit, update))  # type: ignore[return-value]  # a pair

            return await self._do(stores, work)

        theirs = ["host:team/h", "policy:root", "policy:team", "variable:team/v"]
        every = sorted([*theirs, "variable:mine"])
        self.assertEqual(await refused("user:admin"), ([], []))
        self.assertEqual(await refused("policy:team"), (["policy:root", "policy:team", "variable:mine"],) * 2)
        self.assertEqual(await refused("user:updater"), (every, sorted({*every} - {"policy:team"})))
        self.assertEqual(await refused("user:thing"), (every, sorted({*every} - {"variable:team/v"})))
        self.assertEqual(await refused("user:outsider"), (theirs, theirs))

    @scenario
    async def test_ownership(self) -> None:
        """Whose a record is, is told with its owners and recorders, and those of these, to the end of the chain, or once
        round a circle (POL-55).
        """
        stores = await self._team()
        deep = [f"group:deep{number}" for number in range(300)]
        draft = Draft()
        for owned, owner in pairwise(deep):
            draft.define(owned, owner=owner)
        await load(stores, draft.define(deep[-1], owner="policy:team").define("group:alone"))
        await load(stores, Draft().define("group:one", owner="group:two").define("group:two", owner="group:one"))
        await load(stores, Draft().define("variable:theirs", owner="group:one"), role("policy:other"))

        async def told(*names: str) -> dict[str, RecordedOwner]:
            asked = [f"{ACCOUNT}:{name}" for name in names]
            found = await self._do(stores, lambda transaction: transaction.read_ownership(asked, ()))
            self.assertLessEqual({full for full in asked if not full.endswith("none")}, found.records.keys())
            return dict(found.records)

        root, admin = str(ROOT), str(ADMIN)
        chain = await told(deep[0], "group:none")
        self.assertEqual(chain["acct:group:deep0"], RecordedOwner("acct:group:deep1", root))
        self.assertEqual(chain["acct:group:deep299"], RecordedOwner(str(TEAM), root))
        self.assertLessEqual(
            {
                str(TEAM): RecordedOwner(admin, root),
                admin: RecordedOwner(admin, None),
                root: RecordedOwner(admin, None),
            }.items(),
            chain.items(),
        )
        circle = await told("variable:theirs", "variable:team/v")
        self.assertEqual(circle["acct:variable:theirs"], RecordedOwner("acct:group:one", "acct:policy:other"))
        self.assertEqual(circle["acct:group:two"], RecordedOwner("acct:group:one", root))
        self.assertEqual(circle["acct:variable:team/v"], RecordedOwner(str(TEAM), str(TEAM)))
        self.assertIn("acct:policy:other", circle)

    @scenario
    async def test_policies_around(self) -> None:
        """The policy around an id is the longest whose own id begins it, with a slash; where there is none, the root
        (POL-55).
        """
        stores = await self.stores_with_account("acct2")
        policies = ("a", "a-b", "a.b", "a/b/c", "a/b/c-", "a/b0", "b", "ü/☃", "root/x", "a/b/c/d/e/f")
        await load(stores, Draft().define(*(f"policy:{name}" for name in policies), "group:a/b", "host:a/b/c/d"))
        await load(stores, Draft("acct2").define("policy:c", "policy:a/b"), role("policy:root", "acct2"))
        around = {
            "host:h": "root",
            "host:a": "root",
            "host:a/h": "a",
            "host:a/b": "a",
            "host:a/b/h": "a",
            "host:a/b/c": "a",
            "host:a/b/c/h": "a/b/c",
            "policy:a/b/c/d/e": "a/b/c",
            "host:a/b/c/d/e/f/g/h": "a/b/c/d/e/f",
            "host:a/b/c0/h": "a",
            "host:a/b/c-/h": "a/b/c-",
            "host:a-b/c/h": "a-b",
            "host:a-/h": "root",
            "host:aa/h": "root",
            "host:b/" + "a/" * 500 + "h": "b",
            "host:" + "a/" * 500 + "h": "a",
            "host:" + "x/" * 500 + "h": "root",
            "host:c/h": "root",
            "host:ü/☃/h": "ü/☃",
            "host:ü/h": "root",
            "host:root/h": "root",
            "host:root/x/h": "root/x",
            "host:/a/h": "root",
            "host:a//h": "a",
            "host:a/": "a",
        }
        asked = {f"{ACCOUNT}:{name}": f"{ACCOUNT}:policy:{policy}" for name, policy in around.items()}
        found = await self._do(stores, lambda transaction: transaction.read_ownership((), tuple(asked)))
        self.assertEqual(found.enclosing_policies, asked)
        self.assertLessEqual(set(asked.values()), found.records.keys())

        async def alone(transaction: PolicyTransaction) -> dict[str, str]:
            told = [await transaction.read_ownership((), (name,)) for name in asked]
            return {name: policy for found in told for name, policy in found.enclosing_policies.items()}

        self.assertEqual(await self._do(stores, alone), asked)
        other = {"acct2:host:a/b/c/h": "acct2:policy:a/b", "acct2:host:b/h": "acct2:policy:root"}
        found = await self._do(stores, lambda transaction: transaction.read_ownership((), tuple(other)))
        self.assertEqual(found.enclosing_policies, other)
        with_policies = [f"{identifier}/h" for identifier in ODD_IDENTIFIERS[:-1]]
        await load(stores, Draft().define(*(f"policy:{identifier}" for identifier in ODD_IDENTIFIERS[:-1])))
        odd = {f"{ACCOUNT}:host:{name}": f"{ACCOUNT}:policy:{name[:-2]}" for name in with_policies}
        self.assertEqual(
            (await self._do(stores, lambda transaction: transaction.read_ownership((), tuple(odd)))).enclosing_policies, odd
        )

    @scenario
    async def test_other_accounts_may_not(self) -> None:
        """The admin of one account may not grant or permit anything of another."""
        stores = await self.stores_with_account("other")
        await load(stores, Draft("other").define("group:g"), role("policy:root", "other"))

        async def work(transaction: PolicyTransaction) -> None:
            for name in ("other:group:g", "other:user:admin", "other:policy:root"):
                self.assertEqual(await transaction.not_grantable(ADMIN, [name]), [name])
                self.assertEqual(await transaction.not_permittable(ADMIN, [name]), [name])
            self.assertTrue((await transaction.access_facts(ADMIN, role("policy:root", "other"))).exists)
            self.assertFalse((await transaction.access_facts(ADMIN, role("policy:root", "other"))).owns)

        await stores.policies.transact(work)

    # -- present ------------------------------------------------------------------------------------------------------

    @scenario
    async def test_own(self) -> None:
        """What a policy recorded is told whole, whatever is wanted, and nothing that others recorded."""
        stores = await self._team()
        await self._assert_own(stores, TEAM, team().rows)
        await self._assert_own(stores, ROOT, Draft().define("policy:team", "user:outsider", "policy:other").rows)
        await self._assert_own(stores, role("policy:other"), Rows())

    @scenario
    async def test_foreign(self) -> None:
        """Foreign are the rows with a wanted key that another policy recorded, or none, with their stored values."""
        stores = await self._team()
        wanted = Rows(
            resources=(
                ResourceRow("acct:host:team/h", "acct:user:outsider"),
                ResourceRow("acct:user:admin", "acct:policy:other"),
                ResourceRow("acct:user:outsider", "acct:user:admin"),
                ResourceRow("acct:group:new", "acct:user:admin"),
            ),
            memberships=(
                MembershipRow("acct:group:team/g", "acct:host:team/h", False, True),
                MembershipRow("acct:group:team/g", "acct:host:team/h", True, True),
                MembershipRow("acct:policy:root", "acct:user:admin", True, False),
                MembershipRow("acct:user:outsider", "acct:user:admin", True, True),
            ),
            permissions=(
                PermissionRow("acct:variable:team/v", "read", "acct:group:team/g"),
                PermissionRow("acct:variable:team/v", "update", "acct:group:team/g"),
            ),
            annotations=(
                AnnotationRow("acct:host:team/h", "a", "other"),
                AnnotationRow("acct:host:team/h", "c", "other"),
            ),
        )
        present = await self._present(stores, ROOT, wanted)
        self.assertEqual(
            sets(present.foreign),
            sets(
                Rows(
                    resources=(
                        ResourceRow("acct:host:team/h", "acct:policy:team"),
                        ResourceRow("acct:user:admin", "acct:user:admin"),
                    ),
                    memberships=(
                        MembershipRow("acct:group:team/g", "acct:host:team/h", False, False),
                        MembershipRow("acct:policy:root", "acct:user:admin", True, True),
                    ),
                    permissions=(PermissionRow("acct:variable:team/v", "read", "acct:group:team/g"),),
                    annotations=(AnnotationRow("acct:host:team/h", "a", "1"),),
                )
            ),
        )
        self.assertEqual((await self._present(stores, TEAM, team().rows)).foreign, Rows())
        self.assertEqual(sets((await self._present(stores, role("policy:other"), team().rows)).foreign), sets(team().rows))

    @scenario
    async def test_foreign_to_delete(self) -> None:
        """Foreign are also the resources to be deleted that another policy recorded, or none, with their owners."""
        stores = await self._team()
        deleted = [f"{ACCOUNT}:{name}" for name in ("host:team/h", "user:admin", "user:outsider", "host:none")]
        present = await self._present(stores, ROOT, Rows(), deleted)
        self.assertEqual(
            set(present.foreign.resources),
            {ResourceRow("acct:host:team/h", "acct:policy:team"), ResourceRow("acct:user:admin", "acct:user:admin")},
        )
        wanted = Draft().define("host:team/h").rows
        present = await self._present(stores, ROOT, attrs.evolve(wanted, memberships=()), deleted[:1])
        self.assertEqual(present.foreign, Rows(resources=(ResourceRow("acct:host:team/h", "acct:policy:team"),)))

    @scenario
    async def test_named(self) -> None:
        """What has some keys is told by who recorded it; of named roles the restrictions, if the policy recorded these."""
        stores = await self._team()
        await load(stores, Draft().permit("variable:team/v", "user:outsider", "read", "update"))
        await load(stores, Draft().define("host:h2").restrict("host:h2", "10.0.0.0/8"))
        names = tuple(f"{ACCOUNT}:{name}" for name in ("host:team/h", "user:outsider", "variable:none", "host:h2"))
        group, variable = f"{ACCOUNT}:group:team/g", f"{ACCOUNT}:variable:team/v"
        read, update = (PermissionRow(variable, each, names[1]) for each in ("read", "update"))
        held = PermissionRow(variable, "read", group)
        keys = RowKeys(
            (*names, names[0]),
            ((group, names[0], False), (group, names[0], True)),
            (read, held, PermissionRow(variable, "execute", names[1])),
            ((names[0], "a"), (names[0], "none"), (variable, "a")),
            (names[0], names[3]),
        )
        of_team = Rows(
            (ResourceRow(names[0], str(TEAM)),),
            (MembershipRow(group, names[0], False, False),),
            (held,),
            (AnnotationRow(names[0], "a", "1"), AnnotationRow(variable, "a", "3")),
        )
        admin = str(ADMIN)
        of_root = Rows((ResourceRow(names[1], admin), ResourceRow(names[3], admin)), (), (read,), ())
        restricted = (RestrictionRow(names[3], "10.0.0.0/8"),)
        for policy, own, foreign in (
            (TEAM, of_team, of_root),
            (ROOT, attrs.evolve(of_root, restrictions=restricted), of_team),
            (
                role("policy:none"),
                Rows(),
                Rows(*(one + two for one, two in zip(*map(_sorts, (of_team, of_root)), strict=True))),
            ),
        ):
            present = await self._do(stores, partial(_named, policy=policy, keys=keys))
            self.assertEqual((sets(present.own), sets(present.foreign)), (sets(own), sets(foreign)))
        self.assertNotIn(update, present.foreign.permissions)
        nothing = await self._do(stores, lambda transaction: transaction.read_rows_by_key(TEAM, RowKeys((), (), (), (), ())))
        self.assertEqual(nothing, PresentRows(Rows(), Rows()))

    @scenario
    async def test_holds_more(self) -> None:
        """A policy holds more than so many rows when it recorded more of any one sort, and foreign ones don't count."""
        stores = await self._team()
        other = role("policy:other")
        await load(stores, Draft().annotate("policy:other", {str(number): "x" for number in range(8)}), other)
        holding = ((TEAM, 2), (TEAM, 3), (other, 7), (other, 8), (ROOT, 0), (role("policy:no"), 0))

        async def work(transaction: PolicyTransaction) -> list[bool]:
            return [await transaction.has_more_rows(policy, most) for policy, most in holding]

        self.assertEqual(await self._do(stores, work), [True, False, True, False, True, False])

    @scenario
    async def test_existing(self) -> None:
        """Resources exist of whatever kind, recorded by any policy; a name that differs in case is another."""
        stores = await self._team()
        there = {"user:admin", "host:team/h", "variable:team/v", "policy:root"}
        self.assertEqual(
            await self._existing(stores, *there, "host:team/H", "variable:team", "group:team/h", "user:%"), there
        )
        self.assertEqual(await self._existing(stores), set())
        other = ["other:user:admin"]
        self.assertEqual(await self._do(stores, lambda transaction: transaction.filter_existing(other)), frozenset())

    @scenario
    async def test_within(self) -> None:
        """What a transaction has applied is present in it."""
        stores = await self._team()

        async def work(transaction: PolicyTransaction) -> None:
            await transaction.apply_changes(TEAM, Changes(create=Draft().define("group:team/new").rows), {})
            self.assertEqual(await transaction.filter_existing(["acct:group:team/new"]), {"acct:group:team/new"})
            present = await transaction.read_present_rows(TEAM, Rows(), [])
            self.assertIn(ResourceRow("acct:group:team/new", "acct:user:admin"), present.own.resources)

        await stores.policies.transact(work)

    @scenario
    async def test_own_policies(self) -> None:
        """A policy that owns itself goes with the policy nearest around it, and with no other, if the loaded policy recorded
        it or the one that goes did (POL-45).
        """
        stores = await self.stores_with_account()
        policies = ("team", "team/own", "team/own/in", "team/sub", "team/sub/own", "team-x/own", "root/own")
        draft = Draft()
        for name in policies:
            itself = name.endswith(("own", "in"))
            draft.define(f"policy:{name}", owner=f"policy:{name}" if itself else "user:admin")
        await load(stores, draft.define("variable:team/own/v", owner="policy:team/own"))
        recorders = {"team/theirs": "team-x/own", "team/recorded": "team", "team/own/theirs": "team/sub"}
        for name, recorder in recorders.items():
            await load(stores, Draft().define(f"policy:{name}", owner=f"policy:{name}"), role(f"policy:{recorder}"))
        await load(stores, Draft().define("variable:team/theirs/v", owner="policy:team/theirs"))
        full = [f"{ACCOUNT}:policy:{name}" for name in policies]

        async def work(transaction: PolicyTransaction) -> None:
            impact = await transaction.read_deletion_cascade(ROOT, full[:1], 100)
            assert impact is not None
            gone = {*full[:3], f"{ACCOUNT}:variable:team/own/v", f"{ACCOUNT}:policy:team/recorded"}
            others = ("policy:team/theirs", "policy:team/own/theirs", "variable:team/theirs/v")
            stay = {f"{ACCOUNT}:{name}" for name in others}
            self.assertEqual({row.resource for row in impact.resources}, gone)
            await transaction.apply_changes(ROOT, Changes(delete=Rows((ResourceRow(full[0], str(ADMIN)),))), {})
            self.assertEqual(await transaction.filter_existing([*full, *gone, *stay]), stay.union(full[3:]))

        await stores.policies.transact(work)

    # -- record -------------------------------------------------------------------------------------------------------

    @scenario
    async def test_record(self) -> None:
        """Versions of a policy count from 1 and go on rising beyond the twenty that are kept, each policy's apart (POL-39,
        LIM-18).
        """
        stores = await self._team()
        self.assertEqual([await self._record(stores, TEAM) for _ in range(23)], list(range(1, 24)))
        self.assertEqual(await self._record(stores, ROOT), 1)
        self.assertEqual(await self._record(stores, TEAM), 24)

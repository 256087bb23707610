"""The suite of ``IPolicies`` and ``IPolicyTransaction``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import attrs
from zope.interface.verify import verifyObject

from svc.credentials import Credential
from svc.errors import Forbidden, PolicyConflict
from svc.interfaces import IPolicies, IPolicyTransaction
from svc.names import RoleName
from svc.records import Sealed
from svc.rows import AnnotationRow, Changes, MembershipRow, PermissionRow, PolicyVersion, Present, ResourceRow, Rows
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


class PolicyCase(Contract):
    """Ways of asking a store of policies."""

    async def _do(self, stores: Stores, work: Callable[[IPolicyTransaction], Awaitable[T]]) -> T:
        return await stores.policies.transact(work)

    async def _present(
        self, stores: Stores, policy: RoleName, wanted: Rows | None = None, deleted: Sequence[str] = ()
    ) -> Present:
        return await self._do(stores, lambda transaction: transaction.present(policy, wanted or Rows(), deleted))

    async def _existing(self, stores: Stores, *names: str) -> set[str]:
        """Those of the names ``kind:identifier`` that exist."""
        asked = [f"{ACCOUNT}:{name}" for name in names]
        existing = await self._do(stores, lambda transaction: transaction.existing(asked))
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
        return await self._do(stores, lambda transaction: transaction.record(version))


class PoliciesContract(PolicyCase):
    """What a load asks, and that it is all or nothing."""

    @scenario
    async def test_provides(self) -> None:
        """It provides the interface, and so do its transactions."""
        policies = (await self.stores()).policies
        verifyObject(IPolicies, policies)

        async def work(transaction: IPolicyTransaction) -> None:
            verifyObject(IPolicyTransaction, transaction)

        await policies.transact(work)

    @scenario
    async def test_result(self) -> None:
        """What the work returns is returned."""
        stores = await self.stores()

        async def work(transaction: IPolicyTransaction) -> str:
            return "done"

        self.assertEqual(await stores.policies.transact(work), "done")

    @scenario
    async def test_refusal(self) -> None:
        """When the work refuses, nothing of it has happened."""
        stores = await self._team()

        async def work(transaction: IPolicyTransaction) -> None:
            await transaction.apply(TEAM, Changes(delete=team().rows), {})
            await transaction.apply(TEAM, Changes(create=Draft().define("group:team/new").rows), {})
            await transaction.record(PolicyVersion(TEAM, "text", "sha", ADMIN, "::1"))
            raise Forbidden("after all, no")

        with self.assertRaises(Forbidden):
            await stores.policies.transact(work)
        await self._assert_own(stores, TEAM, team().rows)
        self.assertEqual(
            await stores.credentials.credential(role("host:team/h")), Credential(True, True, Sealed(b"key"), "acct-1")
        )
        self.assertEqual(await self._record(stores, TEAM), 1)

    # -- lock ---------------------------------------------------------------------------------------------------------

    @scenario
    async def test_lock(self) -> None:
        """While one load of a policy is under way another is refused; one of another policy is not."""
        stores = await self._team()

        async def second(transaction: IPolicyTransaction) -> None:
            await transaction.lock(TEAM)

        async def other(transaction: IPolicyTransaction) -> None:
            await transaction.lock(ROOT)

        async def first(transaction: IPolicyTransaction) -> None:
            await transaction.lock(TEAM)
            await transaction.lock(TEAM)
            with self.assertRaises(PolicyConflict):
                await stores.policies.transact(second)
            await stores.policies.transact(other)

        await stores.policies.transact(first)

    @scenario
    async def test_lock_ends(self) -> None:
        """A load that has ended, well or not, is not in the way of the next."""
        stores = await self._team()

        async def refused(transaction: IPolicyTransaction) -> None:
            await transaction.lock(TEAM)
            raise Forbidden("no")

        async def work(transaction: IPolicyTransaction) -> None:
            await transaction.lock(TEAM)

        for _ in range(2):
            with self.assertRaises(Forbidden):
                await stores.policies.transact(refused)
            await stores.policies.transact(work)

    # -- who may ------------------------------------------------------------------------------------------------------

    @scenario
    async def test_standing(self) -> None:
        """The standing towards a policy is that of any other question, asked within the transaction."""
        stores = await self._team()

        async def work(transaction: IPolicyTransaction) -> None:
            for caller in (ADMIN, TEAM, role("user:outsider"), role("user:nobody")):
                self.assertEqual(
                    await transaction.standing(caller, TEAM), await stores.roles.standing(caller, TEAM.resource)
                )
            await transaction.apply(ROOT, Changes(create=Draft().permit("policy:team", "user:outsider", "update").rows), {})
            standing = await transaction.standing(role("user:outsider"), TEAM)
            self.assertEqual(standing.privileges, {"update"})
            self.assertFalse((await transaction.standing(ADMIN, role("policy:none"))).exists)

        await stores.policies.transact(work)

    @scenario
    async def test_lacks_update_below(self) -> None:
        """Whoever would replace a policy needs ``update`` on everything whose identifier begins with its own and a slash."""
        stores = await self._team()
        beside = Draft().define("group:team2", "host:team", "variable:team-x/v", "user:x@team", "webservice:tea")
        await load(stores, beside)
        updater = Draft().define("group:updaters", "user:updater").grant("group:updaters", "user:updater")
        await load(stores, updater.permit("variable:team/v", "group:updaters", "update"))

        async def lacking(caller: str, policy: RoleName = TEAM) -> bool:
            return await self._do(stores, lambda transaction: transaction.lacks_update_below(role(caller), policy))

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
        self.assertTrue(await lacking("policy:team"))
        self.assertFalse(await lacking("user:outsider", role("policy:other")))

    @scenario
    async def test_nothing_below_root(self) -> None:
        """Below the root policy is what begins with ``root/``; the rest of the account is not."""
        stores = await self._team()

        async def lacking() -> bool:
            return await self._do(stores, lambda transaction: transaction.lacks_update_below(role("user:outsider"), ROOT))

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

            async def lacking(transaction: IPolicyTransaction, policy: RoleName = policy) -> bool:
                return await transaction.lacks_update_below(role("user:nobody"), policy)

            self.assertFalse(await stores.policies.transact(lacking), identifier)
            await load(stores, Draft().define(f"layer:{identifier}/x"))
            self.assertTrue(await stores.policies.transact(lacking), identifier)

    @scenario
    async def test_not_grantable(self) -> None:
        """A role may be granted by who holds it with admin option or has ``update`` on the policy that recorded it."""
        stores = await self._team()
        await load(stores, Draft().define("group:mine", owner="user:outsider"), role("policy:other"))
        draft = Draft().define("group:lead", "user:lead", "user:updater", "user:member").grant("group:lead", "user:lead")
        draft.permit("policy:team", "user:outsider", "read", "create")
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
        self.assertEqual(await refused("user:updater"), ["group:mine", "user:admin"])
        self.assertEqual(await refused("user:member"), ["group:mine", "group:team/g", "host:team/h", "user:admin"])
        self.assertEqual(await refused("user:outsider"), ["group:team/g", "host:team/h", "user:admin"])
        # Holding a role, as it holds itself, is not holding it with admin option.
        self.assertIn("group:team/g", await refused("group:team/g"))

    @scenario
    async def test_not_permittable(self) -> None:
        """A thing may be permitted by who owns it or has ``update`` on the policy that recorded it."""
        stores = await self._team()
        draft = Draft().define("user:updater", "group:updaters", "user:thing").grant("group:updaters", "user:updater")
        draft.permit("policy:team", "group:updaters", "update").permit("variable:team/v", "user:thing", "update")
        draft.permit("policy:team", "user:outsider", "read", "create")
        await load(stores, draft)
        await load(stores, Draft().define("variable:mine", owner="user:outsider"), role("policy:other"))
        things = [
            f"{ACCOUNT}:{name}" for name in ("variable:team/v", "variable:mine", "host:team/h", "policy:root", "variable:x")
        ]

        async def refused(caller: str) -> list[str]:
            names = await self._do(stores, lambda transaction: transaction.not_permittable(role(caller), things))
            return sorted(name.partition(":")[2] for name in names)

        self.assertEqual(await refused("user:admin"), [])
        self.assertEqual(await refused("policy:team"), ["policy:root", "variable:mine"])
        self.assertEqual(await refused("user:updater"), ["policy:root", "variable:mine"])
        self.assertEqual(await refused("user:thing"), ["host:team/h", "policy:root", "variable:mine", "variable:team/v"])
        self.assertEqual(await refused("user:outsider"), ["host:team/h", "policy:root", "variable:team/v"])

    @scenario
    async def test_other_accounts_may_not(self) -> None:
        """The admin of one account may not grant or permit anything of another."""
        stores = await self.stores_with_account("other")
        await load(stores, Draft("other").define("group:g"), role("policy:root", "other"))

        async def work(transaction: IPolicyTransaction) -> None:
            for name in ("other:group:g", "other:user:admin", "other:policy:root"):
                self.assertEqual(await transaction.not_grantable(ADMIN, [name]), [name])
                self.assertEqual(await transaction.not_permittable(ADMIN, [name]), [name])
            self.assertTrue((await transaction.standing(ADMIN, role("policy:root", "other"))).exists)
            self.assertFalse((await transaction.standing(ADMIN, role("policy:root", "other"))).owns)

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
    async def test_holds_more(self) -> None:
        """A policy holds more than so many rows when it recorded more of any one sort, and foreign ones don't count."""
        stores = await self._team()
        other = role("policy:other")
        await load(stores, Draft().annotate("policy:other", {str(number): "x" for number in range(8)}), other)
        holding = ((TEAM, 2), (TEAM, 3), (other, 7), (other, 8), (ROOT, 0), (role("policy:no"), 0))

        async def work(transaction: IPolicyTransaction) -> list[bool]:
            return [await transaction.holds_more(policy, most) for policy, most in holding]

        self.assertEqual(await self._do(stores, work), [True, False, True, False, True, False])

    @scenario
    async def test_existing(self) -> None:
        """Resources exist of whatever kind, recorded by whomever; a name that differs in case is another."""
        stores = await self._team()
        there = {"user:admin", "host:team/h", "variable:team/v", "policy:root"}
        self.assertEqual(
            await self._existing(stores, *there, "host:team/H", "variable:team", "group:team/h", "user:%"), there
        )
        self.assertEqual(await self._existing(stores), set())
        other = ["other:user:admin"]
        self.assertEqual(await self._do(stores, lambda transaction: transaction.existing(other)), frozenset())

    @scenario
    async def test_within(self) -> None:
        """What a transaction has applied is present in it."""
        stores = await self._team()

        async def work(transaction: IPolicyTransaction) -> None:
            await transaction.apply(TEAM, Changes(create=Draft().define("group:team/new").rows), {})
            self.assertEqual(await transaction.existing(["acct:group:team/new"]), {"acct:group:team/new"})
            present = await transaction.present(TEAM, Rows(), [])
            self.assertIn(ResourceRow("acct:group:team/new", "acct:user:admin"), present.own.resources)

        await stores.policies.transact(work)

    # -- record -------------------------------------------------------------------------------------------------------

    @scenario
    async def test_record(self) -> None:
        """Versions of a policy count from 1 and go on rising beyond the twenty that are kept, each policy's apart."""
        stores = await self._team()
        self.assertEqual([await self._record(stores, TEAM) for _ in range(23)], list(range(1, 24)))
        self.assertEqual(await self._record(stores, ROOT), 1)
        self.assertEqual(await self._record(stores, TEAM), 24)

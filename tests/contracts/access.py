"""The suite of ``AccessStore``."""

from __future__ import annotations

from collections.abc import Iterable

from svc.model.access import AccessTarget, DirectAccess, PathStep, SearchFrontier, StepKind
from tests.contracts.base import ACCOUNT, ADMIN, ODD_IDENTIFIERS, Contract, Draft, Stores, load, resource, role, scenario

V = AccessTarget(resource("variable:v"), ("read", "execute"))


def full(*names: str) -> list[str]:
    """Full ids."""
    return [f"{ACCOUNT}:{name}" for name in names]


def pairs(*names: tuple[str, str]) -> list[tuple[str, str]]:
    """Pairs of full ids."""
    return [(f"{ACCOUNT}:{one}", f"{ACCOUNT}:{other}") for one, other in names]


def steps(**by: Iterable[str]) -> list[PathStep]:
    """Last steps, by the word for what they have, in order."""
    found = [PathStep(name, StepKind(word)) for word, names in by.items() for name in full(*names)]
    return sorted(found, key=lambda step: step.role or "")


class AccessContract(Contract):
    """Memberships, owners and permissions, piece by piece."""

    async def _stores(self) -> Stores:
        """``v`` belongs to ``group:owners``; ``readers`` and ``runners`` have what they are called after."""
        stores = await self.stores_with_account()
        draft = Draft().define("group:owners", "group:readers", "group:runners", "group:staff", "group:all", "user:u")
        draft.define("variable:v", owner="group:owners").define("variable:w", owner="group:all")
        draft.permit("variable:v", "group:readers", "read", "execute").permit("variable:v", "group:runners", "execute")
        draft.permit("variable:v", "group:owners", "read").permit("variable:v", "group:all", "update")
        draft.grant("group:readers", "group:staff", "group:all").grant("group:staff", "group:all", "user:u")
        await load(stores, draft.grant("group:all", "group:all", "user:admin").grant("group:runners", "user:u"))
        return stores

    @scenario
    async def test_direct(self) -> None:
        """The owner and the roles with any of the privileges come in order, each once, from an id on, up to a limit."""
        access = (await self._stores()).access
        whole = steps(owner=["group:owners"], permitted=["group:readers", "group:runners"])
        self.assertEqual(await access.list_direct_holders(V, "", 10), whole)
        self.assertEqual(await access.list_direct_holders(V, "", 2), whole[:2])
        self.assertEqual(await access.list_direct_holders(V, full("group:readers")[0], 10), whole[1:])
        self.assertEqual(await access.list_direct_holders(V, full("group:readers")[0] + "\x01", 10), whole[2:])
        self.assertEqual(await access.list_direct_holders(AccessTarget(V.resource, ("none",)), "", 10), whole[:1])
        self.assertEqual(await access.list_direct_holders(AccessTarget(resource("variable:none"), ("read",)), "", 10), [])
        self.assertEqual(
            await access.filter_direct_holders(V, full("group:all", "group:runners", "group:owners")), whole[::2]
        )
        self.assertEqual(await access.filter_direct_holders(V, full("group:all")), [])

    @scenario
    async def test_steps(self) -> None:
        """Members and held roles come role by role, from an id on; a pair of an ownership and a grant is there twice."""
        access = (await self._stores()).access
        found = await access.list_direct_members([(name, "") for name in full("group:staff", "group:all")], 10)
        staff = pairs(("group:staff", "group:all"), ("group:staff", "user:admin"), ("group:staff", "user:u"))
        expected = staff + pairs(("group:all", "group:all")) + 2 * pairs(("group:all", "user:admin"))
        self.assertEqual(found, expected)
        self.assertEqual(
            await access.list_direct_members([(name, "") for name in full("group:staff", "group:all")], 4), expected[:4]
        )
        behind = [(full("group:staff")[0], full("user:admin")[0] + "\x01"), (full("group:all")[0], "")]
        self.assertEqual(await access.list_direct_members(behind, 10), expected[2:])
        held = await access.list_direct_memberships([(name, "") for name in full("user:u", "group:all")], 10)
        self.assertEqual(
            held,
            pairs(
                ("user:u", "group:runners"),
                ("user:u", "group:staff"),
                ("group:all", "group:all"),
                ("group:all", "group:readers"),
                ("group:all", "group:staff"),
            ),
        )

    @scenario
    async def test_earlier(self) -> None:
        """Candidates are found that are nearer to the base than through their parent, or as near through an earlier one."""
        access = (await self._stores()).access
        first = frozenset(full("group:owners", "group:readers", "group:runners"))
        for base in (SearchFrontier(V, first), SearchFrontier(V)):
            for candidates, far, expected in (
                (pairs(("group:all", "group:readers"), ("group:staff", "group:readers")), 0, []),
                (pairs(("user:admin", "group:owners"), ("user:u", "group:runners")), 0, []),
                (
                    pairs(("user:admin", "group:readers"), ("group:readers", "group:staff")),
                    0,
                    ["group:readers", "user:admin"],
                ),
                (pairs(("group:all", "group:staff"), ("user:u", "group:staff")), 1, ["group:all", "user:u"]),
                (pairs(("user:u", "group:staff")), 2, ["user:u"]),
            ):
                found = await access.filter_reached_earlier(candidates, base, far)
                self.assertEqual(found, frozenset(full(*expected)), (candidates, far))
        farther = SearchFrontier(V, frozenset(full("group:staff")))
        self.assertEqual(await access.filter_reached_earlier(pairs(("user:u", "group:staff")), farther, 0), frozenset())

    @scenario
    async def test_earlier_of_many(self) -> None:
        """That a role holds many others changes nothing."""
        stores = await self._stores()
        many = [f"group:m{number:03}" for number in range(120)]
        draft = Draft().define(*many)
        for name in many:
            draft.grant(name, "user:u", "group:staff")
        await load(stores, draft.grant("group:m000", "group:m119"))
        base = SearchFrontier(V, frozenset(full("group:m050", "group:m100")))
        for candidates, far, expected in (
            (pairs(("user:u", "group:m050")), 0, []),
            (pairs(("user:u", "group:m100")), 0, ["user:u"]),
            (pairs(("user:u", "group:staff")), 1, ["user:u"]),
        ):
            self.assertEqual(
                await stores.access.filter_reached_earlier(candidates, base, far), frozenset(full(*expected)), candidates
            )
        farther = SearchFrontier(V, frozenset(full("group:m000")))
        self.assertEqual(await stores.access.find_nearest_role(full("group:m119")[0], farther, 0), full("group:m000")[0])
        owners = SearchFrontier(V, frozenset(full("group:owners")))
        self.assertEqual(await stores.access.filter_reached_earlier(pairs(("user:u", "group:m119")), owners, 1), frozenset())

    @scenario
    async def test_nearest(self) -> None:
        """The first role is found from which the base is so many memberships away, or fewer."""
        access = (await self._stores()).access
        for base in (
            SearchFrontier(V, frozenset(full("group:readers"))),
            SearchFrontier(AccessTarget(V.resource, ("read",))),
        ):
            for name, far, expected in (
                ("group:all", 0, "group:readers"),
                ("user:u", 0, None),
                ("user:u", 1, "group:staff"),
                ("user:admin", 2, "group:all"),
            ):
                found = await access.find_nearest_role(full(name)[0], base, far)
                self.assertEqual(found, None if expected is None else full(expected)[0], (name, far))

    @scenario
    async def test_count(self) -> None:
        """Holders are counted, each once, or those alone that have the privilege themselves (ACC-6)."""
        access = (await self._stores()).access
        for target, direct, all_ in (
            (V, 3, 7),
            (AccessTarget(V.resource, ("update",)), 2, 3),
            (AccessTarget(V.resource, ("x",)), 1, 2),
        ):
            self.assertEqual(await access.count_holders(target, direct=True), direct)
            self.assertEqual(await access.count_holders(target, direct=False), all_)
        self.assertEqual(await access.count_holders(AccessTarget(resource("variable:none"), ("read",)), direct=False), 0)

    @scenario
    async def test_given(self) -> None:
        """What roles have on resources by themselves is told, however many permissions there are."""
        stores = await self._stores()
        names, roles = full("variable:v", "variable:w", "variable:none"), full("group:owners", "group:all", "group:readers")
        v, w, _ = names
        owners, everybody, readers = roles
        expected = {
            DirectAccess(v, owners, None),
            DirectAccess(v, owners, "read"),
            DirectAccess(v, readers, "read"),
            DirectAccess(v, everybody, "update"),
            DirectAccess(w, everybody, None),
        }
        self.assertEqual(set(await stores.access.list_rights(names, ("read", "update"), roles)), expected)
        draft = Draft().define(*(f"group:n{number:03}" for number in range(220)))
        for number in range(220):
            draft.permit("variable:v", f"group:n{number:03}", "read")
        await load(stores, draft)
        found = await stores.access.list_rights(names, ("read", "update"), [*roles, *full("group:n219")])
        self.assertEqual(set(found), {*expected, DirectAccess(v, full("group:n219")[0], "read")})
        self.assertEqual(len(found), len(set(found)))

    @scenario
    async def test_resources(self) -> None:
        """An account's resources come in order, from behind an id on, as many as asked for."""
        stores = await self._stores()
        await self.add_account(stores, "acct2")
        found = await stores.access.list_resources(ACCOUNT, "", 100)
        self.assertEqual(
            found,
            sorted(
                full(
                    "group:all",
                    "group:owners",
                    "group:readers",
                    "group:runners",
                    "group:staff",
                    "policy:root",
                    "user:admin",
                    "user:u",
                    "variable:v",
                    "variable:w",
                )
            ),
        )
        self.assertEqual(await stores.access.list_resources(ACCOUNT, found[2], 3), found[3:6])
        self.assertEqual(await stores.access.list_resources(ACCOUNT, found[-1], 3), [])
        self.assertEqual(await stores.access.list_resources("none", "", 3), [])

    @scenario
    async def test_seen(self) -> None:
        """A resource is seen by those who own it or have any privilege on it (ROLE-4)."""
        access = (await self._stores()).access
        names = full("variable:v", "variable:w", "group:staff", "variable:none")
        for caller, expected in (
            (ADMIN, names[:3]),
            (role("user:u"), names[:1]),
            (role("group:all"), names[:2]),
            (role("user:none"), []),
        ):
            self.assertEqual(await access.filter_visible(caller, names), frozenset(expected), caller)
        self.assertEqual(await access.filter_visible(ADMIN, []), frozenset())

    @scenario
    async def test_odd_identifiers(self) -> None:
        """An identifier is only text, whatever it is made of (DATA-18)."""
        stores = await self.stores_with_account()
        odd = [f"group:{name}" for name in ODD_IDENTIFIERS]
        draft = Draft().define("variable:v", "group:all", *odd).permit("variable:v", "group:all", "read")
        await load(stores, draft.grant("group:all", *odd))
        base = SearchFrontier(V, frozenset(full("group:all")))
        found = await stores.access.list_direct_members([(full("group:all")[0], "")], 100)
        self.assertEqual({member for _, member in found}, {*full(*odd), str(ADMIN)})
        hanging = [(member, granted) for granted, member in found]
        self.assertEqual(await stores.access.filter_reached_earlier(hanging, base, 0), frozenset())
        held = await stores.access.list_direct_memberships([(name, "") for name in full(*odd)], 100)
        self.assertEqual(held, [(name, full("group:all")[0]) for name in full(*odd)])

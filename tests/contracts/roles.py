"""The suite of ``RoleStore``."""

from __future__ import annotations

from itertools import product

import attrs

from svc.model.names import ResourceName, RoleName
from svc.model.query_results import AccessFacts, ListingKey, Membership, MembersQuery, Search
from tests.contracts.base import (
    ACCOUNT,
    ADMIN,
    ODD_IDENTIFIERS,
    ROOT,
    Contract,
    Draft,
    Stores,
    load,
    resource,
    role,
    scenario,
)

NOBODY = AccessFacts(caller_exists=False, exists=False)
STRANGER = AccessFacts(caller_exists=True, exists=True, recorded_by=str(ROOT))


def given(*privileges: str, holds: bool = False) -> AccessFacts:
    """The standing of a caller that has been given privileges and owns nothing."""
    return attrs.evolve(STRANGER, privileges=frozenset(privileges), holds=holds)


def owner(*, holds: bool = False) -> AccessFacts:
    """The standing of an owner."""
    return attrs.evolve(STRANGER, owns=True, holds=holds)


class RolesContract(Contract):
    """Roles, their standing and their members."""

    @scenario
    async def test_nothing(self) -> None:
        """Where nothing is stored, nobody exists, and nothing does."""
        stores = await self.stores()
        self.assertEqual(await stores.roles.access_facts(ADMIN, ROOT.resource), NOBODY)
        self.assertFalse(await stores.has_role(ADMIN))
        self.assertEqual(await stores.roles.list_members(MembersQuery(ROOT)), [])
        self.assertEqual(await stores.roles.count_members(MembersQuery(ROOT)), 0)

    @scenario
    async def test_exists(self) -> None:
        """A role exists under its exact name; a resource without a role does not count."""
        stores = await self.stores_with_account("other")
        await load(stores, Draft().define("group:ops", "webservice:group"))
        self.assertTrue(await stores.has_role(role("group:ops")))
        for name in ("group:Ops", "group:ops ", "group:op", "layer:ops"):
            self.assertFalse(await stores.has_role(role(name)))
        self.assertFalse(await stores.has_role(role("group:ops", "other")))

    @scenario
    async def test_missing(self) -> None:
        """A caller or a resource that does not exist is said to be missing, each by itself."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("variable:v"))
        missing = AccessFacts(caller_exists=True, exists=False)
        await self.assert_standings(
            stores,
            [
                ("user:nobody", "variable:v", attrs.evolve(STRANGER, caller_exists=False)),
                ("user:admin", "variable:w", missing),
                ("user:nobody", "user:nobody", NOBODY),
            ],
        )

    @scenario
    async def test_owner(self) -> None:
        """An owner owns, and so does one that holds its role through others (ROLE-2)."""
        stores = await self.stores_with_account()
        draft = (
            Draft()
            .define("policy:p")
            .define("variable:v", "group:g", owner="policy:p")
            .define("variable:w", owner="group:g")
        )
        draft.define("user:u", "group:admins", "user:none").grant("group:admins", "user:u").grant("policy:p", "group:admins")
        await load(stores, draft)
        for caller in ("policy:p", "group:admins", "user:u", "user:admin"):
            await self.assert_standings(
                stores,
                [
                    (caller, "variable:v", owner()),
                    (caller, "variable:w", owner()),
                    (caller, "group:g", owner(holds=True)),
                ],
            )
        await self.assert_standings(
            stores,
            [
                ("group:g", "variable:v", STRANGER),
                ("group:g", "variable:w", owner()),
                ("user:none", "variable:v", STRANGER),
                ("user:none", "group:g", STRANGER),
            ],
        )

    @scenario
    async def test_privileges(self) -> None:
        """The privileges of a caller are those of all roles that it holds, by whatever names, and no others (ROLE-3)."""
        stores = await self.stores_with_account()
        odd = ("Read", "re ad", "it's 100%\\", "☃")
        draft = Draft().define("variable:v", "variable:w", "group:a", "group:b", "layer:c", "host:h", "host:other")
        draft.grant("group:a", "group:b").grant("group:b", "host:h").grant("layer:c", "host:h")
        draft.permit("variable:v", "group:a", "read", "execute").permit("variable:v", "layer:c", "read", *odd)
        draft.permit("variable:w", "host:h", "update").permit("variable:v", "host:other", "delete")
        await load(stores, draft)
        await self.assert_standings(
            stores,
            [
                ("host:h", "variable:v", given("read", "execute", *odd)),
                ("group:b", "variable:v", given("read", "execute")),
                ("group:a", "variable:w", STRANGER),
                ("host:h", "variable:w", given("update")),
                ("host:other", "variable:v", given("delete")),
                ("user:admin", "variable:v", owner()),
            ],
        )

    @scenario
    async def test_holds(self) -> None:
        """A caller holds its own role and those that it is a member of, not those of its members (ROLE-1)."""
        stores = await self.stores_with_account()
        draft = Draft().define("group:a", "group:b", "host:h", "webservice:a").grant("group:a", "group:b")
        await load(stores, draft.grant("group:b", "host:h"))
        holding = attrs.evolve(STRANGER, holds=True)
        await self.assert_standings(
            stores,
            [
                ("host:h", "host:h", holding),
                ("host:h", "group:b", holding),
                ("host:h", "group:a", holding),
                ("group:b", "host:h", STRANGER),
                ("group:a", "group:b", STRANGER),
                ("group:a", "webservice:a", STRANGER),
            ],
        )

    @scenario
    async def test_circles(self) -> None:
        """Memberships that go in circles, of one role or of several, are followed to their end (ROLE-1)."""
        stores = await self.stores_with_account()
        draft = Draft().define("group:a", "group:b", "group:c", "group:self", "variable:v", "host:h", "user:none")
        draft.grant("group:a", "group:b").grant("group:b", "group:c").grant("group:c", "group:a")
        draft.grant("group:self", "group:self", "host:h").grant("group:c", "host:h")
        draft.permit("variable:v", "group:b", "read").permit("variable:v", "group:self", "execute")
        await load(stores, draft)
        await self.assert_standings(
            stores,
            [
                ("group:a", "variable:v", given("read")),
                ("group:b", "variable:v", given("read")),
                ("group:c", "variable:v", given("read")),
                ("group:self", "variable:v", given("execute")),
                ("host:h", "variable:v", given("read", "execute")),
                ("user:none", "variable:v", STRANGER),
                ("group:a", "group:c", attrs.evolve(STRANGER, holds=True)),
            ],
        )

    @scenario
    async def test_circle_of_owners(self) -> None:
        """Owners in a circle own each other's things (ROLE-2)."""
        stores = await self.stores_with_account()
        draft = (
            Draft().define("group:a", owner="group:b").define("group:b", owner="group:a").define("group:c", owner="group:c")
        )
        await load(stores, draft.define("variable:v", owner="group:b").define("variable:w", owner="group:c"))
        await self.assert_standings(
            stores,
            [
                ("group:a", "variable:v", owner()),
                ("group:b", "group:a", owner(holds=True)),
                ("group:c", "variable:w", owner()),
                ("group:c", "variable:v", STRANGER),
                ("user:admin", "variable:v", STRANGER),
            ],
        )

    @scenario
    async def test_accounts_apart(self) -> None:
        """Nobody has any standing in another account, however alike the names are (NAME-18)."""
        stores = await self.stores_with_account("acct2", "other")
        for account in (ACCOUNT, "acct2", "other"):
            draft = Draft(account).define("group:g", "host:h", "variable:v").grant("group:g", "host:h")
            draft.permit("variable:v", "group:g", "read")
            await load(stores, draft, role("policy:root", account))
        for caller, thing in product((ACCOUNT, "acct2", "other"), repeat=2):
            for name in ("host:h", "user:admin"):
                for target in ("variable:v", "group:g", "host:h"):
                    access_facts = await stores.roles.access_facts(role(name, caller), resource(target, thing))
                    known = bool(access_facts.owns or access_facts.privileges or access_facts.holds)
                    self.assertEqual(known, caller == thing, (caller, name, thing, target))

    @scenario
    async def test_members(self) -> None:
        """The members of a role are those that were granted it and its owner, not their members, in order of their ids
        (ROLE-17).
        """
        stores = await self.stores_with_account()
        draft = (
            Draft()
            .define("policy:p")
            .define("group:g", owner="policy:p")
            .define("group:inner", "user:Z", "user:a", "host:h")
        )
        draft.grant("group:g", "user:a", "group:inner", "user:Z", "host:h").grant("group:inner", "user:a")
        await load(stores, draft.grant("group:g", "group:g", admin=True))
        self.assertEqual(
            await stores.roles.list_members(MembersQuery(role("group:g"))),
            [
                Membership("acct:group:g", "acct:group:g", True, False, str(ROOT)),
                Membership("acct:group:g", "acct:group:inner", False, False, str(ROOT)),
                Membership("acct:group:g", "acct:host:h", False, False, str(ROOT)),
                Membership("acct:group:g", "acct:policy:p", True, True, str(ROOT)),
                Membership("acct:group:g", "acct:user:Z", False, False, str(ROOT)),
                Membership("acct:group:g", "acct:user:a", False, False, str(ROOT)),
            ],
        )

    @scenario
    async def test_owner_and_granted(self) -> None:
        """An owner that was granted the role as well is listed twice, as granted first, and counted twice (ROLE-16)."""
        stores = await self.stores_with_account()
        draft = Draft().define("group:g", owner="user:admin").define("user:a", "user:z")
        await load(stores, draft.grant("group:g", "user:admin", "user:a", "user:z"))
        query = MembersQuery(role("group:g"))
        self.assertEqual(
            [(found.member, found.ownership) for found in await stores.roles.list_members(query)],
            [
                ("acct:user:a", False),
                ("acct:user:admin", False),
                ("acct:user:admin", True),
                ("acct:user:z", False),
            ],
        )
        self.assertEqual(await stores.roles.count_members(query), 4)

    async def _populous(self, stores: Stores) -> MembersQuery:
        draft = Draft().define("group:g", *(f"host:h{number:02}" for number in range(12)))
        draft.define("user:host", "layer:host", "group:hosts", "host_factory:host", "group:other")
        draft.grant("group:g", *(f"host:h{number:02}" for number in range(12)), "user:host", "layer:host", "group:hosts")
        await load(stores, draft.grant("group:g", "host_factory:host").grant("group:other", "host:h00"))
        return MembersQuery(role("group:g"))

    @scenario
    async def test_pages(self) -> None:
        """Pages of any size, laid end to end, are the list of members (ROLE-19)."""
        stores = await self.stores_with_account()
        query = await self._populous(stores)
        whole = await stores.roles.list_members(query)
        self.assertEqual(len(whole), 17)
        for size in (1, 4, 17, 100):
            pages = [
                await stores.roles.list_members(attrs.evolve(query, limit=size, offset=offset))
                for offset in range(0, 20, size)
            ]
            self.assertEqual([found for page in pages for found in page], whole)
        self.assertEqual(await stores.roles.list_members(attrs.evolve(query, offset=15)), whole[15:])
        self.assertEqual(await stores.roles.list_members(attrs.evolve(query, offset=2**62, limit=2**62)), [])

    @scenario
    async def test_kinds(self) -> None:
        """Members are narrowed to those of the kinds asked for; a kind that no role has narrows them to none (ROLE-18)."""
        stores = await self.stores_with_account()
        query = await self._populous(stores)
        hosts = [f"acct:host:h{number:02}" for number in range(12)]
        expected: list[tuple[tuple[str, ...], list[str]]] = [
            (("host",), hosts),
            (("host_factory",), ["acct:host_factory:host"]),
            (("group", "user"), ["acct:group:hosts", "acct:user:admin", "acct:user:host"]),
            (("user", "group", "user"), ["acct:group:hosts", "acct:user:admin", "acct:user:host"]),
            (("host", "nonsense", "layer"), [*hosts, "acct:layer:host"]),
            (("policy",), []),
            (("Host",), []),
            (("hos", "hosts", "host:h00", "%", "_", "group,user", "", "\x00", "variable"), []),
        ]
        for kinds, members in expected:
            narrowed = attrs.evolve(query, kinds=kinds)
            self.assertEqual([found.member for found in await stores.roles.list_members(narrowed)], members, kinds)
            self.assertEqual(await stores.roles.count_members(narrowed), len(members), kinds)

    @scenario
    async def test_kinds_that_policies_made_up(self) -> None:
        """Members of such kinds are listed with the others, and by kind, in the order of full ids (NAME-30, ROLE-18)."""
        stores = await self.stores_with_account()
        made = ("job:a", "job-a:a", "job2:a", "Job:a", "zoo:a")
        await load(stores, Draft().define("group:g", "variable:v", "user:u", *made).grant("group:g", "user:u", *made))
        query = MembersQuery(role("group:g"))
        every = ["Job:a", "job-a:a", "job2:a", "job:a", "user:admin", "user:u", "zoo:a"]
        for kinds, expected in (
            ((), every),
            (("job", "job-a"), ["job-a:a", "job:a"]),
            (("job2", "job", "user"), ["job2:a", "job:a", "user:admin", "user:u"]),
            (("zoo", "variable"), ["zoo:a"]),
            (("variable", "Users"), []),
        ):
            narrowed = attrs.evolve(query, kinds=kinds)
            found = [row.member.partition(":")[2] for row in await stores.roles.list_members(narrowed)]
            self.assertEqual(found, expected, kinds)
            self.assertEqual(await stores.roles.count_members(narrowed), len(expected), kinds)
        held = await stores.roles.list_memberships(MembersQuery(role("job:a"), ("group", "job")))
        self.assertEqual([row.role for row in held], [f"{ACCOUNT}:group:g"])

    @scenario
    async def test_kinds_and_pages(self) -> None:
        """Paging is of what the kinds leave; counting takes no notice of it (ROLE-21)."""
        stores = await self.stores_with_account()
        query = attrs.evolve(await self._populous(stores), kinds=("host", "layer"), limit=2, offset=11)
        self.assertEqual(
            [found.member for found in await stores.roles.list_members(query)], ["acct:host:h11", "acct:layer:host"]
        )
        self.assertEqual(await stores.roles.count_members(query), 13)

    @scenario
    async def test_judged_members(self) -> None:
        """Members are read together with the caller's standing towards the role; a stranger is shown none of them."""
        stores = await self.stores_with_account()
        query = await self._populous(stores)
        draft = Draft().define("user:reader", "user:stranger").permit("group:g", "user:reader", "read")
        await load(stores, draft)
        whole = await stores.roles.list_members(query)
        queries = [
            query,
            attrs.evolve(query, limit=3, offset=2),
            attrs.evolve(query, kinds=("host", "user"), limit=5),
            attrs.evolve(query, after=ListingKey(whole[3].member, whole[3].ownership)),
            attrs.evolve(query, search=Search("host", False, True), limit=4),
            attrs.evolve(query, kinds=("none",)),
            MembersQuery(role("group:absent")),
        ]
        for name in ("user:admin", "user:reader", "host:h01", "user:stranger", "user:absent"):
            for asked in queries:
                access_facts, found = await stores.roles.list_members_with_facts(role(name), asked)
                self.assertEqual(access_facts, await stores.roles.access_facts(role(name), asked.role.resource))
                known = access_facts.owns or access_facts.holds or access_facts.privileges
                self.assertEqual(found, await stores.roles.list_members(asked) if known else [], (name, asked))

    @scenario
    async def test_odd_identifiers(self) -> None:
        """An identifier is only text, whatever it is made of."""
        stores = await self.stores_with_account()
        draft = Draft().define("group:all", *(f"host:{name}" for name in ODD_IDENTIFIERS))
        draft.define(*(f"variable:{name}" for name in ODD_IDENTIFIERS))
        draft.grant("group:all", *(f"host:{name}" for name in ODD_IDENTIFIERS))
        for name in ODD_IDENTIFIERS:
            draft.permit(f"variable:{name}", f"host:{name}", "read")
        await load(stores, draft)
        members = await stores.roles.list_members(MembersQuery(role("group:all"), kinds=("host",)))
        self.assertEqual(
            [found.member for found in members],
            sorted((f"{ACCOUNT}:host:{name}" for name in ODD_IDENTIFIERS), key=str.encode),
        )
        for caller, thing in product(ODD_IDENTIFIERS, repeat=2):
            access_facts = await stores.roles.access_facts(
                RoleName(ACCOUNT, "host", caller), ResourceName(ACCOUNT, "variable", thing)
            )
            self.assertEqual(access_facts, given("read") if caller == thing else STRANGER)

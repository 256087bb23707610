"""The suite of ``ResourceStore``."""

from __future__ import annotations

import attrs

from svc.model.errors import TooManyRoles
from svc.model.names import RoleName
from svc.model.policy_loads import Changes, PermissionRow, PolicyVersion, Rows
from svc.model.query_results import Caller, Permission, ResourceAnnotation, ResourcesQuery, Search, SecretVersion
from svc.storage.policies import PolicyTransaction
from tests.contracts.base import (
    ACCOUNT,
    ADMIN,
    ODD_IDENTIFIERS,
    ROOT,
    Contract,
    Draft,
    Stores,
    change,
    described,
    load,
    resource,
    role,
    scenario,
)
from tests.contracts.secrets import always

#: What the account has from its beginning.
BEGINNING = ["policy:root", "user:admin"]


def native(text: str) -> Search:
    """A search of the native dialect."""
    return Search(text, split=True, by_class=True)


def conjur(text: str) -> Search:
    """A search of the installed base."""
    return Search(text, split=False, by_class=False)


class ResourcesContract(Contract):
    """Who sees which resources, what each is like, and who has a privilege on it."""

    async def assert_visible(self, stores: Stores, query: ResourcesQuery, expected: list[str]) -> None:
        """The query matches these, all of which are counted, and pages of any size have them in this order."""
        names = [f"{query.account or ACCOUNT}:{name}" if name.count(":") == 1 else name for name in expected]
        self.assertEqual(await stores.resources.list_visible(query), names, query)
        self.assertEqual(await stores.resources.count_visible(attrs.evolve(query, limit=1, offset=1)), len(names), query)
        for size in (1, 2, len(names) or 1):
            pages = [
                await stores.resources.list_visible(attrs.evolve(query, limit=size, offset=offset))
                for offset in range(0, len(names) + 1, size)
            ]
            self.assertEqual([found for page in pages for found in page], names, (query, size))

    @scenario
    async def test_nothing(self) -> None:
        """Where nothing is stored, nobody sees anything, and there is nothing to tell."""
        stores = await self.stores()
        await self.assert_visible(stores, ResourcesQuery(ADMIN), [])
        await self.assert_visible(stores, ResourcesQuery(ADMIN, ACCOUNT, owner=ADMIN, search=native("admin")), [])
        self.assertEqual(await described(stores, [str(ROOT)]), [])
        self.assertEqual(await described(stores, []), [])
        self.assertEqual(await stores.resources.list_permitted_roles(ROOT.resource, "read", 1), [])

    async def _team(self) -> Stores:
        """A policy of a team, whose group owns it; a host that is permitted little; a user who belongs to the group."""
        stores = await self.stores_with_account("other")
        draft = Draft().define("user:amy", "user:zoe", "group:team", "variable:outside")
        draft.define("policy:p", owner="group:team")
        draft.define("variable:p/a", "variable:p/b", "host:p/h", "group:p/inner", owner="policy:p")
        draft.define("webservice:p/inner", owner="group:p/inner")
        draft.grant("group:team", "user:amy").grant("group:p/inner", "host:p/h")
        draft.permit("variable:p/a", "host:p/h", "read", "execute").permit("variable:outside", "group:p/inner", "juggle")
        await load(stores, draft)
        await load(stores, Draft("other").define("variable:p/a", "variable:x"), role("policy:root", "other"))
        return stores

    @scenario
    async def test_visible(self) -> None:
        """A role sees what it owns, through whatever roles, and what a role that it holds has any privilege on (RES-1)."""
        stores = await self._team()
        inner = ["group:p/inner", "host:p/h", "policy:p", "variable:p/a", "variable:p/b", "webservice:p/inner"]
        for viewer, expected in (
            ("host:p/h", ["variable:outside", "variable:p/a", "webservice:p/inner"]),
            ("group:p/inner", ["variable:outside", "webservice:p/inner"]),
            ("policy:p", ["group:p/inner", "host:p/h", "variable:outside", "variable:p/a", "variable:p/b", inner[-1]]),
            ("user:amy", sorted([*inner, "variable:outside"])),
            ("group:team", sorted([*inner, "variable:outside"])),
            ("user:zoe", []),
            ("user:nobody", []),
            ("user:admin", sorted([*inner, *BEGINNING, "group:team", "user:amy", "user:zoe", "variable:outside"])),
        ):
            for account in (None, ACCOUNT):
                await self.assert_visible(stores, ResourcesQuery(role(viewer), account), expected)
            await self.assert_visible(stores, ResourcesQuery(role(viewer), "other"), [])

    @scenario
    async def test_first_page(self) -> None:
        """A first page has what is visible, and tells of the resources that it begins with what they are like (RES-1)."""
        stores = await self._team()
        for viewer, account, kinds in (
            ("user:amy", ACCOUNT, ()),
            ("user:amy", ACCOUNT, ("variable", "host", "unknown")),
            ("user:amy", ACCOUNT, ("unknown",)),
            ("user:amy", "other", ()),
            ("user:zoe", ACCOUNT, ()),
            ("user:admin", ACCOUNT, ("policy",)),
        ):
            creation = (await stores.credentials.read_credential(role(viewer))).creation
            for limit in (1, 3, 100):
                query = ResourcesQuery(role(viewer), account, kinds, limit=limit)
                page = await stores.resources.read_first_page(Caller(query.viewer, 0, creation), query)
                visible = await stores.resources.list_visible(query)
                self.assertTrue(page.caller_exists)
                self.assertEqual([*(each.id for each in page.first), *page.rest], visible)
                self.assertEqual(list(page.first), await described(stores, visible[: len(page.first)]))
                self.assertEqual(bool(page.first), bool(visible))
        nobody = await stores.resources.read_first_page(
            Caller(role("user:nobody"), 0), ResourcesQuery(role("user:nobody"), ACCOUNT)
        )
        self.assertEqual((nobody.caller_exists, list(nobody.first), list(nobody.rest)), (False, [], []))

    @scenario
    async def test_every_account(self) -> None:
        """Without an account, what is seen of other accounts is listed, too; with one, only what is seen of that (RES-2)."""
        stores = await self.stores_with_account("other")
        await load(stores, Draft().define("variable:x", "variable:y"))
        await load(stores, Draft("other").define("variable:x", "host:h"), role("policy:root", "other"))
        viewer = role("user:admin", "other")
        across = Rows(permissions=(PermissionRow("acct:variable:x", "read", str(viewer)),))
        await change(stores, Changes(create=across))
        own = ["other:host:h", *(f"other:{name}" for name in BEGINNING), "other:variable:x"]
        for account, expected in (
            (None, ["acct:variable:x", *own]),
            ("other", own),
            (ACCOUNT, ["acct:variable:x"]),
            ("acc", []),
            ("othes", []),
            ("%", []),
        ):
            await self.assert_visible(stores, ResourcesQuery(viewer, account), expected)

    @scenario
    async def test_below(self) -> None:
        """A query for what is beneath an identifier finds those of its kind that go on after a slash, and none that only
        begin alike (CON-20).
        """
        stores = await self.stores_with_account("other")
        draft = Draft().define("variable:p", "variable:p/a", "variable:p/b/c", "variable:p0", "variable:p-a", "variable:p.a")
        await load(stores, draft.define("host:p/h", "policy:p"))
        await load(stores, Draft("other").define("variable:p/a"), role("policy:root", "other"))
        query = ResourcesQuery(ADMIN, ACCOUNT, ("variable",), below="p")
        await self.assert_visible(stores, query, ["variable:p/a", "variable:p/b/c"])
        await self.assert_visible(stores, attrs.evolve(query, below="p/b"), ["variable:p/b/c"])
        await self.assert_visible(stores, attrs.evolve(query, below="q"), [])
        await self.assert_visible(stores, attrs.evolve(query, kinds=("host",)), ["host:p/h"])
        await self.assert_visible(stores, attrs.evolve(query, viewer=role("user:nobody")), [])

    @scenario
    async def test_after(self) -> None:
        """A list goes on behind any id, be it there or not (CON-20)."""
        stores = await self._team()
        query = ResourcesQuery(ADMIN, ACCOUNT, ("host", "variable"))
        for after, expected in (
            ("host:p/h", ["variable:outside", "variable:p/a", "variable:p/b"]),
            ("variable:p", ["variable:p/a", "variable:p/b"]),
            ("variable:p/b", []),
            ("a", ["host:p/h", "variable:outside", "variable:p/a", "variable:p/b"]),
            ("webservice:a", []),
        ):
            await self.assert_visible(stores, attrs.evolve(query, after=f"{ACCOUNT}:{after}"), expected)
        query = ResourcesQuery(ADMIN, ACCOUNT, ("variable",), below="p", after=f"{ACCOUNT}:variable:p/a")
        await self.assert_visible(stores, query, ["variable:p/b"])

    @scenario
    async def test_circles(self) -> None:
        """Circles of owners and of memberships, and owners of themselves, see what is theirs, and no end is waited for."""
        stores = await self.stores_with_account()
        draft = (
            Draft().define("group:a", owner="group:b").define("group:b", owner="group:a").define("group:c", owner="group:c")
        )
        draft.define("variable:v", owner="group:b").define("variable:w", owner="group:c").define("user:u")
        draft.grant("group:c", "group:c", "user:u").grant("group:a", "group:b")
        await load(stores, draft.permit("variable:w", "group:c", "read"))
        circle = ["group:a", "group:b", "variable:v"]
        for viewer, expected, of_circle in (
            ("group:a", circle, circle),
            ("group:b", circle, circle),
            ("group:c", ["group:c", "variable:w"], []),
            ("user:u", ["group:c", "variable:w"], []),
            ("user:admin", ["group:c", *BEGINNING, "user:u", "variable:w"], []),
        ):
            query = ResourcesQuery(role(viewer), ACCOUNT)
            await self.assert_visible(stores, query, expected)
            await self.assert_visible(stores, attrs.evolve(query, owner=role("group:a")), of_circle)

    @scenario
    async def test_kinds(self) -> None:
        """What is seen is narrowed to the kinds asked for; a kind that no resource has narrows it to nothing (RES-3)."""
        stores = await self._team()
        for viewer in ("user:amy", "user:admin"):
            for account in (None, ACCOUNT):
                for kinds, expected in (
                    (("host",), ["host:p/h"]),
                    (("webservice", "host", "host"), ["host:p/h", "webservice:p/inner"]),
                    (("variable",), ["variable:outside", "variable:p/a", "variable:p/b"]),
                    (("dragon", "host"), ["host:p/h"]),
                    (("layer",), []),
                    (("dragon", "Host", "hos", "host:p", "", "%", "\x00"), []),
                ):
                    await self.assert_visible(stores, ResourcesQuery(role(viewer), account, kinds), expected)

    @scenario
    async def test_kinds_that_policies_made_up(self) -> None:
        """They are listed in the order of full ids, which is not that of kinds alone (NAME-30, NAME-15)."""
        stores = await self.stores_with_account()
        made = ["Job:a", "food:p/x", "host-a:a", "job-a:a", "job2:a", "job:a", "job_a:a", "zoo:a"]
        await load(stores, Draft().define("user:zoe", "policy:p", "variable:v", *made).permit("job:a", "user:zoe", "read"))
        for kinds, expected in (
            ((), [*made, "policy:p", "policy:root", "user:admin", "user:zoe", "variable:v"]),
            (("job", "job-a", "job2"), ["job-a:a", "job2:a", "job:a"]),
            (("job_a", "job"), ["job:a", "job_a:a"]),
            (("zoo", "Job", "variable"), ["Job:a", "variable:v", "zoo:a"]),
            (("Variable", "users"), []),
        ):
            ordered = sorted(expected, key=lambda name: f"{ACCOUNT}:{name}".encode())
            await self.assert_visible(stores, ResourcesQuery(role("user:admin"), ACCOUNT, kinds), ordered)
            seen = [name for name in ordered if name == "job:a"]
            await self.assert_visible(stores, ResourcesQuery(role("user:zoe"), ACCOUNT, kinds), seen)

    @scenario
    async def test_owners(self) -> None:
        """With an owner, what is seen is narrowed to what that role owns, or a role that it holds (RES-8)."""
        stores = await self._team()
        every = ["group:p/inner", "host:p/h", "policy:p", "variable:p/a", "variable:p/b", "webservice:p/inner"]
        for viewer, owner, expected in (
            ("user:admin", "group:team", every),
            ("user:admin", "user:amy", every),
            ("user:admin", "policy:p", [name for name in every if name != "policy:p"]),
            ("user:admin", "host:p/h", ["webservice:p/inner"]),
            ("user:admin", "user:zoe", []),
            ("user:admin", "user:nobody", []),
            ("host:p/h", "policy:p", ["variable:p/a", "webservice:p/inner"]),
            ("host:p/h", "user:admin", ["variable:outside", "variable:p/a", "webservice:p/inner"]),
            ("user:zoe", "user:admin", []),
        ):
            query = ResourcesQuery(role(viewer), ACCOUNT, owner=role(owner))
            await self.assert_visible(stores, query, expected)
            await self.assert_visible(
                stores, attrs.evolve(query, kinds=("host",)), [name for name in expected if name == "host:p/h"]
            )

    @scenario
    async def test_search(self) -> None:
        """A search finds what has every one of its words somewhere, as far as it is seen."""
        stores = await self.stores_with_account()
        draft = Draft().define("variable:prod/db", "variable:db-old", "host:web", "user:amy", "group:plain")
        draft.annotate("host:web", {"description": "serves the prod pages"}).annotate("group:plain", {"name": "Web"})
        draft.permit("host:web", "user:amy", "read")
        await load(stores, draft)
        for make, by_class in ((native, True), (conjur, False)):
            for text, expected in (
                ("db", ["variable:db-old", "variable:prod/db"]),
                ("prod", ["variable:prod/db", "host:web"] if by_class else ["host:web", "variable:prod/db"]),
                ("web", ["group:plain", "host:web"]),
                ("prod variable", ["variable:prod/db"]),
                ("PROD/db", ["variable:prod/db"]),
                ("variables", ["variable:db-old", "variable:prod/db"]),
                ("variable host", []),
                ("prod & ! db", ["variable:prod/db"]),
                ("pro", []),
                ("", []),
                ("the", []),
                ("!", []),
            ):
                query = ResourcesQuery(ADMIN, ACCOUNT, search=make(text))
                await self.assert_visible(stores, query, expected)
                own = [name for name in expected if name == "host:web"]
                await self.assert_visible(stores, attrs.evolve(query, viewer=role("user:amy")), own)
                await self.assert_visible(stores, attrs.evolve(query, kinds=("host",), account=None), own)

    @scenario
    async def test_search_values(self) -> None:
        """Annotation values are searched in pieces in the native dialect, and as they are in the other (RES-11)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("host:h").annotate("host:h", {"address": "ci.example.com"}))
        query = ResourcesQuery(ADMIN, ACCOUNT, kinds=("host",))
        await self.assert_visible(stores, attrs.evolve(query, search=native("example")), ["host:h"])
        await self.assert_visible(stores, attrs.evolve(query, search=native("ci.example.com")), ["host:h"])
        await self.assert_visible(stores, attrs.evolve(query, search=conjur("example")), [])

    @scenario
    async def test_hostile_searches(self) -> None:
        """Whatever is searched for is only text, however long (RES-12)."""
        stores = await self._team()
        for text in ("a' OR 1=1 --", 'x"', "q & | ! k", "foo:* <-> bar", "\\", "{}", "zzz " * 2560, "z" * 10240, "%", "$1"):
            for make in (native, conjur):
                await self.assert_visible(stores, ResourcesQuery(ADMIN, ACCOUNT, search=make(text)), [])

    @scenario
    async def test_far_pages(self) -> None:
        """An offset beyond everything, however far, finds nothing."""
        stores = await self._team()
        query = ResourcesQuery(ADMIN, ACCOUNT, limit=10, offset=2**63 - 1)
        self.assertEqual(await stores.resources.list_visible(query), [])
        self.assertEqual(await stores.resources.list_visible(attrs.evolve(query, owner=ADMIN)), [])

    @scenario
    async def test_order(self) -> None:
        """Ids come in the order of their bytes (NAME-15)."""
        stores = await self.stores_with_account()
        names = ["Z", "a", "B", "a/b", "a-b", "a.b", "é", "_", "~"]
        await load(stores, Draft().define(*(f"variable:{name}" for name in names)))
        ordered = [f"variable:{name}" for name in sorted(names, key=str.encode)]
        await self.assert_visible(stores, ResourcesQuery(ADMIN, ACCOUNT, ("variable",)), ordered)

    @scenario
    async def test_described(self) -> None:
        """A resource is told with its owner, its permissions by role and privilege, and its annotations by name (RES-16)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("policy:p", "group:b", "group:a"))
        draft = Draft().permit("variable:v", "group:b", "read").permit("variable:v", "group:a", "update", "execute")
        draft.define("variable:v", owner="policy:p").annotate("variable:v", {"z": "NULL", "a": '{"it\'s": \\}', "m": ""})
        await load(stores, draft, role("policy:p"))
        [found] = await described(stores, ["acct:variable:v"])
        self.assertEqual((found.id, found.owner, found.policy), ("acct:variable:v", "acct:policy:p", "acct:policy:p"))
        self.assertEqual(
            found.permissions,
            (
                Permission("execute", "acct:group:a", "acct:policy:p"),
                Permission("update", "acct:group:a", "acct:policy:p"),
                Permission("read", "acct:group:b", "acct:policy:p"),
            ),
        )
        self.assertEqual(
            found.annotations,
            (
                ResourceAnnotation("a", '{"it\'s": \\}', "acct:policy:p"),
                ResourceAnnotation("m", "", "acct:policy:p"),
                ResourceAnnotation("z", "NULL", "acct:policy:p"),
            ),
        )
        self.assertGreater(found.created_at, 0)
        [admin] = await described(stores, [str(ADMIN)])
        self.assertEqual((admin.owner, admin.policy, admin.permissions, admin.annotations), (str(ADMIN), None, (), ()))

    @scenario
    async def test_described_in_order(self) -> None:
        """Resources are told in the order in which they are asked for; those that don't exist are left out."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define(*(f"variable:{name}" for name in ODD_IDENTIFIERS)))
        ids = [f"acct:variable:{name}" for name in reversed(ODD_IDENTIFIERS)]
        found = await described(stores, ["acct:variable:no", *ids, "nonsense", ""])
        self.assertEqual([told.id for told in found], ids)

    @scenario
    async def test_secret_versions(self) -> None:
        """A variable is told with the numbers of the versions that it keeps, and when they were set (RES-18, CON-23)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("variable:v", "variable:w"))
        for _ in range(22):
            await stores.secrets.write_value(ADMIN, resource("variable:v"), always(b"value"))
        full, empty = await described(stores, ["acct:variable:v", "acct:variable:w"])
        self.assertEqual((full.secret_versions, empty.secret_versions), (tuple(map(SecretVersion, range(3, 23))), ()))
        moments = [each.created_at for each in full.secret_versions]
        self.assertEqual(moments, sorted(moments))
        self.assertIsNone(full.expiration)

    @scenario
    async def test_layers(self) -> None:
        """A host factory is told with the layers that were granted to it; nothing else is (RES-18)."""
        stores = await self.stores_with_account()
        draft = Draft().define("host_factory:f", "layer:b", "layer:a", "group:g", "host:h")
        draft.define("layer:mine", owner="host_factory:f")
        for granted in ("layer:b", "layer:a", "group:g"):
            draft.grant(granted, "host_factory:f", "host:h")
        await load(stores, draft)
        factory, host = await described(stores, ["acct:host_factory:f", "acct:host:h"])
        self.assertEqual((factory.layers, host.layers), (("acct:layer:a", "acct:layer:b"), ()))

    @scenario
    async def test_history(self) -> None:
        """A policy is told with the versions that it keeps, and with the texts of the newest, as far as the limit goes
        (RES-19).
        """
        stores = await self.stores_with_account()
        await load(stores, Draft().define("policy:p", "policy:none"))
        texts = ["- !user long\n", "", "- ☃", "- b"]

        async def record(transaction: PolicyTransaction) -> None:
            for number, text in enumerate(texts):
                await transaction.record_version(
                    PolicyVersion(role("policy:p"), text, f"{number:064}", ADMIN, "2001:db8::1")
                )

        await stores.policies.transact(record)
        for limit, expected in ((1000, texts), (8, [None, *texts[1:]]), (5, [None, None, None, "- b"]), (0, [None] * 4)):
            policy, none = await described(stores, ["acct:policy:p", "acct:policy:none"], limit)
            self.assertEqual([version.text for version in policy.history], expected)
            self.assertEqual([version.number for version in policy.history], [1, 2, 3, 4])
            self.assertEqual(none.history, ())
        last = policy.history[-1]
        root = PolicyVersion(ROOT, "- r", f"{9:064}", ADMIN, "2001:db8::1")
        await stores.policies.transact(lambda transaction: transaction.record_version(root))
        for ids, limit, told in (
            (["acct:policy:p", "acct:user:admin", str(ROOT)], 8, [[None, *texts[1:]], [None]]),
            (["acct:policy:p", str(ROOT)], 24, [texts, ["- r"]]),
            ([str(ROOT), "acct:policy:p"], 6, [["- r"], [None, None, None, "- b"]]),
        ):
            found = [each for each in await described(stores, ids, limit) if each.history]
            self.assertEqual([[version.text for version in each.history] for each in found], told, ids)
        self.assertEqual((last.sha256, last.loaded_by, last.client_ip), (f"{3:064}", str(ADMIN), "2001:db8::1"))
        self.assertGreater(last.created_at, 0)

    @scenario
    async def test_permitted(self) -> None:
        """A privilege belongs to the owner, to those permitted, and to all who hold one of these (RES-23)."""
        stores = await self._team()
        owners = ["group:team", "policy:p", "user:admin", "user:amy"]
        for name, privilege, expected in (
            ("variable:p/a", "read", ["group:team", "host:p/h", "policy:p", "user:admin", "user:amy"]),
            ("variable:p/a", "update", owners),
            ("variable:p/a", "Read", owners),
            ("variable:p/a", "", owners),
            ("variable:outside", "juggle", ["group:p/inner", "group:team", "host:p/h", *owners[1:]]),
            ("variable:none", "read", []),
        ):
            found = await stores.resources.list_permitted_roles(resource(name), privilege, 100)
            self.assertEqual(found, [f"{ACCOUNT}:{holder}" for holder in expected], (name, privilege))

    @scenario
    async def test_too_many_permitted(self) -> None:
        """More roles with a privilege than the limit are refused, exactly so many are not (RES-24)."""
        stores = await self.stores_with_account()
        draft = Draft().define("variable:v", "group:g", *(f"host:{number}" for number in range(10)))
        draft.grant("group:g", *(f"host:{number}" for number in range(10))).permit("variable:v", "group:g", "read")
        await load(stores, draft)
        name = resource("variable:v")
        self.assertEqual(len(await stores.resources.list_permitted_roles(name, "read", 12)), 12)
        for limit in (0, 1, 11):
            with self.assertRaises(TooManyRoles):
                await stores.resources.list_permitted_roles(name, "read", limit)
        self.assertEqual(await stores.resources.list_permitted_roles(name, "update", 1), [str(ADMIN)])

    @scenario
    async def test_permitted_in_circles(self) -> None:
        """Circles of memberships end where they began (RES-23)."""
        stores = await self.stores_with_account()
        draft = Draft().define("group:a", owner="group:b").define("group:b", owner="group:a")
        await load(stores, draft.define("variable:v", owner="group:a").grant("group:a", "group:a"))
        self.assertEqual(
            await stores.resources.list_permitted_roles(resource("variable:v"), "read", 10), ["acct:group:a", "acct:group:b"]
        )

    @scenario
    async def test_odd_identifiers(self) -> None:
        """An identifier is only text, whatever it is made of (DATA-18)."""
        stores = await self.stores_with_account()
        draft = Draft().define(*(f"host:{name}" for name in ODD_IDENTIFIERS))
        draft.define(*(f"variable:{name}" for name in ODD_IDENTIFIERS))
        for name in ODD_IDENTIFIERS:
            draft.permit(f"variable:{name}", f"host:{name}", "read")
        await load(stores, draft)
        for name in ODD_IDENTIFIERS:
            viewer = RoleName(ACCOUNT, "host", name)
            await self.assert_visible(stores, ResourcesQuery(viewer), [f"{ACCOUNT}:variable:{name}"])
            found = await stores.resources.list_permitted_roles(resource(f"variable:{name}"), "read", 10)
            self.assertEqual(found, [str(viewer), str(ADMIN)])

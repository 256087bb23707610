"""The suite of ``PolicyEditStore``."""

from __future__ import annotations

from svc.model.authentication import Admitted, UserSession
from svc.model.errors import RecordNotFound
from svc.model.names import RoleName
from svc.model.policy_loads import AnnotationRow
from svc.model.query_results import Membership, MembersQuery, ResourcesQuery, Sealed, Search
from svc.storage.policy_edits import EditTransaction
from tests.contracts.base import ACCOUNT, ADMIN, ROOT, Contract, Draft, Stores, described, load, role, scenario


class PolicyEditsContract(Contract):
    """Single changes, and what the newer interface reads."""

    async def _branches(self) -> Stores:
        stores = await self.stores_with_account("other")
        draft = Draft().define("user:amy", "user:zoe", "group:team", "policy:datax", "policy:dat_")
        draft.define("policy:data", owner="group:team")
        draft.define("variable:data/a", "host:data/sub/h", "group:data/g", "policy:data/sub", owner="policy:data")
        draft.define("user:data/odd", "user:bob@data", owner="policy:data")
        draft.grant("group:team", "user:amy").grant("group:data/g", "user:zoe", "user:amy", admin=True)
        draft.permit("policy:data/sub", "user:zoe", "read").permit("policy:datax", "user:zoe", "execute")
        draft.permit("group:data/g", "user:zoe", "inspect")
        draft.annotate("policy:data", {"team": "red"})
        await load(stores, draft)
        return stores

    @scenario
    async def test_readable(self) -> None:
        """What one owns, inspects, or may read is readable; what is permitted otherwise, and what is missing, isn't
        (NEWER-14).
        """
        stores = await self._branches()
        names = ["policy:data", "policy:data/sub", "policy:datax", "group:data/g", "policy:absent"]
        full = [f"{ACCOUNT}:{name}" for name in names]

        async def readable(viewer: RoleName) -> list[str]:
            return [name.partition(":")[2] for name in await stores.edits.filter_readable(viewer, full)]

        self.assertEqual(await readable(role("user:amy")), ["group:data/g", "policy:data", "policy:data/sub"])
        self.assertEqual(await readable(role("user:zoe")), ["policy:data/sub"])
        self.assertEqual(await readable(role("user:nobody")), [])
        self.assertEqual(len(await readable(ADMIN)), 4)
        await load(stores, Draft().permit("policy:data", "user:zoe", "inspect"))
        self.assertEqual(await readable(role("user:zoe")), ["group:data/g", "policy:data", "policy:data/sub"])
        await load(stores, Draft().permit("policy:root", "group:team", "inspect").define("policy:lone"))
        self.assertEqual(
            await stores.edits.filter_readable(role("user:amy"), [f"{ACCOUNT}:policy:lone"]), [f"{ACCOUNT}:policy:lone"]
        )
        self.assertEqual(await stores.edits.filter_readable(ADMIN, []), [])

    @scenario
    async def test_existing(self) -> None:
        """Those that exist are told, of any account."""
        stores = await self._branches()
        asked = [f"{ACCOUNT}:policy:data", "other:user:admin", f"{ACCOUNT}:policy:absent"]
        self.assertEqual(await stores.edits.filter_existing(asked), frozenset(asked[:2]))
        self.assertEqual(await stores.edits.filter_existing([]), frozenset())

    @scenario
    async def test_beneath(self) -> None:
        """Beneath a policy is what has its id, or one that begins with it and a slash; neither users, nor what only looks
        like it (NEWER-17).
        """
        stores = await self._branches()
        asked = role("policy:data")

        async def beneath(most: int) -> list[str] | None:
            return await stores.edits.transact(lambda transaction: transaction.list_beneath(asked, most))

        expected = ["group:data/g", "host:data/sub/h", "policy:data", "policy:data/sub", "variable:data/a"]
        self.assertEqual(await beneath(5), [f"{ACCOUNT}:{name}" for name in expected])
        self.assertIsNone(await beneath(4))
        await load(stores, Draft().define("food:data", "food:data/x", "job:datax", "job-a:data/x/y", "job:other/data"))
        expected = ["food:data", "food:data/x", *expected[:2], "job-a:data/x/y", *expected[2:]]
        self.assertEqual(await beneath(8), [f"{ACCOUNT}:{name}" for name in expected])
        self.assertIsNone(await beneath(7))

    @scenario
    async def test_remove_grant(self) -> None:
        """A grant of any recorder goes, and no ownership."""
        stores = await self._branches()
        group, zoe = role("group:data/g"), role("user:zoe")

        async def remove(member: RoleName) -> bool:
            return await stores.edits.transact(lambda transaction: transaction.remove_grant(group, member))

        self.assertTrue(await remove(zoe))
        self.assertFalse(await remove(zoe))
        self.assertFalse(await remove(role("policy:data")))
        members = [row.member for row in await stores.roles.list_members(MembersQuery(group))]
        self.assertEqual(members, [f"{ACCOUNT}:policy:data", f"{ACCOUNT}:user:amy"])

    @scenario
    async def test_grants(self) -> None:
        """The memberships of a role are listed with who recorded them, and nothing that follows from ownership (CLI-68)."""
        stores = await self._branches()
        listed = await stores.edits.transact(lambda transaction: transaction.list_grants(role("user:amy")))
        full = f"{ACCOUNT}:user:amy"
        self.assertEqual(
            listed,
            [
                Membership(f"{ACCOUNT}:group:data/g", full, True, False, str(ROOT)),
                Membership(f"{ACCOUNT}:group:team", full, False, False, str(ROOT)),
            ],
        )
        self.assertEqual(await stores.edits.transact(lambda transaction: transaction.list_grants(role("group:team"))), [])

    @scenario
    async def test_end_logins(self) -> None:
        """Tokens and sessions of a role end; its API key is another, and it has no password (CLI-67)."""
        stores = await self._branches()
        amy, other = role("user:amy"), role("user:zoe")
        for name in (amy, other):
            await stores.credentials.set_api_key(name, Sealed(b"old"))
            await stores.credentials.set_password(name, Sealed(b"password"))
            before = await stores.credentials.read_credential(name)
            admitted = Admitted(name, before.signing_key or "", before.creation, before.epoch, before.version)
            await stores.sessions.open_session(UserSession("1" * 32, 1.0, 9.0, 1.0, "192.0.2.7"), admitted, b"token")
        await stores.edits.transact(lambda transaction: transaction.end_logins(amy, Sealed(b"new")))
        after = await stores.credentials.read_credential(amy)
        self.assertEqual((after.api_key, after.password), (b"new", None))
        self.assertNotEqual((after.epoch, after.version), (before.epoch, before.version))
        self.assertIsNone(await stores.sessions.read_session(amy, "1" * 32, 2.0))
        kept = await stores.credentials.read_credential(other)
        self.assertEqual((kept.api_key, kept.password, kept.epoch), (b"old", b"password", before.epoch))
        self.assertIsNotNone(await stores.sessions.read_session(other, "1" * 32, 2.0))
        with self.assertRaises(RecordNotFound):
            await stores.edits.transact(lambda transaction: transaction.end_logins(role("user:none"), Sealed(b"new")))

    @scenario
    async def test_annotations(self) -> None:
        """Annotations are set whatever policy recorded them, new ones as another recorded them; words are found at once
        (NEWER-16).
        """
        stores = await self._branches()
        full = f"{ACCOUNT}:policy:data"

        async def annotate(transaction: EditTransaction) -> None:
            rows = [AnnotationRow(full, "team", "blue whale"), AnnotationRow(full, "new", "it's")]
            await transaction.set_annotations(role("policy:datax"), rows)

        await stores.edits.transact(annotate)
        [shown] = await described(stores, [full])
        told = [(annotation.name, annotation.value, annotation.policy) for annotation in shown.annotations]
        self.assertEqual(told, [("new", "it's", f"{ACCOUNT}:policy:datax"), ("team", "blue whale", str(ROOT))])
        query = ResourcesQuery(ADMIN, ACCOUNT, search=Search("whale", split=True, by_class=True))
        self.assertEqual(await stores.resources.list_visible(query), [full])

        async def remove(name: str) -> bool:
            return await stores.edits.transact(lambda transaction: transaction.remove_annotation(full, name))

        self.assertEqual([await remove("team"), await remove("team")], [True, False])
        self.assertEqual(await stores.resources.list_visible(query), [])

    @scenario
    async def test_switches(self) -> None:
        """An authenticator is switched on and off; of one that never was, nothing is told (NEWER-36)."""
        stores = await self._branches()
        await load(stores, Draft().define("webservice:a", "webservice:b"))
        names = [f"{ACCOUNT}:webservice:{name}" for name in "ab"]
        self.assertEqual(await stores.edits.read_switches(names), {})
        for on in (True, False):

            async def work(transaction: EditTransaction, on: bool = on) -> None:
                await transaction.switch_authenticator(names[0], on)

            await stores.edits.transact(work)
            self.assertEqual(await stores.edits.read_switches(names), {names[0]: on})

"""The suite of what records carry: how it is counted within a load, and how it is read, in portions."""

from __future__ import annotations

from svc.model.policy_loads import RecordLimit
from svc.model.query_results import Resource
from svc.storage.policies import PolicyTransaction
from tests.contracts.base import ACCOUNT, Contract, Draft, Stores, described, load, scenario

#: Of each limit: the record, and how much the draft below gives it.
CARRIED = {
    RecordLimit.ANNOTATIONS: ("variable:v", 3),
    RecordLimit.ANNOTATION_BYTES: ("variable:v", 11),
    RecordLimit.PERMISSIONS: ("variable:v", 4),
    RecordLimit.RESTRICTIONS: ("host:h", 2),
    RecordLimit.PUBLIC_KEYS: ("user:bob", 2),
    RecordLimit.LAYERS: ("host_factory:f", 2),
}

#: The most bytes of text that any portion has, and how many bytes an annotation in these tests has.
PORTION = 256 * 1024
LONG = 40_000


def weight(resource: Resource) -> int:
    """How many bytes of text the permissions and annotations of a resource have."""
    texts = [text for row in resource.permissions for text in (row.privilege, row.role)]
    texts += [text for row in resource.annotations for text in (row.name, row.value)]
    return sum(len(text.encode()) for text in texts)


class RecordLimitsContract(Contract):
    """What records carry."""

    @scenario
    async def test_counted(self) -> None:
        """Those that carry more than so much are told, with how much; who carries as much, or nothing, is not (LIM-12)."""
        stores = await self.stores_with_account()
        draft = Draft().define("variable:v", "variable:w", "host:h", "group:g", "group:h", "layer:l", "layer:m")
        draft.define("user:bob", "user:bobby", "host_factory:f")
        draft.define("public_key:user/bob/one", "public_key:user/bob/two", "public_key:user/bobby/one")
        draft.annotate("variable:v", {"a": "xx", "b": "é", "cc": "yyy"}).annotate("variable:w", {"a": "x"})
        draft.permit("variable:v", "group:g", "read", "execute").permit("variable:v", "group:h", "read", "update")
        draft.restrict("host:h", "192.0.2.1/32", "192.0.2.2/32")
        draft.grant("layer:l", "host_factory:f").grant("layer:m", "host_factory:f").grant("group:g", "host_factory:f")
        await load(stores, draft)

        async def counted(transaction: PolicyTransaction) -> None:
            for limit, (record, number) in CARRIED.items():
                full = f"{ACCOUNT}:{record}"
                asked = [full, f"{ACCOUNT}:variable:none", f"{ACCOUNT}:group:h"]
                self.assertEqual(await transaction.list_exceeding(limit, asked, number), [], limit)
                self.assertEqual(await transaction.list_exceeding(limit, asked, number - 1), [(full, number)], limit)
                self.assertEqual(await transaction.list_exceeding(limit, [], 0), [], limit)

        await stores.policies.transact(counted)

    @scenario
    async def test_portions(self) -> None:
        """Resources are read in portions of a bounded size, whatever each carries, and come whole, in order, and alone."""
        stores = await self.stores_with_account()
        names = await self._heavy(stores)
        sizes = []
        async for portion in stores.resources.stream_described(names):
            sizes.append(sum(weight(resource) for resource in portion))
        self.assertLess(max(sizes), PORTION)
        found = {resource.id: resource for resource in await described(stores, names)}
        self.assertEqual(list(found), [name for name in names if name != f"{ACCOUNT}:variable:none"])
        for name, resource in found.items():
            self.assertEqual([resource], await described(stores, [name]))
        annotated = found[f"{ACCOUNT}:variable:b"].annotations
        self.assertEqual([row.name for row in annotated], [f"n{number:04}" for number in range(20)])
        self.assertEqual({len(row.value) for row in annotated}, {LONG})
        many = found[f"{ACCOUNT}:variable:d"]
        self.assertEqual([row.name for row in many.annotations], [f"n{number:04}" for number in range(2500)])
        expected = [(f"{ACCOUNT}:group:g{n:04}", right) for n in range(1200) for right in ("execute", "read")]
        self.assertEqual([(row.role, row.privilege) for row in many.permissions], expected)
        self.assertEqual(found[f"{ACCOUNT}:variable:e"].annotations, ())

    async def _heavy(self, stores: Stores) -> list[str]:
        """Make resources of which some are heavy; the full ids of these, and of one that isn't there."""
        letters = [f"variable:{letter}" for letter in "abcdefg"]
        draft = Draft().define(*letters, *(f"group:g{number:04}" for number in range(1200)))
        draft.annotate("variable:b", {f"n{number:04}": "x" * LONG for number in range(20)})
        draft.annotate("variable:d", {f"n{number:04}": "é" for number in range(2500)})
        for number in range(1200):
            draft.permit("variable:d", f"group:g{number:04}", "read", "execute")
        for letter in "cfg":
            draft.annotate(f"variable:{letter}", {"n": "x" * LONG})
        await load(stores, draft)
        return [f"{ACCOUNT}:{name}" for name in ("variable:none", *letters)]

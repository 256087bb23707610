"""The suite of ``LdapMappingStore``."""

from __future__ import annotations

from collections.abc import Sequence

from svc.model.events import AuditContext, Event, EventBatch, EventSource, EventsQuery
from svc.model.ldap_directories import GROUP, USER, DirectoryName, LdapMapping, MappingDifference
from svc.model.policy_loads import Changes, EffectiveQuery, ResourceRow, Rows
from svc.model.query_results import MembersQuery
from svc.storage.ldap_mappings import MappingTransaction
from tests.contracts.base import (
    ACCOUNT,
    ADMIN,
    ODD_IDENTIFIERS,
    ROOT,
    Contract,
    Draft,
    Stores,
    change,
    load,
    resource,
    role,
    scenario,
)

CORP, OTHER = resource("webservice:corp"), resource("webservice:other")
ALICE, BOB = role("user:alice"), role("user:bob")
DEVS, OPS = DirectoryName(GROUP, "devs"), DirectoryName(GROUP, "ops")
A, B, C = (f"{ACCOUNT}:group:{name}" for name in "abc")


def no_trail(_: MappingDifference) -> None:
    """Record nothing."""


class LdapMappingsContract(Contract):
    """Mappings, and memberships that follow from them."""

    async def _stores(self) -> Stores:
        stores = await self.stores_with_account()
        draft = Draft().define(
            "user:alice", "user:bob", "group:a", "group:b", "group:c", "webservice:corp", "webservice:other"
        )
        await load(stores, draft.permit("webservice:corp", "group:a", "authenticate"))
        return stores

    async def put(
        self, stores: Stores, name: DirectoryName, *roles: str, to: object = CORP, said: str = ""
    ) -> list[tuple[str, str]]:
        """Map a name to these roles, and return who loses what by it."""

        async def work(transaction: MappingTransaction) -> list[tuple[str, str]]:
            await transaction.lock_mappings(to)  # type: ignore[arg-type]
            before = await transaction.read_mapping(to, name)  # type: ignore[arg-type]
            left = [] if before is None else [each for each in before.roles if each not in roles]
            losing = await transaction.list_lost_memberships(to, name, left)  # type: ignore[arg-type]
            await transaction.set_mapping(to, name, said or name.key, roles)  # type: ignore[arg-type]
            return losing

        return await stores.mappings.transact(work)

    async def apply(
        self, stores: Stores, *names: DirectoryName, member: object = ALICE, to: object = CORP
    ) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
        """Let a member have what mappings give it, as was foreseen; return the roles gained and lost, and the privilege."""
        foreseen = await stores.mappings.preview_changes(to, member, names)  # type: ignore[arg-type]
        difference, may = await stores.mappings.apply_mappings(to, member, names, no_trail)  # type: ignore[arg-type]
        self.assertEqual((foreseen.difference, foreseen.may_authenticate), (difference, may))
        again = await stores.mappings.preview_changes(to, member, names)  # type: ignore[arg-type]
        self.assertFalse(again.difference)
        return difference.gains, difference.loses, may

    async def roles(self, stores: Stores, member: object = ALICE) -> list[str]:
        """The roles that are granted to a member, in order."""
        rows = await stores.roles.list_memberships(MembersQuery(member))  # type: ignore[arg-type]
        return [row.role for row in rows if not row.ownership]

    @scenario
    async def test_kept(self) -> None:
        """A name has the roles that it was given last, as it was said last; without any it is mapped no longer (LDAP-3)."""
        stores = await self._stores()
        self.assertEqual(await stores.mappings.list_kinds(CORP), frozenset())
        await self.put(stores, DEVS, B, A, said="Devs")
        self.assertEqual(await stores.mappings.read_mapping(CORP, DEVS), LdapMapping("Devs", (A, B)))
        await self.put(stores, DEVS, C, A, said="DEVS")
        await self.put(stores, OPS, A)
        await self.put(stores, DirectoryName(USER, "devs"), C)
        self.assertEqual(await stores.mappings.read_mapping(CORP, DEVS), LdapMapping("DEVS", (A, C)))
        self.assertEqual(await stores.mappings.read_mapping(OTHER, DEVS), None)
        self.assertEqual(await stores.mappings.list_names(CORP, GROUP), ["DEVS", "ops"])
        self.assertEqual(await stores.mappings.list_kinds(CORP), {GROUP, USER})
        await self.put(stores, DEVS)
        await self.put(stores, OPS)
        self.assertEqual(await stores.mappings.list_names(CORP, GROUP), [])
        self.assertEqual(await stores.mappings.list_kinds(CORP), {USER})
        self.assertEqual(await stores.mappings.transact(lambda transaction: transaction.count_names(CORP, USER)), 1)

    @scenario
    async def test_odd(self) -> None:
        """Names are text, whatever they look like."""
        stores = await self._stores()
        names = [DirectoryName(GROUP, text) for text in ODD_IDENTIFIERS]
        for name in names:
            await self.put(stores, name, A)
        self.assertEqual(sorted(await stores.mappings.list_names(CORP, GROUP)), sorted(ODD_IDENTIFIERS))
        await self.apply(stores, *names)
        self.assertEqual(await self.roles(stores), [A])
        for name in names:
            await self.put(stores, name)
        self.assertEqual(await self.roles(stores), [])

    @scenario
    async def test_followed(self) -> None:
        """A member gains what mappings give its names, and loses it with the names; what there is stays (LDAP-10)."""
        stores = await self._stores()
        await self.put(stores, DEVS, A, B)
        await self.put(stores, OPS, B, C)
        self.assertEqual(await self.apply(stores), ((), (), False))
        self.assertEqual(await self.apply(stores, DEVS, DirectoryName(GROUP, "others")), ((A, B), (), True))
        self.assertEqual(await self.apply(stores, OPS, DEVS), ((C,), (), True))
        self.assertEqual(await self.roles(stores), [A, B, C])
        self.assertEqual(await self.apply(stores, OPS), ((), (A,), False))
        self.assertEqual(await self.apply(stores, OPS, member=BOB), ((B, C), (), False))
        self.assertEqual(await self.roles(stores), [B, C])
        self.assertEqual(await self.apply(stores), ((), (B, C), False))
        self.assertEqual((await self.roles(stores), await self.roles(stores, BOB)), ([], [B, C]))
        foreseen = await stores.mappings.preview_changes(CORP, ALICE, [DEVS, OPS, DirectoryName(USER, "devs")])
        self.assertEqual(foreseen.names, (DEVS, OPS))

    @scenario
    async def test_nobody(self) -> None:
        """A member that doesn't exist gains nothing."""
        stores = await self._stores()
        await self.put(stores, DEVS, A)
        difference, may = await stores.mappings.apply_mappings(CORP, role("user:absent"), [DEVS], no_trail)
        self.assertEqual((bool(difference), may), (False, False))

    @scenario
    async def test_with_the_mapping(self) -> None:
        """With a mapping, or a role in it, goes at once what followed from that alone, of all members (LDAP-13)."""
        stores = await self._stores()
        await self.put(stores, DEVS, A, B)
        await self.put(stores, OPS, B)
        await self.put(stores, DEVS, B, C, to=OTHER)
        for member in (ALICE, BOB):
            await self.apply(stores, DEVS, member=member)
        await self.apply(stores, DEVS, OPS)
        await self.apply(stores, DEVS, to=OTHER, member=BOB)
        self.assertEqual(await self.put(stores, DEVS, A), [])
        self.assertEqual((await self.roles(stores), await self.roles(stores, BOB)), ([A, B], [A, B, C]))
        self.assertEqual(await self.put(stores, OPS), [(B, str(ALICE))])
        self.assertEqual(await self.roles(stores), [A])
        self.assertEqual(await self.put(stores, DEVS), [(A, str(ALICE)), (A, str(BOB))])
        self.assertEqual((await self.roles(stores), await self.roles(stores, BOB)), ([], [B, C]))

    @scenario
    async def test_with_what_it_is_of(self) -> None:
        """With the authenticator, or the role, go its mappings, and what followed from them (LDAP-13)."""
        stores = await self._stores()
        await self.put(stores, DEVS, A, B)
        await self.put(stores, DEVS, B, to=OTHER)
        await self.apply(stores, DEVS)
        await change(stores, Changes(delete=Rows((ResourceRow(B, ""),))))
        self.assertEqual(await stores.mappings.read_mapping(CORP, DEVS), LdapMapping("devs", (A,)))
        self.assertEqual(await stores.mappings.list_names(OTHER, GROUP), [])
        self.assertEqual(await self.roles(stores), [A])
        await change(stores, Changes(delete=Rows((ResourceRow(str(CORP), ""),))))
        self.assertEqual(await self.roles(stores), [])
        await load(stores, Draft().define("webservice:corp"))
        self.assertEqual(await stores.mappings.list_names(CORP, GROUP), [])

    @scenario
    async def test_with_the_account(self) -> None:
        """With an account go its mappings and all that followed; the next of its name has none (LDAP-13)."""
        stores = await self._stores()
        await self.put(stores, DEVS, A)
        await self.apply(stores, DEVS)
        await stores.accounts.delete_account(ACCOUNT)
        await self.add_account(stores, ACCOUNT)
        await load(stores, Draft().define("user:alice", "group:a", "webservice:corp"))
        self.assertEqual(await stores.mappings.list_names(CORP, GROUP), [])
        self.assertEqual(await self.roles(stores), [])

    @scenario
    async def test_of_policy(self) -> None:
        """What policy says stays when mappings go, be it said before them or later (LDAP-12)."""
        stores = await self._stores()
        await self.put(stores, DEVS, A, B, C)
        await load(stores, Draft().grant("group:a", "user:alice"))
        self.assertEqual(await self.apply(stores, DEVS), ((B, C), (), True))
        grants = Draft().grant("group:a", "user:alice").grant("group:b", "user:alice").rows
        stored = await stores.policies.transact(lambda transaction: transaction.read_stored_rows(grants))
        self.assertEqual([row.role for row in stored.memberships], [A])
        present = await stores.policies.transact(lambda transaction: transaction.read_present_rows(ROOT, grants, ()))
        self.assertEqual([row.role for row in present.foreign.memberships], [])
        await load(stores, Draft().grant("group:b", "user:alice"))
        await stores.roles.add_member(ADMIN, role("group:c"), ALICE, lambda _: None)
        self.assertEqual(await self.put(stores, DEVS), [])
        self.assertEqual(await self.roles(stores), [A, B, C])

    @scenario
    async def test_removed_by_hand(self) -> None:
        """A grant that somebody takes away comes back with the next login, if the mapping still gives it."""
        stores = await self._stores()
        await self.put(stores, DEVS, A)
        await self.apply(stores, DEVS)
        await stores.roles.remove_member(ADMIN, role("group:a"), ALICE, lambda _: None)
        self.assertEqual(await self.roles(stores), [])
        self.assertEqual(await self.apply(stores, DEVS), ((A,), (), True))

    @scenario
    async def test_effective(self) -> None:
        """Effective policy has no membership that mappings made: it is said by no policy (LDAP-14)."""
        stores = await self._stores()
        await self.put(stores, DEVS, A, B)
        await load(stores, Draft().grant("group:b", "user:alice"))
        await self.apply(stores, DEVS)
        found = await stores.effective.read_effective_policy(
            EffectiveQuery(ROOT, ("variable", "webservice"), None, 1000, "", ())
        )
        self.assertEqual([row.role for row in found.rows.memberships], [B])  # type: ignore[union-attr]

    @scenario
    async def test_recorded(self) -> None:
        """The events of a change are kept with it."""
        stores = await self._stores()
        await self.put(stores, DEVS, A)
        origin = AuditContext(EventSource("host", "svc"), None, "192.0.2.1", "request")

        def trail(difference: MappingDifference) -> EventBatch:
            return EventBatch(origin, tuple(_events("add", difference.gains) + _events("remove", difference.loses)))

        for names in ([DEVS], [DEVS], []):
            await stores.mappings.apply_mappings(CORP, ALICE, names, trail)
        found = await stores.events.list_events(EventsQuery(ACCOUNT, msgid="membership"))
        self.assertEqual([event.data["action"]["operation"] for event in found], ["remove", "add"])


def _events(operation: str, roles: Sequence[str]) -> list[Event]:
    subject = lambda each: (("role", each), ("member", str(ALICE)))  # noqa: E731
    return [Event("membership", operation, subject(each), "did", "does", user=str(ALICE)) for each in roles]

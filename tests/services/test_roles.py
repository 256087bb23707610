"""Tests of ``svc.services.roles`` and ``svc.services.resources``: their use cases, without HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from functools import partial
from typing import Any, TypeVar, Unpack

import attrs

from svc.model.dialect import NATIVE
from svc.model.errors import Forbidden, InvalidParameter, RecordNotFound, Refusal
from svc.model.events import AuditFacts, EventBatch
from svc.model.names import ResourceName, RoleName
from svc.model.query_results import Caller, MembersQuery, ResourcesQuery, Search
from svc.services import membership_lists
from svc.services.invocation import Invocation, NullRecorder, Recorder
from svc.services.membership_lists import BATCH, SEARCH_BATCH, USUAL, first_batch_query, require_rows
from svc.services.resources import ResourceService
from svc.services.roles import RoleService
from tests.memory import MemoryRoles
from tests.memory_endings import MemoryLastLogins
from tests.memory_resources import MemoryResources
from tests.web.support import NOW, PEER
from tests.web.world import ADMIN, WorldCase, user

T = TypeVar("T")

POLICY = """
- !user alice
- !user bob
- !group ops
- !variable v
- !grant { role: !group ops, member: !user alice }
- !permit { role: !group ops, privilege: read, resource: !variable v }
"""

OPS = RoleName("acme", "group", "ops")
V = ResourceName("acme", "variable", "v")


@attrs.define
class Facts:
    """A recorder that keeps what it is told."""

    told: dict[str, object] = attrs.field(factory=dict)

    def add_audit_facts(self, **facts: Unpack[AuditFacts]) -> None:
        """Keep the facts."""
        self.told.update(facts)

    @property
    def event_batch(self) -> EventBatch | None:
        """There are no events."""
        return None


@attrs.frozen
class Asked:
    """The store in memory, with the names of what it was asked for, and the named arguments of each."""

    store: MemoryRoles | MemoryResources
    names: list[str] = attrs.field(factory=list)
    named: list[dict[str, object]] = attrs.field(factory=list)

    def __getattr__(self, name: str) -> Any:
        """What asks, and notes it."""

        def ask(*arguments: object, **named: object) -> Any:
            self.names.append(name)
            self.named.append(named)
            return getattr(self.store, name)(*arguments, **named)

        return ask


def _no_owner() -> None:
    """No owner is asked for."""


async def listed(batches: AsyncIterator[Sequence[T]]) -> list[T]:
    """Everything in batches."""
    return [row async for batch in batches for row in batch]


async def batched(batches: AsyncIterator[Sequence[T]]) -> list[Sequence[T]]:
    """All batches."""
    return [batch async for batch in batches]


class ServiceCase(WorldCase):
    """The two services on the store in memory."""

    def setUp(self) -> None:
        """Load a policy."""
        super().setUp()
        self.load(POLICY)
        roles = MemoryRoles(self.memory)
        self.roles = RoleService(roles, self.dialect, MemoryLastLogins(self.memory))
        self.resources = ResourceService(MemoryResources(self.memory), roles, NATIVE)

    def invoked(self, role: RoleName = ADMIN, recorder: Recorder | None = None) -> Invocation:
        """The role as the one who asks."""
        return Invocation(Caller(role, NOW), PEER, recorder or NullRecorder())

    def assert_refused(self, expected: type[Refusal], asked: Awaitable[Any]) -> None:
        """The use case ends in this refusal."""

        async def ask() -> None:
            with self.assertRaises(expected):
                await asked

        self.result_of(ask())


class RoleServiceTests(ServiceCase):
    """What is asked of a role, and done with its members."""

    def test_readings(self) -> None:
        """Every reading of a role is refused to who may not see it, and none is to who may."""
        query = MembersQuery(OPS)
        for role, refusal in ((user("bob"), Forbidden), (ADMIN, None)):
            invocation = self.invoked(role)
            for asked in (
                self.roles.list_members(invocation, query),
                self.roles.count_members(invocation, query),
                self.roles.list_effective_members(invocation, query),
                self.roles.count_effective_members(invocation, query),
                self.roles.list_memberships(invocation, query, ()),
                self.roles.count_memberships(invocation, query, ()),
                self.roles.list_held_roles(invocation, OPS, ()),
                self.roles.stream_graph(invocation, OPS),
                self.roles.read_role(invocation, OPS),
            ):
                if refusal is None:
                    self.result_of(asked)
                else:
                    self.assert_refused(refusal, asked)

    def test_questions(self) -> None:
        """A list within a batch, or a page, takes one question of the store; a role with its members takes two."""
        for limit in (None, 1, BATCH):
            asked = Asked(MemoryRoles(self.memory))
            roles = RoleService(asked, self.dialect, MemoryLastLogins(self.memory))  # type: ignore[arg-type]
            page = self.result_of(roles.list_members(self.invoked(), MembersQuery(OPS, limit=limit)))
            self.assertEqual(len(self.result_of(listed(page.batches))), 1 if limit == 1 else 2)
            self.assertEqual(asked.names, ["list_members_with_facts"])
        asked = Asked(MemoryRoles(self.memory))
        roles = RoleService(asked, self.dialect, MemoryLastLogins(self.memory))  # type: ignore[arg-type]
        shown = self.result_of(roles.read_role(self.invoked(), OPS))
        self.assertEqual([len(batch) for batch in self.result_of(batched(shown.members)) if batch], [2])
        self.assertEqual(asked.names, ["list_members_with_facts", "read_role"])

    def test_remembered(self) -> None:
        """A short first page and a whole list may come from memory; a list in several batches doesn't (CLU-34)."""
        for batch, query, ways in (
            (BATCH, MembersQuery(OPS, limit=1), [True]),
            (BATCH, MembersQuery(OPS, limit=101), [False]),
            (BATCH, MembersQuery(OPS, limit=1, offset=1), [False]),
            (BATCH, MembersQuery(OPS), [True]),
            (3, MembersQuery(OPS), [True]),
            (2, MembersQuery(OPS), [True, False]),
        ):
            self.patch(membership_lists, "BATCH", batch)
            asked = Asked(MemoryRoles(self.memory))
            roles = RoleService(asked, self.dialect, MemoryLastLogins(self.memory))  # type: ignore[arg-type]
            self.result_of(listed(self.result_of(roles.list_members(self.invoked(), query)).batches))
            judged = [
                named.get("whole", False)
                for name, named in zip(asked.names, asked.named, strict=True)
                if name == "list_members_with_facts"
            ]
            self.assertEqual(judged, ways, (batch, query))

    def test_changes(self) -> None:
        """A grant that was there already is told to the recorder; what is taken back twice isn't found."""
        for unchanged in (False, True):
            facts = Facts()
            self.result_of(self.roles.add_member(self.invoked(recorder=facts), OPS, user("bob")))
            self.assertEqual(facts.told, {"unchanged": unchanged})
        page = self.result_of(self.roles.list_members(self.invoked(), MembersQuery(OPS)))
        members = [row.member for row in self.result_of(listed(page.batches))]
        self.assertEqual(members, ["acme:user:admin", "acme:user:alice", "acme:user:bob"])
        self.result_of(self.roles.remove_member(self.invoked(), OPS, user("bob")))
        self.assert_refused(RecordNotFound, self.roles.remove_member(self.invoked(), OPS, user("bob")))

    def test_one_account(self) -> None:
        """A role has members of its own account alone, whichever interface asks."""
        other = RoleName("other", "user", "x")
        self.assert_refused(InvalidParameter, self.roles.add_member(self.invoked(), OPS, other))
        self.assert_refused(InvalidParameter, self.roles.remove_member(self.invoked(), OPS, other))


class ResourceServiceTests(ServiceCase):
    """What is asked of resources."""

    def test_acting_as(self) -> None:
        """A role asks for itself or for one that it holds, and for no other."""
        query, alice = ResourcesQuery(user("alice"), "acme"), self.invoked(user("alice"))
        found = self.result_of(self.resources.list_resources(alice, query, str(OPS), lambda: None))
        self.assertEqual([resource.id for resource in self.result_of(listed(found))], [str(V)])
        self.assertEqual(self.result_of(self.resources.count_resources(alice, query, None, lambda: None)), 1)
        for other in ("acme:user:bob", "acme:user:none", "no role"):
            self.assert_refused(Forbidden, self.resources.list_resources(alice, query, other, lambda: None))
            self.assert_refused(Forbidden, self.resources.has_privilege(alice, V, "read", other))

    def test_questions(self) -> None:
        """The first page of an account, of few, is one question of the store; any other list takes several."""
        plain = ResourcesQuery(user("alice"), "acme", limit=USUAL)
        several = ["holds_role", "list_visible", "stream_described"]
        for query, acting_as, owner, expected in (
            (plain, None, None, ["read_first_page"]),
            (attrs.evolve(plain, kinds=("variable",), limit=1), None, None, ["read_first_page"]),
            (plain, str(OPS), None, several),
            (plain, None, str(OPS), ["holds_role", "access_facts", *several[1:]]),
            (attrs.evolve(plain, limit=USUAL + 1), None, None, several),
            (attrs.evolve(plain, offset=1), None, None, several),
            (attrs.evolve(plain, account=None), None, None, several),
            (attrs.evolve(plain, search=Search("v", split=True, by_class=True)), None, None, several),
        ):
            names: list[str] = []
            store, roles = Asked(MemoryResources(self.memory), names), Asked(MemoryRoles(self.memory), names)
            resources = ResourceService(store, roles, NATIVE)  # type: ignore[arg-type]
            asked = resources.list_resources(
                self.invoked(user("alice")), query, acting_as, partial(str, owner) if owner else _no_owner
            )
            self.result_of(listed(self.result_of(asked)))
            self.assertEqual(names, expected, query)

    def test_gone(self) -> None:
        """Who is no more lists nothing, and doesn't learn what is wrong with the rest of the request."""

        def no_owner() -> str:
            raise InvalidParameter("owner", "none")

        query, nobody = ResourcesQuery(user("nobody"), "acme", limit=10), self.invoked(user("nobody"))
        self.assert_refused(Forbidden, self.resources.list_resources(nobody, query, None, lambda: None))
        self.assert_refused(Forbidden, self.resources.list_resources(nobody, query, None, no_owner))
        self.assert_refused(
            InvalidParameter, self.resources.list_resources(self.invoked(user("alice")), query, None, no_owner)
        )

    def test_portions(self) -> None:
        """A first page that is longer than a portion is read to its end."""
        query = ResourcesQuery(ADMIN, "acme", limit=USUAL)
        found = self.result_of(
            batched(self.result_of(self.resources.list_resources(self.invoked(), query, None, lambda: None)))
        )
        self.assertGreater(len(found), 1)
        ids = [resource.id for portion in found for resource in portion]
        self.assertEqual(ids, self.result_of(MemoryResources(self.memory).list_visible(query)))

    def test_privileges(self) -> None:
        """A check says whether a privilege is there; who doesn't see the resource is told that there is none."""
        for privilege, expected in (("read", True), ("update", False)):
            self.assertIs(
                self.result_of(self.resources.has_privilege(self.invoked(user("alice")), V, privilege, None)), expected
            )
        for asked in (
            self.resources.has_privilege(self.invoked(user("bob")), V, "read", None),
            self.resources.list_permitted_roles(self.invoked(user("bob")), V, "read"),
            self.resources.read_resource(self.invoked(user("bob")), V),
        ):
            self.assert_refused(RecordNotFound, asked)


class PagesTests(ServiceCase):
    """Tests of ``svc.services.membership_lists``, whose lists are in ``tests.web.routes.test_listing``."""

    def test_first(self) -> None:
        """A page that fits a batch is read with a row more; of a longer one, or a whole list, a batch comes first."""
        for limit, expected in ((1, 2), (BATCH, BATCH + 1), (BATCH + 1, BATCH), (None, BATCH)):
            self.assertEqual(first_batch_query(MembersQuery(OPS, limit=limit)).limit, expected)
        self.assertLess(BATCH, SEARCH_BATCH)

    def test_not_empty(self) -> None:
        """Batches are handed on as they are, from the first that has anything; where none has, nothing is found."""

        async def batches(*these: Sequence[int]) -> AsyncIterator[Sequence[int]]:
            for batch in these:
                yield batch

        async def read(*these: Sequence[int]) -> list[int]:
            return await listed(await require_rows(batches(*these), OPS))

        self.assertEqual(self.result_of(read([], [1, 2], [], [3])), [1, 2, 3])
        self.assert_refused(RecordNotFound, read())
        self.assert_refused(RecordNotFound, read([], []))

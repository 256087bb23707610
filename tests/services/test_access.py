"""Who can do what, as ``svc.services.access`` finds it, in policies of all forms."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.model.access import AccessPath, HoldersCursor, PathStep, ReachableResource, StepKind, describe_path
from svc.model.dialect import NATIVE
from svc.model.names import ResourceName, RoleName
from svc.model.query_results import Caller
from svc.services.access import AccessService
from svc.services.access_paths import WalkBounds
from svc.services.invocation import Invocation, NullRecorder
from svc.services.resources import ResourceService
from tests.contracts.base import Draft
from tests.memory import Memory, MemoryRoles
from tests.memory_access import MemoryAccess
from tests.memory_resources import MemoryResources
from tests.web.support import NOW

T = TypeVar("T")

ACCOUNT = "acct"
ROLES = [f"group:{letter}" for letter in "abcdefgh"]
PRIVILEGES = ("read", "execute")

#: From those that keep all of a policy to those that keep nothing of it.
BOUNDS = (
    WalkBounds(),
    WalkBounds(roles=4, edges=100),
    WalkBounds(roles=3, edges=4),
    WalkBounds(roles=1, edges=2),
    WalkBounds(roles=0, edges=1),
)


@st.composite
def policies(draw: st.DrawFn) -> Draft:
    """Groups with members, in circles too, that own two variables and each other, and have privileges; and an officer, who
    sees all of them.
    """
    roles = st.sampled_from(ROLES)
    made = Draft(ACCOUNT).define("user:officer")
    for role in ROLES:
        made.define(role, owner=draw(st.sampled_from([*ROLES[:3], "user:admin"]))).permit(role, "user:officer", "see")
    for role, member in draw(st.lists(st.tuples(roles, roles), max_size=14, unique=True)):
        made.grant(role, member)
    for name in ("variable:v", "variable:w"):
        made.define(name, owner=draw(st.sampled_from([*ROLES, "user:admin"]))).permit(name, "user:officer", "see")
        for role, privilege in draw(st.lists(st.tuples(roles, st.sampled_from(PRIVILEGES)), max_size=3, unique=True)):
            made.permit(name, role, privilege)
    return made


def full(name: str) -> str:
    """The full id."""
    return f"{ACCOUNT}:{name}"


V, W = ResourceName.parse(full("variable:v")), ResourceName.parse(full("variable:w"))


class Case(SynchronousTestCase):
    """Services on a memory."""

    def begin(self, draft: Draft, bounds: WalkBounds | None = None) -> None:
        """Make the account, and load a draft into it."""
        self.memory = Memory()
        self.memory.roles = {full("user:admin"): None}
        self.memory.add(draft.rows)
        self.roles, resources = MemoryRoles(self.memory), MemoryResources(self.memory)
        self.access = AccessService(MemoryAccess(self.memory), self.roles, resources, NATIVE, bounds or WalkBounds())
        self.resources = ResourceService(resources, self.roles, NATIVE)

    def invoked(self, name: str = "user:officer") -> Invocation:
        """A call by a role."""
        role = RoleName.parse(full(name))
        return Invocation(Caller(role, NOW), "192.0.2.1", NullRecorder())

    def result(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What a coroutine returns at once."""
        return self.successResultOf(Deferred.fromCoroutine(coroutine))


class PoliciesTests(Case):
    """Random policies, with bounds that keep all, some or nothing of them in memory."""

    def holders(self, privilege: str, limit: int, *, direct: bool = False) -> list[tuple[str, AccessPath]]:
        """All pages together."""
        found: list[tuple[str, AccessPath]] = []
        after: HoldersCursor | None = None
        while True:
            page = self.result(
                self.access.list_holders(self.invoked(), V, privilege, direct=direct, limit=limit, after=after)
            )
            self.assertLessEqual(len(page.holders), limit)
            found += [(holder.role, holder.path) for holder in page.holders]
            after = page.after
            if after is None:
                return found

    def lengths(self, name: ResourceName, privileges: Sequence[str]) -> dict[str, int]:
        """The length of the shortest way of each role, found one step at a time."""
        direct = {role for thing, given, role in self.memory.permissions if thing == str(name) and given in privileges}
        level, lengths, length = direct | {self.memory.resources[str(name)][0]}, dict[str, int](), 1
        while level:
            lengths |= dict.fromkeys(level, length)
            level = {member for role, member, _ in self.memory.memberships if role in level} - lengths.keys()
            length += 1
        return lengths

    def check_way(self, way: AccessPath | None, role: str, name: ResourceName, privileges: Sequence[str]) -> None:
        """Each step of a way is as it says, and there is no shorter one."""
        assert way is not None
        self.assertEqual(way[0].role, role)
        for step, following in pairwise(way):
            self.assertEqual(step.kind, StepKind.MEMBER)
            self.assertTrue(any(m[:2] == (following.role, step.role) for m in self.memory.memberships), way)
        last = way[-1]
        if last.kind is StepKind.OWNER:
            self.assertEqual(self.memory.resources[str(name)][0], last.role)
        else:
            self.assertEqual(last.kind, StepKind.PERMITTED)
            self.assertTrue(any((str(name), each, last.role) in self.memory.permissions for each in privileges), way)
        self.assertEqual(len(way), self.lengths(name, privileges)[role], way)

    @settings(max_examples=150, deadline=None)
    @given(policies(), st.sampled_from(BOUNDS), st.integers(1, 12), st.sampled_from([1, 3, 1000]))
    def test_who_can(self, draft: Draft, bounds: WalkBounds, limit: int, read: int) -> None:
        """The pages together have exactly the roles that have the privilege, each once, those with the shortest ways first,
        and each way is one of the shortest, whatever is kept and read at once; circles end (ACC-2, ACC-3, ACC-5).
        """
        self.begin(draft, WalkBounds(bounds.roles, bounds.edges, read, read))
        for privilege in PRIVILEGES:
            found = self.holders(privilege, limit)
            names = [role for role, _ in found]
            permitted = self.result(self.resources.list_permitted_roles(self.invoked(), V, privilege))
            self.assertEqual(sorted(names), permitted)
            self.assertEqual([len(way) for _, way in found], sorted(len(way) for _, way in found))
            for role, way in found:
                self.check_way(way, role, V, (privilege,))
            self.assertEqual(self.result(self.access.count_holders(self.invoked(), V, privilege)), len(found))
            direct = self.holders(privilege, limit, direct=True)
            self.assertEqual(direct, [(role, way) for role, way in found if len(way) == 1])
            self.assertEqual(self.result(self.access.count_holders(self.invoked(), V, privilege, direct=True)), len(direct))

    @settings(max_examples=60, deadline=None)
    @given(policies(), st.sampled_from(BOUNDS))
    def test_can_and_reach(self, draft: Draft, bounds: WalkBounds) -> None:
        """What is said of one role agrees with the check and with what it reaches, by a shortest way (ACC-8, ACC-12)."""
        self.begin(draft, bounds)
        for name in ROLES:
            role = RoleName.parse(full(name))
            reached = {each.resource: each for each in self.reached(role)}
            for variable in (V, W):
                had = []
                for privilege in PRIVILEGES:
                    verdict = self.result(self.access.check_privilege(self.invoked(), variable, privilege, role))
                    checked = self.checked(role, variable, privilege)
                    self.assertEqual(verdict.allowed, checked)
                    if checked:
                        had.append(privilege)
                        self.check_way(verdict.path, str(role), variable, (privilege,))
                    else:
                        missing = {step.role for step in verdict.missing}
                        direct = {way[0].role for _, way in self.holders_of(variable, privilege) if len(way) == 1}
                        self.assertEqual(missing, direct - {full("user:admin")})  # which has no resource here
                self.assertEqual(str(variable) in reached, bool(had))
                if had:
                    self.assertEqual(reached[str(variable)].privileges, tuple(had))
                    self.check_way(reached[str(variable)].path, str(role), variable, PRIVILEGES)

    def checked(self, role: RoleName, name: ResourceName, privilege: str) -> bool:
        """What the role itself is told, to whom what it doesn't see is missing."""
        asked = self.resources.has_privilege(self.invoked(str(role).partition(":")[2]), name, privilege, None)
        try:
            return bool(self.result(asked))
        except self.failureException:
            return False

    def holders_of(self, name: ResourceName, privilege: str) -> list[tuple[str, AccessPath]]:
        """All holders, on one page."""
        page = self.result(self.access.list_holders(self.invoked(), name, privilege, limit=1000))
        return [(holder.role, holder.path) for holder in page.holders]

    def reached(self, role: RoleName) -> list[ReachableResource]:
        """All that a role reaches, resource by resource."""
        found: list[ReachableResource] = []
        after: str | None = None
        while True:
            page = self.result(self.access.list_reachable_resources(self.invoked(), role, PRIVILEGES, limit=1, after=after))
            found += page.resources
            after = page.after
            if after is None:
                return found


class LimitsTests(Case):
    """What ends before its end."""

    def test_long_ways(self) -> None:
        """A list goes on as long as its cursors aren't too long, then it is refused (ACC-7)."""
        names = [f"group:{number:02}{'x' * 1000}" for number in range(20)]
        draft = Draft(ACCOUNT).define("user:officer").define("variable:v", owner=names[0])
        draft.permit("variable:v", "user:officer", "see").define(*names)
        for name, member in pairwise(names):
            draft.grant(name, member)
        self.begin(draft, WalkBounds(roles=0, edges=1))
        found: list[str] = []
        after: HoldersCursor | None = None
        with self.assertRaises(self.failureException) as raised:
            while len(found) < len(names):
                page = self.result(self.access.list_holders(self.invoked(), V, "read", limit=1, after=after))
                found += [holder.role for holder in page.holders]
                after = page.after
        self.assertIn("TooManyRoles", str(raised.exception))
        self.assertGreater(len(found), 10)
        self.assertEqual(len(found), len(set(found)))

    def test_many_steps(self) -> None:
        """A page ends when its ways have very many steps together, and goes on (ACC-5)."""
        names = [f"group:{number:03}" for number in range(120)]
        draft = Draft(ACCOUNT).define("user:officer").define("variable:v", owner=names[0])
        draft.permit("variable:v", "user:officer", "see").define(*names)
        for name, member in pairwise(names):
            draft.grant(name, member)
        self.begin(draft)
        page = self.result(self.access.list_holders(self.invoked(), V, "read", limit=1000))
        self.assertLess(len(page.holders), len(names))
        rest = self.result(self.access.list_holders(self.invoked(), V, "read", limit=1000, after=page.after))
        found = {holder.role for holder in page.holders + rest.holders}
        self.assertEqual(found, {*map(full, names), full("user:admin")})


class WordsTests(SynchronousTestCase):
    """Ways in words."""

    def test_words(self) -> None:
        """A way says what its first role is a member of, which is a member of the next, to the one that has it."""
        for way, words in (
            ([("user:a", StepKind.OWNER)], "owns it"),
            ([("user:a", StepKind.PERMITTED)], "is permitted it"),
            ([("user:a", StepKind.MEMBER), ("group:g", StepKind.OWNER)], "is a member of group:g, which owns it"),
            (
                [("user:a", StepKind.MEMBER), ("group:g", StepKind.MEMBER), ("group:h", StepKind.PERMITTED)],
                "is a member of group:g, which is a member of group:h, which is permitted it",
            ),
            (
                [("user:a", StepKind.MEMBER), (None, StepKind.PERMITTED)],
                "is a member of roles that you don't see, which are permitted it",
            ),
        ):
            steps = tuple(PathStep(None if role is None else full(role), by) for role, by in way)
            self.assertEqual(describe_path(steps), words)

"""Tests of ``svc.services.access_changes`` on random graphs, without documents: thousands of limits in a moment."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.model.policy_loads import Batches, DryRun, MembershipRow, PermissionRow, ResourceRow, Rows, UnreportedChanges
from svc.policy import access_changes
from svc.policy.access_edges import Edge, MemberGraph
from svc.services import access_changes as reading
from svc.services.access_changes import AccessEdges
from svc.web.routes.policies import access_changes_json
from tests.memory import Memory
from tests.memory_policies import MemoryPolicyTransaction
from tests.services.test_access_changes import differences_of, expanded, privileges_of, who_can

LIMITS = ("READ_MOST", "STEPS_MOST", "LOOKUPS_MOST")

#: Seeds of the examples. The last one has what few have: a role in doubt is only above what was not read to its end.
SEEDS = (*range(300), 722)


def graph_of(chance: Random, first: Memory | None = None) -> Memory:
    """A store of a few roles and resources, in any order; like another, but for some of it. Roles may outlive resources."""
    changing = 1.0 if first is None else chance.choice([0.01, 0.05, 0.2])
    first = first or Memory()
    linked, permitted = chance.choice([0.05, 0.1, 0.3]), chance.choice([0.03, 0.1, 0.3])
    roles = [f"a:{kind}:{number}" for number in range(3) for kind in ("group", "user", "layer")]
    made = Memory()
    for name in (*roles, "a:variable:v", "a:variable:w"):
        if chance.random() < changing:
            if chance.random() < 0.9:
                made.resources[name] = chance.choice(roles), None
        elif name in first.resources:
            made.resources[name] = first.resources[name]
        if name in made.resources and name in roles:
            made.memberships[name, made.resources[name][0], True] = True, None
        for role in roles:
            link, grant = (name, role, False), (name, "read", role)
            if name in roles and (chance.random() < linked if chance.random() < changing else link in first.memberships):
                made.memberships[link] = False, None
            given = chance.random() < permitted if chance.random() < changing else grant in first.permissions
            if given and name in made.resources:
                made.permissions[grant] = None
    for rows in (made.resources, made.memberships, made.permissions):
        shuffled: Any = sorted(rows.items())
        chance.shuffle(shuffled)
        rows.clear()
        rows.update(shuffled)
    made.roles = dict.fromkeys(roles)
    return made


def rows_of(one: Memory, other: Memory) -> Rows:
    """The rows of a store that differ from another's, or are about what is in only one of them."""
    differing = one.resources.keys() ^ other.resources.keys()
    return Rows(
        tuple(
            ResourceRow(name, row[0])
            for name, row in one.resources.items()
            if other.resources.get(name) != row or differing & {name, row[0]}
        ),
        tuple(
            MembershipRow(*key, admin)
            for key, (admin, _) in one.memberships.items()
            if key not in other.memberships or differing & set(key[:2])
        ),
        tuple(
            PermissionRow(*key) for key in one.permissions if key not in other.permissions or differing & {key[0], key[2]}
        ),
    )


class ReadingTests(SynchronousTestCase):
    """What is told of the change from one graph to another."""

    def test_limits(self) -> None:
        """Whatever runs out, nothing is told that isn't so, and nothing is left out of an answer that is said to be
        complete, as it is said if nothing runs out (POL-83, POL-88).
        """
        self.patch(access_changes, "NAMES_MOST", 10**6)
        self.patch(access_changes, "SEPARATE_MOST", 10**6)
        counts = {True: 0, False: 0}
        for seed in SEEDS:
            chance = Random(seed)
            limited = chance.random() < 0.8
            for limit in LIMITS:
                self.patch(reading, limit, 10**6)
            if limited:
                self.patch(reading, chance.choice(LIMITS), chance.randint(0, chance.choice([10, 40, 150])))
            self.patch(reading, "ROWS_FEW", chance.choice([0, 1, 2, 1000]))
            self.patch(reading, "_NAMES_BATCH", chance.choice([1, 2, 5000]))
            before = graph_of(chance)
            after = graph_of(chance, before)
            told = self._told(before, after)
            of_both = who_can(before), who_can(after)
            privileges = privileges_of(*of_both)
            for name, expected in zip(("gains", "losses"), differences_of(*of_both), strict=True):
                found = expanded(told[name], privileges)
                for pair, several in found.items():
                    self.assertLessEqual(several, expected.get(pair, set()), (seed, name, pair))
                if told["complete"]:
                    self.assertEqual(found, expected, (seed, name))
            self.assertTrue(told["complete"] or limited, seed)
            counts[told["complete"]] += 1
        self.assertGreater(min(counts.values()), len(SEEDS) / 8)

    def _told(self, before: Memory, after: Memory) -> Any:
        async def read() -> DryRun:
            asked = AccessEdges(MemoryPolicyTransaction(after), rows_of(before, after), rows_of(after, before))
            gains, losses = await asked.find_gains(), await asked.find_losses()
            changes = [
                Batches.from_values(found.make_summary(asked.differing, None).list_changes(found.graph))
                for found in (gains, losses)
            ]
            told = DryRun(gains=changes[0], losses=changes[1])
            return attrs.evolve(told, unreported=UnreportedChanges(complete=gains.complete and losses.complete))

        told = self.successResultOf(Deferred.fromCoroutine(read()))
        return json.loads(b"{" + b"".join(access_changes_json(told)) + b"}")["access"]


class WayTests(SynchronousTestCase):
    """Ways in a graph."""

    def test_steps(self) -> None:
        """Ways are found as long as there are steps for all of them; one that was found is no step more (POL-85)."""
        for steps, expected in ((0, [None, None]), (3, [["a", "b"], None]), (6, [["a", "b"], ["d", "b"]])):
            graph = MemberGraph(steps)
            graph.add_edges([Edge("b", "a", False), Edge("b", "d", False), Edge("c", "b", False)])
            self.assertEqual([graph.find_path("a", "b"), graph.find_path("d", "b")], expected)
            self.assertEqual(graph.find_path("a", "b"), expected[0])

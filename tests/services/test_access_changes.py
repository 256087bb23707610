"""Tests of ``svc.services.access_changes`` and ``svc.policy.access_changes``: who gains and who loses access by a load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, product
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from svc.cli.policy import access_sentences
from svc.model.dialect import CONJUR
from svc.model.policy_loads import ADVICE, LoadMode
from svc.policy import access_changes
from svc.services import access_changes as reading
from tests.memory import Memory
from tests.services.test_dry_run import METHODS, DryRunCase
from tests.strategies import DELETIONS, EDITS, LOAD_MODES, STATEMENTS, document
from tests.web.world import ADMIN, WorldCase, user

#: A privilege that no document has.
ANY = "any other"

Access = dict[tuple[str, str], set[str]]

PATH = "/policies/acme/policy/root"

#: Documents of one statement, which are more often valid.
SINGLE = st.one_of(STATEMENTS, DELETIONS).filter(bool).map(lambda statements: document(statements[:1]))

#: A few roles, things that they may have access to, and forms of statements about them.
ROLES = ["group a", "group b", "user u", "layer l", "policy p"]
THINGS = [*ROLES, "variable v", "host h"]
_FORMS = [
    *["- !{thing}, owner: !{role} }}\n"] * 2,
    *["- !grant {{ role: !{role}, member: !{other} }}\n"] * 3,
    "- !revoke {{ role: !{role}, member: !{other} }}\n",
    *["- !permit {{ role: !{role}, privilege: {privilege}, resource: !{of} }}\n"] * 3,
    "- !deny {{ role: !{role}, privilege: {privilege}, resource: !{of} }}\n",
    "- !delete {{ record: !{of} }}\n",
]
_DECLARED = {thing: "{} {{ id: {}".format(*thing.split()) for thing in THINGS}


def statement_of(choose: Callable[[Sequence[str]], str]) -> str:
    """A statement about these roles and things, of choices."""
    thing = choose(THINGS)
    return choose(_FORMS).format(
        thing=_DECLARED[thing], of=thing, role=choose(ROLES), other=choose(ROLES), privilege=choose(["read", "update"])
    )


def text_of(statements: Sequence[str], mode: LoadMode) -> str:
    """A document of those of the statements that the mode has; to replace a policy, it declares all things."""
    if mode is LoadMode.APPEND:
        return "".join(each for each in statements if not each.startswith(("- !revoke", "- !deny", "- !delete"))) or "[]"
    text = "".join(statements)
    if mode is LoadMode.REPLACE:
        text += "".join(f"- !{thing}\n" for thing in THINGS if f"- !{_DECLARED[thing]}," not in text)
    return text


@st.composite
def _statements(draw: st.DrawFn) -> str:
    return statement_of(lambda options: draw(st.sampled_from(options)))


def who_can(memory: Memory) -> Access:
    """The privileges that each role has on each resource, by all that it holds."""
    privileges = {ANY, *(privilege for _, privilege, _ in memory.permissions)}
    found: Access = {}
    names = {*memory.roles, *(name for key in memory.memberships for name in key[:2])}
    for role in names:
        held = memory.held(role)
        for resource, (owner, _) in memory.resources.items():
            if owner in held:
                found[role, resource] = set(privileges)
        for resource, privilege, given_to in memory.permissions:
            if given_to in held:
                found.setdefault((role, resource), set()).add(privilege)
    return found


def privileges_of(before: Access, after: Access) -> set[str]:
    """All privileges at two moments."""
    return set[str]().union(*before.values(), *after.values())


def differences_of(before: Access, after: Access) -> tuple[Access, Access]:
    """What roles gain and lose; an owner has all privileges, also those that somebody has at the other moment only."""
    privileges = privileges_of(before, after)

    def beyond(these: Access, those: Access) -> Access:
        found = {pair: (privileges if ANY in some else some) - those.get(pair, set()) for pair, some in these.items()}
        return {pair: some for pair, some in found.items() if some and ANY not in those.get(pair, ())}

    return beyond(after, before), beyond(before, after)


def expanded(changes: Any, privileges: set[str]) -> Access:
    """What the changes mean, pair by pair."""
    found: Access = {}
    for change in changes:
        several = privileges.difference(change["except"]) if change["owner"] else set(change["privileges"])
        pairs = list(product(change["roles"]["first"], change["resources"]["first"]))
        assert len(pairs) == change["pairs"], change
        for pair in pairs:
            of_pair = found.setdefault(pair, set())
            assert not of_pair & several, change
            of_pair |= several
    return found


class PropertyTests(WorldCase):
    """The differences of who can do what."""

    @given(
        st.lists(STATEMENTS, min_size=2, max_size=6),
        st.lists(st.tuples(st.one_of(EDITS, SINGLE, SINGLE), LOAD_MODES), min_size=1, max_size=4),
        st.sampled_from([0, 1, 1000]),
    )
    @settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors])
    def test_agrees(self, first: list[list[str]], loads: list[tuple[str, LoadMode]], few: int) -> None:
        """Whatever is loaded, a dry run tells just those who can do something after it and couldn't before, and the other
        way round, however much of it is in doubt at first (POL-83).
        """
        self._begin(few)
        for statement in chain.from_iterable(first):
            self.client.request("PATCH", PATH, body=f"- {statement}\n".encode(), role=ADMIN)
        for text, mode in loads:
            self._loaded(text, mode)

    @given(
        st.lists(_statements(), max_size=25),
        st.lists(_statements(), min_size=1, max_size=6),
        LOAD_MODES,
        st.sampled_from([0, 1, 1000]),
    )
    @settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors])
    def test_agrees_where_much_is_granted(self, first: list[str], then: list[str], mode: LoadMode, few: int) -> None:
        """The same, among roles of which many hold each other and own the same things (POL-83)."""
        self._begin(few)
        self.load("".join(f"- !{thing}\n" for thing in THINGS))
        for statement in first:
            self.client.request("PATCH", PATH, body=statement.encode(), role=ADMIN)
        self._loaded(text_of(then, mode), mode)

    @given(
        st.lists(_statements(), max_size=25),
        st.lists(_statements(), min_size=1, max_size=6),
        LOAD_MODES,
        st.sampled_from(["READ_MOST", "STEPS_MOST", "LOOKUPS_MOST"]),
        st.integers(0, 30),
        st.sampled_from([0, 1, 1000]),
    )
    @settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors])
    def test_limits(self, first: list[str], then: list[str], mode: LoadMode, limit: str, most: int, few: int) -> None:
        """Wherever a limit ends the search, all that is told is true, and it is said that there may be more (POL-88)."""
        self._begin(few)
        self.load("".join(f"- !{thing}\n" for thing in THINGS))
        for statement in first:
            self.client.request("PATCH", PATH, body=statement.encode(), role=ADMIN)
        self.patch(reading, limit, most)
        self._loaded(text_of(then, mode), mode, whole=False)

    def _begin(self, few: int) -> None:
        self.setUp()
        self.patch(access_changes, "NAMES_MOST", 10**6)
        self.patch(access_changes, "SEPARATE_MOST", 10**6)
        self.patch(reading, "ROWS_FEW", few)

    def _loaded(self, text: str, mode: LoadMode, *, whole: bool = True) -> None:
        """Load a text, of which a dry run has told the same, or part of it."""
        told = self.client.request(METHODS[mode], f"{PATH}?dryRun=true", body=text.encode(), role=ADMIN)
        before = who_can(self.memory)
        loaded = self.client.request(METHODS[mode], PATH, body=text.encode(), role=ADMIN)
        if loaded.status == 201:
            access = told.json()["access"]
            self._is_true(access, before, who_can(self.memory))
            if whole or access["complete"]:
                self._agrees(access, before, who_can(self.memory))
            self.assertTrue(access["complete"] or not whole)

    def _is_true(self, access: Any, before: Access, after: Access) -> None:
        privileges = privileges_of(before, after)
        for name, expected in zip(("gains", "losses"), differences_of(before, after), strict=True):
            for pair, several in expanded(access[name], privileges).items():
                self.assertLessEqual(several, expected.get(pair, set()), (name, pair))

    def _agrees(self, access: Any, before: Access, after: Access) -> None:
        gains, losses = differences_of(before, after)
        privileges = privileges_of(before, after)
        self.assertEqual(expanded(access["gains"], privileges), gains)
        self.assertEqual(expanded(access["losses"], privileges), losses)
        self.assertEqual(access["untold"], {"gains": False, "new_gains": False, "losses": False})


class AccessTests(DryRunCase):
    """What a dry run tells of access."""

    def setUp(self) -> None:
        """Load layers, hosts and variables."""
        super().setUp()
        hosts = "".join(f"- !host h{number}\n" for number in range(8))
        permits = "".join(
            f"- !variable v{number}\n- !permit {{ role: !layer web, privilege: execute, resource: !variable v{number} }}\n"
            for number in range(3)
        )
        self.load(f"- !layer web\n- !group ops\n- !user bob\n{hosts}{permits}")

    def access(self, text: str, **asked: Any) -> Any:
        """What a dry run of a text tells of access."""
        return self.dry_run(text, **asked)["access"]

    def said(self, text: str, **asked: Any) -> list[str]:
        """The same, in the words of the command line."""
        return [sentence.text for sentence in access_sentences(self.dry_run(text, **asked))]

    def test_shape(self) -> None:
        """Roles that gain the same by the same next role are one change, with counts, the first names and a way (POL-82,
        POL-85).
        """
        hosts = ", ".join(f"!host h{number}" for number in range(7))
        told = self.access(f"- !grant {{ role: !layer web, members: [ {hosts} ] }}\n")
        self.assertEqual(told["losses"], [])
        self.assertEqual(
            told["gains"],
            [
                {
                    "roles": {
                        "kind": "host",
                        "count": 7,
                        "first": [f"acme:host:h{number}" for number in range(5)],
                        "new": False,
                    },
                    "resources": {
                        "kind": "variable",
                        "count": 3,
                        "first": [f"acme:variable:v{number}" for number in range(3)],
                        "new": False,
                    },
                    "privileges": ["execute"],
                    "owner": False,
                    "except": [],
                    "through": "acme:layer:web",
                    "pairs": 21,
                    "way": [{"role": "acme:host:h0", "by": "member"}, {"role": "acme:layer:web", "by": "permitted"}],
                }
            ],
        )

    def test_words(self) -> None:
        """The command line says the same in a sentence for each change (POL-89)."""
        hosts = ", ".join(f"!host h{number}" for number in range(7))
        self.assertEqual(
            self.said(f"- !grant {{ role: !layer web, members: [ {hosts} ] }}\n"),
            ["7 hosts of layer web (h0, h1, h2, h3, h4 and 2 more) gain execute on 3 variables (v0, v1 and v2)"],
        )
        self.assertEqual(
            self.said(
                "- !host new\n- !grant { role: !layer web, member: !group ops }\n"
                "- !grant { role: !group ops, member: !host h1 }\n"
            ),
            [
                "group ops of layer web gains execute on 3 variables (v0, v1 and v2)",
                "host h1 of group ops gains execute on 3 variables (v0, v1 and v2) [host h1 is a member of group:ops, "
                "which is a member of layer:web, which is permitted it]",
                "user admin gains all privileges on new host new",
            ],
        )

    def test_other_ways(self) -> None:
        """What is had in another way is no gain, and what stays in another way no loss (POL-83)."""
        self.load(
            "- !permit { role: !host h0, privileges: [ execute, read ], resource: !variable v0 }\n"
            "- !grant { role: !group ops, member: !host h1 }\n"
            "- !grant { role: !layer web, members: [ !group ops, !host h1 ] }\n"
        )
        self.assertEqual(
            self.said("- !grant { role: !layer web, member: !host h0 }\n"),
            ["host h0 of layer web gains execute on 2 variables (v1 and v2)"],
        )
        self.assertEqual(self.said("- !revoke { role: !group ops, member: !host h1 }\n"), [])
        self.assertEqual(
            self.said("- !revoke { role: !layer web, member: !group ops }\n"),
            ["group ops of layer web loses execute on 3 variables (v0, v1 and v2)"],
        )

    def test_read_before(self) -> None:
        """What was read to tell gains, but not followed for losses, is in doubt there, and settles nothing (POL-83)."""
        self.patch(reading, "ROWS_FEW", 0)
        told = self.access(
            "- !group { id: ops, owner: !user bob }\n- !grant { role: !group ops, member: !group ops }\n"
            "- !permit { role: !group ops, privilege: read, resource: !group ops }\n"
        )
        self.assertEqual(told["losses"], [])
        self.assertEqual({gain["roles"]["first"][0] for gain in told["gains"]}, {"acme:group:ops", "acme:user:bob"})

    def test_few_steps(self) -> None:
        """What a role had by a long way is no gain by a short one, however few steps may be gone to find that (POL-88)."""
        groups = "".join(f"- !group g{n}\n" for n in range(20))
        longer = "".join(f"- !grant {{ role: !group g{n}, member: !group g{n + 1} }}\n" for n in range(19))
        others = "".join(
            f"- !group o{n}\n- !permit {{ role: !group o{n}, privilege: read, resource: !variable v0 }}\n" for n in range(9)
        )
        self.load(
            f"{groups}{longer}{others}- !permit {{ role: !group g0, privilege: read, resource: !variable v0 }}\n"
            "- !grant { role: !group g19, member: !user bob }\n"
        )
        told = list[bool]()
        for most in range(200):
            self.patch(reading, "STEPS_MOST", most)
            access = self.access("- !grant { role: !group o0, member: !user bob }\n")
            self.assertEqual(access["gains"], [], most)
            told.append(access["complete"])
        self.assertEqual(set(told), {False, True})

    def test_ownership(self) -> None:
        """Ownership is told as all privileges, but those that the role has at both moments (POL-84)."""
        self.load("- !permit { role: !group ops, privilege: read, resource: !variable v0 }\n")
        told = self.access("- !variable { id: v0, owner: !group ops }\n")
        [gain] = told["gains"]
        self.assertEqual((gain["owner"], gain["privileges"], gain["except"]), (True, [], ["read"]))
        self.assertEqual(
            (gain["roles"]["first"], gain["way"]), (["acme:group:ops"], [{"role": "acme:group:ops", "by": "owner"}])
        )
        self.load("- !variable { id: v0, owner: !group ops }\n", method="PATCH")
        [loss] = self.access("- !variable { id: v0, owner: !user bob }\n")["losses"]
        self.assertEqual((loss["owner"], loss["except"]), (True, ["read"]))
        self.assertEqual(
            self.said("- !variable { id: v0, owner: !user bob }\n"),
            [
                "group ops loses all privileges but read on variable v0",
                "user bob gains all privileges on variable v0",
            ],
        )

    def test_many(self) -> None:
        """Many changes that differ in their names only are one, which says how many pairs it means (POL-85)."""
        lines = "".join(
            f"- !variable w{n}\n- !permit {{ role: !host h{n}, privilege: read, resource: !variable w{n} }}\n"
            for n in range(8)
        )
        own = "".join(
            f"- !host n{n}\n- !permit {{ role: !host n{n}, privilege: read, resource: !variable v{n % 2} }}\n"
            for n in range(3)
        )
        gains = self.access(lines + own)["gains"]
        self.assertEqual(
            sum(gain["resources"]["kind"] == "variable" and gain["privileges"] == ["read"] for gain in gains), 10
        )
        self.patch(access_changes, "SEPARATE_MOST", 7)
        [gain] = [gain for gain in self.access(lines)["gains"] if gain["privileges"]]
        self.assertEqual((gain["roles"]["count"], gain["resources"]["count"], gain["pairs"]), (8, 8, 8))
        self.assertIn(
            "8 hosts (h0, h1, h2, h3, h4 and 3 more) gain read on 8 new variables (w0, w1, w2, w3, w4 and 3 more), "
            "not each on each: 8 times in all",
            self.said(lines),
        )
        members = "".join(
            f"- !layer l{n}\n- !permit {{ role: !layer l{n}, privilege: read, resource: !variable v0 }}\n" for n in range(8)
        )
        self.load(members)
        grants = "".join(f"- !grant {{ role: !layer l{n}, member: !host h{n} }}\n" for n in range(8))
        [gain] = self.access(grants)["gains"]
        self.assertEqual((gain["through"], gain["pairs"], len(gain["way"])), (None, 8, 2))

    def test_new(self) -> None:
        """Changes about what the load creates, or deletes, are told apart, and come after the others (POL-86)."""
        told = self.access(
            "- !host new\n- !variable fresh\n- !grant { role: !layer web, members: [ !host new, !host h0 ] }\n"
            "- !permit { role: !layer web, privilege: execute, resource: !variable fresh }\n"
        )
        about = [(gain["roles"]["new"], gain["resources"]["new"]) for gain in told["gains"]]
        self.assertEqual(about[0], (False, False))
        self.assertEqual(set(about[1:]), {(True, False), (False, True), (True, True)})
        self.load("- !grant { role: !layer web, member: !host h0 }\n")
        told = self.access("- !delete { record: !host h0 }\n- !delete { record: !variable v0 }\n")
        about = [(loss["roles"]["deleted"], loss["resources"]["deleted"]) for loss in told["losses"]]
        self.assertEqual(set(about), {(True, False), (False, True), (True, True)})
        self.assertEqual(told["gains"], [])

    def test_long_ways(self) -> None:
        """A way that is too long to be told is null, and what it leads to is told nevertheless (POL-85)."""
        groups = "".join(f"- !group g{n}\n" for n in range(65))
        chain_ = "".join(f"- !grant {{ role: !group g{n}, member: !group g{n + 1} }}\n" for n in range(64))
        self.load(f"{groups}{chain_}- !permit {{ role: !group g0, privilege: read, resource: !variable v0 }}\n")
        [gain] = self.access("- !grant { role: !group g62, member: !user bob }\n")["gains"]
        self.assertEqual(len(gain["way"]), 64)
        [gain] = self.access("- !grant { role: !group g63, member: !user bob }\n")["gains"]
        self.assertIsNone(gain["way"])
        self.assertIn(
            "user bob of group g63 gains read on variable v0",
            self.said("- !grant { role: !group g63, member: !user bob }\n"),
        )

    def test_unseen(self) -> None:
        """Of what the caller doesn't see nothing is told but that it is there; on ways it has no name (POL-87)."""
        self.load(
            "- !policy { id: apart, body: [ !group known, !user clear ] }\n"
            "- !permit { role: !user bob, privileges: [ create, update ], resource: !policy apart }\n"
            "- !permit { role: !user bob, privilege: read, resources: [ !group apart/known, !user clear@apart ] }\n"
            "- !variable veiled\n- !group shade\n- !user mute\n"
            "- !permit { role: !user bob, privilege: read, resource: !variable v0 }\n"
            "- !grant { role: !group shade, member: !group apart/known }\n"
            "- !permit { role: !group shade, privilege: read, resources: [ !variable veiled, !variable v0 ] }\n"
        )
        bob = user("bob")
        told = self.access("- !grant { role: !group known, member: !user clear }\n", policy="apart", role=bob)
        [gain] = told["gains"]
        self.assertEqual(gain["resources"]["first"], ["acme:variable:v0"])
        self.assertEqual(gain["through"], "acme:group:apart/known")
        self.assertEqual([step["role"] for step in gain["way"]], ["acme:user:clear@apart", "acme:group:apart/known", None])
        self.assertEqual(told["untold"], {"gains": True, "new_gains": False, "losses": False})
        told = self.access("- !grant { role: !group known, member: !user /mute }\n", policy="apart", role=bob)
        self.assertEqual((told["gains"], told["untold"]["gains"]), ([], True))
        told = self.access("- !variable fresh\n", policy="apart", role=bob)
        self.assertEqual(told["untold"], {"gains": False, "new_gains": True, "losses": False})
        self.load("- !variable fresh\n", policy="apart")
        told = self.access("- !delete { record: !variable fresh }\n", policy="apart", role=bob)
        self.assertEqual(told["untold"], {"gains": False, "new_gains": False, "losses": True})
        for text in ("- !grant { role: !group known, member: !user clear }\n", "- !variable fresh\n"):
            words = str(self.dry_run(text, policy="apart", role=bob))
            for name in ("veiled", "shade", "mute"):
                self.assertNotIn(name, words)

    def test_too_much(self) -> None:
        """Beyond each limit fewer gains are told, all of them true, and that there may be more (POL-88)."""
        hosts = ", ".join(f"!host h{number}" for number in range(8))
        self.load(
            "- !permit { role: !host h0, privilege: execute, resource: !variable v0 }\n"
            f"- !grant {{ role: !group ops, members: [ {hosts} ] }}\n"
        )
        text = (
            "- !grant { role: !layer web, member: !group ops }\n"
            "- !permit { role: !group ops, privilege: read, resource: !variable v1 }\n"
        )
        self.patch(access_changes, "NAMES_MOST", 100)
        whole = self.access(text)
        self.assertTrue(whole["complete"])
        privileges = {"read", "execute"}
        for limit in ("READ_MOST", "STEPS_MOST", "LOOKUPS_MOST"):
            counts = list[int]()
            for most in (*range(40), 10_000):
                self.patch(reading, limit, most)
                told = self.access(text)
                found, all_of_it = expanded(told["gains"], privileges), expanded(whole["gains"], privileges)
                self.assertTrue(all(several <= all_of_it.get(pair, set()) for pair, several in found.items()), (limit, most))
                self.assertTrue(found == all_of_it or not told["complete"], (limit, most))
                counts.append(sum(map(len, found.values())))
            self.assertLess(counts[0], counts[-1], limit)
            self.assertEqual(counts[-1], sum(map(len, expanded(whole["gains"], privileges).values())))
        self.patch(reading, "LOOKUPS_MOST", 1)
        self.assertIn("there may be more. Load the document in parts", self.said(text)[-1])
        self.assertEqual([self.access("[]")["advice"], self.access(text)["advice"]], [None, ADVICE])


class ConjurAccessTests(AccessTests):
    """The same, in the vocabulary of the installed base, where it is beside what there was (POL-82)."""

    dialect = CONJUR

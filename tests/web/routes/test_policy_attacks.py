"""Attacks on policy by those to whom a part of it was delegated (POL-58): every statement in every mode that takes it,
on targets in every spelling.
"""

from __future__ import annotations

from collections.abc import Iterator

from svc.model.dialect import CONJUR
from svc.model.names import RoleName
from tests.sshkeys import ONE, TWO
from tests.web.world import ADMIN, WorldCase, user

ROOT = """
- !user lead
- !user alice
- !user bob
- !user dave@team
- !user { id: carl, public_key: KEY laptop }
- !group admins
- !group team
- !host team
- !layer prod
- !variable crown
- !policy
  id: team
  owner: !user lead
  body: [ !variable db, !group ops, !policy sub ]
- !policy { id: team2, body: [ !group g, !variable v, !user eve ] }
- !policy { id: user, owner: !user lead }
- !grant { roles: [ !group admins, !group team, !user dave@team, !group team2/g ], member: !user alice }
- !permit { role: !user alice, privilege: read, resources: [ !variable crown, !group team, !user dave@team, !group admins ] }
- !permit { role: !user bob, privileges: [ create, update ], resource: !policy team }
""".replace("KEY", ONE)

LEAD = user("lead")

#: What a load must keep so that a replacement drops nothing.
KEEP = "- !variable db\n- !group ops\n- !policy sub\n- !variable bait\n"

#: Foreign roles, each a resource too, as a document in ``team`` can spell them.
ROLES = (
    "!group /admins",
    "!group /team2/g",
    "!user /admin",
    "!user /lead",
    "!user /dave@team",
    "!user dave",
    "!user /team/dave",
    "!policy /root",
    "!policy /team2",
    "!group ",
    "!group ''",
    "!host ",
    "!host /team",
    "!role { kind: group, id: /admins }",
    "!role { kind: user, id: dave }",
    "{ kind: group, id: /admins }",
    "{ kind: user, id: dave }",
    "{ kind: host, account: acme }",
)

#: Foreign things that are no roles.
THINGS = (
    "!variable /crown",
    "!variable /team2/v",
    "!resource { kind: variable, id: /crown }",
    "{ kind: variable, id: /crown }",
    "{ kind: public_key, id: /user/carl/laptop }",
    "!resource { kind: group, id: /team2/g }",
)

#: Things outside, spelt with dots that don't climb, so that they mean nothing that exists.
DOTTED = (
    "!group ../admins",
    "!group sub/../../admins",
    "!user ../lead",
    "{ kind: group, id: ../admins }",
    "!group ../team2/g",
)

EVERY = ("POST", "PATCH", "PUT")
TAKING = ("PATCH", "PUT")

#: What a document does to a role, with the modes that take it. ``{0}`` is the role.
TO_ROLES = (
    ("!grant {{ role: {0}, member: !user /lead }}", EVERY),
    ("!grant {{ roles: [ !group ops, {0} ], members: [ {{ role: !user /lead, admin: true }} ] }}", EVERY),
    ("!grant {{ role: [[ {0} ]], member: {{ kind: user, id: /lead }} }}", EVERY),
    ("!revoke {{ role: {0}, member: !user /alice }}", TAKING),
    ("!revoke {{ roles: [ !group ops, {0} ], members: [ !user /alice, !user /nobody ] }}", TAKING),
)

#: What a document does to a resource.
TO_RESOURCES = (
    ("!permit {{ role: !user /lead, privileges: [ read, update ], resource: {0} }}", EVERY),
    ("!permit {{ role: [ !group ops, !user /lead ], privilege: execute, resources: [ !variable db, {0} ] }}", EVERY),
    ("!deny {{ role: !user /alice, privilege: read, resource: {0} }}", TAKING),
    ("!deny {{ role: !user /nobody, privileges: [ read, x ], resources: [ !variable db, {0} ] }}", TAKING),
    ("!delete {{ record: {0} }}", TAKING),
    ("!delete {{ records: [ !variable bait, {0} ] }}", TAKING),
)


def attacks() -> Iterator[tuple[str, str]]:
    """Documents and the modes in which they attack."""
    for targets, statements in ((ROLES, TO_ROLES), (ROLES + THINGS, TO_RESOURCES)):
        for target in targets:
            for statement, modes in statements:
                for mode in modes:
                    yield f"{KEEP}- {statement.format(target)}\n", mode


class AttackTests(WorldCase):
    """The owner of a policy, and others who may load it, help themselves to nothing."""

    def setUp(self) -> None:
        """Delegate a policy."""
        super().setUp()
        self.load(ROOT)
        self.stored = self.memory.copied()

    def refused(self, text: str, method: str, role: RoleName = LEAD, policy: str = "team") -> None:
        """A load is 403, and nothing of it is applied."""
        self.load(text, policy=policy, role=role, method=method, status=403)
        self.assertEqual(self.memory.copied(), self.stored, text)

    def test_owners(self) -> None:
        """The owner of a policy is 403 with every statement on anything outside, and nothing of the document is applied
        (POL-58).
        """
        for text, method in attacks():
            self.refused(text, method)

    def test_those_who_may_update(self) -> None:
        """So is a role that has ``create`` and ``update`` on the policy (POL-58)."""
        for text, method in attacks():
            if method != "PUT":
                self.refused(text, method, user("bob"))

    def test_the_admin(self) -> None:
        """None of these documents is at fault otherwise: who has the authority loads them, but for those that would delete
        the ground that the policy stands on.
        """
        vital = ("!delete { record: !user /admin }", "!policy /root }", "!policy /root ]", "!user /admin ]", "!user /lead ")
        for text, method in attacks():
            status = 422 if "!delete" in text and any(word in text for word in vital) else 201
            self.load(text, policy="team", role=ADMIN, method=method, status=status)
            self.memory.restore(self.stored)

    def test_the_policy_itself(self) -> None:
        """Who may load a policy and doesn't own it gets neither its role, which may hold more, nor a privilege on it
        (POL-60).
        """
        for statement, modes in (*TO_ROLES, *TO_RESOURCES):
            if "delete" not in statement:
                for method in set(modes) - {"PUT"}:
                    self.refused(f"{KEEP}- {statement.format('!policy ')}\n", method, user("bob"))

    def test_what_is_inside(self) -> None:
        """All of it may be done to what lies inside (POL-57)."""
        for targets, statements in (
            (("!group ops", "!policy sub", "!policy ", "!group /team/ops"), TO_ROLES),
            (("!group ops", "!variable db", "{ kind: variable, id: /team/db }", "!policy sub"), TO_RESOURCES),
        ):
            for target in targets:
                for statement, modes in statements:
                    for method in modes:
                        self.load(KEEP, method="PATCH", policy="team")
                        text = f"{KEEP}- {statement.format(target)}\n"
                        self.load(text, policy="team", role=LEAD, method=method)
                        if "delete" in statement:
                            self.setUp()

    def test_bodies_and_lists(self) -> None:
        """Neither the body of a policy inside nor lists in lists make a difference: there, too, a slash leads out."""
        for statement, modes in (*TO_ROLES, *TO_RESOURCES):
            for method in modes:
                for around in (
                    "- !policy\n  id: sub\n  body:\n  - {}\n",
                    "- !policy {{ id: sub, body: [[[ {} ]]] }}\n",
                    "- - - {}\n",
                ):
                    inner = statement.format("!group /admins").replace("!group ops", "!group /team/ops")
                    inner = inner.replace("!variable db", "!variable /team/db").replace(
                        "!variable bait", "!variable /team/bait"
                    )
                    keep = KEEP.replace("- !policy sub\n", "") if "sub" in around else KEEP
                    self.refused(keep + around.format(inner), method)

    def test_aliases(self) -> None:
        """An alias is the thing at its anchor, wherever that stands: as a member, in a list, in a body of another policy."""
        for statement, modes in (*TO_ROLES, *TO_RESOURCES):
            for method in modes:
                for anchor, alias in (
                    ("- !grant { role: !group ops, member: &it !group /admins }\n", "*it"),
                    ("- !grant { role: !group ops, members: &it [ !group /admins ] }\n", "*it"),
                    (
                        "- !permit { role: &it { kind: group, id: /admins }, privilege: read, resource: !variable db }\n",
                        "*it",
                    ),
                    ("- !variable { id: x, owner: &it !role { kind: group, id: /admins } }\n", "*it"),
                ):
                    self.refused(f"{KEEP}{anchor}- {statement.format(alias)}\n", method)

    def test_dots(self) -> None:
        """Dots don't climb out of the policy on these sides: what they spell isn't there, and nothing is done."""
        others = self.foreign()
        for target in DOTTED:
            for statement, modes in (*TO_ROLES, *TO_RESOURCES):
                for method in modes:
                    granting = "!grant" in statement or "!permit" in statement
                    text = f"{KEEP}- {statement.format(target)}\n"
                    self.load(text, policy="team", role=LEAD, method=method, status=422 if granting else 201)
                    self.assertEqual(self.foreign(), others, text)

    def test_declaring(self) -> None:
        """Declaring a foreign namesake claims it, with whatever it is declared with, in every mode (POL-65)."""
        for record in (
            "!user dave",
            "!user { id: dave, owner: !user /lead }",
            f"!user {{ id: dave, public_key: {TWO} mine }}",
            "!user { id: dave, restricted_to: 10.0.0.1 }",
            "!user { id: dave, uidnumber: 0 }",
            "!role { kind: user, id: dave, annotations: { a: b } }",
            "!resource { kind: user, id: dave, owner: !user /lead }",
            "!group { annotations: { a: b } }",
            "!role { kind: group, owner: !user /lead }",
        ):
            for method in EVERY:
                self.refused(f"{KEEP}- {record}\n", method)

    def test_layers(self) -> None:
        """A host factory in a foreign layer would give the layer away, however the layer is spelt."""
        for layer in ("!layer /prod", "{ kind: layer, id: /prod }", "[ !role { kind: layer, id: /prod } ]"):
            for tag in ("!host-factory", "!host_factory"):
                for method in EVERY:
                    self.refused(f"{KEEP}- {tag} {{ id: f, layers: {layer} }}\n", method)

    def test_public_keys(self) -> None:
        """Who owns a policy that is called like the place of public keys has no power over these."""
        key = "{ kind: public_key, id: carl/laptop }"
        for statement, modes in TO_RESOURCES[:1] + TO_RESOURCES[2:3] + TO_RESOURCES[4:5]:
            for method in modes:
                self.refused(f"- {statement.format(key)}\n", method, policy="user")
        for method in EVERY:
            self.load(f"- !resource {key}\n", policy="user", role=LEAD, method=method, status=422)

    def test_the_root(self) -> None:
        """Who may update the root policy has no power over the admin (POL-60)."""
        self.load("- !permit { role: !user bob, privileges: [ create, update ], resource: !policy root }")
        self.stored = self.memory.copied()
        for target in ("!user admin", "!user /admin", "{ kind: user, id: admin }"):
            for statement, modes in (TO_ROLES[0], TO_ROLES[3], TO_RESOURCES[0], TO_RESOURCES[2], TO_RESOURCES[4]):
                for method in set(modes) - {"PUT"}:
                    self.refused(f"- {statement.format(target)}\n", method, user("bob"), "root")

    def foreign(self) -> dict[str, object]:
        """What policies other than ``team`` recorded, or none did."""
        return {
            "roles": {role for role, by in self.memory.roles.items() if by != "acme:policy:team"},
            "resources": {key for key, (_, by) in self.memory.resources.items() if by != "acme:policy:team"},
            "memberships": {key for key, (_, by) in self.memory.memberships.items() if by != "acme:policy:team"},
            "permissions": {key for key, by in self.memory.permissions.items() if by != "acme:policy:team"},
        }


class ConjurAttackTests(AttackTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR

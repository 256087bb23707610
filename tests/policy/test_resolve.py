"""What documents mean."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.dialect import CONJUR, NATIVE
from svc.model.errors import InvalidParameter, PolicyInvalid
from svc.model.policy_loads import (
    AnnotationRow,
    MembershipRow,
    PermissionRow,
    Removals,
    ResourceRow,
    RestrictionRow,
    Rows,
)
from svc.policy import resolve as resolve_module
from svc.policy.ids import identifier_of
from svc.policy.resolve import PRIVILEGE_LIMIT
from svc.policy.resolved_policy import ResolvedPolicy
from tests.policy.world import ADMIN, resolved, row_sets
from tests.sshkeys import ONE, TWO
from tests.strategies import PATHS, POLICIES, STATEMENTS, document, mangled


def ids(meaning: ResolvedPolicy) -> list[str]:
    """What a document declares, without the account."""
    return [row.resource.removeprefix("acct:") for row in meaning.rows.resources]


def owners(meaning: ResolvedPolicy) -> dict[str, str]:
    """Who owns what a document declares, without the account."""
    return {row.resource.removeprefix("acct:"): row.owner.removeprefix("acct:") for row in meaning.rows.resources}


class ResolveTests(SynchronousTestCase):
    """Cases of every rule."""

    def told(self, text: str, into: str = "root") -> str:
        """How a document is refused: a fault of meaning, with a place and a message that stands alone."""
        refusal: PolicyInvalid = self.assertRaises(PolicyInvalid, resolved, text, into)
        self.assertTrue(refusal.bare)
        self.assertIsNotNone(refusal.line)
        self.assertIsNotNone(refusal.column)
        return refusal.message


class IdTests(ResolveTests):
    """Core 1.4: ids and namespaces."""

    def test_a_body_is_a_namespace(self) -> None:
        """Each id in a body gets the ids of the policies around it in front (POL-24)."""
        text = "- !policy {id: dev, body: [!variable x, !policy {id: db, body: [!variable a/b, !host h]}]}\n- !group dev/g"
        expected = ["policy:dev", "variable:dev/x", "policy:dev/db", "variable:dev/db/a/b", "host:dev/db/h", "group:dev/g"]
        self.assertEqual(ids(resolved(text)), expected)

    def test_a_document_is_the_body_of_its_policy(self) -> None:
        """Loading into a policy other than the root is as if the document were its body; the root adds nothing (POL-24)."""
        self.assertEqual(ids(resolved("- !variable x", "dev/db")), ["variable:dev/db/x"])
        self.assertEqual(ids(resolved("- !policy {id: db, body: [!variable x]}", "dev"))[1], "variable:dev/db/x")
        self.assertEqual(ids(resolved("- !variable x")), ["variable:x"])

    def test_a_policy_called_root(self) -> None:
        """Only the root policy itself adds nothing; one in it that is called root is a name like any other (POL-24)."""
        self.assertEqual(ids(resolved("- !policy {id: root, body: [!variable x]}"))[1], "variable:root/x")
        self.assertEqual(ids(resolved("- !variable x", "dev/root")), ["variable:dev/root/x"])

    def test_blank_ids(self) -> None:
        """A blank id is the policy's own; at the root there is nothing to call it by (POL-25)."""
        self.assertEqual(ids(resolved("- !policy {id: dev, body: [!policy {id: db, body: [!layer ]}]}"))[2], "layer:dev/db")
        self.assertEqual(ids(resolved("- !webservice", "a/b")), ["webservice:a/b"])
        self.assertEqual(self.told("- !policy\n  body: [!user x]"), "policy has a blank id")
        self.assertEqual(self.told("- !user"), "user has a blank id")
        self.assertEqual(
            self.told("- !permit {role: !user x, privilege: x, resource: !webservice }"), "webservice has a blank id"
        )
        self.assertEqual(
            self.told("- !permit {role: !group '/', privilege: x, resource: !webservice x}"), "group has a blank id"
        )

    def test_defined_ids_are_relative(self) -> None:
        """A record that is defined may not have an absolute id, anywhere (POL-26)."""
        for kind in ("user", "host", "group", "layer", "policy", "variable", "webservice"):
            self.assertEqual(self.told(f"- !{kind} /x"), "Illegal absolute id: /x")
            self.assertEqual(self.told(f"- !{kind} /dev/x", "dev"), "Illegal absolute id: /dev/x")
            self.assertEqual(self.told(f"- !policy {{id: p, body: [!{kind} //x]}}"), "Illegal absolute id: //x")

    def test_defined_ids_do_not_climb(self) -> None:
        """``..`` in the id of a record is kept as it is, so that no record leaves its policy (POL-27)."""
        self.assertEqual(ids(resolved("- !group ../x", "dev")), ["group:dev/../x"])
        self.assertEqual(ids(resolved("- !user ../x", "dev")), ["user:x@dev-.."])

    def test_users_are_folded(self) -> None:
        """Users have the last element in front, the rest behind ``@``; references to them too (POL-29)."""
        self.assertEqual(ids(resolved("- !policy {id: a, body: [!policy {id: b, body: [!user bob]}]}"))[2], "user:bob@a-b")
        self.assertEqual(ids(resolved("- !user bob", "a/b")), ["user:bob@a-b"])
        meaning = resolved(
            "- !grant\n  role: !group g\n  members: [!user bob, !user /bob, !user ../bob, !user /dev/bob, !user bob@dev]\n",
            "dev/x",
        )
        members = [row.member.removeprefix("acct:user:") for row in meaning.rows.memberships]
        self.assertEqual(members, ["bob@dev-x", "bob", "bob@dev", "bob@dev@dev-x"])
        from_root = resolved("- !grant {role: !group g, members: [!user dev/bob, !user bob@dev]}")
        self.assertEqual([row.member for row in from_root.rows.memberships], ["acct:user:bob@dev"])

    def test_leading_slashes_are_absolute(self) -> None:
        """A leading slash makes a reference absolute wherever one stands: owner, member, both roles, resource (POL-26)."""
        meaning = resolved(
            "- !host {id: h, owner: !group /o}\n- !grant {role: !group /r, member: !host /m}\n"
            "- !permit {role: !layer /p, privilege: x, resource: !variable /a/v}",
            "dev/db",
        )
        self.assertEqual(owners(meaning), {"host:dev/db/h": "group:o"})
        self.assertIn(MembershipRow("acct:group:r", "acct:host:m", False, False), meaning.rows.memberships)
        self.assertEqual(meaning.rows.permissions, (PermissionRow("acct:variable:a/v", "x", "acct:layer:p"),))

    def test_dots_climb_for_some(self) -> None:
        """``..`` climbs in owners, members and the roles of permits; in granted roles and resources it stays (POL-27)."""
        meaning = resolved(
            "- !host {id: h, owner: !group ../o}\n- !grant {role: !group ../r, member: !host ../../m}\n"
            "- !permit {role: !layer x/../p, privilege: x, resource: !variable ../v}",
            "dev/db",
        )
        self.assertEqual(owners(meaning), {"host:dev/db/h": "group:dev/o"})
        self.assertIn(MembershipRow("acct:group:dev/db/../r", "acct:host:m", False, False), meaning.rows.memberships)
        self.assertEqual(meaning.rows.permissions, (PermissionRow("acct:variable:dev/db/../v", "x", "acct:layer:dev/db/p"),))

    def test_too_many_dots(self) -> None:
        """A reference that climbs to the root or beyond is refused, from any place (POL-27)."""
        self.assertEqual(
            self.told("- !host {id: h, owner: !group ../../the-group}", "myapp"),
            "Invalid relative reference: myapp/../../the-group",
        )
        self.assertEqual(
            self.told("- !grant {role: !group g, member: !group ../../the-group}", "myapp"),
            "Invalid relative reference: myapp/../../the-group",
        )
        self.assertEqual(
            self.told("- !permit {role: !group ../../the-group, privilege: x, resource: !variable v}", "myapp"),
            "Invalid relative reference: myapp/../../the-group",
        )
        self.assertEqual(self.told("- !host {id: h, owner: !group ../x}"), "Invalid relative reference: ../x")
        self.assertEqual(self.told("- !host {id: h, owner: !group /../x}", "a/b"), "Invalid relative reference: ../x")
        self.assertEqual(self.told("- !host {id: h, owner: !policy ..}", "dev"), "Invalid relative reference: dev/..")

    def test_dots_climb_in_annotations(self) -> None:
        """A value with a ``..`` element is resolved relative to its record; two dots elsewhere mean nothing (POL-28)."""
        text = "- !variable {id: a/v, annotations: {x: ../w, y: ../../u/t, z: a..b, q: 'see ...', r: ../../../w}}"
        self.assertEqual(
            resolved(text, "dev").rows.annotations,
            tuple(
                AnnotationRow("acct:variable:dev/a/v", name, value)
                for name, value in {"x": "dev/a/w", "y": "dev/u/t", "z": "a..b", "q": "see ...", "r": "w"}.items()
            ),
        )
        self.assertEqual(
            self.told("- !variable {id: v, annotations: {x: ../../w}}"), "Invalid relative reference: v/../../w"
        )
        user = resolved("- !user {id: bob, annotations: {x: ../y}}", "dev")
        self.assertEqual(user.rows.annotations, (AnnotationRow("acct:user:bob@dev", "x", "dev/y"),))

    def test_foreign_accounts(self) -> None:
        """No record and no reference may name another account; one's own is no news (POL-30)."""
        self.assertEqual(ids(resolved("- !host {id: h, account: acct}")), ["host:h"])
        for text in (
            "- !host {id: h, account: other}",
            "- !host {id: h, owner: !group {id: g, account: other}}",
            "- !grant {role: !group {id: g, account: other}, member: !host h}",
            "- !grant {role: !group g, member: !host {id: h, account: other}}",
            "- !permit {role: !group g, privilege: x, resource: !variable {id: g, account: ''}}",
            "- !policy {id: p, account: other}",
        ):
            self.assertIn("is of another account", self.told(text))

    def test_long_ids(self) -> None:
        """An identifier is at most 1 KiB of UTF-8, its policies included (LIM-11)."""
        self.assertEqual(len(ids(resolved(f"- !group {'x' * 1024}"))), 1)
        self.assertIn("at most 1024 bytes", self.told(f"- !group {'x' * 1025}"))
        self.assertIn("at most 1024 bytes", self.told(f"- !group {'é' * 513}"))
        self.assertIn("at most 1024 bytes", self.told(f"- !group {'x' * 1021}", "dev"))
        self.assertIn("at most 1024 bytes", self.told(f"- !grant {{role: !group g, member: !user {'x' * 2000}}}"))
        self.assertLess(len(self.told(f"- !group {'x' * 100_000}")), 400)

    def test_long_names(self) -> None:
        """Names and values of annotations, and privileges, have their limits (LIM-11)."""
        self.assertIn("at most 1024 bytes", self.told(f"- !host {{id: h, annotations: {{? {'x' * 1025} : y}}}}"))
        self.assertIn("at most 65536 bytes", self.told(f"- !host {{id: h, annotations: {{x: {'y' * 65537}}}}}"))
        resolved(f"- !host {{id: h, annotations: {{x: {'y' * 65536}}}}}")
        text = "- !permit {{role: !user u, privilege: {}, resource: !host h}}"
        resolved(text.format("p" * PRIVILEGE_LIMIT))
        self.assertEqual(self.told(text.format("é" * 33)), "A privilege is at most 64 bytes long")

    @given(PATHS, PATHS)
    def test_relative_and_absolute_agree(self, policy: str, path: str) -> None:
        """The absolute form of a reference and the relative one mean the same thing (POL-26)."""
        assume(policy != "root")
        for kind in ("user", "group"):
            text = f"- !grant {{role: !group /g, members: [!{kind} '{path}', !{kind} '/{policy}/{path}']}}"
            self.assertEqual(len(resolved(text, policy).references), 2)
            climbing = "/".join([".."] * len(policy.split("/")))
            text = f"- !grant {{role: !group /g, members: [!{kind} '/{path}', !{kind} '{climbing}/{path}']}}"
            self.assertEqual(len(resolved(text, policy).references), 2)

    @given(POLICIES, PATHS)
    def test_records_stay_in_their_policy(self, text: str, policy: str) -> None:
        """Whatever a document says, what it declares is called like its policy, or lies beneath it (POL-31)."""
        assume(policy != "root")
        try:
            meaning = resolved(text, policy)
        except PolicyInvalid:
            return
        folded = policy.replace("/", "-")
        for name in ids(meaning):
            kind, identifier = name.split(":", 1)
            if kind == "public_key":
                self.assertTrue(identifier.startswith("user/"))
                kind, identifier = "user", identifier.split("/")[1]
            if kind == "user":
                self.assertTrue(identifier == identifier_of("user", policy) or f"@{folded}" in identifier, name)
            else:
                self.assertTrue(identifier == policy or identifier.startswith(f"{policy}/"), name)


class OwnerTests(ResolveTests):
    """Core 1.5: ownership."""

    def test_defaults(self) -> None:
        """The admin owns what stands at the root, and a policy what stands in its body, also if a user owns it (POL-32)."""
        meaning = resolved(
            "- !user u\n- !policy {id: p, owner: !user u, body: [!host h, !policy {id: q, body: [!variable v]}]}"
        )
        self.assertEqual(
            owners(meaning),
            {
                "user:u": "user:admin",
                "policy:p": "user:u",
                "host:p/h": "policy:p",
                "policy:p/q": "policy:p",
                "variable:p/q/v": "policy:p/q",
            },
        )
        self.assertEqual(owners(resolved("- !host h", "p")), {"host:p/h": "policy:p"})

    def test_roles_are_held_by_their_owners(self) -> None:
        """For each role there is a membership of its owner, as owner and admin; for other resources there is none
        (POL-32).
        """
        meaning = resolved("- !group g\n- !variable v\n- !webservice w\n- !policy {id: p, owner: !group g}")
        self.assertEqual(
            set(meaning.rows.memberships),
            {MembershipRow("acct:group:g", ADMIN, True, True), MembershipRow("acct:policy:p", "acct:group:g", True, True)},
        )
        self.assertEqual(meaning.rows.resources[1], ResourceRow("acct:variable:v", ADMIN))

    def test_nothing_is_declared_twice(self) -> None:
        """A thing that is declared again is refused, however it is spelt; things of two kinds may share an id (POL-22)."""
        for text in (
            "- !group x\n- !group x",
            "- !group p/x\n- !policy {id: p, body: [!group x]}",
            "- !user p/x\n- !user x@p",
            "- !policy {id: p, body: [!group x]}\n- !policy {id: p}",
            "- &a !group x\n- *a",
        ):
            self.assertIn("is declared more than once", self.told(text), text)
        refusal = self.assertRaises(PolicyInvalid, resolved, "- &a !group x\n- *a")
        self.assertEqual((refusal.line, refusal.column), (2, 3))
        self.assertEqual(self.told("- !user a/b/x\n- !user a-b/x"), "User 'x@a-b' is declared more than once")
        self.assertEqual(len(ids(resolved("- !group x\n- !layer x\n- !user x"))), 3)

    def test_the_policy_itself_is_declared(self) -> None:
        """A document can't declare the policy that it is loaded into."""
        self.assertEqual(self.told("- !policy", "dev"), "policy has a blank id")
        self.assertEqual(self.told("- !policy {owner: !user x}", "dev/db"), "policy has a blank id")
        self.assertEqual(ids(resolved("- !policy root")), ["policy:root"])

    def test_circles_of_owners(self) -> None:
        """Roles that own each other are refused, over any number of steps, and so is one that owns itself (POL-33)."""
        self.assertEqual(
            self.told("- !group {id: a, owner: !group b}\n- !group {id: b, owner: !group a}"),
            "Dependency cycle encountered between Group 'b' and Group 'a'",
        )
        ring = "".join(f"- !group {{id: g{n}, owner: !group g{(n + 1) % 50}}}\n" for n in range(50))
        self.assertIn("Dependency cycle encountered between", self.told(ring))
        self.assertIn("Dependency cycle", self.told("- !group {id: a, owner: !group a}"))
        self.assertIn("Dependency cycle", self.told("- !policy {id: p, owner: !group p/g, body: [!group g]}"))
        self.assertIn(
            "Dependency cycle", self.told("- !variable {id: v, owner: !group a}\n- !group {id: a, owner: !group a}")
        )

    def test_chains_of_owners(self) -> None:
        """Owners may be owned, in any order of the file; and the admin is his own."""
        chain = "".join(f"- !group {{id: g{n}, owner: !group g{n + 1}}}\n" for n in range(2_000)) + "- !group g2000"
        self.assertEqual(len(ids(resolved(chain))), 2_001)
        self.assertEqual(owners(resolved("- !user admin\n- !group {id: g, owner: !user admin}"))["user:admin"], "user:admin")


class RowTests(ResolveTests):
    """Core 1.6: rows."""

    def test_grants(self) -> None:
        """A grant makes a row for each role and member, with the member's admin option."""
        meaning = resolved("- !grant {roles: [!group a, !layer b], members: [!user u, {role: !host h, admin: true}]}")
        self.assertEqual(
            set(meaning.rows.memberships),
            {
                MembershipRow(f"acct:{role}", f"acct:{member}", False, admin)
                for role in ("group:a", "layer:b")
                for member, admin in (("user:u", False), ("host:h", True))
            },
        )

    def test_permits(self) -> None:
        """A permit makes a row for each resource, privilege and role."""
        meaning = resolved(
            "- !permit {roles: [!group a, !user u], privileges: [read, fly], resources: [!variable v, !group a]}"
        )
        self.assertEqual(len(set(meaning.rows.permissions)), 8)
        self.assertIn(PermissionRow("acct:group:a", "fly", "acct:user:u"), meaning.rows.permissions)

    def test_repeats_are_one(self) -> None:
        """What is granted or permitted twice makes one row; of two admin options, the greater (POL-22)."""
        grant = "- !grant {role: !group a, member: !user u}\n"
        admin = "- !grant {role: !group a, member: {role: !user u, admin: true}}\n"
        for text in (grant + admin, admin + grant, grant + grant + admin + grant):
            self.assertEqual(resolved(text).rows.memberships, (MembershipRow("acct:group:a", "acct:user:u", False, True),))
        permit = "- !permit {role: [!user u, !user u], privileges: [x, x], resource: !variable v}\n"
        self.assertEqual(len(resolved(permit + permit).rows.permissions), 1)

    def test_owners_may_be_granted(self) -> None:
        """An owner who is also granted the role has two rows."""
        meaning = resolved("- !group g\n- !grant {role: !group g, member: !user admin}")
        self.assertEqual({row.ownership for row in meaning.rows.memberships}, {True, False})

    def test_sugar(self) -> None:
        """``kind`` and ``mime_type`` are annotations under the dialect's prefix; an explicit one wins (POL-15)."""
        text = "- !user {id: u, uidnumber: 1000}\n- !group {id: g, gidnumber: 2000, annotations: {svc/gidnumber: '5'}}"
        self.assertEqual(
            resolved(text).rows.annotations,
            (AnnotationRow("acct:user:u", "svc/uidnumber", "1000"), AnnotationRow("acct:group:g", "svc/gidnumber", "5")),
        )
        text = "- !variable {id: v, kind: k, mime_type: text/plain, annotations: {svc/kind: mine, a: b}}"
        for dialect, kinds in (
            (NATIVE, {"svc/kind": "mine"}),
            (CONJUR, {"svc/kind": "mine", "conjur/kind": "k"}),
        ):
            rows = resolved(text, dialect=dialect).rows.annotations
            self.assertEqual(
                {row.name: row.value for row in rows}, {**kinds, "a": "b", f"{dialect.prefix}/mime_type": "text/plain"}
            )

    def test_low_level_records(self) -> None:
        """``!role`` and ``!resource`` declare what the tag of their kind does: rows, ids and folding are the same
        (POL-13).
        """
        for low, tagged in (
            ("!role {kind: group, id: x}", "!group x"),
            ("!role {kind: user, id: a/bob}", "!user a/bob"),
            ("!resource {kind: variable, id: x}", "!variable x"),
            ("!resource {kind: host, id: x, owner: {kind: user, id: admin}}", "!host x"),
        ):
            self.assertEqual(resolved(f"- {low}").rows, resolved(f"- {tagged}").rows)
            self.assertEqual(
                resolved(f"- {low}", "dev").rows.resources[0][0], resolved(f"- {tagged}", "dev").rows.resources[0][0]
            )
        self.assertEqual(self.told("- !role {kind: host_factory, id: f}"), "Host factory 'f' does not include any layers")
        self.assertEqual(
            self.told("- !resource {kind: public_key, id: user/bob/k}"), "A public key is declared with its user"
        )

    def test_restrictions(self) -> None:
        """``restricted_to`` makes a row for each range, once."""
        meaning = resolved("- !host {id: h, restricted_to: [1.2.3.4, 1.2.3.4/32, '::/0']}\n- !user u", "dev")
        self.assertEqual(
            meaning.rows.restrictions,
            (RestrictionRow("acct:host:dev/h", "1.2.3.4/32"), RestrictionRow("acct:host:dev/h", "::/0")),
        )

    def test_public_keys(self) -> None:
        """A public key is a resource that is called like its user and owned by his owner; it has no role (KEY-3, KEY-8)."""
        meaning = resolved(
            f"- !group g\n- !user {{id: bob, owner: !group g, public_keys: [{ONE} laptop, {TWO} a/b]}}", "dev"
        )
        self.assertEqual(
            set(meaning.rows.resources[1:]),
            {
                ResourceRow("acct:user:bob@dev", "acct:group:dev/g"),
                ResourceRow("acct:public_key:user/bob@dev/laptop", "acct:group:dev/g"),
                ResourceRow("acct:public_key:user/bob@dev/a/b", "acct:group:dev/g"),
            },
        )
        self.assertEqual(len(meaning.rows.memberships), 2)
        self.assertEqual(
            dict(meaning.public_keys),
            {
                "acct:public_key:user/bob@dev/laptop": f"{ONE} laptop",
                "acct:public_key:user/bob@dev/a/b": f"{TWO} a/b",
            },
        )
        self.assertEqual(
            self.told(f"- !user {{id: u, public_keys: [{ONE} x, {TWO} x]}}"),
            "Public_key 'user/u/x' is declared more than once",
        )
        self.assertIn("at most 1024 bytes", self.told(f"- !user {{id: u, public_key: {ONE} {'x' * 1020}}}"))

    def test_host_factories(self) -> None:
        """A host factory is a role and a resource, and a member of its layers; it has one at least (POL-16, HF-1)."""
        meaning = resolved("- !layer l\n- !host-factory {id: f, layers: [!layer l, !layer /m], role: !group /g}", "dev")
        self.assertEqual(
            set(meaning.rows.memberships),
            {
                MembershipRow("acct:layer:dev/l", "acct:policy:dev", True, True),
                MembershipRow("acct:host_factory:dev/f", "acct:policy:dev", True, True),
                MembershipRow("acct:layer:dev/l", "acct:host_factory:dev/f", False, False),
                MembershipRow("acct:layer:m", "acct:host_factory:dev/f", False, False),
            },
        )
        self.assertEqual(list(meaning.references), ["acct:layer:m", "acct:group:g"])
        self.assertEqual(list(meaning.roles_granted), ["acct:layer:m"])
        for text in ("- !host-factory f", "- !host_factory {id: f, layers: []}"):
            self.assertEqual(self.told(text, "dev"), "Host factory 'dev/f' does not include any layers")

    def test_what_is_taken_away(self) -> None:
        """Deletions name resources, memberships and permissions, in products, and need nothing to be there."""
        meaning = resolved(
            "- !revoke {roles: [!group a, !group b], members: [!user /u, !host ../h, !host ../h]}\n"
            "- !deny {role: !user /u, privileges: [x, y], resource: !variable v}\n"
            "- !delete {record: !user bob}\n- !delete {records: [!layer , {kind: variable, id: v}]}\n",
            "dev",
        )
        self.assertEqual(
            set(meaning.removals.memberships),
            {(f"acct:group:dev/{role}", member) for role in "ab" for member in ("acct:user:u", "acct:host:h")},
        )
        self.assertEqual(
            set(meaning.removals.permissions),
            {PermissionRow("acct:variable:dev/v", privilege, "acct:user:u") for privilege in "xy"},
        )
        self.assertEqual(meaning.removals.resources, ("acct:user:bob@dev", "acct:layer:dev", "acct:variable:dev/v"))
        self.assertEqual((meaning.rows, dict(meaning.references)), (Rows(), {}))
        self.assertTrue(meaning.deletes)
        self.assertFalse(resolved("- !group g").deletes)
        self.assertTrue(resolved("- !revoke {role: [], member: []}").deletes)

    def test_ids_of_what_is_taken_away(self) -> None:
        """What is revoked, denied or deleted has the rules of ids of what is granted, permitted or declared."""
        self.assertEqual(resolved("- !delete {record: !group ../x}", "dev").removals.resources, ("acct:group:dev/../x",))
        self.assertEqual(resolved("- !delete {record: !group /x}", "dev").removals.resources, ("acct:group:x",))
        self.assertEqual(
            self.told("- !revoke {role: !group g, member: !user ../../u}", "dev"),
            "Invalid relative reference: dev/../../u",
        )
        self.assertEqual(self.told("- !delete {record: !layer }"), "layer has a blank id")
        for statement in (
            "!revoke {role: !group {id: g, account: other}, member: !user u}",
            "!deny {role: !user u, privilege: x, resource: !group {id: g, account: other}}",
            "!delete {record: !group {id: g, account: other}}",
        ):
            self.assertEqual(self.told(f"- {statement}"), "group 'g' is of another account")
        deny = f"- !deny {{role: !user u, privilege: {'x' * 65}, resource: !group g}}"
        self.assertEqual(self.told(deny), "A privilege is at most 64 bytes long")

    def test_a_policy_is_not_deleted_from_within(self) -> None:
        """A document can't delete the policy that it is loaded into (POL-47)."""
        for text, into in (
            ("!policy ", "dev"),
            ("!policy /dev", "dev"),
            ("!policy root", "root"),
            ("!policy /root", "root"),
        ):
            message = f"Policy '{into}' can't be deleted by a document that is loaded into it"
            self.assertEqual(self.told(f"- !delete {{record: {text}}}", into), message)

    def test_automatic_roles(self) -> None:
        """An automatic role is a reference to what no policy makes: its kind is ``@``, its id names the record and it."""
        meaning = resolved("- !grant {role: !automatic-role {record: !layer l, role_name: use}, member: !user u}", "dev")
        self.assertEqual(list(meaning.references), ["acct:@:layer/dev/l/use", "acct:user:u@dev"])
        self.assertEqual(list(meaning.roles_granted), ["acct:@:layer/dev/l/use"])

    def test_rows_are_made_when_they_are_asked_for(self) -> None:
        """A product is counted when the document is resolved, and multiplied when its rows are first wanted."""
        many = ", ".join(f"!group g{n}" for n in range(1_400))
        meaning = resolved(f"- !grant {{roles: &g [{many}], members: *g}}")
        self.assertEqual((meaning.declared, len(meaning.references)), (Rows(), 1_400))
        meaning = resolved("- !grant {roles: &g [!group a, !group b], members: *g}")
        self.assertIs(meaning.rows, meaning.rows)
        self.assertEqual(len(meaning.rows.memberships), 4)

    def test_bytes_are_bounded(self) -> None:
        """Texts and ids that are short in the document and long in its rows are refused before the rows are made
        (LIM-11).
        """
        self.patch(resolve_module, "BYTES_LIMIT", 1_000_000)
        told = "More than 1000000 bytes of ids and texts"
        long = "x" * 1000
        groups = ", ".join(f"!group g{n}" for n in range(25))
        self.assertEqual(self.told(f"- !grant {{roles: &g [{groups}], members: *g}}", long), told)
        self.assertEqual(self.told(f"- !revoke {{roles: &g [{groups}], members: *g}}", long), told)
        self.assertEqual(self.told(f"- !permit {{roles: &g [{groups}], privilege: x, resources: *g}}", long), told)
        self.assertEqual(self.told(f"- !deny {{roles: &g [{groups}], privilege: x, resources: *g}}", long), told)
        times = ", ".join(["*g"] * 40)
        self.assertEqual(self.told(f"- !grant {{roles: [&g [{groups}], {times}], members: []}}", long), told)
        self.assertEqual(self.told(f"- !delete {{records: [&g [{groups}], {times}]}}", long), told)
        hosts = "".join(f"- !host {{id: h{n}, annotations: {{a: *v}}}}\n" for n in range(100))
        text = f"- !host {{id: h, annotations: {{a: &v {'y' * 10_000}}}}}\n{hosts}"
        self.assertEqual(self.told(text), told)

    def test_products_are_bounded(self) -> None:
        """Few lists whose product is millions of rows are refused before the rows are made (LIM-11)."""
        self.patch(resolve_module, "ROWS_LIMIT", 2000)
        many = ", ".join(f"!group g{n}" for n in range(50))
        text = f"- &g [{many}]\n- !permit {{role: *g, privilege: x, resource: *g}}\n"
        self.assertEqual(self.told(text), "More than 2000 grants and permissions")
        for tag in ("grant", "revoke"):
            text = f"- &g [{many}]\n- !{tag} {{role: *g, member: *g}}\n"
            self.assertEqual(self.told(text), "More than 2000 grants and permissions")

    def test_omitted_annotations(self) -> None:
        """An annotation of which nothing was written is warned of, not an empty text, and so are at most 100 (POL-36)."""
        text = "- !host\n  id: a\n  annotations:\n    x: #1\n    y: &z\n    v: ''\n    w: ~\n"
        hint = "In YAML # begins a comment and & an anchor: put quotes around a text that begins so."
        empty = tuple(f"The annotation '{name}' of {{}} is empty. {hint}" for name in ("x", "y"))
        self.assertEqual(tuple(w.replace("Host 'a'", "{}") for w in resolved(text).warnings), empty)
        many = "".join(f"    n{number}:\n" for number in range(102))
        warnings = resolved(f"- !host\n  id: a\n  annotations:\n{many}").warnings
        self.assertEqual((len(warnings), warnings[-1]), (101, "So are 2 other annotations."))

    def test_warnings(self) -> None:
        """An annotation that is called like an attribute is warned of, once (POL-36)."""
        text = (
            "- !host {id: a, annotations: {owner: x, fine: y}}\n- !host {id: b, annotations: {owner: x, restricted_to: y}}"
        )
        self.assertEqual(
            resolved(text).warnings,
            tuple(
                f"Annotation '{name}' matches a known policy attribute. This annotation will not be treated as a standard "
                "attribute and may not have the intended effect."
                for name in ("owner", "restricted_to")
            ),
        )
        self.assertEqual(resolved("- !variable {id: v, kind: x}").warnings, ())

    @given(STATEMENTS.flatmap(lambda statements: st.tuples(st.just(statements), st.permutations(statements))))
    def test_order_means_nothing(self, orders: tuple[list[str], list[str]]) -> None:
        """Statements in another order mean the same, or are refused as well (POL-21)."""
        statements, shuffled = orders
        try:
            meaning = row_sets(resolved(document(statements)).rows)
        except PolicyInvalid:
            self.assertRaises(PolicyInvalid, resolved, document(shuffled))
        else:
            self.assertEqual(row_sets(resolved(document(shuffled)).rows), meaning)

    @given(mangled(), st.sampled_from(["root", "a", "a/b"]))
    def test_any_document(self, text: str, into: str) -> None:
        """Any document means something, or is refused as policy, with a place, and nothing else happens."""
        try:
            meaning = resolved(text, into)
        except InvalidParameter as refusal:
            self.assertEqual(refusal.parameter, "policy_text")
        except PolicyInvalid as refusal:
            self.assertTrue(refusal.line is not None and refusal.column is not None, refusal)
        else:
            self.assertEqual(meaning.rows.resources, meaning.declared.resources)
            self.assertTrue(meaning.deletes or meaning.removals == Removals())

    @given(POLICIES)
    def test_keys_are_unique(self, text: str) -> None:
        """No two rows of a document have the same key, and all declared things have one owner."""
        try:
            rows = resolved(text).rows
        except PolicyInvalid:
            return
        self.assertEqual(len({row.resource for row in rows.resources}), len(rows.resources))
        self.assertEqual(len({row[:3] for row in rows.memberships}), len(rows.memberships))
        self.assertEqual(len(set(rows.permissions)), len(rows.permissions))
        self.assertEqual(len({row[:2] for row in rows.annotations}), len(rows.annotations))
        self.assertEqual(len(set(rows.restrictions)), len(rows.restrictions))


class ReferenceTests(ResolveTests):
    """What a document names."""

    def test_references(self) -> None:
        """What is named and not declared is a reference, with the place of its first mention."""
        meaning = resolved(
            "- !group g\n- !host {id: h, owner: !user o}\n- !grant\n  role: !group g\n  members: [!user o, !host x]\n"
        )
        self.assertEqual(dict(meaning.references), {"acct:user:o": (2, 24), "acct:host:x": (5, 22)})

    def test_what_lies_outside(self) -> None:
        """Granted roles and permitted resources outside of the policy are told, with their places; members never are."""
        meaning = resolved(
            "- !grant {role: !group /other/g, member: !user /me}\n- !grant {role: !group in, member: !group /dev2/g}\n"
            "- !permit {role: !group /x, privilege: x, resource: [!variable /dev2/v, !variable v, !user /dev, !host ]}",
            "dev",
        )
        self.assertEqual(dict(meaning.roles_granted), {"acct:group:other/g": (1, 17)})
        self.assertEqual(
            dict(meaning.resources_permitted),
            {"acct:variable:dev2/v": (3, 54), "acct:user:dev": (3, 86), "acct:host:dev": (3, 98)},
        )

    def test_annotated_namesakes_are_told(self) -> None:
        """A record that may be another's, as names go, counts as disposed of when it is annotated."""
        self.assertEqual(
            list(resolved("- !layer {annotations: {a: b}}", "jenkins").resources_permitted), ["acct:layer:jenkins"]
        )
        self.assertEqual(
            list(resolved("- !user {id: x, annotations: {a: b}}", "a-b").resources_permitted), ["acct:user:x@a-b"]
        )
        self.assertEqual(
            dict(resolved("- !layer\n- !user x\n- !host {id: h, annotations: {a: b}}", "jenkins").resources_permitted), {}
        )

    def test_the_root_has_no_outside_but_itself_and_its_owner(self) -> None:
        """From the root only the root policy and the admin lie outside."""
        meaning = resolved(
            "- !grant {roles: [!group a/b, !user x@y, !policy root, !user admin], member: !user u}\n"
            "- !permit {role: !user u, privilege: x, resource: [!user admin, !user /admin, !variable a/b]}"
        )
        self.assertEqual(list(meaning.roles_granted), ["acct:policy:root", ADMIN])
        self.assertEqual(list(meaning.resources_permitted), [ADMIN])

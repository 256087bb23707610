"""What a document rests on, and what an attacker would make of it."""

from __future__ import annotations

from collections.abc import Iterable

from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import Forbidden, InvalidParameter, PolicyInvalid
from svc.model.policy_loads import AnnotationRow, Changes, LoadMode, MembershipRow, PermissionRow
from svc.policy.resolve import find_missing
from tests.policy.world import ADMIN, World, resolved
from tests.sshkeys import ONE, TWO

REPLACE = LoadMode.REPLACE

#: The modes that take things away.
TAKING = (LoadMode.UPDATE, REPLACE)


class MissingTests(SynchronousTestCase):
    """Core 1.9: references to what isn't there."""

    def told(
        self, world: World, text: str, into: str = "root", mode: LoadMode = LoadMode.APPEND
    ) -> tuple[str, int | None, int | None]:
        """How a load is refused."""
        refusal = self.assertRaises(PolicyInvalid, world.load, text, into, mode)
        self.assertTrue(refusal.bare)
        return refusal.message, refusal.line, refusal.column

    def test_each_side_must_exist(self) -> None:
        """Owners, members, roles and resources that are neither declared nor there are named, with their place (POL-35)."""
        for text, message in (
            ("- !host {id: h, owner: !user bob}", "User 'bob' not found in account 'acct'"),
            ("- !grant {role: !group g, member: !user admin}", "Group 'g' not found in account 'acct'"),
            ("- !grant {role: !user admin, member: !layer l}", "Layer 'l' not found in account 'acct'"),
            ("- !permit {role: !host h, privilege: x, resource: !user admin}", "Host 'h' not found in account 'acct'"),
            (
                "- !permit {role: !user admin, privilege: x, resource: !variable a/v}",
                "Variable 'a/v' not found in account 'acct'",
            ),
        ):
            told = self.told(World(), text)
            self.assertEqual((told[0], told[1]), (message, 1))

    def test_dots_that_do_not_climb(self) -> None:
        """A granted role with ``..`` is looked for as it is written (POL-27)."""
        world = World()
        world.load("- !policy myapp\n- !layer default")
        told = self.told(world, "- !grant\n  role: !layer ../default\n  member: !user /admin", "myapp")
        self.assertEqual(told, ("Layer 'myapp/../default' not found in account 'acct'", 2, 9))

    def test_all_are_listed(self) -> None:
        """All missing references are found, in the order of the document (POL-53)."""
        meaning = resolved("- !grant {role: !group a, members: [!user b, !user c]}")
        refusals = list(find_missing(meaning, {"acct:user:b"}))
        self.assertEqual([refusal.message[:11] for refusal in refusals], ["Group 'a' n", "User 'c' no"])

    def test_declared_things_are_there(self) -> None:
        """What the document declares may be referred to before and after."""
        World().load("- !grant {role: !group g, member: !user u}\n- !group g\n- !user u\n- !host {id: h, owner: !group g}")

    def test_what_a_replacement_drops_is_missing(self) -> None:
        """A replacement can't refer to what it deletes; an update can (POL-35)."""
        world = World()
        world.load("- !policy dev")
        world.load("- !group g\n- !host h", "dev")
        text = "- !host h\n- !grant {role: !group g, member: !host h}"
        self.assertEqual(self.told(world, text, "dev", REPLACE)[0], "Group 'dev/g' not found in account 'acct'")
        world.load(text, "dev", LoadMode.UPDATE)

    def test_what_goes_along_is_missing(self) -> None:
        """Nor can it refer to what goes along with what it leaves out: what that owns, or recorded, and so on (POL-35)."""
        world = World()
        world.load("- !group g\n- !policy {id: dev, owner: !group g}\n- !policy sub\n- !user bob")
        world.load("- !host h\n- !variable v", "dev")
        world.load("- !user eve\n- !variable {id: theirs, owner: !user /bob}", "sub")
        before = {sort: dict(rows) for sort, rows in world.rows.items()}
        rest = "- !user bob\n- !group g\n"
        for text, message in (
            ("- !policy dev\n- !policy sub\n- !grant {role: !group g, member: !user bob}", "Group 'g'"),
            (
                f"{rest}- !policy sub\n- !permit {{role: !user bob, privilege: read, resource: !variable dev/v}}",
                "Variable 'dev/v'",
            ),
            (f"{rest}- !policy dev\n- !grant {{role: !group g, member: !user eve@sub}}", "User 'eve@sub'"),
            (f"{rest}- !policy dev\n- !host {{id: h, owner: !user eve@sub}}", "User 'eve@sub'"),
        ):
            self.assertEqual(self.told(world, text, "root", REPLACE)[0], f"{message} not found in account 'acct'")
            self.assertEqual(world.rows, before)
        kept = "- !policy {id: dev, owner: !group g}\n- !grant {role: !group g, member: !host dev/h}"
        world.load(f"{rest}{kept}", "root", REPLACE)

    def test_what_is_declared_is_kept(self) -> None:
        """A record of another policy's that a replacement declares can't go along with its owner or policy (POL-35)."""
        for text in ("- !variable sub/v\n", "- !policy {id: sub, body: [!variable v]}\n- !delete {record: !group g}"):
            world = World()
            world.load("- !group g\n- !policy sub")
            world.load("- !variable {id: v, owner: !group /g}", "sub")
            refusal = self.assertRaises(PolicyInvalid, world.load, text, "root", REPLACE)
            self.assertEqual(
                refusal.message, "Variable 'sub/v' would be deleted with its owner or its policy, which the document drops"
            )
            world.load("- !policy {id: sub, body: [!variable v]}\n- !delete {record: !variable sub/v}", "root", REPLACE)

    def test_automatic_roles(self) -> None:
        """An automatic role is never there (POL-20)."""
        world = World()
        world.load("- !layer l")
        told = self.told(
            world, "- !grant {role: !automatic-role {record: !layer l, role_name: use_host}, member: !user admin}"
        )
        self.assertEqual(told[0], "@ 'layer/l/use_host' not found in account 'acct'")

    def test_deletions_need_nothing(self) -> None:
        """What is revoked, denied or deleted need not be there; it is nothing to do (POL-23)."""
        text = (
            "- !revoke {role: !group no, member: !user no}\n- !deny {role: !user no, privilege: x, resource: !variable no}\n"
            "- !delete {record: !variable no}\n"
            "- !revoke {role: !automatic-role {record: !layer l, role_name: x}, member: !user no}\n"
        )
        for mode in (LoadMode.UPDATE, REPLACE):
            self.assertEqual(World().load(text, "root", mode), Changes())

    def test_appending_takes_nothing_away(self) -> None:
        """APPEND may not contain deletion statements, not even empty ones (POL-42)."""
        for text in (
            "- !revoke {role: [], member: []}",
            "- !deny {role: [], privilege: [], resource: []}",
            "- !delete {record: []}",
            "- !policy {id: p, body: [!delete {record: !user admin}]}",
        ):
            refusal = self.assertRaises(InvalidParameter, World().load, text)
            self.assertEqual(
                (refusal.parameter, refusal.message, refusal.code),
                ("policy_text", "may not contain deletion statements", "validation_failed"),
            )

    def test_a_refused_load_changes_nothing(self) -> None:
        """The refusal comes before any change."""
        world = World()
        before = {sort: dict(rows) for sort, rows in world.rows.items()}
        self.told(world, "- !group g\n- !grant {role: !group g, member: !user nobody}")
        self.assertEqual(world.rows, before)


class AttackTests(SynchronousTestCase):
    """Rulings 2.13: the owner of a policy who wants more. He holds what lies inside, and nothing else."""

    def setUp(self) -> None:
        """A root with secrets and admins, and a policy that belongs to mallory, beside others of like names."""
        self.world = World()
        self.world.load(
            "- !user mallory\n- !group admins\n- !variable secret\n"
            "- !host jenkins\n- !variable jenkins\n- !webservice jenkins\n- !user bob@jenkins\n"
            "- !policy {id: jenkins, owner: !user mallory}\n"
            "- !policy {id: jenkins2, body: [!group ops, !variable v, !user bob]}\n"
            "- !policy {id: jenkins-x, body: [!user bob]}\n"
            "- !policy {id: a/b, body: [!user eve]}\n- !policy {id: a-b, owner: !user mallory}\n"
            f"- !user {{id: carol, public_key: {ONE} laptop}}\n- !layer prod\n"
            "- !policy {id: user, owner: !user mallory}\n- !policy {id: user/carol, owner: !user mallory}\n"
        )

    def refused(self, text: str, into: str = "jenkins", modes: Iterable[LoadMode] = LoadMode) -> None:
        """The load is forbidden in every mode, and nothing of it is applied."""
        before = {sort: dict(rows) for sort, rows in self.world.rows.items()}
        for mode in modes:
            self.assertRaises(Forbidden, self.world.load, text, into, mode, ())
        self.assertEqual(self.world.rows, before)

    def test_foreign_roles_are_not_granted(self) -> None:
        """He can't grant himself a role outside, by whatever path."""
        for role in (
            "!group /admins",
            "!user /admin",
            "!policy /root",
            "!policy /jenkins2",
            "!group /jenkins2/ops",
            "!user /mallory",
            "!policy /a/b",
        ):
            self.refused(f"- !grant {{role: {role}, member: !user /mallory}}")
            self.refused(f"- !group g\n- !grant {{roles: [!group g, {role}], member: {{role: !group g, admin: true}}}}")
            self.refused(f"- !policy\n  id: sub\n  body:\n  - !grant {{role: {role}, member: !user /mallory}}")

    def test_foreign_resources_are_not_permitted(self) -> None:
        """He can't give himself privileges on what lies outside, by whatever path."""
        for resource in ("!variable /secret", "!user /admin", "!policy /root", "!variable /jenkins2/v", "!group /admins"):
            self.refused(f"- !permit {{role: !user /mallory, privilege: [read, execute], resource: {resource}}}")

    def test_namesakes_of_the_policy(self) -> None:
        """What stands beside the policy and is called like it isn't his: blank ids and absolute ones mean it (POL-62)."""
        for host, variable in (("!host ", "!variable "), ("!host /jenkins", "!variable /jenkins")):
            self.refused(f"- !grant {{role: {host}, member: !user /mallory}}")
            self.refused(f"- !permit {{role: !user /mallory, privilege: execute, resource: {variable}}}")
        self.refused("- !variable {annotations: {a: b}}")
        self.refused("- !webservice\n- !permit {role: !user /mallory, privilege: authenticate, resource: !webservice }")

    def test_namesakes_of_users(self) -> None:
        """Users that folding makes look like his aren't: neither the root's, nor those of a/b, nor of jenkins-x (POL-62)."""
        self.refused("- !grant {role: !user bob, member: !user /mallory}")
        self.refused("- !grant {role: !user x/bob, member: !user /mallory}")
        self.refused("- !permit {role: !user /mallory, privilege: update, resource: !user bob}")
        self.refused("- !user bob\n- !grant {role: !user bob, member: !user /mallory}")
        self.refused("- !user {id: bob, annotations: {a: b}}")
        self.refused("- !grant {role: !user eve, member: !user /mallory}", "a-b")
        self.refused("- !user eve\n- !permit {role: !user /mallory, privilege: update, resource: !user eve}", "a-b")

    def test_declaring_gives_nothing(self) -> None:
        """Declaring what exists beside his policy, as his own, is refused: the rest would speak of another's thing."""
        for text in (
            "- !webservice {owner: !user /mallory}",
            "- !user {id: bob, owner: !user /mallory}",
            "- !variable {owner: !user /mallory}",
        ):
            self.refused(text)

    def test_aliases_are_no_way_out(self) -> None:
        """A reference by alias is the same reference, wherever its anchor stands."""
        self.refused(
            "- !group g\n- !grant {role: !group g, member: &r !user /mallory}\n- !grant {role: *r, member: !user /mallory}\n"
        )
        self.refused("- !permit {role: &a [!group /admins], privilege: x, resource: *a}\n")

    def test_foreign_things_are_not_taken_away(self) -> None:
        """He can't revoke, deny or delete what lies outside, even where there is nothing to take."""
        for role in (
            "!group /admins",
            "!policy /root",
            "!user bob",
            "{kind: host, id: ''}",
            "!role {kind: group, id: /admins}",
        ):
            self.refused(f"- !revoke {{role: {role}, member: !user /mallory}}", modes=TAKING)
            self.refused(f"- !revoke {{roles: [{role}], members: []}}", modes=TAKING)
        for resource in ("!variable /secret", "!user /admin", "!policy /root", "!host ", "!resource {kind: user, id: bob}"):
            self.refused(f"- !deny {{role: !user /mallory, privilege: x, resource: {resource}}}", modes=TAKING)
            self.refused(f"- !delete {{record: {resource}}}", modes=TAKING)
            self.refused(f"- !group g\n- !delete {{records: [!group g, {resource}]}}", modes=TAKING)

    def test_public_keys_of_others(self) -> None:
        """The owner of a policy that is called like the place of a user's keys can't touch these."""
        for into, key in (("user", "carol/laptop"), ("user/carol", "laptop"), ("jenkins", "/user/carol/laptop")):
            resource = f"{{kind: public_key, id: {key}}}"
            self.refused(f"- !permit {{role: !user /mallory, privilege: update, resource: {resource}}}", into)
            self.refused(f"- !deny {{role: !user /mallory, privilege: update, resource: {resource}}}", into, TAKING)
            self.refused(f"- !delete {{record: {resource}}}", into, TAKING)
            for mode in LoadMode:
                text = f"- !resource {resource}"
                self.assertRaises(PolicyInvalid, self.world.load, text, into, mode, ())
        self.refused(f"- !user {{id: bob, public_key: {TWO} his}}")
        self.refused(f"- !user {{id: eve, public_key: {TWO} his}}", "a-b")

    def test_host_factories_of_others(self) -> None:
        """A host factory in a foreign layer grants that layer."""
        self.refused("- !host-factory {id: f, layers: [!layer /prod]}")
        self.refused("- !layer l\n- !host-factory {id: f, layers: [!layer l, {kind: layer, id: /prod}]}")

    def test_restrictions_of_others(self) -> None:
        """Who declares a foreign host neither locks it out nor lets it in."""
        self.world.load("- !policy {id: jenkins, body: [!host {id: h, restricted_to: 1.2.3.4}]}")
        before = self.world.all("restrictions")
        for mode in LoadMode:
            self.world.load("- !host {id: h, restricted_to: 0.0.0.0/0}", "jenkins", mode, ())
            self.world.load("- !host h", "jenkins", mode, ())
        self.assertEqual(self.world.all("restrictions"), before)

    def test_what_is_inside_is_his(self) -> None:
        """He may grant and permit what lies in his policy, old and new, and give it away (POL-57)."""
        self.world.load("- !policy {id: jenkins, body: [!group old, !variable v]}", "root", LoadMode.APPEND)
        self.world.load(
            "- !group new\n- !user carl\n"
            "- !grant {roles: [!group new, !group old, !user carl], member: !user /mallory}\n"
            "- !permit {role: !group /admins, privilege: x, resource: [!variable v, !user carl]}\n"
            "- !variable {id: w, owner: !group /admins}\n",
            "jenkins",
            LoadMode.APPEND,
            (),
        )
        self.assertIn(
            MembershipRow("acct:user:carl@jenkins", "acct:user:mallory", False, False), self.world.all("memberships")
        )
        self.assertIn(PermissionRow("acct:variable:jenkins/v", "x", "acct:group:admins"), self.world.all("permissions"))

    def test_the_policy_itself(self) -> None:
        """Its own role, which may hold what others gave to it, is not his to grant, unless he owns it (POL-60)."""
        self.world.load("- !policy {id: jenkins}", "root", LoadMode.APPEND)
        for text in (
            "- !grant {role: !policy , member: !user /mallory}",
            "- !permit {role: !user /mallory, privilege: x, resource: !policy }",
        ):
            self.refused(text)

    def test_his_own_namesakes_are_his(self) -> None:
        """What is called like the policy, and was recorded by it or is made by this load, is his (POL-57)."""
        text = "- !layer {annotations: {a: b}}\n- !grant {role: !layer , member: !user /mallory}"
        self.world.load(text, "jenkins", LoadMode.APPEND, ())
        self.world.load("- !grant {role: !layer , member: !host /jenkins}", "jenkins", LoadMode.APPEND, ())
        self.assertIn(AnnotationRow("acct:layer:jenkins", "a", "b"), self.world.all("annotations"))

    def test_powers_open_what_is_outside(self) -> None:
        """With the authority over a thing outside, a document may dispose of it (POL-58)."""
        text = "- !grant {role: !group /admins, member: !user /mallory}"
        self.world.load(text, "jenkins", LoadMode.APPEND, ["acct:group:admins"])
        self.assertIn(MembershipRow("acct:group:admins", "acct:user:mallory", False, False), self.world.all("memberships"))

    def test_the_admin_is_above_the_root(self) -> None:
        """Who may update the root policy still can't help himself to the admin's role (POL-60)."""
        for text in (
            "- !grant {role: !user admin, member: !user mallory}",
            "- !permit {role: !user mallory, privilege: update, resource: !user admin}",
            "- !user {id: admin, annotations: {authn-jwt/ci/sub: mallory}}",
            "- !user admin\n- !grant {role: !user /admin, member: !user mallory}",
        ):
            self.refused(f"- !user mallory\n{text}", "root")
        self.refused("- !user mallory\n- !user {id: admin, owner: !user mallory}", "root")
        self.assertIn(ADMIN, {row.resource for row in self.world.all("resources")})

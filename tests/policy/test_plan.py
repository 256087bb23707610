"""What a load has to do."""

from __future__ import annotations

import attrs
from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import InvalidParameter, PolicyInvalid
from svc.model.names import ROLE_KINDS
from svc.model.policy_loads import (
    AnnotationRow,
    Changes,
    LoadMode,
    MembershipRow,
    PermissionRow,
    PresentRows,
    Removals,
    ResourceRow,
    Rows,
)
from svc.policy.authority import find_affected_records, warn_of_foreign_records
from svc.policy.plan import find_new_actors, plan_changes, select_public_keys
from svc.policy.resolve import find_lost, refuse_deletions
from svc.policy.resolved_policy import ResolvedPolicy
from tests.policy.world import ADMIN, ROOT, WIDTHS, World, policy_named, resolved, row_sets
from tests.sshkeys import ONE, THREE, TWO
from tests.strategies import EDITS, LOAD_MODES, POLICIES

APPEND, UPDATE, REPLACE = LoadMode
DEV = policy_named("dev")


class PlanTests(SynchronousTestCase):
    """Core 1.8, mode by mode."""

    def setUp(self) -> None:
        """An account with a policy."""
        self.world = World()
        self.world.load("- !policy dev\n- !user alice\n- !group ops\n")

    def annotations(self) -> dict[str, str]:
        """Names and values of all annotations."""
        return {row.name: row.value for row in self.world.all("annotations")}

    def owner(self, name: str) -> str:
        """Who owns a thing, by the resource and by the membership, which agree."""
        (owner,) = (row.owner for row in self.world.all("resources") if row.resource == name)
        holders = {row.member for row in self.world.all("memberships") if row.role == name and row.ownership}
        self.assertIn(holders, ({owner}, set()))
        return str(owner)

    def test_new_rows_are_created(self) -> None:
        """Every mode creates what is new, recorded by the policy that the document is loaded into."""
        for mode in LoadMode:
            self.setUp()
            self.world.load(
                "- !host {id: h, annotations: {a: b}, restricted_to: 10.0.0.0/8}\n"
                "- !permit {role: !host h, privilege: x, resource: !host h}",
                "dev",
                mode,
            )
            for sort in WIDTHS:
                self.assertEqual(len(self.world.recorded(sort, DEV)), 1, sort)

    def test_nested_rows_are_of_the_loaded_policy(self) -> None:
        """What stands in a body is recorded by the policy that was loaded, not by the one around it (POL-34)."""
        self.world.load("- !policy {id: sub, body: [!host h]}", "dev")
        self.assertIn(ResourceRow("acct:host:dev/sub/h", "acct:policy:dev/sub"), self.world.recorded("resources", DEV))

    def test_append_changes_nothing(self) -> None:
        """APPEND leaves values, owners and admin options as they are, and deletes nothing (POL-42)."""
        self.world.load("- !host {id: h, annotations: {a: b}}\n- !grant {role: !host h, member: !user /alice}", "dev")
        before = {sort: self.world.all(sort) for sort in WIDTHS}
        text = (
            "- !host {id: h, owner: !user /alice, annotations: {a: c}}\n"
            "- !grant {role: !host h, member: {role: !user /alice, admin: true}}"
        )
        self.assertEqual(self.world.load(text, "dev"), Changes())
        self.assertEqual(self.world.load("[]", "dev"), Changes())
        self.assertEqual({sort: self.world.all(sort) for sort in WIDTHS}, before)

    def test_append_adds_annotations(self) -> None:
        """APPEND attaches annotations of new names to what is there."""
        self.world.load("- !host {id: h, annotations: {a: b}}", "dev")
        self.world.load("- !host {id: h, annotations: {a: x, c: d}}", "dev")
        self.assertEqual(self.annotations(), {"a": "b", "c": "d"})

    def test_update_changes(self) -> None:
        """UPDATE changes values, owners and admin options, and keeps what the document doesn't mention (POL-42)."""
        self.world.load(
            "- !host {id: h, annotations: {a: b, c: d}}\n- !grant {role: !host h, member: !user /alice}\n- !group g", "dev"
        )
        text = (
            "- !host {id: h, owner: !group /ops, annotations: {a: x}}\n"
            "- !grant {role: !host h, member: {role: !user /alice, admin: true}}"
        )
        changes = self.world.load(text, "dev", UPDATE)
        self.assertEqual(self.annotations(), {"a": "x", "c": "d"})
        self.assertEqual(self.owner("acct:host:dev/h"), "acct:group:ops")
        self.assertIn(MembershipRow("acct:host:dev/h", "acct:user:alice", False, True), self.world.all("memberships"))
        self.assertEqual(
            changes.delete, Rows(memberships=(MembershipRow("acct:host:dev/h", "acct:policy:dev", True, True),))
        )
        self.assertEqual(self.owner("acct:group:dev/g"), "acct:policy:dev")

    def test_replace_deletes(self) -> None:
        """REPLACE also deletes what the policy recorded and the document doesn't say, and nothing that others recorded
        (POL-42).
        """
        self.world.load(
            "- !host {id: h, annotations: {a: b}}\n- !group g\n- !grant {role: !group g, member: !host h}", "dev"
        )
        others = self.world.recorded("resources", ROOT)
        self.world.load("- !host {id: h, owner: !group /ops}", "dev", REPLACE)
        self.assertEqual(self.world.recorded("resources", DEV), {ResourceRow("acct:host:dev/h", "acct:group:ops")})
        self.assertEqual(
            self.world.recorded("memberships", DEV), {MembershipRow("acct:host:dev/h", "acct:group:ops", True, True)}
        )
        self.assertEqual(self.annotations(), {})
        self.assertEqual(self.world.recorded("resources", ROOT), others)

    def test_replacing_with_nothing(self) -> None:
        """REPLACE with an empty document wipes what the policy recorded; the policy itself stays, recorded elsewhere."""
        self.world.load("- !host h\n- !policy {id: sub, body: [!variable v]}", "dev")
        self.world.load("# nothing", "dev", REPLACE)
        for sort in WIDTHS:
            self.assertEqual(self.world.recorded(sort, DEV), set())
        self.assertIn("acct:policy:dev", {row.resource for row in self.world.all("resources")})
        self.world.load("[]", "root", REPLACE)
        self.assertEqual({row.resource for row in self.world.all("resources")}, {ADMIN, str(ROOT)})

    def test_an_owner_who_goes_is_followed(self) -> None:
        """A thing whose owner is dropped passes to its new one by an update, which comes before deletions."""
        self.world.load("- !group g\n- !variable {id: v, owner: !group g}", "dev")
        changes = self.world.load("- !variable v", "dev", REPLACE)
        self.assertEqual(changes.update.resources, (ResourceRow("acct:variable:dev/v", "acct:policy:dev"),))
        self.assertEqual([row.resource for row in changes.delete.resources], ["acct:group:dev/g"])

    def test_each_row_is_deleted_once(self) -> None:
        """An ownership that ends is deleted once, though it is unwanted and its owner changed."""
        self.world.load("- !host h", "dev")
        changes = self.world.load("- !host {id: h, owner: !group /ops}", "dev", REPLACE)
        self.assertEqual(changes.delete.memberships, (MembershipRow("acct:host:dev/h", "acct:policy:dev", True, True),))

    def test_lost_ownerships_come_back(self) -> None:
        """An ownership that is missing beside its resource is created, in every mode."""
        own = Rows(resources=(ResourceRow("acct:host:h", ADMIN),))
        for mode in LoadMode:
            changes = plan_changes(mode, resolved("- !host h").rows, PresentRows(own, Rows()))
            self.assertEqual(changes, Changes(create=Rows(memberships=(MembershipRow("acct:host:h", ADMIN, True, True),))))

    def test_new_actors(self) -> None:
        """Users and hosts that come to be are told, and only these (POL-38)."""
        changes = self.world.load(
            "- !user u\n- !host h\n- !group g\n- !policy p\n- !layer l\n- !variable v\n- !webservice w", "dev"
        )
        self.assertEqual(find_new_actors(changes), {"acct:user:u@dev": True, "acct:host:dev/h": True})
        self.assertEqual(
            find_new_actors(self.world.load("- !user u\n- !host {id: h, owner: !group /ops}", "dev", UPDATE)), {}
        )

    def test_new_actors_without_keys(self) -> None:
        """Of those that come to be, an annotation says which have no API key (TOK-53)."""
        changes = self.world.load(
            "".join(
                f"- !host {{id: h{n}, annotations: {{{a}}}}}\n"
                for n, a in enumerate(
                    ("authn/api-key: false", "authn/api-key: 'FALSE '", "authn/api-key: true", "authn/api-key/x: false")
                )
            ),
            "dev",
        )
        self.assertEqual([has_key for _, has_key in find_new_actors(changes).items()], [False, False, True, True])


class RestrictionTests(SynchronousTestCase):
    """Core 1.8: ``restricted_to`` in each mode."""

    def setUp(self) -> None:
        """A policy with a host that is restricted."""
        self.world = World()
        self.world.load("- !policy dev")
        self.world.load("- !host {id: h, restricted_to: [10.0.0.0/8, 1.2.3.4]}\n- !host other", "dev")

    def ranges(self) -> set[str]:
        """From where the host may log in."""
        return {row.cidr for row in self.world.all("restrictions") if row.role == "acct:host:dev/h"}

    def test_append_unites(self) -> None:
        """APPEND adds ranges to those that are there (POL-42)."""
        self.world.load("- !host {id: h, restricted_to: ['::1', 1.2.3.4]}", "dev")
        self.assertEqual(self.ranges(), {"10.0.0.0/8", "1.2.3.4/32", "::1/128"})
        self.world.load("- !host h", "dev")
        self.assertEqual(len(self.ranges()), 3)

    def test_others_replace(self) -> None:
        """UPDATE and REPLACE leave the ranges that the document has; none, when it has none (POL-42)."""
        for mode in (UPDATE, REPLACE):
            self.setUp()
            self.world.load("- !host {id: h, restricted_to: ['::1', 1.2.3.4]}", "dev", mode)
            self.assertEqual(self.ranges(), {"1.2.3.4/32", "::1/128"})
            self.world.load("- !host h", "dev", mode)
            self.assertEqual(self.ranges(), set())

    def test_what_is_not_mentioned_stays(self) -> None:
        """UPDATE leaves the ranges of a host that the document doesn't declare."""
        self.world.load("- !host other", "dev", UPDATE)
        self.assertEqual(self.ranges(), {"10.0.0.0/8", "1.2.3.4/32"})


class RemovalTests(SynchronousTestCase):
    """Core 1.8: deletion statements."""

    def setUp(self) -> None:
        """A policy that granted, permitted and declared, and one above it that did too."""
        self.world = World()
        self.world.load(
            "- !user alice\n- !policy {id: dev, body: [!host {id: rooted, annotations: {a: b}}]}\n- !group ops\n"
            "- !grant {role: !group ops, member: !user alice}\n"
            "- !permit {role: !user alice, privilege: read, resource: !host dev/rooted}\n"
        )
        self.world.load(
            "- !host h\n- !group g\n- !variable {id: v, owner: !group g}\n- !grant {role: !group g, member: !host h}\n"
            "- !permit {role: !host h, privileges: [read, execute], resource: !variable v}\n",
            "dev",
        )

    def resources(self) -> set[str]:
        """The ids of all resources."""
        return {row.resource.removeprefix("acct:") for row in self.world.all("resources")}

    def test_revoking(self) -> None:
        """A grant that the policy recorded is revoked, and the ownership of the same pair is not (POL-44)."""
        self.world.load("- !grant {role: !group g, member: !policy }", "dev")
        changes = self.world.load("- !revoke {role: !group g, members: [!host h, !policy ]}", "dev", UPDATE)
        self.assertEqual(
            set(changes.delete.memberships),
            {
                MembershipRow("acct:group:dev/g", "acct:host:dev/h", False, False),
                MembershipRow("acct:group:dev/g", "acct:policy:dev", False, False),
            },
        )
        self.assertIn(MembershipRow("acct:group:dev/g", "acct:policy:dev", True, True), self.world.all("memberships"))

    def test_denying(self) -> None:
        """A permission that the policy recorded is taken away; others of the same role and resource stay."""
        self.world.load("- !deny {role: !host h, privilege: read, resource: !variable v}", "dev", UPDATE)
        self.assertEqual(
            self.world.recorded("permissions", DEV), {PermissionRow("acct:variable:dev/v", "execute", "acct:host:dev/h")}
        )

    def test_rows_of_others(self) -> None:
        """What another policy granted or permitted is neither revoked nor denied (POL-44)."""
        text = (
            "- !revoke {role: !group /ops, member: !user /alice}\n"
            "- !deny {role: !user /alice, privilege: read, resource: !host rooted}\n"
        )
        for mode in (UPDATE, REPLACE):
            self.setUp()
            before = self.world.recorded("memberships", ROOT), self.world.recorded("permissions", ROOT)
            self.world.load(text, "dev", mode)
            self.assertEqual((self.world.recorded("memberships", ROOT), self.world.recorded("permissions", ROOT)), before)

    def test_deleting(self) -> None:
        """A record is deleted, no matter who recorded it, with what it owns (POL-45)."""
        for mode in (UPDATE, REPLACE):
            self.setUp()
            keep = "- !host h\n- !group g\n- !variable {id: v, owner: !group g}\n"
            self.world.load(f"{keep}- !delete {{records: [!group g, !host rooted, !host none]}}", "dev", mode)
            self.assertEqual(
                self.resources(), {"user:admin", "policy:root", "user:alice", "policy:dev", "group:ops", "host:dev/h"}
            )

    def test_deletions_win(self) -> None:
        """What a document makes and also takes away isn't there afterwards, nor what it would own (POL-23)."""
        text = (
            "- !host h\n- !group g\n- !group new\n- !host {id: late, owner: !group new, restricted_to: 1.2.3.4}\n"
            "- !variable {id: later, owner: !host late, annotations: {a: b}}\n"
            "- !grant {role: !group g, members: [!host h, !group new, !host late]}\n"
            "- !permit {role: !host h, privilege: [read, fly], resource: [!group g, !variable later]}\n"
            "- !revoke {role: !group g, member: !host h}\n"
            "- !deny {role: !host h, privilege: read, resource: !group g}\n"
            "- !delete {record: !group new}\n"
        )
        for mode in (UPDATE, REPLACE):
            self.setUp()
            changes = self.world.load(text, "dev", mode)
            self.assertEqual(find_new_actors(changes), {})
            self.assertEqual([row for row in self.resources() if "late" in row or "new" in row], [])
            grants = {row for row in self.world.recorded("memberships", DEV) if not row.ownership}
            self.assertEqual(grants, set())
            self.assertIn(PermissionRow("acct:group:dev/g", "fly", "acct:host:dev/h"), self.world.all("permissions"))
            self.assertNotIn(PermissionRow("acct:group:dev/g", "read", "acct:host:dev/h"), self.world.all("permissions"))
            self.assertEqual(self.world.load(text, "dev", mode), Changes())

    def test_recorder_deleted(self) -> None:
        """What a deleted policy had recorded and the document wants is there afterwards, recorded by the loaded policy; what
        the document also revokes isn't (POL-94).
        """
        granted = (
            "- !grant {role: !group /staff, members: [!user /alice, !host /dev/h]}\n"
            "- !permit {role: !user /alice, privilege: read, resource: !group /staff}\n"
        )
        for mode in (UPDATE, REPLACE):
            self.setUp()
            self.world.load("- !policy old\n- !policy new\n- !group staff")
            self.world.load(granted, "old")
            text = f"{granted}- !revoke {{role: !group /staff, member: !host /dev/h}}\n- !delete {{record: !policy /old}}\n"
            changes = self.world.load(text, "new", mode)
            self.assertEqual(changes.delete.resources, (ResourceRow("acct:policy:old", ADMIN),))
            into, granted_row = policy_named("new"), MembershipRow("acct:group:staff", "acct:user:alice", False, False)
            self.assertEqual(self.world.recorded("memberships", into), {granted_row})
            self.assertEqual(
                self.world.recorded("permissions", into), {PermissionRow("acct:group:staff", "read", "acct:user:alice")}
            )
            self.assertEqual(self.world.load(text, "new", mode), Changes())

    def test_annotation_of_a_deleted_recorder(self) -> None:
        """So is an annotation (POL-94)."""
        self.world.load("- !policy old\n- !host {id: old/h, owner: !user admin}")
        self.world.load("- !host {id: h, annotations: {a: b}}", "old")
        text = "- !host {id: old/h, owner: !user admin, annotations: {a: b}}\n- !delete {record: !policy old}"
        self.world.load(text, "root", UPDATE)
        self.assertIn(AnnotationRow("acct:host:old/h", "a", "b"), self.world.recorded("annotations", ROOT))

    def test_public_keys(self) -> None:
        """A policy keeps the public keys that it recorded or now records, and leaves those of others alone."""
        text = f"- !user {{id: u, public_keys: [{ONE} one, {TWO} two]}}"
        one, two = "acct:public_key:user/u@dev/one", "acct:public_key:user/u@dev/two"
        self.world.load(f"- !user {{id: dev/u, public_key: {THREE} one}}")
        meaning = resolved(text, "dev")
        present = self.world.present(DEV, meaning.rows)
        changes = plan_changes(APPEND, meaning.rows, present)
        self.assertEqual(select_public_keys(meaning.public_keys, present, changes), {two: f"{TWO} two"})
        self.world.apply(DEV, changes)
        present = self.world.present(DEV, meaning.rows, [two])
        self.assertEqual(select_public_keys(meaning.public_keys, present, Changes()), {two: f"{TWO} two"})
        deleted = plan_changes(UPDATE, meaning.rows, present, Removals(resources=(one, two)))
        self.assertEqual(select_public_keys(meaning.public_keys, present, deleted), {})


class ForeignTests(SynchronousTestCase):
    """Note [Foreign records]: rows of another policy, or of none."""

    def setUp(self) -> None:
        """The root recorded things in the namespace of a policy."""
        self.world = World()
        self.world.load(
            "- !user me\n- !policy\n  id: dev\n  body:\n"
            "  - !host {id: h, annotations: {a: b}}\n  - !variable v\n  - !user bob\n"
            "  - !grant {role: !host h, member: !user bob}\n"
            "  - !permit {role: !host h, privilege: read, resource: !variable v}\n"
        )
        self.before = {sort: self.world.recorded(sort, ROOT) for sort in WIDTHS}

    def test_foreign_rows_are_skipped(self) -> None:
        """What another policy recorded is skipped in silence, row by row, in every mode (POL-43)."""
        text = (
            "- !host {id: h, annotations: {a: mine}}\n- !variable {id: v, owner: !user /me}\n"
            "- !grant {role: !host h, member: {role: !user bob, admin: true}}\n"
            "- !permit {role: !host h, privilege: read, resource: !variable v}\n"
        )
        for mode in LoadMode:
            self.assertEqual(self.world.load(text, "dev", mode), Changes(), mode)
        self.assertEqual({sort: self.world.recorded(sort, ROOT) for sort in WIDTHS}, self.before)

    def test_declaring_is_not_seizing(self) -> None:
        """Declaring a foreign role with an owner of one's own makes nobody its owner or member."""
        for mode in LoadMode:
            for text in ("- !host {id: h, owner: !user /me}", "- !user {id: bob, owner: !user /me}"):
                self.assertEqual(self.world.load(text, "dev", mode), Changes())
        self.assertEqual([row for row in self.world.all("memberships") if row.member == "acct:user:me"], [])

    def test_new_rows_about_foreign_things(self) -> None:
        """New annotations of, grants of and permissions on a foreign thing are recorded by the loading policy (POL-43)."""
        text = (
            "- !host {id: h, annotations: {a: x, new: y}}\n- !grant {role: !host h, member: !user /me}\n"
            "- !permit {role: !user /me, privilege: read, resource: !variable v}\n"
        )
        for mode in LoadMode:
            self.setUp()
            self.world.load(text, "dev", mode)
            self.assertEqual(self.world.recorded("annotations", DEV), {AnnotationRow("acct:host:dev/h", "new", "y")})
            self.assertEqual(
                self.world.recorded("memberships", DEV), {MembershipRow("acct:host:dev/h", "acct:user:me", False, False)}
            )
            self.assertEqual(
                self.world.recorded("permissions", DEV), {PermissionRow("acct:variable:dev/v", "read", "acct:user:me")}
            )
            self.world.load("[]", "dev", REPLACE)
            self.assertEqual({sort: self.world.recorded(sort, ROOT) for sort in WIDTHS}, self.before)

    def test_no_policy_recorded_the_first_things(self) -> None:
        """The admin and the root policy may be declared, and stay as they are (POL-43)."""
        for mode in LoadMode:
            changes = self.world.load("- !user admin\n- !policy {id: root, owner: !user me}\n- !user me", "root", mode)
            self.assertEqual(changes.create, Rows())
            self.assertEqual(changes.update, Rows())
        self.assertIn(ResourceRow(str(ROOT), ADMIN), self.world.all("resources"))
        self.assertEqual(find_new_actors(changes), {})


LOADS = st.lists(st.tuples(st.sampled_from(["root", "a", "a-b", "a/b"]), LOAD_MODES, POLICIES), min_size=1, max_size=4)


class PropertyTests(SynchronousTestCase):
    """What holds for all documents, whatever was loaded before."""

    def loaded(self, loads: list[tuple[str, LoadMode, str]]) -> tuple[World, ResolvedPolicy, LoadMode, str]:
        """A world after these loads, without those refused or that take away what they refer to, and the last of them."""
        world, wanted, last = World(), resolved("[]", "root"), (APPEND, "root")
        for into, mode, text in loads:
            try:
                meaning = resolved(text, into)
            except PolicyInvalid:
                continue
            policy = policy_named(into)
            before = {sort: dict(rows) for sort, rows in world.rows.items()}
            world.apply(policy, plan_changes(mode, meaning.rows, world.present(policy, meaning.rows)))
            if any((full,) in before["resources"] and (full,) not in world.rows["resources"] for full in meaning.references):
                world.rows = before
                continue
            wanted, last = meaning, (mode, into)
        return world, wanted, *last

    @given(LOADS)
    @example([("root", APPEND, "- !user a"), ("root", REPLACE, "- !grant {role: !user a, member: !user a}")])
    @example(
        [
            ("root", APPEND, "- !policy a"),
            ("a", APPEND, "- !user u"),
            ("root", REPLACE, "- !permit {role: !user u@a, privilege: read, resource: !user u@a}"),
        ]
    )
    def test_loading_again_changes_nothing(self, loads: list[tuple[str, LoadMode, str]]) -> None:
        """Once a document is loaded, loading it again in the same mode or a lesser one changes nothing (POL-49)."""
        world, meaning, mode, into = self.loaded(loads)
        policy, wanted = policy_named(into), meaning.rows
        for again in list(LoadMode)[: list(LoadMode).index(mode) + 1]:
            self.assertEqual(plan_changes(again, wanted, world.present(policy, wanted)), Changes(), again)

    @given(LOADS)
    @example([("root", APPEND, "- !user a"), ("root", APPEND, "- !group {id: a, owner: !user a}")])
    def test_replacing_makes_it_so(self, loads: list[tuple[str, LoadMode, str]]) -> None:
        """After REPLACE a policy has recorded what its document says, but for what others had recorded, and no more; one
        that would take away what it refers to is refused.
        """
        world, meaning, _, into = self.loaded(loads)
        policy, wanted = policy_named(into), meaning.rows
        present = world.present(policy, wanted)
        world.apply(policy, plan_changes(REPLACE, wanted, present))
        if any(find_lost(meaning, present, {key[0] for key in world.rows["resources"]})):
            return
        foreign = {sort: {row[:width] for row in getattr(present.foreign, sort)} for sort, width in WIDTHS.items()}
        for sort, rows in row_sets(wanted).items():
            due = {row for row in rows if row[: WIDTHS[sort]] not in foreign[sort]}
            if sort == "restrictions":
                due = {row for row in due if (row.role,) not in foreign["resources"]}
            if sort == "memberships":
                due = {row for row in due if not (row.ownership and (row.role,) in foreign["resources"])}
            self.assertEqual(world.recorded(sort, policy), due, sort)

    @given(LOADS)
    def test_owners_hold_their_roles(self, loads: list[tuple[str, LoadMode, str]]) -> None:
        """After any loads each role has one ownership, and that is its resource's owner."""
        world, *_ = self.loaded(loads)
        holders = {(row.role, row.member) for row in world.all("memberships") if row.ownership}
        owners = {(row.resource, row.owner) for row in world.all("resources")}
        self.assertEqual(holders, {pair for pair in owners if pair[0].split(":")[1] in ROLE_KINDS})

    @given(LOADS, EDITS, st.sampled_from([UPDATE, REPLACE]))
    def test_deletions_win(self, loads: list[tuple[str, LoadMode, str]], text: str, mode: LoadMode) -> None:
        """After a load that takes things away these are gone, whatever else its document says; loading it again changes
        nothing.
        """
        world, *_ = self.loaded(loads)
        try:
            meaning = resolved(text, "a")
        except PolicyInvalid:
            return
        policy, removals = policy_named("a"), meaning.removals
        before = {row.resource for row in world.all("resources")}
        old = {sort: world.all(sort) for sort in WIDTHS}
        present = world.present(policy, meaning.rows, removals.resources)
        world.apply(policy, plan_changes(mode, meaning.rows, present, removals))
        self.assertEqual({row.resource for row in world.all("resources")}.intersection(removals.resources), set())
        for sort in WIDTHS:
            for row in world.all(sort):
                # Loads that nobody checked may have left rows about what never was.
                named = set(row[:2]).intersection(removals.resources)
                self.assertFalse(named & before or (named and row not in old[sort]), row)
        granted = {row[:2] for row in world.recorded("memberships", policy) if not row.ownership}
        self.assertEqual(granted.intersection(removals.memberships), set())
        self.assertEqual(world.recorded("permissions", policy).intersection(removals.permissions), set())
        vanished = before - {row.resource for row in world.all("resources")} - set(removals.resources)
        if vanished.isdisjoint({str(policy), *meaning.references, *(row.resource for row in meaning.declared.resources)}):
            # Nothing that the document needs or names went along with what it deletes.
            world.apply_again(policy, meaning, Changes())
            present = world.present(policy, meaning.rows, removals.resources)
            self.assertEqual(plan_changes(mode, meaning.rows, present, removals), Changes())

    @given(LOADS, st.one_of(POLICIES, EDITS), st.sampled_from([APPEND, UPDATE]), st.sampled_from(["root", "a", "a/b"]))
    def test_what_is_named_is_enough(
        self, loads: list[tuple[str, LoadMode, str]], text: str, mode: LoadMode, into: str
    ) -> None:
        """Unless it replaces a policy, a load changes and disposes of the same, whether all was read that the policy has
        recorded or only what its document names.
        """
        world, *_ = self.loaded(loads)
        try:
            meaning = resolved(text, into)
            refuse_deletions(mode, meaning)
        except (PolicyInvalid, InvalidParameter):
            return
        policy = policy_named(into)
        whole = world.present(policy, meaning.rows, meaning.removals.resources)
        named = world.present_named(policy, meaning.row_keys)
        expected, changes = (plan_changes(mode, meaning.rows, present, meaning.removals) for present in (whole, named))
        self.assertEqual(row_sets(changes.create), row_sets(expected.create))
        self.assertEqual(row_sets(changes.update), row_sets(expected.update))
        self.assertEqual(row_sets(changes.delete), row_sets(expected.delete))
        of_whole, of_named = (find_affected_records(meaning, present, expected) for present in (whole, named))
        self.assertEqual(attrs.evolve(of_named, own=frozenset()), attrs.evolve(of_whole, own=frozenset()))
        judged = {*of_whole.granted, *of_whole.changed, *of_whole.deleted, *of_whole.declared}
        self.assertEqual(of_named.own & judged, of_whole.own & judged)
        self.assertEqual(warn_of_foreign_records(meaning, named), warn_of_foreign_records(meaning, whole))
        self.assertEqual(
            select_public_keys(meaning.public_keys, named, expected),
            select_public_keys(meaning.public_keys, whole, expected),
        )

    @given(LOADS, EDITS, st.sampled_from([UPDATE, REPLACE]))
    def test_only_records_are_deleted_from_others(
        self, loads: list[tuple[str, LoadMode, str]], text: str, mode: LoadMode
    ) -> None:
        """Of what another policy recorded, a load plans to delete the records that its document deletes, and no more."""
        world, *_ = self.loaded(loads)
        try:
            meaning = resolved(text, "a/b")
        except PolicyInvalid:
            return
        policy, removals = policy_named("a/b"), meaning.removals
        delete = plan_changes(mode, meaning.rows, world.present(policy, meaning.rows, removals.resources), removals).delete
        for sort in WIDTHS:
            foreign = set(getattr(delete, sort)) - world.recorded(sort, policy)
            if sort == "resources":
                self.assertEqual({row.resource for row in foreign} - set(removals.resources), set())
            else:
                self.assertEqual(foreign, set())

    @given(LOADS, POLICIES, LOAD_MODES)
    def test_others_are_left_alone(self, loads: list[tuple[str, LoadMode, str]], text: str, mode: LoadMode) -> None:
        """A load never changes or deletes what another policy recorded (POL-43)."""
        world, *_ = self.loaded(loads)
        try:
            wanted = resolved(text, "a/b").rows
        except PolicyInvalid:
            return
        policy = policy_named("a/b")
        others = {sort: [kept for kept in rows.values() if kept[1] != policy] for sort, rows in world.rows.items()}
        world.apply(policy, plan_changes(mode, wanted, world.present(policy, wanted)))
        for sort, rows in others.items():
            self.assertEqual([kept for kept in world.rows[sort].values() if kept[1] != policy], rows)

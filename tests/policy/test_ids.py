"""Ids relative to policies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.policy.ids import identifier_of, is_inside, join_path, resolve_parents
from tests.policy.world import ROOT, policy_named
from tests.strategies import PATHS

UPWARD = st.lists(st.sampled_from(["a", "b", ".", "", "..", "..."]), min_size=1, max_size=6).map("/".join)
KINDS = st.sampled_from(["user", "host", "group", "policy", "variable"])


class PathTests(SynchronousTestCase):
    """Core 1.4."""

    def test_ids_stand_under_their_policy(self) -> None:
        """An id gets its policy in front; the blank one is the policy's own."""
        self.assertEqual(join_path("dev/db", "password"), "dev/db/password")
        self.assertEqual(join_path("dev/db", ""), "dev/db")
        self.assertEqual(join_path("", "password"), "password")
        self.assertEqual(join_path("", ""), "")

    def test_dots_climb(self) -> None:
        """Each ``..`` takes away the element before it, and none may take away what isn't there."""
        self.assertEqual(resolve_parents("myapp/../the-group"), "the-group")
        self.assertEqual(resolve_parents("a/b/../../c/d/../e"), "c/e")
        self.assertEqual(resolve_parents("a/../..a/b.."), "..a/b..")
        for path in ("..", "../a", "a/../../b", "a/..", "a/b/../.."):
            self.assertIsNone(resolve_parents(path), path)

    @given(UPWARD)
    def test_climbing_ends(self, path: str) -> None:
        """What was climbed holds no more ``..``, and climbs no further."""
        once = resolve_parents(path)
        if once is not None:
            self.assertNotIn("..", once.split("/"))
            self.assertEqual(resolve_parents(once), once)

    @given(PATHS, PATHS)
    def test_climbing_undoes_descending(self, path: str, detour: str) -> None:
        """As many steps up as down lead back."""
        steps = "/".join([".."] * len(detour.split("/")))
        self.assertEqual(resolve_parents(f"{path}/{detour}/{steps}/x"), f"{path}/x")

    def test_users_are_folded(self) -> None:
        """The last element of a user's path stands in front, the rest behind ``@`` with dashes (POL-29)."""
        self.assertEqual(identifier_of("user", "a/b/bob"), "bob@a-b")
        self.assertEqual(identifier_of("user", "dev/bob"), "bob@dev")
        self.assertEqual(identifier_of("user", "bob"), "bob")
        self.assertEqual(identifier_of("user", "dev/bob@x"), "bob@x@dev")
        self.assertEqual(identifier_of("host", "a/b/bob"), "a/b/bob")

    @given(PATHS)
    def test_users_have_no_slash(self, path: str) -> None:
        """No slash is left in the identifier of a user, so it can't be taken for the login of a host (POL-29)."""
        self.assertNotIn("/", identifier_of("user", path))


class InsideTests(SynchronousTestCase):
    """What a policy may dispose of by the name alone (POL-57)."""

    def test_what_lies_beneath(self) -> None:
        """What lies beneath a policy is inside; the policy itself, whose role others may have given something to, is not."""
        policy = policy_named("dev")
        self.assertTrue(is_inside(policy, "group", "dev/ops"))
        self.assertTrue(is_inside(policy, "variable", "dev/db/password"))
        self.assertTrue(is_inside(policy, "policy", "dev/db"))
        self.assertFalse(is_inside(policy, "policy", "dev"))

    def test_what_only_looks_like_it(self) -> None:
        """Names that begin alike, contain the policy's, or differ in case are outside."""
        policy = policy_named("dev")
        for identifier in (
            "dev2/ops",
            "dev2",
            "de",
            "dev-ops",
            "Dev/ops",
            "x/dev/ops",
            "/dev/ops",
            "ops",
            "root",
            " dev/ops",
        ):
            self.assertFalse(is_inside(policy, "group", identifier), identifier)
            self.assertFalse(is_inside(policy, "policy", identifier), identifier)

    def test_namesakes_are_outside(self) -> None:
        """A thing of another kind that is called like the policy may stand beside it: that is outside."""
        for kind in ("host", "group", "layer", "variable", "webservice", "user"):
            self.assertFalse(is_inside(policy_named("jenkins"), kind, "jenkins"), kind)

    def test_users_are_outside(self) -> None:
        """Folding makes the users of a-b, of a/b and of the root alike: names prove nothing about them (POL-62)."""
        for identifier in ("bob@a-b", "bob@a-b-c", "a-b", "a-b/bob", "bob"):
            self.assertFalse(is_inside(policy_named("a-b"), "user", identifier), identifier)

    def test_public_keys_are_outside(self) -> None:
        """A public key is called like its user, and so lies beneath policies that have nothing to do with him."""
        for policy in ("user", "user/bob"):
            self.assertFalse(is_inside(policy_named(policy), "public_key", "user/bob/laptop"), policy)
        self.assertTrue(is_inside(ROOT, "public_key", "user/bob/laptop"))

    def test_the_root_holds_all_but_itself_and_its_owner(self) -> None:
        """To the root policy all is inside, save itself and the admin who owns it."""
        for kind, identifier in (
            ("user", "bob"),
            ("policy", "root/x"),
            ("variable", "x/y"),
            ("host", "admin"),
            ("user", "admin@dev"),
        ):
            self.assertTrue(is_inside(ROOT, kind, identifier))
        self.assertFalse(is_inside(ROOT, "user", "admin"))
        self.assertFalse(is_inside(ROOT, "policy", "root"))

    @given(PATHS.filter(lambda path: path != "root"), KINDS, PATHS)
    def test_inside_means_beneath(self, policy: str, kind: str, identifier: str) -> None:
        """Whatever is inside a policy has the policy's elements in front."""
        if is_inside(policy_named(policy), kind, identifier):
            elements = policy.split("/")
            self.assertEqual(identifier.split("/")[: len(elements)], elements)
            self.assertNotEqual(kind, "user")

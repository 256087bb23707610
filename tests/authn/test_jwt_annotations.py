"""Tests of ``svc.authn.settings`` and ``svc.authn.jwt``: what a host's annotations must be."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.authn.checks import find_claim
from svc.authn.settings import DENIED, claim_fault, name_fault, read_aliases, read_enforced
from svc.model.key_sets import EvidenceRefused
from svc.model.reasons import Reason
from tests.authn.test_claims import VALUES, Case, claims
from tests.authn.verified import check_claims, check_enforced, check_names, check_permitted, check_present

#: Texts that look like lists.
LISTS = st.text(st.sampled_from("ab/:, \t$1\x00é"), max_size=12)


class EnforcedListTests(SynchronousTestCase):
    """``read_enforced``."""

    def faults(self, text: str, nested: bool = False) -> list[str]:
        """What is wrong with a list."""
        return read_enforced(text, nested=nested)[1]

    def test_names_with_commas_between(self) -> None:
        """Names stand between commas, and blanks around them count for nothing."""
        for text in ("ref,sub", " ref , sub ", "ref,\n\tsub\n"):
            self.assertEqual(read_enforced(text, nested=False), (("ref", "sub"), []))

    def test_empty_items(self) -> None:
        """A comma at either end, or two together, leave an item empty (AUTH-28)."""
        for text in (",a", "a,", "a,,b", ",", " , ", ""):
            (fault,) = self.faults(text)
            self.assertIn("an item is empty", fault)

    def test_duplicates(self) -> None:
        """A claim that is enforced twice is a mistake (AUTH-28)."""
        self.assertEqual(self.faults("a,b, a"), ["'a' stands there twice"])

    def test_names(self) -> None:
        """What can't name a claim, or names a registered one, can't be enforced; a path only where those are supported
        (AUTH-28).
        """
        for name in ("a b", "1a", "a[0]", "a:b", "/a", "a//b"):
            for nested in (True, False):
                self.assertEqual(len(self.faults(name, nested)), 1, name)
        for name in DENIED:
            self.assertIn("registered", self.faults(name)[0])
        self.assertEqual(self.faults("a/b", nested=True), [])
        self.assertIn("is a path", self.faults("a/b")[0])

    def test_every_fault(self) -> None:
        """All faults are told, not just the first."""
        self.assertEqual(len(self.faults("iss,a b,,x,x")), 4)

    @given(LISTS)
    def test_any_text_is_decided(self, text: str) -> None:
        """Whatever the text is, there are faults, or distinct names that claims can have."""
        names, faults = read_enforced(text, nested=True)
        if not faults:
            self.assertEqual(len(set(names)), len(names))
            for name in names:
                self.assertIsNone(name_fault(name, nested=True))


class AliasListTests(SynchronousTestCase):
    """``read_aliases``."""

    def faults(self, text: str, nested: bool = False) -> list[str]:
        """What is wrong with a list."""
        return read_aliases(text, nested=nested)[1]

    def test_pairs_with_commas_between(self) -> None:
        """Pairs stand between commas, and blanks around commas and colons count for nothing."""
        for text in ("branch:ref,app:sub", " branch : ref , app: sub ", "branch: ref,\n app: sub\n"):
            self.assertEqual(read_aliases(text, nested=False), ({"branch": "ref", "app": "sub"}, []))

    def test_paths(self) -> None:
        """A claim may be a path where those are supported; an annotation never."""
        self.assertEqual(read_aliases("pod: k8s/pod", nested=True), ({"pod": "k8s/pod"}, []))
        self.assertIn("is a path", self.faults("pod: k8s/pod")[0])
        for nested in (True, False):
            (fault,) = self.faults("k8s/pod: pod", nested)
            self.assertIn("holds a slash", fault)

    def test_empty_items(self) -> None:
        """A comma at either end, or two together, leave an item empty (AUTH-28)."""
        for text in (",a:b", "a:b,", "a:b,,c:d", ",", " ,, ", ""):
            (fault,) = self.faults(text)
            self.assertIn("an item is empty", fault)

    def test_two_sides(self) -> None:
        """An item has one colon, with something on both sides."""
        for item in ("a", "a:", ":b", ":"):
            (fault,) = self.faults(item)
            self.assertIn("is not of the form", fault)

    def test_names(self) -> None:
        """What can't name a claim, or names a registered one, may stand on neither side (AUTH-28)."""
        for name in ("a b", "a[0]", "a:", "x" * 300 + ":"):
            self.assertIn("can't name a claim, since it has a blank", self.faults(f"x: {name}")[0])
        for name in ("a b", "1a", "a[0]", "é"):
            self.assertIn("can't name a claim in an annotation, where a name begins", self.faults(f"{name}: x")[0])
        (fault,) = self.faults("x: a//b", nested=True)
        self.assertIn("is no path of claims, in which each name begins with a letter, '$', '_' or '|'", fault)
        for name in DENIED:
            for item in (f"{name}: x", f"x: {name}"):
                self.assertIn("registered", self.faults(item)[0])

    def test_duplicates(self) -> None:
        """No annotation stands for two claims, and no claim has two names (AUTH-28)."""
        self.assertEqual(self.faults("a: x, a: y"), ["the annotation 'a' stands there twice"])
        self.assertEqual(self.faults("a: x, b: x"), ["the claim 'x' stands there twice"])
        self.assertEqual(len(self.faults("a: x, a: x")), 2)

    def test_names_as_they_are(self) -> None:
        """A claim may have a name that no annotation has: an address, colons, ``@``, a digit first, other letters. It is
        taken as it is written, in both dialects; what looks like a path, and is none, is a fault (AUTH-27).
        """
        for claim in (
            "cognito:username",
            "cognito:groups:first",
            "https://acme.example/role",
            "https://acme.example/",
            "urn:acme:role",
            "@id",
            "user@domain",
            "1a",
            "2fa:level",
            "naïve",
            "角色",
            "a+b",
            "http://schemas.example.org/ws/2005/05/identity/claims/name",
        ):
            for nested in (True, False):
                self.assertEqual(read_aliases(f"role: {claim}", nested=nested), ({"role": claim}, []))
                held = claims(**{claim: "admin"})
                check_claims({"role": "admin"}, held, {"role": claim}, nested=nested)
                self.assertIsNone(find_claim({"https:": {"": {"acme.example": {"role": "x"}}}}, claim, nested=True))
                read = read_enforced(claim, nested=nested, renamed={claim})
                self.assertEqual(read, ((claim,), []))
                self.assertEqual(len(read_enforced(claim, nested=nested)[1]), 1)
        for text in ("a: k8s//pod", "a: /pod", "a: pod/", "a: 9/pod", "a::b", "a:b:", "a: b c:d"):
            for nested in (True, False):
                self.assertEqual(len(self.faults(text, nested)), 1, text)

    def test_chains(self) -> None:
        """An alias may have the name of a claim that has one."""
        self.assertEqual(self.faults("a: b, b: c"), [])

    def test_every_fault(self) -> None:
        """All faults are told, not just the first."""
        self.assertEqual(len(self.faults("iss: a b, x, ,p/q: exp")), 6)

    @given(LISTS)
    def test_any_text_is_decided(self, text: str) -> None:
        """Whatever the text is, there are faults, or as many claims as aliases, each with a name that it can have."""
        aliases, faults = read_aliases(text, nested=True)
        if not faults:
            self.assertEqual(len(set(aliases.values())), len(aliases))
            for alias, claim in aliases.items():
                self.assertIsNone(name_fault(alias, nested=False))
                self.assertIsNone(claim_fault(claim, nested=True))


class AnnotationTests(Case):
    """The checks, one after the other."""

    def check(
        self,
        annotations: Mapping[str, str],
        nested: bool = False,
        enforced: Sequence[str] = (),
        aliases: Mapping[str, str] | None = None,
        **members: object,
    ) -> None:
        """Make every check."""
        aliases = aliases or {}
        check_names(annotations, nested=nested)
        check_present(annotations)
        check_enforced(annotations, enforced, aliases)
        check_permitted(annotations, aliases)
        check_claims(annotations, claims(**members), aliases, nested=nested)

    def test_all_are_equal(self) -> None:
        """A token passes when each annotation has the exact text of its claim (AUTH-33)."""
        self.check({"repo": "org/app", "ref": "main"}, repo="org/app", ref="main", other=1)

    def test_there_is_one(self) -> None:
        """A host without annotation is open to every token of the provider, and so to none (AUTH-32)."""
        self.refusal(Reason.ANNOTATIONS_MISSING, self.check, {}, repo="x")

    def test_misnamed(self) -> None:
        """One that can't name a claim is refused; a path only where nested claims are supported."""
        for name in ("", "a b", "a[0]", "/a", "a/"):
            self.refusal(Reason.ANNOTATION_NAME_INVALID, self.check, {name: "x"}, nested=True, **{name: "x"})
        self.refusal(Reason.ANNOTATION_NAME_INVALID, self.check, {"a/b": "x"}, **{"a/b": "x"})

    def test_misnamed_without_alias(self) -> None:
        """The refusal advises an alias where a claim of that name can have one, and there alone (AUTH-27)."""
        for name in ("cognito:username", "https://acme.example/role", "größe", "", "a b", "a[0]", "a/b", "a//b"):
            for nested in (True, False):
                if name == "a/b" and nested:
                    continue
                refused = self.assertRaises(EvidenceRefused, check_names, {name: "x"}, nested=nested)
                self.assertIs(refused.reason, Reason.ANNOTATION_NAME_INVALID)
                _, faults = read_aliases(f"alias: {name}", nested=nested)
                self.assertEqual("in claim-aliases, and name the annotation after" in refused.detail, not faults, name)

    def test_forbidden(self) -> None:
        """Registered claims say nothing about a host, even when they are equal (AUTH-34)."""
        for name in sorted(DENIED):
            self.refusal(Reason.ANNOTATION_FORBIDDEN, self.check, {name: "x", "repo": "y"}, **{name: "x", "repo": "y"})
        self.check({"sub": "x"}, sub="x")

    def test_blank(self) -> None:
        """A blank annotation matches nothing, not even a blank claim (AUTH-33)."""
        for value in ("", " ", "\t\n"):
            self.refusal(Reason.ANNOTATION_EMPTY, self.check, {"repo": value}, repo=value)

    def test_claim_missing(self) -> None:
        """A claim that is absent or null doesn't match."""
        self.refusal(Reason.CLAIM_MISSING, self.check, {"repo": "x"})
        self.refusal(Reason.CLAIM_MISSING, self.check, {"repo": "None"}, repo=None)

    def test_only_text_matches(self) -> None:
        """Numbers, booleans, arrays and objects match no text, each for its own reason (AUTH-33)."""
        for value, reason in (
            (1, Reason.CLAIM_IS_NUMBER),
            (1.5, Reason.CLAIM_IS_NUMBER),
            (True, Reason.CLAIM_IS_BOOLEAN),
            (["x"], Reason.CLAIM_IS_ARRAY),
            ({"a": "b"}, Reason.CLAIM_IS_OBJECT),
        ):
            for text in (str(value), json.dumps(value), "x"):
                self.refusal(reason, self.check, {"repo": text}, nested=True, repo=value)

    def test_differs(self) -> None:
        """No case, blank or normal form makes two texts one, and the detail shows both (AUTH-33)."""
        for value in ("Org/app", "org/app ", "org/ap", "org/app\x00", "org\u2215app"):
            self.refusal(Reason.CLAIM_MISMATCH, self.check, {"repo": "org/app"}, repo=value)
        detail = self.refusal(Reason.CLAIM_MISMATCH, self.check, {"repo": "y"}, repo="x")
        self.assertEqual(detail, "the claim 'repo' is 'x'; the annotation says 'y'")

    def test_every_one_counts(self) -> None:
        """One that differs among many that don't is enough."""
        annotations = {f"c{number}": "x" for number in range(5)}
        members: dict[str, Any] = dict(annotations)
        self.check(annotations, **members)
        for name in annotations:
            self.refusal(Reason.CLAIM_MISMATCH, self.check, annotations, **{**members, name: "y"})

    def test_nested(self) -> None:
        """Where nested claims are supported a path leads to one; elsewhere an object never matches."""
        self.check({"k8s/pod": "p"}, nested=True, k8s={"pod": "p"})
        self.refusal(Reason.CLAIM_MISSING, self.check, {"k8s/pod/x": "p"}, nested=True, k8s={"pod": "p"})
        self.refusal(Reason.CLAIM_IS_OBJECT, self.check, {"k8s": "p"}, k8s={"pod": "p"})

    def test_enforced(self) -> None:
        """An enforced claim must have its annotation, and that must fit like any other (AUTH-35)."""
        self.check({"repo": "x", "ref": "main"}, enforced=["ref"], repo="x", ref="main")
        detail = self.refusal(
            Reason.ANNOTATION_ENFORCED, self.check, {"repo": "x"}, enforced=["repo", "ref"], repo="x", ref="m"
        )
        self.assertEqual(detail, "the host has no annotation 'ref', and the claim 'ref' is enforced")
        self.refusal(Reason.CLAIM_MISMATCH, self.check, {"ref": "main"}, enforced=["ref"], ref="other")

    def test_alias(self) -> None:
        """An annotation that is an alias is compared with the claim that it stands for, and not with that of its name
        (AUTH-34).
        """
        aliases = {"branch": "ref"}
        self.check({"branch": "main"}, aliases=aliases, ref="main", branch="other")
        detail = self.refusal(Reason.CLAIM_MISMATCH, self.check, {"branch": "main"}, aliases=aliases, ref="x", branch="main")
        self.assertEqual(detail, "the claim 'ref' (annotation 'branch') is 'x'; the annotation says 'main'")
        detail = self.refusal(Reason.CLAIM_MISSING, self.check, {"branch": "main"}, aliases=aliases, branch="main")
        self.assertIn("no claim 'ref' (annotation 'branch')", detail)

    def test_the_name_behind_an_alias(self) -> None:
        """The name of a claim that has an alias is forbidden, whatever its value (AUTH-34)."""
        aliases = {"branch": "ref"}
        detail = self.refusal(
            Reason.ANNOTATION_FORBIDDEN, self.check, {"ref": "main", "branch": "main"}, aliases=aliases, ref="main"
        )
        self.assertIn("has the alias 'branch'", detail)

    def test_enforced_by_alias(self) -> None:
        """A claim that is enforced and has an alias must be annotated by that (AUTH-35)."""
        aliases = {"branch": "ref"}
        self.check({"branch": "main"}, aliases=aliases, enforced=["ref"], ref="main")
        for name in ("ref", "repo"):
            self.refusal(
                Reason.ANNOTATION_ENFORCED, self.check, {name: "main"}, aliases=aliases, enforced=["ref"], **{name: "main"}
            )

    def test_chain(self) -> None:
        """Aliases are followed once: with ``a: b, b: c`` the annotation ``a`` is compared with the claim ``b`` (AUTH-34)."""
        aliases = {"a": "b", "b": "c"}
        self.check({"a": "x"}, aliases=aliases, b="x", c="other")
        for name in ("b", "c"):
            self.refusal(Reason.ANNOTATION_FORBIDDEN, self.check, {name: "x"}, aliases=aliases, b="x", c="x")

    def test_ring(self) -> None:
        """In a ring of aliases every name is forbidden."""
        aliases = {"a": "b", "b": "a"}
        for name in ("a", "b"):
            self.refusal(Reason.ANNOTATION_FORBIDDEN, self.check, {name: "x"}, aliases=aliases, a="x", b="x")

    def test_alias_of_a_path(self) -> None:
        """An alias may stand for a nested claim where those are supported."""
        self.check({"pod": "p"}, nested=True, aliases={"pod": "k8s/pod"}, k8s={"pod": "p"})

    @given(VALUES, st.text(max_size=10))
    def test_any_value_is_decided(self, value: object, text: str) -> None:
        """Whatever the claim and the annotation are, only equal texts pass."""
        try:
            self.check({"repo": text}, nested=True, repo=value)
        except EvidenceRefused:
            return
        self.assertEqual(value, text)

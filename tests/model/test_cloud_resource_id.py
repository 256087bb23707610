"""Tests of ``svc.model.cloud_resource_id``."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.cloud_resource_id import ResourceId, ResourceIdMalformed
from tests.authn.shapes import GROUP, SHAPES, SLOT, SUBSCRIPTION

VM = "/subscriptions/s/resourcegroups/g/providers/Microsoft.Compute/virtualMachines/web"

WORDS = ("subscriptions", "resourcegroups", "providers", "Microsoft.Compute", "s", "..", ".", "", "%2F", "\x00", "/")

names = st.from_regex(r"[A-Za-z0-9_.()-]{1,30}", fullmatch=True).filter(lambda text: text not in {".", ".."})
resources = st.builds(ResourceId, names, names, names, names, names)


def cased(word: str, flips: list[bool]) -> str:
    """The word with some of its letters in the other case."""
    return "".join(letter.swapcase() if flip else letter for letter, flip in zip(word, flips, strict=False))


class ParseTests(SynchronousTestCase):
    """Which texts are resource ids, and of what."""

    def refused(self, text: str) -> str:
        """What is said of a text that is none."""
        malformed: ResourceIdMalformed = self.assertRaises(ResourceIdMalformed, ResourceId.parse, text)
        self.assertTrue(malformed.why.isprintable())
        self.assertLess(len(malformed.why), 500)
        return malformed.why

    def test_shapes(self) -> None:
        """The resource ids of every kind of workload are read, and those of identities that may be shared are known."""
        for shape in SHAPES:
            resource = ResourceId.parse(shape.text)
            self.assertEqual((resource.subscription, resource.resource_group), (SUBSCRIPTION, GROUP), shape)
            self.assertEqual(resource.is_shared_identity, shape.shared, shape)
            self.assertEqual(resource.name, shape.text.rpartition("/")[2])
            self.assertEqual(str(resource), shape.text)

    def test_parts(self) -> None:
        """Every part is known by its place (AUTH-37)."""
        resource = ResourceId("s", "g", "Microsoft.Compute", "virtualMachines", "web")
        self.assertEqual(ResourceId.parse(VM), resource)

    def test_first_slash(self) -> None:
        """The first slash may be missing, and may not be there twice (AUTH-37)."""
        self.assertEqual(ResourceId.parse(VM[1:]), ResourceId.parse(VM))
        self.refused(f"/{VM}")

    def test_case_of_keywords(self) -> None:
        """Keywords have any case, and so has the namespace of shared identities; names are kept as they are (AUTH-37)."""
        text = "/Subscriptions/S/resourceGroups/G/PROVIDERS/microsoft.MANAGEDidentity/userAssignedIdentities/Web"
        resource = ResourceId.parse(text)
        self.assertEqual((resource.subscription, resource.resource_group, resource.name), ("S", "G", "Web"))
        self.assertTrue(resource.is_shared_identity)
        self.assertEqual(resource.namespace, "microsoft.MANAGEDidentity")

    def test_names_like_keywords(self) -> None:
        """A subscription, group or resource may be called like a keyword, or contain one."""
        for name in (
            "providers",
            "subscriptions",
            "resourcegroups",
            "my-providers-rg",
            "subscriptions2",
            "Microsoft.ManagedIdentity",
        ):
            text = f"/subscriptions/{name}/resourcegroups/{name}/providers/Microsoft.Compute/virtualMachines/{name}"
            resource = ResourceId.parse(text)
            self.assertEqual((resource.subscription, resource.resource_group, resource.name), (name, name, name))
            self.assertFalse(resource.is_shared_identity)

    def test_misplaced_keywords(self) -> None:
        """Each keyword must be in its place, and a second one can't take it."""
        for text in (
            "/subscriptions/s/subscriptions/t/resourcegroups/g/providers/N/t/n",
            "/subscriptions/s/resourcegroups/g/resourcegroups/h/providers/N/t/n",
            "/subscriptions/s/resourcegroups/g/providers/providers/N/t/n",
            "/resourcegroups/g/subscriptions/s/providers/N/t/n",
            "/subscriptions/resourcegroups/g/providers/N/t/n/x",
            "/x/subscriptions/s/resourcegroups/g/providers/N/t/n",
            "/subscriptions/s/resource-groups/g/providers/N/t/n",
            "/my-subscriptions/s/resourcegroups/g/providers/N/t/n",
            "/subscriptions/s/resourcegroups/g/my-providers/N/t/n",
        ):
            self.refused(text)

    def test_missing_keywords(self) -> None:
        """CONJ00053E: without a keyword it is no resource id."""
        for text in (
            "",
            "/",
            "web",
            "/subscriptions/s",
            "/subscriptions/s/providers/N/t/n",
            "/subscriptions/s/resourcegroups/g",
        ):
            self.assertIn("is not where it must be", self.refused(text))

    def test_segments_after_providers(self) -> None:
        """CONJ00054E: three segments follow ``providers``, neither fewer nor more: nothing within another resource
        (AUTH-37).
        """
        for tail in ("", "/N", "/N/t", "/N/t/n/x", "/N/t/n/providers/M/u/m", "/N/t/n/"):
            self.assertIn("three segments", self.refused(f"/subscriptions/s/resourcegroups/g/providers{tail}"))
        self.assertIn("three segments", self.refused(SLOT))

    def test_no_names(self) -> None:
        """A name isn't empty, is no way up, and holds no escape, no end of a path and nothing invisible (AUTH-37)."""
        for name in (
            "",
            ".",
            "..",
            "%2e%2e",
            "a%2Fb",
            "a\\b",
            "a?b",
            "a#b",
            "\x00",
            "a\n",
            "\u202eweb",
            "\ud800",
            "a\u2028",
        ):
            for text in (VM.replace("/s/", f"/{name}/"), VM.replace("/g/", f"/{name}/"), VM[:-3] + name):
                self.refused(text)

    def test_lookalikes(self) -> None:
        """Letters that only look like a keyword's, or become them in some way of folding, are others."""
        for text in (
            VM.replace("resourcegroups", "re\u017fourcegroups"),
            VM.replace("subscriptions", "subscr\u0131ptions"),
            VM.replace("subscriptions", "\uff53ubscriptions"),
            VM.replace("providers", "prov\u0456ders"),
            VM.replace("providers", "providers "),
        ):
            self.refused(text)
        resource = ResourceId.parse(VM.replace("Microsoft.Compute", "Microsoft.Managed\u0130dentity"))
        self.assertFalse(resource.is_shared_identity)

    def test_long(self) -> None:
        """However long a text is, it is read or refused, and not repeated whole."""
        self.assertEqual(ResourceId.parse(VM + "x" * 100_000).name, "web" + "x" * 100_000)
        for text in ("/" * 100_000, VM + "/x" * 100_000, "x" * 100_000):
            self.refused(text)

    @given(resources, st.lists(st.booleans(), min_size=14, max_size=14), st.booleans())
    def test_round_trip(self, resource: ResourceId, flips: list[bool], slash: bool) -> None:
        """Whatever it is, a resource is read from its text as it was, in any case of keywords, with a slash or without."""
        self.assertEqual(ResourceId.parse(str(resource)), resource)
        words = [cased(word, flips) for word in ("subscriptions", "resourcegroups", "providers")]
        (subscriptions, groups, providers), names = words, attrs.astuple(resource)
        text = "/".join([subscriptions, names[0], groups, names[1], providers, *names[2:]])
        self.assertEqual(ResourceId.parse("/" * slash + text), resource)

    @given(st.one_of(st.text(), st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=3)), max_size=12).map("/".join)))
    def test_any_text(self, text: str) -> None:
        """Any text is either refused, or is the text of the resource that it is read as, but for a slash and for case."""
        try:
            resource = ResourceId.parse(text)
        except ResourceIdMalformed as malformed:
            self.assertTrue(malformed.why)
        else:
            self.assertEqual(str(resource).lower(), ("/" + text.removeprefix("/")).lower())

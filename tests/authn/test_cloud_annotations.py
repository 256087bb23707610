"""Tests of ``svc.authn.cloud``: whose annotations count. How they are compared is in ``test_cloud``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.authn.cloud import select_annotations

PARTS = ("authn-cloud", "prod", "test", "a", "subscription-id", "x", "")

annotated = st.dictionaries(
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("/".join), st.sampled_from(["", "1", "2", " "]), max_size=12
)
services = st.sampled_from(["authn-cloud/prod", "authn-cloud/a", "authn-cloud/a/prod", "authn-cloud/subscription-id"])


class OwnTests(SynchronousTestCase):
    """Note [Whose annotations]."""

    def test_both(self) -> None:
        """General annotations and those for the service come together, by the last part of their names."""
        found = {"authn-cloud/a": "1", "authn-cloud/prod/b": "2", "authn-cloud/test/c": "3", "authn-cloud/prod/d/e": "4"}
        self.assertEqual(select_annotations(found, "authn-cloud/prod"), {"a": "1", "b": "2"})
        self.assertEqual(select_annotations(found, "authn-cloud/prod/d"), {"a": "1", "e": "4"})

    def test_service_like_a_name(self) -> None:
        """A service may be called like an annotation."""
        found = {"authn-cloud/resource-group": "1", "authn-cloud/resource-group/subscription-id": "2"}
        self.assertEqual(
            select_annotations(found, "authn-cloud/resource-group"), {"resource-group": "1", "subscription-id": "2"}
        )

    @given(annotated, services)
    def test_each(self, found: dict[str, str], service: str) -> None:
        """A name means what is said for the service, else what is said in general, else nothing, in any order."""
        told = select_annotations(found, service)
        self.assertEqual(select_annotations(dict(reversed(found.items())), service), told)
        for name in PARTS:
            expected = found.get(f"{service}/{name}") or found.get(f"authn-cloud/{name}") or None
            self.assertEqual(told.get(name), expected, name)
        self.assertLessEqual(told.keys(), set(PARTS))

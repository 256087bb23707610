"""API keys."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.credentials import is_same_key, new_api_key


class ApiKeyTests(SynchronousTestCase):
    """Making and comparing."""

    def test_the_form_is_that_of_the_installed_base(self) -> None:
        """An API key is 8 to 56 characters of Crockford's alphabet, which lacks i, l, o and u, in lower case (TOK-7)."""
        for _ in range(200):
            self.assertRegex(new_api_key(), r"\A[0-9a-hjkmnp-tv-z]{8,56}\Z")

    def test_all_the_alphabet_is_used(self) -> None:
        """All 32 digits occur in API keys (TOK-7)."""
        self.assertEqual(len(set("".join(new_api_key() for _ in range(200)))), 32)

    def test_keys_differ(self) -> None:
        """No two API keys are alike."""
        self.assertEqual(len({new_api_key() for _ in range(200)}), 200)

    @given(st.binary(), st.binary())
    def test_same_means_equal(self, a: bytes, b: bytes) -> None:
        """Keys are the same when their bytes are, and only then: nothing is trimmed and no case is folded (TOK-8)."""
        self.assertTrue(is_same_key(a, bytes(a)))
        self.assertEqual(is_same_key(a, b), a == b)
        self.assertFalse(is_same_key(a, a + b"\n"))

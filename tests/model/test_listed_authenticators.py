"""Tests of ``svc.model.listed_authenticators``: the names that a configuration permits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.listed_authenticators import ListedAuthenticators, is_pattern, is_sound_pattern

_PARTS = st.text("ab.-*", min_size=1, max_size=4)
_IDS = st.lists(_PARTS, min_size=1, max_size=3).map("/".join)


class ListedAuthenticatorsTests(SynchronousTestCase):
    """Names and patterns, as the setting has them."""

    def test_patterns(self) -> None:
        """A ``*`` stands for one or more characters of one segment, and for none of a ``status`` beneath an authenticator
        (CFG-90).
        """
        for pattern, inside, outside in (
            ("authn-jwt/*", "authn-jwt/ci", "authn-jwt"),
            ("authn-jwt/*", "authn-jwt/status", "authn-jwt/"),
            ("authn-jwt/*", "authn-jwt/a.b", "authn-jwt/a/b"),
            ("authn-jwt/*", "authn-jwt/*", "authn-jwtx/ci"),
            ("authn-jwt/*", "authn-jwt/a\nb", "x/authn-jwt/a"),
            ("authn-jwt/team-*", "authn-jwt/team-a", "authn-jwt/team-"),
            ("authn-jwt/team-*", "authn-jwt/team-a-b", "authn-jwt/team-a/b"),
            ("authn-jwt/*/prod", "authn-jwt/a/prod", "authn-jwt/prod"),
            ("authn-jwt/a.b*", "authn-jwt/a.bc", "authn-jwt/axbc"),
            ("authn-jwt/team/*", "authn-jwt/team/a", "authn-jwt/team/status"),
            ("authn-jwt/*/status", "authn-jwt/*/status/x", "authn-jwt/a/status"),
        ):
            listed = ListedAuthenticators(["authn", pattern, "authn-jwt/*/status/x"])
            self.assertIn(inside, listed)
            self.assertNotIn(outside, listed)
        self.assertNotIn(None, ListedAuthenticators(["authn-jwt/*"]))

    def test_replaced(self) -> None:
        """Other items take the place of all that were there, patterns included, and are told as they were written
        (CFG-91).
        """
        listed = ListedAuthenticators(["authn", "authn-jwt/*"])
        self.assertEqual((list(listed), len(listed)), (["authn", "authn-jwt/*"], 2))
        listed.replace_items(("authn-jwt/ci",))
        self.assertEqual(list(listed), ["authn-jwt/ci"])
        self.assertIn("authn-jwt/ci", listed)
        for gone in ("authn", "authn-jwt/cd"):
            self.assertNotIn(gone, listed)

    @given(_IDS, _IDS)
    def test_segments(self, pattern: str, service_id: str) -> None:
        """A sound pattern matches a name of as many segments that differs in one, which begins as the pattern's does, and
        no other (CFG-90).
        """
        if not is_pattern(pattern) or not is_sound_pattern(pattern):
            return
        parts, named = pattern.split("/"), service_id.split("/")
        wanted = len(parts) == len(named) and all(
            there == part or (part.endswith("*") and there.startswith(part[:-1]) and len(there) >= len(part))
            for part, there in zip(parts, named, strict=True)
        )
        self.assertEqual(f"authn-jwt/{service_id}" in ListedAuthenticators([f"authn-jwt/{pattern}"]), wanted)

"""Tests of ``svc.web.routes.cursors``."""

from __future__ import annotations

import base64

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import InvalidParameter
from svc.model.names import ROLE_KINDS, RoleName
from svc.model.query_results import ListingKey
from svc.web.routes.cursors import encode_cursor, parse_cursor

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=60)
NAMES = st.builds(RoleName, st.sampled_from(["acme", "ünï"]), st.sampled_from(sorted(ROLE_KINDS)), TEXTS)


class CursorTests(SynchronousTestCase):
    """What a client hands back."""

    @given(NAMES, st.booleans(), st.none() | st.integers(0, 2))
    def test_round_trip(self, name: RoleName, ownership: bool, rank: int | None) -> None:
        """Every key comes back from its cursor, which needs no escape in a URL (WIRE-40)."""
        place = ListingKey(str(name), ownership, rank)
        cursor = encode_cursor(place)
        self.assertRegex(cursor, r"\A[A-Za-z0-9_-]+\Z")
        self.assertEqual(parse_cursor(cursor, ranked=rank is not None), place)
        self.assertRaises(InvalidParameter, parse_cursor, cursor, ranked=rank is None)

    @given(st.text() | st.binary(max_size=60).map(lambda raw: base64.urlsafe_b64encode(raw).decode()), st.booleans())
    def test_anything(self, cursor: str, ranked: bool) -> None:
        """Whatever else is handed in is refused by name (ROLE-26, WIRE-40)."""
        try:
            place = parse_cursor(cursor, ranked=ranked)
        except InvalidParameter as refusal:
            self.assertEqual(refusal.parameter, "cursor")
        else:
            self.assertEqual(encode_cursor(place), cursor)

    def test_other_writings(self) -> None:
        """A cursor has one form: no padding, no other alphabet, version, class or end (ROLE-26, WIRE-40)."""

        def encoded(raw: bytes) -> str:
            return base64.urlsafe_b64encode(raw).decode().rstrip("=")

        good = b"\x01\xff\x00acme:user:a"
        self.assertEqual(parse_cursor(encoded(good), ranked=False), ListingKey("acme:user:a"))
        for bad in (
            encoded(good) + "=",
            encoded(good)[:-1] + chr(ord(encoded(good)[-1]) + 1),
            encoded(b"\x02" + good[1:]),
            encoded(b"\x01\x03" + good[2:]),
            encoded(b"\x01\xff\x02" + good[3:]),
            encoded(good[:3]),
            encoded(good[:2]),
            encoded(good + b"\x00"),
            encoded(good + b"\xff"),
            encoded(b"\x01\xff\x00acme:variable:a"),
            encoded(b"\x01\xff\x00acme:user"),
            encoded(b"\x01\xff\x00acme:user:" + b"a" * 1025),
            "",
            "A" * 5000,
        ):
            self.assertRaises(InvalidParameter, parse_cursor, bad, ranked=False)

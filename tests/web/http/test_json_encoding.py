"""JSON as it is written on the wire."""

from __future__ import annotations

import json
import sys

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.web.http.json_encoding import (
    Json,
    encode_elements,
    encode_json,
    encode_json_with_floats,
    encode_object_start,
    escape_html,
)

#: Any text, with those characters again and again that one writer or the other escapes; halves of surrogate pairs, too.
TEXTS = st.text(st.characters(exclude_categories=())) | st.text('<>&"\\/\x00\x08\n\x1f\x7f\x80\u2028\ud800\udfff😀é')

#: Integers of any length, and booleans, which Python counts among them.
DOCUMENTS: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-(2**70), 2**70) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner) | st.tuples(inner, inner),
)


def expected(document: object) -> bytes:
    """What the standard library writes, with the escapes of WIRE-35."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}).encode("ascii")


class WritingTests(SynchronousTestCase):
    """``encode_json``, ``encode_json_with_floats``."""

    @given(DOCUMENTS)
    @example("\x7f")
    @example(["\ud83d\ude00", {"😀": -(2**63), "<": 2**64}])
    def test_same_bytes(self, document: Json) -> None:
        """A document has the bytes that the standard library writes, but for three escapes (WIRE-35)."""
        self.assertEqual(encode_json(document), expected(document))

    @given(st.floats(allow_nan=False, allow_infinity=False) | DOCUMENTS)
    @example([1e16, 1e-7, -0.0, 1e22, 5e-324, 123456789.123])
    def test_any(self, document: object) -> None:
        """So has one with fractions, from the writer that takes them."""
        self.assertEqual(encode_json_with_floats(document), expected(document))

    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_thousandths(self, number: float) -> None:
        """Fractions that are rounded to thousandths have the same bytes from both writers, as health reports rely on."""
        rounded: object = round(number, 3)
        self.assertEqual(encode_json([rounded]), encode_json_with_floats([rounded]))  # type: ignore[list-item]

    def test_order(self) -> None:
        """Members stay in the order in which they were given."""
        self.assertEqual(encode_json({"b": 1, "a": {"d": 2, "c": 3}}), b'{"b":1,"a":{"d":2,"c":3}}')

    def test_deep(self) -> None:
        """What is too deep for one library is written by the other."""
        document: Json = []
        for _ in range(300):
            document = [document]
        self.assertEqual(encode_json(document), b"[" * 301 + b"]" * 301)

    def test_no_numbers(self) -> None:
        """NaN and infinite numbers, which JSON lacks, are bugs of who writes them."""
        for number in (float("nan"), float("inf"), -float("inf")):
            self.assertRaises(ValueError, encode_json_with_floats, {"a": number})

    def test_no_json(self) -> None:
        """What isn't JSON is a bug of who writes it, for either library."""
        for document in ({1, 2}, b"bytes", object()):
            self.assertRaises(TypeError, encode_json, document)

    def test_harmless(self) -> None:
        """Nothing in a page begins or ends in JSON."""
        self.assertEqual(escape_html(b'{"<a>":"&amp;"}'), rb'{"\u003ca\u003e":"\u0026amp;"}')


class PartsTests(SynchronousTestCase):
    """``encode_elements``, ``encode_object_start``."""

    @given(st.lists(DOCUMENTS, max_size=60))
    def test_elements(self, rows: list[Json]) -> None:
        """Chunks of elements make the inside of their array."""
        self.assertEqual(b"[" + b"".join(encode_elements(rows)) + b"]", expected(rows))

    def test_many_elements(self) -> None:
        """Long arrays come in many chunks, each of a few elements."""
        rows: list[Json] = [{"id": f"acct:host:{number}", "é": sys.maxsize} for number in range(1000)]
        chunks = list(encode_elements(rows))
        self.assertGreater(len(chunks), 50)
        self.assertEqual(b"[" + b"".join(chunks) + b"]", expected(rows))

    def test_members(self) -> None:
        """Members are the beginning of their object."""
        self.assertEqual(encode_object_start({"a": 1, "b": "<"}) + b"}", rb'{"a":1,"b":"\u003c"}')

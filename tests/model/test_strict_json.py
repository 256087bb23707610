"""Tests of ``svc.model.strict_json``: JSON has one reading or none."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.strict_json import Malformed, parse_json_object, parse_json_value


class JsonTests(SynchronousTestCase):
    """``parse_json_object``."""

    def refusal(self, document: bytes) -> str:
        """Why the document is refused."""
        refused: Malformed = self.assertRaises(Malformed, parse_json_object, document)
        return refused.why

    @given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text())))
    def test_reads_objects(self, value: Mapping[str, object]) -> None:
        """An object comes back as it was written."""
        self.assertEqual(parse_json_object(json.dumps(value).encode("utf-8")), value)

    def test_reads_blanks_around(self) -> None:
        """Blanks around the object are part of JSON."""
        self.assertEqual(parse_json_object(b' \r\n\t{"a": 1} \n'), {"a": 1})

    def test_refuses_other_values(self) -> None:
        """Anything but one object is refused."""
        for document in (b"", b"[]", b"1", b'"a"', b"null", b"{} {}", b"{}x", b"{", b"{'a': 1}", b'{"a": 1,}', b"\xa0{}"):
            self.refusal(document)

    def test_refuses_members_named_twice(self) -> None:
        """A member that is named twice, at any depth and in any spelling, has no one meaning (WIRE-26)."""
        for document in (b'{"a": 1, "a": 1}', b'{"b": [{"a": 1, "a": 2}]}', b'{"a": 1, "\\u0061": 2}'):
            self.assertIn("twice", self.refusal(document))

    def test_refuses_numbers_that_are_none(self) -> None:
        """NaN and the infinities are no JSON."""
        for document in (b'{"a": NaN}', b'{"a": Infinity}', b'{"a": [-Infinity]}'):
            self.assertIn("NaN or Infinity", self.refusal(document))

    def test_refuses_numbers_of_thousands_of_digits(self) -> None:
        """An integer that takes long to read is refused."""
        self.refusal(b'{"a": ' + b"1" * 10_000 + b"}")

    def test_refuses_other_encodings(self) -> None:
        """Invalid UTF-8, a byte order mark, and UTF-16 are refused (WIRE-26)."""
        for document in (b'{"a": "\xff"}', b"\xef\xbb\xbf{}", '{"a": 1}'.encode("utf-16"), b'{"a": "\xed\xa0\x80"}'):
            self.refusal(document)

    def test_bounds_nesting(self) -> None:
        """64 levels are read, 65 are refused, and brackets in texts are not levels (WIRE-26)."""
        for left, right in ((b"[", b"]"), (b'{"a":', b"}")):
            inner = b"1" if right == b"}" else b""
            parse_json_object(b'{"a":' + left * 63 + inner + right * 63 + b"}")
            self.assertIn("nested", self.refusal(b'{"a":' + left * 64 + inner + right * 64 + b"}"))
        parse_json_object(b'{"a": "' + b"[{" * 1000 + b'\\"[[", "b": "[' + b"]" * 100 + b'"}')
        parse_json_object(b'{"a": [' + b"[]," * 1000 + b"[]]}")

    def test_endless_nesting_is_refused_in_no_time(self) -> None:
        """Depth and unfinished texts exhaust neither the stack nor the processor."""
        self.assertIn("nested", self.refusal(b"[" * 200_000))

    def test_a_string_without_an_end(self) -> None:
        """A string that never ends, of escapes with one left over, is read once, not once from each of its characters."""
        document = b"{" + b"[" * 65 + b'"' + b'\\"' * 100_000 + b"\\"
        self.assertIn("nested", self.refusal(document))
        self.refusal(b'{"a": [' + b"[" * 60 + b'"\\"' * 60_000)

    @given(st.binary(max_size=200) | st.text('{}[]",:\\ 0a', max_size=60).map(str.encode))
    def test_raises_nothing_else(self, document: bytes) -> None:
        """Any bytes are an object or malformed."""
        with contextlib.suppress(Malformed):
            self.assertIsInstance(parse_json_object(document), dict)


class ValueTests(SynchronousTestCase):
    """``parse_json_value``."""

    def test_reads_any_value(self) -> None:
        """Any value is read, with blanks around."""
        for document, value in ((b" [1] ", [1]), (b'"a"', "a"), (b"null\n", None), (b'{"a":{"b":1}}', {"a": {"b": 1}})):
            self.assertEqual(parse_json_value(document), value)

    def test_is_strict(self) -> None:
        """What has more than one reading has none here either, and brackets without end exhaust nothing."""
        for document in (b"", b"1 2", b'{"a":1,"a":1}', b"[NaN]", b"\xff", b"\xef\xbb\xbf1", b"[" * 200_000, b"1" * 10_000):
            self.assertRaises(Malformed, parse_json_value, document)

    def test_nesting(self) -> None:
        """64 levels are read and 65 are refused, on every version of Python (WIRE-26)."""
        self.assertEqual(parse_json_value(b"[" * 64 + b"]" * 64), json.loads("[" * 64 + "]" * 64))
        for levels in (65, 100_000):
            self.assertRaises(Malformed, parse_json_value, b"[" * levels + b"]" * levels)

"""What YAML scalars mean."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import PolicyInvalid
from svc.policy.document import Alias, Mapping, Scalar, Sequence
from svc.policy.grammar import as_text, classify_scalar, is_nothing, read_boolean, read_integer, read_text, read_texts


def plain(value: str) -> Scalar:
    """An unquoted scalar."""
    return Scalar(value, True, None, None, 3, 5)


def quoted(value: str) -> Scalar:
    """A quoted one."""
    return Scalar(value, False, None, None, 3, 5)


class MeaningTests(SynchronousTestCase):
    """Core 1.3: unquoted scalars are type-guessed."""

    def assert_means(self, kind: str, values: dict[str, str]) -> None:
        """Each value is of that kind, and stands for that text."""
        for value, expected in values.items():
            self.assertEqual((classify_scalar(plain(value)), as_text(plain(value))), (kind, expected), value)

    def test_truth_values(self) -> None:
        """``yes``, ``on`` and ``true`` are true and ``no``, ``off`` and ``false`` are false, in three spellings each
        (POL-7).
        """
        for word in ("yes", "on", "true", "Yes", "ON", "True"):
            self.assert_means("TrueClass", {word: "true"})
        for word in ("no", "off", "false", "No", "OFF", "False"):
            self.assert_means("FalseClass", {word: "false"})
        self.assert_means("String", {"yEs": "yEs", "y": "y", "n": "n", "trueish": "trueish"})

    def test_nothing(self) -> None:
        """A value left out, ``~`` and ``null`` are nothing, whose text is empty (POL-7)."""
        self.assert_means("NilClass", {"": "", "~": "", "null": "", "Null": "", "NULL": ""})
        self.assertFalse(is_nothing(quoted("")))

    def test_integers(self) -> None:
        """Decimal integers lose their sign of plus and their underscores, however long they are."""
        self.assert_means(
            "Integer", {"0": "0", "-0": "0", "+5": "5", "-12": "-12", "1_000_": "1000", "9" * 9999: "9" * 9999}
        )

    def test_floats(self) -> None:
        """Floats are written as the installed base does (POL-9)."""
        self.assert_means(
            "Float",
            {
                "1.10": "1.1",
                "1.": "1.0",
                ".5": "0.5",
                "-1_0.5": "-10.5",
                "1.0e20": "1.0e+20",
                "1.5E-7": "1.5e-07",
                "1.0e999": "Infinity",
                "-1.0e999": "-Infinity",
                "100000000000000000.0": "1.0e+17",
            },
        )

    def test_dates(self) -> None:
        """A date stays as it is; what looks like one and isn't is a text (POL-7)."""
        self.assert_means("Date", {"2024-02-29": "2024-02-29"})
        self.assert_means(
            "String", {"2023-02-29": "2023-02-29", "2024-2-9": "2024-2-9", "2024-02-29T00:00:00Z": "2024-02-29T00:00:00Z"}
        )

    def test_other_numbers_are_texts(self) -> None:
        """Octal, hexadecimal, sexagesimal numbers, versions, hashes and addresses stay what was written (POL-7)."""
        for value in (
            "0755",
            "0x1F",
            "0b1",
            "12:30",
            "1.2.3",
            "1e5",
            "10.0.0.1",
            "-",
            "+",
            ".",
            "...",
            "-a",
            "1,000",
            "_1",
            "--1",
        ):
            self.assert_means("String", {value: value})

    def test_quotes_make_texts(self) -> None:
        """In quotes all of these are texts (POL-7)."""
        for value in ("yes", "1.10", "", "~", "123", "2024-02-29"):
            self.assertEqual((classify_scalar(quoted(value)), as_text(quoted(value))), ("String", value))

    @given(st.integers())
    def test_integers_are_themselves(self, number: int) -> None:
        """An integer's text is the integer (POL-7)."""
        self.assertEqual(as_text(plain(str(number))), str(number))

    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_floats_are_themselves(self, number: float) -> None:
        """A float's text is a float of the same value."""
        written = as_text(plain(repr(number)))
        self.assertTrue(math.isclose(float(written), number) or float(written) == number, written)

    @given(st.text(max_size=30))
    def test_every_scalar_means_something(self, value: str) -> None:
        """Every text means something, and what it stands for is stable."""
        once = as_text(plain(value))
        self.assertEqual(as_text(quoted(once)), once)


class FieldTests(SynchronousTestCase):
    """Values of attributes."""

    def refused(self, message: str) -> None:
        """The last refusal says this, about the right place."""
        self.assertEqual((self.refusal.message, self.refusal.line, self.refusal.column), (message, 3, 5))

    def test_texts_are_strings(self) -> None:
        """A field of text takes a string and nothing; anything else is named in the refusal (POL-8)."""
        self.assertEqual(read_text(plain("abc"), "id"), "abc")
        self.assertEqual(read_text(Alias(plain("abc"), "a", 1, 1), "id"), "abc")
        self.assertIsNone(read_text(plain("~"), "id"))
        self.refusal = self.assertRaises(PolicyInvalid, read_text, plain("123"), "id")
        self.refused("Expected a string for field 'id', got Integer")
        self.refusal = self.assertRaises(PolicyInvalid, read_text, plain("yes"), "id")
        self.refused("Expected a string for field 'id', got TrueClass")
        self.refusal = self.assertRaises(PolicyInvalid, read_text, Scalar("x", False, "!group", None, 3, 5), "id")
        self.refused("Expected a string for field 'id', got Group")
        self.refusal = self.assertRaises(PolicyInvalid, read_text, Sequence([], None, None, 3, 5), "id")
        self.refused("Expected a string for field 'id', got Array")
        self.refusal = self.assertRaises(PolicyInvalid, read_text, Mapping([], "!group", None, 3, 5), "id")
        self.refused("Expected a string for field 'id', got Group")
        self.refusal = self.assertRaises(PolicyInvalid, read_text, Mapping([], None, None, 3, 5), "id")
        self.refused("Attribute 'id' can't be a mapping")
        self.refusal = self.assertRaises(PolicyInvalid, read_text, Scalar("x", False, "!zap", None, 3, 5), "id")
        self.refused("Unrecognized data type '!zap'")

    def test_tags_of_text(self) -> None:
        """``!!str`` makes a text of anything."""
        self.assertEqual(read_text(Scalar("123", False, "tag:yaml.org,2002:str", None, 3, 5), "id"), "123")

    def test_lists_of_texts(self) -> None:
        """A field of texts takes one, a list, and lists in lists, but nothing that is no text."""
        inner = Sequence([plain("b"), quoted("1")], None, None, 3, 5)
        told = read_texts(Sequence([plain("a"), inner], None, None, 3, 5), "privilege")
        self.assertEqual([scalar.value for scalar in told], ["a", "b", "1"])
        self.assertEqual(list(read_texts(plain("a"), "privilege")), [plain("a")])
        for node in (plain("~"), inner._replace(items=[plain("")])):
            self.refusal = self.assertRaises(PolicyInvalid, list, read_texts(node, "privilege"))
            self.refused("Expected a string for field 'privilege', got NilClass")
        self.refusal = self.assertRaises(PolicyInvalid, list, read_texts(inner._replace(tag="!user"), "privilege"))
        self.refused("Unexpected tag '!user'")

    def test_integers(self) -> None:
        """A field of integers takes an unquoted integer, in decimal, and nothing (POL-15)."""
        for value, expected in (("1000", "1000"), ("+1_000", "1000"), ("-5", "-5"), ("~", None), ("", None)):
            self.assertEqual(read_integer(plain(value), "uidnumber"), expected)
        for node, got in ((quoted("1000"), "String"), (plain("1.5"), "Float"), (plain("yes"), "TrueClass")):
            self.refusal = self.assertRaises(PolicyInvalid, read_integer, node, "uidnumber")
            self.refused(f"Expected a integer for field 'uidnumber', got {got}")

    def test_truth(self) -> None:
        """A field of truth takes the words of truth, and true and false in quotes (POL-18)."""
        for node in (plain("true"), plain("yes"), quoted("true")):
            self.assertTrue(read_boolean(node, "admin"))
        for node in (plain("false"), plain("off"), quoted("false")):
            self.assertFalse(read_boolean(node, "admin"))
        cases: tuple[tuple[Scalar | Sequence, str], ...] = (
            (quoted("yes"), "String"),
            (plain("1"), "Integer"),
            (plain(""), "NilClass"),
            (Scalar("true", False, "!user", None, 3, 5), "User"),
            (Sequence([plain("true")], None, None, 3, 5), "Array"),
        )
        for bad, got in cases:
            self.refusal = self.assertRaises(PolicyInvalid, read_boolean, bad, "admin")
            self.refused(f"Expected a boolean for field 'admin', got {got}")

"""Tests of ``svc.model.versions``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import InvalidParameter
from svc.model.versions import MAX_VERSIONS, StateVersion, parse_versions

NUMBERS = st.integers(1, (1 << 64) - 1)
VERSIONS = st.builds(StateVersion, NUMBERS, st.integers(1, (1 << 32) - 1), NUMBERS)


class StateVersionTests(SynchronousTestCase):
    """The text of versions."""

    @given(VERSIONS)
    def test_text(self, version: StateVersion) -> None:
        """A version is read as it was told, and is short (CLU-27)."""
        self.assertEqual(StateVersion.parse_or_none(str(version)), version)
        self.assertLessEqual(len(str(version)), 42)

    @given(st.one_of(st.text(max_size=50), st.text("0123456789abcdefA. ,\n", max_size=50)))
    def test_one_form(self, text: str) -> None:
        """A text is a version's only form, or none at all (WIRE-52)."""
        version = StateVersion.parse_or_none(text)
        if version is not None:
            self.assertEqual(str(version), text)

    def test_none(self) -> None:
        """What looks like a version and is none isn't read (WIRE-52)."""
        for text in (
            "",
            "1.1",
            "1.1.1.1",
            "01.1.1",
            "1.0.1",
            "1.1.A",
            "1.1.1\n",
            "1..1",
            "-1.1.1",
            "+1.1.1",
            "1.1.0x1",
            "1.1.1_1",
        ):
            self.assertIsNone(StateVersion.parse_or_none(text), text)
        self.assertIsNone(StateVersion.parse_or_none("1.1." + "1" * 17))
        self.assertIsNone(StateVersion.parse_or_none("1.123456789.1"))
        self.assertIsNone(StateVersion.parse_or_none("\u0661.1.1"))

    @given(st.lists(VERSIONS, min_size=1, max_size=MAX_VERSIONS), st.sampled_from([",", ", ", " ,\t"]))
    def test_header(self, versions: list[StateVersion], comma: str) -> None:
        """A header has one to four, parted by commas (WIRE-52)."""
        self.assertEqual(parse_versions(comma.join(map(str, versions))), tuple(versions))

    def test_refused(self) -> None:
        """Any other header is refused, and named (WIRE-52)."""
        for header in (
            "",
            ",",
            "1.1.1,",
            "1.1.1,,1.1.2",
            "1.1.1 1.1.2",
            ",".join(["1.1.1"] * 5),
            "x" * 30_000,
            "," * 30_000,
        ):
            refusal = self.assertRaises(InvalidParameter, parse_versions, header)
            self.assertIn("Svc-At-Least", refusal.message)

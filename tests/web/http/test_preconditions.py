"""Tests of ``svc.web.http.preconditions``."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import InvalidParameter, PreconditionFailed
from svc.web.http.preconditions import IF_MATCH, IF_NONE_MATCH, Preconditions


@attrs.frozen
class Asking:
    """A request of nothing but headers."""

    headers: dict[str, str]

    def header(self, name: str) -> str | None:
        """A header's value."""
        return self.headers.get(name)


def asking(match: str | None = None, none_match: str | None = None) -> Preconditions:
    """The preconditions of a request with these headers."""
    headers = {"If-Match": match, "If-None-Match": none_match}
    call: Any = Asking({name: value for name, value in headers.items() if value is not None})
    return Preconditions(IF_MATCH.read(call), IF_NONE_MATCH.read(call))


TAGS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF, exclude_characters='"\x7f'), max_size=5)
OPAQUE = TAGS.filter(lambda text: not any(0x7F <= ord(character) < 0x80 for character in text))
BLANKS = st.sampled_from(["", " ", "\t", " \t "])


class PreconditionTests(SynchronousTestCase):
    """What each header asks for, in the rules of RFC 9110 13.1.1 and 13.1.2."""

    def demands(self, tag: str | None, match: str | None = None, none_match: str | None = None) -> bool:
        """Whether a write may go on."""
        try:
            asking(match, none_match).check_write(tag)
        except PreconditionFailed as refusal:
            self.assertEqual(refusal.tag, tag)
            return False
        return True

    def test_nothing_asked(self) -> None:
        """Without the headers every write goes on, and no reader is said to know anything."""
        self.assertTrue(self.demands('"a"') and self.demands(None))
        self.assertFalse(asking().is_unmodified('"a"'))

    def test_match(self) -> None:
        """``If-Match`` takes one of its tags, ``*`` whatever is there; neither takes what isn't there (SEC-17, WIRE-39)."""
        for header in ('"a"', '"b", "a"', '"b","a"', "*", " * ", ', ,"a",'):
            self.assertTrue(self.demands('"a"', match=header), header)
            self.assertFalse(self.demands(None, match=header), header)
        for header in ('"b"', '"A"', '"b", "c"', '""'):
            self.assertFalse(self.demands('"a"', match=header), header)

    def test_weak_tags(self) -> None:
        """A weak tag never matches for a write, and for a reader as well as a strong one (SEC-19, WIRE-39)."""
        self.assertFalse(self.demands('"a"', match='W/"a"'))
        self.assertTrue(self.demands('"a"', match='W/"a", "a"'))
        self.assertTrue(asking(none_match='W/"a"').is_unmodified('"a"'))
        self.assertFalse(self.demands('"a"', none_match='W/"a"'))

    def test_none_match(self) -> None:
        """``If-None-Match`` turns away its tags; ``*`` whatever is there, so that only a first value is written (SEC-17,
        WIRE-39).
        """
        self.assertTrue(self.demands(None, none_match="*"))
        self.assertFalse(self.demands('"a"', none_match="*"))
        self.assertFalse(self.demands('"a"', none_match='"b", "a"'))
        self.assertTrue(self.demands('"a"', none_match='"b"'))
        self.assertTrue(self.demands(None, none_match='"b"'))

    def test_readers(self) -> None:
        """A reader who knows the value is told that; one who asks for another is refused before (SEC-17)."""
        self.assertTrue(asking(none_match='"b", "a"').is_unmodified('"a"'))
        self.assertTrue(asking(none_match="*").is_unmodified('"a"'))
        self.assertFalse(asking(none_match='"b"').is_unmodified('"a"'))
        self.assertFalse(asking(match='"a"').is_unmodified('"a"'))
        with self.assertRaises(PreconditionFailed):
            asking(match='"b"', none_match='"a"').is_unmodified('"a"')

    def test_malformed(self) -> None:
        """What is neither ``*`` nor a list of tags is refused, and the header named (SEC-19, WIRE-39)."""
        bad = (
            "",
            " ",
            ",",
            "a",
            '"a',
            'a"',
            '"a" "b"',
            '"a"b',
            "*,*",
            '*, "a"',
            'w/"a"',
            'W/ "a"',
            '"a b"',
            '"a\x7f"',
            "'a'",
        )
        for header in bad:
            for name in ("match", "none_match"):
                with self.assertRaises(InvalidParameter, msg=repr(header)) as caught:
                    asking(**{name: header})
                self.assertIn(caught.exception.parameter, caught.exception.message)

    def test_long_lists(self) -> None:
        """A list as long as headers may be is read in no time, be it good or bad."""
        commas = "," * 30_000
        self.assertTrue(self.demands('"a"', match=f'{commas}"a"{commas}'))
        self.assertRaises(InvalidParameter, asking, f'"a"{commas}b')
        self.assertRaises(InvalidParameter, asking, '"a",' * 8_000 + "b")

    @given(st.lists(st.tuples(st.booleans(), OPAQUE, BLANKS, BLANKS), min_size=1, max_size=6), OPAQUE)
    def test_lists(self, listed: list[tuple[bool, str, str, str]], other: str) -> None:
        """Of any list each strong tag matches, a weak one only where that will do, and no other tag does."""
        header = ",".join(f'{before}{"W/" * weak}"{tag}"{after}' for weak, tag, before, after in listed)
        strong = {tag for weak, tag, _, _ in listed if not weak}
        every = {tag for _, tag, _, _ in listed}
        for tag in every | {other}:
            self.assertEqual(self.demands(f'"{tag}"', match=header), tag in strong)
            self.assertEqual(asking(none_match=header).is_unmodified(f'"{tag}"'), tag in every)

"""Tests of ``svc.model.text``: text from outside, quoted, escaped, and fit for a log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.text import FIELD_LIMIT, blank_unprintable, escape_unencodable, escape_unprintable, quote_address, quote_text


class ShownTests(SynchronousTestCase):
    """``quote_text``."""

    @given(st.text(st.characters(exclude_categories=()), max_size=300))
    def test_is_one_short_printable_line(self, text: str) -> None:
        """Whatever comes from outside is short and printable in a message."""
        self.assertTrue(quote_text(text).isprintable())
        self.assertLess(len(quote_text(text)), 1200)

    def test_quotes(self) -> None:
        """A plain text stands in quotes."""
        self.assertEqual(quote_text("a"), "'a'")


class ShownAddressTests(SynchronousTestCase):
    """``quote_address``."""

    def test_no_secrets(self) -> None:
        """Neither a password nor a query is shown, of a malformed address either (NET-14)."""
        for text in (
            "https://u:secret@idp.example/k?token=secret",
            "https://secret@idp.example/",
            "//u:secret@idp.example/",
            "u:secret@idp.example",
            "https:u:secret@idp.example",
            "https:/\\u:secret@idp.example",
            "https://u:secret/secret@idp.example/",
            "https://u:secret?secret#secret@idp.example/",
            "https://u:secret@secret/x@idp.example/",
            "https://u:sec ret@idp.example/?secret",
            "https://idp.example/?secret",
            "https://idp.example/#secret",
            "?secret",
        ):
            self.assertNotIn("secret", quote_address(text).replace("sec ret", "secret"), text)

    def test_the_rest(self) -> None:
        """Host, port and path are shown, also where a path has an ``@``."""
        for text, told in (
            ("https://u:p@idp.example/k?a", "'https://…@idp.example/k?…'"),
            ("u:p@idp.example", "'…@idp.example'"),
            ("https://idp.example:8443/@me", "'https://idp.example:8443/@me'"),
            ("https://[::1]:8443/k#a", "'https://[::1]:8443/k#…'"),
            ("/k4?a", "'/k4?…'"),
            ("/@me", "'/@me'"),
            ("", "''"),
        ):
            self.assertEqual(quote_address(text), told)


class PrintableTests(SynchronousTestCase):
    """Text from outside."""

    def test_plain_text_stays(self) -> None:
        """Text of visible characters and blanks is shown as it is, in any script."""
        for text in ("", "host/apps/web", "a b", "zoë 😀", "{reason}"):
            self.assertEqual(escape_unprintable(text), text)

    def test_what_does_not_print_is_escaped(self) -> None:
        """Ends of lines, terminal sequences, marks that turn the writing, and the backslash itself are escaped (AUD-13)."""
        self.assertEqual(escape_unprintable("a\r\nb"), "a\\r\\nb")
        self.assertEqual(escape_unprintable("\x1b[2J\x00\x7f\x85"), "\\x1b[2J\\x00\\x7f\\x85")
        self.assertEqual(escape_unprintable("\u2028\u202e\ud800"), "\\u2028\\u202e\\ud800")
        self.assertEqual(escape_unprintable("\\n"), "\\\\n")

    def test_long_text_is_cut(self) -> None:
        """Text over the limit is cut and says so."""
        self.assertEqual(escape_unprintable("a" * FIELD_LIMIT), "a" * FIELD_LIMIT)
        self.assertEqual(escape_unprintable("a" * 10**6), "a" * FIELD_LIMIT + "…")

    @given(st.text())
    def test_any_text_fits_on_a_line(self, text: str) -> None:
        """Whatever the text, what is shown prints, on one line."""
        self.assertTrue(escape_unprintable(text).isprintable())

    @given(st.text(max_size=FIELD_LIMIT), st.text(max_size=FIELD_LIMIT))
    def test_different_texts_look_different(self, one: str, other: str) -> None:
        """Two texts that differ are shown differently."""
        self.assertEqual(escape_unprintable(one) == escape_unprintable(other), one == other)


class OtherTests(SynchronousTestCase):
    """``blank_unprintable`` and ``escape_unencodable``."""

    def test_blanked(self) -> None:
        """What doesn't print becomes a blank each, and nothing else changes."""
        for text, seen in (("zo\u00eb \\", "zo\u00eb \\"), ("a\r\nb\x1b[2J", "a  b [2J"), ("\u2028\ud800", "  ")):
            self.assertEqual(blank_unprintable(text), seen)

    def test_encodable(self) -> None:
        """Halves of surrogates, which stand for bytes of a path that are no UTF-8, are escaped; line ends stay."""
        self.assertEqual(escape_unencodable("a\nb/\udcff"), "a\nb/\\udcff")
        self.assertEqual(escape_unencodable(7), "7")

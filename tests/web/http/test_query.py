"""Percent-encoded text is read strictly, in one way or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import quote, quote_plus, unquote

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import BadRequest, InvalidParameter, Refusal, TooLarge
from svc.web.http.messages import percent_decoded
from svc.web.http.query import FORM_LIMIT, PARAMETERS_LIMIT, Form, Query

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))
FIELDS = st.builds("{}{}".format, st.from_regex(r"\w[\w.-]*", fullmatch=True), st.just("") | TEXTS.map("[{}]".format))


class PercentDecodingTests(SynchronousTestCase):
    """``percent_decoded``."""

    @given(TEXTS)
    def test_round_trip(self, text: str) -> None:
        """Whatever is quoted comes back as it was."""
        self.assertEqual(percent_decoded(quote(text, safe="")), text)

    @given(st.text(st.characters(max_codepoint=127)))
    def test_decodes_or_refuses(self, text: str) -> None:
        """No text makes it raise anything but ``ValueError``, and what it returns has no NUL."""
        try:
            self.assertNotIn("\x00", percent_decoded(text))
        except ValueError as error:
            self.assertNotIsInstance(error, UnicodeError)

    @given(st.lists(st.sampled_from(["%41", "%3D", "%3d", "%0A", "%0d%0a", "=", "=41", "=\r\n", "\n", " ", "\t", "_", "é"])))
    def test_as_the_standard_library(self, pieces: list[str]) -> None:
        """What is well written is decoded as ``urllib.parse`` decodes it, and not as quoted-printable."""
        text = "".join(pieces)
        self.assertEqual(percent_decoded(text), unquote(text))

    def test_plus_stays(self) -> None:
        """A plus sign is no blank."""
        self.assertEqual(percent_decoded("a+b%2Bc"), "a+b+c")

    def test_decodes_once(self) -> None:
        """What was encoded twice is decoded once (WIRE-12)."""
        self.assertEqual(percent_decoded("%252F"), "%2F")

    def test_broken_escapes(self) -> None:
        """A percent sign needs two hexadecimal digits (WIRE-12)."""
        for text in ("%", "%2", "a%zz", "%%41", "%u0041", "%+1", "% 41"):
            self.assertRaisesRegex(ValueError, "two hexadecimal digits", percent_decoded, text)

    def test_invalid_utf8(self) -> None:
        """Bytes that are no UTF-8 are refused: stray, cut off, overlong, surrogates."""
        for text in ("%ff", "%C3", "%C0%AF", "%E0%80%AF", "%ED%A0%80", "%F4%90%80%80"):
            self.assertRaisesRegex(ValueError, "UTF-8", percent_decoded, text)

    def test_nul(self) -> None:
        """NUL is refused, encoded or bare."""
        for text in ("%00", "a%00b", "a\x00b"):
            self.assertRaisesRegex(ValueError, "NUL", percent_decoded, text)


class QueryTests(SynchronousTestCase):
    """``Query``."""

    def refused(self, parameter: str, call: Callable[..., object], *arguments: object) -> InvalidParameter:
        """Have ``call`` refuse ``parameter``, by its name."""
        refusal: InvalidParameter = self.assertRaises(InvalidParameter, call, *arguments)
        self.assertEqual(refusal.parameter, parameter)
        self.assertIn(parameter, refusal.message)
        return refusal

    @given(st.lists(st.tuples(TEXTS.filter(bool), st.none() | TEXTS)), st.sampled_from("&;"))
    def test_round_trip(self, pairs: list[tuple[str, str | None]], separator: str) -> None:
        """What is encoded as a query comes back, in its order, with either separator."""
        pieces = [quote_plus(name) + ("" if value is None else f"={quote_plus(value)}") for name, value in pairs]
        self.assertEqual(Query.parse(separator.join(pieces)).pairs, tuple(pairs))

    @given(st.text(st.characters(min_codepoint=32, max_codepoint=126)), st.text("ab[]", max_size=4))
    def test_reads_or_refuses(self, raw: str, name: str) -> None:
        """No query makes any accessor raise anything but a refusal."""
        try:
            query = Query.parse(raw)
        except InvalidParameter:
            return
        for accessor in (query.text, query.texts, query.positive_integer, query.natural, query.integer, query.boolean):
            try:
                accessor(name)
            except InvalidParameter:
                continue
            except Refusal as refusal:
                self.fail(str(refusal))

    def test_flags(self) -> None:
        """A flag is there by its name alone, whatever its value (WIRE-20); with brackets it is refused (WIRE-21)."""
        query = Query.parse("members&count=false&x=")
        self.assertEqual([query.has_flag(name) for name in ("members", "count", "x", "mem")], [True, True, True, False])
        for raw in ("members[]", "members[0]=1", "members&members[=1"):
            self.refused("members", Query.parse(raw).has_flag, "members")

    def test_separators(self) -> None:
        """Semicolons separate like ampersands, and empty pieces don't count (WIRE-19)."""
        self.assertEqual(Query.parse("a=1;b=2&&;c").pairs, (("a", "1"), ("b", "2"), ("c", None)))

    def test_plus_is_a_blank(self) -> None:
        """A plus sign is a blank in values and in names."""
        self.assertEqual(Query.parse("a+b=c+d%2B").pairs, (("a b", "c d+"),))

    def test_text(self) -> None:
        """An absent and a bare parameter have no text, an empty one has an empty text."""
        query = Query.parse("bare&empty=&full=a=b")
        self.assertEqual([query.text(name) for name in ("absent", "bare", "empty", "full")], [None, None, "", "a=b"])

    def test_repeats(self) -> None:
        """A parameter that may be given once is refused when it is repeated, bare or not, or an array (WIRE-21)."""
        for raw in ("limit=1&limit=1", "limit=1&limit", "limit[]=1", "limit[a]=1", "limit%5B%5D=1"):
            query = Query.parse(raw)
            for accessor in (query.text, query.positive_integer, query.natural, query.integer, query.boolean):
                self.refused("limit", accessor, "limit")

    def test_texts(self) -> None:
        """A parameter that may be repeated is read under both its names, in order (WIRE-21)."""
        query = Query.parse("kind=user&kind%5B%5D=host&kind&kinds=x&kind=")
        self.assertEqual(query.texts("kind"), ("user", "host", ""))
        self.refused("kind", Query.parse("kind[a]=x").texts, "kind")

    def test_positive_integer(self) -> None:
        """A limit is a canonical integer from 1 to the largest of 64 bits; the refusal has its text
        (WIRE-22).
        """
        for text, value in (("1", 1), ("10", 10), ("9223372036854775807", 2**63 - 1)):
            self.assertEqual(Query.parse(f"limit={text}").positive_integer("limit"), value)
        self.assertIsNone(Query.parse("").positive_integer("limit"))
        for text in ("0", "-1", "abc", "1e9", "01", "", "+1", "%201", "1.0", "٣", "9223372036854775808", "9" * 5000):
            refusal = self.refused("limit", Query.parse(f"limit={quote(text, safe='%+')}").positive_integer, "limit")
            self.assertEqual(refusal.code, "unprocessable_entity")
            self.assertEqual(refusal.message, "'limit' contains an invalid value. 'limit' must be a positive integer.")
        self.refused("limit", Query.parse("limit").positive_integer, "limit")

    def test_natural(self) -> None:
        """An offset may be 0; the refusal has its text (WIRE-22)."""
        self.assertEqual(Query.parse("offset=0").natural("offset"), 0)
        for text in ("-1", "00", "", "x"):
            refusal = self.refused("offset", Query.parse(f"offset={text}").natural, "offset")
            self.assertIn("must be an integer greater than or equal to 0.", refusal.message)

    def test_integer(self) -> None:
        """A version is any integer; one beyond 64 bits is the last of these, of which there is no version (SEC-10)."""
        last = 2**63 - 1
        many = (("9" * 5000, last), (f"-{'9' * 5000}", -last), (str(2**63), last), (str(2**63 - 2), 2**63 - 2))
        for text, value in (("7", 7), ("-7", -7), ("007", 7), ("0", 0), ("000", 0), (f"{'0' * 5000}12", 12), *many):
            self.assertEqual(Query.parse(f"version={text}").integer("version"), value)
        self.assertIsNone(Query.parse("x").integer("version"))
        for raw in ("version", "version=", "version=x", "version=1.5", "version=--1", "version=+1"):
            refusal = self.refused("version", Query.parse(raw).integer, "version")
            self.assertEqual(refusal.message, "invalid type for parameter 'version'")

    def test_many_digits(self) -> None:
        """The time to read a number is linear in its digits (WIRE-61)."""
        began = time.process_time()
        self.refused("version", Query.parse(f"version={'0' * 32_000}x").integer, "version")
        self.assertLess(time.process_time() - began, 1)

    def test_boolean(self) -> None:
        """A boolean is true by its name alone; any word but true and false is refused."""
        for raw, value in (("", False), ("count", True), ("count=", True), ("count=true", True), ("count=false", False)):
            self.assertIs(Query.parse(raw).boolean("count"), value)
        for text in ("maybe", "TRUE", "1", "0"):
            self.refused("count", Query.parse(f"count={text}").boolean, "count")

    def test_undecodable(self) -> None:
        """A parameter that doesn't decode is refused by its name, one with such a name as part of the query (WIRE-19)."""
        self.refused("search", Query.parse, "a=1&search=%00")
        self.refused("search", Query.parse, "search=%ff")
        self.refused("query", Query.parse, "%ff=1")

    def test_too_many(self) -> None:
        """More parameters than anyone sends are refused (LIM-4)."""
        self.assertEqual(len(Query.parse("&".join(["a"] * PARAMETERS_LIMIT)).pairs), PARAMETERS_LIMIT)
        self.refused("query", Query.parse, "&".join(["a"] * (PARAMETERS_LIMIT + 1)))


class FormTests(SynchronousTestCase):
    """``Form``."""

    @given(st.lists(st.tuples(FIELDS, TEXTS)))
    def test_round_trip(self, pairs: list[tuple[str, str]]) -> None:
        """What is encoded as a form comes back."""
        body = "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in pairs)
        self.assertEqual(Form.parse(body.encode("ascii")).pairs, tuple(pairs))

    @given(st.binary())
    def test_reads_or_refuses(self, body: bytes) -> None:
        """No body makes it raise anything but its refusal."""
        try:
            form = Form.parse(body)
        except BadRequest:
            return
        form.text("jwt")

    def test_last_one_wins(self) -> None:
        """Of a repeated field the last one counts (WIRE-24)."""
        self.assertEqual(Form.parse(b"jwt=a&jwt=b&x=c").text("jwt"), "b")
        self.assertIsNone(Form.parse(b"").text("jwt"))

    def test_brackets(self) -> None:
        """A field that is written as an array is refused, and not read as if it were absent (WIRE-21)."""
        for body in (b"jwt[]=a", b"jwt%5B0%5D=a", b"jwt=a&jwt[=b"):
            self.assertRaises(InvalidParameter, Form.parse(body).text, "jwt")

    def test_other_types(self) -> None:
        """JSON, multipart and XML are no form; a token alone, blanks and line ends are (WIRE-59)."""
        multipart = b'--x\r\nContent-Disposition: form-data; name="jwt"\r\n\r\na\r\n--x--\r\n'
        for body in (b'{"jwt":"a"}', b'["jwt=a"]', b'"jwt=a"', multipart, b"<jwt>a</jwt>", b"jwt: a", b"jwt=a&{}", b"=a"):
            refusal: BadRequest = self.assertRaises(BadRequest, Form.parse, body)
            self.assertEqual(refusal.message, "the body is no form, as name=value&name=value")
        self.assertEqual(
            [Form.parse(body).text("jwt") for body in (b"a.b-c_", b"jwt=a&\r\n", b" ", b"&&")], [None, "a", None, None]
        )

    def test_semicolon_belongs_to_the_value(self) -> None:
        """A semicolon doesn't separate fields (WIRE-24)."""
        self.assertEqual(Form.parse(b"jwt=a;jwt=b").text("jwt"), "a;jwt=b")

    def test_plus_is_a_blank(self) -> None:
        """A plus sign is a blank."""
        self.assertEqual(Form.parse(b"jwt=+a.b+").text("jwt"), " a.b ")

    def test_malformed(self) -> None:
        """Broken escapes, bytes that are no UTF-8 and NUL are refused, as are too many fields (LIM-4, WIRE-24)."""
        for body in (b"jwt=%", b"jwt=\xff", b"%ff=1", b"jwt=%00", b"\x00", b"&a" * (PARAMETERS_LIMIT + 1)):
            self.assertRaises(BadRequest, Form.parse, body)

    def test_too_large(self) -> None:
        """A form that is longer than a JWT makes it is refused unread (LIM-4)."""
        self.assertEqual(Form.parse(b"jwt=" + b"%41" * 16384).text("jwt"), "A" * 16384)
        self.assertRaises(TooLarge, Form.parse, b"%" * (FORM_LIMIT + 1))

    def test_secret_in_no_repr(self) -> None:
        """The fields, which hold evidence, don't show."""
        self.assertNotIn("secret", repr(Form.parse(b"jwt=secret")))

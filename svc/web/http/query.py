"""The paths and queries of requests, and forms, read strictly; and the patterns that routes have for their paths.

Note [Strict decoding]: two parties that decode differently disagree about which record a name means. So a text that has a
stray ``%``, or is no UTF-8, is refused. A NUL is refused everywhere: PostgreSQL takes none.

Note [Decoded in C]. ``urllib.parse`` decodes escape by escape, a fifth of the cost of a batch of secrets. Where each
``%`` has its two digits, the text is quoted-printable (RFC 2045 6.7) but for the sign, and ``binascii`` decodes that.

Note [Raw paths]: ``%2F`` belongs to a name, ``/`` separates. So a path is matched undecoded, and each value is decoded after
it was cut out, strictly (Note [Strict decoding]); ``/%68ealth`` is not ``/health``. A ``+`` is a ``+``.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import attrs
from werkzeug.routing import BaseConverter, Map

from svc.model.errors import BadRequest, InvalidName, InvalidParameter, TooLarge

#: More parameters than this in one query or form are refused: no client sends them, and splitting costs time.
PARAMETERS_LIMIT: Final = 1000

#: A longer form is refused unread: decoding takes time. A JWT of 16 KiB, every byte of it escaped, fits.
FORM_LIMIT: Final = 64 * 1024

#: The name of a form's field, before a key in brackets. Bodies of other types have other characters in its place.
_FIELD_NAME: Final = re.compile(r"\w[\w.-]*(\[|\Z)")

_BROKEN_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
#: Bytes of a form that are something else when it is decoded, or refused.
_ENCODED: Final = re.compile(rb"[%+\x00]")
_ENCODED_TEXT: Final = re.compile(r"[%+\x00]")
_SEPARATORS: Final = re.compile("[&;]")
_INTEGER: Final = re.compile("(-?)0*([0-9]+)", re.ASCII)
_NATURAL: Final = re.compile("0|[1-9][0-9]{0,18}", re.ASCII)
_INTEGER_MAX: Final = 2**63 - 1

Pairs = tuple[tuple[str, str | None], ...]


def percent_decoded(text: str) -> str:
    """Decode ``text``; ``+`` is left as it is. See Notes [Strict decoding] and [Decoded in C].

    :raises ValueError: the text has a broken escape, or is no UTF-8, or holds NUL; the message says which.
    """
    # Most escapes are slashes; to decode these first makes no other escape, and breaks none.
    if "%" in (text := text.replace("%2F", "/")):
        if _BROKEN_ESCAPE.search(text):
            raise ValueError("has a '%' that two hexadecimal digits do not follow")
        try:
            text = binascii.a2b_qp(text.encode().replace(b"=", b"=3D").replace(b"%", b"=")).decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError("is not valid UTF-8") from None
    if "\x00" in text:
        raise ValueError("holds a NUL character")
    return text


def single_value(pairs: Pairs, name: str) -> tuple[bool, str | None]:
    """Return whether a parameter that may be given once is there, and its value.

    :raises InvalidParameter: it is repeated, or written as an array (``limit[]=…``).
    """
    found = [pair for pair in pairs if pair[0] == name or pair[0].startswith(f"{name}[")]
    if len(found) > 1 or (found and found[0][0] != name):
        raise InvalidParameter(name, f"'{name}' may be given once, as '{name}=…'")
    return (True, found[0][1]) if found else (False, None)


def several_values(pairs: Pairs, name: str) -> tuple[str, ...]:
    """Return the values of a parameter that may be repeated, as ``kind=…`` or ``kind[]=…``; bare ones don't count.

    :raises InvalidParameter: it is written with a key in the brackets.
    """
    found = []
    for key, value in pairs:
        if key in {name, f"{name}[]"}:
            if value is not None:
                found.append(value)
        elif key.startswith(f"{name}["):
            raise InvalidParameter(name, f"'{name}' takes no key in brackets")
    return tuple(found)


def _form_decoded(text: str) -> str:
    return percent_decoded(text.replace("+", " "))


@attrs.frozen
class Query:
    """The parameters of a query in their order. A bare name (``?members``) has no value, which differs from an empty one.

    Methods raise ``InvalidParameter`` for a value that they can't read, and for a repeated one that may be given only once.
    """

    pairs: Pairs
    #: The names without what stands in brackets, each with the first value of ``name`` or ``name[]``, right or wrong: empty
    #: where that is bare, ``None`` where there is none but of keys in brackets.
    first_values: Mapping[str, str | None]

    @classmethod
    def parse(cls, raw: str) -> Query:
        """Read what follows the ``?``; both ``&`` and ``;`` separate parameters, ``+`` is a blank (WIRE-19).

        :raises InvalidParameter: one doesn't decode, or there are too many.
        """
        pieces = _SEPARATORS.split(raw, maxsplit=PARAMETERS_LIMIT)
        if len(pieces) > PARAMETERS_LIMIT:
            raise InvalidParameter("query", f"the query has more than {PARAMETERS_LIMIT} parameters")
        decode = _form_decoded if _ENCODED_TEXT.search(raw) else str
        pairs: list[tuple[str, str | None]] = []
        first_values: dict[str, str | None] = {}
        for piece in filter(None, pieces):
            raw_name, equals, raw_value = piece.partition("=")
            try:
                name = decode(raw_name)
            except ValueError as error:
                raise InvalidParameter("query", f"a parameter's name in the query {error}") from None
            try:
                value = decode(raw_value) if equals else None
            except ValueError as error:
                raise InvalidParameter(name, f"'{name}' {error}") from None
            pairs.append((name, value))
            base, bracket, rest = name.partition("[")
            if first_values.get(base) is None:
                first_values[base] = None if bracket and rest != "]" else value or ""
        return cls(tuple(pairs), first_values)

    def has_flag(self, name: str) -> bool:
        """Return whether the parameter is there, with any value or none, as ``?members``; ``?members[]`` is refused."""
        found = False
        for key, _ in self.pairs:
            if key == name:
                found = True
            elif key.startswith(f"{name}["):
                raise InvalidParameter(name, f"'{name}' takes no brackets")
        return found

    def text(self, name: str) -> str | None:
        """Read the value of a parameter that may be given once; ``None`` when it is absent or bare."""
        return single_value(self.pairs, name)[1]

    def texts(self, name: str) -> tuple[str, ...]:
        """Read the values of a parameter that may be repeated, as ``kind=…`` or ``kind[]=…``; bare ones don't count."""
        return several_values(self.pairs, name)

    def positive_integer(self, name: str) -> int | None:
        """Read a canonical integer from 1 to 2**63-1, as :meth:`natural`."""
        return self._read_integer(name, 1, "a positive integer")

    def natural(self, name: str) -> int | None:
        """Read a canonical integer from 0 to 2**63-1; ``None`` when it is absent. The messages are those of RES-4."""
        return self._read_integer(name, 0, "an integer greater than or equal to 0")

    def integer(self, name: str) -> int | None:
        """Read an integer; ``None`` when it is absent. Beyond 64 bits it is the last one of these. The message is that of
        SEC-10.
        """
        given, text = single_value(self.pairs, name)
        if not given:
            return None
        if text is not None and (matched := _INTEGER.fullmatch(text)):
            # No more digits than decide are read: int() refuses thousands of them.
            value = min(int(matched[2][:20]), _INTEGER_MAX)
            return -value if matched[1] else value
        raise InvalidParameter(name, f"invalid type for parameter '{name}'")

    def boolean(self, name: str) -> bool:
        """Read ``true`` or ``false``; bare or empty is true, absent is false (ROLE-21)."""
        given, text = single_value(self.pairs, name)
        if not given:
            return False
        if text not in {None, "", "true", "false"}:
            raise InvalidParameter(name, f"'{name}' must be true or false")
        return text != "false"

    def _read_integer(self, name: str, least: int, what: str) -> int | None:
        given, text = single_value(self.pairs, name)
        if not given:
            return None
        if text is not None and _NATURAL.fullmatch(text) and least <= (value := int(text)) <= _INTEGER_MAX:
            return value
        message = f"'{name}' contains an invalid value. '{name}' must be {what}."
        raise InvalidParameter(name, message, code="unprocessable_entity")


#: That of most requests.
NO_QUERY: Final = Query((), MappingProxyType({}))


@attrs.frozen
class Form:
    """The fields of a form in a request's body, whatever its content type (WIRE-24)."""

    pairs: Pairs = attrs.field(repr=False)

    @classmethod
    def parse(cls, body: bytes) -> Form:
        """Read ``application/x-www-form-urlencoded``; only ``&`` separates fields (WIRE-24).

        :raises BadRequest: the body is no form. JSON and ``multipart/form-data`` aren't, whatever they are sent as: their
            parameters would be missing without a word.
        :raises TooLarge: it has more than ``FORM_LIMIT`` bytes.
        """
        if len(body) > FORM_LIMIT:
            raise TooLarge("a form", FORM_LIMIT)
        pieces = body.split(b"&", PARAMETERS_LIMIT)
        if len(pieces) > PARAMETERS_LIMIT:
            raise BadRequest(f"the form has more than {PARAMETERS_LIMIT} fields")
        decode = _form_decoded if _ENCODED.search(body) else str
        pairs: list[tuple[str, str | None]] = []
        for piece in filter(bytes.strip, pieces):
            raw_name, equals, raw_value = piece.partition(b"=")
            try:
                name = decode(raw_name.decode("utf-8"))
                pairs.append((name, decode(raw_value.decode("utf-8")) if equals else None))
            except UnicodeDecodeError:
                raise BadRequest("a field of the form is not valid UTF-8") from None
            except ValueError as error:
                raise BadRequest(f"a field of the form {error}") from None
            if not _FIELD_NAME.match(name):
                raise BadRequest("the body is no form, as name=value&name=value")
        return cls(tuple(pairs))

    def text(self, name: str) -> str | None:
        """Read the value of a field; when it is repeated, the last one counts (WIRE-24).

        :raises InvalidParameter: it is written with brackets (``jwt[]=…``).
        """
        found = None
        for key, value in self.pairs:
            if key == name:
                found = value
            elif key.startswith(f"{name}["):
                raise InvalidParameter(name, f"'{name}' takes no brackets")
        return found


_ABSOLUTE_ORIGIN: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*://[^/?]*")
_VARIABLE: Final = re.compile("<(?:([a-z]+):)?([a-z_]+)>")
_OPTIONAL: Final = re.compile("/<optional:([a-z_]+)>")
_ABSENT: Final = re.compile("/<absent:([a-z_]+)>")

#: A slash that may be encoded, in a pattern, and how it may be written in a path.
_EITHER_SLASH: Final = "{/}"
_SLASHES: Final = ("/", "%2F", "%2f")


class _Flat(BaseConverter):
    """One segment that may not hold a slash, not even an encoded one."""

    regex = "(?:[^/%]|%(?!2[Ff]))+"
    part_isolating = True


class _Tail(BaseConverter):
    """One segment or more."""

    regex = ".+"
    part_isolating = False
    weight = 200


class _Raw(BaseConverter):
    """One segment as it stands on the wire."""

    part_isolating = True


class _Optional(BaseConverter):
    """Any number of segments, none included."""

    regex = ".*"
    part_isolating = False
    weight = 200


class _Mapped(BaseConverter):
    """One segment, other than the words that paths of logins end with; encoded, these are names too."""

    regex = r"(?!(?:authenticate|explain)\Z)[^/]+"
    part_isolating = True


_CONVERTERS: Final = {"flat": _Flat, "tail": _Tail, "raw": _Raw, "optional": _Optional, "mapped": _Mapped}


def configure_map(routes: Map) -> None:
    """Teach a map the converters of :class:`Pattern`, and keep it from rewriting paths."""
    routes.converters.update(_CONVERTERS)
    routes.merge_slashes = False
    routes.redirect_defaults = False


def split_target(target: str) -> tuple[str, str]:
    """Cut a request's target into its raw path, less one trailing slash (WIRE-8), and its raw query.

    An absolute target (``http://host/path``), which servers must take (RFC 9112 3.2.2), is read without its origin.
    """
    if not target.startswith("/") and (origin := _ABSOLUTE_ORIGIN.match(target)) is not None:
        rest = target[origin.end() :]
        target = rest if rest.startswith("/") else f"/{rest}"
    path, _, query = target.partition("?")
    return path if path == "/" else path.removesuffix("/"), query


def rule_expression(rule: str) -> re.Pattern[str]:
    """Return the regular expression of the paths without empty segments that fit a rule, with its values by their names."""
    pieces, end = [], 0
    for variable in _VARIABLE.finditer(rule):
        regex = _CONVERTERS[variable[1]].regex if variable[1] else BaseConverter.regex
        pieces += [re.escape(rule[end : variable.start()]), f"(?P<{variable[2]}>{regex})"]
        end = variable.end()
    return re.compile("".join([*pieces, re.escape(rule[end:])]))


@attrs.frozen
class Pattern:
    """The pattern of a route's path.

    ``<name>`` is one segment, ``%2F`` allowed; ``<flat:name>`` one without a slash, encoded or not; ``<mapped:name>`` one
    that no login's path ends with; ``<tail:name>`` one or more, where ``/`` and ``%2F`` are one; ``<optional:name>`` may be
    absent too, with its slash or without (WIRE-14), and is then ``None``; ``<absent:name>`` always is, with its slash.
    ``<raw:name>``, which has no other beside it, is one segment that isn't decoded, of any length. ``{/}`` is a slash,
    encoded or not.
    """

    text: str
    _undecoded: bool = attrs.field(init=False, repr=False, eq=False)

    @_undecoded.default
    def _has_raw(self) -> bool:
        return "<raw:" in self.text

    def __str__(self) -> str:
        return _ABSENT.sub("", self.text).replace(_EITHER_SLASH, "/")

    @property
    def value_names(self) -> tuple[str, ...]:
        """The names of the values, in order."""
        return tuple(name for _, name in _VARIABLE.findall(self.text))

    def with_prefix(self, name: str, absent: Collection[str]) -> Pattern:
        """Return the pattern with the segment ``name`` before it, in which the values of the names ``absent`` are absent."""
        text = _VARIABLE.sub(lambda found: f"<absent:{found[2]}>" if found[2] in absent else found[0], self.text)
        return Pattern(f"/{name}{text}")

    def format_path(self, values: Mapping[str, str | None]) -> str:
        """Return the path that has these values, decoded, for messages."""
        return _VARIABLE.sub(lambda variable: values[variable[2]] or "", str(self))

    def werkzeug_rules(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Return the rules that make it up, each with the values that it presupposes."""
        for slash in _SLASHES if _EITHER_SLASH in self.text else ("/",):
            text = _ABSENT.sub("", self.text.replace(_EITHER_SLASH, slash))
            absent = dict.fromkeys(_ABSENT.findall(self.text), "")
            yield text, absent
            shorter, found = _OPTIONAL.subn("", text)
            if found:
                yield shorter, absent | dict.fromkeys(_OPTIONAL.findall(text), "")

    def anonymous_rules(self) -> set[str]:
        """Return the rules without the names of their values, which are equal for patterns that match the same paths."""
        return {_VARIABLE.sub(r"<\1>", rule) for rule, _ in self.werkzeug_rules()}

    def decode_values(self, raw: Mapping[str, str], limit: int) -> dict[str, str | None]:
        """Decode the values that were cut out of a path; each may have at most ``limit`` bytes.

        :raises InvalidName: one doesn't decode, or is too long.
        """
        if self._undecoded:
            return dict(raw)
        values: dict[str, str | None] = {}
        for name, text in raw.items():
            # A byte takes three characters at most.
            try:
                value = percent_decoded(text) if "%" in text and len(text) <= 3 * limit else text
            except ValueError as error:
                raise InvalidName(name, f"the {name} in the path {error}") from None
            if len(text) > limit and len(value.encode("utf-8")) > limit:
                raise InvalidName(name, f"the {name} in the path is longer than {limit} bytes")
            values[name] = value or None
        return values

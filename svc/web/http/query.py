"""The queries of requests, and forms, read strictly (``messages.percent_decoded``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import attrs

from svc.model.errors import BadRequest, InvalidParameter, TooLarge
from svc.web.http.messages import percent_decoded

#: More parameters than this in one query or form are refused: no client sends them, and splitting costs time.
PARAMETERS_LIMIT: Final = 1000

#: A longer form is refused unread: decoding takes time. A JWT of 16 KiB, every byte of it escaped, fits.
FORM_LIMIT: Final = 64 * 1024

#: The name of a form's field, before a key in brackets. Bodies of other types have other characters in its place.
_FIELD_NAME: Final = re.compile(r"\w[\w.-]*(\[|\Z)")

#: Bytes of a form that are something else when it is decoded, or refused.
_ENCODED: Final = re.compile(rb"[%+\x00]")
_ENCODED_TEXT: Final = re.compile(r"[%+\x00]")
_SEPARATORS: Final = re.compile("[&;]")
_INTEGER: Final = re.compile("(-?)([0-9]+)", re.ASCII)
_NATURAL: Final = re.compile("0|[1-9][0-9]{0,18}", re.ASCII)
_INTEGER_MAX: Final = 2**63 - 1

Pairs = tuple[tuple[str, str | None], ...]


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
            value = min(int(matched[2].lstrip("0")[:20] or "0"), _INTEGER_MAX)
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

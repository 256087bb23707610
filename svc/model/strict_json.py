"""JSON with one reading or none: UTF-8, no member twice, no NaN, bounded nesting (RFC 7493)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

import attrs

from svc.model.text import quote_text

#: Deepest nesting of an object (WIRE-26).
NESTING_LIMIT: Final = 64

#: How many characters of a value are shown.
_SHOWN: Final = 100

#: Values that stand for an absent member: serializers of some frameworks write every member that they know.
_ABSENT: Final[tuple[object, ...]] = (None, "", [], {})


@attrs.frozen(str=False)
class Malformed(ValueError):
    """A text is malformed; raised by the readers of JSON, of compact tokens and of key sets. ``why`` begins with "it"."""

    why: str

    def __str__(self) -> str:
        return self.why


def shown_json(value: object) -> str:
    """Return a JSON value for a message: text as :func:`quote_text` returns it, anything else as JSON has it, shortened."""
    if isinstance(value, str):
        return quote_text(value)
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def parse_json_object(document: bytes) -> dict[str, object]:
    """Read a JSON object that is at most ``NESTING_LIMIT`` deep.

    :raises Malformed: the document is anything else.
    """
    value = parse_json_value(document)
    if not isinstance(value, dict):
        raise Malformed("it is no JSON object, or not only one")
    return value


def parse_json_value(document: bytes) -> object:
    """Read any JSON value that is at most ``NESTING_LIMIT`` deep.

    How deep the parser of Python goes depends on its version and on the size of the stack.

    :raises Malformed: the document is none, or is nested deeper.
    """
    try:
        text = document.decode("utf-8").strip(" \t\n\r")
    except UnicodeDecodeError:
        raise Malformed("it is not UTF-8") from None
    if text.count("[") + text.count("{") > NESTING_LIMIT and _nesting_depth(text) > NESTING_LIMIT:
        raise Malformed(f"it is nested more than {NESTING_LIMIT} deep")
    try:
        value, end = _DECODER.raw_decode(text)
    except Malformed:
        raise
    except (ValueError, RecursionError):  # a syntax error, an integer of thousands of digits, or brackets without end
        raise Malformed("it is not JSON") from None
    if end != len(text):
        raise Malformed("it is no JSON object, or not only one")
    return value


def drop_absent_members(members: Mapping[str, object]) -> dict[str, object]:
    """Return the members of a provider's object without those that are null or empty, which count as absent."""
    return {name: value for name, value in members.items() if value not in _ABSENT}


def format_json(value: object) -> str:
    """Write a JSON value, as short as it goes."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Malformed("it names a member twice")
    return members


def _refuse_constant(_: str) -> object:
    raise Malformed("it holds NaN or Infinity, which are no JSON")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
# The end of a string may be missing, so that the match of one never fails: retrying from each character would take forever.
_STRINGS_AND_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)


def _nesting_depth(text: str) -> int:
    depth = deepest = 0
    for match in _STRINGS_AND_BRACKETS.finditer(text):
        mark = match.group()[0]
        if mark in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif mark != '"':
            depth -= 1
    return deepest

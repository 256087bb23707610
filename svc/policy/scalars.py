"""The meaning of YAML scalars: unquoted ones may be numbers, dates, booleans or null (POL-7 to POL-9).

The words for meanings appear in messages; they come from the language of the installed base. Functions that read a field
raise ``PolicyInvalid`` for anything else.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterator
from typing import Final

from svc.model.errors import PolicyInvalid
from svc.policy.document import Mapping, Node, Scalar, Sequence, follow_alias, list_items, shorten_text, suggest_quotes
from svc.policy.vocabulary import MERGED, TEXT_TAGS, refuse_type, type_of

_STRING: Final = "String"
_INTEGER_CLASS: Final = "Integer"
_NOTHING: Final = "NilClass"
_TRUE: Final = "TrueClass"
_FALSE: Final = "FalseClass"

_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_FLOAT: Final = re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _spell_words(*words: str) -> frozenset[str]:
    return frozenset(spelt for word in words for spelt in (word, word.capitalize(), word.upper()))


_WORDS: Final = {
    **dict.fromkeys({"", "~", *_spell_words("null")}, _NOTHING),
    **dict.fromkeys(_spell_words("true", "yes", "on"), _TRUE),
    **dict.fromkeys(_spell_words("false", "no", "off"), _FALSE),
}
_NUMERIC: Final = frozenset("0123456789+-.")


def classify_scalar(scalar: Scalar) -> str:
    """Return the meaning of a scalar by one of these words, ``Float`` or ``Date``.

    Octal, hexadecimal and sexagesimal numbers are read as texts: nobody who writes ``0755`` or ``12:30`` means 493 or 750.
    """
    value = scalar.value
    if not scalar.plain:
        return _STRING
    if value[:1] in _NUMERIC:
        if _INTEGER.fullmatch(value):
            return _INTEGER_CLASS
        if _FLOAT.fullmatch(value):
            return "Float"
        return "Date" if _DATE.fullmatch(value) and _is_date(value) else _STRING
    return _WORDS.get(value, _STRING)


def as_text(scalar: Scalar) -> str:
    """Return the text of a meaning: ``yes`` is ``true``, ``1.10`` is ``1.1``, ``~`` is empty."""
    value = scalar.value
    match classify_scalar(scalar):
        case "Integer":
            # Not by int(), which refuses thousands of digits.
            digits = value.lstrip("+-").replace("_", "")
            return f"-{digits}" if value[0] == "-" and digits != "0" else digits
        case "Float":
            return _float_text(float(value.replace("_", "")))
        case other:
            return {_TRUE: "true", _FALSE: "false", _NOTHING: ""}.get(other, value)


def is_nothing(node: Scalar | Sequence | Mapping) -> bool:
    """Return whether a value was left out, or is ``~`` or ``null``."""
    return isinstance(node, Scalar) and classify_scalar(node) == _NOTHING


def is_text(node: Scalar | Sequence | Mapping) -> bool:
    """Return whether a value is a text, without a tag that makes it something else."""
    return isinstance(node, Scalar) and node.tag in TEXT_TAGS and classify_scalar(node) == _STRING


def read_text(node: Node, field: str) -> str | None:
    """Read the text of a field, ``None`` for nothing."""
    return _read_typed(node, field, "string", _STRING)


def read_texts(node: Node, field: str) -> Iterator[Scalar]:
    """Read the texts of a field, one or a list, as scalars with their places."""
    found = follow_alias(node)
    if isinstance(found, Sequence):
        refuse_type(found)
        for item in list_items(found, node):
            yield from read_texts(item, field)
        return
    value = read_scalar(node, field, "string")
    if classify_scalar(value) != _STRING:
        raise unexpected_value(value, field, "string")
    yield value


def read_integer(node: Node, field: str) -> str | None:
    """Read the integer of a field, in decimal, ``None`` for nothing."""
    return _read_typed(node, field, "integer", _INTEGER_CLASS)


def _read_typed(node: Node, field: str, expected: str, wanted: str) -> str | None:
    value = read_scalar(node, field, expected)
    got = classify_scalar(value)
    if got not in {wanted, _NOTHING}:
        raise unexpected_value(value, field, expected)
    return as_text(value) if got == wanted else None


def read_boolean(node: Node, field: str) -> bool:
    """Read a field that is true or false, or one of these words in quotes."""
    value = read_scalar(node, field, "boolean")
    if classify_scalar(value) in {_TRUE, _FALSE, _STRING} and as_text(value) in {"true", "false"}:
        return as_text(value) == "true"
    raise unexpected_value(value, field, "boolean")


def read_scalar(node: Node, field: str, expected: str) -> Scalar:
    """Read the scalar of a field, whatever it means."""
    node = follow_alias(node)
    if isinstance(node, Mapping) and node.tag is None:
        hint = MERGED if field == "<<" else ""
        if node.flow and all(is_nothing(follow_alias(value)) for _, value in node.pairs):
            hint = suggest_quotes("{", "a mapping")
        raise PolicyInvalid(f"Attribute '{shorten_text(field)}' can't be a mapping{hint}", node.line, node.column)
    if not isinstance(node, Scalar) or node.tag not in TEXT_TAGS:
        raise unexpected_value(node, field, expected)
    return node


def unexpected_value(node: Scalar | Sequence | Mapping, field: str, expected: str) -> PolicyInvalid:
    """Return the refusal of a value that isn't what its field expects."""
    known = type_of(node)
    if isinstance(node, Sequence):
        got = "Array"
    elif known is not None:
        got = known.name
    else:
        got = classify_scalar(node) if isinstance(node, Scalar) else "Hash"
    hint = MERGED if field == "<<" and not isinstance(node, Scalar) else ""
    return PolicyInvalid(f"Expected a {expected} for field '{shorten_text(field)}', got {got}{hint}", node.line, node.column)


def _is_date(value: str) -> bool:
    try:
        datetime.date.fromisoformat(value)
    except ValueError:
        return False
    return True


def _float_text(number: float) -> str:
    """Return a number as the installed base writes it: ``1.0e+20``, ``Infinity``."""
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    mantissa, e, power = repr(number).partition("e")
    return f"{mantissa}.0{e}{power}" if e and "." not in mantissa else f"{mantissa}{e}{power}"

"""JSON as Vault sends it, read and written without a change: numbers stay the digits that came.

KV of version 1 keeps a value's own digits, of which a float would lose some.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, TypeAlias

from svc.importing.hcl import Number

#: The deepest nesting that is read.
DEPTH_LIMIT: Final = 100

Json: TypeAlias = "str | Number | bool | list[Json] | dict[str, Json] | None"

#: Numbers with so many digits have perhaps been rounded by KV of version 2, which keeps them as floats.
_ROUNDED_DIGITS: Final = 16


def read_json(body: bytes) -> Json:
    """Return the value of a text.

    :raises ValueError: it isn't JSON in UTF-8, or has half a surrogate pair, or is nested too deeply; the message has no
    part of the text.
    """
    try:
        value: Json = json.loads(body.decode("utf-8"), parse_float=Number, parse_int=Number, parse_constant=_refuse_constant)
        _check_value(value, 0)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON, or none that could be kept") from None
    return value


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError


def _check_value(value: Json, depth: int) -> None:
    if depth > DEPTH_LIMIT:
        raise ValueError
    for each in _texts_of(value):
        each.encode("utf-8")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_value(inner, depth + 1)


def _texts_of(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value


def write_json(value: Json) -> str:
    """Return the text of a value, as short as it goes, with its members in their order and numbers as they came."""
    match value:
        case Number(text):
            return text
        case dict():
            return "{" + ",".join(f"{_quote(name)}:{write_json(inner)}" for name, inner in value.items()) + "}"
        case list():
            return "[" + ",".join(write_json(inner) for inner in value) + "]"
    return json.dumps(value, ensure_ascii=False)


_quote: Final[Callable[[str], str]] = json.JSONEncoder(ensure_ascii=False).encode


def is_perhaps_rounded(value: Json) -> bool:
    """Return whether there is a number in it that a float can't keep."""
    match value:
        case Number(text):
            return sum(char.isdigit() for char in text) >= _ROUNDED_DIGITS
        case dict():
            return any(is_perhaps_rounded(inner) for inner in value.values())
        case list():
            return any(is_perhaps_rounded(inner) for inner in value)
    return False


def object_of(value: Any) -> dict[str, Json]:
    """Return an object; an empty one for null, as there.

    :raises ValueError: it is anything else.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def texts_of(value: Any) -> tuple[str, ...]:
    """Return the texts of a list, or of null or "" for none; one text or several with commas between are a list, too.

    :raises ValueError: it is anything else.
    """
    if value is None or value == "":
        return ()
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(each, str) for each in items):
        raise ValueError("not a list of texts")
    return tuple(each for each in (item.strip() for item in items) if each)


def integer_of(value: Any) -> int:
    """Return a whole number; 0 for null.

    :raises ValueError: it is anything else.
    """
    if value is None:
        return 0
    if not isinstance(value, Number):
        raise ValueError("not a number")
    return int(value.text)

"""JSON as it is written on the wire: ASCII, without blanks, and harmless in a page (WIRE-35).

Note [Two writers]. orjson writes ten times as fast as the standard library's ``json``, and the same bytes but for four
things. It leaves DEL and what is beyond ASCII as they are, which is seen in its bytes. It refuses halves of surrogate pairs,
integers of more than 64 bits, and more than 250 levels. In these cases ``json`` writes the document once more. The others
can't be seen: NaN becomes null, and fractions near zero are written otherwise. So orjson is given what has no ``float``, as
the type checker proves; where that can't check, behind ``Any``, fractions are rounded to thousandths: both write these
alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import orjson

#: A document without ``float``.
Json: TypeAlias = str | int | Mapping[str, "Json"] | Sequence["Json"] | None

#: How many bytes of JSON go out as one piece: as much as is written within a millisecond or so.
PIECE_SIZE: Final = 64 * 1024

#: How many elements of an array are written down at once; a short one by itself would cost twice as much.
_GROUP_SIZE: Final = 16

_STANDARD: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))

#: DEL, which orjson doesn't escape.
_DEL: Final = b"\x7f"


def encode_json(document: Json) -> bytes:
    """Return a document that has no ``float`` (Note [Two writers])."""
    try:
        text = orjson.dumps(document)
    except TypeError:
        return encode_json_with_floats(document)
    return escape_html(text) if text.isascii() and _DEL not in text else encode_json_with_floats(document)


def encode_json_with_floats(document: object) -> bytes:
    """Return any document.

    :raises ValueError: it has a NaN, or an infinite number, or itself.
    :raises TypeError: it has what is no JSON.
    """
    return escape_html(_STANDARD.encode(document).encode("ascii"))


def escape_html(text: bytes) -> bytes:
    """Return JSON in ASCII with ``<``, ``>`` and ``&`` escaped, which stand in strings alone."""
    return text.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


def encode_elements(rows: Sequence[Json]) -> Iterator[bytes]:
    """Return the inside of an array's brackets, in chunks of a few elements, with the commas between."""
    for start in range(0, len(rows), _GROUP_SIZE):
        chunk = encode_json(rows[start : start + _GROUP_SIZE])[1:-1]
        yield chunk if start == 0 else b"," + chunk


def encode_object_start(some: Mapping[str, Json]) -> bytes:
    """Return the beginning of an object that has these members, up to where others may follow."""
    return encode_json(some)[:-1]


def join_chunks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Return the chunks, put together to pieces of ``PIECE_SIZE`` bytes, or a chunk more."""
    some: list[bytes] = []
    size = 0
    for chunk in chunks:
        some.append(chunk)
        size += len(chunk)
        if size >= PIECE_SIZE:
            yield b"".join(some)
            some.clear()
            size = 0
    if some:
        yield b"".join(some)

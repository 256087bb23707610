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
PIECE: Final = 64 * 1024

#: How many elements of an array are written down at once; a short one by itself would cost twice as much.
_GROUP: Final = 16

_STANDARD: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))

#: DEL, which orjson doesn't escape.
_DEL: Final = b"\x7f"


def written(document: Json) -> bytes:
    """Return a document that has no ``float`` (Note [Two writers])."""
    try:
        text = orjson.dumps(document)
    except TypeError:
        return written_any(document)
    return harmless(text) if text.isascii() and _DEL not in text else written_any(document)


def written_any(document: object) -> bytes:
    """Return any document.

    :raises ValueError: it has a NaN, or an infinite number, or itself.
    :raises TypeError: it has what is no JSON.
    """
    return harmless(_STANDARD.encode(document).encode("ascii"))


def harmless(text: bytes) -> bytes:
    """Return JSON in ASCII with ``<``, ``>`` and ``&`` escaped, which stand in strings alone."""
    return text.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


def elements_of(rows: Sequence[Json]) -> Iterator[bytes]:
    """Return the inside of an array's brackets, in chunks of a few elements, with the commas between."""
    for start in range(0, len(rows), _GROUP):
        chunk = written(rows[start : start + _GROUP])[1:-1]
        yield chunk if start == 0 else b"," + chunk


def members_of(some: Mapping[str, Json]) -> bytes:
    """Return the beginning of an object that has these members, up to where others may follow."""
    return written(some)[:-1]


def gathered(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Return the chunks, put together to pieces of ``PIECE`` bytes, or a chunk more."""
    some: list[bytes] = []
    size = 0
    for chunk in chunks:
        some.append(chunk)
        size += len(chunk)
        if size >= PIECE:
            yield b"".join(some)
            some.clear()
            size = 0
    if some:
        yield b"".join(some)

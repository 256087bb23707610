"""Cursors: the end of a listing's page, as text that a client hands back and needn't understand.

Most are keys of rows: base64url without padding of a version, the class of the row (255 for none), whether the row is of
ownership, and the full id by which the listing is ordered. A change of this form changes the version, so that an old cursor
is refused and not misread. That of a list of holders (``svc/services/access_paths.py``, Note [Cursors]) is base64url of a
version, then JSON; that of a list of resources has a version and an id, that of a list of readers also a day between them.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Final

from svc.model.access import HoldersCursor
from svc.model.errors import InvalidName, InvalidParameter
from svc.model.names import ResourceName, RoleName
from svc.model.query_results import ListingKey
from svc.model.readings import READERS_START, ReadersCursor

_VERSION: Final = 1
_VERSION_OF_HOLDERS: Final = b"\x02"
_VERSION_OF_RESOURCES: Final = b"\x03"
_VERSION_OF_READERS: Final = b"\x04"
_DAY_BYTES: Final = 4
_NO_RANK: Final = 255
_RANKS: Final = range(3)

#: Longer than the cursor of the longest id, and than that of the longest position.
_CURSOR_FORM: Final = re.compile("[A-Za-z0-9_-]{1,2048}")
_LONG_CURSOR_FORM: Final = re.compile("[A-Za-z0-9_-]{1,60000}")

#: The most levels, and ids, that a position has.
_MAX_LEVELS: Final = 1_000_000
_MAX_IDS: Final = 100


def encode_cursor(place: ListingKey) -> str:
    """Return the cursor of a row's key."""
    rank = _NO_RANK if place.rank is None else place.rank
    return _encode_base64(bytes((_VERSION, rank, place.ownership)) + place.name.encode("utf-8"))


def parse_cursor(cursor: str, *, ranked: bool) -> ListingKey:
    """Read a cursor of a listing that goes by class, or by id alone.

    :raises InvalidParameter: it is not exactly what :func:`encode_cursor` makes for a listing of this kind.
    """
    try:
        raw = _decode_base64(cursor) if _CURSOR_FORM.fullmatch(cursor) else b""
        version, rank, ownership, *_ = raw
        name = str(RoleName.parse(raw[3:].decode("utf-8")))
        whole = version == _VERSION and ownership in {0, 1} and cursor == _encode_base64(raw)
        if not whole or (rank not in _RANKS if ranked else rank != _NO_RANK):
            raise ValueError("another form")
    except (ValueError, InvalidName):
        raise _invalid_cursor("cursor") from None
    return ListingKey(name, bool(ownership), rank if ranked else None)


def position_cursor(position: HoldersCursor) -> str:
    """Return the text of a cursor in a list of holders."""
    fields = [position.length, int(position.found), *position.start]
    return _encode_base64(
        _VERSION_OF_HOLDERS + json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    )


def parse_position_cursor(cursor: str) -> HoldersCursor:
    """Read a cursor of a list of holders.

    :raises InvalidParameter: it is none of that form.
    """
    try:
        raw = _decode_base64(cursor) if _LONG_CURSOR_FORM.fullmatch(cursor) else b""
        if raw[:1] != _VERSION_OF_HOLDERS:
            raise ValueError("another form")
        length, found, *start = json.loads(raw[1:].decode("utf-8"))
        if type(length) is not int or length not in range(1, _MAX_LEVELS) or found not in {0, 1} or len(start) > _MAX_IDS:
            raise ValueError("another form")
        if not all(isinstance(name, str) and "\0" not in name for name in start):
            raise ValueError("no ids")
        position = HoldersCursor(length, bool(found), tuple(start))
        if position_cursor(position) != cursor:
            raise ValueError("written otherwise")
    except (ValueError, TypeError, RecursionError):
        raise _invalid_cursor("after") from None
    return position


def resource_cursor(name: str) -> str:
    """Return the cursor behind the resource with this full id."""
    return _encode_base64(_VERSION_OF_RESOURCES + name.encode("utf-8"))


def parse_resource_cursor(cursor: str) -> str:
    """Read a cursor of a list of resources.

    :raises InvalidParameter: it is none of that form.
    """
    try:
        raw = _decode_base64(cursor) if _CURSOR_FORM.fullmatch(cursor) else b""
        if raw[:1] != _VERSION_OF_RESOURCES or cursor != _encode_base64(raw):
            raise ValueError("another form")
        return str(ResourceName.parse(raw[1:].decode("utf-8")))
    except (ValueError, InvalidName):
        raise _invalid_cursor("after") from None


def reader_cursor(last: ReadersCursor) -> str:
    """Return the cursor behind a reader of a variable."""
    return _encode_base64(_VERSION_OF_READERS + last.day.to_bytes(_DAY_BYTES) + last.role.encode("utf-8"))


def parse_reader_cursor(cursor: str) -> ReadersCursor:
    """Read a cursor of a list of readers.

    :raises InvalidParameter: it is none of that form.
    """
    try:
        raw = _decode_base64(cursor) if _CURSOR_FORM.fullmatch(cursor) else b""
        day, role = int.from_bytes(raw[1 : 1 + _DAY_BYTES]), str(RoleName.parse(raw[1 + _DAY_BYTES :].decode("utf-8")))
        if raw[:1] != _VERSION_OF_READERS or day > READERS_START.day or cursor != _encode_base64(raw):
            raise ValueError("another form")
    except (ValueError, InvalidName):
        raise _invalid_cursor("after") from None
    return ReadersCursor(day, role)


def _invalid_cursor(parameter: str) -> InvalidParameter:
    return InvalidParameter(parameter, f"'{parameter}' is none that this listing gave out")


def _decode_base64(cursor: str) -> bytes:
    return base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)


def _encode_base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")

"""Cursors: the end of a listing's page, as text that a client hands back and needn't understand.

A cursor is base64url without padding of a version, the class of the row (255 for none), whether the row is of ownership, and
the full id by which the listing is ordered. A change of this form changes the version, so that an old cursor is refused and
not misread.
"""

from __future__ import annotations

import base64
import re
from typing import Final

from svc.model.errors import InvalidName, InvalidParameter
from svc.model.names import RoleName
from svc.model.query_results import Place

_VERSION: Final = 1
_NO_RANK: Final = 255
_RANKS: Final = range(3)

#: Longer than the cursor of the longest id.
_FORM: Final = re.compile("[A-Za-z0-9_-]{1,2048}")


def cursor_of(place: Place) -> str:
    """Return the cursor of a row's key."""
    rank = _NO_RANK if place.rank is None else place.rank
    return _encoded(bytes((_VERSION, rank, place.ownership)) + place.name.encode("utf-8"))


def place_of(cursor: str, *, ranked: bool) -> Place:
    """Read a cursor of a listing that goes by class, or by id alone.

    :raises InvalidParameter: it is not exactly what :func:`cursor_of` makes for a listing of this kind.
    """
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True) if _FORM.fullmatch(cursor) else b""
        version, rank, ownership, *_ = raw
        name = str(RoleName.parse(raw[3:].decode("utf-8")))
        whole = version == _VERSION and ownership in {0, 1} and cursor == _encoded(raw)
        if not whole or (rank not in _RANKS if ranked else rank != _NO_RANK):
            raise ValueError("another form")
    except (ValueError, InvalidName):
        raise InvalidParameter("cursor", "'cursor' is none that this listing gave out") from None
    return Place(name, bool(ownership), rank if ranked else None)


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")

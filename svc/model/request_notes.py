"""What is noted about a request while it is answered, for the headers of its response and for the log.

Note [Beside the values]. A write's position in the log, and that an answer came from unconfirmed memory, are facts about the
whole request, known far below the route that answers. They are noted beside the values that a use case returns, in an object
that belongs to the request: the router makes it, and Deferreds hand it on (``contextvars``) to all that the request begins.
Work that no request began has none.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

import attrs

from svc.model.versions import StateVersion

#: The header of a response that came from unconfirmed memory (CLU-36).
STALE: Final = "Svc-Stale"


@attrs.define
class RequestNotes:
    """The notes of one request.

    ``writes``: it may write, so that what decides about it is read afresh (CLU-34). ``may_outlive``: it may be answered from
    memory that outlived the database (CLU-36). ``asked``: the database was asked for what isn't remembered. ``recalled``:
    something was remembered. ``version``: the token of the state after its last write (CLU chapter), ``None`` if it wrote
    nothing. ``stale``: for how many seconds what it was answered from had not been confirmed, ``None`` if all of it was.
    ``at_least``: versions that all its readings must be as new as, and ``place``: where its first reading was answered; both
    where readings may go to standbys (``storage/readings``). ``request_id``: by which clients name it to operators.
    """

    writes: bool = False
    may_outlive: bool = False
    asked: bool = False
    recalled: bool = False
    version: str | None = None
    stale: float | None = None
    at_least: tuple[StateVersion, ...] = ()
    place: object = None
    request_id: str | None = None


_NOTES: Final[ContextVar[RequestNotes | None]] = ContextVar("request_notes", default=None)


def begin_notes() -> RequestNotes:
    """Return the notes of a request that begins in this context."""
    notes = RequestNotes()
    _NOTES.set(notes)
    return notes


def is_stale() -> bool:
    """Return whether the request that this is done for was answered from memory that wasn't confirmed (CLU-36)."""
    notes = request_notes()
    return notes is not None and notes.stale is not None


def request_notes() -> RequestNotes | None:
    """Return the notes of the request that this is done for, ``None`` if it is done for none."""
    return _NOTES.get()

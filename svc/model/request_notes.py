"""Notes about a request while it is answered, for the headers of its response and for the log.

Note [Beside the values]. A write's position in the log, and that an answer came from an unconfirmed cache, are facts about
the whole request, known far below the route that answers. They are noted beside the values that a use case returns, in an
object that belongs to the request: the router makes it, and Deferreds propagate it (``contextvars``) to all work that the
request begins. Work that no request began has none.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

import attrs

from svc.model.versions import StateVersion

#: The header of a response that came from an unconfirmed cache (CLU-36).
STALE_HEADER: Final = "Svc-Stale"


@attrs.define
class RequestNotes:
    """The notes of one request.

    ``may_write``: it may write, so that the facts for decisions about it aren't read from the cache (CLU-34).
    ``may_serve_stale``: it may be answered from a cache that outlived the database (CLU-36). ``queried``: a read went to the
    database since it wasn't cached. ``cache_used``: an answer came from the cache. ``version``: the token of the state after
    its last write (CLU chapter), ``None`` if it wrote nothing. ``stale``: for how many seconds the cached answers for it had
    not been confirmed, ``None`` if all were. ``at_least``: versions that all its reads must be as new as, and
    ``replica``: where its first read was answered; both where reads may go to standbys (``storage/read_routing``).
    ``request_id``: by which clients name it to operators.
    """

    may_write: bool = False
    may_serve_stale: bool = False
    queried: bool = False
    cache_used: bool = False
    version: str | None = None
    stale: float | None = None
    at_least: tuple[StateVersion, ...] = ()
    replica: object = None
    request_id: str | None = None


_NOTES: Final[ContextVar[RequestNotes | None]] = ContextVar("request_notes", default=None)

#: Returns the notes of the current request, ``None`` outside of one.
request_notes: Final[Callable[[], RequestNotes | None]] = _NOTES.get


def begin_notes() -> RequestNotes:
    """Return the notes of a request that begins in this context."""
    notes = RequestNotes()
    _NOTES.set(notes)
    return notes


#: Makes notes those of a request that begins in this context.
set_notes: Final[Callable[[RequestNotes], object]] = _NOTES.set


def is_stale() -> bool:
    """Return whether the current request was answered from an unconfirmed cache (CLU-36)."""
    notes = _NOTES.get()
    return notes is not None and notes.stale is not None

"""A request as it comes in: its head, which is complete, and its body, which may still be on the way."""

from __future__ import annotations

import attrs
from twisted.internet.defer import Deferred

from svc.model.errors import TooLarge
from svc.web.http.framing import Fields


@attrs.define(eq=False)
class Incoming:
    """One request on its way in: no more of its body than ``limit`` is kept, in memory.

    ``target`` is as it arrived, in ASCII; ``headers`` have their names in lower case. ``declared`` is the value of
    ``Content-Length``, ``None`` for a chunked body. ``overflow`` says that it came on a connection beyond the limit,
    ``abandoned`` that the client is gone, or has had an answer already. ``route`` is the one that answers, once that is
    known, ``visit`` the visit to the console that it is a part of, if it is one, and ``call`` the request as the route saw
    it, while its refusal is recorded and answered.
    """

    method: str
    target: str
    headers: Fields
    client_ip: str
    request_id: str
    declared: int | None
    limit: int
    overflow: bool = False
    abandoned: bool = False
    route: object | None = None
    call: object | None = None
    visit: object | None = None
    _received: int = 0
    _complete: bool = False
    _kept: bytearray | None = attrs.field(factory=bytearray, repr=False)
    _waiting: Deferred[None] | None = None

    @property
    def complete(self) -> bool:
        """Whether the whole body has arrived."""
        return self._complete

    @property
    def too_large(self) -> bool:
        """Whether the body is known to exceed ``limit``."""
        return self._received > self.limit or (self.declared or 0) > self.limit

    def header(self, name: bytes) -> str | None:
        """Return the value of a header; several lines of one name are joined with commas (RFC 9110 5.3)."""
        values = self.headers.get(name.lower())
        return None if values is None else b", ".join(values).decode("latin-1")

    def append(self, chunk: bytes) -> None:
        """Add a piece of the body."""
        self._received += len(chunk)
        if self.too_large:
            self.discard()
            self._wake()
        elif self._kept is not None:
            # Not a list of chunks: 32 MiB in chunks of two bytes would weigh twenty times as much.
            self._kept += chunk

    def finish(self) -> None:
        """Note that the body has ended."""
        self._complete = True
        self._wake()

    def discard(self) -> None:
        """Drop the body: the received part, and the rest when it comes."""
        self._kept = None

    def release(self) -> None:
        """Let go of all that was sent: an answer in pieces may take long, and needs none of it."""
        self.discard()
        self.headers, self.target = {}, ""

    async def body(self) -> bytes:
        """Wait for the body and return it.

        :raises TooLarge: it has more than ``limit`` bytes; known as soon as ``Content-Length`` or the bytes say so.
        """
        if not self._complete and not self.too_large:
            self._waiting = Deferred()
            await self._waiting
        if self.too_large:
            raise TooLarge("the body", self.limit)
        return bytes(self._kept or b"")

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

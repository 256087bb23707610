"""A request as it comes in: its head, which is complete, and its body, which may still be on the way."""

from __future__ import annotations

import attrs
from twisted.internet.defer import Deferred

from svc.model.errors import TooLarge
from svc.web.http.framing import Fields


@attrs.define(eq=False)
class IncomingRequest:
    """One request on its way in: no more of its body than ``limit`` is kept, in memory.

    ``target`` is as it arrived, in ASCII; ``headers`` have their names in lower case. ``declared_length`` is the value of
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
    declared_length: int | None
    limit: int
    overflow: bool = False
    abandoned: bool = False
    route: object | None = None
    call: object | None = None
    visit: object | None = None
    #: Whether the whole body has arrived.
    is_complete: bool = False
    _received_size: int = 0
    _buffer: bytearray | None = attrs.field(factory=bytearray, repr=False)
    _waiting_reader: Deferred[None] | None = None

    @property
    def is_too_large(self) -> bool:
        """Whether the body is known to exceed ``limit``."""
        return self._received_size > self.limit or (self.declared_length or 0) > self.limit

    def header(self, name: bytes) -> str | None:
        """Return the value of a header; several lines of one name are joined with commas (RFC 9110 5.3)."""
        values = self.headers.get(name.lower())
        return None if values is None else b", ".join(values).decode("latin-1")

    def append_body(self, chunk: bytes) -> None:
        """Add a piece of the body."""
        self._received_size += len(chunk)
        if self.is_too_large:
            self.discard_body()
            self._wake_reader()
        elif self._buffer is not None:
            # Not a list of chunks: 32 MiB in chunks of two bytes would weigh twenty times as much.
            self._buffer += chunk

    def end_body(self) -> None:
        """Note that the body has ended."""
        self.is_complete = True
        self._wake_reader()

    def discard_body(self) -> None:
        """Drop the body: the received part, and the rest when it comes."""
        self._buffer = None

    def release_memory(self) -> None:
        """Let go of all that was sent: an answer in pieces may take long, and needs none of it."""
        self.discard_body()
        self.headers, self.target = {}, ""

    async def read_body(self) -> bytes:
        """Wait for the body and return it.

        :raises TooLarge: it has more than ``limit`` bytes; known as soon as ``Content-Length`` or the bytes say so.
        """
        if not self.is_complete and not self.is_too_large:
            self._waiting_reader = Deferred()
            await self._waiting_reader
        if self.is_too_large:
            raise TooLarge("the body", self.limit)
        return bytes(self._buffer or b"")

    def _wake_reader(self) -> None:
        waiting, self._waiting_reader = self._waiting_reader, None
        if waiting is not None:
            waiting.callback(None)

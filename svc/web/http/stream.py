"""An answer on its way out in pieces, no faster than the client takes them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer


@implementer(IPushProducer)
class Stream:
    """A writer of pieces, optionally as chunks (RFC 9112 7.1), that waits while the transport has enough of them."""

    def __init__(self, write: Callable[[bytes], None], *, chunked: bool) -> None:
        self._write = write
        self._chunked = chunked
        self._paused = False
        self._resumption: Deferred[None] | None = None

    async def send_pieces(self, pieces: AsyncGenerator[bytes, None]) -> None:
        """Write all pieces, and the end; raise what ``pieces`` raises. Cancelled, it closes ``pieces``."""
        async with aclosing(pieces):
            async for piece in pieces:
                self._write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)
                if self._paused:
                    self._resumption = Deferred()
                    await self._resumption
        if self._chunked:
            self._write(b"0\r\n\r\n")

    def pauseProducing(self) -> None:  # noqa: N802  # the name is Twisted's
        """Pause, since there is enough for the client to take."""
        self._paused = True

    def resumeProducing(self) -> None:  # noqa: N802  # the name is Twisted's
        """Go on, since the client has taken most of it."""
        self._paused = False
        room, self._resumption = self._resumption, None
        if room is not None:
            room.callback(None)

    def stopProducing(self) -> None:  # noqa: N802  # the name is Twisted's
        """Do nothing: the connection has ended, and ``send_pieces`` is cancelled with the request."""

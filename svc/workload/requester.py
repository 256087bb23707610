"""The client logic's interface to the program around it: requests, waits, and work that is done once for many.

The logic is coroutines over these interfaces, and knows no framework. ``svc.workload.exchange`` implements them for Twisted,
``svc.client`` for asyncio, and for threaded programs: there nothing waits by suspending.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from svc.workload.replies import Reply

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class SharedResult(Protocol[T_co]):
    """One run of some work for all callers that need its result meanwhile; one that gives up only waits no more."""

    async def result(self) -> T_co:
        """Return the result of the work, or raise what it raises."""


class Requester(Protocol):
    """Sends requests, and waits."""

    async def ask(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, *, within: float
    ) -> Reply:
        """Send a request, and return its answer, whatever the status; all of it may take ``within`` seconds.

        :raises Unreachable: there was none in time.
        :raises Untrusted: the server there has no valid certificate for it.
        :raises TooLong: the answer has too many bytes.
        """

    def seconds(self) -> float:
        """Return what the clock for durations shows, in seconds."""

    async def sleep(self, seconds: float) -> None:
        """Return after some seconds."""

    def shared(self, work: Callable[[], Coroutine[Any, Any, T]]) -> SharedResult[T]:
        """Return the work as it is done once for many."""


class OpenStream(Protocol):
    """An answer that goes on: its ``reply`` has a body, bounded, only where the status isn't 200."""

    @property
    def reply(self) -> Reply:
        """Return the beginning."""

    async def piece(self) -> bytes:
        """Return the next bytes, empty at the end.

        :raises Unreachable: nothing came for too long, or the connection broke.
        """

    async def close(self) -> None:
        """Hang up."""


class StreamRequester(Requester, Protocol):
    """A requester that can also read an answer as it comes."""

    async def open(self, url: str, headers: Mapping[str, str], *, within: float, idle: float) -> OpenStream:
        """Begin a ``GET``: the answer must begin ``within`` seconds, and never pause for more than ``idle``.

        :raises Fault: as ``ask`` does.
        """

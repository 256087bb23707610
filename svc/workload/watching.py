"""New versions of secrets, as the service reports them (SEC-47 to SEC-52), for as long as somebody listens.

Note [Outages]. A stream that ends is begun again, with the id of the last event, so that nothing is lost: after a second
where the service ended it, otherwise after a pause that grows to half a minute. A fault that no new attempt can mend is
raised: a refused login, a secret that may not be read, an address that is none of this service. Once the service has
answered, an answer of something in front of it is an outage, whatever its status.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol
from urllib.parse import quote

import attrs

from svc.workload.address import public_origin
from svc.workload.batches import full_id
from svc.workload.faults import (
    BadAnswer,
    Fault,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    PlatformUnavailable,
    TooLong,
    Unavailable,
    Unexpected,
    Unreachable,
)
from svc.workload.replies import Reply, parse_json
from svc.workload.requester import OpenStream, StreamRequester

#: Seconds without a byte after which a stream is taken for dead: the service shows a comment every 15 (SEC-52).
IDLE_SECONDS: Final = 60.0

#: Seconds before a stream is begun again, and at the most (Note [Outages]).
_PAUSE_SECONDS: Final = 1.0
_MAX_PAUSE: Final = 30.0

#: The statuses of what a server, or what stands before it, answers while it can't serve.
RETRY_STATUSES: Final = frozenset({429, 500, 502, 503, 504})

#: The longest event that is read, in bytes.
_EVENT_LIMIT: Final = 4 * 1024 * 1024


@attrs.frozen
class NewVersions:
    """The numbers of the newest versions of variables, ``None`` without a value: first of all, then of what has changed."""

    versions: dict[str, int | None]


@attrs.frozen
class NoLongerThere:
    """Variables that the role may not read any more, or that are not there any more."""

    variables: tuple[str, ...]


WatchEvent = NewVersions | NoLongerThere


class TokenSource(Protocol):
    """A source of access tokens."""

    async def access_token(self) -> str:
        """Return one.

        :raises Fault: there is none to be had.
        """

    def refused(self, token: str) -> None:
        """Note that the service refuses a token."""


@attrs.frozen
class _Event:
    name: str
    data: str
    mark: str | None


class EventReader:
    """Reads server-sent events of bytes as they come, as browsers do: lines end with CR, LF or both."""

    def __init__(self, limit: int = _EVENT_LIMIT) -> None:
        self._limit = limit
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest, self._name, self._size = "", "", 0
        self._data: list[str] = []
        self._mark: str | None = None

    def feed(self, piece: bytes) -> Iterator[_Event]:
        """Yield the events that end in a piece.

        :raises ValueError: one is too long.
        """
        text = self._rest + self._decoder.decode(piece)
        # A line end of two characters may be in two pieces.
        held = text.endswith("\r")
        lines = (text[:-1] if held else text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = lines.pop() + ("\r" if held else "")
        for line in lines:
            self._size += len(line)
            if not line:
                if self._data:
                    yield _Event(self._name or "message", "\n".join(self._data), self._mark)
                self._name, self._data, self._mark, self._size = "", [], None, 0
                continue
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match field:
                case "event":
                    self._name = value
                case "data":
                    self._data.append(value)
                case "id":
                    self._mark = value
        if self._size + len(self._rest) > self._limit:
            raise ValueError("an event is too long")


class Watch:
    """Follows variables. ``lost`` is called with each fault that a watch outlives, ``back`` when the service is heard again.

    ``chance`` returns [0, 1).
    """

    def __init__(
        self,
        url: str,
        account: str,
        variables: Sequence[str],
        tokens: TokenSource,
        requester: StreamRequester,
        *,
        deadline: float,
        chance: Callable[[], float],
        lost: Callable[[Fault], object] | None = None,
        back: Callable[[], object] | None = None,
    ) -> None:
        self._names = {full_id(account, each): each for each in variables}
        listed = "%2C".join(quote(full, safe="") for full in self._names)
        self._place, self._url = public_origin(url), f"{url.rstrip('/')}/secrets/watch?variable_ids={listed}"
        self._variable_names = ", ".join(self._names.values())
        self._tokens, self._requester, self._deadline = tokens, requester, deadline
        self._chance, self._lost, self._back = chance, lost, back
        self._stream: OpenStream | None = None
        self._reader = EventReader()
        self._ready: deque[_Event] = deque()
        self._last: str | None = None
        self._failures, self._ended, self._was_connected, self._token = 0, False, False, ""

    async def next(self) -> WatchEvent:
        """Return the next event, whenever it comes.

        :raises Fault: there will be none (Note [Outages]).
        """
        while True:
            while self._ready:
                event = self._interpret_event(self._ready.popleft())
                if event is not None:
                    return event
            if self._ended:
                self._ended = False
                await self.close()
                await self._requester.sleep(_PAUSE_SECONDS * (0.5 + self._chance()))
            try:
                if self._stream is None:
                    self._stream = await self._open_stream()
                piece = await self._stream.piece()
                if not piece:
                    raise Unreachable(self._place, "the stream ended")
                self._ready.extend(self._reader.feed(piece))
                self._reset_failures()
            except (Unreachable, Unavailable, PlatformUnavailable) as fault:
                await self._wait_after(fault)
            except Unexpected as fault:
                if fault.status not in RETRY_STATUSES and (fault.ours or not self._was_connected):
                    raise
                await self._wait_after(fault)
            except ValueError:
                raise TooLong(self._place, _EVENT_LIMIT) from None

    async def close(self) -> None:
        """End the stream."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()

    def _reset_failures(self) -> None:
        failures, self._failures, self._was_connected = self._failures, 0, True
        if failures and self._back is not None:
            self._back()

    async def _wait_after(self, fault: Fault) -> None:
        await self.close()
        if self._lost is not None:
            self._lost(fault)
        pause = min(_MAX_PAUSE, _PAUSE_SECONDS * 2**self._failures) * (0.5 + self._chance())
        self._failures = min(self._failures + 1, 10)
        wanted = fault.retry_after if isinstance(fault, Unavailable) else None
        await self._requester.sleep(max(pause, wanted or 0.0))

    async def _open_stream(self) -> OpenStream:
        for last in (False, True):
            self._token = token = await self._tokens.access_token()
            headers = {"Authorization": f'Token token="{token}"', "Accept": "text/event-stream"}
            if self._last is not None:
                headers["Last-Event-ID"] = self._last
            stream = await self._requester.open(self._url, headers, within=self._deadline, idle=IDLE_SECONDS)
            if stream.reply.status == 200 and stream.reply.is_from_service:
                self._reader = EventReader()
                return stream
            await stream.close()
            if stream.reply.status != 401 or not stream.reply.is_from_service or last:
                break
            self._tokens.refused(token)
        raise self._refusal_fault(stream.reply)

    def _refusal_fault(self, reply: Reply) -> Fault:
        match reply.status:
            case status if status in RETRY_STATUSES:
                return Unavailable(self._place, reply.retry_after, reply.status, reply.request_id, reply.is_from_service)
            case 401 if reply.is_from_service:
                return NotAuthenticated(self._place, reply.request_id)
            case 403 if reply.is_from_service:
                return NotPermitted(self._variable_names, reply.request_id)
            case 404 if reply.is_from_service:
                return NotFound(self._variable_names, reply.error_message, reply.request_id)
        elsewhere = reply.redirect_target
        return Unexpected(
            self._place, reply.status, reply.error_message, reply.request_id, reply.is_from_service, elsewhere=elsewhere
        )

    def _interpret_event(self, event: _Event) -> WatchEvent | None:
        """Return the meaning of an event, ``None`` where that concerns the stream alone."""
        try:
            document = parse_json(event.data)
            if event.name == "end":
                self._ended = True
                if document["reason"] != "drain":
                    self._tokens.refused(self._token)
                return None
            if event.name == "versions":
                found: WatchEvent = NewVersions(
                    {self._names[full]: _check_version(number) for full, number in document.items()}
                )
            elif event.name == "gone":
                found = NoLongerThere(tuple(self._names[full] for full in document))
            else:
                return None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadAnswer(self._place, "an event of a watch") from None
        self._last = event.mark or self._last
        return found


def _check_version(number: object) -> int | None:
    if number is not None and not isinstance(number, int):
        raise TypeError("a version is a number")
    return number

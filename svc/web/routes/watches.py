"""Watches of secrets over HTTP, as server-sent events (SEC-47 to SEC-53)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import attrs

from svc.model.errors import Forbidden, NoValue
from svc.model.query_results import Caller
from svc.services.watches import WatchEnded, Watches
from svc.web.http.declarations import Answer, Parameter
from svc.web.http.messages import Json, Response, encode_json
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import TEXT, object_shape, raw_shape
from svc.web.routes.secret_values import IDS, secrets_watched

_STREAM: Final = "text/event-stream"

#: How soon a client should come again, in milliseconds; a stream may end at any time.
_RETRY: Final = b"retry: 1000\n"

#: A comment in the stream, which shows that the server is alive.
_HEARTBEAT: Final = b":\n\n"

LAST_EVENT_ID: Final = Parameter.header("Last-Event-ID", "the id of the last event that the client had", field="last")


@attrs.frozen
class SecretWatches:
    """The route that notifies of new versions."""

    routes = Routes()

    watches: Watches

    @routes.add(
        "GET",
        "/secrets/watch",
        caller=REQUIRED,
        query=(IDS,),
        headers=(LAST_EVENT_ID,),
        answers=(
            Answer(200, "events, as they happen", raw_shape(_STREAM)),
            Answer(501, "the server has no read cache, so that it isn't notified of changes", object_shape({"error": TEXT})),
        ),
        errors=(Forbidden, NoValue),
        privileges="execute on each",
        audit=secrets_watched,
    )
    async def watch(self, call: Call, *, ids: list[str], last: str | None) -> Response:
        """Stream the versions of secrets, and each new one."""
        if not self.watches.is_possible:
            return Response.json({"error": "a server with --memory-lag 0 follows no changes"}, 501)
        invocation = call.invocation
        await self.watches.admit_watch(invocation, ids)
        # nginx would keep events until it has a buffer full of them.
        unbuffered = (("X-Accel-Buffering", "no"),)
        return Response(200, b"", _STREAM, unbuffered, pieces=_stream_events(self.watches, invocation.caller, ids, last))


async def _stream_events(watches: Watches, caller: Caller, ids: list[str], last: str | None) -> AsyncGenerator[bytes, None]:
    begin, following = _RETRY, watches.stream_events(caller, ids, last)
    # A stream may last for long: it keeps what it needs.
    del watches, caller, ids, last
    async for event in following:
        if isinstance(event, WatchEnded):
            yield begin + _encode_event("end", {"reason": event.why})
            return
        events = [_encode_event("versions", event.versions)] if event.versions else []
        if event.gone:
            events.append(_encode_event("gone", list(event.gone)))
        if event.mark is not None:
            # A client that got only the first of two events gets all of them again.
            events[-1] = f"id: {event.mark}\n".encode("ascii") + events[-1]
        yield begin + (b"".join(events) or _HEARTBEAT)
        begin = b""


def _encode_event(name: str, document: Json) -> bytes:
    """Return an event, whose data are one line: JSON has no line ends of its own."""
    return b"event: %b\ndata: %b\n\n" % (name.encode("ascii"), encode_json(document))

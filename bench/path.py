"""The path of a request through the program: the functions of ``svc`` that start for it, counted and listed.

A server of one process runs in this one, with its audit file, metrics, throttle and read cache. A client in memory sends
each request twice, as bytes on one connection; the second is traced, from its first byte to the last of its response. Its
reads are in the cache, so it takes the path that most requests of a running server take.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any, Final

import attrs
from twisted.internet.testing import StringTransport

import svc
from bench.inside import Inside, Prepared
from bench.report import Part
from bench.server import say
from svc.telemetry.metrics import Metrics

_ROOT: Final = str(Path(svc.__file__).parent)

#: Seconds by which the wall clock is ahead, so that it is after the issue of every token that the requests carry.
_AHEAD: Final = 5.0


@attrs.frozen
class Goal:
    """The most starts of functions and the most files that a path shall have one day."""

    starts: int
    files: int


#: The requests that are traced, by their names in ``bench/inside.py``, and their goals.
GOALS: Final[Mapping[str, Goal]] = {
    "JWT login": Goal(120, 25),
    "secret read": Goal(70, 16),
    "role members (10)": Goal(120, 20),
}


@attrs.frozen
class Start:
    """One start of a function: its file, from the folder of ``svc`` on, and its qualified name."""

    file: str
    function: str


@attrs.frozen
class RequestPath:
    """All starts for one request, in order."""

    starts: Sequence[Start]

    @property
    def files(self) -> Sequence[str]:
        """The files, each once, in the order in which the request reaches them."""
        return list(dict.fromkeys(start.file for start in self.starts))


class _StandingClock:
    """A clock that stands still, so that nothing is computed again because a second has passed."""

    def __init__(self) -> None:
        self._now = time.time() + _AHEAD

    def seconds(self) -> float:
        """See ``WallClock``."""
        return self._now


@contextmanager
def traced() -> Iterator[list[Start]]:
    """Yield a list, to which every start of a function of ``svc`` is added meanwhile."""
    # The module is in no version before 3.12.
    monitoring: Any = vars(sys)["monitoring"]
    tool = next(number for number in range(6) if monitoring.get_tool(number) is None)
    starts: list[Start] = []

    def note(code: CodeType, _: int) -> None:
        if code.co_filename.startswith(_ROOT):
            starts.append(Start(str(Path(code.co_filename).relative_to(_ROOT)), code.co_qualname))

    monitoring.use_tool_id(tool, "svc-path")
    try:
        monitoring.register_callback(tool, monitoring.events.PY_START, note)
        monitoring.set_events(tool, monitoring.events.PY_START)
        yield starts
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)


class Paths:
    """A server in this process, and a connection to it in memory."""

    def __init__(self, folder: Path) -> None:
        self._inside = Inside(folder, wall=_StandingClock(), metrics=Metrics(), cached=True)
        channel = self._inside.server.site.buildProtocol(None)
        assert channel is not None
        self._channel, self._transport = channel, StringTransport()
        channel.makeConnection(self._transport)

    def trace(self, name: str) -> RequestPath:
        """Return the path of the request of this name, when it is sent for the second time."""
        prepared, *_ = self._inside.requests[name]
        raw = _as_bytes(prepared)
        self._send(raw, prepared.status)
        with traced() as starts:
            self._send(raw, prepared.status)
        return RequestPath(tuple(starts))

    def _send(self, raw: bytes, status: int) -> None:
        self._channel.dataReceived(raw)
        self._inside.clock.advance(0)
        answer = self._transport.value()
        self._transport.clear()
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer


def _as_bytes(prepared: Prepared) -> bytes:
    """Return a request as a client sends it."""
    fields = [(name, value) for name, values in prepared.headers.items() for value in values]
    if prepared.body:
        fields.append((b"Content-Length", b"%d" % len(prepared.body)))
    lines = [f"{prepared.method} {prepared.target} HTTP/1.1".encode(), *(b": ".join(field) for field in fields)]
    return b"\r\n".join([*lines, b"", prepared.body])


def trace_paths(folder: Path) -> Mapping[str, RequestPath]:
    """Return the paths of all requests that have a goal; Python 3.12 is needed at least."""
    paths = Paths(folder)
    return {name: paths.trace(name) for name in GOALS}


def measure(folder: Path) -> Part:
    """Trace every request."""
    if not hasattr(sys, "monitoring"):
        return Part("The paths of requests are traced by sys.monitoring, which Python has from 3.12 on.", True, {})
    say("path: a server with a read cache, in this process …")
    paths = trace_paths(folder)
    lines = ["| path of | functions started | goal | files | goal |", "|---|---|---|---|---|"]
    for name, path in paths.items():
        goal, starts, files = GOALS[name], len(path.starts), len(path.files)
        lines.append(f"| {name} | **{starts}** | {goal.starts} | **{files}** | {goal.files} |")
    details = {name: [attrs.astuple(start) for start in path.starts] for name, path in paths.items()}
    return Part("\n".join(lines), True, {"paths": details})

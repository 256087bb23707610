"""How long an event loop was blocked, as its own timers and as a client see it. Times are in milliseconds.

``python -m bench.loop RECORD TWISTD-ARGUMENTS`` is ``twistd`` with one timer more, which is due every ``BEAT_SECONDS`` and
writes down how late it is. Nothing of the service is changed.

Note [Late and blocked]

A timer is late by as long as the loop was busy with anything else, and by as long as the thread, ready to run, was given no
processor. The kernel counts the second (``schedstat``). ``blocked`` is the rest: the program's work, and its waits without
returning to the loop, be it for a disk, a lock or another thread. A virtual machine's host may have stopped it for a while,
too, which no clock in it can distinguish from work; but the program blocks its loop each time that the request is the same,
and other causes vary: of several runs, the one with the least counts.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self

import attrs
from twisted.application.reactors import installReactor
from twisted.scripts import twistd

from bench import settings
from bench.load import Request
from bench.probe import Probe, lengths
from bench.report import Figure

#: How long a request may block the loop.
BLOCKED_MOST: Final = 50

#: The least lateness that is recorded, in seconds.
_LEAST: Final = 0.002

#: How long what a request leaves behind may go on after its answer, in seconds.
_AFTERMATH: Final = 0.2


class Watch:
    """Writes a line for each beat that is late: when the one before was, when it is, how long the thread waited to run.

    All in seconds, by the monotonic clock.
    """

    def __init__(self, reactor: Any, record: Path) -> None:
        self._reactor = reactor
        self._record = record.open("w", buffering=1)
        self._schedule = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        self._beaten, self._waited = time.monotonic(), self._waits()

    def beat(self) -> None:
        """Write down how late this is, and be called again."""
        now, waited = time.monotonic(), self._waits()
        if now - self._beaten > settings.BEAT_SECONDS + _LEAST:
            self._record.write(f"{self._beaten} {now} {waited - self._waited}\n")
        self._beaten, self._waited = time.monotonic(), self._waits()
        self._reactor.callLater(settings.BEAT_SECONDS, self.beat)

    def _waits(self) -> float:
        """How long this thread has waited for a processor since it began."""
        return int(os.pread(self._schedule, 100, 0).split()[1]) / 1e9


@attrs.frozen
class Watched:
    """The loop of the server at ``url``, which writes ``record``."""

    url: str
    record: Path


@attrs.frozen
class Lateness:
    """The longest in some span of time: how late the loop was, how long blocked, and how long a probe was left to wait."""

    late: float
    blocked: float
    probe: float

    @classmethod
    def during(cls, loop: Watched, action: Callable[[], object]) -> Self:
        """Watch the loop, and ask its server, while the action runs."""
        with Probe(loop.url, Request("GET", "/health"), settings.PROBE_SECONDS, "asked") as probe:
            since = time.monotonic()
            action()
            time.sleep(_AFTERMATH)
            until = time.monotonic()
        lines = [tuple(map(float, line.split())) for line in loop.record.read_text().splitlines()]
        beats = [(before, now, waited) for before, now, waited in lines if since <= now <= until]
        late = max((now - before for before, now, _ in beats), default=settings.BEAT_SECONDS)
        blocked = max((now - before - waited for before, now, waited in beats), default=0)
        return cls(
            (late - settings.BEAT_SECONDS) * 1000,
            max(0, blocked - settings.BEAT_SECONDS) * 1000,
            max(lengths(probe.spans)) * 1000,
        )


@attrs.frozen
class Blocking:
    """How late the loop was while something ran, and while nothing did for as long."""

    busy: Lateness
    idle: Lateness

    @classmethod
    def by(cls, loop: Watched, action: Callable[[], object]) -> Self:
        """Let the action run, then nothing."""
        begin = time.monotonic()
        busy = Lateness.during(loop, action)
        seconds = time.monotonic() - begin
        return cls(busy, Lateness.during(loop, lambda: time.sleep(seconds)))

    @staticmethod
    def figure(name: str, runs: Sequence[Blocking]) -> Figure:
        """How long the loop was blocked at most, in the run in which that was least."""
        calmest = min(runs, key=lambda run: run.busy.blocked)
        busy, idle = (
            f"{lateness.blocked:.0f} of {lateness.late:.0f} ms late, {lateness.probe:.0f} ms for an answer to a probe"
            for lateness in (calmest.busy, calmest.idle)
        )
        return Figure(f"loop blocked by the {name}", calmest.busy.blocked, "ms", BLOCKED_MOST, f"{busy}; idle: {idle}")


def main(record: str, *arguments: str) -> None:
    """Be ``twistd`` with these arguments, watched."""
    reactor: Any = installReactor(settings.REACTOR)
    watch = Watch(reactor, Path(record))
    reactor.callWhenRunning(watch.beat)
    sys.argv = ["twistd", *arguments]
    twistd.run()


if __name__ == "__main__":
    main(*sys.argv[1:])

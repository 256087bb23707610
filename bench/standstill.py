"""When the machine stood still: a virtual one, all of whose processors its host had taken away.

Note [Standstill]

``python -m bench.standstill PROCESSOR RECORD`` wakes up every ``TICK_SECONDS`` on one processor, before anything else that
is ready to run there, and writes down between which two ticks more time passed. When that is so on all processors at once,
nothing ran on the machine, whatever its clocks say: a host that lends half of its processors' time takes them away for a
tenth of a second again and again. What was measured in seconds is told without these times, and with them, by the clock on
the wall. Where the kernel doesn't grant the priority (it takes root), no standstill is found.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import attrs

#: A wake-up can cost a virtual machine a millisecond of its processor, so that they may not be many.
TICK_SECONDS: Final = 0.01

#: How much later than it should a tick comes on a processor that was away.
_LEAST: Final = 0.005

#: Until what was seen of a moment is surely written, in seconds.
_WRITTEN: Final = 0.05

#: From when until when, by the monotonic clock, in seconds.
Span = tuple[float, float]


@attrs.frozen
class Timed:
    """How long something took, in seconds: without standstills, and by the clock on the wall."""

    seconds: float
    wall: float


class Standstill:
    """Watches for standstills while its ``with`` block runs; ``folder`` takes its records."""

    def __init__(self, folder: Path) -> None:
        processors = sorted(os.sched_getaffinity(0))
        self._records = [folder / f"processor-{processor}" for processor in processors]
        self._watchers = [
            subprocess.Popen([sys.executable, "-m", "bench.standstill", str(processor), str(record)])
            for processor, record in zip(processors, self._records, strict=True)
        ]

    def __enter__(self) -> Self:
        while not all(record.exists() for record in self._records):
            time.sleep(_WRITTEN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for watcher in self._watchers:
            watcher.kill()
            watcher.wait()

    def timed(self, spans: Sequence[Span]) -> list[Timed]:
        """How long each of some spans was."""
        time.sleep(_WRITTEN)
        first, *others = (self._absences(record) for record in self._records)
        still = first
        for absences in others:
            still = _common(still, absences)
        ends = [end for _, end in still]
        timed = []
        for begin, end in spans:
            lost, place = 0.0, bisect_left(ends, begin)
            while place < len(still) and still[place][0] < end:
                lost += min(end, still[place][1]) - max(begin, still[place][0])
                place += 1
            timed.append(Timed(end - begin - lost, end - begin))
        return timed

    @staticmethod
    def _absences(record: Path) -> list[Span]:
        whole, _, _ = record.read_text().rpartition("\n")
        return [(float(begin), float(end)) for begin, end in map(str.split, whole.splitlines())]


def _common(ours: Sequence[Span], theirs: Sequence[Span]) -> list[Span]:
    """What lies in a span of each; both are in order."""
    common, place = [], 0
    for begin, end in ours:
        while place < len(theirs) and theirs[place][1] <= begin:
            place += 1
        for other_begin, other_end in theirs[place:]:
            if other_begin >= end:
                break
            common.append((max(begin, other_begin), min(end, other_end)))
    return common


def main(processor: str, record: str) -> None:
    """Write down the absences of a processor, until killed or alone."""
    parent = os.getppid()
    os.sched_setaffinity(0, {int(processor)})
    with Path(record).open("w", buffering=1) as absences:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        except PermissionError:
            return
        before = time.monotonic()
        while os.getppid() == parent:
            time.sleep(TICK_SECONDS)
            now = time.monotonic()
            if now - before > TICK_SECONDS + _LEAST:
                absences.write(f"{before + TICK_SECONDS} {now}\n")
            before = now


if __name__ == "__main__":
    main(*sys.argv[1:])

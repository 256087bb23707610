"""The resource usage of this process: memory, CPU time and open files, from Linux's ``/proc``.

The library's own collector needs ``/proc/stat``, which a unit with ``ProcSubset=pid`` doesn't see.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

import attrs


@attrs.frozen
class ProcessUsage:
    """The current resource usage of this process; ``None`` where the system doesn't provide it."""

    _own: Path = Path("/proc/self")

    @property
    def cpu(self) -> float:
        """Return the seconds of processor time."""
        times = os.times()
        return times.user + times.system

    @property
    def open_files(self) -> int | None:
        """Return how many files are open."""
        try:
            return len(os.listdir(self._own / "fd"))
        except OSError:
            return None

    @property
    def most_files(self) -> int:
        """Return how many there may be."""
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    @property
    def memory(self) -> int | None:
        """Return the bytes of memory."""
        try:
            return int((self._own / "statm").read_text("ascii").split()[1]) * resource.getpagesize()
        except OSError:
            return None

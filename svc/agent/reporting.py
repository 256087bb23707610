"""The agent's output for operators: lines of a log, a status file, and systemd (AGT-34 to AGT-36)."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

import attrs

from svc.agent.core import AgentCore
from svc.agent.faults import FileFault
from svc.agent.files import Destination, remove_leftovers, replace_file
from svc.model.clocks import WallClock, iso_seconds
from svc.model.text import escape_unprintable

#: How journald reads a line's level (sd-daemon(3)).
_LEVELS: Final = {"info": 6, "warning": 4, "error": 3}

#: The longest line, in characters.
_LINE_LIMIT: Final = 2000


@attrs.frozen
class AgentLog:
    """Lines on standard error, with their time; for the journal, which has the time, with their level instead."""

    stream: TextIO
    wall: WallClock
    journal: bool

    @classmethod
    def for_stream(cls, stream: TextIO, wall: WallClock, surroundings: Mapping[str, str]) -> AgentLog:
        """Return the log of a process; ``JOURNAL_STREAM`` names the stream that the journal reads (systemd.exec(5))."""
        try:
            found = os.fstat(stream.fileno())
        except (OSError, ValueError):
            return cls(stream, wall, journal=False)
        return cls(stream, wall, journal=surroundings.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}")

    def write_line(self, level: str, text: str) -> None:
        """Write a line."""
        line = escape_unprintable(text, _LINE_LIMIT)
        head = f"<{_LEVELS[level]}>" if self.journal else f"{iso_seconds(self.wall.seconds())} {level:<7} "
        try:
            self.stream.write(f"{head}{line}\n")
            self.stream.flush()
        except OSError:
            """Nobody reads it any more; files are kept all the same."""


def status_of(core: AgentCore, url: str, now: float, wall: float) -> dict[str, Any]:
    """Return the state of the agent, as in its status file; ``now`` is of the core's clock, ``wall`` of the day's."""

    def format_moment(moment: float | None) -> str | None:
        return None if moment is None else iso_seconds(wall - (now - moment))

    waiting = core.read_at is None
    state = "waiting" if waiting else "stale" if core.outage is not None else "current" if core.is_up_to_date else "degraded"
    return {
        "state": state,
        "server": url,
        "checked_at": iso_seconds(wall),
        "read_at": format_moment(core.read_at),
        "problems": core.problems,
        "files": [
            {
                "destination": name,
                "there": file.exists,
                "problem": file.problem,
                "changed_at": format_moment(file.changed_at),
            }
            for name, file in core.files.items()
        ],
    }


@attrs.define
class StatusFile:
    """The status file of the agent, in JSON; everybody may read it, as it holds no value."""

    path: Path
    log: Callable[[str, str], None]
    _last: Mapping[str, Any] | None = None
    _fault: str | None = None

    def write(self, status: Mapping[str, Any]) -> None:
        """Replace the file, if more than the time has changed; a failed write is logged once, and stops nothing."""
        news = {name: value for name, value in status.items() if name != "checked_at"}
        if news == self._last and self._fault is None:
            return
        content = json.dumps(status, indent=2, ensure_ascii=False).encode(errors="replace") + b"\n"
        destination = Destination(self.path, os.geteuid(), os.getegid(), 0o644)
        fault = None
        try:
            if self._last is None:
                remove_leftovers(destination)
            replace_file(destination, content)
            self._last = news
        except FileFault as found:
            fault = str(found)
        if fault is not None and fault != self._fault:
            self.log("warning", f"the status file: {fault}")
        self._fault = fault


class Systemd:
    """The service manager, if the agent is a unit of ``Type=notify`` (sd_notify(3)); otherwise it does nothing.

    :param pid: the id of this process, whose life the watchdog means.
    """

    def __init__(self, surroundings: Mapping[str, str], pid: int) -> None:
        self._address = surroundings.get("NOTIFY_SOCKET") or None
        microseconds = surroundings.get("WATCHDOG_USEC", "")
        meant = surroundings.get("WATCHDOG_PID", str(pid)) == str(pid)
        watched = self._address is not None and meant and microseconds.isascii() and microseconds.isdecimal()
        #: Seconds between two keep-alives; ``None`` where nobody waits for them.
        self.interval = max(int(microseconds) / 4e6, 0.05) if watched else None
        self._ready = False
        self._last = ""

    def send_notification(self, text: str) -> None:
        """Send a text; a failure to send stops nothing."""
        if self._address is None:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(text.encode(errors="replace"), address)
        except OSError:
            """It is busy or away; the next word tells more."""

    def report_status(self, status: str, *, ready: bool) -> None:
        """Notify of the agent's state, and once that it is ready; before that, ask for more time."""
        if ready and not self._ready:
            self._ready = True
            self.send_notification("READY=1")
        elif not self._ready:
            self.send_notification("EXTEND_TIMEOUT_USEC=600000000")
        if status != self._last:
            self._last = status
            self.send_notification(f"STATUS={escape_unprintable(status, 200)}")

"""Notifications to systemd: ready, reloading, stopping, and alive (sd_notify(3), systemd.service(5)).

Note [Alive]. A loop of the reactor sends the keep-alive, so a blocked reactor sends none, and systemd kills the process
after ``WatchdogSec=`` and restarts it. A server of several processes sends it while one of the serving processes answers.
Before the server is ready, the same loop asks for more time: a migration may take longer than ``TimeoutStartSec=``.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Final

from twisted.logger import Logger

from svc.model.background import PeriodicService
from svc.server.reloading import call_on_hangup
from svc.settings.systemd import SystemdUnit

#: Seconds between notifications without a watchdog; how many per watchdog interval; the seconds of extension requested.
DEFAULT_INTERVAL: Final = 10.0
NOTIFICATIONS_PER_WATCHDOG: Final = 4
EXTENSION_SECONDS: Final = 60

_log = Logger()


def send_datagram(address: str, text: str) -> None:
    """Send a datagram to systemd's socket; ``@`` stands for the zero byte of an abstract one. Raises ``OSError``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(text.encode("utf-8"), f"\0{address[1:]}" if address.startswith("@") else address)


class SystemdNotifier(PeriodicService):
    """Notifies systemd; does nothing where ``unit`` has no socket for that. ``pid`` is that of this process."""

    name = "notifying"

    def __init__(
        self, reactor: Any, unit: SystemdUnit, pid: int, tell: Callable[[str, str], object] = send_datagram
    ) -> None:
        self._reactor, self._address, self._send = reactor, unit.notify, tell
        watchdog = unit.watchdog if unit.watchdog_pid in {None, pid} else None
        self._watched = watchdog is not None
        interval = DEFAULT_INTERVAL if watchdog is None else watchdog / NOTIFICATIONS_PER_WATCHDOG
        super().__init__(reactor, interval, self._send_keepalive, _log, "systemd could not be notified")
        self._alive: Callable[[], bool] | None = None

    def startService(self) -> None:
        """Begin to ask for time."""
        if self._address is not None:
            super().startService()

    def notify_at_hangups(self) -> None:
        """From now on, notify at each ``SIGHUP``: before the reload that it begins, and after it that it is done."""
        call_on_hangup(self._reactor, lambda: self._notify("RELOADING=1"))

    def notify_ready(self, urls: str, alive: Callable[[], bool]) -> None:
        """Notify that the server is ready; from now on ``alive`` returns whether to send the keep-alive (Note [Alive])."""
        self._alive = alive
        self._notify(f"READY=1\nSTATUS=Serving at {urls}")
        self._send_keepalive()
        call_on_hangup(self._reactor, lambda: self._notify("READY=1"))

    def notify_failed(self, reason: str) -> None:
        """Report why the server ends."""
        self._notify(f"STATUS={reason}")

    def notify_stopping(self) -> None:
        """Notify that the server stops."""
        self._notify("STOPPING=1")

    def _send_keepalive(self) -> None:
        if self._alive is None:
            self._notify(f"EXTEND_TIMEOUT_USEC={EXTENSION_SECONDS * 1_000_000}")
        elif self._watched and self._alive():
            self._notify("WATCHDOG=1")

    def _notify(self, text: str) -> None:
        if self._address is not None:
            try:
                self._send(self._address, text)
            except OSError as error:
                _log.error("systemd can't be told {text}: {why}", text=text, why=error.strerror, repeats_as="systemd")

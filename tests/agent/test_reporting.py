"""Tests of ``svc.agent.reporting``."""

from __future__ import annotations

import io
import json
import os
import socket
import stat
from pathlib import Path

from svc.agent.reporting import AgentLog, StatusFile, Systemd, status_of
from svc.agent.steps import ReadFailed
from tests.agent.scene import AgentCase, DayClock

FILE = "[[file]]\ndestination = 'DIR/out'\nvariable = 'a'\n"
NOON = 1_800_000_000.0


class LogTests(AgentCase):
    """Lines of the log."""

    def test_lines(self) -> None:
        """A line has the time and its level, or in the journal the level alone, and stays one line (AGT-36)."""
        stream = io.StringIO()
        AgentLog(stream, DayClock(NOON), journal=False).write_line("warning", "two\nlines")
        AgentLog(stream, DayClock(NOON), journal=True).write_line("error", "bad")
        self.assertEqual(stream.getvalue(), "2027-01-15T08:00:00Z warning two\\nlines\n<3>bad\n")

    def test_journal(self) -> None:
        """The journal is known by the stream that systemd names, so that a program's own streams aren't taken for it
        (AGT-36).
        """
        path = self.folder / "log"
        with path.open("w") as stream:
            found = path.stat()
            surroundings = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
            self.assertTrue(AgentLog.for_stream(stream, DayClock(), surroundings).journal)
            self.assertFalse(AgentLog.for_stream(stream, DayClock(), {}).journal)
        self.assertFalse(AgentLog.for_stream(io.StringIO(), DayClock(), {}).journal)

    def test_nobody_reads(self) -> None:
        """A log that nobody reads any more stops nothing (AGT-36)."""
        reading, writing = os.pipe()
        os.close(reading)
        stream = os.fdopen(writing, "w")
        AgentLog(stream, DayClock(), journal=False).write_line("info", "x")
        self.assertRaises(OSError, stream.close)


class StatusTests(AgentCase):
    """The status file."""

    def test_states(self) -> None:
        """It waits, is current, degraded when something is wrong, and stale in an outage; no value is in it (AGT-34,
        AGT-36).
        """
        self.server.values = {"a": b"s3cr3t"}
        machine = self.machine(FILE)
        path = self.folder / "status"
        (self.folder / ".status.svc-agent-0123456789abcdef.tmp").write_bytes(b"half")
        file = StatusFile(path, lambda *_: self.fail("it can be written"))
        found = []

        def look() -> None:
            file.write(status_of(machine.core, "https://svc.example.org", machine.now, NOON))
            found.append(json.loads(path.read_text()))
            self.assertNotIn("s3cr3t", path.read_text())

        look()
        machine.round()
        machine.now += 10
        look()
        self.server.forbidden = {"a"}
        machine.round()
        look()
        self.server.fault = "cannot reach it"
        machine.round()
        look()
        self.assertEqual([each["state"] for each in found], ["waiting", "current", "degraded", "stale"])
        self.assertEqual((found[0]["read_at"], self.names()), (None, {"out", "status"}))
        self.assertEqual(
            found[1],
            {
                "state": "current",
                "server": "https://svc.example.org",
                "checked_at": "2027-01-15T08:00:00Z",
                "read_at": "2027-01-15T07:59:50Z",
                "problems": [],
                "files": [
                    {
                        "destination": str(self.folder / "out"),
                        "there": True,
                        "problem": None,
                        "changed_at": "2027-01-15T07:59:50Z",
                    }
                ],
            },
        )
        self.assertEqual(found[3]["problems"], ["cannot reach it", "a: the role may not read it"])
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o644)
        before = path.stat()
        file.write(status_of(machine.core, "https://svc.example.org", machine.now, NOON))
        self.assertEqual(path.stat(), before)

    def test_unwritable(self) -> None:
        """That it can't be written is said once (AGT-34)."""
        said = []
        file = StatusFile(self.folder / "none" / "x", lambda level, text: said.append((level, text)))
        file.write({})
        file.write({})
        self.assertEqual(len(said), 1)
        self.assertIn("the status file: the folder", said[0][1])


class SystemdTests(AgentCase):
    """What systemd hears."""

    def setUp(self) -> None:
        """Listen as systemd does."""
        super().setUp()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)
        self.socket.setblocking(False)

    def heard(self) -> list[str]:
        """What was told until now."""
        found = []
        while True:
            try:
                found.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return found

    def test_states(self) -> None:
        """It is told to wait, then once that the agent is ready, and each new state; also by an abstract name (AGT-35)."""
        path = Path(os.path.relpath(self.folder / "s"))  # sockets have short names
        for name in (str(path), f"@svc-agent-{os.getpid()}"):
            with self.subTest(name=name):
                self.socket.close()
                self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self.addCleanup(self.socket.close)
                self.socket.setblocking(False)
                self.socket.bind(name.replace("@", "\0"))
                systemd = Systemd({"NOTIFY_SOCKET": name}, 7)
                for state, ready in (("waiting", False), ("waiting", False), ("current", True), ("current", True)):
                    systemd.report_status(state, ready=ready)
                systemd.report_status("stale: two\nlines", ready=False)
                more = "EXTEND_TIMEOUT_USEC=600000000"
                expected = [more, "STATUS=waiting", more, "READY=1", "STATUS=current", "STATUS=stale: two\\nlines"]
                self.assertEqual(self.heard(), expected)

    def test_watchdog(self) -> None:
        """It tells that it lives four times in the time that it has, if it is this process that is meant (AGT-35)."""
        named = {"NOTIFY_SOCKET": "/none", "WATCHDOG_USEC": "8000000"}
        self.assertEqual(Systemd(named, 7).interval, 2.0)
        self.assertEqual(Systemd({**named, "WATCHDOG_PID": "7"}, 7).interval, 2.0)
        self.assertIsNone(Systemd({**named, "WATCHDOG_PID": "8"}, 7).interval)
        self.assertIsNone(Systemd({"WATCHDOG_USEC": "8000000"}, 7).interval)
        Systemd(named, 7).send_notification("nobody hears it")

    def test_outage(self) -> None:
        """A core that has been refused everything isn't ready (AGT-35)."""
        machine = self.machine(FILE)
        machine.core.handle_events(0.0)
        machine.core.handle_events(1.0, ReadFailed("away"))
        self.assertFalse(machine.core.is_ready)

"""Where the audit goes when nothing is set: that is for the surroundings to tell."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from svc.settings.reading import read_settings
from svc.settings.systemd import SystemdUnit

DATA: Final = Path("/data")
LOGS: Final = "/var/log/svc"
STREAM: Final = (9, 1234)


class AuditFileTests(SynchronousTestCase):
    """The file of the audit."""

    def test_places(self) -> None:
        """Standard output in the foreground; a unit's folder for logs; the data directory for daemons, and for units that
        have no folder like that, whose standard output the journal reads.
        """
        cases: tuple[tuple[dict[str, str], bool, tuple[int, int] | None, Path | None], ...] = (
            ({}, False, STREAM, None),
            ({}, False, None, None),
            ({}, True, STREAM, DATA / "audit.log"),
            ({"LOGS_DIRECTORY": LOGS}, False, STREAM, Path(LOGS) / "audit.log"),
            ({"LOGS_DIRECTORY": f"{LOGS}:/var/log/other"}, True, None, Path(LOGS) / "audit.log"),
            ({"LOGS_DIRECTORY": ""}, False, STREAM, None),
            ({"JOURNAL_STREAM": "9:1234"}, False, STREAM, DATA / "audit.log"),
            # A shell that a unit's process began, such as a desktop's, with a pipe or a terminal.
            ({"JOURNAL_STREAM": "9:1234"}, False, (9, 1235), None),
            ({"JOURNAL_STREAM": "9:1234"}, False, None, None),
        )
        for environ, daemon, stdout, expected in cases:
            place = SystemdUnit.from_environ(environ).audit_file(None, DATA, daemon=daemon, stdout=stdout)
            self.assertEqual(place, expected, (environ, daemon, stdout))

    def test_terminal(self) -> None:
        """A terminal keeps nothing, so the data directory has the file there, unless the setting names another (AUD-60)."""
        unit = SystemdUnit.from_environ({})
        for chosen, terminal, expected in (
            (None, True, DATA / "audit.log"),
            (None, False, None),
            (Path("-"), True, None),
            (Path("/a/b"), True, Path("/a/b")),
        ):
            place = unit.audit_file(chosen, DATA, daemon=False, stdout=STREAM, terminal=terminal)
            self.assertEqual(place, expected, (chosen, terminal))
        logs = SystemdUnit.from_environ({"LOGS_DIRECTORY": LOGS})
        self.assertEqual(logs.audit_file(None, DATA, daemon=False, stdout=STREAM, terminal=True), Path(LOGS) / "audit.log")

    def test_chosen(self) -> None:
        """A setting counts everywhere; ``-`` is standard output."""
        for environ in ({}, {"LOGS_DIRECTORY": LOGS}, {"JOURNAL_STREAM": "9:1234"}):
            for daemon in (True, False):
                for text, expected in (("/a/b", Path("/a/b")), ("-", None)):
                    settings = read_settings({"audit_file": text}, environ)
                    place = settings.unit.audit_file(settings.audit_file, DATA, daemon=daemon, stdout=STREAM)
                    self.assertEqual(place, expected)

"""Tests of ``svc.server.serverlog``."""

from __future__ import annotations

import io
import json
from importlib.util import find_spec
from typing import Any

from twisted.logger import LogEvent, Logger
from twisted.python import log as legacy
from twisted.trial.unittest import SynchronousTestCase

from svc.server.serverlog import FORMER_LOGGERS, JsonLog, format_json_line


class Named:
    """A value that is shown by a name."""

    def __str__(self) -> str:
        return "named"


class LogFormatTests(SynchronousTestCase):
    """Lines of JSON."""

    def setUp(self) -> None:
        """Write to a text."""
        self.file = io.StringIO()
        self.log = Logger("program", observer=JsonLog(self.file))

    def lines(self) -> list[dict[str, Any]]:
        """What was written."""
        return [json.loads(line) for line in self.file.getvalue().splitlines()]

    def test_fields(self) -> None:
        """A line has the time, the level, the logger, the message, and the values that stand in it, as numbers or text; what
        doesn't stand there isn't written (CFG-41).
        """
        self.log.warn(
            "{count} of {what} in {seconds:.1f} s: {why!r}", count=3, what=Named(), seconds=1.25, why=None, secret="s3cret"
        )
        (line,) = self.lines()
        self.assertRegex(line.pop("time"), r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00\Z")
        self.assertEqual(
            line,
            {
                "level": "warn",
                "logger": "program",
                "message": "3 of named in 1.2 s: None",
                "count": 3,
                "what": "named",
                "seconds": 1.25,
            },
        )

    def test_renamed(self) -> None:
        """A logger that was renamed is logged with its former name, too, which no other logger has (CFG-41)."""
        for namespace, former in FORMER_LOGGERS.items():
            Logger(namespace, observer=JsonLog(self.file)).info("a line")
            self.assertIsNotNone(find_spec(namespace))
            self.assertIsNone(find_spec(former.rpartition(".")[0]) and find_spec(former))
        self.assertEqual({line["logger"]: line["former_logger"] for line in self.lines()}, FORMER_LOGGERS)

    def test_hostile_values(self) -> None:
        """No value begins another line, takes the place of what every line has, or makes a line that isn't JSON (CFG-41)."""
        self.log.info("{message} {logger} {time}", message='a"\n{"level":"error"}', logger="x", time=float("nan"))
        self.log.info("{value}", value=float("inf"))
        self.log.info("{value}", value="\ud800\x00\x1b")
        self.log.info("{broken", value=1)
        lines = self.lines()
        self.assertEqual({line["level"] for line in lines}, {"info"})
        self.assertEqual(lines[0]["message"], 'a"\n{"level":"error"} x nan')
        self.assertEqual((lines[1]["value"], lines[2]["value"]), ("inf", "\ud800\x00\x1b"))

    def test_faults(self) -> None:
        """A fault has its traceback apart from the message."""
        try:
            raise KeyError("a fault")
        except KeyError:
            self.log.failure("it failed")
        (line,) = self.lines()
        self.assertEqual((line["message"], line["level"]), ("it failed", "critical"))
        self.assertRegex(line["traceback"], r"\ATraceback (?s:.*)KeyError: 'a fault'\Z")

    def test_others(self) -> None:
        """What libraries log in the older way is a line too; what has no text is none."""
        events: list[LogEvent] = []
        legacy.theLogPublisher.addObserver(events.append)
        self.addCleanup(legacy.theLogPublisher.removeObserver, events.append)
        legacy.msg("an older line")
        (event,) = events
        self.assertEqual(json.loads(format_json_line(event))["message"], "an older line")
        self.log.info("")
        self.assertEqual(self.lines(), [])

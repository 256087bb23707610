"""The server's log: what repeats is counted, and files are opened again."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, Logger, globalLogPublisher, textFileLogObserver
from twisted.python import threadable
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svc.server.serverlog import (
    ADDRESSES,
    AT_ONCE,
    KINDS,
    PERIOD,
    ForwardedEvent,
    ForwardingObserver,
    RepeatFilter,
    RepeatReporter,
    ServerLog,
    format_json_line,
)

#: How long a thread is waited for that has nothing to wait for itself, in seconds.
_LONGEST = 5.0


@implementer(ILogObserver)
class Kept:
    """Keeps the lines that it is given."""

    def __init__(self) -> None:
        self.text = io.StringIO()
        self._write = textFileLogObserver(self.text, timeFormat=None)
        self.events: list[LogEvent] = []

    def __call__(self, event: LogEvent) -> None:
        """Keep one."""
        self.events.append(event)
        self._write(event)

    @property
    def lines(self) -> list[str]:
        """What was written."""
        return self.text.getvalue().splitlines()


class RepeatsTests(SynchronousTestCase):
    """Lines of one program."""

    def setUp(self) -> None:
        """Nothing has been logged."""
        self.clock, self.kept = Clock(), Kept()
        self.repeats = RepeatFilter(self.kept, self.clock)
        self.log = Logger("program", observer=self.repeats)

    def refuse(self, count: int, reason: str = "wrong", address: str = "192.0.2.1") -> None:
        """Log refusals, as the program does."""
        for number in range(count):
            self.log.info("{sentence}", sentence=f"refused role {number}: {reason}", repeats_as=reason, client_ip=address)

    def test_few(self) -> None:
        """What doesn't repeat often is written at once, and nothing is added."""
        self.refuse(AT_ONCE)
        self.repeats.log_counts()
        self.assertEqual(len(self.kept.lines), AT_ONCE)

    def test_flood(self) -> None:
        """41,000 refusals in four minutes are a few lines at once, and one a minute, which counts them all."""
        for minute in range(4):
            self.refuse(10_000, address=f"192.0.2.{minute}")
            self.refuse(250, address="2001:db8::1")
            self.clock.advance(PERIOD)
            self.repeats.log_counts()
        self.assertEqual(len(self.kept.lines), 4 * (AT_ONCE + 1))
        self.assertEqual(
            self.kept.lines[AT_ONCE],
            f"- [program#info] {10_250 - AT_ONCE} more like this in the last 60 s, from 2 addresses;"
            " the last: refused role 249: wrong",
        )

    def test_in_the_middle(self) -> None:
        """An event that is logged while one is being counted, as by garbage that is collected just then, is logged too."""
        log = self.log

        class Collects(str):
            """Has garbage collected that has something to say, whenever it is looked up."""

            def __hash__(self) -> int:
                log.warn("collected")
                return super().__hash__()

        thread = threading.Thread(target=lambda: log.info("{sentence}", sentence="x", repeats_as=Collects()), daemon=True)
        thread.start()
        thread.join(_LONGEST)
        self.assertEqual({event["log_format"] for event in self.kept.events}, {"collected", "{sentence}"})

    def test_kinds(self) -> None:
        """A flood of one kind hides no line of another: format, module, level and what the program tells apart."""
        self.refuse(1000)
        self.refuse(1, "another reason")
        self.log.warn("The database is away")
        Logger("module", observer=self.repeats).info("{sentence}", sentence="another module", repeats_as="wrong")
        for error in (ValueError("one"), KeyError("two")):
            for _ in range(AT_ONCE):
                try:
                    raise error
                except Exception:
                    self.log.failure("A bug")
        self.assertEqual(len(self.kept.events), AT_ONCE + 3 + 2 * AT_ONCE)

    def test_again(self) -> None:
        """After a minute lines are written at once again; where nothing was counted, nothing is told."""
        self.refuse(AT_ONCE + 1)
        for _ in range(3):
            self.clock.advance(PERIOD)
            self.repeats.log_counts()
        self.assertEqual(len(self.kept.lines), AT_ONCE + 1)
        self.assertIn("1 more like this in the last 60 s, from 1 address; the last: ", self.kept.lines[-1])
        self.refuse(1)
        self.assertEqual(len(self.kept.lines), AT_ONCE + 2)

    def test_bounded(self) -> None:
        """However many kinds and addresses there are, so many are told apart and remembered."""
        self.refuse(AT_ONCE)
        for number in range(10 * ADDRESSES):
            self.refuse(1, address=f"2001:db8::{number:x}")
        self.repeats.log_counts()
        self.assertIn(f"from more than {ADDRESSES} addresses", self.kept.lines[-1])
        for number in range(3 * KINDS):
            self.refuse(1, reason=f"reason {number}")
        self.assertEqual(len(self.repeats._kinds), KINDS + 1)

    def test_period(self) -> None:
        """It is told once in each period, and at the end."""
        telling = RepeatReporter(self.repeats, self.clock)
        telling.startService()
        self.refuse(AT_ONCE + 1)
        self.clock.advance(PERIOD)
        self.assertEqual(len(self.kept.lines), AT_ONCE + 1)
        self.refuse(AT_ONCE + 1)
        telling.stopService()
        self.assertEqual(len(self.kept.lines), 2 * (AT_ONCE + 1))
        self.assertEqual(self.clock.getDelayedCalls(), [])


class ServerLogTests(SynchronousTestCase):
    """The log that the options of ``twistd`` ask for."""

    def log_of(self, log_format: str = "text", level: str = "info", **twistd: Any) -> ServerLog:
        """The log."""
        return ServerLog.of_process(twistd, Clock(), log_format, level)

    def test_file(self) -> None:
        """A file is appended to, and after it was moved away and opened again a new one takes the lines."""
        path = Path(self.mktemp())
        path.write_text("earlier\n")
        log = self.log_of(logfile=str(path))
        say = Logger("program", observer=log.observer)
        say.info("one")
        path.rename(path.with_suffix(".1"))
        say.info("two")
        assert log.file is not None
        log.file.reopen()
        say.info("three")
        self.assertEqual(
            [line.rpartition(" ")[2] for line in path.with_suffix(".1").read_text().splitlines()], ["earlier", "one", "two"]
        )
        self.assertEqual(path.read_text().rpartition(" ")[2], "three\n")

    def test_level(self) -> None:
        """Lines below the level are not written, and count for nothing (CFG-41)."""
        for level, expected in (
            ("debug", ["a", "b", "c", "d"]),
            ("info", ["b", "c", "d"]),
            ("warn", ["c", "d"]),
            ("error", ["d"]),
        ):
            path = Path(self.mktemp())
            log = self.log_of(logfile=str(path), level=level)
            say = Logger("program", observer=log.observer)
            for line, write in zip("abcd", (say.debug, say.info, say.warn, say.error), strict=True):
                write(line)
            log.repeats.log_counts()
            self.assertEqual([line[-1] for line in path.read_text().splitlines()], expected)

    def test_json(self) -> None:
        """With ``json`` each line of a file is an object (CFG-41)."""
        path = Path(self.mktemp())
        Logger("program", observer=self.log_of("json", logfile=str(path)).observer).warn("{what}", what="it is\ngone")
        (line,) = path.read_text().splitlines()
        self.assertEqual((json.loads(line)["message"], json.loads(line)["level"]), ("it is\ngone", "warn"))

    def test_no_new_file(self) -> None:
        """Where it can't be opened again it goes on where it was."""
        folder = Path(self.mktemp())
        folder.mkdir()
        log = self.log_of(logfile=str(folder / "log"))
        folder.rename(folder.with_suffix(".away"))
        assert log.file is not None
        log.file.reopen()
        Logger("program", observer=log.observer).info("heard")
        self.assertIn("heard", (folder.with_suffix(".away") / "log").read_text())

    def test_standard_output(self) -> None:
        """In the foreground it is standard output unless a file is named; a daemon logs to a file where it is."""
        for twistd in ({"nodaemon": True}, {"nodaemon": True, "logfile": "-"}):
            self.assertIsNone(self.log_of(**twistd).file)
        self.assertIn("--logfile", str(self.assertRaises(SystemExit, self.log_of, logfile="-").code))
        file = self.log_of(nodaemon=False).file
        assert file is not None
        self.assertEqual(file.path, Path("twistd.log").absolute())
        file.path.unlink()

    def test_no_place(self) -> None:
        """A log that can't be written stops the start, with its name."""
        refusal = self.assertRaises(SystemExit, self.log_of, logfile="/no/such/place")
        self.assertIn("/no/such/place can't be written", str(refusal.code))


class OtherProcessTests(SynchronousTestCase):
    """Events of other processes."""

    def setUp(self) -> None:
        """Log here, and have it logged elsewhere."""
        self.said: list[ForwardedEvent] = []
        self.later: list[Callable[[], object]] = []
        self.log = Logger("program", observer=ForwardingObserver(self, self.said.append))

    def callFromThread(self, call: Callable[..., object], *arguments: object) -> None:
        """Be the reactor."""
        self.later.append(lambda: call(*arguments))

    def test_said(self) -> None:
        """A line of another process has its text, level and time, and its process's name before it (CFG-31)."""
        self.patch(threadable, "ioThread", threadable.getThreadID())
        self.log.warn("{what} {{is}} gone", what="{it}")
        (said,) = self.said
        kept = Kept()
        globalLogPublisher.addObserver(kept)
        self.addCleanup(globalLogPublisher.removeObserver, kept)
        said.log_locally("worker 2")
        self.assertEqual(kept.lines, ["- [program#warn] [worker 2] {it} {is} gone"])
        line = json.loads(format_json_line(kept.events[0]))
        self.assertEqual(
            (line["message"], line["process"], line["what"], "name" in line), ("{it} {is} gone", "worker 2", "{it}", False)
        )
        self.assertEqual(kept.events[0]["log_time"], said.time)

    def test_repeats(self) -> None:
        """Lines of another process repeat as its own would, each kind by itself (CFG-31)."""
        self.patch(threadable, "ioThread", threadable.getThreadID())
        self.log.info("one {number}", number=1)
        self.log.info("two {number}", number=1)
        kinds = {said.kind for said in self.said}
        self.assertEqual(len(kinds), 2)
        self.log.info("one {number}", number=2)
        self.assertEqual({said.kind for said in self.said}, kinds)

    def test_faults(self) -> None:
        """A fault brings its traceback along."""
        self.patch(threadable, "ioThread", threadable.getThreadID())
        try:
            raise KeyError("a fault")
        except KeyError:
            self.log.failure("it failed")
        self.assertIn("Traceback", self.said[0].text)
        self.assertEqual(self.said[0].level, "critical")
        kept = Kept()
        globalLogPublisher.addObserver(kept)
        self.addCleanup(globalLogPublisher.removeObserver, kept)
        self.said[0].log_locally("worker 1")
        line = json.loads(format_json_line(kept.events[0]))
        self.assertEqual(line["message"], "it failed")
        self.assertRegex(line["traceback"], r"\ATraceback (?s:.*)KeyError: 'a fault'\Z")

    def test_threads(self) -> None:
        """What a thread logs is told in the reactor's."""
        self.patch(threadable, "ioThread", None)
        self.log.info("from a thread")
        self.assertEqual(self.said, [])
        for call in self.later:
            call()
        self.assertEqual([said.text for said in self.said], ["from a thread"])

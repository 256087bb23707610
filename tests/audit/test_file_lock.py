"""Several processes append to one file: real ones, since a lock of the operating system's is one of processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from svc.audit.file_lock import SharedFileLock
from svc.audit.file_sinks import FULL_PIPE_SECONDS, FileSink
from svc.server.shared_page import make_shared_page, map_commit_counters
from tests.audit.test_file_sinks import SinkCase

#: Appends as many records as it is told, of many lengths, with a backlog where it has to wait.
_WRITER = """
import sys
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from pathlib import Path
from svc.audit.journal import Backlog
from svc.audit.file_sinks import FileSink
from svc.audit.file_lock import SharedFileLock
path, page, name, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
clock, backlog = Clock(), Backlog(lambda: None)
sink = FileSink(clock, Path(path), SharedFileLock(page))
Deferred.fromCoroutine(sink.open(backlog))
for number in range(count):
    record = f"{name} {number} ".encode() + b"x" * (number * 37 % 9000) + b"."
    taken = sink.try_write([record]) if not backlog.size and backlog.failure is None else 0
    if not taken:
        backlog.add_records([(number, record)])
        sink.drain_backlog()
        clock.advance(1)
while backlog:
    clock.advance(1)
"""

#: Takes the turn, leaves a mark and half a line, and dies.
_VICTIM = """
import os, sys
from svc.audit.file_lock import SharedFileLock
turn = SharedFileLock(int(sys.argv[2]))
assert turn.acquire_lock()
turn.set_mark()
with open(sys.argv[1], "ab", buffering=0) as file:
    file.write(b"torn")
os._exit(9)
"""


class SharedTurnTests(SinkCase):
    """A file, a page, and other processes."""

    def setUp(self) -> None:
        """Make both."""
        super().setUp()
        self.path, self.page = Path(self.mktemp()).absolute(), make_shared_page(2)
        self.addCleanup(os.close, self.page)

    def run_beside(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Run a program in a process of its own."""
        command = [sys.executable, "-c", program, str(self.path), str(self.page), *arguments]
        process = subprocess.Popen(command, pass_fds=[self.page], cwd=Path(__file__).resolve().parents[2])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def records(self) -> list[bytes]:
        """The lines of the file, whose last is ended."""
        text = self.path.read_bytes()
        self.assertTrue(text.endswith(b"\n"))
        return text.splitlines()

    def test_whole_lines(self) -> None:
        """Three processes that append at once lose and tear no line, and each one's stay in order (CFG-37)."""
        writers = [self.run_beside(_WRITER, name, "400") for name in "abc"]
        self.assertEqual([each.wait() for each in writers], [0, 0, 0])
        lines = self.records()
        self.assertTrue(all(line.endswith(b".") for line in lines))
        for name in (b"a", b"b", b"c"):
            self.assertEqual([int(line.split()[1]) for line in lines if line.startswith(name)], list(range(400)))

    def test_one_dies_in_a_line(self) -> None:
        """The line that a process has torn by its death is ended before the next (CFG-37)."""
        self.open(FileSink(self.clock, self.path, SharedFileLock(self.page)))
        self.write(b"before")
        self.assertEqual(self.run_beside(_VICTIM).wait(), 9)
        self.write(b"after", b"more")
        self.write(b"last")
        self.assertEqual(self.records(), [b"before", b"torn", b"after", b"more", b"last"])
        self.close()

    def test_opening_ends_no_line_of_others(self) -> None:
        """A process that opens the file doesn't take another's line, which is being written, for torn (CFG-37)."""
        self.path.write_bytes(b"being written")
        self.open(FileSink(self.clock, self.path, SharedFileLock(self.page)))
        self.assertEqual(self.path.read_bytes(), b"being written")
        self.close()

    def test_another_has_the_turn(self) -> None:
        """While another process has the turn records wait, and are written when it has given it back (CFG-37)."""
        holder = self.run_beside(
            "import sys, time; from svc.audit.file_lock import SharedFileLock\n"
            "turn = SharedFileLock(int(sys.argv[2]))\n"
            "assert turn.acquire_lock()\n"
            "open(sys.argv[1] + '.held', 'w').close()\n"
            "time.sleep(60)"
        )
        held = Path(f"{self.path}.held")
        while not held.exists():
            self.assertIsNone(holder.poll())
        self.open(FileSink(self.clock, self.path, SharedFileLock(self.page)))
        self.write(b"one")
        self.clock.pump([FULL_PIPE_SECONDS] * 5)
        self.assertEqual((self.path.read_bytes(), len(self.backlog)), (b"", 1))
        holder.kill()
        holder.wait()
        self.clock.advance(FULL_PIPE_SECONDS)
        self.assertEqual(self.records(), [b"one"])
        self.close()

    def test_slots(self) -> None:
        """The slots of commits are on the same memory, which doesn't touch the mark (CFG-28)."""
        mine, other = map_commit_counters(self.page, 1), map_commit_counters(self.page, 0)
        before = other.read_counters()
        mine.count_commit(confirmed=True)
        self.assertNotEqual(other.read_counters(), before)
        self.assertEqual(other.read_counters(), mine.read_counters())
        self.assertFalse(SharedFileLock(self.page).has_torn_line)
        self.assertFalse(SharedFileLock(self.page).has_chain)

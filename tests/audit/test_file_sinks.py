"""Records in files and on standard output."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import socket
import stat
from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.audit.file_sinks import FULL_PIPE_SECONDS, RETRY_SECONDS, WRITE_BYTES, FileSink, StandardOutputSink
from svc.audit.journal import Backlog, ISink
from svc.model.errors import StartRefused


class SinkCase(SynchronousTestCase):
    """A sink with its backlog."""

    def setUp(self) -> None:
        """Make the backlog."""
        self.clock, self.number = Clock(), 0
        self.backlog = Backlog(lambda: None)

    def open(self, sink: ISink, backlog: Backlog | None = None) -> None:
        """Open a sink."""
        self.successResultOf(Deferred.fromCoroutine(sink.open(backlog or self.backlog)))
        self.sink = sink

    def write(self, *records: bytes) -> None:
        """Give the sink records, in one turn, as the journal does."""
        taken = len(self.sink.try_write(records)) if not self.backlog.size and self.backlog.failure is None else 0
        first, self.number = self.number + taken + 1, self.number + len(records)
        if taken < len(records):
            self.backlog.add_records(list(enumerate(records[taken:], first)))
            self.sink.drain_backlog()

    def close(self) -> None:
        """Close the sink."""
        self.successResultOf(Deferred.fromCoroutine(self.sink.close()))


class FileTests(SinkCase):
    """A file."""

    def setUp(self) -> None:
        """Open it."""
        super().setUp()
        self.path = Path(self.mktemp())
        self.open(FileSink(self.clock, self.path))

    def test_interface(self) -> None:
        """Both sinks are what the journal asks for."""
        self.assertTrue(verifyObject(ISink, self.sink))
        self.assertTrue(verifyObject(ISink, StandardOutputSink(self.clock, 1)))

    def test_lines(self) -> None:
        """Each record is a line, and only the owner may read the file (AUD-16)."""
        self.write(b"one", b"two")
        self.write(b"three")
        self.assertEqual(self.path.read_bytes(), b"one\ntwo\nthree\n")
        self.assertEqual(len(self.backlog), 0)
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o600)

    def test_at_once(self) -> None:
        """A file takes records at once as far as one write goes, and those of a file that was closed not at all."""
        records = [b"x" * 1023] * 2000
        self.assertEqual(len(self.sink.try_write(records)), WRITE_BYTES // 1023 + 1)
        self.assertEqual(len(self.sink.try_write(records[:976])), 976)
        self.assertEqual(self.path.stat().st_size, 2002 * 1024)
        self.close()
        self.assertEqual(self.sink.try_write([b"late"]), ())

    def test_appended(self) -> None:
        """The content of the file stays, and a line that was left torn is ended first (AUD-16)."""
        self.close()
        self.path.write_bytes(b"whole\ntorn")
        self.open(FileSink(self.clock, self.path))
        self.write(b"next")
        self.assertEqual(self.path.read_bytes(), b"whole\ntorn\nnext\n")

    def test_rotated(self) -> None:
        """When it is opened again, the next record goes to a new file at the same place, and the old one stays whole
        (AUD-17).
        """
        self.write(b"one")
        old = self.path.with_suffix(".1")
        self.path.rename(old)
        self.write(b"two")
        self.sink.reopen()
        self.assertEqual(self.path.read_bytes(), b"")
        self.write(b"three")
        self.assertEqual((old.read_bytes(), self.path.read_bytes()), (b"one\ntwo\n", b"three\n"))

    def test_ready(self) -> None:
        """It is ready while its file is at its place, writes nothing to know that, and finds what took the file's place
        (AUD-17).
        """
        self.assertTrue(self.sink.is_ready())
        self.assertEqual(self.path.read_bytes(), b"")
        self.write(b"one")
        old = self.path.with_suffix(".1")
        self.path.rename(old)
        self.assertTrue(self.sink.is_ready())
        self.write(b"two")
        self.path.unlink()
        self.path.write_bytes(b"another\n")
        self.assertTrue(self.sink.is_ready())
        self.write(b"three")
        self.assertEqual((old.read_bytes(), self.path.read_bytes()), (b"one\n", b"another\nthree\n"))
        self.path.unlink()
        self.path.mkdir()
        self.assertFalse(self.sink.is_ready())
        self.assertEqual(self.backlog.failure, os.strerror(errno.EISDIR))

    def test_no_room(self) -> None:
        """It isn't ready where its disk has no room for the longest record, or takes nothing; some disks don't say."""
        told = list(os.statvfs(self.path))
        for size, blocks, free, flags, ready in (
            (4096, 100, 4, 0, True),
            (4096, 100, 3, 0, False),
            (4096, 100, 50, os.ST_RDONLY, False),
            (4096, 0, 0, 0, True),
        ):
            told[1], told[2], told[4], told[8] = size, blocks, free, flags
            self.patch(os, "fstatvfs", lambda _, told=tuple(told): os.statvfs_result(told))
            self.assertEqual(self.sink.is_ready(), ready)

    def test_no_place(self) -> None:
        """A file that can't be made stops the start with its name; where it can't be opened again, that is trouble."""
        absent = FileSink(self.clock, self.path / "below" / "it")
        failed = self.failureResultOf(Deferred.fromCoroutine(absent.open(Backlog(lambda: None))), StartRefused)
        self.assertIn("below/it", failed.value.message)
        folder = Path(self.mktemp())
        folder.mkdir()
        self.close()
        self.open(FileSink(self.clock, folder / "audit"))
        folder.rename(folder.with_suffix(".away"))
        self.sink.reopen()
        self.assertEqual(self.backlog.failure, os.strerror(errno.ENOENT))
        folder.mkdir()
        self.clock.advance(RETRY_SECONDS)
        self.assertIsNone(self.backlog.failure)
        self.write(b"again")
        self.assertEqual((folder / "audit").read_bytes(), b"again\n")

    def test_end(self) -> None:
        """A record that is given last is written before the file is closed."""
        self.backlog.add_records([(1, b"x" * 1000)] * 5000)
        self.close()
        self.assertEqual(self.path.stat().st_size, 1001 * 5000)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class FullDiskTests(SinkCase):
    """A file that may not grow beyond a size, as on a disk that is full."""

    def setUp(self) -> None:
        """Open a file, which may have ten bytes."""
        super().setUp()
        self.path = Path(self.mktemp())
        self.open(FileSink(self.clock, self.path))
        self.limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(self.allow, self.limits[0])
        self.allow(10)

    def allow(self, size: int) -> None:
        """Let files have so many bytes."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, self.limits[1]))

    def test_full(self) -> None:
        """What doesn't fit is trouble, nothing is taken that isn't whole, and all of it follows when there is room."""
        self.write(b"one", b"second", b"third")
        self.assertEqual(len(self.backlog), 2)
        self.clock.advance(0)
        self.assertEqual(self.backlog.failure, os.strerror(errno.EFBIG))
        self.clock.advance(RETRY_SECONDS)
        self.assertIsNotNone(self.backlog.failure)
        self.assertEqual(self.path.read_bytes(), b"one\nsecond")
        self.allow(self.limits[0])
        self.write(b"fourth")
        self.clock.advance(RETRY_SECONDS)
        self.assertIsNone(self.backlog.failure)
        self.assertEqual(self.path.read_bytes(), b"one\nsecond\nthird\nfourth\n")

    def test_full_and_rotated(self) -> None:
        """A line of which the old file has a part stands whole in the new one."""
        self.write(b"a long line of text")
        self.clock.advance(0)
        self.path.rename(self.path.with_suffix(".1"))
        self.allow(self.limits[0])
        self.sink.reopen()
        self.assertEqual(self.path.read_bytes(), b"a long line of text\n")
        self.assertEqual(len(self.backlog), 0)

    def test_full_and_started_again(self) -> None:
        """Who finds a torn line at the end of a file ends it, so that no two records share a line (AUD-16)."""
        self.write(b"a long line of text")
        self.close()
        self.allow(self.limits[0])
        self.backlog = Backlog(lambda: None)
        self.open(FileSink(self.clock, self.path))
        self.write(b"next")
        self.assertEqual(self.path.read_bytes(), b"a long lin\nnext\n")


class StandardOutputTests(SinkCase):
    """Standard output, here a pipe."""

    def setUp(self) -> None:
        """Open a pipe."""
        super().setUp()
        self.reader, self.writer = os.pipe()
        self.addCleanup(os.close, self.reader)
        self.addCleanup(os.close, self.writer)
        self.open(StandardOutputSink(self.clock, self.writer))

    def test_nobody_reads(self) -> None:
        """A pipe that nobody reads is filled by half, in whole lines; the rest follows when it is read (AUD-18)."""
        capacity = fcntl.fcntl(self.writer, fcntl.F_GETPIPE_SZ)
        records = [b"%06d" % number + b"x" * 93 for number in range(capacity // 100)]
        self.write(*records)
        self.clock.advance(FULL_PIPE_SECONDS)
        held = os.read(self.reader, capacity)
        self.assertLessEqual(len(held), capacity // 2)
        self.assertEqual(held[-1:], b"\n")
        self.assertIsNone(self.backlog.failure)
        while self.backlog:
            self.clock.advance(FULL_PIPE_SECONDS)
            held += os.read(self.reader, capacity)
        self.assertEqual(held.splitlines(), records)

    def test_ready(self) -> None:
        """It is ready while there is a reader and room, of which half of the pipe counts."""
        self.assertTrue(self.sink.is_ready())
        os.write(self.writer, b"x" * (fcntl.fcntl(self.writer, fcntl.F_GETPIPE_SZ) // 2))
        self.assertFalse(self.sink.is_ready())
        os.read(self.reader, 10**6)
        self.assertTrue(self.sink.is_ready())
        reader, writer = os.pipe()
        self.addCleanup(os.close, writer)
        self.open(StandardOutputSink(self.clock, writer))
        os.close(reader)
        self.assertFalse(self.sink.is_ready())

    def test_ready_elsewhere(self) -> None:
        """It is ready where standard output is a file, or a socket whose other end reads."""
        with Path(self.mktemp()).open("wb") as file:
            self.open(StandardOutputSink(self.clock, file.fileno()))
            self.assertTrue(self.sink.is_ready())
        here, there = socket.socketpair()
        self.addCleanup(here.close)
        self.open(StandardOutputSink(self.clock, here.fileno()))
        self.assertTrue(self.sink.is_ready())
        there.close()
        self.assertFalse(self.sink.is_ready())

    def test_nobody_will_read(self) -> None:
        """Where the reader is gone, that is trouble."""
        reader, writer = os.pipe()
        os.close(reader)
        self.addCleanup(os.close, writer)
        self.open(StandardOutputSink(self.clock, writer))
        self.write(b"one")
        self.assertEqual(self.backlog.failure, os.strerror(errno.EPIPE))

    def test_closed(self) -> None:
        """Without standard output the start is refused, and the message tells what to set."""
        reader, writer = os.pipe()
        os.close(reader)
        os.close(writer)
        sink = StandardOutputSink(self.clock, writer)
        failed = self.failureResultOf(Deferred.fromCoroutine(sink.open(Backlog(lambda: None))), StartRefused)
        self.assertIn("--audit-file", failed.value.message)

    def test_full_device(self) -> None:
        """A device that is full is trouble, and whatever else is no regular file is asked whether it takes anything."""
        full = os.open("/dev/full", os.O_WRONLY)
        self.addCleanup(os.close, full)
        self.open(StandardOutputSink(self.clock, full))
        self.write(b"one")
        self.assertEqual(self.backlog.failure, os.strerror(errno.ENOSPC))

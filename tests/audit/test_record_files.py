"""Tests of ``svc.audit.record_files``: records found in files, and files that are followed."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.audit.record_files import FileFollower, RecordQuery, event_of, search_files
from svc.model.events import Event
from tests.audit.chained import Ticking, Writer, fetched
from tests.audit.parsing import parse


def login(user: str) -> Event:
    """A login."""
    return Event("authn", "authenticate", (("role", user),), "logged in", "log in", user=user)


class SearchTests(SynchronousTestCase):
    """Two servers' files, one rotated."""

    def setUp(self) -> None:
        """Write them."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        wall = Ticking()
        one, two = Writer("vault1", wall=wall), Writer("vault2", wall=wall)
        old = one.lines(3)
        logins = two.lines(1, events=[login("acme:host:web"), login("acme:user:eve")], reason="key-unknown", request="r-2")
        new = one.lines(1, user="acme:user:eve", events=[fetched("acme:variable:v1")], request="r-3")
        self.files = [
            self.file("audit", *new, b"a log's line\n"),
            self.file("other", *logins),
            self.packed("audit.1.gz", *old),
        ]
        self.written = [*old, *logins, *new]

    def file(self, name: str, *lines: bytes) -> Path:
        """A file of lines."""
        path = self.folder / name
        path.write_bytes(b"".join(lines))
        return path

    def packed(self, name: str, *lines: bytes) -> Path:
        """A compressed one."""
        path = self.folder / name
        path.write_bytes(gzip.compress(b"".join(lines)))
        return path

    def found(self, **filters: str) -> list[int]:
        """What is found: places among all that was written."""
        result = search_files(self.files, RecordQuery(**filters), 100)
        self.assertEqual(result.count, len(result.lines))
        return [self.written.index(line) for line in result.lines]

    def test_all(self) -> None:
        """All records of all files are found, the newest first, readings and logins too (AUD-40)."""
        self.assertEqual(self.found(), [5, 4, 3, 2, 1, 0])
        result = search_files(self.files, RecordQuery(), 2, 1)
        self.assertEqual((result.count, [self.written.index(line) for line in result.lines]), (6, [4, 3]))

    def test_filters(self) -> None:
        """Each filter leaves what is equal to it, together with the others (AUD-40)."""
        for filters, expected in (
            ({"user": "acme:user:eve"}, [5, 4]),
            ({"user": "user:eve"}, [5, 4]),
            ({"user": "eve"}, []),
            ({"what": "fetch"}, [5, 2, 1, 0]),
            ({"what": "authn"}, [4, 3]),
            ({"what": "authenticate"}, [4, 3]),
            ({"what": "variable:v1"}, [5, 1]),
            ({"what": "acme:variable:v1"}, [5, 1]),
            ({"what": "acme:variable:v"}, []),
            ({"outcome": "failure"}, [4, 3]),
            ({"outcome": "success", "what": "variable:v1", "user": "host:web"}, [1]),
            ({"outcome": "unknown"}, []),
            ({"request": "r-3"}, [5]),
            ({"msgid": "fetch", "operation": "fetch", "client_ip": "192.0.2.7", "request": "r-1"}, [2, 1, 0]),
            ({"operation": "authenticate", "role": "acme:user:eve"}, [4]),
            ({"resource": "variable:v2"}, [2]),
            ({"about": "user:eve"}, [4]),
            ({"client_ip": "192.0.2.8"}, []),
            ({"since": "2023-11-14T22:13:24"}, [5, 4, 3]),
            ({"until": "2023-11-14T22:13:22.250Z"}, [0]),
        ):
            self.assertEqual(self.found(**filters), expected, filters)

    def test_event(self) -> None:
        """A record is told in the form in which the HTTP interface tells events (AUD-28, AUD-40)."""
        event, read = event_of(self.written[3]), parse(self.written[3][:-1])
        self.assertEqual((event["facility"], event["severity"], event["msgid"], event["number"]), (10, 4, "authn", 1))
        self.assertEqual((event["sdata"], event["message"], event["procid"]), (read.data, read.message, "r-2"))
        self.assertEqual(event["timestamp"], read.timestamp.replace("Z", "+00:00"))

    @given(st.text(min_size=1, max_size=60), st.text(min_size=1, max_size=60))
    def test_any_text(self, name: str, other: str) -> None:
        """Whatever a name has in it, it is found by that, and nothing else is (AUD-13, AUD-40)."""
        lines = Writer().lines(1, events=[fetched(f"acme:variable:{name}"), fetched(f"acme:variable:{other}")])
        path = self.file("any", *lines)
        expected = [line for line, each in zip(lines, (name, other), strict=True) if each == name]
        self.assertEqual(search_files([path], RecordQuery(what=f"acme:variable:{name}"), 9).lines[::-1], expected)
        self.assertEqual(event_of(lines[0])["message"], parse(lines[0][:-1]).message)

    def test_not_records(self) -> None:
        """Lines that were cut, or that lack their digest's rest, are never found, as nothing vouches for them (AUD-38)."""
        cut = self.written[0][:-9] + b"\n"
        path = self.file("cut", cut, cut.replace(b"number=", b"numb=r"), self.written[0][:60])
        self.assertEqual(search_files([path], RecordQuery(), 9).count, 0)

    def test_unreadable(self) -> None:
        """A file that isn't there, and one whose compression was cut, are errors (AUD-40)."""
        broken = self.folder / "broken.gz"
        broken.write_bytes(gzip.compress(os.urandom(5000))[:900])
        for path in (self.folder / "absent", broken):
            self.assertRaises(OSError, search_files, [path], RecordQuery(), 9)


class FollowerTests(SynchronousTestCase):
    """A file that is followed."""

    def setUp(self) -> None:
        """Make it."""
        self.path = Path(self.mktemp())
        self.path.write_bytes(b"one\ntwo\n")
        self.follower = FileFollower(self.path)
        self.addCleanup(self.follower.close)

    def append(self, text: bytes) -> None:
        """Append to it."""
        with self.path.open("ab") as file:
            file.write(text)

    def new(self) -> list[bytes]:
        """The lines that have come."""
        return [*self.follower.read_new_lines()]

    def test_rotation(self) -> None:
        """Each line comes once, when it is whole, also across a rotation (AUD-41)."""
        self.assertEqual(self.new(), [b"one\n", b"two\n"])
        self.append(b"th")
        self.assertEqual(self.new(), [])
        self.append(b"ree\n")
        self.assertEqual(self.new(), [b"three\n"])
        old = self.path.with_suffix(".1")
        self.path.rename(old)
        with old.open("ab") as file:
            file.write(b"last\n")
        self.assertEqual(self.new(), [b"last\n"])
        with old.open("ab") as file:
            file.write(b"very last\n")
        self.path.write_bytes(b"first\n")
        self.assertEqual(self.new(), [b"very last\n", b"first\n"])
        self.append(b"more\n")
        self.assertEqual(self.new(), [b"more\n"])

    def test_cut(self) -> None:
        """A file that was cut is read from its beginning again (AUD-41)."""
        self.new()
        self.path.write_bytes(b"new\n")
        self.assertEqual(self.new(), [b"new\n"])

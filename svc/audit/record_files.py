"""Records read back from the files of servers: rotated and compressed ones too, in the order in which they were written."""

from __future__ import annotations

import gzip
import heapq
import io
import os
import re
from binascii import a2b_base64
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from svc.audit.record import CHAINED_RECORD, ENTERPRISE, TAIL_BYTES, ChainEnd, quote_value

#: Bytes that are read at a time, and that a line may have at most: records are far shorter.
PIECE: Final = 1024 * 1024

_GZIP: Final = b"\x1f\x8b"
_RECORD: Final = re.compile(
    rb"<[0-9]{1,3}>1 [0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z (?:[!-~]+ ){4}\[[a-z]+@[0-9]+ [a-z]"
)
_ELEMENT: Final = re.compile(r'\[([^ ]+)((?: [^ =]+="[^"\\]*(?:\\.[^"\\]*)*")*)\]', re.DOTALL)
_PARAMETER: Final = re.compile(r' ([^ =]+)="([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_ESCAPE: Final = re.compile(r'\\(["\\\]])')
_RESULTS: Final = ("success", "failure", "unknown")


def is_record(line: bytes) -> bool:
    """Return whether a line begins as a record of a server does, up to its data."""
    return _RECORD.match(line) is not None


def is_truncated(line: bytes) -> bool:
    """Return whether a record is one of a chain that isn't whole: its line was cut (``verification``, Note [Cut lines])."""
    matched = CHAINED_RECORD.fullmatch(line.removesuffix(b"\n"))
    if matched is None:
        return line.split(b" ", 6)[-1].startswith(b"[chain@")
    return len(matched[7]) < int(matched[5])


def open_record_file(path: Path) -> io.BufferedReader[Any]:
    """Open a file to read, uncompressed if it is compressed.

    :raises OSError: it can't be read.
    """
    file = io.BufferedReader(path.open("rb", buffering=0), PIECE)
    return io.BufferedReader(gzip.GzipFile(fileobj=file), PIECE) if file.peek(2)[:2] == _GZIP else file


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, each with its end.

    :raises OSError: it can't be read, or is compressed and damaged.
    """
    with open_record_file(path) as file:
        try:
            while line := file.readline(PIECE):
                yield line
        except EOFError as error:
            raise OSError(None, f"the compressed file is cut: {error}") from None


def sort_by_time(paths: Sequence[Path]) -> list[Path]:
    """Return files in the order of their first records, whatever they are called; those without any come first.

    :raises OSError: one can't be read.
    """
    return sorted(dict.fromkeys(paths), key=_first_timestamp)


def _first_timestamp(path: Path) -> bytes:
    return next((line.split(b" ", 2)[1] for line in read_lines(path) if is_record(line)), b"")


@attrs.frozen
class RecordQuery:
    """A search in files: records of a time, from ``since`` up to before ``until``, compared as texts.

    The others are equal: ``user`` who did it, ``what`` the msgid, the operation or an id in the subject, ``outcome`` the
    word for it, ``request`` its id; ``msgid``, ``operation``, ``client_ip``; and ``role``, ``resource`` or either or a
    member, ``about``, of the subject. Ids of the subject may lack their account.
    """

    since: str = ""
    until: str = "~"
    user: str | None = None
    what: str | None = None
    outcome: str | None = None
    request: str | None = None
    msgid: str | None = None
    operation: str | None = None
    client_ip: str | None = None
    role: str | None = None
    resource: str | None = None
    about: str | None = None

    def needles(self) -> list[bytes]:
        """Return bytes that each matching record has, all of them, wherever they stand in it."""
        named = [quote_value(text) for text in (self.role, self.resource, self.about, self.user) if text is not None]
        found = [f'{text}"'.encode() for text in named]
        found += [f'="{quote_value(text)}"'.encode() for text in (self.operation, self.client_ip, self.outcome) if text]
        found += [b" %b " % text.encode() for text in (self.request, self.msgid) if text]
        return found + ([] if self.what is None else [quote_value(self.what).encode()])

    def make_matcher(self) -> Callable[[bytes], bool]:
        """Return a function that returns whether a line is a matching record."""
        since, until = self.since.encode(), self.until.encode()
        msgid, request = _encode_optional(self.msgid), _encode_optional(self.request)
        what = _encode_optional(self.what)
        wanted = []
        if self.client_ip is not None:
            wanted.append(f'[client@{ENTERPRISE} ip="{quote_value(self.client_ip)}"'.encode())
        if self.outcome is not None:
            wanted.append(f'[action@{ENTERPRISE} result="{self.outcome}" '.encode())
        user = None if self.user is None else re.compile(rf"\[auth@{ENTERPRISE} user={_value_pattern(self.user)}".encode())
        operations, done = _operation_needles(self.operation), _operation_needles(self.what)
        named = [
            _parameter_pattern(names, value)
            for names, value in (("role", self.role), ("resource", self.resource), ("role|resource|member", self.about))
            if value is not None
        ]
        thing = None if self.what is None else _parameter_pattern("[^ =]+", self.what)

        def matches_query(line: bytes) -> bool:
            """Return whether it is; each of these can only stand where it means this, since values are escaped."""
            parts = line.split(b" ", 6)
            if len(parts) < 7 or not since <= parts[1] < until or (request is not None and parts[4] != request):
                return False
            if msgid is not None and parts[5] != msgid:
                return False
            rest = parts[6]
            data = rest[: rest.find(b'"] ') + 2]
            for needle in wanted:
                if needle not in data:
                    return False
            if user is not None and user.search(data) is None:
                return False
            if operations and not any(needle in data for needle in operations):
                return False
            if named or thing is not None:
                start = data.find(_SUBJECT)
                subject = data[start : data.find(b'"]', start) + 1] if start >= 0 else b""
                if any(each.search(subject) is None for each in named):
                    return False
                if thing is not None and parts[5] != what and not any(needle in data for needle in done):
                    return thing.search(subject) is not None and is_record(line) and not is_truncated(line)
            return is_record(line) and not is_truncated(line)

        return matches_query


_SUBJECT: Final = f"[subject@{ENTERPRISE} ".encode()


def _encode_optional(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _operation_needles(operation: str | None) -> list[bytes]:
    if operation is None:
        return []
    text = quote_value(operation)
    return [f'[action@{ENTERPRISE} result="{word}" operation="{text}"'.encode() for word in _RESULTS]


def _parameter_pattern(names: str, value: str) -> re.Pattern[bytes]:
    """Return what finds a parameter of the subject by one of some names."""
    return re.compile(f" (?:{names})={_value_pattern(value)}".encode())


def _value_pattern(text: str) -> str:
    """Return the expression for a value; an id without its account fits in any."""
    account = '[^:"]+:' if text.count(":") == 1 else ""
    return f'"{account}{re.escape(quote_value(text))}"'


@attrs.frozen
class FoundRecords:
    """The newest records that fit, newest first, and how many fit altogether."""

    lines: Sequence[bytes]
    count: int


def search_files(paths: Sequence[Path], query: RecordQuery, limit: int, offset: int = 0) -> FoundRecords:
    """Return what is found in files, in no matter which order these are given.

    :raises OSError: one can't be read.
    """
    fits, most, count = query.make_matcher(), limit + offset, 0
    newest: list[tuple[bytes, int, bytes]] = []
    for path in sort_by_time(paths):
        for line in filter(fits, read_lines(path)):
            count += 1
            found = (line.split(b" ", 2)[1], count, line)
            if len(newest) < most:
                heapq.heappush(newest, found)
            elif found > newest[0]:
                heapq.heapreplace(newest, found)
    return FoundRecords([line for _, _, line in sorted(newest, reverse=True)][offset:], count)


def event_of(line: bytes) -> dict[str, object]:
    """Return a record in the form of events in the HTTP interface (AUD-28); ``number`` is that of its chain."""
    priority, timestamp, hostname, appname, procid, msgid, rest = line.decode("utf-8", "replace").rstrip("\n").split(" ", 6)
    data: dict[str, dict[str, str]] = {}
    place = 0
    while element := _ELEMENT.match(rest, place):
        parameters = _PARAMETER.findall(element[2])
        data[element[1]] = {name: _ESCAPE.sub(r"\1", value) for name, value in parameters}
        place = element.end()
    number = data.get(f"chain@{ENTERPRISE}", {}).get("number", "")
    facility, severity = divmod(int(priority[1 : priority.index(">")]), 8)
    return {
        "timestamp": timestamp.replace("Z", "+00:00"),
        "facility": facility,
        "severity": severity,
        "hostname": hostname,
        "appname": appname,
        "procid": procid,
        "msgid": msgid,
        "sdata": data,
        "message": rest[place:].lstrip(" ").removeprefix("\ufeff"),
        "number": int(number) if number.isdecimal() else None,
    }


def read_chain_ends(paths: Sequence[Path]) -> list[ChainEnd]:
    """Return the last record of each chain in files, of which only the ends are read where they aren't compressed.

    :raises OSError: one can't be read.
    """
    ends: dict[str, ChainEnd] = {}
    for path in paths:
        with open_record_file(path) as file:
            if not isinstance(file.raw, gzip.GzipFile):
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            for line in file:
                matched = CHAINED_RECORD.fullmatch(line.removesuffix(b"\n"))
                if matched is None or len(matched[7]) < int(matched[5]):
                    continue
                end = ChainEnd(matched[2].decode(), int(matched[3]), a2b_base64(matched[6]))
                if end.chain not in ends or ends[end.chain].number < end.number:
                    ends[end.chain] = end
    return [*ends.values()]


class FileFollower:
    """Reads the lines appended to a file, also after it was moved away and another has taken its place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: io.BufferedReader[Any] | None = None
        self._partial_line = b""

    def read_new_lines(self) -> Iterator[bytes]:
        """Yield the whole lines that have come since the last time, from the beginning of the file at first.

        :raises OSError: the file can't be read, the first time.
        """
        if self._file is None:
            self._file = open_record_file(self._path)
        yield from self._read_complete_lines(self._file)
        try:
            status = self._path.stat()
        except OSError:
            return  # It was moved away, and no other is there yet.
        here = _file_identity(self._file)
        if (status.st_dev, status.st_ino) == here:
            if status.st_size < self._file.tell():  # It was cut, as by copytruncate.
                self._file.seek(0)
                self._partial_line = b""
                yield from self._read_complete_lines(self._file)
            return
        # A server may have written to the old one until it opened the other.
        yield from self._read_complete_lines(self._file)
        self.close()
        try:
            self._file = open_record_file(self._path)
        except OSError:
            return
        yield from self._read_complete_lines(self._file)

    def close(self) -> None:
        """Let go of the file; the next time begins at the beginning."""
        if self._file is not None:
            self._file.close()
        self._file, self._partial_line = None, b""

    def _read_complete_lines(self, file: io.BufferedReader[Any]) -> Iterator[bytes]:
        while line := file.readline(PIECE):
            self._partial_line += line
            if line.endswith(b"\n"):
                whole, self._partial_line = self._partial_line, b""
                yield whole


def _file_identity(file: io.BufferedReader[Any]) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino


def last_lines(lines: Iterable[bytes], count: int) -> list[bytes]:
    """Return the last ``count`` of lines."""
    return [*deque(lines, count)]

"""A page of the records of one account, found in all files of one server (AUD-61): the work of the search process.

Note [Order]. Records are ordered by their time; those of one millisecond by their number in the chain, and then by a digest
of the line. This key depends on nothing but the record. So a page begins right after the last record of the page before it,
whatever was written, rotated or compressed meanwhile, whichever server is asked for it; and a record that stands in two
files is found once.

Note [Newest first]. Only as many records are kept as a page has. Once there are so many, a line that is older than all of
them is passed over by its time alone. So the newest file is read first, a plain file from its end on. Every line of all
files is compared, though, since a clock that was set back leaves newer records before older ones.

Note [Rare bytes]. A record that fits has certain bytes, such as the id that is looked for. Lines without them aren't even
cut out: the search goes from one place that has them to the next, and in each piece by those that are rarest there.

Note [Renamed meanwhile]. A file that is rotated during a search has another name, and one that is compressed is another
file. So all files are opened before any is read, until the folder has none that isn't open.
"""

from __future__ import annotations

import gzip
import heapq
import os
import re
import resource
import signal
import stat
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple, Self

import attrs

from svc.audit.record import ENTERPRISE, quote_value
from svc.audit.record_files import PIECE, RecordQuery
from svc.model.clocks import parse_rfc3339
from svc.model.names import ACTING_KINDS
from svc.model.pickled_messages import MessageDecoder

#: Bytes of records that a page has at most, unless it is one record; and files that are read at most.
PAGE_BYTES: Final = 2 * 1024 * 1024
MAX_FILES: Final = 1000

#: By how much the process gives way to others, and the most of files that it may have open.
NICENESS: Final = 5
_OPEN_FILES: Final = MAX_FILES + 100

#: Seconds after which it ends by itself when the server hasn't ended it in time.
_GRACE_SECONDS: Final = 5

#: Seconds by which a file may have been changed before its last record, by its own clock: another one may set the file's.
CLOCK_SLACK: Final = 86_400.0

_DIGEST_BYTES: Final = 8
_STAMP: Final = len("2026-11-22T09:30:00.000Z")
_OPEN_ROUNDS: Final = 5

_KEY: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z)_([0-9]{1,19})_([0-9a-f]{16})", re.ASCII
)
_NUMBER: Final = re.compile(rb'\[chain@%b id="[0-9a-f]{16}" number="([0-9]{1,19})"' % ENTERPRISE.encode())
_USER: Final = re.compile(rb'\[auth@%b user="((?:[^"\\]|\\.)*)"' % ENTERPRISE.encode())
#: The user of a login where there is no such role (AUD-11).
_UNKNOWN: Final = b"not-found"
_SUBJECT: Final = b"[subject@%b " % ENTERPRISE.encode()
_PARAMETER: Final = re.compile(rb' ([^ =]+)="((?:[^"\\]|\\.)*)"')

#: How compressed files begin that aren't read, by the name of the compression.
_OTHERS: Final = {b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2"}
_GZIP: Final = b"\x1f\x8b"


class RecordKey(NamedTuple):
    """The place of a record among all others (Note [Order])."""

    timestamp: bytes
    number: int
    digest: bytes

    @classmethod
    def of_line(cls, line: bytes) -> Self:
        """Return the key of a record."""
        matched = _NUMBER.search(line)
        digest = blake2b(line, digest_size=_DIGEST_BYTES).digest()
        return cls(line.split(b" ", 2)[1], 0 if matched is None else int(matched[1]), digest)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str`` made of a key.

        :raises ValueError: it is anything else.
        """
        matched = _KEY.fullmatch(text)
        if matched is None:
            raise ValueError("no key of a record")
        return cls(matched[1].encode(), int(matched[2]), bytes.fromhex(matched[3]))

    def __str__(self) -> str:
        return f"{self.timestamp.decode('ascii')}_{self.number}_{self.digest.hex()}"


@attrs.frozen
class RecordsQuestion:
    """A search for at most ``limit`` records of an account, the newest before the one of the key ``before``.

    ``role`` asks for them, an empty one if it isn't known, and ``reads_all`` says whether it may read all of the account.
    """

    query: RecordQuery
    account: str
    limit: int
    before: RecordKey | None = None
    role: str = ""
    reads_all: bool = False


@attrs.frozen
class SearchTask:
    """All that the search process is given: the audit file, the question, and the seconds after which it ends."""

    path: str
    question: RecordsQuestion
    seconds: int


@attrs.frozen
class RecordsPage:
    """Records, newest first; whether there are ``more``; and ``faults``, why some may be missing, in sentences."""

    lines: tuple[bytes, ...] = ()
    more: bool = False
    faults: tuple[str, ...] = ()

    def encode(self) -> Iterator[bytes]:
        """Return it as bytes, in pieces: how many faults there are, a line each, and the records, a line each."""
        yield b"%s %d\n" % (b"more" if self.more else b"end", len(self.faults))
        for fault in self.faults:
            yield b"%b\n" % fault.replace("\n", " ").encode("utf-8", "replace")
        for line in self.lines:
            yield b"%b\n" % line

    @classmethod
    def decode(cls, text: bytes) -> Self:
        """Read what :meth:`encode` made.

        :raises ValueError: it is anything else, or a part of it.
        """
        head, *rest = text.split(b"\n")
        matched = re.fullmatch(rb"(more|end) ([0-9]{1,6})", head)
        if matched is None or rest[-1:] != [b""] or len(rest) <= int(matched[2]):
            raise ValueError("no page of records")
        count = int(matched[2])
        faults = tuple(fault.decode("utf-8", "replace") for fault in rest[:count])
        return cls(tuple(rest[count:-1]), matched[1] == b"more", faults)


def make_account_matcher(account: str) -> Callable[[bytes], bool]:
    """Return a function that returns whether a record is of an account, as AUD-26 has it.

    It is if the role that acted is of it. An act of nobody known, or of the service itself, is of the account of what it was
    done to. No account's name has a colon: what a login at ``acme:x`` names isn't of ``acme``.
    """
    name = quote_value(account).encode()
    prefix = name + b":"
    actors = tuple(prefix + kind.encode() + b":" for kind in ACTING_KINDS)

    def is_of_account(line: bytes) -> bool:
        """Return whether it is; values are escaped, so elements can only begin and end where they do."""
        rest = line.split(b" ", 6)[6]
        data = rest[: rest.find(b'"] ') + 2]
        user = _USER.search(data)
        if user is not None and b":" in user[1]:
            return user[1].startswith(actors)
        start = data.find(_SUBJECT)
        if start < 0:
            return False
        found = _PARAMETER.findall(data, start, data.find(b'"]', start) + 1)
        is_unknown = user is not None and user[1] == _UNKNOWN
        if is_unknown and any(parameter == b"role" and not value.startswith(actors) for parameter, value in found):
            return False
        ids = [value for parameter, value in found if parameter == b"account" or value.count(b":") >= 2]
        return bool(ids) and all(value == name or value.startswith(prefix) for value in ids)

    return is_of_account


class _Newest:
    """The newest records that were found: as many as a page has, and one more, which says that there are more."""

    def __init__(self, question: RecordsQuestion) -> None:
        self._limit, self._before = question.limit, question.before
        self._found: list[tuple[RecordKey, bytes]] = []
        self._keys: set[RecordKey] = set()
        #: Older ones aren't needed.
        self.oldest = b""

    def add_record(self, line: bytes) -> None:
        """Take a record that fits."""
        key = RecordKey.of_line(line)
        if key in self._keys or (self._before is not None and key >= self._before):
            return
        if len(self._found) <= self._limit:
            heapq.heappush(self._found, (key, line))
        elif key > self._found[0][0]:
            removed, _ = heapq.heapreplace(self._found, (key, line))
            self._keys.remove(removed)
        else:
            return
        self._keys.add(key)
        if len(self._found) > self._limit:
            self.oldest = self._found[0][0].timestamp

    def make_page(self, faults: Sequence[str]) -> RecordsPage:
        """Return the page: shorter than it may be where its records are long."""
        lines: list[bytes] = []
        size = 0
        newest = [line for _, line in sorted(self._found, reverse=True)]
        for line in newest[: self._limit]:
            size += len(line)
            if lines and size > PAGE_BYTES:
                break
            lines.append(line)
        return RecordsPage(tuple(lines), len(lines) < len(newest), tuple(faults))


class _Scanner:
    """Compares the lines of pieces of files with a question."""

    def __init__(self, question: RecordsQuestion) -> None:
        query, before = question.query, question.before
        self.newest = _Newest(question)
        self._fits, self._is_of_account = query.make_matcher(), make_account_matcher(question.account)
        self._since, self._until = query.since.encode(), query.until.encode()
        self._last = b"~" if before is None else before.timestamp
        self._needles = [b'"%b' % quote_value(question.account).encode(), *query.needles()]

    def scan_lines(self, piece: bytes) -> None:
        """Take the records that fit of a piece of a file, which begins with a line; a line without its end is none."""
        needles, newest = self._needles, self.newest
        needle = min(needles, key=piece.count)
        since, until, last = self._since, self._until, self._last
        place = piece.find(needle)
        while place >= 0:
            end = piece.find(b"\n", place)
            if end < 0:
                return
            start = piece.rfind(b"\n", 0, place) + 1
            stamp_at = piece.find(b" ", start, end) + 1
            stamp = piece[stamp_at : stamp_at + _STAMP]
            if newest.oldest <= stamp <= last and since <= stamp < until:
                line = piece[start:end]
                if self._fits(line) and self._is_of_account(line):
                    newest.add_record(line)
            place = piece.find(needle, end)


def find_record_files(path: Path) -> list[Path]:
    """Return an audit file, and those beside it that rotation made of it: ``audit.log.1``, ``audit-20261122.log.gz``.

    :raises OSError: the folder can't be read.
    """
    name, stem, suffix = path.name, re.escape(path.stem), re.escape(path.suffix)
    dated = re.compile(rf"{stem}[-.][0-9][0-9TZ_.:-]*{suffix}(?:\.[A-Za-z0-9]+)?")
    return [
        entry
        for entry in path.parent.iterdir()
        if entry.name == name or entry.name.startswith((f"{name}.", f"{name}-")) or dated.fullmatch(entry.name)
    ]


@attrs.frozen
class _OpenFile:
    """A file that was opened; ``changed`` is when it was last written, in epoch seconds."""

    name: str
    descriptor: int
    identity: tuple[int, int]
    size: int
    changed: float


def search_server_files(path: Path, question: RecordsQuestion) -> RecordsPage:
    """Return the page that answers a question, from the file at ``path`` and those that rotation made of it."""
    faults: list[str] = []
    scanner = _Scanner(question)
    files = _open_all(path, faults)
    oldest = parse_rfc3339(question.query.since) - CLOCK_SLACK if question.query.since else 0.0
    try:
        for file in sorted(files, key=lambda each: each.changed, reverse=True):
            if file.changed < oldest:
                continue
            try:
                for piece in _read_pieces(file):
                    scanner.scan_lines(piece)
            except (OSError, EOFError, zlib.error) as error:
                # While a file is compressed, the compressed one isn't whole, and the other is still there.
                if not any(f"{other.name}.gz" == file.name for other in files):
                    faults.append(f"{file.name} can't be read: {_describe_error(error)}")
    finally:
        for file in files:
            os.close(file.descriptor)
    return scanner.newest.make_page(sorted(faults))


def _open_all(path: Path, faults: list[str]) -> list[_OpenFile]:
    """Open all files of a server (Note [Renamed meanwhile]); those that can't be read are faults."""
    opened: dict[tuple[int, int], _OpenFile] = {}
    failed: dict[str, str] = {}
    for _ in range(_OPEN_ROUNDS):
        failed, settled = {}, True
        try:
            paths = find_record_files(path)
        except OSError as error:
            failed = {path.parent.name: _describe_error(error)}
            break
        for each in paths:
            try:
                file = _open_file(each)
            except FileNotFoundError:
                settled = False
                continue
            except OSError as error:
                failed[each.name] = _describe_error(error)
                continue
            if file is None or file.identity in opened or len(opened) >= MAX_FILES:
                if file is None and each.name == path.name:
                    failed[each.name] = "it is a device or a pipe, and no file"
                if file is not None:
                    os.close(file.descriptor)
                    if file.identity not in opened:
                        failed[each.name] = f"a search reads at most {MAX_FILES} files"
                continue
            opened[file.identity], settled = file, False
        if settled:
            break
    if not opened and not failed:
        failed[path.name] = "it isn't there"
    faults += [f"{name} can't be read: {why}" for name, why in sorted(failed.items())]
    return [*opened.values()]


def _open_file(path: Path) -> _OpenFile | None:
    """Open a file; ``None`` for what is none, such as a folder or a pipe.

    :raises OSError: it can't be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        return None
    return _OpenFile(path.name, descriptor, (status.st_dev, status.st_ino), status.st_size, status.st_mtime)


def _read_pieces(file: _OpenFile) -> Iterator[bytes]:
    """Return the pieces of a file, each of whole lines (Note [Newest first]); raises what reading does."""
    start = os.pread(file.descriptor, max(map(len, _OTHERS)), 0)
    for magic, name in _OTHERS.items():
        if start.startswith(magic):
            raise OSError(None, f"it is compressed by {name}, and only gzip is read")
    return _read_compressed(file) if start.startswith(_GZIP) else _read_backwards(file)


def _read_compressed(file: _OpenFile) -> Iterator[bytes]:
    rest = b""
    with open(file.descriptor, "rb", closefd=False) as packed, gzip.GzipFile(fileobj=packed) as lines:
        while piece := lines.read(PIECE):
            whole = rest + piece
            end = whole.rfind(b"\n") + 1
            yield whole[:end]
            # A line that is longer than a piece is no record.
            rest = whole[end:][-PIECE:]


def _read_backwards(file: _OpenFile) -> Iterator[bytes]:
    """Return the pieces of a file from its end on, up to its last whole line; another process may be writing to it."""
    end, rest, ended = file.size, b"", False
    while end > 0:
        start = max(0, end - PIECE)
        piece = os.pread(file.descriptor, end - start, start)
        # It is shorter where the file was cut meanwhile, as by copytruncate.
        piece = piece + rest if len(piece) == end - start else piece
        end = start
        if not ended:
            piece = piece[: piece.rfind(b"\n") + 1]
            ended = bool(piece)
        first = piece.find(b"\n") + 1 if start else 0
        rest = piece[:first] if len(piece[:first]) <= PIECE else b""
        if start and not first:
            rest = piece if len(piece) <= PIECE else b""
            continue
        yield piece[first:]


def _describe_error(error: Exception) -> str:
    if isinstance(error, EOFError | zlib.error):
        return f"the compressed file is cut or damaged: {error}"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def main() -> None:
    """Run the search process: read the task from standard input, and write the page to standard output.

    It ends when the server closes its standard input, or is gone, and by itself when its time is over.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    os.nice(NICENESS)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = _OPEN_FILES if most == resource.RLIM_INFINITY else min(most, _OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))
    task = _read_task()
    signal.alarm(task.seconds + _GRACE_SECONDS)
    threading.Thread(target=_end_with_server, daemon=True).start()
    page = search_server_files(Path(task.path), task.question)
    with open(1, "wb", closefd=False) as output:
        output.writelines(page.encode())
    os._exit(0)


def _read_task() -> SearchTask:
    decoder = MessageDecoder()
    while piece := os.read(0, PIECE):
        for message in decoder.feed(piece):
            assert isinstance(message.value, SearchTask)
            return message.value
    raise SystemExit(1)


def _end_with_server() -> None:
    while os.read(0, PIECE):
        """Nothing more is to come."""
    os._exit(1)

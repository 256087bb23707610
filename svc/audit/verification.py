"""Verifies by the digests of their chains that records of files are those that servers wrote (AUD-33).

Note [Where it goes on]. A record is verified against the digest that the one before it has, whether or not that one was
verified. So one that was changed is reported itself, and not all that follow. Where the one before is missing, nothing can
verify the one after the gap; it is reported with the gap.

Note [Cut lines]. A line that is shorter than it says is one that a server began and couldn't end: it died, or its disk was
full. The number is used again by the next record, so nothing is missing. Where it is not, the record is missing, and that is
reported. These lines are no records, and no search finds them: so nothing can be put in as one.
"""

from __future__ import annotations

import itertools
import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final

import attrs

from svc.audit.record import CHAINED_RECORD, DIGEST_BYTES, ChainEnd, digest_of
from svc.audit.record_files import is_record, is_truncated, read_lines, sort_by_time

#: The number of last records that are kept, to verify records that are out of order.
WINDOW: Final = 4096

#: How many findings are reported one by one.
MAX_FINDINGS: Final = 100

#: An anchor: the id of a chain, number and digest of a record, as `svc audit anchor` prints it; what follows is for people.
_ANCHOR: Final = re.compile(rb"([0-9a-f]{16}) ([1-9][0-9]{0,18}) ([A-Za-z0-9+/]{32})(?:\s.*)?", re.DOTALL)
_RECORD_START: Final = re.compile(rb"<[0-9]{1,3}>1 ")


@attrs.frozen
class RecordFinding:
    """A fault, in words. ``place`` is the file and the line; ``chain`` the id of the chain, if it is of one."""

    what: str
    place: str | None = None
    chain: str | None = None


@attrs.frozen
class ChainReport:
    """A chain: where it comes from, its first and last record, when these are of, how many there are, and its last digest.

    ``anchored``: the last record up to which an anchor vouches for all. ``verified``: the first record was too, which takes
    the digest of the one before it.
    """

    chain: str
    hostname: str
    first: int
    last: int
    since: str
    until: str
    count: int
    digest: str
    anchored: int | None
    verified: bool


@attrs.frozen
class AuditVerification:
    """The result. ``count`` says how many findings there are, of which ``findings`` are the first; ``notes`` are no signs of
    tampering. ``unproven``: records from before there were digests; ``others``: lines that are no records.
    """

    chains: Sequence[ChainReport]
    count: int
    findings: Sequence[RecordFinding]
    notes: Sequence[RecordFinding]
    unproven: int
    others: int

    @property
    def is_intact(self) -> bool:
        """Whether nothing is wrong."""
        return self.count == 0


def anchors_in(text: bytes) -> list[ChainEnd]:
    """Return the anchors in a text: lines of `svc audit anchor`, or records, as a receiver of syslog has them.

    :raises ValueError: there is none.
    """
    found = []
    for line in text.splitlines():
        start = line.find(b"<")
        if (matched := CHAINED_RECORD.fullmatch(line[start:])) is not None and start >= 0:
            found.append(ChainEnd(matched[2].decode(), int(matched[3]), a2b_base64(matched[6])))
        elif (matched := _ANCHOR.fullmatch(line.strip())) is not None:
            found.append(ChainEnd(matched[1].decode(), int(matched[2]), a2b_base64(matched[3])))
    if not found:
        raise ValueError("there is no anchor in it, as `svc audit anchor` prints them, and no record with a digest")
    return found


@attrs.define
class _NumberRange:
    """Records whose numbers follow each other, from the first to the last."""

    first: int
    last: int


@attrs.define(eq=False)
class _ChainState:
    """The state of one chain while it is verified."""

    chain: str
    hostname: str
    since: str
    #: The last record that was read, up to its digest.
    head: bytes = b""
    after: str | None = None
    count: int = 0
    number: int = 0
    digest: bytes = b""
    #: The largest number in the file that is read.
    highest: int = 0
    ranges: list[_NumberRange] = attrs.Factory(list)
    recent: dict[int, bytes] = attrs.Factory(dict)
    #: The digests at the ends of stretches, by number; and records whose predecessor hasn't been met.
    ends: dict[int, bytes] = attrs.Factory(dict)
    waiting: dict[int, tuple[bytes, bytes, bytes, str]] = attrs.Factory(dict)
    truncated: set[int] = attrs.Factory(set)


class ChainVerifier:
    """Verifies the records of files, one file after the other.

    ``unordered``: they may stand in another order, as where they came over several connections.
    """

    def __init__(self, key: bytes, anchors: Iterable[ChainEnd] = (), *, unordered: bool = False) -> None:
        self._key, self._unordered = key, unordered
        self._anchors: dict[tuple[str, int], bytes] = {}
        self._findings: list[RecordFinding] = []
        self._notes: list[RecordFinding] = []
        self._chains: dict[bytes, _ChainState] = {}
        self._anchored_digests: dict[tuple[str, int], bytes] = {}
        self._unproven = self._others = self._count = 0
        for anchor in anchors:
            known = self._anchors.setdefault((anchor.chain, anchor.number), anchor.digest)
            if known != anchor.digest:
                self._add_finding(f"two anchors of record {anchor.number} differ", None, anchor.chain)

    def verify_file(self, path: Path) -> None:
        """Verify the records of a file.

        :raises OSError: it can't be read.
        """
        key, threads, fullmatch = self._key, self._chains, CHAINED_RECORD.fullmatch
        number, line = 0, b""
        watched = {number for _, number in self._anchors}
        for thread in threads.values():
            thread.highest = 0
        for number, line in enumerate(read_lines(path), 1):
            matched = fullmatch(line[:-1] if line.endswith(b"\n") else line)
            if matched is None:
                self._handle_unchained_line(path, number, line)
                continue
            head, chain, text, after, length, encoded, rest = matched.groups()
            if (found := threads.get(chain)) is None:
                found = threads[chain] = self._begin_chain(chain, head)
            thread = found
            if len(rest) < int(length):
                thread.truncated.add(int(text))
                self._note_truncated_line(path, number, line, int(text), thread.chain)
                continue
            record, digest = int(text), a2b_base64(encoded)
            if record in watched:
                self._anchored_digests.setdefault((thread.chain, record), digest)
            if after is not None:
                thread.after = after.decode()
            if record == thread.number + 1 == thread.highest + 1 and thread.ranges:
                if blake2b(thread.digest + head + rest, key=key, digest_size=DIGEST_BYTES).digest() != digest:
                    self._find_changed(f"{path}:{number}", record, thread.chain)
                thread.number = thread.highest = thread.ranges[-1].last = record
                thread.digest = thread.recent[record] = digest
                thread.head = head
                thread.recent.pop(record - WINDOW, None)
                thread.count += 1
                continue
            self._add_out_of_order(thread, record, digest, head, rest, f"{path}:{number}")
        for thread in threads.values():
            if thread.number:
                thread.ends[thread.number] = thread.digest
        if line and not line.endswith(b"\n") and fullmatch(line) is not None:
            self._add_note("the last line has no end", f"{path}:{number}", None)

    def _begin_chain(self, chain: bytes, head: bytes) -> _ChainState:
        _, timestamp, hostname, _ = head.split(b" ", 3)
        return _ChainState(chain.decode(), hostname.decode("ascii", "replace"), timestamp.decode("ascii", "replace"))

    def _add_out_of_order(
        self, thread: _ChainState, record: int, digest: bytes, head: bytes, rest: bytes, place: str
    ) -> None:
        """Take a record that doesn't follow from the line before it."""
        known, before = thread.recent.get(record), thread.recent.get(record - 1) or thread.ends.get(record - 1)
        if record == 1:
            before = bytes(DIGEST_BYTES)
        before = before or self._anchors.get((thread.chain, record - 1))
        genuine = None if before is None else self._is_genuine(before, head, rest, digest)
        if known is not None:
            if known == digest and genuine is not False:
                self._add_note(f"record {record} stands here again", place, thread.chain)
                return
            self._add_finding(
                f"record {record} stands here again, and is another: one of the two was put in", place, thread.chain
            )
            if genuine:
                thread.recent[record] = digest
                if thread.number == record:
                    thread.digest = digest
            return
        if genuine is False:
            self._find_changed(place, record, thread.chain)
        elif genuine is None:
            thread.waiting[record] = (head, rest, digest, place)
        if record < thread.highest and not self._unordered:
            self._add_finding(f"record {record} stands after record {thread.highest}: it was moved", place, thread.chain)
        if thread.number:
            thread.ends[thread.number] = thread.digest
        if thread.ranges and thread.ranges[-1].last == record - 1:
            thread.ranges[-1].last = record
        else:
            thread.ranges.append(_NumberRange(record, record))
        thread.number, thread.digest, thread.recent[record] = record, digest, digest
        thread.head = head
        thread.highest = max(thread.highest, record)
        thread.recent.pop(record - WINDOW, None)
        thread.count += 1
        self._verify_successor(thread, record, digest)

    def _verify_successor(self, thread: _ChainState, record: int, digest: bytes) -> None:
        """Verify the record after this one, if that was met before."""
        waiting = thread.waiting.pop(record + 1, None)
        if waiting is not None and not self._is_genuine(digest, waiting[0], waiting[1], waiting[2]):
            self._find_changed(waiting[3], record + 1, thread.chain)

    def _is_genuine(self, before: bytes, head: bytes, rest: bytes, digest: bytes) -> bool:
        return digest_of(self._key, before, head, rest) == digest

    def _handle_unchained_line(self, path: Path, number: int, line: bytes) -> None:
        if is_record(line) and not is_truncated(line):
            self._unproven += 1
            if self._chains:
                self._add_finding("a record without a digest: it was put in, or its digest taken away", f"{path}:{number}")
        elif _RECORD_START.match(line):
            self._note_truncated_line(path, number, line, None, None)
        elif line.strip():
            self._others += 1

    def _note_truncated_line(self, path: Path, number: int, line: bytes, record: int | None, chain: str | None) -> None:
        which = "a line" if line.endswith(b"\n") else "the last line"
        of = "" if record is None else f" of record {record}"
        self._add_note(f"{which}{of} is cut: a server ended in it, or its disk was full", f"{path}:{number}", chain)

    def _find_changed(self, place: str, record: int, chain: str) -> None:
        self._add_finding(
            f"record {record} does not fit its digest: it, or the digest of the one before, was changed", place, chain
        )

    def _add_finding(self, what: str, place: str | None, chain: str | None = None) -> None:
        self._count += 1
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(RecordFinding(what, place, chain))

    def _add_note(self, what: str, place: str | None, chain: str | None) -> None:
        if len(self._notes) < MAX_FINDINGS:
            self._notes.append(RecordFinding(what, place, chain))

    def finish_verification(self) -> AuditVerification:
        """Return the result, after all files were read."""
        for thread in self._chains.values():
            self._check_gaps(thread)
        self._compare_anchors()
        self._compare_chains()
        reports = [self._make_report(thread) for thread in self._chains.values() if thread.count]
        return AuditVerification(reports, self._count, self._findings, self._notes, self._unproven, self._others)

    def _check_gaps(self, thread: _ChainState) -> None:
        """Find what is missing between the stretches of a chain, and verify where they meet."""
        for record, (head, rest, digest, place) in sorted(thread.waiting.items()):
            before = thread.ends.get(record - 1) or thread.recent.get(record - 1)
            if before is not None and not self._is_genuine(before, head, rest, digest):
                self._find_changed(place, record, thread.chain)
        last = None
        for stretch in sorted(thread.ranges, key=lambda each: each.first):
            if last is not None and stretch.first > last + 1:
                first, to = last + 1, stretch.first - 1
                which = f"record {first} is" if first == to else f"records {first} to {to} are"
                cut = " (a line that was cut is there)" if any(first <= each <= to for each in thread.truncated) else ""
                after = ", and the one after can't be verified"
                self._add_finding(f"{which} missing{cut}{after}", None, thread.chain)
            elif last is not None and stretch.first <= last:
                to = min(last, stretch.last)
                self._add_finding(f"records {stretch.first} to {to} stand twice: are files given twice?", None, thread.chain)
            last = max(last or 0, stretch.last)

    def _compare_anchors(self) -> None:
        threads = {thread.chain: thread for thread in self._chains.values() if thread.count}
        for (chain, number), digest in self._anchors.items():
            thread = threads.get(chain)
            if thread is None:
                self._add_finding(f"there is no record of a chain that the anchor of record {number} is of", None, chain)
                continue
            first, last = _number_bounds(thread)
            seen = self._anchored_digests.get((chain, number))
            if number > last:
                self._add_finding(
                    f"the end is missing: the last record is {last}, and the anchor is of record {number}", None, chain
                )
            elif number < first - 1:
                self._add_note(f"the anchor of record {number} is older than these files", None, chain)
            elif seen is not None and seen != digest:
                self._add_finding(
                    f"record {number} is another than the anchor is of: all up to there may have been changed", None, chain
                )

    def _compare_chains(self) -> None:
        """Find chains that begin in place of one whose end isn't known."""
        of_host: dict[str, list[_ChainState]] = {}
        for thread in self._chains.values():
            if thread.count:
                of_host.setdefault(thread.hostname, []).append(thread)
        for host, threads in of_host.items():
            threads.sort(key=lambda thread: thread.since)
            for earlier, thread in itertools.pairwise(threads):
                last = _number_bounds(earlier)[1]
                if thread.after is not None and (earlier.chain, last) not in self._anchors:
                    self._add_finding(
                        f"another chain begins on {host} after {earlier.chain}, whose end the server did not find: an anchor"
                        f" would say whether there was anything after record {last}",
                        None,
                        thread.chain,
                    )

    def _make_report(self, thread: _ChainState) -> ChainReport:
        first, last = _number_bounds(thread)
        anchored = [number for chain, number in self._anchors if chain == thread.chain and first <= number <= last]
        digest = b2a_base64(thread.ends[last], newline=False).decode("ascii")
        until = thread.head.split(b" ", 2)[1].decode("ascii", "replace")
        verified = first == 1 or first not in thread.waiting
        return ChainReport(
            chain=thread.chain,
            hostname=thread.hostname,
            first=first,
            last=last,
            since=thread.since,
            until=until,
            count=thread.count,
            digest=digest,
            anchored=max(anchored, default=None),
            verified=verified,
        )


def _number_bounds(thread: _ChainState) -> tuple[int, int]:
    return min(each.first for each in thread.ranges), max(each.last for each in thread.ranges)


def verify_files(
    paths: Sequence[Path], key: bytes, anchors: Iterable[ChainEnd] = (), *, unordered: bool = False
) -> AuditVerification:
    """Verify the records of files, in no matter which order these are given.

    :raises OSError: one can't be read.
    """
    verification = ChainVerifier(key, anchors, unordered=unordered)
    for path in sort_by_time(paths):
        verification.verify_file(path)
    return verification.finish_verification()

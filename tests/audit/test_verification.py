"""Tests of ``svc.audit.verification``: each thing that can be done to files is done, and found."""

from __future__ import annotations

import gzip
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.audit.record import ChainEnd, RecordFormatter
from svc.audit.record_files import read_chain_ends
from svc.audit.verification import MAX_FINDINGS, AuditVerification, anchors_in, verify_files
from svc.model.events import AuditContext, EventSource, Outcome
from tests.audit.chained import KEY, Ticking, Writer, fetched


class VerificationTests(SynchronousTestCase):
    """Files of a server with ten records."""

    def setUp(self) -> None:
        """Write them."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.writer = Writer()
        self.lines = self.writer.lines(10)

    def file(self, name: str, *lines: bytes) -> Path:
        """A file of lines."""
        path = self.folder / name
        path.write_bytes(b"".join(lines))
        return path

    def verdict(self, *lines: bytes, anchors: list[ChainEnd] | None = None, unordered: bool = False) -> AuditVerification:
        """What is said of a file of these lines."""
        return verify_files([self.file("audit", *lines)], KEY, anchors or [], unordered=unordered)

    def found(self, *lines: bytes, anchors: list[ChainEnd] | None = None) -> list[str]:
        """What is wrong with them."""
        return [finding.what for finding in self.verdict(*lines, anchors=anchors).findings]

    def test_well(self) -> None:
        """Files as servers write them are whole, in whatever order they are given, rotated and compressed (AUD-37)."""
        verdict = self.verdict(*self.lines)
        [chain] = verdict.chains
        self.assertEqual((verdict.is_intact, chain.first, chain.last, chain.count, chain.verified), (True, 1, 10, 10, True))
        self.assertEqual((chain.hostname, chain.since < chain.until), ("vault1", True))
        packed = self.folder / "audit.2.gz"
        packed.write_bytes(gzip.compress(b"".join(self.lines[:4])))
        files = [self.file("audit", *self.lines[7:]), packed, self.file("audit.1", *self.lines[4:7])]
        verdict = verify_files(files, KEY)
        self.assertEqual((verdict.is_intact, verdict.chains[0].count), (True, 10))

    def test_later_files(self) -> None:
        """Where the first files are gone the rest is verified, and the first record said not to be (AUD-37)."""
        verdict = self.verdict(*self.lines[4:])
        self.assertEqual((verdict.is_intact, verdict.chains[0].first, verdict.chains[0].verified), (True, 5, False))

    def test_changed(self) -> None:
        """A changed byte is found, wherever it is in the record (AUD-37)."""
        line = self.lines[4]
        for place in range(len(line) - 1):
            changed = line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :]
            self.assertFalse(self.verdict(*self.lines[:4], changed, *self.lines[5:]).is_intact, place)

    def test_another_key(self) -> None:
        """Under another key nothing fits; only so many findings are told, and all are counted (AUD-37)."""
        path = self.file("audit", *self.lines, *self.writer.lines(190))
        verdict = verify_files([path], bytes(32))
        self.assertEqual((verdict.is_intact, verdict.count, len(verdict.findings)), (False, 200, MAX_FINDINGS))

    def test_removed(self) -> None:
        """A removed line is found, and so is a file that is missing between two others (AUD-37)."""
        self.assertIn("record 5 is missing", self.found(*self.lines[:4], *self.lines[5:])[0])
        files = [self.file("audit.2", *self.lines[:3]), self.file("audit", *self.lines[7:])]
        self.assertIn("records 4 to 7 are missing", verify_files(files, KEY).findings[0].what)

    def test_swapped(self) -> None:
        """Lines that were moved are found, unless other orders are allowed (AUD-37)."""
        swapped = [*self.lines[:4], self.lines[5], self.lines[4], *self.lines[6:]]
        self.assertEqual([each.rpartition(": ")[2] for each in self.found(*swapped)], ["it was moved"])
        self.assertTrue(self.verdict(*swapped, unordered=True).is_intact)
        self.assertTrue(self.verdict(*reversed(self.lines), unordered=True).is_intact)
        self.assertFalse(self.verdict(self.lines[9], *self.lines[:9]).is_intact)

    def test_inserted(self) -> None:
        """A line that was put in is found: forged, with another digest, or without any; the records around it stay
        verified (AUD-37).
        """
        forged = self.lines[4].replace(b"web", b"bad")
        for number, line in ((5, forged), (5, forged.replace(b'number="5"', b'number="6"'))):
            found = self.found(*self.lines[:number], line, *self.lines[number:])
            self.assertNotEqual(found, [])
            self.assertFalse(any("record 8" in each for each in found), found)
        context = AuditContext(EventSource("-", "-"), "acme:user:x", "::1", "r")
        [plain] = RecordFormatter(EventSource("vault1", "svc"), Ticking()).format_events(context, [fetched("x")], Outcome())
        self.assertIn("without a digest", self.found(*self.lines[:5], plain + b"\n", *self.lines[5:])[0])
        before = self.verdict(plain + b"\n", *self.lines)
        self.assertEqual((before.is_intact, before.unproven), (True, 1))

    def test_again(self) -> None:
        """A copy of a record, as a connection that was lost may leave, is noted (AUD-37)."""
        verdict = self.verdict(*self.lines[:5], self.lines[3], *self.lines[5:])
        self.assertEqual((verdict.is_intact, "record 4 stands here again" in verdict.notes[0].what), (True, True))
        files = [self.file("audit", *self.lines), self.file("copy", *self.lines), self.file("more", *self.writer.lines(1))]
        self.assertNotEqual(verify_files(files, KEY).notes, [])

    def test_cut_end(self) -> None:
        """A cut end is found against an anchor, as `svc audit anchor` prints it or a syslog receiver has it, and by nothing
        else (AUD-39).
        """
        self.assertEqual(self.found(*self.lines[:8]), [])
        [end] = read_chain_ends([self.file("whole", *self.lines)])
        self.assertEqual((end.number, end.digest), (10, self.writer.chain.end.digest))
        self.assertEqual(anchors_in(b"garbage\n" + b"312 " + self.lines[9]), [end])
        self.assertIn("the end is missing", self.found(*self.lines[:8], anchors=[end])[0])
        whole = self.verdict(*self.lines, anchors=[end])
        self.assertEqual((whole.is_intact, whole.chains[0].anchored), (True, 10))
        self.assertRaises(ValueError, anchors_in, b"nothing\n")

    def test_written_again(self) -> None:
        """Who has the key can write records again, and not unnoticed what an anchor covers (AUD-39)."""
        anchor = self.writer.chain.end
        forger = Writer()
        forger.chain._state[:8] = bytes.fromhex(anchor.chain)
        forged = forger.lines(10, user="acme:user:nobody")
        self.assertEqual(self.found(*forged), [])
        self.assertIn("another than the anchor", self.found(*forged, anchors=[anchor])[0])

    def test_anchors(self) -> None:
        """An anchor of another chain, or one that contradicts another, is a finding; an older one a note (AUD-39)."""
        end = self.writer.chain.end
        self.assertIn("no record of a chain", self.found(*self.lines, anchors=[ChainEnd("0" * 16, 1, bytes(24))])[0])
        self.assertEqual(len(self.found(*self.lines, anchors=[end, ChainEnd(end.chain, 10, bytes(24))])), 1)
        older = anchors_in(self.lines[2])
        verdict = self.verdict(*self.lines[6:], anchors=older)
        self.assertEqual((verdict.is_intact, "older" in verdict.notes[0].what), (True, True))
        verdict = self.verdict(*self.lines[6:], anchors=anchors_in(self.lines[5]))
        self.assertEqual((verdict.is_intact, verdict.chains[0].verified), (True, True))

    def test_torn(self) -> None:
        """A torn last line is told apart, wherever it was torn; in the middle it is a note where the number is used again
        (AUD-38).
        """
        more = self.writer.lines(1)[0]
        for length in range(6, len(more) - 1):
            verdict = self.verdict(*self.lines, more[:length])
            self.assertTrue(verdict.is_intact, length)
            self.assertIn("the last line", verdict.notes[0].what)
        verdict = self.verdict(*self.lines[:5], self.lines[5][:-9] + b"\n", *self.lines[5:])
        self.assertEqual((verdict.is_intact, len(verdict.notes)), (True, 1))
        found = self.found(*self.lines[:5], self.lines[5][:-9] + b"\n", *self.lines[6:])
        self.assertIn("record 6 is missing (a line that was cut is there)", found[0])
        verdict = self.verdict(*self.lines[:-1], self.lines[-1][:-1])
        self.assertEqual((verdict.is_intact, verdict.chains[0].count), (True, 10))

    def test_two_servers(self) -> None:
        """Files of two servers are verified together, each by its own chain (AUD-33)."""
        other = Writer("vault2").lines(6)
        mixed = [line for pair in zip(self.lines, other, strict=False) for line in pair]
        verdict = self.verdict(*mixed, *self.lines[6:])
        self.assertEqual((verdict.is_intact, sorted(each.count for each in verdict.chains)), (True, [6, 10]))
        files = [self.file("one", *self.lines), self.file("two", *other[:2], *other[3:])]
        verdict = verify_files(files, KEY)
        self.assertEqual(
            [(each.chain, "record 3" in each.what) for each in verdict.findings], [(verdict.chains[1].chain, True)]
        )

    def test_other_lines(self) -> None:
        """Lines of a log among the records are counted, and no finding (AUD-37)."""
        verdict = self.verdict(self.lines[0], b"2026-01-01 [-] hello\n", b"\n", *self.lines[1:])
        self.assertEqual((verdict.is_intact, verdict.others), (True, 1))

    @settings(max_examples=200, deadline=None)
    @given(st.data())
    def test_any_order(self, data: st.DataObject) -> None:
        """Without an anchor: what is left is a whole beginning or end of the records, or something is found (AUD-37)."""
        kept = data.draw(st.lists(st.integers(0, 9), unique=True, min_size=1))
        verdict = self.verdict(*[self.lines[number] for number in kept])
        whole = kept == list(range(kept[0], kept[0] + len(kept)))
        self.assertEqual(verdict.is_intact, whole, kept)

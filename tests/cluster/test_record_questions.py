"""Searches of the audit between the servers of a cluster: who may ask, and who can read the answer."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.audit.record_files import RecordQuery
from svc.audit.record_search import RecordKey, RecordsPage, RecordsQuestion
from svc.cluster import record_questions
from svc.cluster.record_questions import RECENT_CHALLENGES, RecordQuestions
from svc.crypto.vault import Vault, data_key_id
from svc.model.data_keys import StoredDataKey
from tests.audit.chained import Writer

encode = record_questions._encode_document
QUESTION = RecordsQuestion(RecordQuery(what="fetch"), "acme", 10)
PAGE = RecordsPage(tuple(line[:-1] for line in Writer().lines(2)), True, ("a fault",))
TEXTS = st.none() | st.text(max_size=20).filter(lambda text: "\ud800" not in text)


class QuestionsTests(SynchronousTestCase):
    """Two servers of a cluster, and a stranger."""

    def setUp(self) -> None:
        """Make them."""
        self.clock, self.other_clock = Clock(), Clock()
        self.asking = RecordQuestions(Vault(bytes(32)), self.clock)
        self.answering = RecordQuestions(Vault(bytes(32)), self.other_clock)
        self.stranger = RecordQuestions(Vault(b"s" * 32), self.clock)

    @given(
        st.builds(
            RecordQuery, user=TEXTS, what=TEXTS, resource=TEXTS, since=st.sampled_from(["", "2023-11-14T22:13:20.250Z"])
        ),
        st.text(min_size=1, max_size=20),
        st.integers(1, 1000),
        st.none()
        | st.builds(
            RecordKey, st.just(b"2023-11-14T22:13:20.250Z"), st.integers(0, 10**18), st.binary(min_size=8, max_size=8)
        ),
        st.text(max_size=20),
        st.booleans(),
    )
    def test_any_question(
        self, query: RecordQuery, account: str, limit: int, before: RecordKey | None, role: str, reads_all: bool
    ) -> None:
        """Every question arrives as it was asked (AUD-64)."""
        question = RecordsQuestion(query, account, limit, before, role, reads_all)
        sent = self.asking.make_question(question)
        read = self.answering.read_question(sent.text, sent.challenge, sent.code)
        assert read is not None
        self.assertEqual(read[0], question)

    def test_answer(self) -> None:
        """The page comes to the server that asked, and opens for nobody else, and for no other question (AUD-64)."""
        sent = self.asking.make_question(QUESTION)
        read = self.answering.read_question(sent.text, sent.challenge, sent.code)
        assert read is not None
        body = self.answering.seal_page(read[1], PAGE)
        self.assertEqual(self.asking.open_page(sent, body), PAGE)
        self.assertNotIn(b"acme", body)
        self.assertIsNone(self.asking.open_page(self.asking.make_question(QUESTION), body))
        self.assertIsNone(self.asking.open_page(sent, body[:-1]))
        self.assertIsNone(self.asking.open_page(sent, b""))
        guessed = attrs.evolve(sent, key=bytes(32))
        self.assertIsNone(self.stranger.open_page(guessed, body))

    def test_who_asks(self) -> None:
        """A question without the right code, altered, repeated, or of one's own, is none (AUD-64)."""
        sent = self.asking.make_question(QUESTION)
        other = self.asking.make_question(attrs.evolve(QUESTION, account="other"))
        for reading, text, challenge, code in (
            (self.asking, sent.text, sent.challenge, sent.code),
            (self.stranger, sent.text, sent.challenge, sent.code),
            (self.answering, other.text, sent.challenge, sent.code),
            (self.answering, sent.text, other.challenge, sent.code),
            (self.answering, sent.text, sent.challenge, ""),
            (self.answering, sent.text, sent.challenge, "\ud800\u00e9"),
            (self.answering, "", "", ""),
            (self.answering, "\u00e9", sent.challenge, sent.code),
        ):
            self.assertIsNone(reading.read_question(text, challenge, code), (text, challenge, code))
        self.assertIsNotNone(self.answering.read_question(sent.text, sent.challenge, sent.code))
        self.assertIsNone(self.answering.read_question(sent.text, sent.challenge, sent.code))
        self.assertEqual(self.answering._seen.maxlen, RECENT_CHALLENGES)

    def test_clocks(self) -> None:
        """The servers' clocks differ by 120 s at most, either way; a fault says by how much they do (AUD-64)."""
        for asked_at, now, words in (
            (1000, 1000, ""),
            (1000, 1120, ""),
            (1120, 1000, ""),
            (1000, 1121, "121 s ahead of"),
            (1121, 1000, "121 s behind"),
            (0, 100_000, "100000 s ahead of"),
        ):
            self.clock.rightNow, self.other_clock.rightNow = asked_at, now
            sent = self.asking.make_question(QUESTION)
            read = self.answering.read_question(sent.text, sent.challenge, sent.code)
            assert read is not None
            fault = self.answering.find_clock_fault(read[1])
            self.assertEqual(fault is None, not words, (asked_at, now))
            self.assertIn(words, fault or "")

    def test_without_time(self) -> None:
        """A question without a time, of another version, isn't answered (AUD-64)."""
        self.patch(record_questions, "_encode_document", lambda document: encode(document | {"asked_at": None}))
        sent = self.asking.make_question(QUESTION)
        self.assertIsNone(self.answering.read_question(sent.text, sent.challenge, sent.code))

    def test_rotation(self) -> None:
        """While the data key is rotated, servers of which one has the new key already understand each other (AUD-64)."""
        old, new = bytes(32), b"n" * 32
        stored = [StoredDataKey(data_key_id(old)), StoredDataKey(data_key_id(new))]
        ahead, behind = Vault(new, old), Vault(old)
        ahead.use_stored_keys(stored)
        for one, other in ((ahead, behind), (behind, ahead)):
            asking, answering = RecordQuestions(one, self.clock), RecordQuestions(other, self.clock)
            sent = asking.make_question(QUESTION)
            read = answering.read_question(sent.text, sent.challenge, sent.code)
            assert read is not None
            self.assertEqual(asking.open_page(sent, answering.seal_page(read[1], PAGE)), PAGE)

    def test_bad_pages(self) -> None:
        """A page whose lines are no records, or that has none and more, isn't believed (AUD-64)."""
        for page in (RecordsPage((b"a line",)), RecordsPage(more=True)):
            sent = self.asking.make_question(QUESTION)
            self.assertIsNone(self.asking.open_page(sent, self.answering.seal_page(sent, page)))

    def test_other_versions(self) -> None:
        """A question that this version can't read isn't answered by half (AUD-64)."""

        @attrs.frozen
        class LaterQuery(RecordQuery):
            later: str = "a filter"

        sent = self.asking.make_question(attrs.evolve(QUESTION, query=LaterQuery()))
        self.assertIsNone(self.answering.read_question(sent.text, sent.challenge, sent.code))

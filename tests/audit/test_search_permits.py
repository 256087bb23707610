"""Permits for searches of the audit files: who waits for whom."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svc.audit.record_files import RecordQuery
from svc.audit.record_search import RecordsQuestion
from svc.audit.search_permits import MAX_OF_ROLE, MAX_WAITING, SearchPermits, permit_of_question
from svc.model.errors import AuditSearchUnavailable


class SearchPermitsTests(SynchronousTestCase):
    """The permits of a server."""

    def setUp(self) -> None:
        """Make them."""
        self.pool = SearchPermits()
        self.numbers: dict[str, list[int]] = {}
        self.last = 0

    def take(self, role: str, *, reads_all: bool = False) -> Deferred[None]:
        """Ask for a permit for a role."""
        self.last += 1
        self.numbers.setdefault(role, []).append(self.last)
        question = RecordsQuestion(RecordQuery(), role.partition(":")[0], 9, None, role, reads_all)
        return Deferred.fromCoroutine(self.pool.acquire(1, self.last, permit_of_question(question)))

    def end(self, role: str) -> None:
        """End the oldest search of a role."""
        self.pool.release(1, self.numbers[role].pop(0))

    def test_kept(self) -> None:
        """Roles that may read a part of the account never have both, so that one who reads all can search (AUD-65)."""
        self.successResultOf(self.take("acme:user:alice"))
        bob = self.take("acme:user:bob")
        self.assertNoResult(bob)
        self.successResultOf(self.take("acme:user:admin", reads_all=True))
        self.end("acme:user:admin")
        self.assertNoResult(bob)
        self.end("acme:user:alice")
        self.successResultOf(bob)

    def test_full_queue(self) -> None:
        """Those who fill the queue of an account fill it neither for its readers of all nor for other accounts (AUD-65)."""
        for number in range(1 + MAX_WAITING):
            self.take(f"acme:host:{number}")
        refused = self.failureResultOf(self.take("acme:host:last"), AuditSearchUnavailable).value
        self.assertIn(f"{MAX_WAITING} wait already", refused.why)
        other = self.take("other:user:eve")
        self.assertNoResult(other)
        self.successResultOf(self.take("acme:user:admin", reads_all=True))
        self.assertNoResult(self.take("acme:user:auditor", reads_all=True))

    def test_one_of_a_role(self) -> None:
        """A role has one permit at a time, and few searches that wait for it; a refused one leaves no place (AUD-65)."""
        self.successResultOf(self.take("acme:user:admin", reads_all=True))
        for _ in range(MAX_OF_ROLE - 1):
            waiting = self.take("acme:user:admin", reads_all=True)
        self.failureResultOf(self.take("acme:user:admin", reads_all=True), AuditSearchUnavailable)
        self.assertNoResult(waiting)
        self.successResultOf(self.take("acme:user:auditor", reads_all=True))

    def test_accounts(self) -> None:
        """The account whose last search began first comes next, however many of another one wait (AUD-65)."""
        self.successResultOf(self.take("acme:user:one", reads_all=True))
        self.successResultOf(self.take("acme:user:two", reads_all=True))
        three, four = self.take("acme:user:three", reads_all=True), self.take("acme:user:four", reads_all=True)
        other, another = self.take("other:user:admin", reads_all=True), self.take("other:user:eve", reads_all=True)
        self.end("acme:user:one")
        self.successResultOf(other)
        self.assertNoResult(three)
        self.end("acme:user:two")
        self.successResultOf(three)
        self.assertNoResult(another)
        self.end("other:user:admin")
        self.successResultOf(another)
        self.end("acme:user:three")
        self.successResultOf(four)

    def test_of_other_versions(self) -> None:
        """A question that names no role has the share of its account (AUD-65)."""
        question = RecordsQuestion(RecordQuery(), "acme", 9)
        self.assertEqual(permit_of_question(question), "some acme")

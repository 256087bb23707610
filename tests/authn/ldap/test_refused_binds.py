"""Binds that directories refuse: how often they are sent, whatever happens at the same time."""

from __future__ import annotations

import pickle
import stat
from collections import Counter
from pathlib import Path
from typing import Any, Final

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from svc.authn.ldap.bind_guard import (
    BindEnded,
    BindGuard,
    BindOutcome,
    BindPermit,
    DirectoryQuestion,
    EntryBindQuestion,
    LoginKeys,
    MissingEntryReport,
    SearchAccountBindQuestion,
)
from svc.authn.ldap.refused_binds import (
    FILE,
    LONGEST_PAUSE,
    LONGEST_UNANSWERED_PAUSE,
    MAX_LOGINS,
    MAX_UNANSWERED,
    PAUSE,
    UNANSWERED_PAUSE,
    RefusedBinds,
)
from svc.model.ldap_directories import DirectoryRefused, LdapServer, Security, Unanswered
from svc.model.reasons import Reason
from tests.authn.ldap.directory import ALICE, SERVER

WINDOW: Final = 900.0
REFUSED, TAKEN, UNCOUNTED, UNANSWERED = (
    BindOutcome.REFUSED, BindOutcome.TAKEN, BindOutcome.UNCOUNTED, BindOutcome.UNANSWERED,
)  # fmt: skip


class BindsCase(SynchronousTestCase):
    """A server of which three logins may fail, with two processes that serve."""

    def setUp(self) -> None:
        """Begin to count."""
        self.clock, self.wall = Clock(), Clock()
        self.clock.advance(1_000_000)
        self.wall.advance(2_000_000)
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.begin_again()

    def begin_again(self, failures: int = 3) -> None:
        """Start the server."""
        self.binds = RefusedBinds(self.clock, self.wall, failures, WINDOW, self.folder)
        self.guard = self.binds.make_guard(b"key")
        self.sent = 0

    def look(self, login: str | None = None, **more: Any) -> Deferred[None]:
        """Ask whether the directory may be asked."""
        return Deferred.fromCoroutine(self.guard.require_allowed(SERVER, login, **more))

    def assert_refused(self, asked: Deferred[Any], reason: Reason) -> DirectoryRefused:
        """It was refused."""
        refusal = self.failureResultOf(asked, DirectoryRefused).value
        assert isinstance(refusal, DirectoryRefused)
        self.assertEqual(refusal.reason, reason)
        return refusal

    def account(self, answer: Deferred[BindOutcome], **server: Any) -> Deferred[None]:
        """Bind as the account that searches; ``sent`` counts binds."""
        how = {name: server.pop(name, False) for name in ("by_operator", "check")}
        place = server.pop("place", None)
        turn = self.guard.account_permit(attrs.evolve(SERVER, **server), self.until, place, **how)
        return Deferred.fromCoroutine(self._bound(turn, answer))

    def entry(
        self, answer: Deferred[BindOutcome], dn: bytes = ALICE, login: str = "alice", server: LdapServer = SERVER
    ) -> Deferred[None]:
        """Bind as a person."""
        return Deferred.fromCoroutine(self._bound(self.guard.entry_permit(server, dn, login, self.until), answer))

    def until(self, waiting: Deferred[None]) -> Deferred[None]:
        """Bound a wait as a conversation does."""

        def late(*_: object) -> None:
            raise DirectoryRefused(Reason.LDAP_UNAVAILABLE, "the directory took too long")

        return waiting.addTimeout(5, self.clock, late)

    async def _bound(self, turn: Any, answer: Deferred[BindOutcome]) -> None:
        async with turn as bind:
            assert isinstance(bind, BindPermit)
            bind.mark_sent()
            self.sent += 1
            bind.mark_ended(await answer, "the bind ended with 49")


class AccountTests(BindsCase):
    """The account that searches."""

    def fail(self, **more: Any) -> None:  # type: ignore[override] # it is of binds
        """Have a bind refused."""
        answer: Deferred[BindOutcome] = Deferred()
        bound = self.account(answer, **more)
        answer.callback(REFUSED)
        self.successResultOf(bound)

    def test_remembered(self) -> None:
        """A refused account isn't bound with for an hour, then once, then not for two, four … and 24 hours (LOCK-1)."""
        self.fail()
        for hours in (1, 2, 4, 8, 16, 24, 24):
            again = self.assert_refused(self.look(), Reason.LDAP_BIND_REFUSED).retry_after
            self.assertEqual(again, hours * 3600)
            self.clock.advance(hours * 3600 - 1)
            self.assert_refused(self.account(Deferred()), Reason.LDAP_BIND_REFUSED)
            self.clock.advance(1)
            self.successResultOf(self.look())
            self.fail()
        self.assertEqual(self.sent, 8)

    def test_other_settings(self) -> None:
        """Another password, account or address is another account; other filters are not (LOCK-2)."""
        self.fail()
        taken: list[dict[str, Any]] = [{"bind_password": b"other"}, {"bind_dn": "cn=other"}, {"host": "other.example"}]
        for more in taken:
            answer: Deferred[BindOutcome] = Deferred()
            bound = self.account(answer, **more)
            answer.callback(TAKEN)
            self.successResultOf(bound)
        self.assert_refused(self.account(Deferred(), filter_template="(cn=%s)", base_dn="o=x"), Reason.LDAP_BIND_REFUSED)

    def test_several_hosts(self) -> None:
        """Refusals are of a directory: all its hosts together, in whatever order and however they are written (LOCK-2)."""
        self.fail(others=(("ldap2.example", 389), ("2001:db8::1", 389)))
        for host, *others in (
            (("LDAP.example.", 389), ("ldap2.example", 389), ("[2001:db8:0::1]", 389)),
            (("[2001:DB8::1]", 389), ("ldap.example", 389), ("ldap2.example", 389), ("ldap2.example", 389)),
        ):
            same: dict[str, Any] = {"host": host[0], "port": host[1], "others": tuple(others)}
            self.assert_refused(self.account(Deferred(), **same), Reason.LDAP_BIND_REFUSED)
        for others in ([], [("ldap3.example", 389)], [("ldap2.example", 3389), ("2001:db8::1", 389)]):
            answer: Deferred[BindOutcome] = Deferred()
            bound = self.account(answer, others=tuple(others))
            answer.callback(TAKEN)
            self.successResultOf(bound)
        self.assertEqual(self.sent, 4)

    def unanswered(self, **more: Any) -> None:
        """Have a bind without an answer."""
        answer: Deferred[BindOutcome] = Deferred()
        bound = self.account(answer, **more)
        answer.errback(Unanswered(Reason.LDAP_UNAVAILABLE, "the directory took too long"))
        self.assert_refused(bound, Reason.LDAP_UNAVAILABLE)

    def test_unanswered(self) -> None:
        """After three binds without an answer the next is sent after 300 s, and further ones after 600 s; meanwhile nobody
        binds but for an operator, and a bind that is taken ends that (LOCK-12).
        """
        for _ in range(MAX_UNANSWERED):
            self.successResultOf(self.look("alice"))
            self.unanswered()
        for pause in (UNANSWERED_PAUSE, LONGEST_UNANSWERED_PAUSE, LONGEST_UNANSWERED_PAUSE):
            self.assertEqual(self.assert_refused(self.look("alice"), Reason.LDAP_UNAVAILABLE).retry_after, pause)
            self.clock.advance(pause - 1)
            refused = self.assert_refused(self.account(Deferred()), Reason.LDAP_UNAVAILABLE)
            self.assertNotIsInstance(refused, Unanswered)
            self.clock.advance(1)
            self.unanswered()
        self.assertEqual(self.sent, MAX_UNANSWERED + 3)
        self.successResultOf(self.look(by_operator=True))
        answer: Deferred[BindOutcome] = Deferred()
        bound = self.account(answer, by_operator=True)
        answer.callback(TAKEN)
        self.successResultOf(bound)
        for _ in range(MAX_UNANSWERED - 1):
            self.unanswered()
        self.successResultOf(self.look())

    def test_unanswered_checks(self) -> None:
        """Checks of a directory that is too slow for them stop no logins, whose answers end the pause of checks; and logins
        that wait for a check's bind bind themselves where that has no answer (LOCK-12).
        """
        for _ in range(MAX_UNANSWERED):
            self.successResultOf(self.look(check=True))
            answer, waiting = Deferred[BindOutcome](), Deferred[BindOutcome]()
            check = self.account(answer, check=True, place=("192.0.2.1", 389))
            login = self.account(waiting, place=("192.0.2.1", 389))
            answer.errback(Unanswered(Reason.LDAP_UNAVAILABLE, "the directory took too long"))
            self.assert_refused(check, Reason.LDAP_UNAVAILABLE)
            waiting.callback(UNCOUNTED)
            self.successResultOf(login)
        self.assert_refused(self.look(check=True), Reason.LDAP_UNAVAILABLE)
        self.assert_refused(self.account(Deferred(), check=True), Reason.LDAP_UNAVAILABLE)
        self.successResultOf(self.look("alice"))
        answer = Deferred()
        login = self.account(answer)
        answer.callback(TAKEN)
        self.successResultOf(login)
        self.successResultOf(self.look(check=True))

    def test_unanswered_at_a_host(self) -> None:
        """Where a host doesn't answer a bind, those that wait there don't send it again; one at another host goes on. When
        that was the third, nobody goes on (LOCK-12).
        """
        first, second = (("192.0.2.1", 389), ("192.0.2.2", 389))
        answers: list[Deferred[BindOutcome]] = [Deferred() for _ in range(5)]
        bound = [self.account(answer, place=first) for answer in answers[:3]]
        bound += [self.account(answer, place=second) for answer in answers[3:]]
        answers[0].errback(Unanswered(Reason.LDAP_UNAVAILABLE, "the directory took too long"))
        for each in bound[:3]:
            self.assertIsInstance(self.assert_refused(each, Reason.LDAP_UNAVAILABLE), Unanswered)
        self.assertEqual(self.sent, 2)
        answers[3].callback(TAKEN)
        self.assertEqual(self.sent, 3)
        answers[4].callback(TAKEN)
        for _ in range(MAX_UNANSWERED - 1):
            self.unanswered(place=first)
        last: Deferred[BindOutcome] = Deferred()
        leads, waits = self.account(last, place=first), self.account(Deferred(), place=second)
        last.errback(Unanswered(Reason.LDAP_UNAVAILABLE, "the directory took too long"))
        self.assert_refused(leads, Reason.LDAP_UNAVAILABLE)
        self.assertNotIsInstance(self.assert_refused(waits, Reason.LDAP_UNAVAILABLE), Unanswered)

    def test_clients_that_leave(self) -> None:
        """A bind whose client leaves is not one without an answer: strangers can't stop logins by leaving (LOCK-12)."""
        for _ in range(2 * MAX_UNANSWERED):
            bound = self.account(Deferred())
            bound.cancel()
            self.failureResultOf(bound, CancelledError)
        self.successResultOf(self.look("alice"))

    def test_an_operator(self) -> None:
        """For an operator one bind is sent; a refusal begins the time again, and the right password ends it (LOCK-2)."""
        self.fail()
        self.clock.advance(PAUSE - 10)
        self.successResultOf(self.look(by_operator=True))
        self.fail(by_operator=True)
        self.assertEqual(self.assert_refused(self.look(), Reason.LDAP_BIND_REFUSED).retry_after, PAUSE)
        answer: Deferred[BindOutcome] = Deferred()
        bound = self.account(answer, by_operator=True)
        self.assert_refused(self.account(Deferred()), Reason.LDAP_BIND_REFUSED)
        answer.callback(TAKEN)
        self.successResultOf(bound)
        self.successResultOf(self.look())
        self.assertEqual(self.sent, 3)

    def test_many_at_once(self) -> None:
        """Of twenty logins and a check that come at once one binds; its refusal is that of all (LOCK-3)."""
        answers: list[Deferred[BindOutcome]] = [Deferred() for _ in range(21)]
        bound = [self.account(answer) for answer in answers]
        self.assertEqual(self.sent, 1)
        answers[0].callback(REFUSED)
        self.successResultOf(bound[0])
        for each in bound[1:]:
            self.assert_refused(each, Reason.LDAP_BIND_REFUSED)
        self.assertEqual(self.sent, 1)

    def test_many_that_are_taken(self) -> None:
        """When the first one is taken the others bind at once, beside each other; a bind alone waits for nobody (LOCK-3)."""
        answers: list[Deferred[BindOutcome]] = [Deferred() for _ in range(20)]
        bound = [self.account(answer) for answer in answers]
        answers[0].callback(TAKEN)
        self.assertEqual(self.sent, 20)
        for answer in answers[1:]:
            answer.callback(TAKEN)
        for each in bound:
            self.successResultOf(each)
        self.assertEqual(self.binds._accounts, {})

    def test_no_outcome(self) -> None:
        """Where the first one has no outcome the next one binds; one that waits too long, or leaves, gives its place up."""
        answers: list[Deferred[BindOutcome]] = [Deferred() for _ in range(4)]
        bound = [self.account(answer) for answer in answers]
        bound[1].cancel()
        self.failureResultOf(bound[1], CancelledError)
        answers[0].callback(UNCOUNTED)
        self.assertEqual(self.sent, 2)
        self.clock.advance(5)
        self.assert_refused(bound[3], Reason.LDAP_UNAVAILABLE)
        answers[2].errback(DirectoryRefused(Reason.LDAP_UNAVAILABLE, "gone"))
        self.assert_refused(bound[2], Reason.LDAP_UNAVAILABLE)
        self.assertEqual((self.binds._accounts, self.binds._permits), ({}, {}))

    def test_restarts(self) -> None:
        """Refusals are kept over restarts, in a file of mode 0600 without a name or a password (LOCK-5)."""
        self.fail()
        file = self.folder / FILE
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        text = file.read_text()
        self.assertNotIn("password", text)
        self.assertNotIn("service", text)
        for _ in range(100):
            self.clock.advance(10)
            self.wall.advance(10)
            self.begin_again()
            self.assert_refused(self.account(Deferred()), Reason.LDAP_BIND_REFUSED)
        self.clock.advance(PAUSE - 1000)
        self.wall.advance(PAUSE - 1000)
        self.begin_again()
        self.fail()
        self.assertEqual(self.assert_refused(self.look(), Reason.LDAP_BIND_REFUSED).retry_after, 2 * PAUSE)
        # A machine whose clock was set back waits no longer than it would have.
        self.wall.advance(-1_000_000)
        self.begin_again()
        again = self.assert_refused(self.look(), Reason.LDAP_BIND_REFUSED).retry_after
        assert again is not None
        self.assertLessEqual(again, 2 * PAUSE)
        self.wall.advance(1_000_000 + 3 * LONGEST_PAUSE)
        self.begin_again()
        self.successResultOf(self.look())

    def test_other_keys(self) -> None:
        """Without the server's key nobody can tell from a digest which password it is of (LOCK-5)."""
        self.fail()
        digest, _ = (self.folder / FILE).read_text().split(" ", 1)
        self.assertEqual(len(digest), 32)
        self.guard = self.binds.make_guard(b"another key")
        self.successResultOf(self.look())

    def test_no_file(self) -> None:
        """A file that can't be read, written or understood is told in the log, and changes nothing else."""
        for text in ("x", "00", "zz 1 1 x", "00 x 1 x", "00 1 x x"):
            (self.folder / FILE).write_text(text)
            with capturedLogs() as logged:
                self.begin_again()
            self.assertEqual(len(logged), 1, text)
        self.folder = self.folder / "absent"
        with capturedLogs() as logged:
            self.begin_again()
            self.fail()
        self.assertEqual(len(logged), 1)
        self.assert_refused(self.look(), Reason.LDAP_BIND_REFUSED)

    def test_processes(self) -> None:
        """What one process was refused another doesn't try; what it had under way when it died is let go (LOCK-1)."""
        key = b"account"
        first = Deferred.fromCoroutine(self.binds.answer_request(1, SearchAccountBindQuestion(7, key, False)))
        self.successResultOf(first)
        second = Deferred.fromCoroutine(self.binds.answer_request(2, SearchAccountBindQuestion(7, key, False)))
        self.assertNoResult(second)
        self.binds.release_process(1)
        self.successResultOf(second)
        third = Deferred.fromCoroutine(self.binds.answer_request(3, SearchAccountBindQuestion(1, key, False)))
        self.binds.release_process(3)
        self.assert_refused(third, Reason.LDAP_UNAVAILABLE)
        self.binds.end_bind(2, BindEnded(7, REFUSED, "49"))
        self.assert_refused(
            Deferred.fromCoroutine(self.binds.answer_request(1, DirectoryQuestion(key, None))), Reason.LDAP_BIND_REFUSED
        )

    def test_dead_process(self) -> None:
        """A process that dies had one bind under way: those that waited for its outcome there are no binds without an
        answer, and stop no logins of other processes (LOCK-12).
        """
        key = b"account"
        asked = [
            Deferred.fromCoroutine(self.binds.answer_request(1, SearchAccountBindQuestion(number, key, False)))
            for number in range(5)
        ]
        self.successResultOf(asked[0])
        self.binds.release_process(1)
        for each in asked[1:]:
            self.assert_refused(each, Reason.LDAP_UNAVAILABLE)
        self.successResultOf(Deferred.fromCoroutine(self.binds.answer_request(2, DirectoryQuestion(key, None))))
        self.assertEqual((self.binds._permits, self.binds._accounts), ({}, {}))

    def test_messages(self) -> None:
        """Questions and refusals pass between processes as they are."""
        refusal = DirectoryRefused(Reason.LDAP_BIND_REFUSED, "49", 60.0)
        passed = pickle.loads(pickle.dumps(refusal))
        self.assertEqual((passed.reason, passed.detail, passed.retry_after), (refusal.reason, "49", 60.0))
        for value in (EntryBindQuestion(1, b"e", LoginKeys(b"w", b"f")), BindEnded(1, TAKEN)):
            self.assertEqual(pickle.loads(pickle.dumps(value)), value)


class PeopleTests(BindsCase):
    """People's entries, and logins without one."""

    def fail(self, dn: bytes = ALICE, login: str = "alice", outcome: BindOutcome = REFUSED) -> None:  # type: ignore[override]
        """Have a bind end."""
        answer: Deferred[BindOutcome] = Deferred()
        bound = self.entry(answer, dn, login)
        answer.callback(outcome)
        self.successResultOf(bound)

    def test_three(self) -> None:
        """After three failures within the window nothing is sent for the entry, and nothing asked about the logins that
        failed; another spelling is searched for, but not bound; then all begins again (LOCK-6).
        """
        for _ in range(3):
            self.successResultOf(self.look("alice"))
            self.fail()
            self.clock.advance(100)
        self.assert_refused(self.look("alice"), Reason.LDAP_FAILURES_TOO_MANY)
        self.successResultOf(self.look("ALICE"))
        self.assert_refused(self.entry(Deferred(), ALICE, "ALICE"), Reason.LDAP_FAILURES_TOO_MANY)
        self.assert_refused(self.look("ALICE"), Reason.LDAP_FAILURES_TOO_MANY)
        self.assert_refused(self.entry(Deferred(), ALICE.upper().replace(b",", b", "), "a@x"), Reason.LDAP_FAILURES_TOO_MANY)
        self.successResultOf(self.look("bob"))
        self.fail(b"uid=bob,ou=people,dc=example", "bob")
        self.clock.advance(WINDOW - 301)
        self.assert_refused(self.look("alice"), Reason.LDAP_FAILURES_TOO_MANY)
        self.clock.advance(1)
        self.successResultOf(self.look("alice"))
        self.fail()
        self.assert_refused(self.look("alice"), Reason.LDAP_FAILURES_TOO_MANY)

    def test_several_hosts(self) -> None:
        """Failures at any host of a directory count together, in whatever order and at whatever ports they are (LOCK-6)."""
        server = attrs.evolve(SERVER, others=(("ldap2.example", 389),))
        other = attrs.evolve(SERVER, host="LDAP2.example", port=636, others=((SERVER.host, 636),), security=Security.TLS)
        for each in (server, other, server):
            answer: Deferred[BindOutcome] = Deferred()
            bound = self.entry(answer, server=each)
            answer.callback(REFUSED)
            self.successResultOf(bound)
        for each in (server, other):
            look = Deferred.fromCoroutine(self.guard.require_allowed(each, "alice"))
            self.assert_refused(look, Reason.LDAP_FAILURES_TOO_MANY)
            self.assert_refused(self.entry(Deferred(), server=each), Reason.LDAP_FAILURES_TOO_MANY)

    def test_what_counts(self) -> None:
        """A refused bind counts, and one without an answer; one that is taken doesn't, and forgets none (LOCK-6)."""
        for outcome, counts in ((TAKEN, False), (UNCOUNTED, False), (REFUSED, True), (UNANSWERED, True)):
            self.begin_again()
            for _ in range(3):
                self.fail(outcome=outcome)
            asked = self.look("alice")
            if counts:
                self.assert_refused(asked, Reason.LDAP_FAILURES_TOO_MANY)
            else:
                self.successResultOf(asked)
                self.assertEqual(self.binds._entries, {})
        self.begin_again()
        for outcome in (REFUSED, REFUSED, TAKEN, REFUSED):
            self.fail(outcome=outcome)
        self.assert_refused(self.look("alice"), Reason.LDAP_FAILURES_TOO_MANY)

    def test_twenty_wrong_ones(self) -> None:
        """Of twenty wrong passwords at once three are sent (LOCK-6)."""
        answers: list[Deferred[BindOutcome]] = [Deferred() for _ in range(20)]
        bound = [self.entry(answer) for answer in answers]
        self.assertEqual(self.sent, 3)
        for answer in answers[:3]:
            answer.callback(REFUSED)
        self.assertEqual(self.sent, 3)
        for each in bound[3:]:
            self.assert_refused(each, Reason.LDAP_FAILURES_TOO_MANY)

    def test_twenty_right_ones(self) -> None:
        """Of twenty right passwords at once all are sent, three at a time (LOCK-6)."""
        answers: list[Deferred[BindOutcome]] = [Deferred() for _ in range(20)]
        bound = [self.entry(answer) for answer in answers]
        for done, answer in enumerate(answers):
            self.assertEqual(self.sent, min(20, done + 3))
            answer.callback(TAKEN)
        for each in bound:
            self.successResultOf(each)
        self.assertEqual((self.binds._entries, self.binds._permits), ({}, {}))

    def test_waiting_ends(self) -> None:
        """A login that waits for others of its entry to the end of its time is refused as one that failed too often, so that
        nobody learns that the entry exists; those under way count as failures if they have no answer (FAIL-19).
        """
        answers: list[Deferred[BindOutcome]] = [Deferred() for _ in range(4)]
        bound = [self.entry(answer) for answer in answers]
        self.clock.advance(5)
        self.assert_refused(bound[3], Reason.LDAP_FAILURES_TOO_MANY)
        for each in bound[:3]:
            each.cancel()
            self.failureResultOf(each, CancelledError)
        self.assert_refused(self.look("alice"), Reason.LDAP_FAILURES_TOO_MANY)

    def test_dead_process(self) -> None:
        """A login that waits in a process that dies gets no turn there, and is no failure, even if others have become too
        old to count while it waited (LOCK-6).
        """
        asked = [
            Deferred.fromCoroutine(
                self.binds.answer_request(process, EntryBindQuestion(number, ALICE, LoginKeys(b"alice", b"alice")))
            )
            for number, process in enumerate((2, 2, 1, 1, 1))
        ]
        self.binds.end_bind(2, BindEnded(0, REFUSED))
        self.clock.advance(WINDOW)
        self.binds.release_process(1)
        self.successResultOf(asked[2])
        for each in asked[3:]:
            self.assert_refused(each, Reason.LDAP_UNAVAILABLE)
        self.assertEqual(len(self.binds._entries[ALICE].failures), 2)

    def test_without_an_entry(self) -> None:
        """A login without an entry is counted in the same way; capitals and blanks don't make another of it (LOCK-8)."""
        for _ in range(3):
            self.successResultOf(self.look("nobody"))
            self.successResultOf(Deferred.fromCoroutine(self.guard.count_missing_entry(SERVER, "nobody")))
        for login in ("nobody", "NoBody", " nobody "):
            self.assert_refused(self.look(login), Reason.LDAP_FAILURES_TOO_MANY)
            self.assert_refused(
                Deferred.fromCoroutine(self.guard.count_missing_entry(SERVER, login)), Reason.LDAP_FAILURES_TOO_MANY
            )
        self.successResultOf(self.look("somebody"))
        self.clock.advance(WINDOW)
        self.successResultOf(self.look("nobody"))

    def test_off(self) -> None:
        """With 0 nothing is counted (LOCK-10)."""
        self.begin_again(0)
        for _ in range(50):
            self.fail()
            self.successResultOf(Deferred.fromCoroutine(self.guard.count_missing_entry(SERVER, "nobody")))
        self.successResultOf(self.look("alice"))
        self.successResultOf(self.look("nobody"))

    def test_bounded(self) -> None:
        """Invented logins take a bounded memory, and push out no entry that failed."""
        for _ in range(3):
            self.fail()
        for number in range(MAX_LOGINS + 100):
            self.successResultOf(Deferred.fromCoroutine(self.guard.count_missing_entry(SERVER, f"invented-{number}")))
        self.assertEqual(len(self.binds._missing_logins), MAX_LOGINS)
        self.assert_refused(self.look("alice"), Reason.LDAP_FAILURES_TOO_MANY)


class Interleavings(RuleBasedStateMachine):
    """Logins of two entries, by several spellings and processes, which end, leave, die and time out in any order."""

    running = Bundle("running")

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.binds = RefusedBinds(self.clock, self.clock, 3, WINDOW)
        self.numbers = 0
        self.under_way: dict[tuple[int, int], bytes] = {}
        #: When binds were sent that the directory may have counted.
        self.counted: dict[bytes, list[float]] = {b"a": [], b"b": []}
        self.sent_at: dict[tuple[int, int], float] = {}

    @rule(target=running, process=st.integers(1, 3), entry=st.sampled_from([b"a", b"b"]), spelling=st.integers(0, 2))
    def ask(self, process: int, entry: bytes, spelling: int) -> tuple[int, int]:
        """A login has found its entry, and wants to bind."""
        self.numbers += 1
        holder, login = (process, self.numbers), entry + bytes([spelling])

        def sent(_: None) -> None:
            self.under_way[holder], self.sent_at[holder] = entry, self.clock.seconds()

        question = EntryBindQuestion(self.numbers, entry, LoginKeys(login, login.lower()))
        Deferred.fromCoroutine(self.binds.answer_request(process, question)).addCallbacks(
            sent, lambda failure: failure.trap(DirectoryRefused)
        )
        return holder

    @rule(holder=consumes(running), outcome=st.sampled_from(BindOutcome))
    def end(self, holder: tuple[int, int], outcome: BindOutcome) -> None:
        """One ends in some way, whether or not it had its turn."""
        if (entry := self.under_way.pop(holder, None)) is not None and outcome in {REFUSED, UNANSWERED}:
            self.counted[entry].append(self.sent_at[holder])
        self.binds.end_bind(holder[0], BindEnded(holder[1], outcome))

    @rule(process=st.integers(1, 3))
    def die(self, process: int) -> None:
        """A process dies, with all that it had under way."""
        for holder in [each for each in self.under_way if each[0] == process]:
            self.counted[self.under_way.pop(holder)].append(self.sent_at[holder])
        self.binds.release_process(process)

    @rule(seconds=st.sampled_from([1.0, 100.0, 450.0, WINDOW]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.clock.advance(seconds)

    @invariant()
    def never_more(self) -> None:
        """No window has more than three binds of an entry that failed or may fail yet (LOCK-6)."""
        now = self.clock.seconds()
        waiting = Counter(self.under_way.values())
        for entry, moments in self.counted.items():
            for moment in (*moments, now - WINDOW + 0.001):
                assert sum(moment <= each < moment + WINDOW for each in moments) <= 3, (entry, moments)
            assert sum(now - each < WINDOW for each in moments) + waiting[entry] <= 3


class InterleavingTests(SynchronousTestCase):
    """Many orders."""

    def test_orders(self) -> None:
        """In no order are more than three binds of one entry sent within the window (LOCK-6)."""
        many = settings(max_examples=150, stateful_step_count=40, deadline=None)
        run_state_machine_as_test(Interleavings, settings=many)


class GuardTests(SynchronousTestCase):
    """The guard of a process that serves."""

    @given(st.text(max_size=20), st.text(max_size=20))
    def test_digests(self, one: str, other: str) -> None:
        """Different logins have different digests, and equal ones the same."""
        told: list[Any] = []

        async def ask(question: object) -> None:
            told.append(question)

        guard = BindGuard(ask, told.append, b"key")
        for login in (one, other):
            Deferred.fromCoroutine(guard.count_missing_entry(SERVER, login))
        first, second = told
        assert isinstance(first, MissingEntryReport)
        self.assertEqual(first.login.written == second.login.written, one == other)

"""Rounds that look whether users of directories still have an entry: who is refused, who never is, and until when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from twisted.internet.defer import Deferred
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher

from svc.authn.ldap.directory_rounds import (
    CONFIRM_SECONDS,
    LAPSE,
    MAX_MISSING,
    TICK,
    DirectoryRounds,
    MissingEntries,
    mass_refusal_fault,
)
from svc.health.ldap import LdapProbe
from svc.health.probes import ProbeFailed
from svc.model.authentication import Admitted, ExplainedRefusal, ExplanationRequest, LoginRequest, Problem, Refused
from svc.model.events import AuditContext
from svc.model.ldap_directories import DirectoryRefused, EntryState, LdapServer
from svc.model.names import ResourceName, RoleName
from svc.model.reasons import Reason
from tests.authn.ldap.test_authenticator import PASSWORD, LdapCase
from tests.memory_directory_users import MemoryDirectoryUsers
from tests.web.world import ACCOUNT, user

CORP: Final = f"{ACCOUNT}:webservice:svc/authn-ldap/corp"
EVERY: Final = 3600.0


class RoundsCase(LdapCase):
    """Some users who came by a directory, and rounds."""

    def setUp(self) -> None:
        """Have them come, and begin."""
        super().setUp()
        self.come("alice", "bob")
        self.logged: list[str] = []
        observer = cast(ILogObserver, self.observe)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        self.users = MemoryDirectoryUsers(self.memory)
        self.rounds = self.begun(EVERY)
        self.journal.told()

    def come(self, *logins: str) -> None:
        """Have users log in by the directory."""
        for login in logins:
            self.memory.directory_users[str(user(login))] = (CORP, None, False)

    def crowd(self, count: int) -> list[str]:
        """Have so many more users, who came by the directory."""
        logins = [f"person{number:03}" for number in range(count)]
        self.memory.roles.update({str(user(login)): None for login in logins})
        self.come(*logins)
        return logins

    def begun(self, every: float | None) -> DirectoryRounds:
        """Rounds that have begun, with the first one done."""
        missing = MissingEntries(self.users, self.journal, self.memory.ensure_writable)
        rounds = DirectoryRounds(self.clock, self.ldap_servers, lambda: self.directory, missing, every)
        rounds.startService()
        self.addCleanup(rounds.stopService)
        return rounds

    def observe(self, event: LogEvent) -> None:
        """Keep what is logged of rounds."""
        if event.get("log_namespace") == "svc.authn.ldap.directory_rounds":
            self.logged.append(event["log_format"].format(**event))

    def lose(self, *logins: str, state: EntryState = EntryState.GONE) -> None:
        """Have the directory lose entries."""
        self.directory.states_of.update(dict.fromkeys(logins, state))

    def wait(self, seconds: float) -> None:
        """Let time pass, for the server and for the database."""
        for _ in range(int(seconds / TICK)):
            self.memory.now += TICK
            self.clock.advance(TICK)

    def refused(self) -> list[str]:
        """Users who are refused."""
        rows = self.memory.directory_users.items()
        return sorted(RoleName.parse(role).identifier for role, (_, _, refused) in rows if refused)

    def missing(self) -> list[str]:
        """The users who are missing."""
        rows = self.memory.directory_users.items()
        return sorted(RoleName.parse(role).identifier for role, (_, since, _) in rows if since is not None)

    def wait_for(self, *logins: str) -> None:
        """Let time pass until a round finds that these are missing, and nobody else."""
        while not self.missing():
            self.wait(TICK)
        self.assertEqual(self.missing(), list(logins))

    def by_key(self, login: str, *, explained: bool = False) -> Admitted | Refused | ExplainedRefusal:
        """The decision on a login by API key."""
        request = LoginRequest(ACCOUNT, login, self.api_keys[login], "192.0.2.1")
        if not explained:
            decision: Admitted | Refused = self.result_of(self.by_api_key.authenticate(request))
            return decision
        asked = ExplanationRequest(ACCOUNT, login, self.api_keys[login], "192.0.2.1", address="192.0.2.1", tried=True)
        explanation: ExplainedRefusal = self.result_of(self.by_api_key.explain(asked))
        return explanation

    def reason(self, decision: Admitted | Refused | bytes) -> Reason | None:
        """The reason of a refusal."""
        return decision.reason if isinstance(decision, Refused) else None


class RoundsTests(RoundsCase):
    """Users who are refused."""

    def test_gone(self) -> None:
        """A user whose entry is gone in two rounds ten minutes apart loses tokens and sessions, and the API key is refused
        everywhere, for a reason of its own; memberships stay, and the audit and the log say so (LDAP-21, LDAP-22).
        """
        before, epoch = dict(self.memory.memberships), self.memory.numbers(str(user("alice")))
        self.lose("alice")
        self.wait(EVERY)
        self.assertIsInstance(self.by_key("alice"), Admitted)
        self.wait(CONFIRM_SECONDS - TICK)
        self.assertEqual(self.refused(), [])
        self.wait(TICK)
        self.assertEqual(self.refused(), ["alice"])
        self.assertNotEqual(self.memory.numbers(str(user("alice"))), epoch)
        self.assertEqual(self.memory.memberships, before)
        self.assertEqual(self.reason(self.by_key("alice")), Reason.LDAP_ENTRY_GONE)
        explained = self.by_key("alice", explained=True)
        assert isinstance(explained, ExplainedRefusal)
        (failed,) = [step for step in explained.steps if step.outcome == "failed"]
        self.assertEqual((failed.check, failed.reason), ("entry", Reason.LDAP_ENTRY_GONE))
        self.assertIn(CORP, failed.detail)
        for decision in (
            self.told(self.trying("alice", self.api_keys["alice"])),
            self.decide(self.trying("alice", self.api_keys["alice"])),
            self.result_of(self.by_api_key.api_key(LoginRequest(ACCOUNT, "alice", self.api_keys["alice"], "192.0.2.1"))),
        ):
            self.assertEqual(self.reason(decision), Reason.LDAP_ENTRY_GONE)
        self.assertIsInstance(self.by_key("bob"), Admitted)
        self.assertEqual(
            self.journal.told(), [("directory-user", "refuse", {"role": str(user("alice")), "resource": CORP}, None)]
        )
        self.assertEqual(
            self.logged,
            [
                f"{user('alice')} has no usable entry in the directory of {CORP} any more: tokens and API key are refused",
            ],
        )

    def test_disabled(self) -> None:
        """An account that is disabled counts as one that is gone; several entries for a login say nothing (LDAP-21)."""
        self.lose("alice", state=EntryState.DISABLED)
        self.lose("bob", state=EntryState.AMBIGUOUS)
        self.wait(2 * EVERY)
        self.assertEqual(self.refused(), ["alice"])
        self.lose("alice", state=EntryState.AMBIGUOUS)
        self.wait(EVERY)
        self.assertEqual(self.refused(), ["alice"])

    def test_back_in_time(self) -> None:
        """A user who is back at the second round isn't refused, nor one who is gone once more at a third; several
        entries count as one that is back (LDAP-21).
        """
        self.crowd(20)
        self.lose("alice", "bob")
        self.wait_for("alice", "bob")
        self.lose("alice", state=EntryState.PRESENT)
        self.lose("bob", state=EntryState.AMBIGUOUS)
        self.wait(CONFIRM_SECONDS)
        self.assertEqual(self.missing(), [])
        self.lose("alice", "bob")
        self.wait_for("alice", "bob")
        self.assertEqual(self.refused(), [])
        self.wait(CONFIRM_SECONDS)
        self.assertEqual(self.refused(), ["alice", "bob"])

    def test_back(self) -> None:
        """An entry that is back ends the refusal with the next round, and the audit says so (LDAP-24)."""
        self.lose("alice")
        self.wait(2 * EVERY)
        self.journal.told()
        self.lose("alice", state=EntryState.PRESENT)
        self.wait(EVERY)
        self.assertIsInstance(self.by_key("alice"), Admitted)
        self.assertEqual(
            self.journal.told(), [("directory-user", "admit", {"role": str(user("alice")), "resource": CORP}, None)]
        )

    def test_login_by_the_directory(self) -> None:
        """A login by the directory needs no round: it is admitted, and ends the refusal; on a follower it is admitted, and
        the next round of the primary ends it. An explanation ends none (LDAP-24).
        """
        self.lose("alice")
        self.wait(2 * EVERY)
        self.journal.told()
        self.memory.standby = True
        self.assertIsInstance(self.decide(self.trying("alice")), Admitted)
        self.assertEqual(self.refused(), ["alice"])
        self.memory.standby = False
        asked = ExplanationRequest(ACCOUNT, "alice", PASSWORD, "192.0.2.1", "corp", address="192.0.2.1", tried=True)
        self.result_of(self.ldap.explain(asked))
        self.assertEqual(self.reason(self.decide(self.trying("alice", b"wrong"))), Reason.CREDENTIALS_WRONG)
        self.assertEqual(self.refused(), ["alice"])
        origin = AuditContext(self.journal.server, None, "192.0.2.1", "request")
        request = LoginRequest(ACCOUNT, "alice", PASSWORD, "192.0.2.1", "corp", origin=origin)
        self.assertIsInstance(self.decide(request), Admitted)
        self.assertEqual(self.refused(), [])
        self.assertIsInstance(self.by_key("alice"), Admitted)
        subject = {"role": str(user("alice")), "resource": CORP}
        self.assertEqual(self.journal.told(), [("directory-user", "admit", subject, None)])

    def test_noted_logins(self) -> None:
        """A user who logs in by the directory, or gets an API key there, is checked from then on (LDAP-20)."""
        self.memory.directory_users.clear()
        self.assertIsInstance(self.told(self.trying("bob")), bytes)
        admitted = self.decide(self.trying("alice"))
        assert isinstance(admitted, Admitted)
        self.notes.note_login(admitted)
        self.result_of(self.notes.write_notes())
        self.assertEqual(sorted(self.memory.directory_users), [str(user("alice")), str(user("bob"))])
        self.assertEqual([row[0] for row in self.memory.directory_users.values()], [CORP, CORP])
        by_key = self.by_key("alice")
        assert isinstance(by_key, Admitted)
        self.assertIsNone(by_key.directory)
        self.assertEqual(list(self.memory.last_logins), [str(user("alice"))])


class CautionTests(RoundsCase):
    """Users who are never refused."""

    def trouble(self) -> str:
        """Why the check has failed."""
        probe = LdapProbe(self.ldap_servers, lambda: self.directory, others=lambda: self.rounds.failure)
        self.directory.refused, refused = None, self.directory.refused
        failed = self.failureResultOf(Deferred.fromCoroutine(probe.check()), ProbeFailed)
        self.directory.refused = refused
        return str(failed.value)

    def assert_nobody(self, why: str, *, status: bool = True) -> None:
        """Nobody is refused, and the check, the status and the log say why; when that ends all is well again."""
        self.wait(3 * EVERY)
        self.assertEqual(self.refused(), [])
        self.assertIn(why, self.trouble())
        if status:
            problems = self.result_of(self.ldap.read_directory_status(ResourceName.parse(CORP), "authn-ldap/corp")).problems
            self.assertIn(why, " ".join(problem.what for problem in problems))
        self.assertEqual(len(self.logged), 1, self.logged)
        self.assertIn(why, self.logged[0])

    def status(self) -> Sequence[Problem]:
        """The problems of the authenticator's status."""
        problems: Sequence[Problem] = self.result_of(
            self.ldap.read_directory_status(ResourceName.parse(CORP), "authn-ldap/corp")
        ).problems
        return problems

    def assert_well(self) -> None:
        """All is well again."""
        self.wait(EVERY)
        self.assertIsNone(self.rounds.failure)
        self.assertIn("went well again", self.logged[-1])

    def test_directory_away(self) -> None:
        """While the directory can't be asked nobody is refused: the check fails, and the log says why, once (LDAP-25)."""
        self.lose("alice")
        self.directory.refused = DirectoryRefused(Reason.LDAP_UNAVAILABLE, "nobody is there")
        self.assert_nobody("nobody is there (ldap-unavailable)", status=False)
        self.directory.refused = None
        self.lose("alice", state=EntryState.PRESENT)
        self.assert_well()

    def test_base_gone(self) -> None:
        """Where the entry below which people are isn't found nobody is refused (LDAP-25)."""
        self.lose("alice")
        self.directory.base_fault = "the directory doesn't show it"
        self.wait(3 * EVERY)
        self.assertEqual(self.refused(), [])
        self.assertIn("the directory doesn't show it (ldap-search-refused)", self.trouble())
        self.directory.base_fault = None
        self.lose("alice", state=EntryState.PRESENT)
        self.assert_well()

    def test_misconfigured(self) -> None:
        """Where the settings don't fit nobody is refused (LDAP-25)."""
        self.lose("alice")
        self.annotate(base_dn=None)
        self.wait(3 * EVERY)
        self.assertEqual(self.refused(), [])
        self.assertIn("below which entry people stand", self.rounds.failure or "")

    def test_mended_settings(self) -> None:
        """A round whose settings didn't fit is repeated within a minute of their change, by a server that was started
        meanwhile, too; the status shows at once that they fit, and before only their own problem and remedy (LDAP-25).
        """
        for started in (False, True):
            self.annotate(base_dn=None)
            self.wait(2 * EVERY)
            (problem,) = self.status()
            self.assertIn("ldap-authn/base_dn", problem.remedy)
            self.assertNotRegex(f"{problem.what} {self.rounds.failure}", r"\.[.;]")
            if started:
                self.rounds.stopService()
                self.rounds = self.begun(EVERY)
                self.assertIsNotNone(self.rounds.failure)
            self.annotate(base_dn="ou=people,dc=example")
            self.assertEqual(self.status(), ())
            self.wait(2 * TICK)
            self.assertIsNone(self.rounds.failure)

    def test_mended_directory(self) -> None:
        """A round that failed is repeated within a minute, then seldom, and soon when the check binds again (LDAP-25)."""
        self.directory.refused = DirectoryRefused(Reason.LDAP_UNAVAILABLE, "nobody is there")
        asked, states = [], self.directory.read_entry_states

        async def counted(server: LdapServer, logins: Sequence[str]) -> Sequence[EntryState]:
            asked.append(self.clock.seconds())
            return await states(server, logins)

        self.patch(self.directory, "read_entry_states", counted)
        self.wait(EVERY + TICK)
        self.assertEqual(asked[1] - asked[0], TICK)
        probe = LdapProbe(self.ldap_servers, lambda: self.directory, mended=self.rounds.repeat)
        self.failureResultOf(Deferred.fromCoroutine(probe.check()), ProbeFailed)
        self.wait(EVERY)
        self.assertLess(len(asked), 12)
        self.directory.refused = None
        self.assertEqual(self.status(), ())
        self.successResultOf(Deferred.fromCoroutine(probe.check()))
        self.wait(TICK)
        self.assertIsNone(self.rounds.failure)

    def test_what_the_last_round_found(self) -> None:
        """What the status doesn't find by itself it shows as the last round found it, with a remedy that fits (LDAP-25)."""

        async def unread(_server: object, _logins: object) -> list[EntryState]:
            raise DirectoryRefused(Reason.LDAP_SEARCH_REFUSED, "the search below it ended with 50")

        self.patch(self.directory, "read_entry_states", unread)
        self.wait(EVERY)
        (problem,) = self.status()
        self.assertIn("ended with 50", problem.what)
        self.assertIn("read all entries", problem.remedy)

    def test_too_many(self) -> None:
        """Where too many would be refused at once nobody is, also of those who were missing before; who is back is refused
        no more all the same (LDAP-25).
        """
        logins = self.crowd(48)
        self.lose("alice")
        self.wait(2 * EVERY)
        self.assertEqual(self.refused(), ["alice"])
        self.logged.clear()
        self.lose(*logins[:5])
        self.wait(EVERY)
        self.assertEqual((self.refused(), self.missing()), (["alice"], ["alice"]))
        self.assertIn("5 of 49 users would be refused at once, and at most 4 are", self.rounds.failure or "")
        self.lose("alice", state=EntryState.PRESENT)
        self.wait(EVERY)
        self.wait_for(*logins[:5])
        self.assertIsNone(self.rounds.failure)
        self.lose(logins[5])
        self.wait(3 * EVERY)
        self.assertEqual((self.refused(), self.missing()), ([], logins[:5]))
        self.assertIn("6 of 50 users would be refused at once, and at most 5 are", self.rounds.failure or "")
        self.assertEqual(len([line for line in self.logged if "Nobody is refused" in line]), 2, self.logged)

    def test_how_many_are_too_many(self) -> None:
        """More than a tenth of the users, or than 20, are too many; one never is (LDAP-25)."""
        for looked, most in ((1, 1), (5, 1), (19, 1), (20, 2), (29, 2), (199, 19), (200, 20), (5000, MAX_MISSING)):
            people = [user(f"p{number}") for number in range(most + 1)]
            self.assertIsNone(mass_refusal_fault(looked, people[:most]), looked)
            self.assertIn(f"{most + 1} of {looked} users", mass_refusal_fault(looked, people) or "", looked)
        self.assertIn(" and 10 more", mass_refusal_fault(100, [user(f"p{number}") for number in range(30)]) or "")

    def test_many_users(self) -> None:
        """Users are asked for in several conversations, none left out (LDAP-21)."""
        logins = self.crowd(250)
        self.lose(*logins[::25])
        self.wait(2 * EVERY)
        self.assertEqual(self.refused(), logins[::25])

    def test_users_of_others(self) -> None:
        """Users whose last login was elsewhere aren't looked after (LDAP-20)."""
        self.memory.directory_users.clear()
        self.lose("alice", "bob")
        self.wait(3 * EVERY)
        self.assertEqual(self.refused(), [])

    def test_off(self) -> None:
        """Without the setting there are no rounds (LDAP-21)."""
        self.rounds.stopService()
        self.rounds = self.begun(None)
        self.lose("alice")
        self.wait(3 * EVERY)
        self.assertEqual((self.refused(), self.memory.directory_users[str(user("alice"))]), ([], (CORP, None, False)))

    def test_followers(self) -> None:
        """A follower does no rounds, and its check doesn't fail for what they found before (LDAP-21)."""
        self.lose("alice")
        self.directory.base_fault = "gone"
        self.wait(EVERY)
        self.assertIsNotNone(self.rounds.failure)
        self.directory.base_fault = None
        self.memory.standby = True
        self.wait(3 * EVERY)
        self.memory.standby = False
        self.assertEqual((self.refused(), self.rounds.failure), ([], None))

    def test_no_audit(self) -> None:
        """While the audit takes no records nobody is refused (LDAP-23)."""
        self.lose("alice")
        self.journal.away = True
        self.wait(3 * EVERY)
        self.assertEqual(self.refused(), [])
        self.assertIn("can't be recorded", self.rounds.failure or "")
        self.journal.away = False
        self.wait(2 * EVERY)
        self.assertEqual(self.refused(), ["alice"])

    def test_database_away(self) -> None:
        """Rounds go on when the database is back, at once with those that were due (LDAP-21)."""
        self.lose("alice")
        self.wait(EVERY - TICK)
        asked = self.directory.read_entry_states

        async def down(_server: object, _logins: object) -> list[EntryState]:
            self.memory.down = True
            return [EntryState.GONE, EntryState.PRESENT]

        self.patch(self.directory, "read_entry_states", down)
        self.wait(TICK)
        self.patch(self.directory, "read_entry_states", asked)
        self.memory.down = False
        self.wait(TICK)
        self.assertIsNotNone(self.memory.directory_users[str(user("alice"))][1])


class LapseTests(RoundsCase):
    """Refusals for which no server does rounds."""

    def test_switched_off(self) -> None:
        """When no server does rounds any more, refusals end after a quarter of an hour; a directory that is away doesn't end
        them, and neither does another server that was started without the setting (LDAP-26).
        """
        self.lose("alice")
        self.wait(2 * EVERY)
        other = self.begun(None)
        self.directory.refused = DirectoryRefused(Reason.LDAP_UNAVAILABLE, "down")
        self.wait(3 * EVERY)
        self.assertEqual(self.refused(), ["alice"])
        self.journal.told()
        self.rounds.stopService()
        self.wait(LAPSE)
        self.assertEqual(self.refused(), ["alice"])
        self.wait(TICK)
        self.assertEqual(self.refused(), [])
        self.assertIsInstance(self.by_key("alice"), Admitted)
        self.assertEqual([operation for _, operation, _, _ in self.journal.told()], ["admit"])
        self.assertIsNone(other.failure)

    def test_a_late_start(self) -> None:
        """Servers that were all down for longer take nothing back before one of them has looked (LDAP-26)."""
        self.lose("alice")
        self.wait(2 * EVERY)
        self.rounds.stopService()
        self.memory.now += 10 * LAPSE
        self.begun(None)
        self.wait(LAPSE - TICK)
        self.assertEqual(self.refused(), ["alice"])
        self.begun(EVERY)
        self.wait(2 * LAPSE)
        self.assertEqual(self.refused(), ["alice"])

"""The binds that directories refuse: they are counted for a server, since a directory locks accounts that fail too often.

Note [One bad password]. A directory that refuses the password of the account that searches counts a failure, and locks the
account after a few. So the refusal is recorded, by a digest of directory, account and password: until these change, an
operator asks, or an hour has passed, there is no bind with it, and the refusal is the answer. Each further refusal doubles
the time, up to a day. The refusals are kept in the data directory, too: a server that is restarted again and again would
otherwise fail with each start.

Note [First one alone]. While one binds as the account, others wait for the outcome. If it is taken all go on, and bind
beside each other; a refusal is that of all. So a wrong password is one failure, however many logins come at once, and a
login that comes alone waits for nobody. A password that is changed in the directory in the moment between can still fail for
those that go on.

Note [No answer]. A directory may have counted a bind that it doesn't answer: some delay the answer to a wrong password. So
where the first one has no answer, those that wait for it at the same host don't repeat it there; the client asks the next
host. Until one is answered, a host gets a harmless query before each further one: one that hangs is sent no bind. After
``MAX_UNANSWERED`` in a row, at whatever hosts, there is a pause before each further one. One whose client leaves isn't
counted, or strangers could make the pause. Health checks have less time than logins, so theirs are counted apart, or checks
of a slow directory would stop its logins.

Note [Reserved before]. A person's bind is reserved before it is sent: failures and binds under way are together no more than
are allowed, and others wait. So no order of events sends more. A bind without an answer counts as a failure, since the
directory may have counted it. Failures aren't dropped when a bind succeeds.

Note [Alike]. A login without an entry is counted by itself, in the same way, so that a client can't tell it from another:
capitals and blanks don't make it another, as they don't to most directories. Where the failures of a login led to its entry,
the entry is kept with the login, as it was written, and the directory isn't asked about it any more.

Note [One count]. Where several processes serve, one counts for all (``svc/server/supervisor.py``), and each has a
:class:`BindGuard` that asks it. A bind that a process had under way when it died counts as a failure.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections import OrderedDict, deque
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.authn.ldap.bind_guard import (
    BindEnded,
    BindGuard,
    BindOutcome,
    BindPermitQuestion,
    DirectoryQuestion,
    EntryBindQuestion,
    LoginKeys,
    MissingEntryReport,
    SearchAccountBindQuestion,
)
from svc.model.clocks import WallClock
from svc.model.ldap_directories import DirectoryRefused
from svc.model.reasons import Reason

#: Seconds for which an account that was refused isn't bound with, at first and at most.
PAUSE: Final = 3600.0
LONGEST_PAUSE: Final = 86_400.0

#: How many binds as an account may have no answer, one after the other, and the seconds before the next, and further ones.
MAX_UNANSWERED: Final = 3
UNANSWERED_PAUSE: Final = 300.0
LONGEST_UNANSWERED_PAUSE: Final = 600.0

#: The most refused accounts, failed entries and failed logins that are kept.
MAX_ACCOUNTS: Final = 10_000
MAX_ENTRIES: Final = 100_000
MAX_LOGINS: Final = 8192

#: The file in the data directory (Note [One bad password]).
FILE: Final = "ldap-refused"

log = Logger()


@attrs.define(eq=False)
class _BindPermit:
    """A permit to bind that a process has or waits for: as an account, or as an entry for a login."""

    holder: tuple[int, int]
    key: bytes
    login: LoginKeys | None = None
    by_operator: bool = False
    host: bytes = b""
    check: bool = False
    is_leader: bool = False
    granted: Deferred[None] = attrs.field(factory=Deferred)


@attrs.define
class _AccountState:
    """An account that searches: how and until when it was refused, the bind under way, and those that wait for it."""

    detail: str = ""
    until: float = 0.0
    pause: float = 0.0
    leader: _BindPermit | None = None
    waiting: deque[_BindPermit] = attrs.field(factory=deque)

    def make_refusal(self, now: float) -> DirectoryRefused:
        """Return what was refused, and when it is tried again."""
        hours = self.pause / 3600
        while_ = "an hour has" if hours == 1 else f"{hours:g} hours have"
        detail = (
            f"{self.detail}; nobody binds with it again until its settings change, an operator asks"
            f" (svc authenticator explain), or {while_} passed"
        )
        return DirectoryRefused(Reason.LDAP_BIND_REFUSED, detail, max(1.0, self.until - now))


@attrs.define
class _UnansweredBinds:
    """The binds as an account that had no answer since the last one that had, and until when none is sent."""

    count: int = 0
    until: float = 0.0
    pause: float = 0.0

    def make_refusal(self, now: float) -> DirectoryRefused:
        """Return when the next one is sent."""
        detail = (
            f"{self.count} binds as the account that searches had no answer, and may have been counted:"
            f" the next is sent {self.pause:g} s after the last, or when an operator asks (svc authenticator explain)"
        )
        return DirectoryRefused(Reason.LDAP_UNAVAILABLE, detail, max(1.0, self.until - now))


@attrs.define
class _EntryState:
    """The failures of a person's entry, or of a login without one, and the binds that are under way or wait."""

    failures: deque[float]
    under_way: set[_BindPermit] = attrs.field(factory=set)
    waiting: deque[_BindPermit] = attrs.field(factory=deque)


class RefusedBinds:
    """Counts the binds that directories refuse, for all processes of a server; people's as far as ``failures`` isn't 0.

    ``folder`` is where refusals of accounts are kept; ``None`` for nowhere.
    """

    def __init__(
        self, clock: IReactorTime, wall: WallClock, failures: int, window: float, folder: Path | None = None
    ) -> None:
        self._clock, self._wall = clock, wall
        self._max_failures, self._window = failures, window
        self._file = None if folder is None else folder / FILE
        self._accounts: OrderedDict[bytes, _AccountState] = OrderedDict()
        #: Those of checks stand apart.
        self._unanswered: OrderedDict[tuple[bytes, bool], _UnansweredBinds] = OrderedDict()
        self._entries: OrderedDict[bytes, _EntryState] = OrderedDict()
        self._missing_logins: OrderedDict[bytes, _EntryState] = OrderedDict()
        #: The entries of logins that failed.
        self._login_entries: OrderedDict[bytes, bytes] = OrderedDict()
        self._permits: dict[tuple[int, int], _BindPermit] = {}
        self._read_file()

    def make_guard(self, key: bytes) -> BindGuard:
        """Return what this process itself asks."""
        return BindGuard(lambda question: self.answer_request(0, question), lambda over: self.end_bind(0, over), key)

    async def answer_request(self, process: int, question: BindPermitQuestion) -> bool:
        """Return when a process may do what it asks for, and whether a bind as the account had no answer (Note [No answer]).

        :raises DirectoryRefused: it may not.
        """
        match question:
            case DirectoryQuestion(account=account, login=login, check=check):
                self._require_allowed(account, login, check=check)
            case SearchAccountBindQuestion(number=number, account=key, by_operator=asked, host=place, check=check):
                await self._await_account_permit(
                    _BindPermit((process, number), key, by_operator=asked, host=place, check=check)
                )
                return any((key, each) in self._unanswered for each in (False, True))
            case EntryBindQuestion(number=number, entry=key, login=login):
                await self._await_entry_permit(_BindPermit((process, number), key, login))
            case MissingEntryReport(login=login):
                self._count_missing_entry(login)
        return False

    def end_bind(self, process: int, over: BindEnded) -> None:
        """Note how a bind ended, or that a permit isn't waited for any more."""
        turn = self._permits.pop((process, over.number), None)
        if turn is None:
            return
        if turn.login is None:
            self._end_account_bind(turn, over)
        else:
            self._end_entry_bind(turn, over.outcome)

    def release_process(self, process: int) -> None:
        """Take back the permits of a process that is gone: first those that it waits for, so that it is given none."""
        turns = [turn for holder, turn in self._permits.items() if holder[0] == process]
        for turn in turns:
            kept = self._accounts.get(turn.key) if turn.login is None else self._entries[turn.key]
            if kept is not None and turn in kept.waiting:
                kept.waiting.remove(turn)
                del self._permits[turn.holder]
                _cancel_permit(turn)
        for turn in turns:
            self.end_bind(process, BindEnded(turn.holder[1], BindOutcome.UNANSWERED))

    def _require_allowed(self, account: bytes | None, login: LoginKeys | None, *, check: bool) -> None:
        known = None if account is None else self._accounts.get(account)
        if known is not None and self._is_refused(known):
            raise known.make_refusal(self._clock.seconds())
        if account is not None and (paused := self._pause_refusal(account, check)) is not None:
            raise paused
        if login is None or not self._max_failures:
            return
        entries = (self._entries.get(self._login_entries.get(login.written, b"")), self._missing_logins.get(login.folded))
        if any(entry is not None and self._is_full(entry) for entry in entries):
            raise self._too_many_failures()

    # Accounts that search

    def _is_refused(self, account: _AccountState) -> bool:
        return self._clock.seconds() < account.until

    def _pause_refusal(self, key: bytes, check: bool) -> DirectoryRefused | None:
        """Return why no bind is sent now as an account (Note [No answer])."""
        silence, now = self._unanswered.get((key, check)), self._clock.seconds()
        return None if silence is None or now >= silence.until else silence.make_refusal(now)

    async def _await_account_permit(self, turn: _BindPermit) -> None:
        account = self._accounts.get(turn.key)
        if account is not None and self._is_refused(account) and not turn.by_operator:
            raise account.make_refusal(self._clock.seconds())
        if not turn.by_operator and (paused := self._pause_refusal(turn.key, turn.check)) is not None:
            raise paused
        account = self._accounts.setdefault(turn.key, _AccountState())
        self._permits[turn.holder] = turn
        if account.leader is None:
            account.leader, turn.is_leader = turn, True
            return
        account.waiting.append(turn)
        await turn.granted

    def _end_account_bind(self, turn: _BindPermit, over: BindEnded) -> None:
        account = self._accounts.setdefault(turn.key, _AccountState())
        if turn in account.waiting:
            account.waiting.remove(turn)
            _cancel_permit(turn)
        elif over.outcome is BindOutcome.REFUSED:
            self._record_refusal(turn, account, over.detail)
        elif turn.is_leader:
            if over.outcome is BindOutcome.UNANSWERED:
                self._count_unanswered(turn, account)
            self._release_waiting(account, taken=over.outcome is BindOutcome.TAKEN)
        if over.outcome in {BindOutcome.TAKEN, BindOutcome.REFUSED}:
            for check in (False, True):
                self._unanswered.pop((turn.key, check), None)
        if not account.pause and account.leader is None and self._accounts.get(turn.key) is account:
            del self._accounts[turn.key]

    def _count_unanswered(self, turn: _BindPermit, account: _AccountState) -> None:
        """Count a bind without an answer, and end the waits that would repeat it (Note [No answer])."""
        key = turn.key, turn.check
        silence = self._unanswered.setdefault(key, _UnansweredBinds())
        silence.count += 1
        if silence.count >= MAX_UNANSWERED:
            silence.pause = min(2 * silence.pause, LONGEST_UNANSWERED_PAUSE) if silence.pause else UNANSWERED_PAUSE
            silence.until = self._clock.seconds() + silence.pause
        self._unanswered.move_to_end(key)
        while len(self._unanswered) > MAX_ACCOUNTS:
            self._unanswered.popitem(last=False)
        paused = self._pause_refusal(*key)
        for each in [each for each in account.waiting if not each.by_operator and each.check == turn.check]:
            if paused is not None or (turn.host and each.host == turn.host):
                account.waiting.remove(each)
                self._permits.pop(each.holder, None)
                silent = DirectoryRefused(Reason.LDAP_UNAVAILABLE, "the host didn't answer the bind of another login")
                each.granted.errback(Failure(paused or silent))

    def _release_waiting(self, account: _AccountState, *, taken: bool) -> None:
        """Let all go on that wait for the outcome, or where there was none, the next one (Note [First one alone])."""
        account.leader = None
        if taken:
            kept, account.pause, account.until = account.pause, 0.0, 0.0
            waiting, account.waiting = account.waiting, deque()
            for each in waiting:
                each.granted.callback(None)
            if kept:
                self._write_file()
        elif account.waiting:
            account.leader = first = account.waiting.popleft()
            first.is_leader = True
            first.granted.callback(None)

    def _record_refusal(self, turn: _BindPermit, account: _AccountState, detail: str) -> None:
        if turn.is_leader:
            account.leader = None
        elif self._is_refused(account):
            return  # It was under way at the same time as the recorded one.
        now = self._clock.seconds()
        if not account.pause:
            account.pause = PAUSE
        elif not turn.by_operator:
            account.pause = min(2 * account.pause, LONGEST_PAUSE)
        account.detail, account.until = " ".join(detail.split()), now + account.pause
        self._accounts.move_to_end(turn.key)
        waiting, account.waiting = account.waiting, deque()
        for each in waiting:
            self._permits.pop(each.holder, None)
            each.granted.errback(Failure(account.make_refusal(now)))
        for key in [key for key, each in self._accounts.items() if each.leader is None and not each.waiting]:
            forgotten = now - self._accounts[key].until > LONGEST_PAUSE
            if forgotten or len(self._accounts) > MAX_ACCOUNTS:
                del self._accounts[key]
        self._write_file()

    # People

    async def _await_entry_permit(self, turn: _BindPermit) -> None:
        if not self._max_failures:
            return
        entry = self._entries.get(turn.key)
        if entry is None:
            self._drop_stale_entries(self._entries)
            if len(self._entries) >= MAX_ENTRIES:
                raise DirectoryRefused(Reason.LDAP_FAILURES_TOO_MANY, f"{MAX_ENTRIES} entries have failed already")
            entry = self._entries[turn.key] = _EntryState(deque(maxlen=self._max_failures))
        if self._is_full(entry):
            self._record_login_entry(turn)
            raise self._too_many_failures()
        self._permits[turn.holder] = turn
        entry.waiting.append(turn)
        self._grant_permits(entry)
        await turn.granted

    def _end_entry_bind(self, turn: _BindPermit, outcome: BindOutcome) -> None:
        entry = self._entries[turn.key]
        if turn in entry.waiting:
            entry.waiting.remove(turn)
            _cancel_permit(turn)
        else:
            entry.under_way.discard(turn)
            if outcome in {BindOutcome.REFUSED, BindOutcome.UNANSWERED}:
                entry.failures.append(self._clock.seconds())
                self._entries.move_to_end(turn.key)
                self._record_login_entry(turn)
        self._grant_permits(entry)
        if not (entry.failures or entry.under_way or entry.waiting) and self._entries.get(turn.key) is entry:
            del self._entries[turn.key]

    def _grant_permits(self, entry: _EntryState) -> None:
        """Grant permits to those that wait, as far as there are any (Note [Reserved before])."""
        while entry.waiting:
            if self._is_full(entry):
                turn = entry.waiting.popleft()
                del self._permits[turn.holder]
                self._record_login_entry(turn)
                turn.granted.errback(Failure(self._too_many_failures()))
            elif self._recent_failures(entry) + len(entry.under_way) < self._max_failures:
                turn = entry.waiting.popleft()
                entry.under_way.add(turn)
                turn.granted.callback(None)
            else:
                return

    def _count_missing_entry(self, login: LoginKeys) -> None:
        if not self._max_failures:
            return
        entry = self._missing_logins.setdefault(login.folded, _EntryState(deque(maxlen=self._max_failures)))
        if self._is_full(entry):
            raise self._too_many_failures()
        entry.failures.append(self._clock.seconds())
        self._missing_logins.move_to_end(login.folded)
        while len(self._missing_logins) > MAX_LOGINS:
            self._missing_logins.popitem(last=False)

    def _record_login_entry(self, turn: _BindPermit) -> None:
        """Note the entry of a login that failed."""
        assert turn.login is not None
        self._login_entries[turn.login.written] = turn.key
        self._login_entries.move_to_end(turn.login.written)
        while len(self._login_entries) > MAX_ENTRIES:
            self._login_entries.popitem(last=False)

    def _drop_stale_entries(self, entries: OrderedDict[bytes, _EntryState]) -> None:
        """Forget entries whose failures don't count any more, from the one that failed first on."""
        for key, entry in list(itertools.islice(entries.items(), 16)):
            if not (self._recent_failures(entry) or entry.under_way or entry.waiting):
                del entries[key]

    def _recent_failures(self, entry: _EntryState) -> int:
        now = self._clock.seconds()
        return sum(now - each < self._window for each in entry.failures)

    def _is_full(self, entry: _EntryState) -> bool:
        return self._recent_failures(entry) >= self._max_failures

    def _too_many_failures(self) -> DirectoryRefused:
        detail = (
            f"{self._max_failures} logins failed within {self._window:g} s, and more are not sent to the directory:"
            " the right password is refused too"
        )
        return DirectoryRefused(Reason.LDAP_FAILURES_TOO_MANY, detail)

    # The file

    def _read_file(self) -> None:
        if self._file is None:
            return
        try:
            found = [_parse_line(line) for line in self._file.read_text(encoding="utf-8").splitlines()]
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.warn("{file} can't be read, so that refused accounts are tried again: {why}", file=FILE, why=str(error))
            return
        now, wall = self._clock.seconds(), self._wall.seconds()
        for key, until, pause, detail in found[-MAX_ACCOUNTS:]:
            left = min(until - wall, pause)  # the machine's clock may have been set back
            if left > -LONGEST_PAUSE:
                self._accounts[key] = _AccountState(detail, now + left, pause)

    def _write_file(self) -> None:
        if self._file is None:
            return
        ahead = self._wall.seconds() - self._clock.seconds()
        kept = [(key, each) for key, each in self._accounts.items() if each.pause]
        lines = [f"{key.hex()} {each.until + ahead:.0f} {each.pause:.0f} {each.detail}\n" for key, each in kept]
        name = None
        try:
            # It has mode 0600.
            with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=self._file.parent, prefix=FILE, delete=False) as new:
                name = new.name
                new.writelines(lines)
            os.replace(name, self._file)
        except (OSError, ValueError) as error:
            log.warn(
                "{file} can't be written: after a restart refused accounts are tried again: {why}", file=FILE, why=error
            )
            if name is not None:
                with suppress(OSError):
                    os.unlink(name)


def _parse_line(line: str) -> tuple[bytes, float, float, str]:
    """Read a line of the file: a digest, until when it holds, for how long, and the directory's message."""
    key, until, pause, detail = line.split(" ", 3)
    return bytes.fromhex(key), float(until), min(max(float(pause), PAUSE), LONGEST_PAUSE), detail


def _cancel_permit(turn: _BindPermit) -> None:
    """End the wait for a permit that isn't wanted any more."""
    if not turn.granted.called:
        turn.granted.errback(Failure(DirectoryRefused(Reason.LDAP_UNAVAILABLE, "nobody waits for the turn any more")))

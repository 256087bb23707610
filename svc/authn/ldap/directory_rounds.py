"""Rounds that refuse users of LDAP directories who have no entry there any more (LDAP-20 to LDAP-27).

Note [No mass refusal]. A directory that is restored from an old copy, an account that may read less than before, or a filter
that was changed look as if people were gone. So a round counts all users who are missing and not yet refused, also those
whom it would not refuse before the next one. Where they are too many it changes nothing, and logs that.

Note [Lapsing]. A refusal is revoked when the entry is found. Where no server does rounds any more, nothing would find it. So
servers with a primary, whatever their settings, revoke refusals that no round has checked for ``LAPSE`` seconds. A server
waits as long before it does so the first time, or the first one of several to be started would do it.

Note [Repeated]. A round that changed nothing is repeated after a moment, and then whenever half of the time has passed for
which that has been so, up to the usual interval: many users are seldom looked for in vain. The time begins again with each
start, when the settings are others, and when health checks can bind to the directory again, so that a fault isn't reported
for long after it was mended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.authn.ldap.directory_settings import NAME, LdapMisconfiguration, LdapServers
from svc.model.authentication import LoginRequest, Problem
from svc.model.background import PeriodicService
from svc.model.errors import AuditUnavailable, OutcomeUnknown, ReadOnlyStandby, StoreUnavailable
from svc.model.events import NOTICE, AuditContext, Event, EventBatch, IJournal, Outcome
from svc.model.ldap_directories import (
    STATES_MOST,
    BaseUnreadable,
    DirectoryRefused,
    DirectoryUser,
    DirectoryUsersChange,
    EntryState,
    IDirectories,
    ScheduledRound,
)
from svc.model.names import ResourceName, RoleName
from svc.model.reasons import Reason
from svc.model.text import escape_unprintable, quote_text
from svc.storage.directory_users import DirectoryUserStore

#: Seconds between two checks for due rounds.
TICK: Final = 60.0

#: Seconds between the round that finds an entry missing, and the one that confirms it.
CONFIRM_SECONDS: Final = 600.0

#: Seconds after which refusals of an authenticator lapse that no server does rounds for (Note [Lapsing]).
LAPSE: Final = 900.0

#: How many users a round may find missing: a share of them, but one in any case, and so many at most.
MISSING_SHARE: Final = 10
MAX_MISSING: Final = 20

#: The number of accounts whose authenticators are read at once.
_ACCOUNTS_BATCH: Final = 500

#: The beginnings of faults: of those that a status finds by itself while they last, and of refused searches and records.
_UNASKED: Final = "the directory can't be asked: "
_UNSEARCHED: Final = "not everybody can be looked for: "
_UNRECORDED: Final = "that can't be recorded: "

#: Reasons for which a search, and no more, is refused.
_SEARCHES: Final = {Reason.LDAP_SEARCH_REFUSED, Reason.LDAP_ANSWER_MALFORMED}

#: How many users and faults are named.
_MAX_LISTED: Final = 20
_FAULTS: Final = 5

#: The words of an event: its operation, what was done or is to be, and why.
_REFUSE: Final = (
    "refuse",
    "revoked the tokens and refused the API key of",
    "revoke the tokens and refuse the API key of",
    "who has no usable entry in",
)
_ADMIT: Final = ("admit", "ceased to refuse", "cease to refuse", "who was missing in")

_log = Logger()


@attrs.frozen
class MissingEntries:
    """The users whose entries are missing, as logins and operators see them; ``ensure_writable`` is as ``Call`` has it."""

    users: DirectoryUserStore
    journal: IJournal
    ensure_writable: Callable[[], Awaitable[None]]

    async def mark_found(self, request: LoginRequest, role: RoleName) -> None:
        """Note that a directory has proven a user who was missing; where that can't be written, the next round does it.

        :raises AuditUnavailable: it can't be recorded.
        """
        origin = request.origin

        def make_trail(change: DirectoryUsersChange) -> EventBatch | None:
            return None if origin is None else EventBatch(origin, _change_events(change, str(role)))

        try:
            await self.ensure_writable()
            change = await self.users.clear_mark(role, make_trail)
        except (ReadOnlyStandby, StoreUnavailable) as refusal:
            _log.debug(
                "{role} stays refused until the next round: {why}", role=escape_unprintable(str(role)), why=str(refusal)
            )
            return
        if change and origin is not None:
            await self.journal.record_events(origin, _change_events(change, str(role)), Outcome())
        _log_change(change)

    async def problem(self, webservice: ResourceName) -> Problem | None:
        """Return why the last round of an authenticator changed nothing, where it isn't seen from the directory as it is."""
        fault = await self.users.read_fault(webservice, LAPSE)
        if fault is None or fault.startswith(_UNASKED):
            return None
        remedy = "Mend the directory; if these people are really gone, delete their users in policy."
        if fault.startswith(_UNSEARCHED):
            remedy = "Let the account that searches read all entries of people; the round is repeated by itself."
        if fault.startswith(_UNRECORDED):
            remedy = "Mend the audit, as the check of that name says; the round is repeated by itself."
        return Problem(f"Users who are gone from the directory go on: {fault}.", remedy)


@attrs.define
class _Fault:
    """Why the last round of an authenticator changed nothing, and since when rounds do, by the clock (Note [Repeated]).

    ``settings`` are those that were read last.
    """

    why: str
    since: float
    settings: object = None


class DirectoryRounds(PeriodicService):
    """Does a round of each authenticator ``every`` so many seconds, ``None`` for never, where there is a primary."""

    name = "directory rounds"

    def __init__(
        self,
        clock: IReactorTime,
        servers: LdapServers,
        directories: Callable[[], IDirectories],
        missing: MissingEntries,
        every: float | None,
        apart: float = CONFIRM_SECONDS,
    ) -> None:
        tick = TICK if every is None else min(TICK, every)
        super().__init__(clock, tick, self.run_due_rounds, _log, "Users of directories could not be looked after")
        self._pause = tick / 2
        self._clock, self._servers, self._directories, self._every, self._apart = clock, servers, directories, every, apart
        self._users, self._journal, self._demand_primary = missing.users, missing.journal, missing.ensure_writable
        self._origin = AuditContext(self._journal.server, None, "-", "-")
        #: The faults, by the authenticators' names.
        self._faults: dict[str, _Fault] = {}
        #: Authenticators whose rounds were begun and not ended.
        self._unfinished: set[str] = set()
        #: Since when this server has had a primary, by the clock.
        self._primary_since: float | None = None

    @property
    def failure(self) -> str | None:
        """Return why rounds change nothing, of some authenticators where they are many; ``None`` where all went well."""
        faults = [f"{name}: {fault.why}" for name, fault in sorted(self._faults.items())]
        more = [f"and {len(faults) - _FAULTS} more"] if len(faults) > _FAULTS else []
        return "; ".join([*faults[:_FAULTS], *more]) or None

    def repeat(self, name: str) -> None:
        """Have the round of an authenticator repeated soon, if the last one changed nothing."""
        if name in self._faults:
            self._faults[name].since = self._clock.seconds()

    async def run_due_rounds(self) -> None:
        """Do the rounds that are due, and revoke refusals that no round checks any more."""
        now = self._clock.seconds()
        try:
            await self._demand_primary()
            self._primary_since = now if self._primary_since is None else self._primary_since
            if self._every is not None:
                await self._run_rounds(self._every)
            if now - self._primary_since >= LAPSE:
                await self._record_change(await self._users.clear_stale_marks(LAPSE, self._make_trail))
        except ReadOnlyStandby:
            self._faults, self._unfinished, self._primary_since = {}, set(), None
        except (StoreUnavailable, OutcomeUnknown):
            """The pool says so in the log, and the next look tries again."""
        except AuditUnavailable as refusal:
            _log.warn("Who is refused for a missing entry can't be recorded: {why}", why=refusal.why)

    async def _run_rounds(self, every: float) -> None:
        after, seen = "", set[str]()
        while True:
            found = await self._servers.list_webservices(after, _ACCOUNTS_BATCH)
            webservices = {each: await self._again(each) for _, several in found for each in several}
            turns = await self._users.begin_rounds(webservices, every, self._apart) if webservices else ()
            self._unfinished.update(str(turn.webservice) for turn in turns if turn.due)
            for turn in turns:
                seen.add(str(turn.webservice))
                if str(turn.webservice) in self._unfinished:
                    await self._run_round(turn)
                else:
                    self._note_fault(turn.webservice, turn.fault)
            if len(found) < _ACCOUNTS_BATCH:
                self._faults = {name: fault for name, fault in self._faults.items() if name in seen}
                self._unfinished &= seen
                return
            after = found[-1][0]

    async def _again(self, webservice: ResourceName) -> float:
        """Return the seconds after which a round that changed nothing is repeated (Note [Repeated])."""
        fault = self._faults.get(str(webservice))
        if fault is None:
            return self._pause
        before, fault.settings = fault.settings, await self._servers.find_server(webservice)
        if before is not None and before != fault.settings:
            self.repeat(str(webservice))
        return max(self._pause, (self._clock.seconds() - fault.since) / 2)

    async def _run_round(self, turn: ScheduledRound) -> None:
        """Do one round, which changes nothing where it can't be trusted."""
        try:
            fault = await self._check_users(turn.webservice)
        except DirectoryRefused as refusal:
            partial = refusal.reason in _SEARCHES and not isinstance(refusal, BaseUnreadable)
            fault = f"{_UNSEARCHED if partial else _UNASKED}{refusal.detail} ({refusal.reason.value})"
        except AuditUnavailable as refusal:
            fault = f"{_UNRECORDED}{refusal.why}"
        if fault != turn.fault:
            await self._users.record_fault(turn.webservice, fault)
            name = escape_unprintable(str(turn.webservice))
            if fault is None:
                _log.info("The round of {webservice} went well again", webservice=name)
            else:
                _log.warn(
                    "Nobody is refused by the round of {webservice}: {why}", webservice=name, why=escape_unprintable(fault)
                )
        self._note_fault(turn.webservice, fault)
        self._unfinished.discard(str(turn.webservice))

    async def _check_users(self, webservice: ResourceName) -> str | None:
        """Look after all users of an authenticator; return why nothing follows from what was found.

        :raises DirectoryRefused: the directory can't be reached.
        """
        server = await self._servers.find_server(webservice)
        if isinstance(server, LdapMisconfiguration):
            return f"{_UNASKED}{server}"
        looked, missing, found = 0, list[RoleName](), list[RoleName]()
        after = ""
        while users := await self._users.list_users(webservice, after, STATES_MOST):
            after = str(users[-1].role)
            states = await self._directories().read_entry_states(server, [user.role.identifier for user in users])
            looked += sum(not user.refused for user in users)
            for user, state in zip(users, states, strict=True):
                if state in {EntryState.GONE, EntryState.DISABLED} and not user.refused:
                    missing.append(user.role)
                elif (state is EntryState.PRESENT and user.missing) or (
                    state is EntryState.AMBIGUOUS and _is_missing_once(user)
                ):
                    found.append(user.role)
        fault = mass_refusal_fault(looked, missing)
        if missing or found:
            self._journal.require_available()
            gone = missing if fault is None else ()
            await self._record_change(
                await self._users.record_findings(webservice, gone, found, self._apart, self._make_trail)
            )
        return fault

    def _note_fault(self, webservice: ResourceName, fault: str | None) -> None:
        if fault is None:
            self._faults.pop(str(webservice), None)
        else:
            self._faults.setdefault(str(webservice), _Fault(fault, self._clock.seconds())).why = fault

    def _make_trail(self, change: DirectoryUsersChange) -> EventBatch:
        return EventBatch(self._origin, _change_events(change, "svc"))

    async def _record_change(self, change: DirectoryUsersChange) -> None:
        if change:
            _log_change(change)
            await self._journal.record_events(self._origin, _change_events(change, "svc"), Outcome())


def mass_refusal_fault(looked: int, missing: Sequence[RoleName]) -> str | None:
    """Return that so many missing users of so many may be a fault of the directory (Note [No mass refusal]), if they may."""
    most = min(MAX_MISSING, max(1, looked // MISSING_SHARE))
    if len(missing) <= most:
        return None
    named = ", ".join(quote_text(role.identifier) for role in missing[:_MAX_LISTED])
    more = f" and {len(missing) - _MAX_LISTED} more" if len(missing) > _MAX_LISTED else ""
    return (
        f"{len(missing)} of {looked} users would be refused at once, and at most {most} are: the directory has no usable"
        f" entry of {named}{more}"
    )


def _is_missing_once(user: DirectoryUser) -> bool:
    """Return whether a user was found missing once, which says nothing where there are several entries now."""
    return user.missing and not user.refused


def _log_change(change: DirectoryUsersChange) -> None:
    for role, webservice in change.disabled:
        sentence = "{role} has no usable entry in the directory of {webservice} any more: tokens and API key are refused"
        _log.warn(sentence, role=escape_unprintable(str(role)), webservice=escape_unprintable(str(webservice)))
    for role, webservice in change.enabled:
        sentence = "{role} isn't refused any more for a missing entry in the directory of {webservice}"
        _log.info(sentence, role=escape_unprintable(str(role)), webservice=escape_unprintable(str(webservice)))


def _change_events(change: DirectoryUsersChange, user: str) -> tuple[Event, ...]:
    return tuple(
        Event(
            "directory-user",
            operation,
            (("role", str(role)), ("resource", str(webservice))),
            f"{did} {role}, {why} the directory of {webservice}",
            f"{does} {role}, {why} the directory of {webservice}",
            user,
            authenticator=NAME,
            service=webservice.identifier.partition("/")[2],
            severity=NOTICE,
        )
        for roles, operation, did, does, why in (
            (change.disabled, *_REFUSE),
            (change.enabled, *_ADMIT),
        )
        for role, webservice in roles
    )

"""The use cases of logging in, and of checking access tokens; the log of refusals, and the days of last logins.

An authenticator's wrappers have logged its refusals. Loggers keep the names by which filters of logs know them.

Note [No write of its own]. A login notes its role here, and that is all it costs. Every minute, and when many are noted, the
notes are written in batches; written roles are kept in memory until the day is over, so that a role is written once a day by
each process, and once more where a user has come by another directory. When the server stops, the rest is written. A killed
process loses the notes since its last round: one login in a minute. Of directories that take turns within a day, at several
processes, another than the last may be kept until the next day.

Note [Bounded]. The number of roles in memory is limited. When there are more, those that have been written are dropped, and
written once more if they log in again; while nothing can be written, further roles aren't noted, and the log says how many
logins that were. A follower can't write at all: it notes until it is full, and writes when it has become a primary.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
from twisted.internet.defer import CancelledError, Deferred, DeferredLock
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.crypto.tokens import AccessTokens, SigningKeys
from svc.model.authentication import (
    DAY,
    A,
    Admitted,
    Authenticate,
    Decide,
    ExplanationRequest,
    LoginRecord,
    LoginRequest,
    Q,
    ReadApiKey,
    Refused,
    spread_retry_after,
)
from svc.model.background import PeriodicService, run_in_background
from svc.model.clocks import WallClock
from svc.model.errors import (
    AuthenticationRefused,
    Forbidden,
    InvalidName,
    OutcomeUnknown,
    ReadOnlyStandby,
    RecordNotFound,
    StoreUnavailable,
    WrongDataKey,
)
from svc.model.names import RoleName, check_account_name
from svc.model.query_results import Caller
from svc.model.reasons import Reason, RefusalKind
from svc.model.request_notes import request_notes
from svc.model.text import escape_unprintable
from svc.services.invocation import Recorder
from svc.storage.last_logins import LastLoginStore
from svc.storage.roles import RoleStore

_log = Logger()
_refusal_log = Logger("svc.audit.refusals")
_notes_log = Logger("svc.authn.login_notes")


@attrs.frozen
class LoginService:
    """Logins at one authenticator: evidence is exchanged for an access token. ``record_login`` is called when there is one.

    ``by_token``: the evidence is a third party's token, which names its role; elsewhere people type names.
    """

    decide: Authenticate
    tokens: AccessTokens
    record_login: Callable[[Admitted], object]
    by_token: bool = False

    async def authenticate(self, request: LoginRequest, recorder: Recorder) -> bytes:
        """Return an access token for the role that a request proves.

        :raises AuthenticationRefused: the authenticator refuses, or the account's signing key can't be used.
        """
        return await self.issue_token(await self.admit_request(request, recorder))

    async def admit_request(self, request: LoginRequest, recorder: Recorder) -> Admitted:
        """Return the role that a request proves; raises as ``authenticate`` does."""
        decision = await self.decide(request)
        if isinstance(decision, Refused):
            recorder.add_audit_facts(role=decision.role, unknown=decision.reason is Reason.ROLE_UNKNOWN)
            raise _make_refusal(decision, by_token=self.by_token)
        recorder.add_audit_facts(role=decision.role.full_id)
        return decision

    async def issue_token(self, admitted: Admitted, until: float = math.inf) -> bytes:
        """Return an access token for a role that was admitted, which expires at a moment at the latest; raises the same."""
        try:
            token = await self.tokens.issue_token(admitted, until)
        except WrongDataKey as refusal:
            role = str(admitted.role)
            _log.error("No access token for {role}: the signing key {name} doesn't open", role=role, name=refusal.name)
            raise AuthenticationRefused(Reason.SIGNING_KEY_UNUSABLE, RefusalKind.POSTPONED, spread_retry_after()) from None
        self.record_login(admitted)
        return token


@attrs.frozen
class ApiKeyService:
    """Logins at one authenticator: evidence is exchanged for the role's own API key."""

    decide: ReadApiKey

    async def read_api_key(self, request: LoginRequest, recorder: Recorder) -> bytes:
        """Return the API key of the role that a request proves.

        :raises AuthenticationRefused: it proves none.
        """
        recorder.add_audit_facts(login=request.login)
        result = await self.decide(request)
        if isinstance(result, Refused):
            recorder.add_audit_facts(role=result.role, unknown=result.reason is Reason.ROLE_UNKNOWN)
            raise _make_refusal(result)
        return result


@attrs.frozen
class AccessTokenService:
    """Checks of access tokens by others."""

    roles: RoleStore
    keys: SigningKeys

    async def check_caller(self, caller: Caller) -> None:
        """Refuse with ``Forbidden`` when the role of a verified access token is gone."""
        if not await self.roles.caller_exists(caller):
            raise Forbidden("the token's role no longer exists")

    async def list_public_keys(self, account: str) -> list[dict[str, str]]:
        """Return the keys that verify an account's access tokens now, as members of a JWK set (TOK-33).

        :raises NotFound: there is no such account.
        """
        try:
            keys = await self.keys.public_keys(check_account_name(account))
        except InvalidName:
            keys = []
        if not keys:
            raise RecordNotFound(account, "account", account)
        return keys


def _make_refusal(refused: Refused, *, by_token: bool = False) -> AuthenticationRefused:
    """Return a refusal to raise; a name that no role has may be a password in the wrong field, and isn't passed on."""
    detail = refused.detail if refused.known or by_token else ""
    return AuthenticationRefused(
        refused.reason, refused.kind, refused.retry_after, detail=detail, known_role=refused.known_role
    )


def log_refusals(decide: Decide[Q, A], name: str) -> Decide[Q, A]:
    """Return a function that decides in the same way, and logs each refusal of something that was tried.

    ``name`` is that of the authenticator: ``authn-jwt``, for example.
    """

    async def decide_logged(request: Q) -> A | Refused:
        decision = await decide(request)
        if isinstance(decision, Refused) and not (isinstance(request, ExplanationRequest) and not request.tried):
            _log_refusal(name, request, decision)
        return decision

    return decide_logged


def _log_refusal(name: str, request: LoginRequest, refused: Refused) -> None:
    role, account = escape_unprintable(refused.role or request.login or "-"), escape_unprintable(request.account)
    service, client_ip = escape_unprintable(request.service_id or "-"), escape_unprintable(request.client_ip)
    detail, reason = escape_unprintable(refused.detail), refused.reason.value
    # The sentence is put together here: a refusal may not cost more than a success, and the logger takes its time per field.
    sentence = f"{name} refused {role}, account {account}, service {service}, from {client_ip}: {reason} ({detail})"
    notes = request_notes()
    if notes is not None and notes.request_id is not None:
        sentence = f"{sentence}, request {notes.request_id}"
    who = {"role": role, "account": account, "service": service, "client_ip": client_ip}
    why = {"repeats_as": f"{name} {reason}", "authenticator": name, "reason": reason, "detail": detail}
    _refusal_log.info("{sentence}", sentence=sentence, **who, **why)


#: Seconds between two rounds of notes, and for which the last one may take.
INTERVAL: Final = 60.0
LAST_ROUND: Final = 5.0

#: The most roles in notes, and the number of unwritten ones at which they are written at once.
MAX_ROLES: Final = 50_000
FLUSH_COUNT: Final = 10_000

#: How many are written by one statement.
BATCH: Final = 1000

_FAILED: Final = "Last logins could not be written"


class LastLoginRecorder(PeriodicService):
    """The notes of one process; nothing is written while ``ensure_writable`` raises ``ReadOnlyStandby``."""

    name = "login notes"

    def __init__(
        self,
        clock: IReactorTime,
        wall: WallClock,
        store: LastLoginStore,
        ensure_writable: Callable[[], Awaitable[None]],
        *,
        most: int = MAX_ROLES,
        many: int = FLUSH_COUNT,
    ) -> None:
        super().__init__(clock, INTERVAL, self.write_notes, _notes_log, _FAILED)
        self._clock, self._wall = clock, wall
        self._store, self._demand_primary = store, ensure_writable
        self._max_roles, self._flush_count = most, many
        self._day = 0
        #: Creations of the roles that logged in on this day, each with the directory that was noted last, if any was.
        self._noted_today: dict[RoleName, tuple[int, str | None]] = {}
        self._unwritten: dict[RoleName, LoginRecord] = {}
        self._lost_count = 0
        self._is_follower = False
        self._writing = DeferredLock()

    def note_login(self, admitted: Admitted) -> None:
        """Note a role that has logged in (Note [No write of its own])."""
        day = int(self._wall.seconds()) // DAY
        if day != self._day:
            self._day = day
            self._noted_today = {}
        role, creation = admitted.role, admitted.creation
        directory = admitted.directory if role.kind == "user" else None  # hosts have none
        known, known_directory = self._noted_today.get(role, (None, None))
        if known == creation and directory in {None, known_directory}:
            return
        self._add_note(LoginRecord(role, creation, day, directory))

    def note_directory(self, admitted: Admitted) -> None:
        """Note the directory of a user who was given an API key, which is no login yet (END-20)."""
        waiting, noted = self._unwritten.get(admitted.role), (admitted.creation, admitted.directory)
        if waiting is None or (waiting.creation, waiting.directory) != noted:
            self._add_note(LoginRecord(admitted.role, admitted.creation, None, admitted.directory))

    def _add_note(self, noted: LoginRecord) -> None:
        role, waiting = noted.role, self._unwritten.get(noted.role)
        if waiting is not None and waiting.creation == noted.creation:
            day = waiting.day if noted.day is None else noted.day
            directory = waiting.directory if noted.directory is None else noted.directory
            noted = LoginRecord(role, noted.creation, day, directory)
        if waiting is None and len(self._unwritten) >= self._max_roles:
            self._lost_count += noted.day is not None
            return
        if noted.day is not None and len(self._noted_today) >= self._max_roles:
            today = (each for each in self._unwritten.values() if each.day == self._day)
            self._noted_today = {each.role: (each.creation, each.directory) for each in today}
        if noted.day is not None or self._noted_today.get(role, (None, None))[0] == noted.creation:
            self._noted_today[role] = noted.creation, noted.directory
        self._unwritten[role] = noted
        if len(self._unwritten) >= self._flush_count and not self._writing.locked and not self._is_follower:
            run_in_background(self.write_notes(), _notes_log, _FAILED)

    async def write_notes(self) -> None:
        """Write what is noted, as far as that can be done now."""
        await self._writing.run(lambda: Deferred.fromCoroutine(self._write_batches()))

    def stopService(self) -> Deferred[None]:
        """Write the rest, as far as that can be done soon."""
        super().stopService()
        written = Deferred.fromCoroutine(self.write_notes()).addTimeout(LAST_ROUND, self._clock)
        written.addErrback(lambda failure: failure.trap(DeferredTimeout, CancelledError) and None)
        return written.addCallback(lambda _: self._log_unwritten())

    async def _write_batches(self) -> None:
        noted = list(self._unwritten.values())
        try:
            for start in range(0, len(noted), BATCH):
                await self._demand_primary()
                some = noted[start : start + BATCH]
                locked = set(await self._store.record_logins(some))
                for each in some:
                    if each not in locked and self._unwritten.get(each.role) is each:
                        del self._unwritten[each.role]
                self._is_follower = False
        except ReadOnlyStandby:
            self._is_follower = True
        except (StoreUnavailable, OutcomeUnknown):
            """The pool says so in the log, and the next round tries again."""
        lost, self._lost_count = self._lost_count, 0
        if lost and not self._is_follower:
            _notes_log.warn("{count} logins aren't kept as last logins: there are too many to be written", count=lost)

    def _log_unwritten(self) -> None:
        if self._unwritten and not self._is_follower:
            warning = "The last logins of {count} roles aren't kept: they could not be written before the end"
            _notes_log.warn(warning, count=len(self._unwritten))

"""Values and ports of authentication, of sessions, and of last logins.

Note [Not all at once]. Each client that is postponed gets a different time to retry, up to twice as far away as necessary,
so that clients that were postponed together don't come back together.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import date
from typing import Any, Final, NamedTuple, TypeVar

import attrs
from zope.interface import Interface

from svc.model.events import AuditContext
from svc.model.key_sets import DEFAULT_ALGORITHMS, KeySet
from svc.model.names import RoleName
from svc.model.query_results import Network, Sealed
from svc.model.reasons import POSTPONING_REASONS, Reason, RefusalKind


@attrs.frozen
class LoginRequest:
    """A request to be authenticated, of which nothing is verified.

    ``login`` is the decoded id of the path, ``None`` when left out. ``evidence`` is the API key, or the JWT's text.
    ``fault``: why no evidence could be read, as a code, and what was found. ``origin``: that of the events of any changes.
    """

    account: str
    login: str | None
    evidence: bytes = attrs.field(repr=False)
    client_ip: str
    service_id: str | None = None
    fault: tuple[Reason, str] | None = None
    origin: AuditContext | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def throttle_key(self) -> str:
        """The key that failures are counted under if no role is determined."""
        return f"{self.account}:{self.login}"


@attrs.frozen
class ExplanationRequest(LoginRequest):
    """A login by key or password that an operator asks about, from the address ``client_ip``.

    ``address`` is where the login is to come from. ``tried``: whether ``evidence`` is there, and is tried as by a login.
    """

    address: str = attrs.field(kw_only=True)
    tried: bool = attrs.field(kw_only=True)


@attrs.frozen
class Admitted:
    """A proven role, its ``creation`` and ``epoch`` (see ``Caller``), and the id of the key to sign its access token with.

    ``credential_version`` is that of the credential that proved it. ``lifetime`` is that of the access token, in seconds,
    ``None`` for the usual one. ``directory`` is as in ``LoginRecord``, and isn't compared: it has no part in the decision.
    """

    role: RoleName
    signing_key: str
    creation: int = 0
    epoch: int = 0
    credential_version: int = 0
    lifetime: int | None = None
    directory: str | None = attrs.field(default=None, eq=False)


@attrs.frozen
class Refused:
    """The authentication failed. ``detail`` names and compares what an operator needs to see, never evidence.

    ``role`` is the full id of the would-be role where one was determined, which is ``known`` to exist or may be any text.
    The client learns ``kind`` and ``retry_after`` (seconds) alone. ``late``: as after many failures, however few there were.
    """

    reason: Reason
    detail: str
    role: str | None = None
    kind: RefusalKind = RefusalKind.UNPROVEN
    retry_after: int | None = None
    known: bool = attrs.field(default=False, eq=False, kw_only=True)
    late: bool = attrs.field(default=False, eq=False, kw_only=True)

    @classmethod
    def for_reason(
        cls,
        reason: Reason,
        detail: str,
        role: str | None = None,
        kind: RefusalKind = RefusalKind.UNPROVEN,
        *,
        known: bool = False,
        chance: Callable[[], float] = random.random,
    ) -> Refused:
        """Make a refusal of this kind; for a reason of ``POSTPONING_REASONS``, one that postpones; for ``chance`` see
        ``spread_retry_after``.
        """
        if reason in POSTPONING_REASONS:
            return cls(reason, detail, role, RefusalKind.POSTPONED, spread_retry_after(chance=chance), known=known)
        return cls(reason, detail, role, kind, known=known)

    @property
    def known_role(self) -> str | None:
        """The role, if it exists: what was asked for otherwise may be a password in the wrong field."""
        return self.role if self.known else None


#: Seconds after which a client may retry where none are known, and over how many more seconds clients are spread at least.
DEFAULT_RETRY_SECONDS: Final = 2.0
_SPREAD: Final = 2.0


def spread_retry_after(
    seconds: float = DEFAULT_RETRY_SECONDS, chance: Callable[[], float] = random.random, most_spread: float = math.inf
) -> int:
    """Return after how many whole seconds a client should retry whose check is possible in ``seconds``, by a ``chance``."""
    return max(1, math.ceil(seconds + chance() * min(max(seconds, _SPREAD), most_spread)))


@attrs.frozen
class AuthenticatorSettings:
    """The settings of one authenticator, as they stood at ``etag``, which changes whenever any of them does.

    ``values`` has a key for each *declared* variable among those asked for; its value is ``None`` when none was ever set.
    ``switched``: on or off by ``PATCH``, ``None`` for never. ``distrusted``: ids and thumbprints of keys that verify nothing
    here. ``refreshes``: the number of an operator's last request for newer keys, 0 for none; the numbers rise over all
    authenticators.
    """

    etag: str
    values: Mapping[str, Sealed | None] = attrs.field(repr=False)
    switched: bool | None = None
    distrusted: frozenset[str] = frozenset()
    refreshes: int = 0


@attrs.frozen
class CandidateFacts:
    """A role that requests to be admitted by an authenticator, read in one round trip.

    ``etag`` is that of the authenticator's settings (see ``authn/evaluation.py``, Note [Optimistic settings]).
    ``annotations`` are those of the role's resource under the branch asked for, ordered by name; ``None`` where they are
    more than ``ANNOTATIONS_LIMIT`` or ``ANNOTATIONS_BYTES``. ``restrictions`` are as in ``Credential``.
    ``may_authenticate`` considers the first ``ROLES_FOLLOWED`` roles that it holds, the nearest first.
    """

    etag: str
    account_exists: bool
    role_exists: bool
    webservice_exists: bool
    may_authenticate: bool
    annotations: Mapping[str, str] | None
    signing_key: str | None
    restrictions: tuple[Network, ...] = ()
    #: The role's (see ``Caller``). Not compared: no two stores make the same.
    creation: int = attrs.field(default=0, eq=False)
    epoch: int = attrs.field(default=0, eq=False)


@attrs.frozen(cache_hash=True)
class KeySource:
    """The place where an identity provider publishes its keys for ``algorithms``; keys for others count in no respect.

    ``uri`` is that of a JWK set or, when ``discovered``, of an OIDC provider whose discovery document names one.
    ``ca_cert``: PEM of the only authorities to trust there; ``None`` stands for the platform's. ``token`` is shown there.
    """

    uri: str
    discovered: bool = False
    ca_cert: str | None = attrs.field(default=None, repr=False)
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS
    token: str | None = attrs.field(default=None, repr=False)


@attrs.frozen
class KeysState:
    """The state of a provider's keys on this server; moments are in seconds since the epoch.

    ``keys`` are the ids of the usable ones with their thumbprints; ``problems`` and ``unused`` are as in ``KeySet``.
    ``fetched_at`` is about the cached set, if any; ``attempted_at`` and ``failure`` about the last attempt.
    """

    keys: tuple[tuple[str | None, str], ...] = ()
    problems: tuple[str, ...] = ()
    fetched_at: float | None = None
    attempted_at: float | None = None
    failure: str | None = None
    unused: tuple[str, ...] = ()


#: Most that a login reads of a role: roles that it holds, annotations and their bytes, and networks.
ROLES_FOLLOWED: Final = 10_000
ANNOTATIONS_LIMIT: Final = 256
ANNOTATIONS_BYTES: Final = 256 * 1024
RESTRICTIONS_LIMIT: Final = 1000

#: Most webservices of authenticators that are listed, and of one account among many.
WEBSERVICES_LIMIT: Final = 1000
WEBSERVICES_PER_ACCOUNT: Final = 20

#: Keys that one authenticator can distrust: every login reads them.
DISTRUSTED_LIMIT: Final = 256


@attrs.frozen
class DistrustedKey:
    """A key, by id or thumbprint, that an authenticator distrusts, since when (epoch seconds), and by whose request."""

    key: str
    since: float
    by: str


@attrs.frozen
class Problem:
    """A fault of a configuration, and its remedy: a sentence each."""

    what: str
    remedy: str


@attrs.frozen
class AuthenticatorStatus:
    """The state of an authenticator, for operators.

    ``source`` is the origin of its keys: ``jwks-uri``, ``provider-uri`` or ``public-keys``, ``None`` if unknown.
    ``clock_offset``: by how many seconds the clock here is ahead of the provider's at most, by the ``iat`` of as many recent
    ``tokens``; ``None`` when there were none. ``algorithms`` are those with which a token may be signed.
    """

    problems: tuple[Problem, ...]
    source: str | None = None
    uri: str | None = None
    keys: KeysState = KeysState()
    distrusted: tuple[DistrustedKey, ...] = ()
    clock_offset: float | None = None
    tokens: int = 0
    algorithms: tuple[str, ...] = ()


@attrs.frozen
class ExplanationStep:
    """One check of an authentication, for operators.

    ``outcome`` is ``passed``, ``failed``, ``not reached`` or, where no evidence was given, ``not tried``. ``detail`` has the
    names and values that were compared, never the evidence.
    """

    check: str
    outcome: str
    detail: str = ""
    reason: Reason | None = None


@attrs.frozen
class Explanation:
    """The decision on a request: every check in order, and the full id of the role where one was determined.

    ``admitted`` is ``None`` where nothing fails, and no evidence was tried.
    """

    steps: tuple[ExplanationStep, ...]
    role: str | None
    admitted: bool | None


@attrs.frozen
class ExplainedRefusal(Refused):
    """A refusal with every check, in order."""

    steps: tuple[ExplanationStep, ...] = ()


Q = TypeVar("Q", bound=LoginRequest)
A = TypeVar("A")

#: Decides on a request. A refusal is a value; an exception other than ``StoreUnavailable`` is a bug. A wrapper of
#: logins takes one such function, and returns another.
Decide = Callable[[Q], Coroutine[Any, Any, A | Refused]]

#: Evidence to role.
Authenticate = Decide[LoginRequest, Admitted]

#: Returns the role's API key, unchanged, when the evidence proves the role: the key itself, or its password. It may raise
#: ``PasswordsBusy`` too.
ReadApiKey = Decide[LoginRequest, bytes]

#: Decides as a login by key or password would, and returns every check's outcome, in a refusal too; nothing is admitted. A
#: refusal without checks was made before any of them. It may raise ``PasswordsBusy``.
Explain = Decide[ExplanationRequest, Explanation]


class IProviderKeys(Interface):
    """The verification keys of third parties (AUTH-43 to AUTH-49)."""

    async def current_keys(source: KeySource, refreshes: int = 0, request: LoginRequest | None = None) -> KeySet:
        """Return the cached set of a source, fetching it when there is none.

        ``refreshes`` is as in ``AuthenticatorSettings``; authenticators share sources. A set of a lower number is fetched
        again, once for each number, whatever the budget; when that fails, the cached set stays, and is returned. ``request``
        is the login that may have to wait, if it is one.

        :raises KeysUnavailable: no set is cached, and none could be fetched, or may be fetched yet, or waited for.
        """

    async def fetch_newer_keys(source: KeySource, seen: KeySet, request: LoginRequest | None = None) -> KeySet:
        """Return a set fetched after ``seen``, which did not verify a token: unknown ``kid`` or wrong signature.

        Fetches when no newer one is cached and the budget allows it; concurrent calls share one fetch. A failed fetch leaves
        the old set in place. Where the budget is spent and ``seen`` was fetched a moment ago, it is returned.

        :raises KeysUnavailable: there is no newer set, and none could be fetched, or may be fetched yet, or waited for.
        """

    def keys_state(source: KeySource) -> KeysState:
        """Return the state of a source, without a request to it."""


#: How many sessions a user has at once; the least recently used one is removed for a new one.
SESSIONS_PER_USER: Final = 20


@attrs.frozen
class UserSession:
    """A session as it is listed: when it began and ends, and when and from which address it was last used."""

    id: str
    created_at: float
    expires_at: float
    used_at: float
    used_from: str


@attrs.frozen
class SessionFacts:
    """A session with all facts for renewing it, read in one round trip.

    ``token`` and ``used`` are digests of refresh tokens: of the one for the next renewal, and of the one that made it, from
    ``seed``. ``outdated`` says what about the role has changed since the login, ``None`` for nothing. The rest is as in
    ``Credential``.
    """

    session: UserSession
    token: bytes = attrs.field(repr=False)
    used: bytes | None = attrs.field(repr=False)
    seed: bytes | None = attrs.field(repr=False)
    outdated: str | None
    signing_key: str | None
    restrictions: tuple[Network, ...] = ()
    #: The role's (see ``Caller``). Not compared: no two stores make the same.
    creation: int = attrs.field(default=0, eq=False)
    epoch: int = attrs.field(default=0, eq=False)


@attrs.frozen
class Renewed(Admitted):
    """A proven role whose session continues, with the refresh token for the next renewal."""

    session: str = attrs.field(kw_only=True)
    expires_at: float = attrs.field(kw_only=True)
    refresh_token: str = attrs.field(kw_only=True, repr=False)


DAY: Final = 86_400
_FIRST: Final = date(1970, 1, 1).toordinal()


def day_of(seconds: float) -> int:
    """Return the day of a moment, in seconds since the epoch."""
    return int(seconds // DAY)


def iso_day(day: int) -> str:
    """Return a day as ``2026-05-09``."""
    return date.fromordinal(day + _FIRST).isoformat()


@attrs.frozen
class LoginRecord:
    """A role that logged in on a day; ``creation`` as in ``Caller``: the next role of its name hasn't.

    ``day`` is ``None`` where it was given its API key, which is no login (END-20). ``directory`` is the full id of the LDAP
    authenticator that it was admitted by, empty for another one that takes no API key, and ``None`` for neither.
    """

    role: RoleName
    creation: int
    day: int | None
    directory: str | None = None


@attrs.frozen
class LastLogin:
    """The day on which a role logged in last, ``None`` for none since these are kept, in epoch seconds."""

    day: int | None
    kept_since: float


@attrs.frozen
class IdleRole:
    """A user or host: its full id, when it was made, in epoch seconds, and the day of its last login, if there was one."""

    role: str
    created_at: float
    day: int | None


class IdleRolesCursor(NamedTuple):
    """Where a part of the list of roles ends: first those without a login, by when they were made, then others by day.

    ``at`` is that moment or that day.
    """

    logged_in: bool
    at: float
    role: str


#: Before the first.
IDLE_ROLES_START: Final = IdleRolesCursor(False, 0.0, "")


@attrs.frozen
class IdleRolesPage:
    """A part of that list, and how far it goes: ``None`` for the end of the list."""

    roles: Sequence[IdleRole]
    last: IdleRolesCursor | None

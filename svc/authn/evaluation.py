"""Authenticators of tokens that a third party signed, and a login on its way through their checks.

They decide on logins, explain decisions, and report their state.

Note [One table]. Decisions and explanations go through one table of checks, in the order in which failures count, so that
they can't disagree; each kind of authenticator has its own. Some checks need what the store knows of the candidate, who is
known when the others have passed: an evaluation first *proves* what it can without the store, and then *decides*.

Where no check waits for anything (``FactCheck``), all facts are collected before the first one, by the same work for every
role.

Note [Optimistic settings]. Operators set addresses, issuer and audience in variables, which are sealed in the database. A
login is checked with cached settings, and then makes one read of all else that it needs, with the ``etag`` that the
settings have now. If that is another one, the settings are read again and the login is decided again, from the signature on.
So a login costs one round trip, and none is decided with outdated settings: an operator who replaces a provider's address
locks its tokens out at once, on every server. The same holds for distrusted keys, the switch, and requests for newer keys
(AUTH-3).

The candidate may come from the read cache, which may be a little older than the settings at hand, or newer. Where their
etags differ both are read afresh.

Note [Same work]. That read is made for every token, proven or not, and for a role that can't exist when none is known. So
an unknown host, a wrong claim and a missing membership cost the same, and timing reveals nothing (FAIL-18). It also makes
refusals that depend on the settings as fresh as admissions.

Note [Undecided logins]. Without the provider's keys a login is postponed, not refused (FAIL-12). Nobody looks up the host
of a path before the signature is verified, so that this depends on the authenticator and the text of the token alone, and is
the same whether a host exists or not. Failures before the keys are unproven still: an authenticator that isn't enabled or
defined, settings that don't fit, a text that is no token, an unknown account (which accounts there are is no secret, since
their own keys are published). In an account without a signing key every login is postponed.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import attrs

from svc.authn.settings import Configuration, Misconfiguration, Values, fetch_problem, open_values, why_disabled
from svc.crypto.vault import Vault
from svc.model.authentication import (
    Admitted,
    AuthenticatorSettings,
    AuthenticatorStatus,
    CandidateFacts,
    Explanation,
    ExplanationStep,
    IProviderKeys,
    KeySource,
    KeysState,
    LoginRequest,
    Problem,
    Refused,
)
from svc.model.clocks import WallClock
from svc.model.dialect import SINGLE_TYPES, Dialect, authenticator_name
from svc.model.errors import InvalidName, KeysUnavailable, StoreUnavailable
from svc.model.key_sets import ALGORITHMS, EvidenceRefused, KeySet, SignedClaims, UnverifiedJws
from svc.model.listed_authenticators import ListedAuthenticators
from svc.model.names import ResourceName, RoleName
from svc.model.reasons import POSTPONING_REASONS, Reason, RefusalKind
from svc.model.text import quote_text
from svc.storage.authenticators import AuthenticatorStore

#: The kinds of refusals that differ from that of evidence that proves nothing, unless a kind says otherwise.
DISTINCT_REFUSALS: Final[Mapping[Reason, RefusalKind]] = {
    Reason.REQUEST_MALFORMED: RefusalKind.MALFORMED,
    Reason.TOKEN_MISSING: RefusalKind.MALFORMED,
    Reason.TOKEN_TOO_LARGE: RefusalKind.TOO_LARGE,
}

#: Recent tokens by whose ``iat`` the provider's clock is known.
_RECENT_ARRIVALS: Final = 100


@attrs.frozen(eq=False)
class Context:
    """The parts that all evaluations of a server share. ``clock_skew`` is in seconds, ``token_limit`` in bytes."""

    dialect: Dialect
    keys: IProviderKeys
    wall: WallClock
    clock_skew: float
    token_limit: int
    issuer_mandatory: bool


class ClockSample(NamedTuple):
    """A token that came at the moment ``at``, ``delay`` seconds after its ``iat``; ``early``: it was refused for that."""

    at: float
    delay: float
    early: bool = False


@attrs.frozen(eq=False)
class CachedSettings:
    """An authenticator's settings as read, and what follows from them; ``arrivals`` are those of recent tokens.

    ``service`` is its name, such as ``authn-jwt/ci``; ``disabled`` says why it may not be used, ``None`` if it may, while
    the configuration lists it or not, as ``listed`` says.
    """

    settings: AuthenticatorSettings
    meaning: Configuration | Misconfiguration
    service: str
    disabled: Problem | None = None
    listed: bool = False
    arrivals: deque[ClockSample] = attrs.Factory(lambda: deque(maxlen=_RECENT_ARRIVALS))


@attrs.define(eq=False)
class Evaluation:
    """One request on its way through the checks, with their findings; each check uses those of earlier ones.

    ``service`` is the authenticator's name, such as ``authn-jwt/ci``; ``listed``: whether the configuration names it.
    ``failed`` is the check whose ``refusal`` counts. ``now`` is when the evidence was verified. ``annotations`` are those
    that ``AuthenticatorKind.select_annotations`` returned. ``lifetime`` is that of the access token, in seconds, ``None``
    for the usual one. A kind whose checks find more has a type of its own.
    """

    context: Context
    request: LoginRequest
    service: str
    listed: bool
    cached: CachedSettings
    failed: Check[Any] | None = None
    refusal: EvidenceRefused | None = None
    role: RoleName | None = None
    lifetime: int | None = None
    configuration: Configuration = attrs.field(init=False)
    now: float = attrs.field(init=False)
    candidate: CandidateFacts = attrs.field(init=False)
    annotations: Mapping[str, str] = attrs.field(init=False)

    async def run_proof_checks(self, checks: Sequence[Check[Any]]) -> None:
        """Run these checks, which need no store, up to the first failure."""
        for check in checks:
            try:
                waiting = check.run(self)
                if waiting is not None:
                    await waiting
            except EvidenceRefused as refusal:
                self.failed, self.refusal = check, refusal
                return

    def run_candidate_checks(
        self, checks: Sequence[Check[Any]], candidate: CandidateFacts, annotations: Mapping[str, str]
    ) -> None:
        """Run the rest of all checks. An earlier failure stands unless a check before it in the table fails now."""
        self.candidate, self.annotations = candidate, annotations
        for check in checks:
            if check is self.failed:
                return
            if check.needs_candidate:
                try:
                    check.run(self)
                except EvidenceRefused as refusal:
                    self.failed, self.refusal = check, refusal
                    return

    def explain_steps(self, checks: Sequence[Check[Any]]) -> Iterator[ExplanationStep]:
        """Return the outcome of every check, once decided."""
        reached = True
        for check in checks:
            if check is self.failed and self.refusal is not None:
                reached = False
                yield ExplanationStep(check.name, "failed", self.refusal.detail, self.refusal.reason)
            elif reached:
                yield ExplanationStep(check.name, "passed", check.describe(self))
            else:
                yield ExplanationStep(check.name, "not reached")


@attrs.define(eq=False)
class TokenEvaluation(Evaluation):
    """The evaluation of a token that a third party signed; ``keys`` verified it.

    ``issuer`` is what ``iss`` must be, ``None`` for anything. ``issued_at`` is the ``iat``, ``None`` where that is absent or
    no time; ``early``: it is ahead of the time here.
    """

    token: UnverifiedJws = attrs.field(init=False, repr=False)
    keys: KeySet = attrs.field(init=False)
    claims: SignedClaims = attrs.field(init=False, repr=False)
    issuer: str | None = attrs.field(init=False)
    issued_at: float | None = attrs.field(init=False)
    early: bool = attrs.field(init=False)


E = TypeVar("E", bound=Evaluation)


@attrs.frozen(eq=False)
class Check(Generic[E]):
    """A check by its name. ``run`` raises ``EvidenceRefused``, at once or when awaited; ``describe`` returns what passed.

    ``needs_candidate``: whether it needs to know the candidate.
    """

    name: str
    run: Callable[[E], Awaitable[None] | None]
    describe: Callable[[E], str]
    needs_candidate: bool = False


@attrs.frozen(eq=False)
class AuthenticatorKind:
    """A kind of authenticator.

    ``name`` is that of its type, such as ``authn-jwt``; ``evaluation`` is what its checks take. ``variables`` are those that
    it reads; ``parse_values`` returns the meaning of their values (``settings.Values``). ``checks`` stand in the order in
    which failures count. ``select_annotations`` returns the annotations for the authenticator of a name such as
    ``authn-jwt/ci``, by the rest of their names, among those below that name or, where annotations may be
    ``has_general_annotations``, those below the name of the type. ``refusal_kinds`` has the reasons that are distinguished
    from evidence that proves nothing. ``sends_evidence``: a check sends something to the provider, so that outdated settings
    won't do. Of settings that are sound in themselves ``find_problems`` returns what else is wrong, which it asks for, and
    ``recorded_problems`` what logins here have shown. ``consume_evidence`` is awaited when a login has passed all checks: it
    takes evidence that admits once, or raises ``EvidenceRefused``. ``issuer_mandatory``: tokens have ``iss`` in each
    dialect.
    """

    name: str
    variables: tuple[str, ...]
    checks: tuple[Check[Any], ...]
    parse_values: Callable[[Values, Dialect], Configuration | Misconfiguration]
    select_annotations: Callable[[Mapping[str, str], str], Mapping[str, str]]
    has_general_annotations: bool = False
    refusal_kinds: Mapping[Reason, RefusalKind] = DISTINCT_REFUSALS
    sends_evidence: bool = False
    find_problems: Callable[[Configuration], Awaitable[list[Problem]]] | None = None
    recorded_problems: Callable[[Configuration], list[Problem]] | None = None
    consume_evidence: Callable[[Any], Awaitable[None]] | None = None
    evaluation: type[Evaluation] = TokenEvaluation
    issuer_mandatory: bool = True


F = TypeVar("F")

Objection = tuple[Reason, str]


@attrs.frozen(eq=False)
class FactCheck(Generic[F]):
    """A check by its name: ``objection`` says why the facts refuse the login, ``describe`` what passed.

    ``of_evidence``: it means nothing while no key or password is tried.
    """

    name: str
    objection: Callable[[F], Objection | None]
    describe: Callable[[F], str]
    of_evidence: bool = False


def first_objection(checks: Sequence[FactCheck[F]], facts: F, *, tried: bool = True) -> Objection | None:
    """Return the failure that counts; ``None`` where there is none."""
    for check in checks:
        if tried or not check.of_evidence:
            objection = check.objection(facts)
            if objection is not None:
                return objection
    return None


def explain_steps(checks: Sequence[FactCheck[F]], facts: F, *, tried: bool = True) -> tuple[ExplanationStep, ...]:
    """Return the outcome of every check, of which the first that fails is the one that counts."""
    steps: list[ExplanationStep] = []
    failed = False
    for check in checks:
        if failed:
            steps.append(ExplanationStep(check.name, "not reached"))
        elif not tried and check.of_evidence:
            steps.append(ExplanationStep(check.name, "not tried"))
        elif (objection := check.objection(facts)) is not None:
            failed = True
            steps.append(ExplanationStep(check.name, "failed", objection[1], objection[0]))
        else:
            steps.append(ExplanationStep(check.name, "passed", check.describe(facts)))
    return tuple(steps)


#: The most authenticators whose settings are cached, and as many without any.
_CACHE_LIMIT: Final = 1000

#: Seconds for which a token that was refused as one from the future shows that the provider's clock is ahead.
_CLOCK_WINDOW: Final = 3600.0

#: How often a login is decided afresh because its settings changed meanwhile.
_MAX_DECISIONS: Final = 3


def _source_name(source: KeySet | KeySource) -> str:
    """Return the name of the variable that names the source of keys."""
    if isinstance(source, KeySet):
        return "public-keys"
    return "provider-uri" if source.discovered else "jwks-uri"


class FederatedAuthenticator:
    """Admits roles that prove themselves with a third party's token, to the webservices ``<prefix>/<kind>/<service id>``.

    ``enabled`` are the names ``<kind>/<service id>`` that the configuration lists, those of a kind without service ids bare.
    ``clock_skew`` is in seconds, ``token_limit`` in bytes. ``ignore_missing_issuer`` lets a token be without ``iss`` where
    the dialect demands one.
    """

    def __init__(
        self,
        kind: AuthenticatorKind,
        store: AuthenticatorStore,
        keys: IProviderKeys,
        vault: Vault,
        wall: WallClock,
        dialect: Dialect,
        enabled: ListedAuthenticators,
        *,
        clock_skew: float,
        token_limit: int,
        ignore_missing_issuer: bool,
    ) -> None:
        issuer_mandatory = kind.issuer_mandatory or (dialect.issuer_mandatory and not ignore_missing_issuer)
        self._kind = kind
        #: Whether an account has one authenticator of this kind, without a service id.
        self._is_single = kind.name in SINGLE_TYPES
        postponed = dict.fromkeys(POSTPONING_REASONS, RefusalKind.POSTPONED)
        revealed = {Reason.PRIVILEGE_MISSING: RefusalKind.UNPRIVILEGED} if dialect.reveals_missing_privilege else {}
        self._refusal_kinds = {**kind.refusal_kinds, **postponed, **revealed}
        named = {check.name: check for check in kind.checks}
        self._enabled_check, self._account_check = named["enabled"], named["account"]
        #: The checks that need no store.
        self._proof_checks = tuple(check for check in kind.checks if not check.needs_candidate)
        self._context = Context(dialect, keys, wall, clock_skew, token_limit, issuer_mandatory)
        self._store = store
        self._vault = vault
        self._dialect = dialect
        self._enabled = enabled
        self._settings_cache = _SettingsCache()

    async def authenticate(self, request: LoginRequest) -> Admitted | Refused:
        """Decide on one request.

        :raises StoreUnavailable: the store can't be reached, or the settings kept changing meanwhile.
        """
        evaluation = await self._evaluate_request(request)
        refusal = evaluation.refusal
        if refusal is None and self._kind.consume_evidence is not None:
            try:
                await self._kind.consume_evidence(evaluation)
            except EvidenceRefused as not_claimed:
                refusal = not_claimed
        if refusal is not None:
            role = None if evaluation.role is None else str(evaluation.role)
            kind = self._refusal_kinds.get(refusal.reason, RefusalKind.UNPROVEN)
            known = evaluation.role is not None and evaluation.candidate.role_exists
            return Refused(refusal.reason, refusal.detail, role, kind, refusal.retry_after, known=known)
        assert evaluation.role is not None
        candidate = evaluation.candidate
        assert candidate.signing_key is not None
        numbers = candidate.creation, candidate.epoch
        return Admitted(evaluation.role, candidate.signing_key, *numbers, lifetime=evaluation.lifetime, directory="")

    async def explain(self, request: LoginRequest) -> Explanation:
        """Decide in the same way, and return the outcome of every check.

        :raises StoreUnavailable: as ``authenticate`` does.
        """
        evaluation = await self._evaluate_request(request)
        role = None if evaluation.role is None else str(evaluation.role)
        return Explanation(tuple(evaluation.explain_steps(self._kind.checks)), role, evaluation.refusal is None)

    async def _evaluate_request(self, request: LoginRequest) -> Evaluation:
        """Evaluate a request with the settings as they are now (Note [Optimistic settings])."""
        kind, account, service_id = self._kind, request.account, request.service_id
        named = self._is_single == (service_id is None)
        cached = self._settings_cache.get(account, service_id) if named and not kind.sends_evidence else None
        service = authenticator_name(kind.name, service_id) if cached is None else cached.service
        branch, enabled = f"{self._dialect.prefix}/{service}", self._enabled
        listed = named and (service in enabled.names or enabled.matches_pattern(service))
        if cached is not None and cached.listed is not listed:
            cached = None  # The list of the configuration was read again.
        if cached is None:
            refused = self._refuse_unread(request, branch, listed=listed, named=named)
            if refused is not None:
                nothing = CachedSettings(AuthenticatorSettings("", {}), Misconfiguration(()), service)
                return kind.evaluation(self._context, request, service, listed, nothing, *refused)
        for attempt in range(_MAX_DECISIONS):
            if cached is None:
                cached = self._cache_settings(account, service_id, await self._read_settings(account, branch))
            evaluation = kind.evaluation(self._context, request, service, listed, cached)
            await evaluation.run_proof_checks(self._proof_checks)
            # No identifier is empty, so that this role can't exist (Note [Same work]).
            role = evaluation.role or RoleName(account, "host", "")
            annotated = kind.name if kind.has_general_annotations else service
            candidate = await self._store.read_candidate(role, branch, kind.variables, annotated, afresh=attempt > 0)
            if candidate.etag == cached.settings.etag:
                evaluation.run_candidate_checks(
                    kind.checks, candidate, kind.select_annotations(candidate.annotations or {}, service)
                )
                return evaluation
            self._settings_cache.drop(account, service_id, cached)
            cached = None if kind.sends_evidence else self._settings_cache.get(account, service_id)
        raise StoreUnavailable(f"the settings of {branch} kept changing while a login was decided")

    def _refuse_unread(
        self, request: LoginRequest, branch: str, *, listed: bool, named: bool
    ) -> tuple[Check[Any], EvidenceRefused] | None:
        """Return the refusal of a request whose authenticator can't be enabled, or whose account can't exist."""
        try:
            webservice = ResourceName.from_parts(request.account, "webservice", branch)
        except InvalidName as error:
            detail = f"there can't be {quote_text(branch)} in {quote_text(request.account)}: {error.message}"
            if listed:
                return self._account_check, EvidenceRefused(Reason.ACCOUNT_UNKNOWN, detail)
            return self._enabled_check, EvidenceRefused(Reason.AUTHENTICATOR_NOT_ENABLED, detail)
        if not named or not (listed or self._dialect.switch_enables):
            detail = f"{quote_text(webservice.identifier)} is not listed in the configuration"
            return self._enabled_check, EvidenceRefused(Reason.AUTHENTICATOR_NOT_ENABLED, detail)
        return None

    async def read_status(self, account: str, service_id: str | None, *, ask: bool = True) -> AuthenticatorStatus:
        """Return the state of one authenticator, without ``distrusted``; keys that aren't cached are fetched if ``ask``.

        No provider is queried for an authenticator that isn't enabled.

        :raises StoreUnavailable: the store can't be reached.
        :raises InvalidName: no authenticator can be called so.
        """
        service = authenticator_name(self._kind.name, service_id)
        webservice = ResourceName.from_parts(account, "webservice", f"{self._dialect.prefix}/{service}")
        settings = await self._read_settings(account, webservice.identifier)
        cached = self._cache_settings(account, service_id, settings)
        disabled = cached.disabled
        problems = [] if disabled is None else [disabled]
        if isinstance(cached.meaning, Misconfiguration):
            problems += cached.meaning.problems
        source = cached.meaning.keys
        state = await self._read_keys_state(source, settings, problems, ask=ask and disabled is None)
        if disabled is None and isinstance(cached.meaning, Configuration):
            problems += [] if self._kind.recorded_problems is None else self._kind.recorded_problems(cached.meaning)
            problems += [] if self._kind.find_problems is None or not ask else await self._kind.find_problems(cached.meaning)
            problems += self._clock_problems(cached)
        if state.keys and all(not settings.distrusted.isdisjoint(names) for names in state.keys):
            remedy = "Have the provider make a new key and refresh the keys, or trust one of these again."
            problems.append(Problem("Every key of the provider is distrusted.", remedy))
        algorithms = cached.meaning.algorithms
        return AuthenticatorStatus(
            tuple(problems),
            None if source is None else _source_name(source),
            source.uri if isinstance(source, KeySource) else None,
            state,
            clock_offset=min((arrival.delay for arrival in cached.arrivals), default=None),
            tokens=len(cached.arrivals),
            algorithms=() if algorithms == ALGORITHMS and problems else algorithms,
        )

    async def cached_keys_state(self, account: str, service_id: str | None) -> tuple[str, KeysState] | None:
        """Return the address and the state of a provider's keys, as ``IProviderKeys.keys_state``, without a request to the
        provider.

        ``None`` where the settings name no provider.

        :raises StoreUnavailable: the store can't be reached.
        """
        branch = f"{self._dialect.prefix}/{authenticator_name(self._kind.name, service_id)}"
        source = self._cache_settings(account, service_id, await self._read_settings(account, branch)).meaning.keys
        return (source.uri, self._context.keys.keys_state(source)) if isinstance(source, KeySource) else None

    async def _read_keys_state(
        self,
        source: KeySet | KeySource | None,
        settings: AuthenticatorSettings,
        problems: list[Problem],
        *,
        ask: bool,
    ) -> KeysState:
        """Return the state of the keys, fetched if need be where ``ask`` permits it; append the failure of a fetch."""
        if source is None:
            return KeysState()
        if isinstance(source, KeySet):
            named = tuple((key.key_id, key.thumbprint) for key in source.keys)
            return KeysState(named, source.problems, unused=source.unused)
        keys, variables, why = self._context.keys, self._kind.variables, None
        try:
            if ask:
                await keys.current_keys(source, settings.refreshes)
        except KeysUnavailable as error:
            why = error.why
        state = keys.keys_state(source)
        if why is not None:
            problems.append(fetch_problem("There are no keys", state.failure or why, variables, settings.values))
        elif state.keys and state.failure is not None:
            failed = fetch_problem("The last fetch of the keys failed", state.failure, variables, settings.values)
            still = "Logins go on with the keys that were fetched before, but not after a new start of the server."
            problems.append(attrs.evolve(failed, what=f"{failed.what} {still}"))
        return state

    def _clock_problems(self, cached: CachedSettings) -> list[Problem]:
        """Return that tokens are refused because the provider's clock is ahead, if any was of late."""
        since = self._context.wall.seconds() - _CLOCK_WINDOW
        recent = [arrival for arrival in cached.arrivals if arrival.at >= since]
        refused = [-arrival.delay for arrival in recent if arrival.early]
        if not refused:
            return []
        ahead = max(refused)
        what = (
            f"The provider's clock is ahead of this server's by {ahead:.3g} s:"
            f" {len(refused)} of {len(recent)} recent tokens were refused for it."
        )
        return [Problem(what, f"Set both clocks by NTP, or start the server with --clock-skew {math.ceil(ahead)}.")]

    async def _read_settings(self, account: str, branch: str) -> AuthenticatorSettings:
        return await self._store.read_settings(account, branch, self._kind.variables)

    def _cache_settings(self, account: str, service_id: str | None, settings: AuthenticatorSettings) -> CachedSettings:
        """Return parsed settings, and cache them, unless they are cached already."""
        cached = self._settings_cache.get(account, service_id)
        service = authenticator_name(self._kind.name, service_id)
        listed = service in self._enabled
        if cached is not None and cached.settings.etag == settings.etag and cached.listed is listed:
            return cached
        values = open_values(account, f"{self._dialect.prefix}/{service}", settings, self._vault)
        disabled = why_disabled(self._dialect, service, listed, settings.switched)
        # Sealed values may be large: only their names and meaning are kept.
        kept = attrs.evolve(settings, values=dict.fromkeys(settings.values))
        cached = CachedSettings(kept, self._kind.parse_values(values, self._dialect), service, disabled, listed)
        self._settings_cache.put(account, service_id, cached)
        return cached


class _SettingsCache:
    """A cache of the settings that were used last, by account and service id.

    Those of which nothing is declared are apart: their names come from outside, and may not displace others.
    """

    def __init__(self) -> None:
        self._declared: OrderedDict[tuple[str, str | None], CachedSettings] = OrderedDict()
        self._undeclared: OrderedDict[tuple[str, str | None], CachedSettings] = OrderedDict()

    def get(self, account: str, service_id: str | None) -> CachedSettings | None:
        """Return the cached settings, ``None`` for none."""
        for part in (self._declared, self._undeclared):
            cached = part.get((account, service_id))
            if cached is not None:
                part.move_to_end((account, service_id))
                return cached
        return None

    def put(self, account: str, service_id: str | None, cached: CachedSettings) -> None:
        """Cache settings instead of older ones."""
        self.drop(account, service_id, self.get(account, service_id))
        part = self._declared if cached.settings.values else self._undeclared
        part[account, service_id] = cached
        if len(part) > _CACHE_LIMIT:
            part.popitem(last=False)

    def drop(self, account: str, service_id: str | None, cached: CachedSettings | None) -> None:
        """Drop settings, but not those that took their place meanwhile."""
        for part in (self._declared, self._undeclared):
            if cached is not None and part.get((account, service_id)) is cached:
                del part[account, service_id]

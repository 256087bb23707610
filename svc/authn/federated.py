"""Authenticators of tokens that a third party signed: they decide on logins, explain decisions, and report their state.

Note [Optimistic settings]. Operators set addresses, issuer and audience in variables, which are sealed in the database. A
login is checked with cached settings, and then makes one read of all else that it needs, with the ``edition`` that the
settings have now. If that is another one, the settings are read again and the login is decided again, from the signature on.
So a login costs one round trip, and none is decided with outdated settings: an operator who replaces a provider's address
locks its tokens out at once, on every server. The same holds for distrusted keys, the switch, and wishes for newer keys
(AUTH-3).

The candidate may come from the read cache, which may be a little older than the settings at hand, or newer. Where their
editions differ both are read afresh.

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
from collections import OrderedDict
from typing import Any, Final

import attrs

from svc.authn.checks import ACCOUNT, ENABLED, fetch_problem, why_disabled
from svc.authn.evaluation import AuthenticatorKind, CachedSettings, Check, Context, Evaluation
from svc.authn.settings import Configuration, Misconfiguration, open_values
from svc.crypto.vault import Vault
from svc.model.authentication import (
    Admitted,
    AuthenticatorSettings,
    AuthenticatorStatus,
    Explanation,
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
from svc.model.key_sets import ALGORITHMS, EvidenceRefused, KeySet
from svc.model.names import ResourceName, RoleName
from svc.model.reasons import POSTPONING_REASONS, Reason, RefusalKind
from svc.model.text import quote_text
from svc.storage.authenticators import AuthenticatorStore

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

    ``enabled`` has the names ``<kind>/<service id>`` that the configuration lists, those of a kind without service ids bare.
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
        enabled: frozenset[str],
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
        if refusal is None and self._kind.claim_evidence is not None:
            try:
                await self._kind.claim_evidence(evaluation)
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
        branch, listed = f"{self._dialect.prefix}/{service}", named and service in self._enabled
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
            if candidate.edition == cached.settings.edition:
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
                return ACCOUNT, EvidenceRefused(Reason.ACCOUNT_UNKNOWN, detail)
            return ENABLED, EvidenceRefused(Reason.AUTHENTICATOR_NOT_ENABLED, detail)
        if not named or not (listed or self._dialect.switch_enables):
            detail = f"{quote_text(webservice.identifier)} is not listed in the configuration"
            return ENABLED, EvidenceRefused(Reason.AUTHENTICATOR_NOT_ENABLED, detail)
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
        if cached is not None and cached.settings.edition == settings.edition:
            return cached
        service = authenticator_name(self._kind.name, service_id)
        values = open_values(account, f"{self._dialect.prefix}/{service}", settings, self._vault)
        disabled = why_disabled(self._dialect, service, service in self._enabled, settings.switched)
        # Sealed values may be large: only their names and meaning are kept.
        kept = attrs.evolve(settings, values=dict.fromkeys(settings.values))
        cached = CachedSettings(kept, self._kind.parse_values(values, self._dialect), service, disabled)
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

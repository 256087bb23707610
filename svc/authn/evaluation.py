"""A login with a third party's token on its way through the checks.

Note [One table]. Decisions and explanations go through one table of checks, in the order in which failures count, so that
they can't disagree; each kind of authenticator has its own. Some checks need what the store knows of the candidate, who is
known when the others have passed: an evaluation first *proves* what it can without the store, and then *decides*.

Where no check waits for anything (``FactCheck``), all facts are collected before the first one, by the same work for every
role.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import attrs

from svc.authn.settings import Configuration, Misconfiguration, Values
from svc.model.authentication import (
    AuthenticatorSettings,
    CandidateFacts,
    ExplanationStep,
    IProviderKeys,
    LoginRequest,
    Problem,
)
from svc.model.clocks import WallClock
from svc.model.dialect import Dialect
from svc.model.key_sets import EvidenceRefused, KeySet, SignedClaims, UnverifiedJws
from svc.model.names import RoleName
from svc.model.reasons import Reason, RefusalKind

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

    ``service`` is its name, such as ``authn-jwt/ci``; ``disabled`` says why it may not be used, ``None`` if it may.
    """

    settings: AuthenticatorSettings
    meaning: Configuration | Misconfiguration
    service: str
    disabled: Problem | None = None
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
    ``recorded_problems`` what logins here have shown. ``claim_evidence`` is awaited when a login has passed all checks: it
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
    claim_evidence: Callable[[Any], Awaitable[None]] | None = None
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

"""The checks of a verified token by what they compare, without a login around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twisted.internet.task import Clock

from svc.authn import checks, jwt
from svc.authn.evaluation import CachedSettings, Context, TokenEvaluation
from svc.authn.settings import Configuration
from svc.model.authentication import AuthenticatorSettings, LoginRequest
from svc.model.dialect import NATIVE
from svc.model.key_sets import KeySet, SignedClaims


def verified(
    claims: SignedClaims, now: float = 0.0, skew: float = 0.0, *, mandatory: bool = False, **settings: Any
) -> TokenEvaluation:
    """An evaluation that has come as far as the claims of its token; ``settings`` are the fields of its configuration."""
    clock, keys = Clock(), KeySet(())
    clock.advance(now)
    configuration = Configuration(keys, **settings)
    provider: Any = None  # no check of claims fetches keys
    context = Context(NATIVE, provider, clock, skew, 0, mandatory)
    cached = CachedSettings(AuthenticatorSettings("", {}), configuration, "authn-jwt/ci")
    evaluation = TokenEvaluation(context, LoginRequest("acme", None, b"", "192.0.2.1"), "authn-jwt/ci", True, cached)
    evaluation.configuration, evaluation.keys, evaluation.claims = configuration, keys, claims
    checks.read_times(evaluation)
    return evaluation


def annotated(annotations: Mapping[str, str], claims: SignedClaims | None = None, **settings: Any) -> TokenEvaluation:
    """An evaluation that has come as far as the annotations of its candidate."""
    evaluation = verified(SignedClaims({}) if claims is None else claims, **settings)
    evaluation.annotations = annotations
    return evaluation


def check_expiry(claims: SignedClaims, now: float, skew: float) -> None:
    """See ``checks.check_expiry``."""
    checks.check_expiry(verified(claims, now, skew))


def check_begun(claims: SignedClaims, name: str, now: float, skew: float) -> None:
    """See ``checks.check_not_before`` and ``checks.check_issued_at``."""
    {"nbf": checks.check_not_before, "iat": checks.check_issued_at}[name](verified(claims, now, skew))


def check_issuer(claims: SignedClaims, expected: str | None, *, mandatory: bool) -> None:
    """See ``checks.check_issuer``."""
    checks.check_issuer(verified(claims, mandatory=mandatory, issuer=expected))


def check_audience(claims: SignedClaims, expected: str | None) -> None:
    """See ``checks.check_audience``."""
    checks.check_audience(verified(claims, audience=expected))


def check_names(annotations: Mapping[str, str], *, nested: bool) -> None:
    """See ``jwt.check_names``."""
    jwt.check_names(annotated(annotations, nested=nested))


def check_present(annotations: Mapping[str, str]) -> None:
    """See ``jwt.check_present``."""
    jwt.check_present(annotated(annotations))


def check_enforced(annotations: Mapping[str, str], enforced: Sequence[str], aliases: Mapping[str, str]) -> None:
    """See ``jwt.check_enforced``."""
    jwt.check_enforced(annotated(annotations, enforced=tuple(enforced), aliases=aliases))


def check_permitted(annotations: Mapping[str, str], aliases: Mapping[str, str]) -> None:
    """See ``jwt.check_permitted``."""
    jwt.check_permitted(annotated(annotations, aliases=aliases))


def check_claims(annotations: Mapping[str, str], claims: SignedClaims, aliases: Mapping[str, str], *, nested: bool) -> None:
    """See ``checks.check_claims``."""
    checks.check_claims(annotated(annotations, claims, aliases=aliases, nested=nested))

"""The JWT authenticator: a token signed by a third party, and the host that it speaks for.

Note [Order of checks]. ``JWT`` has its checks in the order in which failures count (AUTH-8): whether the authenticator is
enabled, which is no secret, comes before the account, and the webservice before the settings below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from svc.authn.checks import AUDIENCE, BEFORE_ISSUER, CANDIDATE, ISSUED_AT, ISSUER
from svc.authn.claims import check_claims, check_enforced, check_names, check_permitted, check_present, host_of, parse_login
from svc.authn.evaluation import AuthenticatorKind, Check, Evaluation
from svc.authn.settings import VARIABLES, parse_jwt_values
from svc.model.key_sets import EvidenceRefused
from svc.model.reasons import Reason
from svc.model.text import quote_text


def _check_identity(evaluation: Evaluation) -> None:
    """Take the identity from the token or from the path, as the settings say, and never from both (AUTH-30)."""
    request, configuration = evaluation.request, evaluation.configuration
    claim, nested = configuration.identity_claim, evaluation.context.dialect.nested_claims
    if claim is None:
        if request.login is None:
            detail = "the path names no host, and token-app-property is not declared"
            raise EvidenceRefused(Reason.IDENTITY_AMBIGUOUS, detail)
        evaluation.role = parse_login(request.login, request.account)
        return
    if request.login is not None:
        raise EvidenceRefused(Reason.IDENTITY_AMBIGUOUS, "the path names a host, and token-app-property is declared")
    evaluation.role = host_of(evaluation.claims, request.account, claim, configuration.identity_path, nested=nested)


def _describe_identity(evaluation: Evaluation) -> str:
    claim = evaluation.configuration.identity_claim
    return f"{'the path' if claim is None else f'the claim {quote_text(claim)}'} names {quote_text(str(evaluation.role))}"


def _select_annotations(annotations: Mapping[str, str], service: str) -> Mapping[str, str]:
    """Return the annotations of a service, by the rest of their names; general ones say nothing (AUTH-32)."""
    return {name.removeprefix(f"{service}/"): value for name, value in annotations.items()}


def _describe_permitted(evaluation: Evaluation) -> str:
    aliases = ", ".join(
        f"{quote_text(alias)} for {quote_text(claim)}" for alias, claim in evaluation.configuration.aliases.items()
    )
    return f"none is named after a registered claim, or after one with an alias; aliases are: {aliases or 'none'}"


def _describe_claims(evaluation: Evaluation) -> str:
    aliases = evaluation.configuration.aliases
    return "; ".join(
        f"{quote_text(aliases.get(name, name))} is {quote_text(value)}" for name, value in evaluation.annotations.items()
    )


JWT: Final = AuthenticatorKind(
    "authn-jwt",
    VARIABLES,
    (
        *BEFORE_ISSUER,
        ISSUER,
        ISSUED_AT,
        AUDIENCE,
        Check("identity", _check_identity, _describe_identity),
        *CANDIDATE,
        Check(
            "annotation-names",
            lambda e: check_names(e.annotations, nested=e.context.dialect.nested_claims),
            lambda e: f"for {quote_text(e.service)} there are: {', '.join(map(quote_text, e.annotations)) or 'none'}",
            needs_candidate=True,
        ),
        Check(
            "annotations",
            lambda e: check_present(e.annotations),
            lambda e: f"there are {len(e.annotations)}",
            needs_candidate=True,
        ),
        Check(
            "enforced-claims",
            lambda e: check_enforced(e.annotations, e.configuration.enforced, e.configuration.aliases),
            lambda e: f"enforced are: {', '.join(map(quote_text, e.configuration.enforced)) or 'none'}",
            needs_candidate=True,
        ),
        Check(
            "permitted-names",
            lambda e: check_permitted(e.annotations, e.configuration.aliases),
            _describe_permitted,
            needs_candidate=True,
        ),
        Check(
            "claims",
            lambda e: check_claims(e.annotations, e.claims, e.configuration.aliases, nested=e.context.dialect.nested_claims),
            _describe_claims,
            needs_candidate=True,
        ),
    ),
    parse_jwt_values,
    _select_annotations,
)

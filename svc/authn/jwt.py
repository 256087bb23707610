"""The JWT authenticator: a token signed by a third party, and the host that it speaks for.

Note [Order of checks]. ``JWT`` has its checks in the order in which failures count (AUTH-8): whether the authenticator is
enabled, which is no secret, comes before the account, and the webservice before the settings below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from svc.authn.checks import AUDIENCE, BEFORE_AUDIENCE, CANDIDATE, check_claims, host_of, parse_login
from svc.authn.evaluation import AuthenticatorKind, Check, TokenEvaluation
from svc.authn.settings import DENIED, VARIABLES, claim_fault, name_fault, parse_jwt_values
from svc.model.key_sets import EvidenceRefused
from svc.model.reasons import Reason
from svc.model.text import quote_text


def _check_identity(evaluation: TokenEvaluation) -> None:
    """Take the identity from the token or from the path, as the settings say, and never from both (AUTH-30)."""
    request, configuration = evaluation.request, evaluation.configuration
    claim, nested = configuration.identity_claim, configuration.nested
    if claim is None:
        if request.login is None:
            detail = "the path names no host, and token-app-property is not declared"
            raise EvidenceRefused(Reason.IDENTITY_AMBIGUOUS, detail)
        evaluation.role = parse_login(request.login, request.account)
        return
    if request.login is not None:
        raise EvidenceRefused(Reason.IDENTITY_AMBIGUOUS, "the path names a host, and token-app-property is declared")
    evaluation.role = host_of(evaluation.claims, request.account, claim, configuration.identity_path, nested=nested)


def _describe_identity(evaluation: TokenEvaluation) -> str:
    claim = evaluation.configuration.identity_claim
    return f"{'the path' if claim is None else f'the claim {quote_text(claim)}'} names {quote_text(str(evaluation.role))}"


def _select_annotations(annotations: Mapping[str, str], service: str) -> Mapping[str, str]:
    """Return the annotations of a service, by the rest of their names; general ones say nothing (AUTH-32)."""
    return {name.removeprefix(f"{service}/"): value for name, value in annotations.items()}


def _describe_permitted(evaluation: TokenEvaluation) -> str:
    aliases = ", ".join(
        f"{quote_text(alias)} for {quote_text(claim)}" for alias, claim in evaluation.configuration.aliases.items()
    )
    return f"none is named after a registered claim, or after one with an alias; aliases are: {aliases or 'none'}"


def _describe_claims(evaluation: TokenEvaluation) -> str:
    aliases = evaluation.configuration.aliases
    return "; ".join(
        f"{quote_text(aliases.get(name, name))} is {quote_text(value)}" for name, value in evaluation.annotations.items()
    )


def check_names(evaluation: TokenEvaluation) -> None:
    """Check that every annotation has a name that a claim could have. A claim of another name needs an alias (AUTH-27)."""
    nested = evaluation.configuration.nested
    for name in evaluation.annotations:
        fault = name_fault(name, nested=nested)
        if fault is not None:
            if claim_fault(name, nested=nested) is None:
                fault += "; give the claim an alias in claim-aliases, and name the annotation after the alias"
            raise EvidenceRefused(Reason.ANNOTATION_NAME_INVALID, f"an annotation is misnamed: {fault}")


def check_present(evaluation: TokenEvaluation) -> None:
    """Check that there is an annotation. A host without one would be open to every token of the provider."""
    if not evaluation.annotations:
        raise EvidenceRefused(Reason.ANNOTATIONS_MISSING, "the host has no annotation for this authenticator")


def check_enforced(evaluation: TokenEvaluation) -> None:
    """Check that every enforced claim has its annotation, under its alias if it has one."""
    for claim in evaluation.configuration.enforced:
        name = evaluation.configuration.renamed.get(claim, claim)
        if name not in evaluation.annotations:
            detail = f"the host has no annotation {quote_text(name)}, and the claim {quote_text(claim)} is enforced"
            raise EvidenceRefused(Reason.ANNOTATION_ENFORCED, detail)


def check_permitted(evaluation: TokenEvaluation) -> None:
    """Check that no annotation is named after a registered claim, or after a claim that has an alias."""
    renamed = evaluation.configuration.renamed
    for name in evaluation.annotations:
        if name in DENIED:
            raise EvidenceRefused(Reason.ANNOTATION_FORBIDDEN, f"an annotation may not be named {name!r}")
        if name in renamed:
            why = f"that claim has the alias {quote_text(renamed[name])}"
            raise EvidenceRefused(
                Reason.ANNOTATION_FORBIDDEN, f"an annotation may not be named {quote_text(name)}, since {why}"
            )


JWT: Final = AuthenticatorKind(
    "authn-jwt",
    VARIABLES,
    (
        *BEFORE_AUDIENCE,
        AUDIENCE,
        Check("identity", _check_identity, _describe_identity),
        *CANDIDATE,
        Check(
            "annotation-names",
            check_names,
            lambda e: f"for {quote_text(e.service)} there are: {', '.join(map(quote_text, e.annotations)) or 'none'}",
            needs_candidate=True,
        ),
        Check(
            "annotations",
            check_present,
            lambda e: f"there are {len(e.annotations)}",
            needs_candidate=True,
        ),
        Check(
            "enforced-claims",
            check_enforced,
            lambda e: f"enforced are: {', '.join(map(quote_text, e.configuration.enforced)) or 'none'}",
            needs_candidate=True,
        ),
        Check(
            "permitted-names",
            check_permitted,
            _describe_permitted,
            needs_candidate=True,
        ),
        Check(
            "claims",
            check_claims,
            _describe_claims,
            needs_candidate=True,
        ),
    ),
    parse_jwt_values,
    _select_annotations,
    issuer_mandatory=False,
)

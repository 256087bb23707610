"""The JWT authenticator: a token signed by a third party, and the host that it speaks for.

Note [Order of checks]. ``JWT`` has every check in the order in which failures count. It is that of AUTH-8:
settings are looked at all at once, and so are the absence of a claim and its value; and whether the
authenticator is enabled, which is no secret, comes before the account, and its webservice before the settings that lie
beneath it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from svc.authn.annotations import check_claims, check_enforced, check_names, check_permitted, check_present
from svc.authn.checks import (
    ACCOUNT,
    AUDIENCE,
    CONFIGURATION,
    ENABLED,
    EXPIRY,
    EXTENT,
    ISSUED_AT,
    ISSUER,
    KEYS,
    NOT_BEFORE,
    ORIGIN,
    PRIVILEGE,
    ROLE,
    SIGNATURE,
    TOKEN,
    WEBSERVICE,
)
from svc.authn.claims import host_of, role_of
from svc.authn.evaluation import Check, Evaluation, Kind
from svc.authn.settings import VARIABLES, configuration_of
from svc.model.reasons import Reason
from svc.model.signed_claims import EvidenceRefused
from svc.model.text import shown

# -- identity ---------------------------------------------------------------------------------------------------------


def _check_identity(evaluation: Evaluation) -> None:
    """Take the identity from the token or from the path, as the settings say, and never from both (AUTH-30)."""
    request, configuration = evaluation.request, evaluation.configuration
    if configuration.identity_claim is None:
        if request.login is None:
            raise EvidenceRefused(
                Reason.IDENTITY_AMBIGUOUS, "the path names no host, and token-app-property is not declared"
            )
        evaluation.role = role_of(request.login, request.account)
        return
    if request.login is not None:
        raise EvidenceRefused(Reason.IDENTITY_AMBIGUOUS, "the path names a host, and token-app-property is declared")
    evaluation.role = host_of(
        evaluation.claims,
        request.account,
        configuration.identity_claim,
        configuration.identity_path,
        nested=evaluation.context.dialect.nested_claims,
    )


def _tell_identity(evaluation: Evaluation) -> str:
    claim = evaluation.configuration.identity_claim
    return f"{'the path' if claim is None else f'the claim {shown(claim)}'} names {shown(str(evaluation.role))}"


# -- annotations ------------------------------------------------------------------------------------------------------


def _of_service(annotations: Mapping[str, str], service: str) -> Mapping[str, str]:
    """Return those for the service, by the rest of their names; general ones say nothing (AUTH-32)."""
    under = f"{service}/"
    return {name.removeprefix(under): value for name, value in annotations.items()}


def _check_names(evaluation: Evaluation) -> None:
    check_names(evaluation.annotations, nested=evaluation.context.dialect.nested_claims)


def _tell_names(evaluation: Evaluation) -> str:
    return f"for {shown(evaluation.service)} there are: {', '.join(map(shown, evaluation.annotations)) or 'none'}"


def _check_present(evaluation: Evaluation) -> None:
    check_present(evaluation.annotations)


def _tell_present(evaluation: Evaluation) -> str:
    return f"there are {len(evaluation.annotations)}"


def _check_enforced(evaluation: Evaluation) -> None:
    check_enforced(evaluation.annotations, evaluation.configuration.enforced, evaluation.configuration.aliases)


def _tell_enforced(evaluation: Evaluation) -> str:
    return f"enforced are: {', '.join(map(shown, evaluation.configuration.enforced)) or 'none'}"


def _check_permitted(evaluation: Evaluation) -> None:
    check_permitted(evaluation.annotations, evaluation.configuration.aliases)


def _tell_permitted(evaluation: Evaluation) -> str:
    aliases = ", ".join(f"{shown(alias)} for {shown(claim)}" for alias, claim in evaluation.configuration.aliases.items())
    return f"none is named after a registered claim, or after one with an alias; aliases are: {aliases or 'none'}"


def _check_claims(evaluation: Evaluation) -> None:
    check_claims(
        evaluation.annotations,
        evaluation.claims,
        evaluation.configuration.aliases,
        nested=evaluation.context.dialect.nested_claims,
    )


def _tell_claims(evaluation: Evaluation) -> str:
    aliases = evaluation.configuration.aliases
    return "; ".join(f"{shown(aliases.get(name, name))} is {shown(value)}" for name, value in evaluation.annotations.items())


JWT: Final = Kind(
    "authn-jwt",
    VARIABLES,
    (
        ENABLED,
        ACCOUNT,
        TOKEN,
        WEBSERVICE,
        CONFIGURATION,
        KEYS,
        SIGNATURE,
        EXPIRY,
        NOT_BEFORE,
        ISSUER,
        ISSUED_AT,
        AUDIENCE,
        Check("identity", _check_identity, _tell_identity),
        ROLE,
        PRIVILEGE,
        ORIGIN,
        EXTENT,
        Check("annotation-names", _check_names, _tell_names, stored=True),
        Check("annotations", _check_present, _tell_present, stored=True),
        Check("enforced-claims", _check_enforced, _tell_enforced, stored=True),
        Check("permitted-names", _check_permitted, _tell_permitted, stored=True),
        Check("claims", _check_claims, _tell_claims, stored=True),
    ),
    configuration_of,
    _of_service,
)

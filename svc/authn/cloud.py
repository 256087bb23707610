"""The cloud authenticator: a token that the platform gave to one of its workloads, and the host that this is.

Note [Order of checks]. ``make_cloud_kind`` has its checks in the order in which failures count (AUTH-9). The role is checked
after the token has proven an identity (AUTH-12): nobody else can find out which hosts exist, or has the store follow what a
host holds (FAIL-18).

Note [One issuer for all]. The platform signs the tokens of all its tenants with the same keys. So ``iss`` alone tells a
tenant's tokens from others', and is mandatory in either dialect.
"""

from __future__ import annotations

from typing import Final

from svc.authn.checks import AUDIENCE, BEFORE_ISSUER, CANDIDATE, ISSUED_AT, ISSUER
from svc.authn.claims import check_issuer, parse_login
from svc.authn.cloud_annotations import (
    IDENTITY_CLAIM,
    RESOURCE_CLAIM,
    check_exclusive,
    check_permitted,
    check_required,
    check_resource,
    identity_claim,
    select_annotations,
)
from svc.authn.evaluation import AuthenticatorKind, Check, Evaluation
from svc.authn.settings import Configuration, Misconfiguration, Values, check_address, usable_texts
from svc.model.authentication import KeySource, Problem
from svc.model.cloud_resource_id import ResourceId, ResourceIdMalformed
from svc.model.dialect import Dialect
from svc.model.key_sets import EvidenceRefused
from svc.model.reasons import Reason
from svc.model.text import quote_text

_VARIABLES: Final = ("provider-uri", "audience")


def parse_cloud_values(values: Values, _: Dialect) -> Configuration | Misconfiguration:
    """Return the meaning of the variables' values (``settings.open_values``); the issuer is as the provider's document has
    it.
    """
    problems: list[Problem] = []
    if "provider-uri" not in values:
        what = "It is not said which tenant's tokens are accepted."
        problems.append(Problem(what, "Declare and set the variable provider-uri."))
    texts = usable_texts(values, _VARIABLES, _VARIABLES, problems)
    check_address("provider-uri", texts, problems)
    keys = KeySource(f"{texts['provider-uri'].removesuffix('/')}/", discovered=True) if "provider-uri" in texts else None
    if keys is None or problems:
        return Misconfiguration(tuple(problems), keys)
    return Configuration(keys, audience=texts.get("audience"))


def _check_identity(evaluation: Evaluation) -> None:
    """Take the host from the path: a token names a resource of the platform."""
    if evaluation.request.login is None:
        raise EvidenceRefused(Reason.IDENTITY_AMBIGUOUS, "the path names no host, and the token can't")
    evaluation.role = parse_login(evaluation.request.login, evaluation.request.account)


def _check_identity_claims(evaluation: Evaluation) -> None:
    for name in (RESOURCE_CLAIM, IDENTITY_CLAIM):
        identity_claim(evaluation.claims, name)


def _describe_identity_claims(evaluation: Evaluation) -> str:
    names = RESOURCE_CLAIM, IDENTITY_CLAIM
    return "; ".join(f"{name!r} is {quote_text(identity_claim(evaluation.claims, name))}" for name in names)


def _check_resource_id(evaluation: Evaluation) -> None:
    try:
        evaluation.resource_id = ResourceId.parse(identity_claim(evaluation.claims, RESOURCE_CLAIM))
    except ResourceIdMalformed as malformed:
        raise EvidenceRefused(Reason.RESOURCE_ID_MALFORMED, malformed.why) from None


def _describe_resource_id(evaluation: Evaluation) -> str:
    resource = evaluation.resource_id
    return (
        f"subscription {quote_text(resource.subscription)}, resource group {quote_text(resource.resource_group)}, "
        f"{quote_text(resource.namespace)} {quote_text(resource.type)} {quote_text(resource.name)}"
    )


_CHECKS: Final = (
    *BEFORE_ISSUER,
    Check("issuer", lambda e: check_issuer(e.claims, e.expected_issuer, mandatory=True), ISSUER.describe),
    ISSUED_AT,
    AUDIENCE,
    Check("identity-claims", _check_identity_claims, _describe_identity_claims),
    Check("identity", _check_identity, lambda e: f"the path names {quote_text(str(e.role))}"),
    *CANDIDATE,
    Check(
        "required-annotations",
        lambda e: check_required(e.annotations),
        lambda e: "; ".join(f"{name} is {quote_text(value)}" for name, value in e.annotations.items()),
        needs_candidate=True,
    ),
    Check(
        "permitted-annotations",
        lambda e: check_permitted(e.annotations),
        lambda _: "each has a name that means something",
        needs_candidate=True,
    ),
    Check(
        "exclusive-annotations",
        lambda e: check_exclusive(e.annotations),
        lambda _: "they name one identity at most",
        needs_candidate=True,
    ),
    Check("resource-id", _check_resource_id, _describe_resource_id),
    Check(
        "resource",
        lambda e: check_resource(e.annotations, e.resource_id, identity_claim(e.claims, IDENTITY_CLAIM)),
        lambda _: "the token says what the annotations say",
        needs_candidate=True,
    ),
)


def make_cloud_kind(dialect: Dialect) -> AuthenticatorKind:
    """Return the cloud authenticator under the name that it has in a dialect."""
    return AuthenticatorKind(
        dialect.cloud, _VARIABLES, _CHECKS, parse_cloud_values, select_annotations, has_general_annotations=True
    )

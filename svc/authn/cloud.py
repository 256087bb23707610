"""The cloud authenticator: a token that the platform gave to one of its workloads, and the host that this is.

Note [Order of checks]. ``cloud`` has every check in the order in which failures count (AUTH-9). The role is looked
at when the token has proven an identity, as the status for a missing privilege has it (AUTH-12): nobody else learns which
hosts exist, or has the store follow what the host of his choice holds (FAIL-18).

Note [One issuer for all]. The platform signs the tokens of all its tenants with the same keys. So ``iss`` is what tells a
tenant's tokens from others', and must be there in either dialect, whatever holds for JWTs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
from svc.authn.claims import check_issuer, role_of
from svc.authn.constraints import (
    IDENTITY_CLAIM,
    RESOURCE_CLAIM,
    check_exclusive,
    check_permitted,
    check_required,
    check_resource,
    identity_claim,
    own,
)
from svc.authn.evaluation import Check, Evaluation, Kind
from svc.authn.resourceid import ResourceId
from svc.authn.settings import Configuration, Misconfiguration, texts_of
from svc.model.authentication import KeySource, Problem
from svc.model.dialect import Dialect
from svc.model.reasons import Reason
from svc.model.signed_claims import EvidenceRefused
from svc.model.text import shown

_VARIABLES: Final = ("provider-uri", "audience")


def configuration_of(
    values: Mapping[str, str | Problem | None],
    dialect: Dialect,  # noqa: ARG001 (some kinds need it)
) -> Configuration | Misconfiguration:
    """Return what the values of the declared variables mean; they are as ``settings.opened`` returns them.

    The issuer is the provider's address with one final slash, written or not.
    """
    problems: list[Problem] = []
    if "provider-uri" not in values:
        problems.append(
            Problem("It is not said which tenant's tokens are accepted.", "Declare and set the variable provider-uri.")
        )
    texts = texts_of(values, _VARIABLES, _VARIABLES, problems)
    issuer = f"{texts['provider-uri'].removesuffix('/')}/" if "provider-uri" in texts else None
    keys = None if issuer is None else KeySource(issuer, discovered=True)
    if keys is None or problems:
        return Misconfiguration(tuple(problems), keys)
    return Configuration(keys, issuer, texts.get("audience"))


def _check_identity(evaluation: Evaluation) -> None:
    """Take the host from the path: a token names a resource of the platform."""
    if evaluation.request.login is None:
        raise EvidenceRefused(Reason.IDENTITY_AMBIGUOUS, "the path names no host, and the token can't")
    evaluation.role = role_of(evaluation.request.login, evaluation.request.account)


def _tell_identity(evaluation: Evaluation) -> str:
    return f"the path names {shown(str(evaluation.role))}"


def _check_issuer(evaluation: Evaluation) -> None:
    """Check the issuer, which is mandatory here (Note [One issuer for all])."""
    check_issuer(evaluation.claims, evaluation.configuration.issuer, mandatory=True)


def _check_identity_claims(evaluation: Evaluation) -> None:
    for name in (RESOURCE_CLAIM, IDENTITY_CLAIM):
        identity_claim(evaluation.claims, name)


def _tell_identity_claims(evaluation: Evaluation) -> str:
    return "; ".join(
        f"{name!r} is {shown(identity_claim(evaluation.claims, name))}" for name in (RESOURCE_CLAIM, IDENTITY_CLAIM)
    )


def _check_required(evaluation: Evaluation) -> None:
    check_required(evaluation.annotations)


def _tell_annotations(evaluation: Evaluation) -> str:
    return "; ".join(f"{name} is {shown(value)}" for name, value in evaluation.annotations.items())


def _check_permitted(evaluation: Evaluation) -> None:
    check_permitted(evaluation.annotations)


def _tell_permitted(_: Evaluation) -> str:
    return "each has a name that means something"


def _check_exclusive(evaluation: Evaluation) -> None:
    check_exclusive(evaluation.annotations)


def _tell_exclusive(_: Evaluation) -> str:
    return "they name one identity at most"


def _check_resource_id(evaluation: Evaluation) -> None:
    evaluation.resource_id = ResourceId.parse(identity_claim(evaluation.claims, RESOURCE_CLAIM))


def _tell_resource_id(evaluation: Evaluation) -> str:
    resource = evaluation.resource_id
    return (
        f"subscription {shown(resource.subscription)}, resource group {shown(resource.resource_group)}, "
        f"{shown(resource.namespace)} {shown(resource.type)} {shown(resource.name)}"
    )


def _check_resource(evaluation: Evaluation) -> None:
    check_resource(evaluation.annotations, evaluation.resource_id, identity_claim(evaluation.claims, IDENTITY_CLAIM))


def _tell_resource(_: Evaluation) -> str:
    return "the token says what the annotations say"


_CHECKS: Final = (
    ENABLED,
    ACCOUNT,
    TOKEN,
    WEBSERVICE,
    CONFIGURATION,
    KEYS,
    SIGNATURE,
    EXPIRY,
    NOT_BEFORE,
    Check("issuer", _check_issuer, ISSUER.tell),
    ISSUED_AT,
    AUDIENCE,
    Check("identity-claims", _check_identity_claims, _tell_identity_claims),
    Check("identity", _check_identity, _tell_identity),
    ROLE,
    PRIVILEGE,
    ORIGIN,
    EXTENT,
    Check("required-annotations", _check_required, _tell_annotations, stored=True),
    Check("permitted-annotations", _check_permitted, _tell_permitted, stored=True),
    Check("exclusive-annotations", _check_exclusive, _tell_exclusive, stored=True),
    Check("resource-id", _check_resource_id, _tell_resource_id),
    Check("resource", _check_resource, _tell_resource, stored=True),
)


def cloud(dialect: Dialect) -> Kind:
    """Return the cloud authenticator under the name that it has in a dialect."""
    return Kind(dialect.cloud, _VARIABLES, _CHECKS, configuration_of, own, general=True)

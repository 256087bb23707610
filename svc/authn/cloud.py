"""The cloud authenticator: a token that the platform gave to one of its workloads, and the host that this is.

Note [Order of checks]. ``cloud`` has every check in the order in which failures count: that of JWTs, and then that of the
wire facts, authn 4. There the role comes before the token. Here it is looked at when the token has proven an identity, as
the rulings' status for a missing privilege has it: nobody else learns which hosts exist, or has the store follow what the
host of his choice holds (rulings 2.11).

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
from svc.authn.evaluation import Check, Kind, Trial
from svc.authn.resourceid import ResourceId
from svc.authn.settings import Configuration, Misconfiguration, texts_of
from svc.crypto.jose import EvidenceRefused, shown
from svc.model.authentication import KeySource, Problem
from svc.model.dialect import Dialect
from svc.model.reasons import Reason

_VARIABLES: Final = ("provider-uri", "audience")


def configuration_of(
    values: Mapping[str, str | Problem | None],
    dialect: Dialect,  # noqa: ARG001 (some kinds need it)
) -> Configuration | Misconfiguration:
    """Understand the values of the variables that are declared, as ``settings.opened`` tells them.

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


def _check_identity(trial: Trial) -> None:
    """The path names the host: a token names a resource of the platform."""
    if trial.attempt.login is None:
        raise EvidenceRefused(Reason.IDENTITY_AMBIGUOUS, "the path names no host, and the token can't")
    trial.role = role_of(trial.attempt.login, trial.attempt.account)


def _tell_identity(trial: Trial) -> str:
    return f"the path names {shown(str(trial.role))}"


def _check_issuer(trial: Trial) -> None:
    """Note [One issuer for all]."""
    check_issuer(trial.claims, trial.configuration.issuer, mandatory=True)


def _check_identity_claims(trial: Trial) -> None:
    for name in (RESOURCE_CLAIM, IDENTITY_CLAIM):
        identity_claim(trial.claims, name)


def _tell_identity_claims(trial: Trial) -> str:
    return "; ".join(f"{name!r} is {shown(identity_claim(trial.claims, name))}" for name in (RESOURCE_CLAIM, IDENTITY_CLAIM))


def _check_required(trial: Trial) -> None:
    check_required(trial.annotations)


def _tell_annotations(trial: Trial) -> str:
    return "; ".join(f"{name} is {shown(value)}" for name, value in trial.annotations.items())


def _check_permitted(trial: Trial) -> None:
    check_permitted(trial.annotations)


def _tell_permitted(_: Trial) -> str:
    return "each has a name that means something"


def _check_exclusive(trial: Trial) -> None:
    check_exclusive(trial.annotations)


def _tell_exclusive(_: Trial) -> str:
    return "they name one identity at most"


def _check_resource_id(trial: Trial) -> None:
    trial.resource_id = ResourceId.parse(identity_claim(trial.claims, RESOURCE_CLAIM))


def _tell_resource_id(trial: Trial) -> str:
    resource = trial.resource_id
    return (
        f"subscription {shown(resource.subscription)}, resource group {shown(resource.resource_group)}, "
        f"{shown(resource.namespace)} {shown(resource.type)} {shown(resource.name)}"
    )


def _check_resource(trial: Trial) -> None:
    check_resource(trial.annotations, trial.resource_id, identity_claim(trial.claims, IDENTITY_CLAIM))


def _tell_resource(_: Trial) -> str:
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
    """The cloud authenticator, by the name that it has in a dialect."""
    return Kind(dialect.cloud, _VARIABLES, _CHECKS, configuration_of, own, general=True)

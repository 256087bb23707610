"""The cloud authenticator: a token that the platform gave to one of its workloads, and the host that this is.

Note [Order of checks]. ``make_cloud_kind`` has its checks in the order in which failures count (AUTH-9). The role is checked
after the token has proven an identity (AUTH-12): nobody else can find out which hosts exist, or has the store follow what a
host holds (FAIL-18).

Note [One issuer for all]. The platform signs the tokens of all its tenants with the same keys. So ``iss`` alone tells a
tenant's tokens from others', and is mandatory in either dialect.

Note [Whose annotations]. Names of annotations are ``<authenticator>/<name>``, for every service, and
``<authenticator>/<service id>/<name>``, which overrides the former. A name has no slash: deeper annotations belong to a
service of a longer id, so that an annotation for one service never applies to another. An empty value has no meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from svc.authn.checks import AUDIENCE, BEFORE_AUDIENCE, CANDIDATE, identity_claim, parse_login
from svc.authn.evaluation import AuthenticatorKind, Check, Evaluation, TokenEvaluation
from svc.authn.settings import Configuration, Misconfiguration, Values, check_address, usable_texts
from svc.model.authentication import KeySource, Problem
from svc.model.cloud_resource_id import ResourceId, ResourceIdMalformed, is_microsoft_audience
from svc.model.dialect import Dialect
from svc.model.key_sets import EvidenceRefused, SignedClaims
from svc.model.reasons import Reason
from svc.model.strict_json import shown_json
from svc.model.text import quote_text

#: The claims that say which resource a token is for, and which identity it has.
RESOURCE_CLAIM: Final = "xms_mirid"
IDENTITY_CLAIM: Final = "oid"

_SUBSCRIPTION: Final = "subscription-id"
_GROUP: Final = "resource-group"
_SHARED: Final = "user-assigned-identity"
_SOLE: Final = "system-assigned-identity"

_REQUIRED: Final = (_SUBSCRIPTION, _GROUP)
_PERMITTED: Final = (*_REQUIRED, _SHARED, _SOLE)


@attrs.define(eq=False)
class CloudEvaluation(TokenEvaluation):
    """The evaluation of a token of the platform."""

    resource_id: ResourceId = attrs.field(init=False)


def select_annotations(annotations: Mapping[str, str], service: str) -> Mapping[str, str]:
    """Return the annotations for ``service``, by the last part of their names (Note [Whose annotations])."""
    found: dict[str, str] = {}
    for under in (f"{service.partition('/')[0]}/", f"{service}/"):
        for full, value in annotations.items():
            name = full.removeprefix(under)
            if value and name != full and "/" not in name:
                found[name] = value
    return found


def _resource_claim(claims: SignedClaims) -> str:
    """Return the text of the claim that says which resource a token is for."""
    hint = ""
    if not is_microsoft_audience(claims.get("aud")):
        audience = f"'aud' is {shown_json(claims['aud'])}" if "aud" in claims else "it has no 'aud'"
        hint = f", or it is for an audience of your own, whose tokens lack the claim: {audience}"
    return identity_claim(claims, RESOURCE_CLAIM, hint)


def check_required(evaluation: Evaluation) -> None:
    """Check that the host is bound to a subscription and a resource group; the refusal names all that is missing."""
    missing = [name for name in _REQUIRED if name not in evaluation.annotations]
    if missing:
        raise EvidenceRefused(Reason.ANNOTATION_REQUIRED, f"the host has no annotation {' and no '.join(missing)}")


def check_permitted(evaluation: Evaluation) -> None:
    """Check that every annotation has a name that means something: it might have been meant to keep somebody out."""
    unknown = [name for name in evaluation.annotations if name not in _PERMITTED]
    if unknown:
        detail = f"there is no annotation {quote_text(unknown[0])}; there are {', '.join(_PERMITTED)}"
        raise EvidenceRefused(Reason.ANNOTATION_UNSUPPORTED, detail)


def check_exclusive(evaluation: Evaluation) -> None:
    """Check that the host is bound to one identity at most, since a token is of one."""
    if _SHARED in evaluation.annotations and _SOLE in evaluation.annotations:
        raise EvidenceRefused(Reason.ANNOTATIONS_EXCLUSIVE, f"the host has both annotations, {_SHARED} and {_SOLE}")


def check_resource(evaluation: CloudEvaluation) -> None:
    """Check that the resource and the identity are exactly those that the host is bound to."""
    annotations, resource = evaluation.annotations, evaluation.resource_id
    identity = identity_claim(evaluation.claims, IDENTITY_CLAIM)
    _require_equal(_SUBSCRIPTION, annotations[_SUBSCRIPTION], resource.subscription)
    _require_equal(_GROUP, annotations[_GROUP], resource.resource_group)
    for name, shared, found in ((_SHARED, True, resource.name), (_SOLE, False, identity)):
        if name in annotations:
            if resource.is_shared_identity is not shared:
                kind = "an identity that was assigned" if resource.is_shared_identity else "a workload's own identity"
                what = f"{quote_text(resource.namespace)} {quote_text(resource.type)} {quote_text(resource.name)}"
                detail = f"the host has the annotation {name}, and the token is of {kind}: {what}"
                raise EvidenceRefused(Reason.IDENTITY_KIND_MISMATCH, detail)
            _require_equal(name, annotations[name], found)


def _require_equal(name: str, wanted: str, found: str) -> None:
    if found == wanted:
        return
    # Folding only chooses the words of the refusal: it lets nobody in.
    alike = found.casefold() == wanted.casefold()
    detail = f"the token says {quote_text(found)}; the annotation {name} says {quote_text(wanted)}"
    if alike:
        raise EvidenceRefused(Reason.CLAIM_CASE_MISMATCH, f"{detail}, which differs in case alone")
    raise EvidenceRefused(Reason.CLAIM_MISMATCH, detail)


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


def _check_identity_claims(evaluation: TokenEvaluation) -> None:
    _resource_claim(evaluation.claims)
    identity_claim(evaluation.claims, IDENTITY_CLAIM)


def _describe_identity_claims(evaluation: TokenEvaluation) -> str:
    names = RESOURCE_CLAIM, IDENTITY_CLAIM
    return "; ".join(f"{name!r} is {quote_text(identity_claim(evaluation.claims, name))}" for name in names)


def _check_resource_id(evaluation: CloudEvaluation) -> None:
    try:
        evaluation.resource_id = ResourceId.parse(_resource_claim(evaluation.claims))
    except ResourceIdMalformed as malformed:
        raise EvidenceRefused(Reason.RESOURCE_ID_MALFORMED, malformed.why) from None


def _describe_resource_id(evaluation: CloudEvaluation) -> str:
    resource = evaluation.resource_id
    return (
        f"subscription {quote_text(resource.subscription)}, resource group {quote_text(resource.resource_group)}, "
        f"{quote_text(resource.namespace)} {quote_text(resource.type)} {quote_text(resource.name)}"
    )


_CHECKS: Final = (
    *BEFORE_AUDIENCE,
    AUDIENCE,
    Check("identity-claims", _check_identity_claims, _describe_identity_claims),
    Check("identity", _check_identity, lambda e: f"the path names {quote_text(str(e.role))}"),
    *CANDIDATE,
    Check(
        "required-annotations",
        check_required,
        lambda e: "; ".join(f"{name} is {quote_text(value)}" for name, value in e.annotations.items()),
        needs_candidate=True,
    ),
    Check(
        "permitted-annotations",
        check_permitted,
        lambda _: "each has a name that means something",
        needs_candidate=True,
    ),
    Check(
        "exclusive-annotations",
        check_exclusive,
        lambda _: "they name one identity at most",
        needs_candidate=True,
    ),
    Check("resource-id", _check_resource_id, _describe_resource_id),
    Check(
        "resource",
        check_resource,
        lambda _: "the token says what the annotations say",
        needs_candidate=True,
    ),
)


def make_cloud_kind(dialect: Dialect) -> AuthenticatorKind:
    """Return the cloud authenticator under the name that it has in a dialect."""
    return AuthenticatorKind(
        dialect.cloud,
        _VARIABLES,
        _CHECKS,
        parse_cloud_values,
        select_annotations,
        has_general_annotations=True,
        evaluation=CloudEvaluation,
    )

"""Checks of a host's annotations for the cloud authenticator against the token's claims (AUTH-38, AUTH-39).

``annotations`` are what ``select_annotations`` returns. The checks raise ``EvidenceRefused``.

Note [Whose annotations]. Names of annotations are ``<authenticator>/<name>``, for every service, and
``<authenticator>/<service id>/<name>``, which overrides the former. A name has no slash: deeper annotations belong to a
service of a longer id, so that an annotation for one service never applies to another. An empty value has no meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from svc.authn.claims import kind_of
from svc.model.cloud_resource_id import ResourceId, is_microsoft_audience
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


def select_annotations(annotations: Mapping[str, str], service: str) -> Mapping[str, str]:
    """Return the annotations for ``service``, by the last part of their names (Note [Whose annotations])."""
    found: dict[str, str] = {}
    for under in (f"{service.partition('/')[0]}/", f"{service}/"):
        for full, value in annotations.items():
            name = full.removeprefix(under)
            if value and name != full and "/" not in name:
                found[name] = value
    return found


def identity_claim(claims: SignedClaims, name: str) -> str:
    """Return the text of a claim that a token about a workload must have."""
    value = claims.get(name)
    if value is None or value == "":
        detail = f"the token has no claim {name!r}; it is not of a workload's identity"
        if name == RESOURCE_CLAIM and not is_microsoft_audience(claims.get("aud")):
            audience = f"'aud' is {shown_json(claims['aud'])}" if "aud" in claims else "it has no 'aud'"
            detail = f"{detail}, or it is for an audience of your own, whose tokens lack the claim: {audience}"
        raise EvidenceRefused(Reason.IDENTITY_CLAIM_MISSING, detail)
    if not isinstance(value, str):
        raise EvidenceRefused(Reason.IDENTITY_CLAIM_INVALID, f"the claim {name!r} is {kind_of(value)}, not text")
    return value


def check_required(annotations: Mapping[str, str]) -> None:
    """Check that the host is bound to a subscription and a resource group; the refusal names all that is missing."""
    missing = [name for name in _REQUIRED if name not in annotations]
    if missing:
        raise EvidenceRefused(Reason.ANNOTATION_REQUIRED, f"the host has no annotation {' and no '.join(missing)}")


def check_permitted(annotations: Mapping[str, str]) -> None:
    """Check that every annotation has a name that means something: it might have been meant to keep somebody out."""
    unknown = [name for name in annotations if name not in _PERMITTED]
    if unknown:
        detail = f"there is no annotation {quote_text(unknown[0])}; there are {', '.join(_PERMITTED)}"
        raise EvidenceRefused(Reason.ANNOTATION_UNSUPPORTED, detail)


def check_exclusive(annotations: Mapping[str, str]) -> None:
    """Check that the host is bound to one identity at most, since a token is of one."""
    if _SHARED in annotations and _SOLE in annotations:
        raise EvidenceRefused(Reason.ANNOTATIONS_EXCLUSIVE, f"the host has both annotations, {_SHARED} and {_SOLE}")


def check_resource(annotations: Mapping[str, str], resource: ResourceId, identity: str) -> None:
    """Check that the resource and the identity are exactly those that the host is bound to."""
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

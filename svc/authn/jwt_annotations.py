"""Checks of a host's annotations against the claims that they are named after (AUTH-28 and AUTH-32 to AUTH-35).

An *alias* is the name of an annotation that is compared with a claim of another name; ``aliases`` has the claims by their
aliases. ``enforced`` names claims, and ``annotations`` are a host's for one authenticator, by the part of their names that
names the claim or alias. The checks raise ``EvidenceRefused``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Final

from svc.authn.claims import claim_fault, find_claim, kind_of, name_fault
from svc.model.reasons import Reason
from svc.model.signed_claims import EvidenceRefused, SignedClaims
from svc.model.text import quote_text

#: Claims that no annotation may be named after: they say nothing about a host.
DENIED: Final = frozenset({"iss", "exp", "nbf", "iat", "jti", "aud"})

#: How the faults of lists end that have a remedy of their own; remedies look for these.
REGISTERED: Final = "is a registered claim, which says nothing about a host"
TWICE: Final = "stands there twice"

_NOT_TEXT: Final[Mapping[type, Reason]] = {
    bool: Reason.CLAIM_IS_BOOLEAN,
    int: Reason.CLAIM_IS_NUMBER,
    float: Reason.CLAIM_IS_NUMBER,
    list: Reason.CLAIM_IS_ARRAY,
    dict: Reason.CLAIM_IS_OBJECT,
}


def read_enforced(text: str, *, nested: bool, renamed: Container[str] = ()) -> tuple[tuple[str, ...], list[str]]:
    """Return the claims of ``claim, claim`` and the faults of the text, phrases that can stand after a colon.

    Claims that are ``renamed`` have an alias, and so may have names that no annotation has.
    """
    names: dict[str, None] = {}
    faults: list[str] = []
    for item in _split_items(text, faults):
        if item in names:
            faults.append(f"{quote_text(item)} {TWICE}")
        else:
            names[item] = None
            faults += [] if item in renamed and item not in DENIED else _claim_faults(item, nested=nested)
    return tuple(names), faults


def read_aliases(text: str, *, nested: bool) -> tuple[Mapping[str, str], list[str]]:
    """Return the aliases of ``annotation: claim, annotation: claim`` and its faults. Aliases of aliases are not followed.

    A claim is all that stands behind the first colon: ``user: cognito:username``.
    """
    aliases: dict[str, str] = {}
    claims: set[str] = set()
    faults: list[str] = []
    for item in _split_items(text, faults):
        alias, _, claim = (part.strip() for part in item.partition(":"))
        if not alias or not claim:
            faults.append(f"{quote_text(item)} is not of the form 'annotation: claim'")
            continue
        if "/" in alias:
            faults.append(f"{quote_text(alias)} holds a slash, which the name of an annotation on the left may not")
        else:
            faults += _claim_faults(alias, nested=False)
        faults += _claim_faults(claim, nested=nested, fault_of=claim_fault)
        if alias in aliases:
            faults.append(f"the annotation {quote_text(alias)} {TWICE}")
        if claim in claims:
            faults.append(f"the claim {quote_text(claim)} {TWICE}")
        aliases[alias] = claim
        claims.add(claim)
    return aliases, faults


def _split_items(text: str, faults: list[str]) -> list[str]:
    items = [item.strip() for item in text.split(",")]
    if "" in items:
        faults.append("an item is empty: commas stand between items, not before the first or after the last")
    return [item for item in items if item]


def _claim_faults(name: str, *, nested: bool, fault_of: Callable[..., str | None] = name_fault) -> list[str]:
    if name in DENIED:
        return [f"{quote_text(name)} {REGISTERED}"]
    fault = fault_of(name, nested=nested)
    return [] if fault is None else [fault]


def check_names(annotations: Mapping[str, str], *, nested: bool) -> None:
    """Check that every annotation has a name that a claim could have. A claim of another name needs an alias (AUTH-27)."""
    for name in annotations:
        fault = name_fault(name, nested=nested)
        if fault is not None:
            if claim_fault(name, nested=nested) is None:
                fault += "; give the claim an alias in claim-aliases, and name the annotation after the alias"
            raise EvidenceRefused(Reason.ANNOTATION_NAME_INVALID, f"an annotation is misnamed: {fault}")


def check_present(annotations: Mapping[str, str]) -> None:
    """Check that there is an annotation. A host without one would be open to every token of the provider."""
    if not annotations:
        raise EvidenceRefused(Reason.ANNOTATIONS_MISSING, "the host has no annotation for this authenticator")


def check_enforced(annotations: Mapping[str, str], enforced: Sequence[str], aliases: Mapping[str, str]) -> None:
    """Check that every enforced claim has its annotation, under its alias if it has one."""
    for claim in enforced:
        name = _aliases_by_claim(aliases).get(claim, claim)
        if name not in annotations:
            detail = f"the host has no annotation {quote_text(name)}, and the claim {quote_text(claim)} is enforced"
            raise EvidenceRefused(Reason.ANNOTATION_ENFORCED, detail)


def check_permitted(annotations: Mapping[str, str], aliases: Mapping[str, str]) -> None:
    """Check that no annotation is named after a registered claim, or after a claim that has an alias."""
    renamed = _aliases_by_claim(aliases)
    for name in annotations:
        if name in DENIED:
            raise EvidenceRefused(Reason.ANNOTATION_FORBIDDEN, f"an annotation may not be named {name!r}")
        if name in renamed:
            why = f"that claim has the alias {quote_text(renamed[name])}"
            raise EvidenceRefused(
                Reason.ANNOTATION_FORBIDDEN, f"an annotation may not be named {quote_text(name)}, since {why}"
            )


def check_claims(annotations: Mapping[str, str], claims: SignedClaims, aliases: Mapping[str, str], *, nested: bool) -> None:
    """Check that every annotation has the exact text of its claim."""
    for name, wanted in annotations.items():
        claim = aliases.get(name, name)
        value = find_claim(claims, claim, nested=nested)
        if value != wanted or not wanted.strip():
            raise _claim_refusal(name, claim, wanted, value)


def _claim_refusal(name: str, claim: str, wanted: str, value: object) -> EvidenceRefused:
    if not wanted.strip():
        return EvidenceRefused(Reason.ANNOTATION_EMPTY, f"the annotation {quote_text(name)} is blank")
    label = quote_text(claim) if name == claim else f"{quote_text(claim)} (annotation {quote_text(name)})"
    if value is None:
        return EvidenceRefused(
            Reason.CLAIM_MISSING, f"the token has no claim {label}; the annotation says {quote_text(wanted)}"
        )
    if not isinstance(value, str):
        detail = f"the claim {label} is {kind_of(value)}; only text can match {quote_text(wanted)}"
        return EvidenceRefused(_NOT_TEXT[type(value)], detail)
    detail = f"the claim {label} is {quote_text(value)}; the annotation says {quote_text(wanted)}"
    return EvidenceRefused(Reason.CLAIM_MISMATCH, detail)


def _aliases_by_claim(aliases: Mapping[str, str]) -> Mapping[str, str]:
    """Return the aliases by their claims."""
    return {claim: alias for alias, claim in aliases.items()}

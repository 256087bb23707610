"""Claims of a verified token: times, identity, and how annotations and settings name claims (AUTH-27, 28, 32 to 35).

Where a claim is wrong the functions raise ``EvidenceRefused``. ``nested`` says whether ``/`` in a claim's name walks into
objects.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Container, Mapping
from typing import Final

from svc.model.errors import InvalidName
from svc.model.key_sets import EvidenceRefused, SignedClaims
from svc.model.names import RoleName
from svc.model.reasons import Reason
from svc.model.text import quote_text

_PART: Final = r"[A-Za-z$_|][A-Za-z0-9$_.|-]*"
_NAME: Final = re.compile(f"{_PART}(?:/{_PART})*")
#: The name of a claim that is taken as it is written (AUTH-27), and what is meant as a path, though it is none.
_LITERAL: Final = re.compile(r"(?!.*:\Z)[^\s,:\[\]\x00-\x1f\x7f][^\s,\[\]\x00-\x1f\x7f]{0,255}")
_LIKE_PATH: Final = re.compile(r"(?=.*/)[A-Za-z0-9$_.|/-]+")

#: The sentence about names of these forms.
_FORM: Final = "a name begins with a letter, '$', '_' or '|', and goes on with letters, digits, '$', '_', '|', '-' and '.'"
_NO_LITERAL: Final = (
    "can't name a claim, since it has a blank, a comma, a bracket or a control character, begins or ends with ':',"
    " or has more than 256 characters"
)

#: How the fault of a path ends where claims within claims can't be named; remedies look for it.
NESTED: Final = "and claims within claims can be named in the dialect conjur alone"

_KINDS: Final[Mapping[type, str]] = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "an array",
    dict: "an object",
    str: "text",
    type(None): "null",
}


def kind_of(value: object) -> str:
    """Return the type of a JSON value, in words."""
    return _KINDS[type(value)]


def numeric_date(claims: SignedClaims, name: str) -> float:
    """Return a ``NumericDate``: a JSON number that is finite as one (RFC 7519 2); numeric text isn't read (AUTH-19)."""
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EvidenceRefused(Reason.TIME_CLAIM_INVALID, f"{name!r} is {kind_of(value)}, not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise EvidenceRefused(Reason.TIME_CLAIM_INVALID, f"{name!r} is too large a number")
    return number


@functools.lru_cache(1024)  # the names of annotations, which policies have
def name_fault(name: str, *, nested: bool) -> str | None:
    """Return what is wrong with ``name`` as the name of a claim, ``None`` when nothing is (AUTH-27)."""
    if "/" in name and not nested and not _is_literal(name):
        return f"{quote_text(name)} is a path, {NESTED}"
    if not _NAME.fullmatch(name):
        return f"{quote_text(name)} can't name a claim in an annotation, where {_FORM}"
    return None


def _is_literal(name: str) -> bool:
    """Return whether a name that no annotation can have is taken as it is written, as that of an alias."""
    return _LITERAL.fullmatch(name) is not None and _LIKE_PATH.fullmatch(name) is None


def claim_fault(name: str, *, nested: bool) -> str | None:
    """Return what is wrong with ``name`` as that of a claim which no annotation is named after, ``None`` when nothing is.

    It may be an address, or hold other signs: then it is taken as it is written (AUTH-27).
    """
    fault = name_fault(name, nested=nested)
    if fault is None or _is_literal(name):
        return None
    if fault.endswith(NESTED):
        return fault
    if _LIKE_PATH.fullmatch(name):
        return f"{quote_text(name)} is no path of claims, in which {_FORM.replace('a name', 'each name')}"
    return f"{quote_text(name)} {_NO_LITERAL}"


def find_claim(claims: Mapping[str, object], name: str, *, nested: bool) -> object:
    """Return the value of the claim; ``None`` when there is none, or it is null.

    A claim that has the whole of ``name`` as its name comes before one at the end of the path that it spells, if it is one.
    """
    value = claims.get(name)
    if value is not None or not nested or "/" not in name or not _NAME.fullmatch(name):
        return value
    here: object = claims
    for part in name.split("/"):
        if not isinstance(here, Mapping):
            return None
        here = here.get(part)
    return here


def host_of(claims: SignedClaims, account: str, name: str, path: str, *, nested: bool) -> RoleName:
    """Return the host that the claim ``name`` identifies, below the policy ``path`` unless that is empty.

    It is never outside the path (AUTH-31): no claim makes a token speak for a user, or for the path's own name.
    """
    value = find_claim(claims, name, nested=nested)
    if value is None or value == "":
        raise EvidenceRefused(
            Reason.IDENTITY_CLAIM_MISSING, f"the token has no claim {quote_text(name)}, which names the host"
        )
    if not isinstance(value, str):
        raise EvidenceRefused(Reason.IDENTITY_CLAIM_INVALID, f"the claim {quote_text(name)} is {kind_of(value)}, not text")
    above, below = path.strip("/"), value.lstrip("/")
    joined = f"{above}/{below}" if above else below
    try:
        return RoleName.from_parts(account, "host", joined)
    except InvalidName as error:
        raise EvidenceRefused(Reason.ROLE_UNKNOWN, f"{quote_text(joined)} can't name a host: {error.message}") from None


def identity_claim(claims: SignedClaims, name: str, hint: str = "") -> str:
    """Return the text of a claim that a token about a workload must have; ``hint`` ends the sentence that it has none."""
    value = claims.get(name)
    if value is None or value == "":
        detail = f"the token has no claim {name!r}; it is not of a workload's identity{hint}"
        raise EvidenceRefused(Reason.IDENTITY_CLAIM_MISSING, detail)
    if not isinstance(value, str):
        raise EvidenceRefused(Reason.IDENTITY_CLAIM_INVALID, f"the claim {name!r} is {kind_of(value)}, not text")
    return value


def parse_login(login: str, account: str) -> RoleName:
    """Return the user or host that a login in the path names."""
    try:
        return RoleName.from_login(account, login)
    except InvalidName as error:
        raise EvidenceRefused(Reason.ROLE_UNKNOWN, f"{quote_text(login)} can't name a role: {error.message}") from None


#: Claims that no annotation may be named after: they say nothing about a host.
DENIED: Final = frozenset({"iss", "exp", "nbf", "iat", "jti", "aud"})

#: How the faults of lists end that have a remedy of their own; remedies look for these.
REGISTERED: Final = "is a registered claim, which says nothing about a host"
TWICE: Final = "stands there twice"


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

"""The checks of every third party's token, in decisions and in explanations; ``e`` is the evaluation that is checked.

The checks of one kind of authenticator alone are beside its table, which puts all in the order in which failures count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from typing import Final

from svc.authn.claims import find_claim, kind_of, numeric_date
from svc.authn.evaluation import Check, ClockSample, Evaluation, TokenEvaluation
from svc.authn.settings import Misconfiguration, keys_remedy
from svc.crypto.jws import choose_key, parse_compact, verify_token
from svc.model.authentication import ANNOTATIONS_BYTES, ANNOTATIONS_LIMIT, KeySource, Problem, spread_retry_after
from svc.model.dialect import Dialect
from svc.model.errors import DOCUMENT_UNUSABLE, ISSUER_DIFFERS, LEADS, UNLISTED, KeysUnavailable
from svc.model.key_sets import UNUSABLE, EvidenceRefused
from svc.model.query_results import is_within
from svc.model.reasons import Reason
from svc.model.strict_json import shown_json
from svc.model.text import quote_text

#: Keys and networks that are named to operators.
_MAX_LISTED: Final = 10

#: A place for a tenant in the issuer of a document for many tenants. No address that can be fetched has braces (NET-12).
_PATTERN: Final = re.compile(r"\{\w+\}")

_NOT_TEXT: Final[Mapping[type, Reason]] = {
    bool: Reason.CLAIM_IS_BOOLEAN,
    int: Reason.CLAIM_IS_NUMBER,
    float: Reason.CLAIM_IS_NUMBER,
    list: Reason.CLAIM_IS_ARRAY,
    dict: Reason.CLAIM_IS_OBJECT,
}

#: A member that a discovery document lacks, or whose address may not be asked.
_MEMBER_AT_FAULT: Final = re.compile(rf"{DOCUMENT_UNUSABLE}(?:it names no|its) (\w+)")

#: The refusals for which newer keys are fetched (AUTH-44): a provider may change its key and keep the id, or use no ids.
#: Every other refusal is about keys that are known: one is distrusted or for another algorithm, or there are several.
NEWER_KEYS_MAY_HELP: Final = frozenset({Reason.KEY_UNKNOWN, Reason.SIGNATURE_WRONG})


def why_disabled(dialect: Dialect, service: str, listed: bool, switched: bool | None) -> Problem | None:
    """Return why an authenticator may not be used; the dialect says how listing and switching go together (AUTH-2)."""
    if dialect.is_enabled(listed, switched):
        return None
    if dialect.switch_enables:
        return Problem(
            f"{quote_text(service)} is neither listed in the configuration nor switched on.",
            "Switch it on, or list it in the setting authenticators and start the server again.",
        )
    if not listed:
        return Problem(
            f"{quote_text(service)} is not listed in the configuration.",
            "List it in the setting authenticators and start the server again.",
        )
    return Problem(f"{quote_text(service)} is switched off.", "Switch it on.")


def fetch_problem(what: str, why: str, variables: Container[str], declared: Container[str] = ()) -> Problem:
    """Return the problem that something can't be fetched, with the remedy that an authenticator of these variables has.

    Policy has ``declared`` some of them.
    """
    named = [name for name in ("ca-cert", "jwks-token") if name in variables]
    if UNLISTED in why:
        remedy = "If the address is right, list its network in --allow-private-providers, and start the server again."
    elif LEADS in why:
        remedy = _redirect_remedy(why, variables, declared)
    elif ISSUER_DIFFERS in why:
        remedy = "Set provider-uri to the issuer that the document names"
        if _PATTERN.search(why.partition(ISSUER_DIFFERS)[2]):
            remedy = "Name your own tenant in provider-uri: the issuer that the document names is a pattern, not an address"
        elif "jwks-uri" in variables:
            remedy += ", or, if that can't be asked from here, declare jwks-uri and issuer in its place"
        remedy += "."
    elif (member := _MEMBER_AT_FAULT.search(why)) is not None:
        remedy = f"Have the provider name a usable {member[1]} in its document."
        if "jwks-uri" in variables:
            remedy = "Declare jwks-uri and issuer in the place of provider-uri."
    elif UNUSABLE in why:
        remedy = keys_remedy(why, variables, declared)
    else:
        remedy = f"Mend {', '.join(['the address', *named])}, or what is between provider and server; then refresh the keys."
    return Problem(f"{what}: {why.removesuffix('.')}.", remedy)


def _redirect_remedy(why: str, variables: Container[str], declared: Container[str]) -> str:
    """Return what to do about an address that leads to another, as ``fetch_problem`` is given it."""
    if "jwks-uri" in declared:
        remedy = "Set jwks-uri to where it leads"
    elif "/.well-known/" in why.partition(LEADS)[0]:
        remedy = "Set provider-uri to the issuer whose document is there"
    else:
        remedy = "Have the provider's document name the address to which it leads"
        if "jwks-uri" in variables:
            remedy += ", or declare jwks-uri and issuer in its place"
    return f"{remedy}, if that is the provider's; else mend what is between provider and server, then refresh the keys."


def _check_enabled(evaluation: Evaluation) -> None:
    disabled = evaluation.cached.disabled
    if disabled is not None:
        raise EvidenceRefused(Reason.AUTHENTICATOR_NOT_ENABLED, disabled.what)


def _check_account(evaluation: Evaluation) -> None:
    account, candidate = evaluation.request.account, evaluation.candidate
    if not candidate.account_exists:
        raise EvidenceRefused(Reason.ACCOUNT_UNKNOWN, f"there is no account {quote_text(account)}")
    if candidate.signing_key is None:
        raise EvidenceRefused(
            Reason.SIGNING_KEY_UNUSABLE, f"the account {quote_text(account)} has no signing key", spread_retry_after()
        )


def _check_webservice(evaluation: Evaluation) -> None:
    if not evaluation.candidate.webservice_exists:
        raise EvidenceRefused(Reason.WEBSERVICE_UNKNOWN, f"no policy defines the webservice {_webservice_name(evaluation)}")


def _webservice_name(evaluation: Evaluation) -> str:
    return quote_text(f"{evaluation.context.dialect.prefix}/{evaluation.service}")


def _check_configuration(evaluation: Evaluation) -> None:
    meaning = evaluation.cached.meaning
    if isinstance(meaning, Misconfiguration):
        raise EvidenceRefused(Reason.CONFIGURATION_INVALID, " ".join(problem.what for problem in meaning.problems))
    evaluation.configuration = meaning


def _check_token(evaluation: TokenEvaluation) -> None:
    if evaluation.request.fault is not None:
        raise EvidenceRefused(*evaluation.request.fault)
    text = evaluation.request.evidence.strip()
    if not text:
        raise EvidenceRefused(Reason.TOKEN_MISSING, "the request has no token")
    evaluation.token = parse_compact(text, evaluation.context.token_limit, evaluation.cached.meaning.algorithms)


def _describe_token(evaluation: TokenEvaluation) -> str:
    key_id, allowed = evaluation.token.key_id, ", ".join(evaluation.cached.meaning.algorithms)
    names = "no key" if key_id is None else f"the key {quote_text(key_id)}"
    return f"it is signed with {evaluation.token.algorithm} (allowed are {allowed}), and names {names}"


async def _check_keys(evaluation: TokenEvaluation) -> None:
    keys = evaluation.configuration.keys
    if isinstance(keys, KeySource):
        try:
            keys = await evaluation.context.keys.current_keys(keys, evaluation.cached.settings.refreshes, evaluation.request)
        except KeysUnavailable as error:
            raise EvidenceRefused(Reason.KEYS_UNAVAILABLE, error.why, error.retry_after) from None
    assert keys is not None
    evaluation.keys = keys


def _describe_keys(evaluation: TokenEvaluation) -> str:
    source = evaluation.configuration.keys
    named = ", ".join(
        "one without id" if key.key_id is None else quote_text(key.key_id) for key in evaluation.keys.keys[:_MAX_LISTED]
    )
    more = ", …" if len(evaluation.keys.keys) > _MAX_LISTED else ""
    return f"from {quote_text(source.uri) if isinstance(source, KeySource) else 'the variable public-keys'}: {named}{more}"


async def _check_signature(evaluation: TokenEvaluation) -> None:
    """Verify the signature, if need be with newer keys, fetched once; without them the login can't be decided (FAIL-12)."""
    source, distrusted = evaluation.configuration.keys, evaluation.cached.settings.distrusted
    try:
        evaluation.claims = verify_token(evaluation.keys, evaluation.token, distrusted)
    except EvidenceRefused as refusal:
        if not isinstance(source, KeySource) or refusal.reason not in NEWER_KEYS_MAY_HELP:
            raise
        try:
            newer = await evaluation.context.keys.fetch_newer_keys(source, evaluation.keys, evaluation.request)
        except KeysUnavailable as error:
            why = f"{refusal.detail}; no newer keys: {error.why}"
            raise EvidenceRefused(Reason.KEYS_UNAVAILABLE, why, error.retry_after) from None
        if newer is evaluation.keys:
            raise EvidenceRefused(refusal.reason, f"{refusal.detail}; these keys were fetched a moment ago") from None
        evaluation.keys = newer
        evaluation.claims = verify_token(newer, evaluation.token, distrusted)
    read_times(evaluation)


def read_times(evaluation: TokenEvaluation) -> None:
    """Find out when the token came and was issued, and which issuer it must have (AUTH-21)."""
    claims, keys, source = evaluation.claims, evaluation.keys, evaluation.configuration.keys
    now = evaluation.now = evaluation.context.wall.seconds()
    issuer = evaluation.configuration.issuer
    if issuer is None and isinstance(source, KeySource) and source.discovered:
        issuer = source.uri if keys.issuer is None else keys.issuer
    evaluation.issuer = issuer
    try:
        issued_at = numeric_date(claims, "iat") if "iat" in claims else None
    except EvidenceRefused:
        issued_at = None
    evaluation.issued_at = issued_at
    evaluation.early = issued_at is not None and _is_ahead(issued_at, evaluation)
    # A platform may sign the tokens of other tenants with the same key; their times are not relied on.
    if issued_at is not None and (issuer is None or claims.get("iss", issuer) == issuer):
        evaluation.cached.arrivals.append(ClockSample(now, now - issued_at, evaluation.early))


def _describe_signature(evaluation: TokenEvaluation) -> str:
    key = choose_key(evaluation.keys, evaluation.token)
    return f"it is by the key {'without id' if key.key_id is None else quote_text(key.key_id)}, thumbprint {key.thumbprint}"


def _describe_time(evaluation: TokenEvaluation, name: str) -> str:
    if name not in evaluation.claims:
        return f"the token has no {name!r}, and needs none"
    return f"{name!r} is {shown_json(evaluation.claims[name])}, the time here is {evaluation.now:.15g}"


def _describe_expected(evaluation: TokenEvaluation, name: str, expected: str | None) -> str:
    if name not in evaluation.claims:
        return f"the token has no {name!r}, and needs none"
    return f"no {name!r} is expected, any will do" if expected is None else f"{name!r} is or holds {quote_text(expected)}"


def check_expiry(evaluation: TokenEvaluation) -> None:
    """Check that ``exp`` is there and lies ahead; from that second on the token is dead (RFC 7519 4.1.4; AUTH-19)."""
    claims, now = evaluation.claims, evaluation.now
    if "exp" not in claims:
        detail = "the token has no 'exp'" if claims else "the token has no claims at all"
        raise EvidenceRefused(Reason.EXPIRY_MISSING, detail)
    expiry = numeric_date(claims, "exp")
    if expiry + evaluation.context.clock_skew <= now:
        raise EvidenceRefused(Reason.TOKEN_EXPIRED, f"'exp' is {expiry:.15g}, the time here is {now:.15g}")


def check_not_before(evaluation: TokenEvaluation) -> None:
    """Check that ``nbf`` is absent or lies not ahead (RFC 7519 4.1.5; AUTH-19)."""
    if "nbf" in evaluation.claims:
        moment = numeric_date(evaluation.claims, "nbf")
        if _is_ahead(moment, evaluation):
            raise _not_yet_valid("nbf", moment, evaluation.now)


def check_issued_at(evaluation: TokenEvaluation) -> None:
    """Check that ``iat`` is absent or lies not ahead (RFC 7519 4.1.6; AUTH-19)."""
    if evaluation.issued_at is None:
        if "iat" in evaluation.claims:
            numeric_date(evaluation.claims, "iat")  # which says why it is none
    elif evaluation.early:
        raise _not_yet_valid("iat", evaluation.issued_at, evaluation.now)


def _is_ahead(moment: float, evaluation: TokenEvaluation) -> bool:
    """Return whether a moment is ahead of the next whole second: many clocks and libraries know no fractions."""
    return moment - evaluation.context.clock_skew > math.ceil(evaluation.now)


def _not_yet_valid(name: str, moment: float, now: float) -> EvidenceRefused:
    detail = f"{name!r} is {moment:.15g}, which is ahead of the time here, {now:.15g}"
    return EvidenceRefused(Reason.TOKEN_NOT_YET_VALID, detail)


def check_issuer(evaluation: TokenEvaluation) -> None:
    """Check that ``iss`` is the expected text, if any; it may be absent unless it is mandatory (AUTH-21, AUTH-22)."""
    claims, expected = evaluation.claims, evaluation.issuer
    if "iss" not in claims:
        if evaluation.context.issuer_mandatory and expected is not None:
            raise EvidenceRefused(Reason.ISSUER_MISSING, f"the token has no 'iss'; it must be {quote_text(expected)}")
        return
    issuer = claims["iss"]
    if not isinstance(issuer, str):
        raise EvidenceRefused(Reason.ISSUER_WRONG, f"'iss' is {kind_of(issuer)}, not text")
    if expected is not None and issuer != expected:
        raise EvidenceRefused(Reason.ISSUER_WRONG, f"'iss' is {quote_text(issuer)}; it must be {quote_text(expected)}")


def check_audience(evaluation: TokenEvaluation) -> None:
    """Check that ``aud`` is the expected text, or an array of texts with it, if one is expected (RFC 7519 4.1.3)."""
    claims, expected = evaluation.claims, evaluation.configuration.audience
    if expected is None:
        return
    if "aud" not in claims:
        raise EvidenceRefused(Reason.AUDIENCE_MISSING, f"the token has no 'aud'; it must be {quote_text(expected)}")
    audience = claims["aud"]
    audiences = audience if isinstance(audience, list) else [audience]
    for one in audiences:
        if not isinstance(one, str):
            raise EvidenceRefused(
                Reason.AUDIENCE_WRONG, f"'aud' is or holds {kind_of(one)}; it must be {quote_text(expected)}"
            )
    if expected not in audiences:
        among = ", ".join(map(quote_text, audiences[:3])) or "an empty array"
        raise EvidenceRefused(Reason.AUDIENCE_WRONG, f"'aud' is {among}; it must be {quote_text(expected)}")


def _check_role(evaluation: Evaluation) -> None:
    if not evaluation.candidate.role_exists:
        raise EvidenceRefused(Reason.ROLE_UNKNOWN, f"there is no role {quote_text(str(evaluation.role))}")


def _check_privilege(evaluation: Evaluation) -> None:
    if not evaluation.candidate.may_authenticate:
        lacking = f"{quote_text(str(evaluation.role))} has no privilege authenticate on {quote_text(evaluation.service)}"
        # The group that hosts are put in is called so by all that makes an authenticator for them (NEWER-35).
        group = "; its group is not in apps" if evaluation.role is not None and evaluation.role.kind == "host" else ""
        raise EvidenceRefused(Reason.PRIVILEGE_MISSING, lacking + group)


def _check_origin(evaluation: Evaluation) -> None:
    """Check that the client is where the role may log in from (TOK-20)."""
    client, networks = evaluation.request.client_ip, evaluation.candidate.restrictions
    if networks and not is_within(client, networks):
        among = ", ".join(map(str, networks[:_MAX_LISTED]))
        detail = f"the request comes from {quote_text(client)}; the role is restricted to {among}"
        raise EvidenceRefused(Reason.ORIGIN_REFUSED, detail)


def _describe_origin(evaluation: Evaluation) -> str:
    restricted = "one that it is restricted to" if evaluation.candidate.restrictions else "and it may log in from everywhere"
    return f"the request comes from {quote_text(evaluation.request.client_ip)}, {restricted}"


def _check_extent(evaluation: Evaluation) -> None:
    """Check that the role's annotations are few enough to be read: they decide what its logins cost."""
    if evaluation.candidate.annotations is None:
        raise EvidenceRefused(
            Reason.ANNOTATIONS_EXCESSIVE,
            f"{quote_text(str(evaluation.role))} has more than {ANNOTATIONS_LIMIT} annotations for"
            f" {quote_text(evaluation.service)} and its like, or they have more than {ANNOTATIONS_BYTES // 1024} KiB",
        )


def check_claims(evaluation: TokenEvaluation) -> None:
    """Check that every annotation has the exact text of its claim."""
    aliases, claims = evaluation.configuration.aliases, evaluation.claims
    for name, wanted in evaluation.annotations.items():
        claim = aliases.get(name, name)
        value = claims.get(claim)
        if value is None and "/" in claim:
            value = find_claim(claims, claim, nested=evaluation.configuration.nested)
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


ENABLED: Final = Check(
    "enabled",
    _check_enabled,
    lambda e: f"{quote_text(e.service)} is {'listed in the configuration' if e.listed else 'switched on'}",
)
ACCOUNT: Final = Check(
    "account", _check_account, lambda e: f"the account {quote_text(e.request.account)} exists", needs_candidate=True
)
WEBSERVICE: Final = Check(
    "webservice", _check_webservice, lambda e: f"a policy defines the webservice {_webservice_name(e)}", needs_candidate=True
)
CONFIGURATION: Final = Check(
    "configuration",
    _check_configuration,
    lambda e: f"the variables that are declared fit together: {', '.join(sorted(e.cached.settings.values)) or 'none'}",
)
AUDIENCE: Final = Check("audience", check_audience, lambda e: _describe_expected(e, "aud", e.configuration.audience))

#: The checks of a token before its audience, and those of the candidate, in the order in which failures count.
BEFORE_AUDIENCE: Final = (
    ENABLED,
    ACCOUNT,
    Check("token", _check_token, _describe_token),
    WEBSERVICE,
    CONFIGURATION,
    Check("keys", _check_keys, _describe_keys),
    Check("signature", _check_signature, _describe_signature),
    Check("expiry", check_expiry, lambda e: _describe_time(e, "exp")),
    Check("not-before", check_not_before, lambda e: _describe_time(e, "nbf")),
    Check("issuer", check_issuer, lambda e: _describe_expected(e, "iss", e.issuer)),
    Check("issued-at", check_issued_at, lambda e: _describe_time(e, "iat")),
)
CANDIDATE: Final = (
    Check("role", _check_role, lambda e: f"the role {quote_text(str(e.role))} exists", needs_candidate=True),
    Check(
        "privilege",
        _check_privilege,
        lambda e: f"it has the privilege authenticate on {quote_text(e.service)}",
        needs_candidate=True,
    ),
    Check("origin", _check_origin, _describe_origin, needs_candidate=True),
    Check(
        "annotations-extent",
        _check_extent,
        lambda e: f"{len(e.annotations)} annotations bear on {quote_text(e.service)}",
        needs_candidate=True,
    ),
)

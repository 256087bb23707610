"""The checks of every third party's token, in decisions and in explanations; ``e`` is the evaluation that is checked.

The checks of one kind of authenticator alone are beside its table, which puts all in the order in which failures count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from svc.authn.evaluation import Check, ClockSample, Evaluation, TokenEvaluation
from svc.authn.settings import CLAIM_NAME, Misconfiguration
from svc.crypto.jws import choose_key, parse_compact, verify_token
from svc.model.authentication import ANNOTATIONS_BYTES, ANNOTATIONS_LIMIT, KeySource, spread_retry_after
from svc.model.clocks import describe_moment
from svc.model.errors import InvalidName, KeysUnavailable
from svc.model.key_sets import EvidenceRefused, SignedClaims
from svc.model.names import RoleName
from svc.model.query_results import is_within
from svc.model.reasons import Reason
from svc.model.strict_json import shown_json
from svc.model.text import quote_text

#: Keys and networks that are named to operators.
_MAX_LISTED: Final = 10


_NOT_TEXT: Final[Mapping[type, Reason]] = {
    bool: Reason.CLAIM_IS_BOOLEAN,
    int: Reason.CLAIM_IS_NUMBER,
    float: Reason.CLAIM_IS_NUMBER,
    list: Reason.CLAIM_IS_ARRAY,
    dict: Reason.CLAIM_IS_OBJECT,
}


#: The refusals for which newer keys are fetched (AUTH-44): a provider may change its key and keep the id, or use no ids.
#: Every other refusal is about keys that are known: one is distrusted or for another algorithm, or there are several.
NEWER_KEYS_MAY_HELP: Final = frozenset({Reason.KEY_UNKNOWN, Reason.SIGNATURE_WRONG})


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
    claimed, now = evaluation.claims[name], describe_moment(evaluation.now)
    shown = shown_json(claimed)
    if isinstance(claimed, int | float) and not isinstance(claimed, bool):
        shown = describe_moment(claimed)
    return f"{name!r} is {shown}, the time here is {now}"


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
        detail = f"'exp' is {describe_moment(expiry)}, the time here is {describe_moment(now)}"
        raise EvidenceRefused(Reason.TOKEN_EXPIRED, detail)


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
    ahead = f"{round(moment - now, 2):.15g} s ahead of the time here"
    detail = f"{name!r} is {describe_moment(moment)}, which is {ahead}, {describe_moment(now)}"
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


def find_claim(claims: Mapping[str, object], name: str, *, nested: bool) -> object:
    """Return the value of the claim; ``None`` when there is none, or it is null.

    A claim that has the whole of ``name`` as its name comes before one at the end of the path that it spells, if it is one.
    """
    value = claims.get(name)
    if value is not None or not nested or "/" not in name or not CLAIM_NAME.fullmatch(name):
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

"""The authenticator of people who sign in at a provider of OpenID Connect, and the user whom its id token names.

Note [Two forms]. A client brings an authorization code, which is exchanged at the provider for an id token, or an id token
that it has been given. Each has a table of checks, and they share most. ``explained`` is for operators: it takes an id
token, and verifies it as the form that is set up would, nonce aside.

Note [Settings first]. A code is sent to the provider with the client's secret, so the settings are read before, at each
login (``AuthenticatorKind.sends_evidence``): an outdated provider is sent neither.

Note [Exchanged once]. A code can be exchanged once. If the settings change while a login is decided, and still name the same
client of the same provider, the id token at hand is verified again (``CodeLogin.exchanged``).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

import attrs

from svc.authn.checks import AUDIENCE, BEFORE_AUDIENCE, CANDIDATE, check_audience, find_claim, kind_of
from svc.authn.evaluation import AuthenticatorKind, Check, TokenEvaluation
from svc.authn.oidc_settings import NAME, VARIABLES, OidcConfiguration, parse_oidc_values
from svc.authn.providers.oidc_endpoints import OidcEndpoints
from svc.authn.settings import Configuration, fetch_problem
from svc.crypto.jws import decode_base64url, parse_compact
from svc.model.authentication import Problem, spread_retry_after
from svc.model.clocks import iso_seconds
from svc.model.dialect import Dialect
from svc.model.errors import InvalidName
from svc.model.key_sets import EvidenceRefused
from svc.model.names import RoleName
from svc.model.oidc import ClientRefused, CodeLogin, CodeRefused, ProviderUnavailable
from svc.model.reasons import Reason, RefusalKind
from svc.model.strict_json import parse_json_object, shown_json
from svc.model.text import quote_text

#: The user whom no provider can prove.
_ADMIN: Final = "admin"

#: Marks in the header and claims by which an id token differs from other tokens (RFC 9068 2.1, and usage of providers).
_TYPES: Final = frozenset({"jwt", "application/jwt"})
_ID_TOKENS: Final = {"typ": "id", "token_use": "id"}
_OF_ACCESS_TOKENS: Final = ("scope", "scp")

#: The refusals of codes that are 401 in the installed base; all others are 400 there.
_UNPROVEN: Final = frozenset(
    {
        Reason.WEBSERVICE_UNKNOWN,
        Reason.CONFIGURATION_INVALID,
        Reason.IDENTITY_CLAIM_MISSING,
        Reason.IDENTITY_CLAIM_INVALID,
        Reason.OIDC_ROLE_REFUSED,
        Reason.EMAIL_UNVERIFIED,
        Reason.ORIGIN_REFUSED,
    }
)

#: Those of either form that concern the request alone.
_OF_REQUEST: Final[Mapping[Reason, RefusalKind]] = {
    Reason.CODE_MISSING: RefusalKind.MALFORMED,
    Reason.REQUEST_MALFORMED: RefusalKind.MALFORMED,
    Reason.TOKEN_MISSING: RefusalKind.MALFORMED,
    Reason.TOKEN_TOO_LARGE: RefusalKind.TOO_LARGE,
}


@attrs.frozen
class OidcKinds:
    """The authenticator for codes, for id tokens, and for operators (Note [Two forms])."""

    code: AuthenticatorKind
    token: AuthenticatorKind
    explanation: AuthenticatorKind


@attrs.define(eq=False)
class _OidcEvaluation(TokenEvaluation):
    configuration: OidcConfiguration = attrs.field(init=False)


def _check_code(evaluation: _OidcEvaluation) -> None:
    """Check that there is a code with its nonce; nothing else of them is known yet."""
    request = evaluation.request
    assert isinstance(request, CodeLogin)
    if request.fault is not None:
        raise EvidenceRefused(*request.fault)
    for name, value in (("code", request.evidence), ("nonce", request.nonce)):
        if not value.strip():
            raise EvidenceRefused(Reason.CODE_MISSING, f"the request has no {name}")
        if len(value) > evaluation.context.token_limit:
            raise EvidenceRefused(Reason.TOKEN_TOO_LARGE, f"the {name} is longer than any that is looked at")


def _check_takes_codes(evaluation: _OidcEvaluation) -> None:
    if evaluation.configuration.client is None:
        why = "codes are not taken: the variables client-secret and claim-mapping are not declared"
        raise EvidenceRefused(Reason.CONFIGURATION_INVALID, why)


def _check_takes_tokens(evaluation: _OidcEvaluation) -> None:
    if evaluation.configuration.token_claim is None:
        why = "id tokens are not taken: the variable id-token-user-property is not declared"
        raise EvidenceRefused(Reason.CONFIGURATION_INVALID, why)


async def _exchange_code(evaluation: _OidcEvaluation, providers: OidcEndpoints) -> None:
    """Take the id token that the provider gives for the code (Note [Exchanged once])."""
    login, client = evaluation.request, evaluation.configuration.client
    assert isinstance(login, CodeLogin)
    assert client is not None
    if login.redirect_uri is not None:
        client = attrs.evolve(client, redirect_uri=login.redirect_uri)
    if client not in login.exchanged:
        try:
            login.exchanged[client] = await providers.exchange_code(client, login)
        except ProviderUnavailable as error:
            raise EvidenceRefused(Reason.OIDC_UNAVAILABLE, error.why, error.retry_after) from None
        except ClientRefused as error:
            raise EvidenceRefused(Reason.OIDC_CLIENT_REFUSED, error.why, spread_retry_after()) from None
        except CodeRefused as error:
            raise EvidenceRefused(Reason.CODE_REPLAYED if error.replayed else Reason.CODE_REFUSED, error.why) from None
    token = login.exchanged[client].strip()
    if not token:
        raise EvidenceRefused(Reason.ID_TOKEN_MISSING, "the provider's answer to the code has no id token")
    evaluation.token = parse_compact(token, evaluation.context.token_limit, evaluation.cached.meaning.algorithms)


def _check_audience(evaluation: _OidcEvaluation) -> None:
    """Check that the token is for this client, and was given to it (OpenID Connect Core 1.0, 3.1.3.7)."""
    claims, expected = evaluation.claims, evaluation.configuration.audience
    check_audience(evaluation)
    party, audience = claims.get("azp"), claims["aud"]
    if party is None and isinstance(audience, list) and len(audience) > 1:
        raise EvidenceRefused(Reason.AUDIENCE_WRONG, f"'aud' has {len(audience)} audiences, and there is no 'azp'")
    if party is not None and party != expected:
        shown = quote_text(party) if isinstance(party, str) else kind_of(party)
        raise EvidenceRefused(Reason.AUDIENCE_WRONG, f"'azp' is {shown}; it must be {quote_text(expected or '')}")


def _check_id_token(evaluation: _OidcEvaluation) -> None:
    """Refuse a token that is marked as another than an id token, such as an access token for the same client.

    Some providers put scopes into id tokens, too; one that a code was exchanged for is none that a client confused.
    """
    header, claims = (
        parse_json_object(decode_base64url(evaluation.token.signing_input.partition(b".")[0])),
        evaluation.claims,
    )
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise EvidenceRefused(Reason.NOT_AN_ID_TOKEN, f"the header's 'typ' is {shown_json(kind)}")
    for name, expected in _ID_TOKENS.items():
        value = claims.get(name, expected)
        if not isinstance(value, str) or value.lower() != expected:
            raise EvidenceRefused(Reason.NOT_AN_ID_TOKEN, f"{name!r} is {shown_json(value)}, not {expected!r}")
    for name in () if _is_by_code(evaluation) else _OF_ACCESS_TOKENS:
        if name in claims:
            raise EvidenceRefused(Reason.NOT_AN_ID_TOKEN, f"the token has {name!r}, as access tokens have")


def _check_nonce(evaluation: _OidcEvaluation) -> None:
    login, nonce = evaluation.request, evaluation.claims.get("nonce")
    assert isinstance(login, CodeLogin)
    if not isinstance(nonce, str):
        problem = "no 'nonce'" if nonce is None else f"a 'nonce' that is {kind_of(nonce)}"
        raise EvidenceRefused(Reason.NONCE_WRONG, f"the token has {problem}")
    if not hmac.compare_digest(nonce.encode("utf-8", "replace"), login.nonce.encode("utf-8", "replace")):
        raise EvidenceRefused(Reason.NONCE_WRONG, "'nonce' is not that of the request: the code belongs to another login")


def _is_by_code(evaluation: _OidcEvaluation) -> bool:
    """Return whether the id token counts as one that a code was exchanged for (Note [Two forms])."""
    return isinstance(evaluation.request, CodeLogin) or evaluation.configuration.token_claim is None


def _identity_claim_of(evaluation: _OidcEvaluation) -> str:
    configuration = evaluation.configuration
    claim = configuration.code_claim if _is_by_code(evaluation) else configuration.token_claim
    assert claim is not None
    return claim


def _check_identity(evaluation: _OidcEvaluation) -> None:
    """Take the user from the claim: always a user, and never ``admin`` (OIDC-26, OIDC-27)."""
    request, claims, name = evaluation.request, evaluation.claims, _identity_claim_of(evaluation)
    if request.login is not None:
        raise EvidenceRefused(Reason.IDENTITY_AMBIGUOUS, "the path names a user, and the token does")
    value = find_claim(claims, name, nested=False)
    if value is None or value == "":
        raise EvidenceRefused(
            Reason.IDENTITY_CLAIM_MISSING, f"the token has no claim {quote_text(name)}, which names the user"
        )
    if not isinstance(value, str):
        raise EvidenceRefused(Reason.IDENTITY_CLAIM_INVALID, f"the claim {quote_text(name)} is {kind_of(value)}, not text")
    if value == _ADMIN:
        raise EvidenceRefused(
            Reason.OIDC_ROLE_REFUSED, f"the claim {quote_text(name)} is 'admin', which no provider speaks for"
        )
    verified = claims.get("email_verified", True)
    if name == "email" and verified is not True and verified != "true":
        raise EvidenceRefused(Reason.EMAIL_UNVERIFIED, "the provider says that it has not verified the address in 'email'")
    try:
        evaluation.role = RoleName.from_parts(request.account, "user", value)
    except InvalidName as error:
        why = f"{quote_text(value)} can't name a user: {error.message}"
        raise EvidenceRefused(Reason.ROLE_UNKNOWN, why) from None
    if isinstance(request, CodeLogin):
        evaluation.lifetime = evaluation.configuration.lifetime


def _select_no_annotations(_: Mapping[str, str], __: str) -> Mapping[str, str]:
    return {}


_ENABLED, _ACCOUNT, _TOKEN, _WEBSERVICE, _CONFIGURATION, *_SIGNED = BEFORE_AUDIENCE

_CODE: Final = Check("code", _check_code, lambda _: "there is a code, and a nonce")
_TAKES_CODES: Final = Check("form", _check_takes_codes, lambda _: "codes are taken")
_TAKES_TOKENS: Final = Check("form", _check_takes_tokens, lambda _: "id tokens are taken")
_NONCE: Final = Check("nonce", _check_nonce, lambda _: "'nonce' is that of the request")

_CLAIMS: Final = (
    Check("audience", _check_audience, AUDIENCE.describe),
    Check("id-token", _check_id_token, lambda _: "nothing in it says that it is another kind of token"),
)
_IDENTITY: Final = (
    Check(
        "identity",
        _check_identity,
        lambda e: f"the claim {quote_text(_identity_claim_of(e))} names {quote_text(str(e.role))}",
    ),
    # No annotations bear on people.
    *CANDIDATE[:3],
)


def make_oidc_kinds(providers: OidcEndpoints, dialect: Dialect) -> OidcKinds:
    """Return the kinds of a server that reaches these providers."""

    async def exchange_code(evaluation: _OidcEvaluation) -> None:
        await _exchange_code(evaluation, providers)

    async def find_endpoint_problems(configuration: Configuration) -> list[Problem]:
        """Return what is wrong with a provider's endpoints, which id tokens alone do without."""
        assert isinstance(configuration, OidcConfiguration)
        if configuration.client is None:
            return []
        try:
            await providers.check_endpoints(configuration.provider)
        except ProviderUnavailable as error:
            return [fetch_problem("The provider's endpoints can't be used", error.why, VARIABLES)]
        return []

    def recorded_client_refusal(configuration: Configuration) -> list[Problem]:
        """Return that the provider refused this service as its client, where that has shown at a login."""
        assert isinstance(configuration, OidcConfiguration)
        refusal = None if configuration.client is None else providers.find_client_refusal(configuration.client)
        if refusal is None:
            return []
        since = iso_seconds(refusal.since)
        what = f"The provider refused client-id and client-secret at a login, first at {since}: {refusal.why}."
        remedy = "Set client-id and client-secret to what it has, and allow the client the authorization code flow there."
        return [Problem(what, remedy)]

    traded = Check("exchange", exchange_code, lambda e: f"the provider gave an id token for it: {_TOKEN.describe(e)}")
    first = _ENABLED, _ACCOUNT
    declared = _WEBSERVICE, _CONFIGURATION
    refused_codes = dict(_OF_REQUEST)
    if dialect.malformed_codes:
        refused_codes = {reason: RefusalKind.MALFORMED for reason in Reason if reason not in _UNPROVEN} | refused_codes
    token = AuthenticatorKind(
        NAME,
        VARIABLES,
        (*first, _TOKEN, *declared, _TAKES_TOKENS, *_SIGNED, *_CLAIMS, *_IDENTITY),
        parse_oidc_values,
        _select_no_annotations,
        refusal_kinds=_OF_REQUEST,
        find_problems=find_endpoint_problems,
        recorded_problems=recorded_client_refusal,
        evaluation=_OidcEvaluation,
    )
    code = attrs.evolve(
        token,
        checks=(*first, _CODE, *declared, _TAKES_CODES, traded, *_SIGNED, *_CLAIMS, _NONCE, *_IDENTITY),
        refusal_kinds=refused_codes,
        sends_evidence=True,
    )
    explained = attrs.evolve(token, checks=tuple(check for check in token.checks if check is not _TAKES_TOKENS))
    return OidcKinds(code, token, explained)

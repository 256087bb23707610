"""The Google authenticator: an identity token of a workload on Google Cloud, and the role that its audience names.

Note [Order of checks]. ``make_gcp_kind`` has its checks in the order in which failures count (GCP-3), which is that of the
cloud authenticator.

Note [Anybody's audience]. Google signs the tokens of all its customers with the same keys, and puts into ``aud`` whatever a
workload asks for. So the audience says which role a workload wants to be, of which account of which service; whether it may
is stated by annotations alone. Each of those that bind names what nobody else has: a project, or a service account.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from svc.authn.checks import BEFORE_AUDIENCE, CANDIDATE, check_claims, identity_claim, kind_of, parse_login
from svc.authn.evaluation import AuthenticatorKind, Check, Evaluation, TokenEvaluation
from svc.authn.settings import Configuration, Misconfiguration, Values
from svc.model.authentication import KeySource
from svc.model.dialect import Dialect
from svc.model.key_sets import EvidenceRefused
from svc.model.reasons import Reason
from svc.model.strict_json import shown_json
from svc.model.text import quote_text

NAME: Final = "authn-gcp"

_INSTANCE: Final = "instance-name"
_EMAIL: Final = "service-account-email"

#: The claims that annotations are compared with, by their names.
_CLAIMS: Final[Mapping[str, str]] = {
    "project-id": "google/compute_engine/project_id",
    _INSTANCE: "google/compute_engine/instance_name",
    "service-account-id": "sub",
    _EMAIL: "email",
}

#: Annotations one of which must be there: names of machines are anybody's.
_BINDING: Final = tuple(name for name in _CLAIMS if name != _INSTANCE)


def _select_annotations(annotations: Mapping[str, str], service: str) -> Mapping[str, str]:
    """Return the annotations by the rest of their names; an empty value has no meaning."""
    return {name.removeprefix(f"{service}/"): value for name, value in annotations.items() if value}


def _check_required(evaluation: Evaluation) -> None:
    """Check that the role is bound to a project or a service account (Note [Anybody's audience])."""
    if not any(name in evaluation.annotations for name in _BINDING):
        detail = f"the role has none of the annotations {', '.join(_BINDING)}"
        raise EvidenceRefused(Reason.ANNOTATION_REQUIRED, detail)


def _check_permitted(evaluation: Evaluation) -> None:
    """Check that every annotation has a name that means something: it might have been meant to keep somebody out."""
    unknown = [name for name in evaluation.annotations if name not in _CLAIMS]
    if unknown:
        detail = f"there is no annotation {quote_text(unknown[0])}; there are {', '.join(_CLAIMS)}"
        raise EvidenceRefused(Reason.ANNOTATION_UNSUPPORTED, detail)


def _check_values(evaluation: TokenEvaluation) -> None:
    """Check that every annotation has the exact text of its claim, and that Google has verified an address (GCP-7)."""
    check_claims(evaluation)
    verified = evaluation.claims.get("email_verified", True)
    if _EMAIL in evaluation.annotations and verified is not True:
        detail = f"the token has the e-mail address, but 'email_verified' is {shown_json(verified)}"
        raise EvidenceRefused(Reason.CLAIM_MISMATCH, detail)


def _check_audience(evaluation: TokenEvaluation) -> None:
    """Take the login from the audience, which must be a text for this service and this account (GCP-4)."""
    expected = f"{evaluation.context.dialect.prefix}/{evaluation.request.account}/"
    audience = evaluation.claims.get("aud")
    if audience is None or audience == "":
        raise EvidenceRefused(
            Reason.AUDIENCE_MISSING, f"the token has no 'aud'; it must be {quote_text(expected)} and a login"
        )
    if not isinstance(audience, str):
        detail = f"'aud' is {kind_of(audience)}; it must be text, {quote_text(expected)} and a login"
        raise EvidenceRefused(Reason.AUDIENCE_WRONG, detail)
    login = audience.removeprefix(expected)
    if login == audience or not login:
        raise EvidenceRefused(
            Reason.AUDIENCE_WRONG, f"'aud' is {quote_text(audience)}; it must be {quote_text(expected)} and a login"
        )
    evaluation.role = parse_login(login, evaluation.request.account)


def _check_subject(evaluation: TokenEvaluation) -> None:
    identity_claim(evaluation.claims, "sub")


_CHECKS: Final = (
    *BEFORE_AUDIENCE,
    Check("subject", _check_subject, lambda e: f"'sub' is {quote_text(identity_claim(e.claims, 'sub'))}"),
    Check("audience", _check_audience, lambda e: f"'aud' names {quote_text(str(e.role))}"),
    *CANDIDATE,
    Check(
        "required-annotations",
        _check_required,
        lambda e: "; ".join(f"{quote_text(name)} is {quote_text(value)}" for name, value in e.annotations.items()),
        needs_candidate=True,
    ),
    Check(
        "permitted-annotations",
        _check_permitted,
        lambda _: "each has a name that means something",
        needs_candidate=True,
    ),
    Check(
        "claims",
        _check_values,
        lambda _: "the token says what the annotations say",
        needs_candidate=True,
    ),
)


def make_gcp_kind(issuer: str) -> AuthenticatorKind:
    """Return the Google authenticator, whose tokens are of ``issuer``; it has no variables."""
    configuration = Configuration(KeySource(issuer, discovered=True), issuer, aliases=_CLAIMS, nested=True)

    def parse_values(_values: Values, _dialect: Dialect) -> Configuration | Misconfiguration:
        return configuration

    return AuthenticatorKind(NAME, (), _CHECKS, parse_values, _select_annotations)

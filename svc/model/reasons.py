"""Codes of refusals, each of which ``docs/reference/reasons.md`` explains, in the texts that are shown here."""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Final


class Reason(enum.StrEnum):
    """Why an authentication was refused: a bounded set of codes, for the log and for operators, never for the client."""

    ACCOUNT_UNKNOWN = "account-unknown"
    AUTHENTICATOR_NOT_ENABLED = "authenticator-not-enabled"
    API_KEY_OFF = "api-key-off"
    CREDENTIALS_MISSING = "credentials-missing"
    CREDENTIALS_WRONG = "credentials-wrong"
    CREDENTIALS_EXPIRED = "credentials-expired"
    SESSION_ENDED = "session-ended"
    REFRESH_TOKEN_REUSED = "refresh-token-reused"
    CREDENTIALS_UNREADABLE = "credentials-unreadable"
    SIGNING_KEY_UNUSABLE = "signing-key-unusable"
    FAILURES_TOO_MANY = "failures-too-many"
    REQUEST_MALFORMED = "request-malformed"
    TOKEN_MISSING = "token-missing"
    TOKEN_TOO_LARGE = "token-too-large"
    TOKEN_MALFORMED = "token-malformed"
    TOKEN_UNSIGNED = "token-unsigned"
    ALGORITHM_REFUSED = "algorithm-refused"
    CRITICAL_HEADER = "critical-header"
    KEY_UNKNOWN = "key-unknown"
    KEY_ID_MISSING = "key-id-missing"
    SIGNATURE_WRONG = "signature-wrong"
    KEY_DISTRUSTED = "key-distrusted"
    KEYS_UNAVAILABLE = "keys-unavailable"
    CONFIGURATION_INVALID = "configuration-invalid"
    EXPIRY_MISSING = "expiry-missing"
    TOKEN_EXPIRED = "token-expired"
    TOKEN_NOT_YET_VALID = "token-not-yet-valid"
    TIME_CLAIM_INVALID = "time-claim-invalid"
    ISSUER_WRONG = "issuer-wrong"
    ISSUER_MISSING = "issuer-missing"
    AUDIENCE_WRONG = "audience-wrong"
    AUDIENCE_MISSING = "audience-missing"
    IDENTITY_AMBIGUOUS = "identity-ambiguous"
    IDENTITY_CLAIM_MISSING = "identity-claim-missing"
    IDENTITY_CLAIM_INVALID = "identity-claim-invalid"
    ROLE_UNKNOWN = "role-unknown"
    WEBSERVICE_UNKNOWN = "webservice-unknown"
    PRIVILEGE_MISSING = "privilege-missing"
    ORIGIN_REFUSED = "origin-refused"
    ANNOTATIONS_MISSING = "annotations-missing"
    ANNOTATIONS_EXCESSIVE = "annotations-excessive"
    ANNOTATION_ENFORCED = "annotation-enforced"
    ANNOTATION_FORBIDDEN = "annotation-forbidden"
    ANNOTATION_NAME_INVALID = "annotation-name-invalid"
    ANNOTATION_EMPTY = "annotation-empty"
    ANNOTATION_REQUIRED = "annotation-required"
    ANNOTATION_UNSUPPORTED = "annotation-unsupported"
    ANNOTATIONS_EXCLUSIVE = "annotations-exclusive"
    RESOURCE_ID_MALFORMED = "resource-id-malformed"
    CLAIM_MISSING = "claim-missing"
    CLAIM_IS_NUMBER = "claim-is-number"
    CLAIM_IS_BOOLEAN = "claim-is-boolean"
    CLAIM_IS_ARRAY = "claim-is-array"
    CLAIM_IS_OBJECT = "claim-is-object"
    CLAIM_MISMATCH = "claim-mismatch"
    CLAIM_CASE_MISMATCH = "claim-case-mismatch"
    IDENTITY_KIND_MISMATCH = "identity-kind-mismatch"
    SIGNED_REQUEST_MALFORMED = "signed-request-malformed"
    SIGNATURE_AGE_REFUSED = "signature-age-refused"
    SERVER_NOT_NAMED = "server-not-named"
    AWS_LOGIN_INVALID = "aws-login-invalid"
    SIGNATURE_REUSED = "signature-reused"
    STS_REFUSED = "sts-refused"
    STS_UNAVAILABLE = "sts-unavailable"
    STS_ANSWER_MALFORMED = "sts-answer-malformed"
    CODE_MISSING = "code-missing"
    OIDC_SIGN_IN_REFUSED = "oidc-sign-in-refused"
    CODE_REFUSED = "code-refused"
    CODE_REPLAYED = "code-replayed"
    OIDC_UNAVAILABLE = "oidc-unavailable"
    OIDC_CLIENT_REFUSED = "oidc-client-refused"
    ID_TOKEN_MISSING = "id-token-missing"
    NOT_AN_ID_TOKEN = "not-an-id-token"
    NONCE_WRONG = "nonce-wrong"
    OIDC_ROLE_REFUSED = "oidc-role-refused"
    EMAIL_UNVERIFIED = "email-unverified"
    LDAP_ROLE_REFUSED = "ldap-role-refused"
    LDAP_UNAVAILABLE = "ldap-unavailable"
    LDAP_TLS_FAILED = "ldap-tls-failed"
    LDAP_ANSWER_MALFORMED = "ldap-answer-malformed"
    LDAP_BIND_REFUSED = "ldap-bind-refused"
    LDAP_SEARCH_REFUSED = "ldap-search-refused"
    LDAP_GROUPS_UNKNOWN = "ldap-groups-unknown"
    LDAP_ROLES_UNWRITTEN = "ldap-roles-unwritten"
    LDAP_ENTRY_UNKNOWN = "ldap-entry-unknown"
    LDAP_ENTRY_AMBIGUOUS = "ldap-entry-ambiguous"
    LDAP_ENTRY_REFUSED = "ldap-entry-refused"
    LDAP_ENTRY_GONE = "ldap-entry-gone"
    LDAP_FAILURES_TOO_MANY = "ldap-failures-too-many"


class RefusalKind(enum.StrEnum):
    """The kind of a refused login: all that the client learns about it, besides when it may retry."""

    #: The evidence proves nobody who may be admitted.
    UNPROVEN = "unproven"
    MALFORMED = "malformed"
    TOO_LARGE = "too-large"
    #: The role is proven, and may not use the authenticator.
    UNPRIVILEGED = "unprivileged"
    #: The evidence can't be checked now.
    POSTPONED = "postponed"
    #: Too many failures came from the same address.
    TOO_OFTEN = "too-often"


#: Reasons that are independent of the credentials: the client is postponed, and no failure is counted (FAIL-13). A reason
#: due to a single role or entry is none of them, though no client is at fault: strangers would learn that it exists.
POSTPONING_REASONS: Final = frozenset(
    {
        Reason.SIGNING_KEY_UNUSABLE,
        Reason.KEYS_UNAVAILABLE,
        Reason.STS_UNAVAILABLE,
        Reason.STS_ANSWER_MALFORMED,
        Reason.OIDC_UNAVAILABLE,
        Reason.OIDC_CLIENT_REFUSED,
        Reason.LDAP_UNAVAILABLE,
        Reason.LDAP_TLS_FAILED,
        Reason.LDAP_ANSWER_MALFORMED,
        Reason.LDAP_BIND_REFUSED,
        Reason.LDAP_SEARCH_REFUSED,
        # These occur after the directory has accepted the password.
        Reason.LDAP_GROUPS_UNKNOWN,
        Reason.LDAP_ROLES_UNWRITTEN,
    }
)


_SECTION: Final = re.compile(r"^### (?P<code>[a-z-]+)\n(?P<text>.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)

#: The code that stands for those of answers that are no refusals: "http-404".
_HTTP_STATUS: Final = "http-status"

_LINK: Final = re.compile(r"\[([^]]*)\]\([^)]*\)")


@functools.cache
def read_reason_texts() -> Mapping[str, Sequence[str]]:
    """Return the meaning of each code, in the order in which checks are made, as paragraphs of plain text."""
    page = (resources.files("svc.model") / "reasons.md").read_text(encoding="utf-8")
    return {section["code"]: _plain_paragraphs(section["text"]) for section in _SECTION.finditer(page)}


def explain_code(code: str) -> Sequence[str]:
    """Return the meaning of a code from a server, which may be a newer one."""
    known = read_reason_texts()
    return known.get(_HTTP_STATUS if code.startswith("http-") else code, ("It has no explanation in this version of svc.",))


def _plain_paragraphs(text: str) -> Sequence[str]:
    """Return the paragraphs of a text without the marks of Markdown."""
    unmarked = _LINK.sub(r"\1", text).replace("**", "").replace("*", "").replace("`", "")
    return tuple(" ".join(paragraph.split()) for paragraph in unmarked.strip().split("\n\n"))

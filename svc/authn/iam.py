"""The AWS authenticator: a signed request by which AWS identifies the role of a workload.

A workload signs ``GetCallerIdentity`` for the Security Token Service (STS) and hands the signed headers over; this service
sends them there, and AWS identifies the signer.

Note [Order of checks]. ``make_iam_kind`` has its checks in the order in which failures count (AWS-3). STS is queried about
every request that could be good, whatever role its path names, so that it takes as long for one that doesn't exist
(FAIL-18). The role is looked for after AWS has named the caller.

Note [Whose request]. Nothing in the signature of a plain request names its recipient: each service that gets one could log
in with it elsewhere. So a signed header names this server and the account, unless the dialect's clients have none.

Note [Used once]. Whether a signature was used is checked before AWS is called, so that a replay costs little. It is claimed
when all else has passed, at one moment: of two that come together, one is admitted.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

import attrs

from svc.authn.checks import ACCOUNT, CANDIDATE, CONFIGURATION, ENABLED, WEBSERVICE
from svc.authn.claims import parse_login
from svc.authn.evaluation import Arrival, AuthenticatorKind, Check, Evaluation
from svc.authn.providers.sts import SecurityTokenService
from svc.authn.settings import Configuration, Misconfiguration, Values, usable_texts
from svc.authn.signed_requests import SERVER_HEADER, read_header_names, read_signed_request, sts_hosts
from svc.model.authentication import Problem, spread_retry_after
from svc.model.aws import IUsedSignatures, StsRefused, StsUnavailable
from svc.model.dialect import Dialect
from svc.model.reasons import Reason
from svc.model.signed_claims import EvidenceRefused
from svc.model.text import quote_text

NAME: Final = "authn-iam"

#: Seconds for which AWS takes a signature.
SIGNATURE_LIFETIME: Final = 15 * 60.0

#: Seconds for which equal requests of one address are one, where clients sign nothing that would make them differ (AWS-10).
_REPEAT_SECONDS: Final = 5.0

_ALGORITHMS: Final = ("AWS4-HMAC-SHA256",)
_SERVER_ID: Final = "server-id"
_OPTIONAL: Final = "optional-signed-headers"
_VARIABLES: Final = (_SERVER_ID, _OPTIONAL)

_NONCE: Final = re.compile("/[A-Za-z0-9_-]{1,64}", re.ASCII)
_LOGIN: Final = re.compile("(?:.*/)?(?P<account>[0-9]{12})/(?P<role>[A-Za-z0-9+=,.@_-]{1,64})", re.ASCII)


@attrs.frozen
class _IamConfiguration(Configuration):
    """``server_id``: what a signed header must name, if anything; ``more``: further headers that may be signed."""

    server_id: str | None = None
    more: frozenset[str] = frozenset()


def _parse_values(values: Values, dialect: Dialect) -> Configuration | Misconfiguration:
    problems: list[Problem] = []
    texts = usable_texts(values, _VARIABLES, (_SERVER_ID,), problems)
    if dialect.signed_server and _SERVER_ID not in values:
        what = "It is not said which name of this server the requests of workloads must be signed for."
        problems.append(Problem(what, f"Declare and set the variable {_SERVER_ID}, such as svc.example.org."))
    server_id = texts.get(_SERVER_ID)
    if server_id is not None and not re.fullmatch("[!-~]{1,255}", server_id, re.ASCII):
        what = f"The variable {_SERVER_ID} can't stand in a header."
        problems.append(Problem(what, "Set it to at most 255 characters of ASCII without blanks, such as svc.example.org."))
    more, faults = read_header_names(texts.get(_OPTIONAL, ""))
    remedy = "Set it to names of headers, with semicolons between."
    problems += (Problem(f"The variable {_OPTIONAL} is not usable: {fault}.", remedy) for fault in faults[:10])
    if problems:
        return Misconfiguration(tuple(problems), algorithms=_ALGORITHMS)
    return _IamConfiguration(None, algorithms=_ALGORITHMS, server_id=server_id, more=more)


def _iam_configuration(evaluation: Evaluation) -> _IamConfiguration:
    configuration = evaluation.configuration
    assert isinstance(configuration, _IamConfiguration)
    return configuration


def _repeat_window(evaluation: Evaluation) -> float:
    return _REPEAT_SECONDS if _iam_configuration(evaluation).server_id is None else 0.0


def _check_key(evaluation: Evaluation) -> None:
    """Check that no operator distrusts the access key (AWS-11)."""
    key = evaluation.signed_request.key_id
    if key in evaluation.cached.settings.distrusted:
        raise EvidenceRefused(Reason.KEY_DISTRUSTED, f"the access key {quote_text(key)} is distrusted")


def _check_age(evaluation: Evaluation) -> None:
    """Check that the request was signed within the time for which AWS takes it, and not later than now (AWS-7)."""
    evaluation.now = evaluation.context.wall.seconds()
    age, skew = evaluation.now - evaluation.signed_request.signed_at, evaluation.context.clock_skew
    if age >= SIGNATURE_LIFETIME + skew:
        detail = f"it was signed {age:.0f} s ago; {SIGNATURE_LIFETIME:.0f} s are allowed"
        raise EvidenceRefused(Reason.SIGNATURE_AGE_REFUSED, detail)
    if age < -skew:
        raise EvidenceRefused(Reason.SIGNATURE_AGE_REFUSED, f"it was signed {-age:.0f} s ahead of the time here")


def _check_server(evaluation: Evaluation) -> None:
    """Check that a signed header names this server and the account (Note [Whose request])."""
    server_id = _iam_configuration(evaluation).server_id
    if server_id is None:
        return
    named = evaluation.signed_request.headers.get(SERVER_HEADER)
    expected = f"{server_id}/{evaluation.request.account}"
    if named is None:
        raise EvidenceRefused(
            Reason.SERVER_NOT_NAMED, f"no header {SERVER_HEADER} is signed; it must be {quote_text(expected)}"
        )
    if named != expected and not (named.startswith(expected) and _NONCE.fullmatch(named, len(expected))):
        detail = f"the signed header {SERVER_HEADER} is {quote_text(named)}; it must be {quote_text(expected)}"
        raise EvidenceRefused(Reason.SERVER_NOT_NAMED, detail)


def _describe_server(evaluation: Evaluation) -> str:
    server_id = _iam_configuration(evaluation).server_id
    return f"the signed header {SERVER_HEADER} names {quote_text(server_id)}" if server_id else "none needs to be named"


def _check_identity(evaluation: Evaluation) -> None:
    """Take the role from the path: its last two parts are the account of AWS and the role there (AWS-8)."""
    login = evaluation.request.login
    if login is None:
        raise EvidenceRefused(Reason.IDENTITY_AMBIGUOUS, "the path names no role")
    above, _, _ = login.rpartition("/")
    if "/" not in above or _LOGIN.fullmatch(login) is None:
        detail = f"{quote_text(login)} doesn't end in an account of AWS and the name of a role there: /123456789012/web"
        raise EvidenceRefused(Reason.AWS_LOGIN_INVALID, detail)
    evaluation.role = parse_login(login, evaluation.request.account)


def _check_caller(evaluation: Evaluation) -> None:
    """Check that the caller has assumed the role that the login ends in (AWS-9)."""
    caller, match = evaluation.caller, _LOGIN.fullmatch(evaluation.request.login or "")
    assert match is not None
    role = caller.assumed_role
    if role is None:
        detail = f"the caller is {quote_text(caller.arn)}; only a role that was assumed can log in"
        raise EvidenceRefused(Reason.IDENTITY_KIND_MISMATCH, detail)
    if (caller.account, role) != (match["account"], match["role"]):
        detail = (
            f"the caller is {quote_text(caller.arn)}; the login ends in {quote_text(match['account'] + '/' + match['role'])}"
        )
        alike = caller.account == match["account"] and role.casefold() == match["role"].casefold()
        raise EvidenceRefused(Reason.CLAIM_CASE_MISMATCH if alike else Reason.CLAIM_MISMATCH, detail)


def make_iam_kind(
    service: SecurityTokenService, signatures: IUsedSignatures, regions: Collection[str] = ()
) -> AuthenticatorKind:
    """Return the AWS authenticator. ``regions`` are allowed beside the known ones."""
    known_hosts = sts_hosts(regions)

    def check_request(evaluation: Evaluation) -> None:
        evidence, more = evaluation.request.evidence, _iam_configuration(evaluation).more
        limit = evaluation.context.token_limit
        evaluation.signed_request = read_signed_request(evidence, limit, known_hosts, more)

    async def check_use(evaluation: Evaluation) -> None:
        signed, address = evaluation.signed_request, evaluation.request.client_ip
        if await signatures.is_used(signed.signature, address, _repeat_window(evaluation)):
            raise _reused_signature()

    async def check_signature(evaluation: Evaluation) -> None:
        try:
            evaluation.caller = await service.identify_caller(evaluation.signed_request)
        except StsRefused as refusal:
            raise EvidenceRefused(Reason.STS_REFUSED, f"AWS doesn't take the signature: {refusal.code}") from None
        except StsUnavailable as error:
            reason = Reason.STS_ANSWER_MALFORMED if error.answered else Reason.STS_UNAVAILABLE
            raise EvidenceRefused(reason, f"{evaluation.signed_request.host}: {error.why}", spread_retry_after()) from None
        delay = evaluation.now - evaluation.signed_request.signed_at
        evaluation.cached.arrivals.append(Arrival(evaluation.now, delay))

    async def claim_signature(evaluation: Evaluation) -> None:
        signed, address = evaluation.signed_request, evaluation.request.client_ip
        lasting = signed.signed_at + SIGNATURE_LIFETIME + evaluation.context.clock_skew - evaluation.now
        if not await signatures.claim_signature(signed.signature, address, _repeat_window(evaluation), lasting):
            raise _reused_signature()

    async def find_problems(_: Configuration) -> list[Problem]:
        try:
            await service.check_reachable()
        except StsUnavailable as error:
            remedy = "Mend what lies between this server and AWS."
            return [Problem(f"The Security Token Service can't be asked: {error.why.removesuffix('.')}.", remedy)]
        return []

    checks = (
        ENABLED,
        ACCOUNT,
        WEBSERVICE,
        CONFIGURATION,
        Check("request", check_request, lambda e: f"it is a signed GetCallerIdentity for {e.signed_request.host}"),
        Check("key", _check_key, lambda e: f"the access key is {quote_text(e.signed_request.key_id)}"),
        Check("age", _check_age, lambda e: f"it was signed {e.now - e.signed_request.signed_at:.0f} s ago"),
        Check("server", _check_server, _describe_server),
        Check("identity", _check_identity, lambda e: f"the path names {quote_text(str(e.role))}"),
        Check("first-use", check_use, lambda _: "nobody has logged in with this signature"),
        Check("signature", check_signature, lambda e: f"AWS says that it is by {quote_text(e.caller.arn)}"),
        Check(
            "caller", _check_caller, lambda e: f"the login ends in its account and role: {quote_text(e.request.login or '')}"
        ),
        *(check for check in CANDIDATE if check.name != "annotations-extent"),
    )

    return AuthenticatorKind(
        NAME,
        _VARIABLES,
        checks,
        _parse_values,
        lambda _annotations, _service: {},
        claim_evidence=claim_signature,
        find_problems=find_problems,
    )


def _reused_signature() -> EvidenceRefused:
    return EvidenceRefused(Reason.SIGNATURE_REUSED, "somebody has logged in with this signature before")

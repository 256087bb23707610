"""The AWS authenticator: a signed request, read strictly (AWS-4, AWS-5), by which AWS identifies the role of a workload.

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
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from svc.authn.checks import ACCOUNT, CANDIDATE, CONFIGURATION, ENABLED, WEBSERVICE, parse_login
from svc.authn.evaluation import AuthenticatorKind, Check, ClockSample, Evaluation
from svc.authn.providers.sts import SecurityTokenService
from svc.authn.settings import Configuration, Misconfiguration, Values, usable_texts
from svc.model.authentication import Problem, spread_retry_after
from svc.model.aws import IUsedSignatures, SignedRequest, StsRefused, StsUnavailable
from svc.model.caller_identity import CallerIdentity
from svc.model.dialect import Dialect
from svc.model.key_sets import EvidenceRefused
from svc.model.reasons import Reason
from svc.model.strict_json import Malformed, parse_json_object
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


@attrs.define(eq=False)
class _IamEvaluation(Evaluation):
    configuration: _IamConfiguration = attrs.field(init=False)
    signed_request: SignedRequest = attrs.field(init=False, repr=False)
    caller: CallerIdentity = attrs.field(init=False)


def _repeat_window(evaluation: _IamEvaluation) -> float:
    return _REPEAT_SECONDS if evaluation.configuration.server_id is None else 0.0


def _check_key(evaluation: _IamEvaluation) -> None:
    """Check that no operator distrusts the access key (AWS-11)."""
    key = evaluation.signed_request.key_id
    if key in evaluation.cached.settings.distrusted:
        raise EvidenceRefused(Reason.KEY_DISTRUSTED, f"the access key {quote_text(key)} is distrusted")


def _check_age(evaluation: _IamEvaluation) -> None:
    """Check that the request was signed within the time for which AWS takes it, and not later than now (AWS-7)."""
    evaluation.now = evaluation.context.wall.seconds()
    age, skew = evaluation.now - evaluation.signed_request.signed_at, evaluation.context.clock_skew
    if age >= SIGNATURE_LIFETIME + skew:
        detail = f"it was signed {age:.0f} s ago; {SIGNATURE_LIFETIME:.0f} s are allowed"
        raise EvidenceRefused(Reason.SIGNATURE_AGE_REFUSED, detail)
    if age < -skew:
        raise EvidenceRefused(Reason.SIGNATURE_AGE_REFUSED, f"it was signed {-age:.0f} s ahead of the time here")


def _check_server(evaluation: _IamEvaluation) -> None:
    """Check that a signed header names this server and the account (Note [Whose request])."""
    server_id = evaluation.configuration.server_id
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


def _describe_server(evaluation: _IamEvaluation) -> str:
    server_id = evaluation.configuration.server_id
    return f"the signed header {SERVER_HEADER} names {quote_text(server_id)}" if server_id else "none needs to be named"


def _check_identity(evaluation: _IamEvaluation) -> None:
    """Take the role from the path: its last two parts are the account of AWS and the role there (AWS-8)."""
    login = evaluation.request.login
    if login is None:
        raise EvidenceRefused(Reason.IDENTITY_AMBIGUOUS, "the path names no role")
    above, _, _ = login.rpartition("/")
    if "/" not in above or _LOGIN.fullmatch(login) is None:
        detail = f"{quote_text(login)} doesn't end in an account of AWS and the name of a role there: /123456789012/web"
        raise EvidenceRefused(Reason.AWS_LOGIN_INVALID, detail)
    evaluation.role = parse_login(login, evaluation.request.account)


def _check_caller(evaluation: _IamEvaluation) -> None:
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

    def check_request(evaluation: _IamEvaluation) -> None:
        evidence, more = evaluation.request.evidence, evaluation.configuration.more
        limit = evaluation.context.token_limit
        evaluation.signed_request = read_signed_request(evidence, limit, known_hosts, more)

    async def check_use(evaluation: _IamEvaluation) -> None:
        signed, address = evaluation.signed_request, evaluation.request.client_ip
        if await signatures.is_used(signed.signature, address, _repeat_window(evaluation)):
            raise _reused_signature()

    async def check_signature(evaluation: _IamEvaluation) -> None:
        try:
            evaluation.caller = await service.identify_caller(evaluation.signed_request)
        except StsRefused as refusal:
            raise EvidenceRefused(Reason.STS_REFUSED, f"AWS doesn't take the signature: {refusal.code}") from None
        except StsUnavailable as error:
            reason = Reason.STS_ANSWER_MALFORMED if error.answered else Reason.STS_UNAVAILABLE
            raise EvidenceRefused(reason, f"{evaluation.signed_request.host}: {error.why}", spread_retry_after()) from None
        delay = evaluation.now - evaluation.signed_request.signed_at
        evaluation.cached.arrivals.append(ClockSample(evaluation.now, delay))

    async def claim_signature(evaluation: _IamEvaluation) -> None:
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

    checks: tuple[Check[Any], ...] = (
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
        consume_evidence=claim_signature,
        evaluation=_IamEvaluation,
        find_problems=find_problems,
    )


def _reused_signature() -> EvidenceRefused:
    return EvidenceRefused(Reason.SIGNATURE_REUSED, "somebody has logged in with this signature before")


#: The header that names the server and the account (AWS-6).
SERVER_HEADER: Final = "x-svc-server-id"

_DATE: Final = "x-amz-date"
_NEEDED: Final = ("host", _DATE)
_USUAL: Final = frozenset({*_NEEDED, "x-amz-security-token", "x-amz-content-sha256", SERVER_HEADER})

#: Headers on the transport of a message, or on the requested operation: none is taken from a client.
_FORBIDDEN: Final = frozenset(
    {
        *("accept", "accept-encoding", "authorization", "connection", "content-encoding", "content-length"),
        *("expect", "keep-alive", "proxy-authorization", "proxy-connection", "range", "te", "trailer", "transfer-encoding"),
        *("upgrade", "via", "x-http-method-override", "x-amz-target"),
    }
)

_HEADER: Final = re.compile("[a-z0-9-]{1,64}", re.ASCII)
_VALUE: Final = re.compile("[!-~](?:[ -~]{0,8190}[!-~])?", re.ASCII)
_AUTHORIZATION: Final = re.compile(
    r"AWS4-HMAC-SHA256 +Credential=(?P<key>\w{16,128})/[0-9]{8}/[a-z0-9-]{1,32}/sts/aws4_request *, *"
    r"SignedHeaders=(?P<names>[a-z0-9;-]{1,1024}) *, *Signature=(?P<signature>[0-9a-f]{64})",
    re.ASCII,
)

#: The regions whose Security Token Service may be called; China and isolated regions are other partitions.
REGIONS: Final = frozenset(
    {
        *("af-south-1", "ap-east-1", "ap-east-2", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1"),
        *("ap-south-2", "ap-southeast-1", "ap-southeast-2", "ap-southeast-3", "ap-southeast-4", "ap-southeast-5"),
        *("ap-southeast-6", "ap-southeast-7", "ca-central-1", "ca-west-1", "eu-central-1", "eu-central-2", "eu-north-1"),
        *("eu-south-1", "eu-south-2", "eu-west-1", "eu-west-2", "eu-west-3", "il-central-1", "me-central-1", "me-south-1"),
        *("mx-central-1", "sa-east-1", "us-east-1", "us-east-2", "us-gov-east-1", "us-gov-west-1", "us-west-1", "us-west-2"),
    }
)
GLOBAL_HOST: Final = "sts.amazonaws.com"


def sts_hosts(regions: Collection[str] = ()) -> frozenset[str]:
    """Return the hosts that may be called: the global one, and those of all regions and of further ones."""
    return frozenset({GLOBAL_HOST, *(f"sts.{region}.amazonaws.com" for region in {*REGIONS, *regions})})


def read_header_names(text: str) -> tuple[frozenset[str], list[str]]:
    """Return the names of further headers that may be signed, written ``name;name``, and what is wrong with the text."""
    names = frozenset(name.strip().lower() for name in text.split(";") if name.strip())
    faults = [f"{quote_text(name)} can't name a header" for name in sorted(names) if not _HEADER.fullmatch(name)]
    faults += [f"the header {name} may not be signed" for name in sorted(names & _FORBIDDEN)]
    return names, faults


def read_signed_request(evidence: bytes, limit: int, known_hosts: Collection[str], more: Collection[str]) -> SignedRequest:
    """Read the JSON of a signed request's headers; ``more`` are headers beside the usual ones that may be signed.

    :raises EvidenceRefused: it has more than ``limit`` bytes, or is none for a host that is known.
    """
    if len(evidence) > limit:
        raise EvidenceRefused(Reason.TOKEN_TOO_LARGE, f"the signed request has {len(evidence)} bytes, {limit} are allowed")
    headers = _parse_headers(evidence)
    match = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
    if match is None:
        raise _malformed_request("its header authorization is missing, or has another form than AWS4-HMAC-SHA256 for sts")
    names = match["names"].split(";")
    missing = sorted({*names, *_NEEDED} - (set(names) & set(headers)))
    if missing:
        raise _malformed_request(f"the header {quote_text(missing[0])} is missing, or not signed")
    unexpected = sorted(set(names) - _USUAL - set(more))
    if unexpected or len(set(names)) < len(names):
        what = f"the header {quote_text(unexpected[0])} is signed" if unexpected else "a header is signed twice"
        raise _malformed_request(f"{what}, which it may not be; optional-signed-headers can list further ones")
    host = headers["host"]
    if host not in known_hosts:
        raise _malformed_request(
            f"it is for {quote_text(host)}, which is no host of the Security Token Service that may be asked"
        )
    sent = {name: headers[name] for name in names if name != "host"}
    sent["authorization"] = headers["authorization"]
    return SignedRequest(host, match["key"], sent, match["signature"], _parse_date(headers[_DATE]))


def _parse_headers(evidence: bytes) -> Mapping[str, str]:
    """Return the headers by their names in lower case; malformed ones are left out."""
    try:
        members = parse_json_object(evidence)
    except Malformed as error:
        raise _malformed_request(str(error)) from None
    headers: dict[str, str] = {}
    for written, value in members.items():
        name = written.lower()
        if name in headers:
            raise _malformed_request(f"the header {quote_text(name)} is there twice")
        if isinstance(value, str) and _VALUE.fullmatch(value):
            headers[name] = value
    return headers


def _parse_date(text: str) -> float:
    try:
        if re.fullmatch("[0-9]{8}T[0-9]{6}Z", text, re.ASCII):
            return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        """The form is right, the date isn't."""
    raise _malformed_request(f"the header {_DATE} is {quote_text(text)}, which is no date of the form 20260101T120000Z")


def _malformed_request(why: str) -> EvidenceRefused:
    return EvidenceRefused(Reason.SIGNED_REQUEST_MALFORMED, f"the request is no signed GetCallerIdentity: {why}")

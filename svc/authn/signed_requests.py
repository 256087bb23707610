"""Requests that a workload has signed for the Security Token Service of AWS, read strictly (AWS-4, AWS-5).

The forwarded request is built here from parsed parts, so that a client's input goes only to a host of the list, and only in
headers that it has signed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final

from svc.model.aws import SignedRequest
from svc.model.reasons import Reason
from svc.model.signed_claims import EvidenceRefused
from svc.model.strict_json import Malformed, parse_json_object
from svc.model.text import quote_text

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

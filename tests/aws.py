"""AWS on paper: requests signed as its documents say, and a Security Token Service that verifies them."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, quote

import attrs

from svc.authn.providers.sts import SecurityTokenService
from svc.model.aws import SignedRequest, StsRefused, StsUnavailable
from svc.model.caller_identity import CallerIdentity

ACCOUNT = "123456789012"
QUERY = "Action=GetCallerIdentity&Version=2011-06-15"
NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"


@attrs.frozen
class Keys:
    """Credentials of a caller."""

    key_id: str = "ASIAIOSFODNN7EXAMPLE"
    secret: str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    session: str | None = "FwoGZXIvYXdzEXAMPLETOKEN+/="
    arn: str = f"arn:aws:sts::{ACCOUNT}:assumed-role/web/i-0abc"
    account: str = ACCOUNT


KEYS = Keys()


def date(at: float) -> str:
    """A moment as ``x-amz-date`` has it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y%m%dT%H%M%SZ")


def signature(keys: Keys, headers: Mapping[str, str], names: list[str], scope: str, query: str = QUERY) -> str:
    """The signature of a ``GET`` of ``/`` with these headers, of which those of the names are signed."""
    canonical = "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in sorted(parse_qsl(query)))
    lines = "".join(f"{name}:{headers[name]}\n" for name in names)
    request = f"GET\n/\n{canonical}\n{lines}\n{';'.join(names)}\n{hashlib.sha256(b'').hexdigest()}"
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{digest}"
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


def signed(
    at: float, keys: Keys = KEYS, *, host: str = "sts.eu-west-1.amazonaws.com", region: str = "eu-west-1", **more: str
) -> dict[str, str]:
    """The signed headers of a ``GetCallerIdentity``; ``more`` are signed too, with dashes for underscores."""
    headers = {"host": host, "x-amz-date": date(at)}
    if keys.session is not None:
        headers["x-amz-security-token"] = keys.session
    headers |= {name.replace("_", "-"): value for name, value in more.items()}
    names, scope = sorted(headers), f"{date(at)[:8]}/{region}/sts/aws4_request"
    said = f"Credential={keys.key_id}/{scope}, SignedHeaders={';'.join(names)}, Signature="
    return {**headers, "authorization": f"AWS4-HMAC-SHA256 {said}{signature(keys, headers, names, scope)}"}


def body(headers: Mapping[str, Any]) -> bytes:
    """The body of a login."""
    return json.dumps(headers).encode()


def answer(arn: str = KEYS.arn, account: str = ACCOUNT) -> bytes:
    """The answer of the service about a caller."""
    return (
        f'<GetCallerIdentityResponse xmlns="{NAMESPACE}">\n  <GetCallerIdentityResult>\n    <Arn>{arn}</Arn>\n'
        f"    <UserId>AROA123456789EXAMPLE:i-0abc</UserId>\n    <Account>{account}</Account>\n"
        "  </GetCallerIdentityResult>\n  <ResponseMetadata>\n    <RequestId>01234567-89ab</RequestId>\n"
        "  </ResponseMetadata>\n</GetCallerIdentityResponse>\n"
    ).encode()


def error(code: str, message: str = "no") -> bytes:
    """The answer of the service that refuses."""
    return (
        f'<ErrorResponse xmlns="{NAMESPACE}">\n  <Error>\n    <Type>Sender</Type>\n    <Code>{code}</Code>\n'
        f"    <Message>{message}</Message>\n  </Error>\n  <RequestId>01234567</RequestId>\n</ErrorResponse>\n"
    ).encode()


def verified(headers: Mapping[str, str], keys: Keys) -> bool:
    """Whether headers, with ``host``, are signed with these keys."""
    said = dict(part.strip().split("=", 1) for part in headers["authorization"].partition(" ")[2].split(","))
    key_id, _, scope = said["Credential"].partition("/")
    names = said["SignedHeaders"].split(";")
    return key_id == keys.key_id and said["Signature"] == signature(keys, headers, names, scope)


class Sts(SecurityTokenService):
    """A service that knows some callers; ``away`` says why it can't be asked, if it can't."""

    def __init__(self, *keys: Keys) -> None:
        self.keys = list(keys or (KEYS,))
        self.away: StsUnavailable | None = None
        self.asked: list[SignedRequest] = []

    async def identify_caller(self, request: SignedRequest) -> CallerIdentity:
        """Verify the signature."""
        self.asked.append(request)
        await self.check_reachable()
        for keys in self.keys:
            if verified({"host": request.host, **request.headers}, keys):
                if request.headers.get("x-amz-security-token") != keys.session:
                    raise StsRefused("InvalidClientTokenId")
                return CallerIdentity(keys.arn, keys.account)
        raise StsRefused("SignatureDoesNotMatch")

    async def check_reachable(self) -> None:
        """Be there, or not."""
        if self.away is not None:
            raise self.away

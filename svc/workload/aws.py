"""The credentials that AWS gives to a workload, and requests that are signed with them (AWS-15).

They come from the environment, as in functions; from the address that the environment names, as in containers; or from the
metadata service of the machine, with its session tokens (IMDSv2). No proxy is used, and no file is read but one that the
environment names.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import attrs

from svc.model.caller_identity import CallerIdentity, read_caller
from svc.model.clocks import MachineClock, WallClock
from svc.model.strict_json import Malformed
from svc.workload.address import public_origin
from svc.workload.faults import BadAddress, NoIdentity
from svc.workload.metadata import environment
from svc.workload.on_twisted import of_reactor
from svc.workload.platform_service import ANSWER_LIMIT, PlatformService
from svc.workload.replies import Reply, parse_json

#: Where the metadata service of a machine is, and where a container asks for a relative address.
METADATA_URL: Final = "http://169.254.169.254"
_CONTAINER_URL: Final = "http://169.254.170.2"

#: Plain addresses that a container's environment may name: the platform's own, beside those of the machine itself.
_PLATFORM: Final = frozenset({"169.254.170.2", "169.254.170.23", "fd00:ec2::23"})

#: Seconds before their expiration when credentials are not used any more, and the requested lifetime of a session token.
MARGIN: Final = 300.0
_SESSION_SECONDS: Final = 21_600

DEFAULT_REGION: Final = "us-east-1"

_QUERY: Final = "Action=GetCallerIdentity&Version=2011-06-15"
_REMEDY: Final = "run this on a machine, in a container or in a function that has a role"


@attrs.frozen
class AwsKeys:
    """Credentials of a role or user; ``ends_at`` is when they expire, in seconds since the epoch, ``None`` for unknown."""

    key_id: str
    secret: str = attrs.field(repr=False)
    session: str | None = attrs.field(default=None, repr=False)
    ends_at: float | None = None


def signed_headers(credentials: AwsKeys, region: str, now: float, more: Mapping[str, str]) -> dict[str, str]:
    """Sign ``GetCallerIdentity`` for the Security Token Service of a region; return the headers, ``host`` among them.

    ``more`` are signed too, by their names in lower case. ``now`` is in seconds since the epoch.
    """
    date = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": f"sts.{region}.amazonaws.com", "x-amz-date": date, **more}
    if credentials.session is not None:
        headers["x-amz-security-token"] = credentials.session
    names = sorted(headers)
    scope = (date[:8], region, "sts", "aws4_request")
    lines = "".join(f"{name}:{headers[name]}\n" for name in names)
    request = "\n".join(("GET", "/", _QUERY, lines, ";".join(names), hashlib.sha256(b"").hexdigest()))
    text = "\n".join(("AWS4-HMAC-SHA256", date, "/".join(scope), hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{credentials.secret}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"Credential={credentials.key_id}/{'/'.join(scope)}"
    authorization = f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={';'.join(names)}, Signature={signature}"
    return {**headers, "authorization": authorization}


class AwsCredentials:
    """The credentials of this workload, each kept until shortly before they expire.

    ``region`` goes before what the environment and the machine say. ``base_url`` is where a machine's metadata service is,
    which is then used whatever the environment, ``surroundings``, says.
    """

    def __init__(
        self,
        service: PlatformService,
        surroundings: Mapping[str, str],
        *,
        region: str | None = None,
        base_url: str | None = None,
        wall: WallClock | None = None,
    ) -> None:
        self._service, self._wall = service, wall or MachineClock()
        self._environment = {} if base_url is not None else surroundings
        self._url = (base_url or METADATA_URL).rstrip("/")
        self._region = region or surroundings.get("AWS_REGION") or surroundings.get("AWS_DEFAULT_REGION")
        self._cached: AwsKeys | None = None

    @classmethod
    def of(cls, reactor: Any, **more: Any) -> AwsCredentials:
        """Return those that are had by ``reactor``, with the environment of this process; ``more`` as the class takes it."""
        return cls(PlatformService(of_reactor(reactor, ANSWER_LIMIT)), environment(), **more)

    async def signed(self, more: Mapping[str, str]) -> dict[str, str]:
        """Return the signed headers of a ``GetCallerIdentity``, as ``signed_headers``.

        :raises NoIdentity: the workload has no role.
        :raises PlatformUnavailable: the platform gave no credentials in time.
        """
        credentials = await self._get_credentials()
        return signed_headers(credentials, self._region or DEFAULT_REGION, self._wall.seconds(), more)

    async def caller(self) -> CallerIdentity:
        """Ask AWS for the identity of this workload; raises the same as ``signed``.

        :raises NoIdentity: AWS doesn't take the signature, or gives no answer that can be read.
        """
        headers = await self.signed({})
        host = headers.pop("host")
        reply = await self._service.ask("GET", f"https://{host}/?{_QUERY}", {**headers, "Accept": "text/xml"})
        try:
            if reply.status == 200:
                return read_caller(reply.body)
        except Malformed:
            """Nor is this an answer."""
        raise NoIdentity(
            f"{host} doesn't say who this is (status {reply.status})", "give it a role, and set its clock right"
        )

    async def _get_credentials(self) -> AwsKeys:
        kept = self._cached
        if kept is not None and kept.ends_at is not None and self._wall.seconds() < kept.ends_at - MARGIN:
            return kept
        environment = self._environment
        key_id, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
        if key_id and secret:
            return AwsKeys(key_id, secret, environment.get("AWS_SESSION_TOKEN") or None)
        relative, full = (environment.get(f"AWS_CONTAINER_CREDENTIALS_{kind}_URI") for kind in ("RELATIVE", "FULL"))
        if relative or full:
            self._cached = await self._fetch_from_container(f"{_CONTAINER_URL}{relative}" if relative else f"{full}")
        else:
            self._cached = await self._fetch_from_machine()
        return self._cached

    async def _fetch_from_container(self, url: str) -> AwsKeys:
        """Ask at the environment's address; a secret is sent there, so it is the platform's own, or TLS (AWS-15)."""
        address = urlsplit(url)
        if address.scheme != "https" and not (address.scheme == "http" and _is_local_platform(address.hostname or "")):
            raise BadAddress("AWS_CONTAINER_CREDENTIALS_FULL_URI")
        token, file = (self._environment.get(f"AWS_CONTAINER_AUTHORIZATION_TOKEN{kind}") for kind in ("", "_FILE"))
        try:
            token = Path(file).read_text("ascii").strip() if file else token
        except (OSError, ValueError):
            raise NoIdentity(f"{file} cannot be read", "let this process read it") from None
        return _parse_credentials(
            await self._service.ask("GET", url, {"Authorization": token} if token else {}), public_origin(url)
        )

    async def _fetch_from_machine(self) -> AwsKeys:
        place = public_origin(self._url)
        asked = {"X-aws-ec2-metadata-token-ttl-seconds": str(_SESSION_SECONDS)}
        session = await self._service.ask("PUT", f"{self._url}/latest/api/token", asked)
        try:
            headers = {"X-aws-ec2-metadata-token": _read_line(session, "[!-~]{1,1024}")}
            path = f"{self._url}/latest/meta-data/"
            if self._region is None:
                self._region = _read_line(
                    await self._service.ask("GET", f"{path}placement/region", headers), "[a-z0-9-]{1,40}"
                )
            roles = f"{path}iam/security-credentials/"
            role = _read_line(await self._service.ask("GET", roles, headers), r"[\w+=,.@-]{1,64}")
        except ValueError as error:
            raise NoIdentity(f"the metadata service at {place} gives no role ({error})", _REMEDY) from None
        return _parse_credentials(await self._service.ask("GET", roles + quote(role, safe=""), headers), place)


def _is_local_platform(host: str) -> bool:
    try:
        return host == "localhost" or host in _PLATFORM or ip_address(host).is_loopback
    except ValueError:
        return False


def _read_line(reply: Reply, pattern: str) -> str:
    """Return the only line of an answer.

    :raises ValueError: there is none of this form.
    """
    text = reply.body.decode("ascii", "replace").strip()
    if reply.status != 200:
        raise ValueError(f"status {reply.status}")
    if not re.fullmatch(pattern, text, re.ASCII):
        raise ValueError("an answer of an unknown form")
    return text


def _parse_credentials(reply: Reply, place: str) -> AwsKeys:
    try:
        if reply.status != 200:
            raise ValueError
        document = parse_json(reply.body)
        ends_at = datetime.fromisoformat(document["Expiration"]).timestamp()
        found = AwsKeys(document["AccessKeyId"], document["SecretAccessKey"], document["Token"], ends_at)
        for text in (found.key_id, found.secret, found.session):
            if not re.fullmatch("[!-~]{1,8192}", text, re.ASCII):  # type: ignore[arg-type] # what is no text raises
                raise ValueError
    except (ValueError, KeyError, TypeError):
        raise NoIdentity(f"{place} gives no credentials (status {reply.status})", _REMEDY) from None
    return found

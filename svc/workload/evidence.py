"""The proofs of a workload's identity: an API key, a JWT, or the identity token of its platform."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from secrets import token_urlsafe
from typing import Final, Protocol
from urllib.parse import urlencode

import attrs

from svc.workload.faults import NoEvidence

#: No JWT is longer, in bytes; the service takes 16 KiB by default (LIM-5).
TOKEN_LIMIT: Final = 64 * 1024

#: Returns a JWT, at once or later.
GetToken = Callable[[], str | bytes | Awaitable[str | bytes]]


@attrs.frozen
class Login:
    """A request for an access token: the segments of its path, unencoded, and its body."""

    segments: tuple[str, ...]
    body: bytes = attrs.field(repr=False)
    content_type: str = "application/x-www-form-urlencoded"


class Evidence(Protocol):
    """A proof of identity."""

    @property
    def what(self) -> str:
        """Return its name, for the message of a refusal."""

    async def login(self, account: str) -> Login:
        """Return the request that presents it, fresh each time.

        :raises Fault: it can't be had.
        """


@attrs.frozen
class ApiKey:
    """The API key of a role; ``login`` is ``alice`` for a user, ``host/ci/runner`` for a host."""

    role: str
    api_key: str = attrs.field(repr=False)

    @property
    def what(self) -> str:
        """See ``Evidence``."""
        return f"the API key of {self.role}"

    async def login(self, account: str) -> Login:
        """See ``Evidence``."""
        return Login(("authn", account, self.role, "authenticate"), self.api_key.encode(), "text/plain; charset=utf-8")


@attrs.frozen
class Jwt:
    """A JWT for the authenticator ``authn-jwt/<service_id>``.

    ``token`` is the file that holds it, which is read for each login since platforms replace it, or what returns it.
    ``host`` is the host's id, such as ``host/ci/runner``, where the token doesn't name it.
    """

    service_id: str
    token: Path | GetToken = attrs.field(repr=False)
    host: str | None = None

    what = "this token"

    async def login(self, account: str) -> Login:
        """See ``Evidence``."""
        segments = (
            *_authenticator_segments("authn-jwt", self.service_id),
            account,
            *filter(None, (self.host,)),
            "authenticate",
        )
        return Login(segments, urlencode({"jwt": await self._read_token()}).encode("ascii"))

    async def _read_token(self) -> bytes:
        if isinstance(self.token, Path):
            got: str | bytes = _read_token_file(self.token)
        else:
            given = self.token()
            got = await given if inspect.isawaitable(given) else given
        token = (got.encode() if isinstance(got, str) else got).strip()
        if not token:
            raise NoEvidence(f"{self.token} is empty" if isinstance(self.token, Path) else "there is no JWT to show")
        return token


class IdentitySource(Protocol):
    """A source of the platform's identity tokens, such as :class:`svc.workload.metadata.Metadata`."""

    async def token(self) -> str:
        """Return an identity token that has not expired.

        :raises Fault: there is none.
        """


@attrs.frozen
class CloudIdentity:
    """The identity that the cloud gives this machine, as ``host/apps/shop``, for ``authn-cloud/<service_id>``."""

    service_id: str
    host: str
    source: IdentitySource = attrs.field(repr=False)

    @property
    def what(self) -> str:
        """See ``Evidence``."""
        return f"this machine's identity as {self.host}"

    async def login(self, account: str) -> Login:
        """See ``Evidence``."""
        segments = (*_authenticator_segments("authn-cloud", self.service_id), account, self.host, "authenticate")
        return Login(segments, urlencode({"jwt": await self.source.token()}).encode("ascii"))


class GoogleSource(Protocol):
    """A source of Google's identity tokens, such as :class:`svc.workload.google.GoogleMetadata`."""

    async def token(self, audience: str) -> str:
        """Return an identity token for an audience that has not expired.

        :raises Fault: there is none.
        """


@attrs.frozen
class GoogleIdentity:
    """The service account that Google Cloud gives this workload, as ``host/google/billing``, for ``authn-gcp``.

    ``prefix`` begins the audience: ``svc``, or ``conjur`` for a server that speaks that dialect.
    """

    host: str
    source: GoogleSource = attrs.field(repr=False)
    prefix: str = "svc"

    @property
    def what(self) -> str:
        """See ``Evidence``."""
        return f"this workload's Google identity as {self.host}"

    async def login(self, account: str) -> Login:
        """See ``Evidence``."""
        token = await self.source.token(f"{self.prefix}/{account}/{self.host}")
        return Login(("authn-gcp", account, "authenticate"), urlencode({"jwt": token}).encode("ascii"))


class AwsSource(Protocol):
    """A source of signed requests, such as :class:`svc.workload.aws.AwsCredentials`."""

    async def signed(self, more: Mapping[str, str]) -> dict[str, str]:
        """Return the signed headers of a ``GetCallerIdentity``, with ``more`` among them.

        :raises Fault: there are no credentials.
        """


@attrs.frozen
class AwsRole:
    """The role that AWS gives this workload, as ``host/aws/123456789012/billing``, for ``authn-iam/<service_id>``.

    ``server_id`` is the authenticator's variable of that name, mostly the host name of the server; ``None`` where there is
    none. Each request is signed afresh, and differs from all others.
    """

    service_id: str
    host: str
    source: AwsSource = attrs.field(repr=False)
    server_id: str | None

    @property
    def what(self) -> str:
        """See ``Evidence``."""
        return f"this workload's role of AWS as {self.host}"

    async def login(self, account: str) -> Login:
        """See ``Evidence``."""
        named = {} if self.server_id is None else {"x-svc-server-id": f"{self.server_id}/{account}/{token_urlsafe(12)}"}
        segments = (*_authenticator_segments("authn-iam", self.service_id), account, self.host, "authenticate")
        return Login(segments, json.dumps(await self.source.signed(named)).encode("ascii"), "application/json")


def _authenticator_segments(usual: str, service_id: str) -> tuple[str, str]:
    """Return the first two segments of its paths; ``authn-azure/prod`` has a name of its own."""
    name, slash, rest = service_id.partition("/")
    return (name, rest) if slash else (usual, service_id)


def _read_token_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            contents = file.read(TOKEN_LIMIT + 1)
    except OSError as error:
        raise NoEvidence(f"the JWT in {path} cannot be read: {error.strerror}") from None
    if len(contents) > TOKEN_LIMIT:
        raise NoEvidence(f"{path} is longer than any JWT: more than {TOKEN_LIMIT} bytes")
    return contents

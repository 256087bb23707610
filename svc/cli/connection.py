"""A server as the command line reaches it: where it is, who speaks to it, and one request at a time.

Every command that speaks HTTP takes the same three options, and proves its caller in one of two ways: with ``SVC_LOGIN`` and
``SVC_API_KEY`` from the environment, or with the access token that ``svc login`` keeps.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import attrs
import click
import platformdirs
import treq
from click.core import ParameterSource
from OpenSSL.crypto import Error as TLSFileError
from OpenSSL.SSL import Error as TLSError
from treq.client import HTTPClient
from twisted.internet import defer, error, ssl
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure
from twisted.web.client import (
    Agent,
    BrowserLikePolicyForHTTPS,
    RequestTransmissionFailed,
    ResponseFailed,
    ResponseNeverReceived,
)

from svc.cli.running import react

#: How long a request may take, in seconds; policies of many thousand records take the longest.
DEADLINE: Final = 600.0

#: The largest answer that is read, in bytes.
ANSWER_LIMIT: Final = 64 * 1024 * 1024


@attrs.frozen
class Answer:
    """What the server answered: status code, body, and the headers by their lower-case names."""

    status: int
    body: bytes = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict)

    def json(self) -> Any:
        """The body, read as JSON.

        :raises click.ClickException: it isn't JSON, so that what answered is hardly this service.
        """
        try:
            return json.loads(self.body)
        except ValueError:
            raise click.ClickException(
                f"the answer ({self.status}) is not JSON; is this the address of the service?"
            ) from None

    def expect(self, *statuses: int) -> Answer:
        """Return this answer when its status is one of these.

        :raises click.ClickException: it is another; the message says what the server said and what to do.
        """
        if self.status in statuses:
            return self
        raise click.ClickException(f"{_ADVICE.get(self.status, 'the server refused')} (status {self.status}){self._said()}")

    def _said(self) -> str:
        try:
            message = json.loads(self.body)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            message = self.body[:300].decode("utf-8", "replace").strip()
        return f": {message}" if message else ""


_CERTIFICATE: Final = re.compile(b"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

_ADVICE: Final = {
    401: "not authenticated: run `svc login`, or set SVC_LOGIN and SVC_API_KEY",
    403: "not permitted: the role sees this, but lacks the privilege",
    404: "not found, or not visible to this role",
    409: "in conflict with something else",
    413: "too large",
    422: "the server cannot use this",
    503: "the server's database cannot be reached now: try again",
}


@attrs.frozen
class Connection:
    """One server and account. ``login`` and ``api_key`` are ``None`` when the kept token is to be used."""

    url: str
    account: str
    login: str | None
    api_key: str | None = attrs.field(repr=False)
    http: HTTPClient
    reactor: IReactorTime

    async def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Send a request without a token and return its answer, whatever the status.

        :raises click.ClickException: there was none within ``DEADLINE`` seconds.
        """
        fields: dict[bytes | str, bytes | str] = {name.replace("_", "-"): value for name, value in headers.items()}
        waiting = defer.Deferred.fromCoroutine(self._exchange(method, path, body, fields))
        waiting.addTimeout(DEADLINE, self.reactor)
        try:
            return await waiting
        except (error.ConnectError, error.DNSLookupError, defer.TimeoutError) as fault:
            raise click.ClickException(f"cannot reach {self.url}: {str(fault).strip() or type(fault).__name__}") from None
        except (RequestTransmissionFailed, ResponseFailed, ResponseNeverReceived) as fault:
            raise click.ClickException(f"no answer from {self.url}: {_innermost(fault)}") from None

    async def _exchange(self, method: str, path: str, body: bytes | None, headers: dict[bytes | str, bytes | str]) -> Answer:
        response = await self.http.request(method, f"{self.url}{path}", data=body, headers=headers, allow_redirects=False)
        pieces: list[bytes] = []
        size = 0

        def collect(piece: bytes) -> None:
            nonlocal size
            size += len(piece)
            if size > ANSWER_LIMIT:
                raise click.ClickException(f"the answer is larger than {ANSWER_LIMIT} bytes")
            pieces.append(piece)

        await treq.collect(response, collect)
        named = {k.decode("latin-1").lower(): v[-1].decode("latin-1") for k, v in response.headers.getAllRawHeaders()}
        return Answer(response.code, b"".join(pieces), named)

    async def authenticate(self, login: str, api_key: str) -> str:
        """Exchange an API key for an access token, base64 as it stands in the ``Authorization`` header."""
        path = f"/authn/{self.segment(self.account)}/{self.segment(login)}/authenticate"
        answer = await self.request("POST", path, api_key.encode(), Accept_Encoding="base64")
        if answer.status == 401:
            raise click.ClickException(f"the server refused the API key of {login} (account {self.account})")
        return answer.expect(200).body.decode("ascii")

    async def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Send a request with an access token and return its answer, whatever the status."""
        if self.login is not None and self.api_key is not None:
            token = await self.authenticate(self.login, self.api_key)
        else:
            token = kept_token(self.url, self.account)
        return await self.request(method, path, body, Authorization=f'Token token="{token}"', **headers)

    @staticmethod
    def segment(text: str) -> str:
        """Encode ``text`` as one segment of a path."""
        return quote(text, safe="")


def _innermost(fault: RequestTransmissionFailed | ResponseFailed | ResponseNeverReceived) -> str:
    reasons = [reason for reason in fault.reasons if isinstance(reason, Failure)]
    if any(reason.check(TLSError) for reason in reasons):
        return f"its certificate is not to be trusted ({reasons[0].getErrorMessage()}); --ca-file names another authority"
    return reasons[0].getErrorMessage() if reasons else str(fault)


# -- the kept token ---------------------------------------------------------------------------------------------------


def token_file() -> Path:
    """Where ``svc login`` keeps access tokens: in the user's state directory."""
    return Path(platformdirs.user_state_dir("svc")) / "tokens.json"


def keep_token(url: str, account: str, token: str) -> Path:
    """Keep an access token for later commands, in a file of mode 0600; return its path."""
    path = token_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    tokens = _tokens() | {f"{url} {account}": token}
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(tokens, file)
    fresh.replace(path)
    return path


def kept_token(url: str, account: str) -> str:
    """The access token that ``svc login`` kept for this server and account.

    :raises click.ClickException: there is none.
    """
    try:
        return _tokens()[f"{url} {account}"]
    except KeyError:
        raise click.ClickException(
            f"not logged in to account {account} at {url}: run `svc login`, or set SVC_LOGIN and SVC_API_KEY"
        ) from None


def _tokens() -> dict[str, str]:
    try:
        tokens = json.loads(token_file().read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return tokens if isinstance(tokens, dict) else {}


def _from_environment_alone(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if context.get_parameter_source(f"{parameter.name}") is ParameterSource.COMMANDLINE:
        raise click.UsageError("an API key on the command line is seen by every user of the machine: set SVC_API_KEY")
    return value


# -- commands ---------------------------------------------------------------------------------------------------------


def _with_scheme(context: click.Context, parameter: click.Parameter, value: str) -> str:  # noqa: ARG001 (click's)
    address = urlsplit(value)
    if address.scheme not in {"http", "https"} or not address.hostname:
        raise click.BadParameter(f"{value!r} is no address such as https://svc.example.org")
    return value.rstrip("/")


def _trust_in(authorities: Path) -> dict[str, Any]:
    """The policy of trusting whom the certificates in a PEM file name.

    :raises click.ClickException: it holds none.
    """
    blocks = _CERTIFICATE.findall(authorities.read_bytes())
    try:
        certificates = [ssl.Certificate.loadPEM(block) for block in blocks]
    except TLSFileError:
        certificates = []
    if not certificates:
        raise click.ClickException(f"{authorities} holds no certificate in PEM form")
    return {"trustRoot": ssl.trustRootFromCertificates(certificates)}


_URL = click.option(
    "--url",
    envvar="SVC_URL",
    show_envvar=True,
    required=True,
    callback=_with_scheme,
    help="Address of the server, such as https://svc.example.org",
)
_CA_FILE = click.option(
    "--ca-file",
    envvar="SVC_CA_FILE",
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="PEM file of the authority that signed the server's certificate, instead of the system's authorities.",
)
_CALLER = (
    click.option(
        "--account-name", "account", envvar="SVC_ACCOUNT", show_envvar=True, required=True, help="Account to work in."
    ),
    click.option("--login", envvar="SVC_LOGIN", show_envvar=True, help="Who to be: alice, or host/ci/runner."),
    click.option("--api-key", envvar="SVC_API_KEY", hidden=True, callback=_from_environment_alone),
)


def over_http(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a coroutine function, whose first argument is a :class:`Connection`, a command with the options of one."""
    run = anonymously(command)
    for option in reversed(_CALLER):
        run = option(run)
    return run


def anonymously(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Like :func:`over_http`, for a command that needs no account and no caller."""

    def run(**options: Any) -> None:
        url, ca_file = options.pop("url"), options.pop("ca_file")
        account, login, api_key = options.pop("account", ""), options.pop("login", None), options.pop("api_key", None)

        async def work(reactor: Any) -> None:
            policy = BrowserLikePolicyForHTTPS(**(_trust_in(ca_file) if ca_file else {}))
            agent = Agent(reactor, contextFactory=policy, connectTimeout=10)
            await command(Connection(url, account, login, api_key, HTTPClient(agent), reactor), **options)

        react(work)

    run.__name__ = command.__name__
    run.__doc__ = command.__doc__
    return _CA_FILE(_URL(run))


def claims_of(token: str) -> dict[str, Any]:
    """The claims inside an access token, unverified: for telling its owner when it ends."""
    payload = json.loads(base64.b64decode(token))["payload"]
    claims = json.loads(base64.b64decode(payload))
    assert isinstance(claims, dict)
    return claims

"""The identity token that a cloud platform gives to a workload, from the metadata service of the machine itself.

Virtual machines and container instances ask at a fixed link-local address; app services and functions at an address from
their environment, with a secret; machines that Arc connects to the cloud ask an agent beside them, which has them prove that
they may read a file (NET-25, NET-26, NET-28). No request goes through a proxy, and no redirect is followed.

Note [Other surroundings]. Where the environment has variables of surroundings that aren't supported, no request is sent: at
the link-local address another identity might answer, that of the machine under a pod for example.

Note [Pauses]. The platform documents retries after 404, 429, 5xx and silence: five times, after 0, 2, 6, 14 and 30 seconds,
after 5xx at least one second later; and that 410 (the service is being updated) is over after 70 seconds, within which there
is a request every ten. Each pause is up to a fifth longer by chance, since machines of one kind start together.
"""

from __future__ import annotations

import errno
import os
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import attrs

from svc.model.clocks import MachineClock, WallClock
from svc.workload.address import check_address, public_origin
from svc.workload.faults import NoIdentity, PlatformUnavailable, Unreachable
from svc.workload.machine import RESOURCE, claims_within
from svc.workload.on_twisted import of_reactor
from svc.workload.replies import Reply, parse_json, printable_excerpt
from svc.workload.requester import Requester

#: Where a virtual machine asks.
LINK_LOCAL: Final = "http://169.254.169.254"

#: Seconds for a token, all tries included, and for one try; the largest answer that is taken, in bytes.
DEADLINE: Final = 120.0
TRY_DEADLINE: Final = 10.0
ANSWER_LIMIT: Final = 256 * 1024

#: Seconds before its expiration when a token is not given out any more.
MARGIN: Final = 300.0

#: Where Arc's agent puts files that processes prove their access with, and the largest of them, in bytes.
ARC_KEYS: Final = Path("/var/opt/azcmagent/tokens")
_CHALLENGE_LIMIT: Final = 4096

#: A challenge, whose scheme and names of parameters have no case (RFC 9110 11); the agent writes paths without quotes.
_PARAMETER: Final = re.compile(r"""([A-Za-z0-9_-]+)[ \t]*=[ \t]*(?:"([^"\\]*)"|([^\s",]+))""")
_CHALLENGE: Final = re.compile(rf"(?i:basic) +({_PARAMETER.pattern}(?:[ \t]*,[ \t]*{_PARAMETER.pattern})*)")

#: A refusal that is about the resource, and not about the identity.
_RESOURCE_REFUSAL: Final = re.compile(rb"\binvalid_resource\b|\bAADSTS50001[0-9]?\b")

#: A time that no token reaches, in seconds since the epoch.
_MAX_EXPIRATION: Final = 1e11

_PAUSES: Final = (0.0, 2.0, 6.0, 14.0, 30.0)
_FAULT_PAUSE: Final = 1.0
_UPDATE_PAUSE: Final = 10.0
_UPDATE_TRIES: Final = 8
_SPREAD: Final = 0.2


def environment() -> Mapping[str, str]:
    """Return the variables of this process's environment."""
    return os.environ


@attrs.frozen
class IdentityToken:
    """An identity token. ``ends_at`` is when it expires, in seconds since the epoch."""

    text: str = attrs.field(repr=False)
    ends_at: float


@attrs.frozen
class _MetadataEndpoint:
    """A metadata service. ``requires_proof``: it first asks for the content of a file, as Arc's agent does."""

    url: str
    api_version: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    client: str = "client_id"
    requires_proof: bool = False


class Metadata:
    """The identity tokens of this machine, for one ``resource``: each kept until shortly before it expires.

    ``client_id`` names a user-assigned identity; without it the machine's own is used. ``base_url`` is where a virtual
    machine asks; ``surroundings`` are the environment's variables, which go before it. ``deadline`` is for a token with all
    its tries, ``try_deadline`` for each try, in seconds. ``chance`` returns random numbers of [0, 1). ``keys`` is the folder
    of the files of Arc's agent. Many may ask at once.

    :raises BadAddress: an address can't be used.
    """

    def __init__(
        self,
        requester: Requester,
        surroundings: Mapping[str, str],
        *,
        resource: str = RESOURCE,
        client_id: str | None = None,
        base_url: str = LINK_LOCAL,
        deadline: float = DEADLINE,
        try_deadline: float = TRY_DEADLINE,
        chance: Callable[[], float] = random.random,
        wall: WallClock | None = None,
        keys: Path = ARC_KEYS,
    ) -> None:
        self._keys = keys
        self._requester, self._wall = requester, wall or MachineClock()
        self._deadline, self._try_deadline, self._chance = deadline, try_deadline, chance
        self._service = _find_endpoint(surroundings, base_url)
        self._resource, self._client_id = resource, client_id
        self._cached: IdentityToken | None = None
        self._fetch = requester.shared(self._fetch_token)

    @classmethod
    def of(cls, reactor: Any, *, resource: str = RESOURCE, client_id: str | None = None, **more: Any) -> Metadata:
        """Return one that connects by ``reactor``, with the environment of this process; ``more`` as the class takes it."""
        return cls(of_reactor(reactor, ANSWER_LIMIT), environment(), resource=resource, client_id=client_id, **more)

    async def token(self) -> str:
        """Return an identity token with some life left.

        :raises NoIdentity: the machine has none.
        :raises PlatformUnavailable: the platform gave none in time.
        """
        return (await self.identity_token()).text

    async def identity_token(self) -> IdentityToken:
        """Return what :meth:`token` does, with the token's expiration."""
        kept = self._cached
        if kept is not None and self._wall.seconds() < kept.ends_at - MARGIN:
            return kept
        return await self._fetch.result()

    async def _fetch_token(self) -> IdentityToken:
        service = self._service
        if isinstance(service, NoIdentity):
            raise service
        query = {"api-version": service.api_version, "resource": self._resource}
        identity = {} if self._client_id is None else {service.client: self._client_id}
        url = f"{service.url}?{urlencode({**query, **identity})}"
        ends = self._requester.seconds() + self._deadline
        updates = others = 0
        while True:
            began = self._wall.seconds()
            try:
                within = min(self._try_deadline, ends - self._requester.seconds())
                reply = await self._send_request(service, url, within)
            except Unreachable as unreachable:
                status, why = 0, unreachable.why
            else:
                if reply.status == 200:
                    return self._cache_token(url, reply, began)
                status, why = reply.status, f"status {reply.status}{_refusal_message(reply)}"
                self._check_retryable(url, reply)
            updates, others = updates + (status == 410), others + (status != 410)
            pause = _retry_pause(status, updates if status == 410 else others)
            if pause is not None:
                pause *= 1 + _SPREAD * self._chance()
            if pause is None or self._requester.seconds() + pause >= ends:
                raise PlatformUnavailable(public_origin(url), self._deadline, updates + others, why)
            await self._requester.sleep(pause)

    async def _send_request(self, service: _MetadataEndpoint, url: str, within: float) -> Reply:
        ends = self._requester.seconds() + within
        reply = await self._requester.ask("GET", url, None, service.headers, within=within)
        if reply.status == 401 and service.requires_proof:
            proof = {**service.headers, "Authorization": f"Basic {_read_challenge(reply, self._keys)}"}
            reply = await self._requester.ask("GET", url, None, proof, within=max(ends - self._requester.seconds(), 0.0))
        return reply

    def _check_retryable(self, url: str, reply: Reply) -> None:
        """Return when a later try may succeed.

        :raises NoIdentity: it won't.
        """
        place = public_origin(url)
        match reply.status:
            case status if status in {404, 410, 429} or status >= 500:
                return
            case 400 if _RESOURCE_REFUSAL.search(reply.body) is not None:
                why = f"no identity token for the resource {printable_excerpt(self._resource)}"
                remedy = (
                    "name a resource that the machine's tenant knows (--resource), the default or an application there,"
                    " and the same in the authenticator's variable audience"
                )
            case 400 if self._client_id is None:
                why = "identity not found on this machine"
                remedy = "assign a system-assigned identity to it, or name the client id of a user-assigned one that it has"
            case 400:
                why = f"identity {self._client_id} not found on this machine"
                remedy = "assign it to the machine, and give its client id, which is not its object id"
            case 401 | 403:
                why = f"the metadata service at {place} refuses this process"
                remedy = (
                    "ask from the machine itself, not through a proxy, with the environment that the platform gave;"
                    " or this may be no machine of that platform, and something else answers there"
                )
            case _:
                why, remedy = f"what answers at {place} is no metadata service", "run this on a machine of the platform"
        raise NoIdentity(f"{why} (status {reply.status}{_refusal_message(reply)})", remedy)

    def _cache_token(self, url: str, reply: Reply, began: float) -> IdentityToken:
        try:
            document = parse_json(reply.body)
            text = document["access_token"]
            text.encode("ascii")
            token = IdentityToken(text, _expiration_of(document, text, began))
        except (ValueError, KeyError, TypeError, AttributeError):
            why = f"the answer of {public_origin(url)} is no identity token"
            raise NoIdentity(why, "run this on a machine of the platform") from None
        if token.ends_at <= self._wall.seconds():
            raise NoIdentity("the platform gave a token that has expired", "set this machine's clock right")
        self._cached = token
        return token


def _find_endpoint(surroundings: Mapping[str, str], base_url: str) -> _MetadataEndpoint | NoIdentity:
    """Return the service of these surroundings, or why they have none (Note [Other surroundings]).

    :raises BadAddress: the address that they give can't be used.
    """
    endpoint, secret = surroundings.get("IDENTITY_ENDPOINT"), surroundings.get("IDENTITY_HEADER")
    if endpoint and secret and surroundings.get("IDENTITY_SERVER_THUMBPRINT"):
        return _unsupported_environment(
            "IDENTITY_SERVER_THUMBPRINT: a Service Fabric cluster",
            "get the token in the service's own code, and log in with it: svc authenticate jwt --help",
        )
    if endpoint and secret:
        check_address(endpoint, "IDENTITY_ENDPOINT")
        return _MetadataEndpoint(endpoint, "2019-08-01", {"X-IDENTITY-HEADER": secret})
    if endpoint and surroundings.get("IMDS_ENDPOINT"):
        check_address(endpoint, "IDENTITY_ENDPOINT")
        return _MetadataEndpoint(endpoint, "2020-06-01", {"Metadata": "true"}, requires_proof=True)
    if endpoint:
        return _unsupported_environment(
            "IDENTITY_ENDPOINT without IDENTITY_HEADER or IMDS_ENDPOINT", "pass on the whole environment of the platform"
        )
    if secret:
        return _unsupported_environment(
            "IDENTITY_HEADER without IDENTITY_ENDPOINT", "pass on the whole environment of the platform"
        )
    endpoint, secret = surroundings.get("MSI_ENDPOINT"), surroundings.get("MSI_SECRET")
    if endpoint and secret:
        check_address(endpoint, "MSI_ENDPOINT")
        return _MetadataEndpoint(endpoint, "2017-09-01", {"secret": secret}, client="clientid")
    if endpoint:
        return _unsupported_environment(
            "MSI_ENDPOINT without MSI_SECRET: Cloud Shell",
            "log in there as a person (svc login): its tokens are of the person, not of a machine",
        )
    if secret:
        return _unsupported_environment("MSI_SECRET without MSI_ENDPOINT", "pass on the whole environment of the platform")
    if file := surroundings.get("AZURE_FEDERATED_TOKEN_FILE"):
        return _unsupported_environment(
            "AZURE_FEDERATED_TOKEN_FILE: a pod with workload identity",
            f"log in with the token of its cluster: --platform kubernetes --token-file {file}",
        )
    for name in ("IMDS_ENDPOINT", "IDENTITY_SERVER_THUMBPRINT"):
        if surroundings.get(name):
            return _unsupported_environment(
                f"{name} without IDENTITY_ENDPOINT", "pass on the whole environment of the platform"
            )
    if surroundings.get("AZURE_POD_IDENTITY_AUTHORITY_HOST"):
        return _unsupported_environment(
            "AZURE_POD_IDENTITY_AUTHORITY_HOST: another address of the metadata service",
            "name that address with --metadata-url, or unset the variable",
        )
    check_address(base_url, "the address of the metadata service")
    return _MetadataEndpoint(base_url.rstrip("/") + "/metadata/identity/oauth2/token", "2018-02-01", {"Metadata": "true"})


def _unsupported_environment(found: str, remedy: str) -> NoIdentity:
    return NoIdentity(f"this process has no identity of a machine: its environment has {found}", remedy)


def _read_challenge(reply: Reply, folder: Path) -> str:
    """Return the content of the file that Arc's agent names, which shows that this process may read it (NET-28).

    :raises NoIdentity: it isn't a file of the agent's, or can't be read.
    """
    remedy = "see that the agent of this machine works (azcmagent show), and run this again"
    challenge = _CHALLENGE.fullmatch(reply.headers.get("www-authenticate", "").strip())
    named = [] if challenge is None else _PARAMETER.findall(challenge[1])
    realms = [quoted or bare for name, quoted, bare in named if name.lower() == "realm"]
    file = Path(realms[0]) if len(realms) == 1 else None
    # The agent must not be able to have other files sent to it.
    if file is None or file.parent != folder or file.suffix != ".key":
        raise NoIdentity("the agent of this connected machine names no file of its own to prove access with", remedy)
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
            content = opened.read(_CHALLENGE_LIMIT + 1)
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EPERM}:
            remedy = "run this as root, or as a member of the group himds"
        raise NoIdentity(f"{file} cannot be read: {error.strerror}", remedy) from None
    if len(content) > _CHALLENGE_LIMIT or not re.fullmatch(rb"[!-~]+", content):
        raise NoIdentity(f"{file} does not hold what the agent of this connected machine writes there", remedy)
    return content.decode("ascii")


def _retry_pause(status: int, times: int) -> float | None:
    """Return the seconds to wait after so many failures of this status, 0 for silence; ``None``: no more (Note [Pauses])."""
    if status == 410:
        return _UPDATE_PAUSE if times <= _UPDATE_TRIES else None
    if times > len(_PAUSES):
        return None
    return max(_PAUSES[times - 1], _FAULT_PAUSE if status >= 500 else 0.0)


def _expiration_of(document: Mapping[str, object], token: str, began: float) -> float:
    """Return when a token expires, in seconds since the epoch.

    The platform writes the moment or the rest of the token's life as a number, as text, or, at older endpoints, as a date in
    one of several forms. Where neither is a number, the token's own ``exp`` counts.
    """
    for name, start in (("expires_on", 0.0), ("expires_in", began)):
        text = str(document.get(name, ""))
        if re.fullmatch(r"[0-9]{1,11}(\.[0-9]{1,9})?", text, re.ASCII):
            return start + float(text)
    try:
        ends_at = claims_within(token).get("exp")
    except NoIdentity:
        ends_at = None
    if isinstance(ends_at, int | float) and 0 < ends_at < _MAX_EXPIRATION:
        return float(ends_at)
    raise ValueError("it doesn't say when it ends")


def _refusal_message(reply: Reply) -> str:
    """Return the service's message of a refusal, truncated and escaped."""
    try:
        document = parse_json(reply.body)
        text = document.get("error_description") or document.get("message") or document.get("error") or ""
    except (ValueError, AttributeError):
        return ""
    return f": {shown}" if (shown := printable_excerpt(str(text))) else ""

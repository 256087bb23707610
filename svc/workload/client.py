"""The service, as a workload calls it: log in with what the workload has, read secrets, stay logged in.

A workload that reads its database's password::

    from svc.workload.client import Client
    from svc.workload.evidence import Jwt

    async def password(reactor) -> bytes:
        evidence = Jwt("ci", Path("/var/run/secrets/tokens/svc"))
        client = Client.of(reactor, "https://svc.example.org", "acme", evidence)
        return await client.secret("ci/database/password")

All faults are those of ``svc.workload.faults``. Nothing here is logged, and no fault holds a token or a secret.

Note [Fresh tokens]. A token is renewed when somebody needs one and most of its life is over, at a moment that differs from
client to client, so that those started together don't log in together. While the service can't renew it, it serves to its
end. Its life is counted from before it was asked for, by this machine's clock alone. If the service refuses it all the same,
a read logs in again and tries once more.

Note [Tries]. Requests here change nothing, so each may be sent again: when nothing answered, or the answer broke off, or the
service said when to come again (503 or 429 with ``Retry-After``). All tries are within one deadline.
"""

from __future__ import annotations

import base64
import math
import random
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import attrs
from twisted.internet.task import deferLater

from svc.workload.address import demand_address, origin
from svc.workload.evidence import Evidence
from svc.workload.exchange import Exchange, Reply, http_client, parsed
from svc.workload.faults import (
    BadAnswer,
    Fault,
    LoginRefused,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    Unavailable,
    Unexpected,
    Unreachable,
)
from svc.workload.sharing import Shared

#: Seconds for a request, bytes of an answer, and tries of a request (Note [Tries]), at the most.
DEADLINE: Final = 30.0
ANSWER_LIMIT: Final = 64 * 1024 * 1024
TRIES: Final = 4

#: The statuses after which the same request may succeed: away or busy, or asked too often.
_LATER: Final = {503, 429}

#: Seconds before the second try; each pause is twice the one before, and up to twice as long again by chance.
_BACKOFF: Final = 0.25

#: The parts of a token's life between which it is renewed (Note [Fresh tokens]).
_RENEWED: Final = (0.7, 0.85)

#: The longest list of ids in one request, in bytes: the service takes more (LIM-1), but what stands before it may not.
_LIST_LIMIT: Final = 7 * 1024


@attrs.frozen
class _Token:
    """An access token; ``renew_at`` and ``ends_at`` are moments of this machine's clock."""

    text: str = attrs.field(repr=False)
    renew_at: float
    ends_at: float


class Client:
    """One server, one account and one role, whose proof of identity is ``evidence``.

    ``access_token`` is one that is at hand already, and serves until the service refuses it. ``deadline`` is for each
    request, in seconds. ``chance`` returns random numbers of [0, 1). Methods may be called by many at once.
    """

    def __init__(
        self,
        url: str,
        account: str,
        evidence: Evidence,
        exchange: Exchange,
        *,
        access_token: str | None = None,
        deadline: float = DEADLINE,
        chance: Callable[[], float] = random.random,
    ) -> None:
        demand_address(url, "the address of the service")
        self._url, self._account, self._evidence = url.rstrip("/"), account, evidence
        self._exchange, self._clock = exchange, exchange.reactor
        self._deadline, self._chance = deadline, chance
        self._token = None if access_token is None else _Token(access_token, math.inf, math.inf)
        self._login = Shared(self._log_in)

    @classmethod
    def of(
        cls,
        reactor: Any,
        url: str,
        account: str,
        evidence: Evidence,
        *,
        ca_file: Path | None = None,
        deadline: float = DEADLINE,
    ) -> Client:
        """Return a client that connects by ``reactor``.

        :param url: where the service is, such as ``https://svc.example.org``.
        :param ca_file: PEM file of the only authorities to trust; without it, the system's.
        :param deadline: seconds for a request, all its tries included.
        :raises BadAddress: requests can't be sent to ``url``.
        :raises NoEvidence: the file can't be read, or holds no certificate.
        """
        exchange = Exchange(http_client(reactor, ca_file), reactor, ANSWER_LIMIT)
        return cls(url, account, evidence, exchange, deadline=deadline)

    async def secret(self, variable: str, version: int | None = None) -> bytes:
        """Read the value of a variable, such as ``ci/database/password``: the newest, unless a version is given.

        :raises NotFound: there is no value for this role.
        :raises NotPermitted: the role sees the variable, but may not read it.
        :raises Fault: the role can't log in, or the service can't be reached.
        """
        path = f"/secrets/{quote(self._account, safe='')}/variable/{quote(variable, safe='')}"
        return (await self._read(path if version is None else f"{path}?version={version}", variable)).body

    async def secrets(self, variables: Iterable[str]) -> dict[str, bytes]:
        """Read the newest values of several variables, all of them or none, with one request unless there are very many.

        :raises Fault: as ``secret`` does.
        """
        values: dict[str, bytes] = {}
        listed: list[str] = []
        for variable in dict.fromkeys(variables):
            if "," in variable:
                values[variable] = await self.secret(variable)
            else:
                listed.append(variable)
        for batch in self._batches(listed):
            values |= await self._batch(batch)
        return values

    async def access_token(self) -> str:
        """Return an access token with some life left, in base64 as in the header ``Authorization: Token token="…"``.

        :raises Fault: there is none to be had.
        """
        token = self._token
        if token is not None and self._clock.seconds() < token.renew_at:
            return token.text
        try:
            return (await self._login.result()).text
        except (Unreachable, Unavailable):
            if token is None or self._clock.seconds() >= token.ends_at:
                raise
            return token.text

    async def _log_in(self) -> _Token:
        login = await self._evidence.login(self._account)
        path = "".join(f"/{quote(segment, safe='')}" for segment in login.segments)
        began = self._clock.seconds()
        headers = {"Content-Type": login.content_type, "Accept-Encoding": "base64"}
        reply = await self._ask("POST", path, login.body, headers)
        if reply.status in {401, 403}:
            raise LoginRefused(self._evidence.what, self._account, reply.status, reply.request_id)
        if reply.status != 200:
            raise self._unusual(reply)
        self._demand_base64(reply)
        try:
            text = reply.body.decode("ascii")
            claims = claims_of(text)
            life = float(claims["exp"] - claims["iat"])
            if not math.isfinite(life):
                raise ValueError("it never ends")
        except (ValueError, KeyError, TypeError, OverflowError):
            raise BadAnswer(origin(self._url), "an access token") from None
        early, late = _RENEWED
        self._token = _Token(text, began + life * (early + (late - early) * self._chance()), began + life)
        return self._token

    def _batches(self, variables: list[str]) -> Iterable[list[str]]:
        batch: list[str] = []
        size = 0
        for variable in variables:
            added = len(self._full(variable)) + 3
            if batch and size + added > _LIST_LIMIT:
                yield batch
                batch, size = [], 0
            batch.append(variable)
            size += added
        if batch:
            yield batch

    async def _batch(self, variables: list[str]) -> dict[str, bytes]:
        """Read these with one request, or with several when the service finds them too long for one."""
        listed = "%2C".join(map(self._full, variables))
        try:
            reply = await self._read(f"/secrets?variable_ids={listed}", ", ".join(variables), {"Accept-Encoding": "base64"})
        except Unexpected as fault:
            if fault.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                raise
            if len(variables) == 1:
                return {variables[0]: await self.secret(variables[0])}
            half = len(variables) // 2
            return {**await self._batch(variables[:half]), **await self._batch(variables[half:])}
        self._demand_base64(reply)
        try:
            values = parsed(reply.body)
            lines = {
                each: values[f"{self._account}:variable:{each}"].replace("\r", "").replace("\n", "") for each in variables
            }
            return {variable: base64.b64decode(text, validate=True) for variable, text in lines.items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadAnswer(origin(self._url), "what was asked for, in base64") from None

    def _full(self, variable: str) -> str:
        return quote(f"{self._account}:variable:{variable}", safe="")

    async def _read(self, path: str, asked: str, headers: Mapping[str, str] | None = None) -> Reply:
        """Read what is ``asked`` in the message of a refusal (Note [Fresh tokens])."""
        token = await self.access_token()
        reply = await self._get(path, token, headers)
        if reply.status == 401:
            if self._token is not None and self._token.text == token:
                self._token = None
            reply = await self._get(path, await self.access_token(), headers)
        match reply.status:
            case 200:
                return reply
            case 401:
                raise NotAuthenticated(origin(self._url), reply.request_id)
            case 403:
                raise NotPermitted(asked, reply.request_id)
            case 404:
                raise NotFound(asked, reply.said, reply.request_id)
        raise self._unusual(reply)

    async def _get(self, path: str, token: str, headers: Mapping[str, str] | None) -> Reply:
        return await self._ask("GET", path, None, {"Authorization": f'Token token="{token}"', **(headers or {})})

    async def _ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        """Send a request that changes nothing (Note [Tries])."""
        ends = self._clock.seconds() + self._deadline
        for number in range(TRIES):
            left = ends - self._clock.seconds()
            again = 0.0
            try:
                reply = await self._exchange.ask(method, self._url + path, body, headers, within=left)
            except Unreachable as unreachable:
                fault: Fault = unreachable
            else:
                if reply.status not in _LATER or reply.retry_after is None:
                    return reply
                fault, again = self._unusual(reply), reply.retry_after
            pause = again + _BACKOFF * 2**number * (1 + self._chance())
            if number == TRIES - 1 or self._clock.seconds() + pause >= ends:
                raise fault
            await deferLater(self._clock, pause)
        raise AssertionError("the last try returns or raises")

    def _demand_base64(self, reply: Reply) -> None:
        """Without this header the answer is plain (SEC-15), and many a plain text can be read as base64 too.

        :raises BadAnswer: the answer doesn't say that it is in base64.
        """
        if reply.headers.get("content-encoding", "").strip().lower() != "base64":
            hint = "does a proxy on the way drop the header Accept-Encoding or Content-Encoding, or is this another service?"
            raise BadAnswer(origin(self._url), "in base64, as it was asked for", hint)

    def _unusual(self, reply: Reply) -> Fault:
        if reply.status in _LATER:
            return Unavailable(origin(self._url), reply.retry_after, reply.status, reply.request_id)
        return Unexpected(origin(self._url), reply.status, reply.said, reply.request_id)


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims inside an access token, unverified: when it was made, and when it ends.

    :raises ValueError, KeyError: it is no access token.
    """
    payload = parsed(base64.b64decode(token, validate=True))["payload"]
    claims = parsed(base64.b64decode(payload))
    if not isinstance(claims, dict):
        raise ValueError("the claims are no object")
    return claims

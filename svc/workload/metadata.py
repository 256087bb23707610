"""The identity token that a cloud platform gives to a workload, from the metadata service of the machine itself.

There are two of them (NET-25, NET-26): virtual machines and container instances ask at a fixed link-local address; app
services and functions at an address from their environment, with a secret. Neither is asked through a proxy, nor followed.

Note [Pauses]. The platform says how to come again after 404, 429, 5xx and silence: five times, after 0, 2, 6, 14 and 30
seconds, after 5xx at least one second later; and that 410 (the service is being updated) is over after 70 seconds, within
which it is asked every ten. Each pause is up to a fifth longer by chance, since machines of one kind start together.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import attrs

from svc.model.clocks import MachineClock, WallClock
from svc.workload.address import demand_address, origin
from svc.workload.faults import NoIdentity, PlatformUnavailable, Unreachable
from svc.workload.on_twisted import of_reactor
from svc.workload.replies import Reply, excerpt, parsed
from svc.workload.requester import Requester

#: Where a virtual machine asks, and for whom tokens are made by default.
LINK_LOCAL: Final = "http://169.254.169.254"
RESOURCE: Final = "https://management.azure.com/"

#: Seconds for a token, all tries included, and for one try; the largest answer that is taken, in bytes.
DEADLINE: Final = 120.0
TRY_DEADLINE: Final = 10.0
ANSWER_LIMIT: Final = 256 * 1024

#: Seconds before its end when a token is not given out any more.
MARGIN: Final = 300.0

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
class _Service:
    """A metadata service."""

    url: str
    api_version: str
    headers: Mapping[str, str] = attrs.field(repr=False)


class Metadata:
    """The identity tokens of this machine, for one ``resource``: each kept until shortly before it expires.

    ``client_id`` names a user-assigned identity; without it the machine's own is used. ``base_url`` is where a virtual
    machine asks; ``surroundings`` are the environment's variables, which go before it. ``deadline`` is for a token with all
    its tries, ``try_deadline`` for each try, in seconds. ``chance`` returns random numbers of [0, 1). Many may ask at once.

    :raises BadAddress: an address is none that can be asked.
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
    ) -> None:
        self._requester, self._wall = requester, wall or MachineClock()
        self._deadline, self._try_deadline, self._chance = deadline, try_deadline, chance
        self._service = _service(surroundings, base_url)
        query = {"api-version": self._service.api_version, "resource": resource}
        self._query = urlencode({**query, **({} if client_id is None else {"client_id": client_id})})
        self._client_id = client_id
        self._kept: IdentityToken | None = None
        self._fetch = requester.shared(self._fetched)

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
        """Return what :meth:`token` does, with the token's end."""
        kept = self._kept
        if kept is not None and self._wall.seconds() < kept.ends_at - MARGIN:
            return kept
        return await self._fetch.result()

    async def _fetched(self) -> IdentityToken:
        ends = self._requester.seconds() + self._deadline
        url = f"{self._service.url}?{self._query}"
        updates = others = 0
        while True:
            began = self._wall.seconds()
            try:
                within = min(self._try_deadline, ends - self._requester.seconds())
                reply = await self._requester.ask("GET", url, None, self._service.headers, within=within)
            except Unreachable as unreachable:
                status, why = 0, unreachable.why
            else:
                if reply.status == 200:
                    return self._keep(reply, began)
                status, why = reply.status, f"status {reply.status}{_said(reply)}"
                self._demand_hope(reply)
            updates, others = updates + (status == 410), others + (status != 410)
            pause = _pause(status, updates if status == 410 else others)
            if pause is not None:
                pause *= 1 + _SPREAD * self._chance()
            if pause is None or self._requester.seconds() + pause >= ends:
                raise PlatformUnavailable(origin(self._service.url), self._deadline, updates + others, why)
            await self._requester.sleep(pause)

    def _demand_hope(self, reply: Reply) -> None:
        """Return when a later try may succeed.

        :raises NoIdentity: it won't.
        """
        place = origin(self._service.url)
        match reply.status:
            case status if status in {404, 410, 429} or status >= 500:
                return
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
        raise NoIdentity(f"{why} (status {reply.status}{_said(reply)})", remedy)

    def _keep(self, reply: Reply, began: float) -> IdentityToken:
        try:
            told = parsed(reply.body)
            text = told["access_token"]
            text.encode("ascii")
            token = IdentityToken(text, _end(told, began))
        except (ValueError, KeyError, TypeError, AttributeError):
            why = f"the answer of {origin(self._service.url)} is no identity token"
            raise NoIdentity(why, "run this on a machine of the platform") from None
        if token.ends_at <= self._wall.seconds():
            raise NoIdentity("the platform gave a token that has expired", "set this machine's clock right")
        self._kept = token
        return token


def _service(surroundings: Mapping[str, str], base_url: str) -> _Service:
    endpoint, secret = surroundings.get("IDENTITY_ENDPOINT"), surroundings.get("IDENTITY_HEADER")
    if endpoint and secret:
        demand_address(endpoint, "IDENTITY_ENDPOINT")
        return _Service(endpoint, "2019-08-01", {"X-IDENTITY-HEADER": secret})
    demand_address(base_url, "the address of the metadata service")
    return _Service(base_url.rstrip("/") + "/metadata/identity/oauth2/token", "2018-02-01", {"Metadata": "true"})


def _pause(status: int, times: int) -> float | None:
    """Return the seconds to wait after so many failures of this status, 0 for silence; ``None``: no more (Note [Pauses])."""
    if status == 410:
        return _UPDATE_PAUSE if times <= _UPDATE_TRIES else None
    if times > len(_PAUSES):
        return None
    return max(_PAUSES[times - 1], _FAULT_PAUSE if status >= 500 else 0.0)


def _end(told: Mapping[str, object], began: float) -> float:
    """Return when a token expires: the platform tells the moment or the rest of its life, as a number or as text."""
    for name, start in (("expires_on", 0.0), ("expires_in", began)):
        text = str(told.get(name, ""))
        if re.fullmatch("[0-9]{1,11}", text, re.ASCII):
            return start + float(text)
    raise ValueError("it doesn't say when it ends")


def _said(reply: Reply) -> str:
    """Return what the service says of a refusal, cut and spelt out."""
    try:
        told = parsed(reply.body)
        text = told.get("error_description") or told.get("message") or told.get("error") or ""
    except (ValueError, AttributeError):
        return ""
    return f": {shown}" if (shown := excerpt(str(text))) else ""

"""The identity tokens that Google Cloud gives to a workload, from the metadata server of the machine itself (GCP-9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from svc.model.clocks import MachineClock, WallClock
from svc.workload.address import check_address, public_origin
from svc.workload.faults import NoIdentity
from svc.workload.machine import claims_within
from svc.workload.metadata import environment
from svc.workload.on_twisted import of_reactor
from svc.workload.platform_service import ANSWER_LIMIT, PlatformService

#: Where the metadata server is, and the variable that names another place.
METADATA_URL: Final = "http://metadata.google.internal"
_HOST_VARIABLE: Final = "GCE_METADATA_HOST"

#: Seconds before its expiration when a token is not given out any more, and tokens that are kept, one for each audience.
MARGIN: Final = 300.0
_MAX_CACHED: Final = 100

_FLAVOR: Final = {"Metadata-Flavor": "Google"}


class GoogleMetadata:
    """The identity tokens of a service account of this machine, each kept until shortly before it expires.

    ``service_account`` is an e-mail address, or ``default`` for the one that the machine has. ``base_url`` goes before the
    environment's variables, ``surroundings``.

    :raises BadAddress: an address can't be used.
    """

    def __init__(
        self,
        service: PlatformService,
        surroundings: Mapping[str, str],
        *,
        service_account: str = "default",
        base_url: str | None = None,
        wall: WallClock | None = None,
    ) -> None:
        named = surroundings.get(_HOST_VARIABLE)
        url = base_url or (f"http://{named}" if named else METADATA_URL)
        check_address(url, "the address of the metadata server")
        self._url, self._service, self._wall = url.rstrip("/"), service, wall or MachineClock()
        self._path = f"/computeMetadata/v1/instance/service-accounts/{quote(service_account, safe='@')}/identity"
        self._cached: dict[str, tuple[str, float]] = {}

    @classmethod
    def of(cls, reactor: Any, **more: Any) -> GoogleMetadata:
        """Return one that connects by ``reactor``, with the environment of this process; ``more`` as the class takes it."""
        return cls(PlatformService(of_reactor(reactor, ANSWER_LIMIT)), environment(), **more)

    async def token(self, audience: str) -> str:
        """Return an identity token for an audience, in the format ``full``, with some life left.

        :raises NoIdentity: the machine has none.
        :raises PlatformUnavailable: the platform gave none in time.
        """
        kept = self._cached.get(audience)
        if kept is not None and self._wall.seconds() < kept[1] - MARGIN:
            return kept[0]
        query = urlencode({"audience": audience, "format": "full"})
        reply = await self._service.ask("GET", f"{self._url}{self._path}?{query}", _FLAVOR)
        place = public_origin(self._url)
        if reply.headers.get("metadata-flavor") != "Google":
            why = f"what answers at {place} is no metadata server of Google (status {reply.status})"
            raise NoIdentity(why, "run this on Google Cloud")
        if reply.status != 200:
            why = (
                f"the metadata server gives no identity token (status {reply.status}: {reply.error_message or 'no reason'})"
            )
            raise NoIdentity(why, "give the machine a service account, or name one that it has")
        try:
            text = reply.body.decode("ascii").strip()
            ends_at = float(claims_within(text)["exp"])  # type: ignore[arg-type] # what can't be one raises
        except (ValueError, KeyError, TypeError, OverflowError):
            raise NoIdentity(f"the answer of {place} is no identity token", "run this on Google Cloud") from None
        if ends_at <= self._wall.seconds():
            raise NoIdentity("the platform gave a token that has expired", "set this machine's clock right")
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        self._cached[audience] = text, ends_at
        return text


def annotations_of(token: str) -> dict[str, str]:
    """Return the annotations, without their prefix, that an identity token of Google matches (GCP-7); it isn't verified.

    :raises NoIdentity: it is none.
    """
    claims = claims_within(token)
    engine = claims.get("google")
    machine = engine.get("compute_engine") if isinstance(engine, dict) else None
    machine = machine if isinstance(machine, dict) else {}
    found = {
        "service-account-id": claims.get("sub"),
        "service-account-email": claims.get("email"),
        "project-id": machine.get("project_id"),
        "instance-name": machine.get("instance_name"),
    }
    return {name: value for name, value in found.items() if isinstance(value, str) and value}

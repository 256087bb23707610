"""Wiring of the routes for expiring credentials and inactive roles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from svc.authn.federated import FederatedAuthenticator
from svc.cluster.members import IMembers
from svc.server.duties import Certificate, Ground
from svc.services.expiring import ExpiringService, KeyEndings
from svc.services.unused import UnusedService
from svc.storage.endings import EndingStore
from svc.storage.last_logins import LastLoginStore
from svc.storage.resources import ResourceStore
from svc.storage.roles import RoleStore
from svc.web.routes.expiring import Endings


def make_endings(
    ground: Ground,
    members: IMembers,
    certificates: Callable[[], Awaitable[Sequence[Certificate]]],
    roles: RoleStore,
    resources: ResourceStore,
    last_logins: LastLoginStore,
    federated: Mapping[str, FederatedAuthenticator],
) -> Endings:
    """Return the routes for expiring credentials and inactive roles."""
    settings, wall, age = ground.settings, ground.installation.wall, ground.settings.jwks_max_age
    longest = None if age is None else age + settings.jwks_stale_if_error
    keys = KeyEndings(ground.accounts, resources, federated, settings.dialect, ground.reactor, wall, longest)

    async def followers() -> list[str]:
        """Return the names of the other servers that are followers now."""
        return [member.name for member in await members.overview() if member.role == "follower"]

    expiring = ExpiringService(EndingStore(ground.readings), roles, keys, certificates, wall)
    return Endings(expiring, UnusedService(last_logins, roles, followers, wall))

"""The read cache of the database's answers and the parts that depend on it: the barrier for state versions, and watches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from twisted.application.service import MultiService

from svc.model.names import RoleName
from svc.model.versions import StateVersion
from svc.server.duties import Ground
from svc.server.lifecycle import child
from svc.services.watches import Watches
from svc.storage.driver.progress import Progress
from svc.storage.memory.coverage import Coverage
from svc.storage.memory.memory import Memory
from svc.storage.readings import Readings
from svc.storage.secrets import SecretStore


def memory_of(server: MultiService, ground: Ground) -> Memory | None:
    """Return the read cache, ``None`` where every read goes to the database."""
    settings = ground.settings
    if not settings.memory_lag:
        return None
    lag, limit, stale = settings.memory_lag, settings.memory_limit, settings.serve_stale
    memory = Memory(ground.reactor, ground.readings, ground.slots, lag=lag, limit=limit, serve_stale=stale)
    return child(server, memory)


def reached_by(ground: Ground, memory: Memory | None) -> Callable[[Sequence[StateVersion], RoleName], Awaitable[None]]:
    """Return the barrier that delays a request until reads are as new as its state versions."""
    readings = ground.readings
    if isinstance(readings, Readings):
        return readings.reached
    progress = Progress(readings, ground.reactor)
    return progress.reached if memory is None else Coverage(progress, memory).reached


def watches_of(ground: Ground, memory: Memory | None) -> Watches:
    """Return the watches of secrets, which take half of all connections at most."""
    settings = ground.settings
    store = SecretStore(ground.readings if memory is None else memory, settings.dialect, settings.keeping)
    most = settings.limits.connections // 2
    return Watches(ground.reactor, ground.installation.wall, memory, store, most)

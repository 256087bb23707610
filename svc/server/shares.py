"""The share that each of several processes has of what is bounded for the server.

Note [Shares]. Shares are rounded up. A connection goes to whichever process takes it, so a share may be used up while
another has room: then an idle connection there gives way, as at the limit of the server. Threads that hash, and large loads,
are too few to be divided: they are taken with permits (``model.permits``).
"""

from __future__ import annotations

from typing import Final

import attrs

from svc.server.bootstrap import POOL_SIZE, WRITERS
from svc.settings.config import Settings

#: The sessions for reads, and for writes, of the process that supervises; and the least that another one has.
SUPERVISOR: Final = (3, 3)
_LEAST: Final = (2, 1)


def limit_settings(settings: Settings, count: int) -> Settings:
    """Return the settings of one process among so many that serve (Note [Shares])."""
    each, each_address = settings.connection_limit, settings.connection_limit_per_address
    return attrs.evolve(settings, connection_limit=-(-each // count), connection_limit_per_address=-(-each_address // count))


def share_sessions(count: int) -> tuple[int, int]:
    """Return how many sessions with the database one process among so many has for reads, and for writes."""
    return max(_LEAST[0], -(-POOL_SIZE // count)), max(_LEAST[1], -(-WRITERS // count))

"""The standbys among the hosts of a DSN: which there are, and how far each of them has come.

Each host is tried on its own. ``prefer-standby`` of libpq would find a standby, but perhaps one that lacks the last writes,
and perhaps another one for each session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
from twisted.internet.defer import CancelledError, Deferred, FirstError, gatherResults
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger

from svc.model.errors import StoreUnavailable
from svc.storage.driver.connection import Session
from svc.storage.driver.database import Database
from svc.storage.driver.failures import Contention, StatementFailed
from svc.storage.driver.location import Location, with_attributes
from svc.storage.driver.progress import POSITION_QUERY, ReachedPosition
from svc.storage.driver.query_timeout import QUERY_TIMEOUT, within_timeout

#: The timeline and the position, and how old the newest heartbeat is, in seconds.
_POSITION: Final = f"""
    SELECT timeline, position,
        (SELECT extract(epoch FROM clock_timestamp() - beaten_at)::float FROM heartbeat WHERE single)
    FROM ({POSITION_QUERY}) AS reached
"""

_log = Logger()


@attrs.define(eq=False)
class Standby:
    """A standby that can be read from: ``database`` has no sessions for writing. ``session`` polls its position.

    ``reached`` is what it had replayed at the last poll, and ``lag`` how old its newest heartbeat was then (seconds).
    """

    name: str
    database: Database
    session: Session
    reached: ReachedPosition
    lag: float

    async def poll_position(self, clock: Any) -> None:
        """Poll how far it is now; a standby that was promoted has the position ``None``.

        :raises StoreUnavailable: it doesn't answer.
        """
        self.reached, self.lag = await _read_position(self.session, clock)

    def close(self, why: str) -> None:
        """Close the session that polls; the database is stopped by its owner."""
        self.session.drop(StoreUnavailable(why))


async def _read_position(session: Session, clock: Any) -> tuple[ReachedPosition, float]:
    try:
        ((timeline, position, lag),) = await within_timeout(session.run(_POSITION), clock)
    except DeferredTimeout:
        raise StoreUnavailable(f"it gave no answer in {QUERY_TIMEOUT:g} s") from None
    except (StatementFailed, Contention) as error:
        raise StoreUnavailable(f"it can't say how far it is: {error}") from None
    return ReachedPosition(session.server, timeline, position), lag


def name_of(place: Mapping[str, str]) -> str:
    """Return the name of a host for the log, with its port if that is given."""
    name, port = place.get("host") or place.get("hostaddr") or "the host that the environment names", place.get("port")
    return name if not port else f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


class Standbys:
    """Finds the standbys among the hosts of a DSN, which also leads to their ``primary``."""

    def __init__(self, reactor: Any, dsn: str, primary: Database) -> None:
        self._reactor = reactor
        self._dsn = dsn
        self._location = Location(reactor, dsn, QUERY_TIMEOUT)
        self._primary = primary

    async def find_standbys(self) -> list[Standby]:
        """Return every standby that answers now, in the order of the DSN. The caller closes those that it doesn't take."""
        try:
            places = await self._location.list_hosts()
        except StoreUnavailable as refusal:
            _log.debug("Hosts of the database have no address: {why}", why=refusal.why)
            return []
        trying = [Deferred.fromCoroutine(self._try_host(place)) for place in places]
        try:
            return [standby for standby in await gatherResults(trying, consumeErrors=True) if standby is not None]
        except FirstError as error:
            raise error.subFailure.value from None  # type: ignore[misc]  # the type allows for none

    async def _try_host(self, place: Mapping[str, str]) -> Standby | None:
        name = name_of(place)
        session: Session | None = None
        try:
            database = self._primary.make_sibling(with_attributes(self._dsn, "standby", **place), QUERY_TIMEOUT)
            opening = Deferred.fromCoroutine(database.open_session(lambda _: None))
            session = await within_timeout(opening, self._reactor)
            # After a restart it may have replayed less than before.
            database.required_server = session.server
            return Standby(name, database, session, *await _read_position(session, self._reactor))
        except (StoreUnavailable, DeferredTimeout) as refusal:
            _log.debug("{name} is no standby to read from: {why}", name=name, why=str(refusal))
            if session is not None:
                session.drop(StoreUnavailable("it is of no use"))
            return None
        except CancelledError:
            if session is not None:
                session.drop(StoreUnavailable("the service is stopping"))
            raise

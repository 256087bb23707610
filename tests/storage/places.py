"""A primary and standbys that are only imagined, for tests of where readings go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.model.counts import PoolCounts
from svc.model.errors import StoreUnavailable
from svc.model.versions import StateVersion
from svc.storage.cache.commit_counters import CommitCounters
from svc.storage.driver.connection import Fetched, Session
from svc.storage.driver.database import Database
from svc.storage.driver.progress import ReachedPosition
from svc.storage.driver.standbys import Standby
from svc.storage.driver.statements import CachedReading, NamedAnswer, Statement, Transaction
from svc.storage.read_routing import ReadRouter
from svc.storage.replicas import Replicas

T = TypeVar("T")

SYSTEM = 7


class ImaginedSession:
    """A session, which asks how far its PostgreSQL is."""

    def __init__(self, place: ImaginedPlace, lost: Callable[[Exception], None]) -> None:
        self.place, self._tell = place, lost
        self.server = place.server
        self.lost = False

    def run(self, sql: str) -> Deferred[Fetched]:
        """Answer as far as the place does."""
        place = self.place
        if place.away or self.lost:
            raise StoreUnavailable(f"{place.name} is away")
        if place.hangs:
            return Deferred()
        beaten = () if place.primary else (place.lag,)
        return succeed([(place.timeline, place.position, *beaten)])

    def drop(self, reason: Exception) -> None:
        """Lose it."""
        if not self.lost:
            self.lost = True
            self._tell(reason)

    def close(self) -> None:
        """Close it."""
        self.lost = True


class ImaginedPlace:
    """A PostgreSQL: the database of readings there, too. ``held`` are readings under way.

    ``opens``: whether a session is opened in time.
    """

    def __init__(self, name: str, position: int | None, *, primary: bool = False) -> None:
        self.name, self.server, self.primary = name, f"{SYSTEM} {name}", primary
        self.timeline, self.position, self.lag = 1, position, 0.1
        self.away = self.away_from_pool = self.hangs = False
        self.opens = True
        self.started = 0
        self.asked = self.hastened = 0
        self.slow = False
        self.held: list[Deferred[Fetched]] = []
        self.sessions: list[ImaginedSession] = []

    def count_read_sessions(self) -> PoolCounts:
        """Count sessions."""
        return PoolCounts(0 if self.away or self.away_from_pool else 2, 0, 0, 0, 0.0)

    def count_sessions(self) -> PoolCounts:
        """Count sessions."""
        return self.count_read_sessions()

    @property
    def server_of_all(self) -> str:
        """Which it is."""
        return self.server

    async def fetch(self, statement: Statement, *parameters: object) -> Fetched:
        """Answer with the name."""
        self.asked += statement.name != "turn"
        if self.away:
            raise StoreUnavailable(f"{self.name} is away")
        if statement.name == "progress_position":
            return [(self.server, self.timeline, None if self.primary else self.position)]
        if self.hangs or self.slow:
            self.held.append(Deferred())
            return await self.held[-1]
        return [(self.name,)]

    async def fetch_with_server(self, statement: Statement, *parameters: object) -> tuple[Fetched, str]:
        """Answer with the name."""
        return await self.fetch(statement, *parameters), self.server

    async def transact_read_only(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run work, whose statements are answered with the name."""
        return await work(cast(Transaction, self))

    async def read_with_server(self, reading: CachedReading[T]) -> tuple[NamedAnswer[T], str]:
        """Run a reading, whose statements are answered with the name."""
        return await self.transact_read_only(reading.work), self.server

    async def read(self, reading: CachedReading[T]) -> T:
        """Run a reading."""
        answer, _ = await self.read_with_server(reading)
        return answer.value

    async def change(self, statement: Statement, *parameters: object) -> Fetched:
        """Write."""
        return await self.fetch(statement, *parameters)

    async def open_session(self, lost: Callable[[Exception], None]) -> Session:
        """Open a session."""
        if self.away:
            raise StoreUnavailable(f"{self.name} is away")
        if self.hangs or not self.opens:
            await Deferred()
        self.sessions.append(ImaginedSession(self, lost))
        return cast(Session, self.sessions[-1])

    async def wait_until_connected(self) -> None:
        """Be connected."""
        if self.away:
            raise StoreUnavailable(f"{self.name} is away")

    def startService(self) -> None:
        """Start."""
        self.started += 1

    def stopService(self) -> None:
        """Stop."""
        self.started -= 1

    def hasten(self) -> None:
        """Connect soon."""
        self.hastened += 1

    def abandon(self, why: str) -> None:
        """Lose what is under way."""
        held, self.held = self.held, []
        for each in held:
            each.errback(Failure(StoreUnavailable(why)))


class ImaginedSearch:
    """Finds the standbys that aren't away."""

    def __init__(self, *standbys: ImaginedPlace) -> None:
        self.standbys = standbys
        self.searches = 0

    async def find_standbys(self) -> list[Standby]:
        """See ``Standbys``."""
        self.searches += 1
        there = [each for each in self.standbys if not each.away and not each.hangs]
        return [
            Standby(
                each.name,
                cast(Database, each),
                cast(Session, ImaginedSession(each, lambda _: None)),
                ReachedPosition(each.server, each.timeline, each.position),
                each.lag,
            )
            for each in there
        ]


class PlacesCase(SynchronousTestCase):
    """A primary, two standbys, and a process that reads from the first."""

    def setUp(self) -> None:
        """Begin."""
        self.clock, self.slots = Clock(), CommitCounters.for_one_process()
        self.primary = ImaginedPlace("a", 10, primary=True)
        self.first, self.second = ImaginedPlace("b", 10), ImaginedPlace("c", 10)
        self.search = ImaginedSearch(self.first, self.second)
        self.begin()

    def begin(self) -> None:
        """Begin, as a process that is started."""
        primary: Any = self.primary
        self.places = Replicas(self.clock, primary, self.search, self.slots)
        self.places.startService()
        self.addCleanup(self.places.stopService)
        self.readings = ReadRouter(self.clock, self.places)

    def write(self, position: int, timeline: int = 1, system: int = SYSTEM) -> None:
        """Note a commit of this server."""
        self.slots.count_commit(confirmed=True, version=StateVersion(system, timeline, position))

    def used(self) -> str:
        """The standby in use."""
        standby = self.places.standby
        return "" if standby is None else standby.name

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass."""
        for _ in range(round(seconds / 0.025)):
            self.clock.advance(0.025)

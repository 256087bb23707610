"""The suite of ``ReadingStore``."""

from __future__ import annotations

from itertools import count
from random import Random

from svc.model.names import ResourceName, RoleName
from svc.model.policy_loads import Changes
from svc.model.readings import (
    DAYS_KEPT,
    READERS_START,
    CountedReads,
    PurgePosition,
    Reader,
    ReadersCursor,
    ReadingBatch,
)
from tests.contracts.base import ACCOUNT, ADMIN, Draft, Stores, change, load, resource, role, scenario
from tests.contracts.deleted import DB, UPDATE, World
from tests.contracts.deleted import _Suite as DeletedSuite

A, B, DB_NAME = "host:a", "host:b", "variable:db"


class ReadingsContract(DeletedSuite):
    """Who read what, and when."""

    async def prepared(self, *more: str) -> Stores:
        """Stores with two hosts and a variable."""
        self.numbers = count(1)
        stores = await self.stores_with_account()
        await load(stores, Draft().define(A, B, DB_NAME, *more))
        return stores

    async def read(
        self, stores: Stores, who: str, day: int, *variables: str, number: int = 1, creation: int | None = None
    ) -> None:
        """Count reads of a role on a day."""
        name = role(who)
        if creation is None:
            creation = (await stores.credentials.read_credential(name)).creation
        reads = tuple(CountedReads(str(name), creation, f"{ACCOUNT}:{each}", number) for each in variables or (DB_NAME,))
        await stores.readings.add_batch(ReadingBatch("server", next(self.numbers), day, reads))

    async def readers(self, stores: Stores, name: str = DB_NAME, since: int = 0) -> list[tuple[str, int, int]]:
        """Who read a variable, with the last day and the number."""
        found = await stores.readings.list_readers(resource(name), since, READERS_START, 100)
        return [(each.role.partition(":")[2], each.last_day, each.count) for each in found]

    @scenario
    async def test_counted(self) -> None:
        """Reads are counted for each variable and role, with the last day, wherever they come from (READ-1)."""
        stores = await self.prepared("variable:other", "webservice:web")
        for who, day, number in ((A, 100, 2), (B, 101, 1), (A, 99, 3), (B, 101, 1)):
            await self.read(stores, who, day, number=number)
        await self.read(stores, A, 102, "variable:other", "webservice:web", "variable:none")
        self.assertEqual(await self.readers(stores), [(B, 101, 2), (A, 100, 5)])
        self.assertEqual(await self.readers(stores, since=101), [(B, 101, 2)])
        self.assertEqual(await self.readers(stores, "variable:other"), [(A, 102, 1)])
        for name in ("webservice:web", "variable:none"):
            self.assertEqual(await self.readers(stores, name), [])

    @scenario
    async def test_days(self) -> None:
        """The days of the last 64 are kept, in whatever order they are added (READ-1)."""
        stores = await self.prepared()
        chance = Random(64)
        for number in range(12):
            name = f"variable:{number}"
            await load(stores, Draft().define(name))
            last = chance.choice([DAYS_KEPT, 500])
            days = [chance.randint(1, last) for _ in range(chance.randint(1, 12))]
            if number % 3 == 0:
                days += [max(days) - DAYS_KEPT + 1, max(days) - DAYS_KEPT] if max(days) > DAYS_KEPT else [DAYS_KEPT + 2]
            for day in days:
                await self.read(stores, A, day, name)
            (found,) = await stores.readings.list_readers(resource(name), 0, READERS_START, 10)
            kept = {day for day in days if day > max(days) - DAYS_KEPT}
            self.assertEqual(found.list_days(), sorted(kept, reverse=True), days)
            self.assertEqual((found.last_day, found.count), (max(days), len(days)))

    @scenario
    async def test_added_once(self) -> None:
        """A batch that is delivered again counts once, and one of another server counts beside it (READ-6)."""
        stores = await self.prepared()
        creation = (await stores.credentials.read_credential(role(A))).creation
        reads = (CountedReads(str(role(A)), creation, str(resource(DB_NAME)), 2),)
        for source, sequence in (("one", 1), ("one", 1), ("two", 1), ("one", 2), ("one", 1), ("two", 1)):
            await stores.readings.add_batch(ReadingBatch(source, sequence, 100, reads))
        self.assertEqual(await self.readers(stores), [(A, 100, 6)])

    @scenario
    async def test_pages(self) -> None:
        """Readers are listed in pages: those that read last first, then by id (READ-11)."""
        names = [f"host:{letter}" for letter in "cdef"]
        stores = await self.prepared(*names)
        for name, day in zip((A, B, *names), (5, 7, 6, 7, 5, 6), strict=True):
            await self.read(stores, name, day)
        expected = [(B, 7), ("host:d", 7), ("host:c", 6), ("host:f", 6), (A, 5), ("host:e", 5)]
        for most in (1, 2, 4, 10):
            found: list[Reader] = []
            after = READERS_START
            while page := await stores.readings.list_readers(resource(DB_NAME), 0, after, most):
                self.assertLessEqual(len(page), most)
                found += page
                after = ReadersCursor(page[-1].last_day, page[-1].role)
            self.assertEqual([(each.role.partition(":")[2], each.last_day) for each in found], expected)

    @scenario
    async def test_the_next_of_a_name(self) -> None:
        """Reads are of the role and of the variable that there were, and not of the next of their names (READ-8)."""
        stores = await self.prepared()
        draft = Draft().define("host:h", "variable:v")
        await load(stores, draft)
        creation = (await stores.credentials.read_credential(role("host:h"))).creation
        await self.read(stores, "host:h", 100, "variable:v")
        await self.read(stores, A, 100, "variable:v")
        await self.read(stores, "host:h", 100)
        await change(stores, Changes(delete=draft.rows))
        await load(stores, draft)
        self.assertEqual((await self.readers(stores, "variable:v"), await self.readers(stores)), ([], []))
        await self.read(stores, "host:h", 101, creation=creation)
        self.assertEqual(await self.readers(stores), [])
        await self.read(stores, "host:h", 102, "variable:v")
        self.assertEqual(await self.readers(stores, "variable:v"), [("host:h", 102, 1)])
        await self.purge(stores)
        self.assertEqual(await self.readers(stores, "variable:v"), [("host:h", 102, 1)])

    @scenario
    async def test_restored(self) -> None:
        """A variable that is deleted and restored has its reads, also after a purge (READ-8)."""
        self.numbers = count(1)
        world: World = await self.world()
        stores = world.stores
        await world.put(DB, "one")
        await self.read(stores, "host:app/web", 100, DB)
        await world.load("- !delete { record: !variable db }", policy=role("policy:app"), mode=UPDATE)
        self.assertEqual(await self.readers(stores, DB), [])
        await self.purge(stores)
        self.assertEqual(await world.restore(), {DB: None})
        self.assertEqual(await self.readers(stores, DB), [("host:app/web", 100, 1)])

    async def purge(self, stores: Stores, before: int = 0) -> None:
        """Purge all that is to go."""
        position = PurgePosition()
        while position != PurgePosition(None, None):
            position = await stores.readings.purge(position, before)

    @scenario
    async def test_purged(self) -> None:
        """What was last read before the retention began is purged, and the last day of the variable stays (READ-9)."""
        stores = await self.prepared()
        await self.read(stores, A, 99)
        await self.read(stores, B, 100)
        await self.purge(stores, 100)
        self.assertEqual(await self.readers(stores), [(B, 100, 1)])
        await self.purge(stores, 101)
        self.assertEqual(await self.readers(stores), [])
        (use,) = [use for use in await stores.readings.list_variables(ACCOUNT, "", 10) if str(use.variable).endswith(":db")]
        self.assertEqual(use.last_day, 100)

    @scenario
    async def test_state(self) -> None:
        """Servers that were asked and not heard are missing, as are days on which reads were lost (READ-5, READ-7)."""
        stores = await self.prepared()
        state = await stores.readings.read_state()
        self.assertEqual((state.missing, state.lost_day), ((), None))
        self.assertGreater(state.since, 1e9)
        await stores.readings.record_servers(["east", "west"], ["east"])
        self.assertEqual((await stores.readings.read_state()).missing, ("west",))
        await stores.readings.record_servers(["east", "west"], ["west"])
        self.assertEqual((await stores.readings.read_state()).missing, ())
        await stores.readings.add_batch(ReadingBatch("server", 1, 0, (), (90, 95, 90)))
        await stores.readings.add_batch(ReadingBatch("server", 2, 0, (), (93, 95)))
        self.assertEqual((await stores.readings.read_state()).lost_day, 95)

    @scenario
    async def test_variables(self) -> None:
        """Variables of an account are listed by id, with the day of the last read of anybody (READ-14)."""
        stores = await self.prepared("variable:a", "variable:z", "webservice:a")
        for day in (100, 102, 101):
            await self.read(stores, A, day, "variable:z")
        found = await stores.readings.list_variables(ACCOUNT, "", 2)
        self.assertEqual(
            [(str(use.variable), use.last_day) for use in found], [("acct:variable:a", None), ("acct:variable:db", None)]
        )
        more = await stores.readings.list_variables(ACCOUNT, str(found[-1].variable), 2)
        self.assertEqual([(str(use.variable), use.last_day) for use in more], [("acct:variable:z", 102)])
        self.assertGreater(more[0].made_at, 1e9)
        self.assertEqual(await stores.readings.list_variables("other", "", 10), [])

    @scenario
    async def test_read_by(self) -> None:
        """What a role has read since a day is listed, the last first, then by id, without what was read by another role of
        its name, or of a variable that is gone (READ-8, READ-16).
        """
        stores = await self.prepared("variable:a", "variable:z")
        draft = Draft().define("host:h", "variable:gone")
        await load(stores, draft)
        creation = (await stores.credentials.read_credential(role("host:h"))).creation
        for name, day in (("db", 100), ("z", 102), ("a", 102), ("z", 101), ("gone", 103)):
            await self.read(stores, "host:h", day, f"variable:{name}", number=2)
        await self.read(stores, A, 104)

        async def found(who: str, since: int = 0, most: int = 10) -> list[tuple[str, int, int]]:
            rows = await stores.readings.list_read_by(role(who), since, most)
            return [(row.variable.rpartition(":")[2], row.last_day, row.number) for row in rows]

        gone, others = ("gone", 103, 2), [("a", 102, 2), ("z", 102, 4), ("db", 100, 2)]
        self.assertEqual(await found("host:h"), [gone, *others])
        self.assertEqual(await found("host:h", 102, 2), [gone, others[0]])
        self.assertEqual(await found("host:h", 104), [])
        self.assertEqual(await found(A), [("db", 104, 1)])
        self.assertEqual((await found(B), await found("host:none")), ([], []))
        await change(stores, Changes(delete=Draft().define("variable:gone").rows))
        await load(stores, Draft().define("variable:gone"))
        self.assertEqual(await found("host:h"), others)
        await change(stores, Changes(delete=Draft().define("host:h").rows))
        await load(stores, Draft().define("host:h"))
        self.assertEqual(await found("host:h"), [])
        await self.read(stores, "host:h", 105, creation=creation)
        self.assertEqual(await found("host:h"), [])

    @scenario
    async def test_read_since(self) -> None:
        """Those of some variables that anybody read since a day are listed by id (POL-112)."""
        stores = await self.prepared("variable:a", "variable:z", "variable:n")
        for name, day in (("db", 100), ("z", 102), ("a", 101)):
            await self.read(stores, A, day, f"variable:{name}")
        names = [str(resource(f"variable:{name}")) for name in ("z", "none", "n", "db", "a")]
        for since, expected in ((100, ["a", "db", "z"]), (101, ["a", "z"]), (103, [])):
            found = await stores.readings.filter_read(names, since)
            self.assertEqual([name.rpartition(":")[2] for name in found], expected)
        self.assertEqual(await stores.readings.filter_read([], 0), [])
        await change(stores, Changes(delete=Draft().define("variable:z").rows))
        await load(stores, Draft().define("variable:z"))
        self.assertEqual(await stores.readings.filter_read(names, 102), [])

    @scenario
    async def test_inspectable(self) -> None:
        """Who owns a variable, or inspects it, is told of its readers; who may only read it isn't (READ-10)."""
        stores = await self.prepared("group:owners", "policy:app")
        draft = Draft().define("variable:owned", owner="group:owners").define("variable:app/db", owner="policy:app")
        await load(stores, draft.permit("policy:app", B, "inspect").permit(DB_NAME, B, "read", "execute"))
        names = [str(resource(name)) for name in (DB_NAME, "variable:owned", "variable:app/db", "variable:none")]

        async def allowed(name: RoleName) -> set[str]:
            found = await stores.readings.filter_inspectable(name, names)
            return {ResourceName.parse(each).identifier for each in found}

        self.assertEqual(await allowed(ADMIN), {"db", "owned", "app/db"})
        self.assertEqual(await allowed(role(A)), set())
        self.assertEqual(await allowed(role(B)), {"app/db"})
        self.assertEqual(await allowed(role("group:owners")), {"owned"})

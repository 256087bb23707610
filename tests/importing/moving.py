"""An import from a stand-in for Conjur into a server in memory, in a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import httpx

from svc.importing.authenticator_clashes import Planner
from svc.importing.conjur import ConjurReader
from svc.importing.conjur_session import ConjurSession
from svc.importing.conjur_values import ConjurValues
from svc.importing.inventory import Inventory, RecordId, SourceStopped
from svc.importing.load import Load
from svc.importing.plan import Plan
from svc.importing.translation import Translation
from svc.importing.verify import Verification
from svc.model.dialect import CONJUR, Dialect
from svc.workload.replies import Reply
from tests.client.small import WaitlessAsync
from tests.importing.conjur_stand_in import ACCOUNT, KEY, URL, StandIn
from tests.web.support import Client
from tests.web.world import ADMIN, WorldCase

T = TypeVar("T")


@attrs.define
class WorldServer:
    """A server in memory as a target; ``fault`` is called before each change, and may raise."""

    client: Client
    account: str = "acme"
    place: str = "https://svc.example (account acme)"
    fault: Callable[[str, str], None] = lambda *_: None
    changes: list[tuple[str, str, bytes]] = attrs.field(factory=list)
    asked: list[str] = attrs.field(factory=list)

    async def ask(self, path: str, **headers: str) -> Reply:
        """See ``Server``."""
        self.asked.append(path)
        return self._send("GET", path, b"", {name.replace("_", "-"): value for name, value in headers.items()})

    async def load_policy(self, method: str, path: str, body: bytes) -> Reply:
        """See ``Target``."""
        return self._change(method, path, body)

    async def set_value(self, path: str, body: bytes) -> Reply:
        """See ``Target``."""
        return self._change("POST", path, body)

    async def switch(self, path: str, body: bytes) -> Reply:
        """See ``Target``."""
        return self._change("PATCH", path, body)

    def _change(self, method: str, path: str, body: bytes) -> Reply:
        self.fault(method, path)
        self.changes.append((method, path, body))
        return self._send(method, path, body, {})

    def _send(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        answer = self.client.request(method, path, body=body, headers=headers.items(), role=ADMIN)
        return Reply(answer.status, answer.body, answer.headers)


class ImportCase(WorldCase):
    """A stand-in as the source, and a server in memory as the target."""

    dialect: Dialect = CONJUR

    def setUp(self) -> None:
        """Make both."""
        super().setUp()
        self.now = 0.0
        self.source = StandIn(clock=lambda: self.now)
        self.slept: list[float] = []
        self.target = WorldServer(self.client)
        self.keys_made: dict[RecordId, str] = {}
        self.expected: list[RecordId] = []
        self.session = self.make_session()

    def make_session(self, login: str = "admin", api_key: str = KEY) -> ConjurSession:
        """Return a session at the source, whose clock stands still but for what is slept."""
        case = self

        class Waiting(WaitlessAsync):
            """One that goes by the test's clock."""

            def seconds(self) -> float:
                return case.now + sum(case.slept)

        exchange = Waiting(httpx.MockTransport(self.source.answer), 1_000_000)
        object.__setattr__(exchange, "slept", self.slept)
        return ConjurSession(URL, ACCOUNT, login, api_key, exchange)

    def run_import(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of an import."""
        return asyncio.run(work)

    def read(self, session: ConjurSession | None = None) -> Inventory:
        """Read the source."""
        session = session or self.session
        return self.run_import(ConjurReader(session, self.clock, session.role).read_inventory(lambda *_: None))

    def read_target(self) -> Inventory:
        """Read the target."""
        reader = ConjurReader(self.target, self.clock, is_source=False, prefix=self.dialect.prefix)
        return Translation.ignore_rotation(self.run_import(reader.read_inventory(lambda *_: None)))

    def plan(self) -> Plan:
        """Return the plan."""
        theirs = self.read()
        translation = Translation.to_dialect(self.dialect)
        planner = Planner(
            translation.translate(theirs),
            self.read_target(),
            ConjurValues(self.session),
            self.target,
            translation.source_ids(theirs),
        )
        return self.run_import(planner.make_plan(self.dialect))

    def move(self, plan: Plan | None = None) -> Load:
        """Plan and load."""
        theirs = self.read()
        translation = Translation.to_dialect(self.dialect)
        plan = plan or self.plan()

        def expect(names: Sequence[RecordId]) -> None:
            self.expected += names

        load = Load(
            plan,
            ConjurValues(self.session),
            self.target,
            translation.source_ids(theirs),
            progress=lambda *_: None,
            take_keys=self.keys_made.update,
            expect_keys=expect,
        )
        self.run_import(load.run())
        return load

    def verify(self, sample: int | None = None) -> Verification:
        """Compare both."""
        theirs = self.read()
        translation = Translation.to_dialect(self.dialect)
        compared = Verification(
            translation.translate(theirs),
            self.read_target(),
            self.session,
            self.target,
            ConjurValues(self.session),
            source_ids=translation.source_ids(theirs),
            progress=lambda *_: None,
            sample=sample,
        )
        self.run_import(compared.run())
        return compared

    def assert_same(self) -> None:
        """Fail unless both are equal, and all was compared."""
        compared = self.verify()
        self.assertEqual((compared.differences, compared.unseen), ([], []))

    def stopped(self, work: Callable[[], object]) -> SourceStopped:
        """Return the fault with which an import stops: it holds no secret, and says what to do."""
        fault: SourceStopped = self.assertRaises(SourceStopped, work)
        for secret in (KEY, "a-secret-value"):
            self.assertNotIn(secret, f"{fault} {fault.remedy}")
        self.assertTrue(fault.remedy)
        return fault

    def value(self, name: str, version: int | None = None) -> bytes:
        """Return a value in the target."""
        query = "" if version is None else f"?version={version}"
        return self.client.get(f"/secrets/acme/variable/{name}{query}", role=ADMIN).body

"""Due expirations and rotations, in memory: the fake of ``ExpirationStore`` (see ``memory``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from typing import Any

import attrs

from svc.model.events import EventBatch
from svc.model.expiration import ROTATOR, DueVariable, Duration, RoundOwner
from svc.model.names import ResourceName
from svc.model.query_results import AccessFacts, CallerOrRole, Sealed
from svc.storage.expirations import ExpirationStore
from tests.memory import ExpirationRow, Memory, MemoryStore, after, kind_of


class MemoryExpirations(MemoryStore, ExpirationStore):
    """A fake of ``ExpirationStore``; ``others`` have the turn when that is said."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self.others = self._taken = False

    async def run_exclusively(self, work: Callable[[], Awaitable[None]]) -> RoundOwner:
        """See ``ExpirationStore``."""
        self.memory.ask()
        if self.memory.standby:
            return RoundOwner.STANDBY
        if self.others or self._taken:
            return RoundOwner.OTHERS
        self._taken = True
        try:
            await work()
        finally:
            self._taken = False
        return RoundOwner.OURS

    async def list_due(self, most: int) -> list[DueVariable]:
        """See ``ExpirationStore``."""
        self.memory.ask()
        rows = [(name, self._row(name)) for name in self.memory.resources]
        found = [
            (row.due_at, self._due(name, row)) for name, row in rows if row is not None and row.due_at <= self.memory.now
        ]
        return [due for _, due in sorted(found, key=lambda pair: pair[0])[:most]]

    async def set_lifetime(self, due: DueVariable, lifetime: Duration | None) -> None:
        """See ``ExpirationStore``."""
        if self._current(due):
            for (name, version), (set_at, _) in list(self.memory.lives.items()):
                if name == str(due.variable):
                    self.memory.lives[name, version] = (set_at, after(set_at, lifetime))
            self._settle(due, inf)

    async def set_interval(self, due: DueVariable, interval: Duration) -> None:
        """See ``ExpirationStore``."""
        if self._current(due):
            name = str(due.variable)
            newest = max(self.memory.secrets.get(name, {}), default=0)
            for (thing, version), (set_at, ends_at) in list(self.memory.lives.items()):
                if thing == name:
                    kept = version == newest and ends_at is not None
                    self.memory.lives[thing, version] = (set_at, after(set_at, interval) if kept else None)
            self._settle(due, -inf)

    async def mark_handled(self, due: DueVariable, fault: str | None = None) -> None:
        """See ``ExpirationStore``."""
        if self._current(due):
            _, ends_at = self._newest(str(due.variable))
            due_at = inf if ends_at is None or ends_at <= self.memory.now else ends_at
            self._change(due, due_at=due_at, settled=due.annotations, fault=fault)

    async def record_failure(self, due: DueVariable, pause: float, fault: str) -> None:
        """See ``ExpirationStore``."""
        if self._current(due):
            failures = self.memory.expirations[str(due.variable)].failures + 1
            self._change(due, due_at=self.memory.now + pause, failures=failures, fault=fault)

    async def stage_value(self, variable: ResourceName, candidate: Sealed, lease: float) -> Sealed | None:
        """See ``ExpirationStore``."""
        self.memory.write()
        row = self._row(str(variable))
        if row is None:
            return None
        kept = row.candidate or candidate
        self.memory.expirations[str(variable)] = attrs.evolve(row, candidate=kept, due_at=self.memory.now + lease)
        return kept

    async def promote_value(
        self, variable: ResourceName, candidate: Sealed, interval: Duration, trail: EventBatch | None = None
    ) -> int | None:
        """See ``ExpirationStore``."""
        self.memory.write()
        row = self._row(str(variable))
        if row is None or row.candidate != candidate:
            return None
        version = self.memory.add_value(str(variable), candidate, after(self.memory.now, interval))
        row = self.memory.expirations[str(variable)]
        self.memory.expirations[str(variable)] = attrs.evolve(row, candidate=None)
        self.memory.record(trail)
        return version

    async def read_unexpired_values(self, variables: Sequence[ResourceName]) -> dict[str, Sealed]:
        """See ``ExpirationStore``."""
        self.memory.ask()
        found = {}
        for name in map(str, variables):
            values = self.memory.secrets.get(name, {})
            if values and self.memory.ended_at(name, max(values)) is None:
                found[name] = values[max(values)][1]
        return found

    async def clear_expirations(
        self,
        caller: CallerOrRole,
        variable: ResourceName,
        decide: Callable[[AccessFacts], None],
        trail: EventBatch | None = None,
        check_annotations: Callable[[Mapping[str, str]], None] = lambda _: None,
    ) -> None:
        """See ``ExpirationStore``."""
        self.memory.ask()
        name = str(variable)
        decide(self.memory.access_facts(caller, name))
        check_annotations(self.memory.about_expiration(name))
        self.memory.write()
        self.memory.record(trail)
        for (thing, version), (set_at, _) in list(self.memory.lives.items()):
            if thing == name:
                self.memory.lives[thing, version] = (set_at, None)
        row = self._row(name)
        if row is not None:
            about = self.memory.about_expiration(name)
            due_at = -inf if ROTATOR in about else inf
            self.memory.expirations[name] = attrs.evolve(
                row, due_at=due_at, settled=about, edition=row.edition + 1, failures=0, fault=None
            )

    def _row(self, name: str) -> ExpirationRow | None:
        """The row of a variable, which has one from its first annotation on, and is due whenever they have changed."""
        about, row = self.memory.about_expiration(name), self.memory.expirations.get(name)
        if row is None and about and kind_of(name) == "variable":
            row = ExpirationRow()
        if row is None:
            return None
        if row.noticed != about:
            row = attrs.evolve(row, noticed=about, due_at=-inf, edition=row.edition + 1)
        self.memory.expirations[name] = row
        return row

    def _newest(self, name: str) -> tuple[Sealed | None, float | None]:
        values = self.memory.secrets.get(name, {})
        return (values[max(values)][1], self.memory.lives[name, max(values)][1]) if values else (None, None)

    def _due(self, name: str, row: ExpirationRow) -> DueVariable:
        about = self.memory.about_expiration(name)
        value, ends_at = self._newest(name)
        ended = ends_at is not None and ends_at <= self.memory.now
        changed = row.settled != about
        return DueVariable(ResourceName.parse(name), row.edition, about, changed, value, ends_at, ended, row.failures)

    def _current(self, due: DueVariable) -> bool:
        self.memory.write()
        row = self._row(str(due.variable))
        return row is not None and row.edition == due.revision

    def _settle(self, due: DueVariable, otherwise: float) -> None:
        _, ends_at = self._newest(str(due.variable))
        due_at = otherwise if ends_at is None else ends_at
        self._change(due, due_at=due_at, settled=due.annotations, failures=0, fault=None)

    def _change(self, due: DueVariable, **changes: Any) -> None:
        row = self.memory.expirations[str(due.variable)]
        self.memory.expirations[str(due.variable)] = attrs.evolve(row, **changes)

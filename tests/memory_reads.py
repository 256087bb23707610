"""Counted reads in memory: the fake of ``ReadingStore`` (see ``memory``), and a counter that counts for nobody."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.task import Clock

from svc.model.names import ResourceName, RoleName
from svc.model.readings import (
    CountingState,
    PurgePosition,
    Reader,
    ReadersCursor,
    ReadingBatch,
    VariableRead,
    VariableUse,
)
from svc.services.reading_counts import ReadingCounter
from svc.storage.readings import FORGOTTEN, SILENCE, ReadingStore
from tests.memory import Memory, MemoryStore, remove


def uncounted() -> ReadingCounter:
    """A counter of reads whose counts nobody takes."""
    return ReadingCounter(Clock(), Clock(), lambda *_: None)


class MemoryReads(MemoryStore, ReadingStore):
    """A fake of ``ReadingStore``."""

    async def add_batch(self, batch: ReadingBatch) -> None:
        """See ``ReadingStore``."""
        self.memory.write()
        if self.memory.reading_sources.get(batch.source, 0) >= batch.sequence:
            return
        self.memory.reading_sources[batch.source] = batch.sequence
        self.memory.reading_losses.update(dict.fromkeys(batch.lost_days))
        for role, creation, variable, number in batch.reads:
            made = self._made(variable)
            if made is None or variable.split(":")[1] != "variable":
                continue
            key = variable, made
            self.memory.last_reads[key] = max(self.memory.last_reads.get(key, 0), batch.day)
            if self._is_role(role, creation):
                pair = role, creation, variable, made
                last, mask, count = self.memory.reads.get(pair, (batch.day, 0, 0))
                newest = max(last, batch.day)
                mask = (mask << (newest - last) | 1 << (newest - batch.day)) & ((1 << 64) - 1)
                self.memory.reads[pair] = newest, mask, count + number

    async def record_servers(self, asked: Sequence[str], heard: Sequence[str]) -> None:
        """See ``ReadingStore``."""
        self.memory.write()
        now, servers = self.memory.now, self.memory.reading_servers
        for name in asked:
            servers[name] = (now if name in heard else servers.get(name, (None, 0.0))[0], now)
        for name in [name for name, (_, at) in servers.items() if at < now - FORGOTTEN]:
            del servers[name]

    async def read_state(self) -> CountingState:
        """See ``ReadingStore``."""
        self.memory.ask()
        since = self.memory.now - SILENCE
        missing = sorted(name for name, (heard, _) in self.memory.reading_servers.items() if heard is None or heard <= since)
        return CountingState(self.memory.reads_kept_since, tuple(missing), max(self.memory.reading_losses, default=None))

    async def list_readers(self, variable: ResourceName, since: int, after: ReadersCursor, most: int) -> list[Reader]:
        """See ``ReadingStore``."""
        self.memory.ask()
        made = self._made(str(variable))
        found = [
            Reader(role, day, count, mask)
            for (role, creation, name, when), (day, mask, count) in self.memory.reads.items()
            if (name, when) == (str(variable), made) and self._is_role(role, creation) and day >= since
        ]
        found.sort(key=lambda reader: (-reader.last_day, reader.role))
        return [reader for reader in found if (-reader.last_day, reader.role) > (-after.day, after.role)][:most]

    async def list_read_by(self, role: RoleName, since: int, most: int) -> list[VariableRead]:
        """See ``ReadingStore``."""
        self.memory.ask()
        found = [
            VariableRead(name, day, count)
            for (who, creation, name, when), (day, _, count) in self.memory.reads.items()
            if who == str(role) and self._is_role(who, creation) and when == self._made(name) and day >= since
        ]
        return sorted(found, key=lambda read: (-read.last_day, read.variable))[:most]

    async def filter_read(self, variables: Sequence[str], since: int) -> list[str]:
        """See ``ReadingStore``."""
        self.memory.ask()
        last = {name: self.memory.last_reads.get((name, self._made(name) or 0.0)) for name in variables}
        return sorted(name for name, day in last.items() if day is not None and day >= since)

    async def list_variables(self, account: str, after: str, most: int) -> list[VariableUse]:
        """See ``ReadingStore``."""
        self.memory.ask()
        names = sorted(name for name in self.memory.resources if name.startswith(f"{account}:variable:") and name > after)
        return [
            VariableUse(ResourceName.parse(name), self.memory.made_at, self.memory.last_reads.get((name, made)))
            for name in names[:most]
            if (made := self._made(name)) is not None
        ]

    async def filter_inspectable(self, role: RoleName, variables: Sequence[str]) -> frozenset[str]:
        """See ``ReadingStore``."""
        return frozenset(
            name for name in variables if self.memory.access_facts(role, name).owns or self.memory.inspects(str(role), name)
        )

    async def purge(self, position: PurgePosition, before: int) -> PurgePosition:
        """See ``ReadingStore``."""
        self.memory.write()
        kept = {(row.record.resource, row.record.made_at) for row in self.memory.deleted.values()}
        gone = {key for key in self.memory.last_reads if self._made(key[0]) != key[1] and key not in kept}
        remove(self.memory.last_reads, lambda key, _: key in gone)
        remove(self.memory.reads, lambda pair, read: pair[2:] in gone or read[0] < before or not self._is_role(*pair[:2]))
        return PurgePosition(None, None)

    def _made(self, name: str) -> float | None:
        return self.memory.made[name] if name in self.memory.resources else None

    def _is_role(self, role: str, creation: int) -> bool:
        return role in self.memory.roles and self.memory.numbers(role)[0] == creation


def reads_of(memory: Memory) -> dict[str, dict[str, int]]:
    """How often each role read each variable, without their accounts."""
    found: dict[str, dict[str, int]] = {}
    for (role, _, variable, _), (_, _, count) in memory.reads.items():
        found.setdefault(role.partition(":")[2], {})[variable.split(":", 2)[2]] = count
    return found

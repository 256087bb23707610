"""Loads of policy documents, and their outcomes.

An outcome may have 200,000 rows: it comes in batches, between which the reactor serves others.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import attrs

from svc.model.events import AuditContext
from svc.model.names import RoleName
from svc.model.query_results import Caller

T = TypeVar("T")

#: About how many characters a batch has: what the reactor encodes within a millisecond or so.
BATCH: Final = 32 * 1024


class LoadMode(enum.StrEnum):
    """The three ways to load a policy (POL-37)."""

    APPEND = "append"
    UPDATE = "update"
    REPLACE = "replace"


@attrs.frozen
class Load:
    """A document for a policy. ``dry_run``: only report what would change. Without ``origin``, no events are written."""

    policy: RoleName
    mode: LoadMode
    caller: Caller
    client_ip: str
    document: bytes = attrs.field(repr=False)
    dry_run: bool = False
    origin: AuditContext | None = None


@attrs.frozen
class Batches(Generic[T]):
    """Values in batches, which can be iterated more than once."""

    _batches: Iterable[Sequence[T]] = attrs.field(default=(), repr=False)

    @classmethod
    def of(cls, values: Iterable[T]) -> Batches[T]:
        """Divide values into batches of about ``BATCH`` characters; a value isn't divided."""
        batches: list[list[T]] = []
        room = 0
        for value in values:
            if room <= 0:
                batches.append([])
                room = BATCH
            batches[-1].append(value)
            room -= size(value)
        return cls(batches)

    def __iter__(self) -> Iterator[Sequence[T]]:
        return iter(self._batches)


@attrs.frozen
class Loaded:
    """The result of a load: a version of the policy, and new users and hosts by their full ids, each with an API key.

    ``audited`` are the numbers of its events in the database: after the first of the two, up to the second.
    """

    version: int
    api_keys: Batches[tuple[str, str]] = Batches()
    warnings: tuple[str, ...] = ()
    audited: tuple[int, int] = (0, 0)


#: A thing at one moment, in the fields of the wire (POL-69). One that is too long for a batch comes in parts: the first has
#: ``identifier`` alone; each other has some of one field, and goes on where the one before ended if it names the same.
Item = dict[str, object]


@attrs.frozen
class DryRun:
    """The changes that a load would make; items that differ are in the same order in ``before`` and ``after``."""

    created: Batches[Item] = Batches()
    before: Batches[Item] = Batches()
    after: Batches[Item] = Batches()
    deleted: Batches[Item] = Batches()
    warnings: tuple[str, ...] = ()


class DocumentFault(NamedTuple):
    """A fault of a document, its remedy, and its place, counted from 1; ``None`` where it has no single place."""

    message: str
    advice: str
    line: int | None
    column: int | None


@attrs.frozen
class DocumentFaults:
    """The faults for which a dry run ended."""

    faults: Batches[DocumentFault] = Batches()


LoadOutcome = Loaded | DryRun | DocumentFaults


def size(value: object) -> int:
    """Return how many characters the texts in a value have, with something for each text."""
    match value:
        case str():
            return len(value) + 8
        case dict():
            return sum(size(name) + size(each) for name, each in value.items())
        case list() | tuple():
            return sum(map(size, value))
        case _:
            return 8

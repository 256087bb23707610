"""Loads of policy documents, and their outcomes.

An outcome may have 200,000 rows: it comes in batches, between which the reactor serves others.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import attrs
from zope.interface import Interface

from svc.model.access import AccessPath, PathStep
from svc.model.events import AuditContext
from svc.model.idempotency import RequestKey
from svc.model.names import RoleName
from svc.model.query_results import Caller

T = TypeVar("T")

#: About how many characters a batch has: what the reactor encodes within a millisecond or so.
BATCH_CHARACTERS: Final = 32 * 1024


class LoadMode(enum.StrEnum):
    """The three ways to load a policy (POL-37)."""

    APPEND = "append"
    UPDATE = "update"
    REPLACE = "replace"


@attrs.frozen
class Load:
    """A document for a policy. ``dry_run``: only report what would change. Without ``origin``, no events are written.

    ``request`` is the caller's key for it, without the digest of the document, if the load is to be made once.
    """

    policy: RoleName
    mode: LoadMode
    caller: Caller
    client_ip: str
    document: bytes = attrs.field(repr=False)
    dry_run: bool = False
    origin: AuditContext | None = None
    request: RequestKey | None = None


@attrs.frozen
class Batches(Generic[T]):
    """Values in batches, which can be iterated more than once."""

    _batches: Iterable[Sequence[T]] = attrs.field(default=(), repr=False)

    @classmethod
    def from_values(cls, values: Iterable[T]) -> Batches[T]:
        """Divide values into batches of about ``BATCH_CHARACTERS`` characters; a value isn't divided."""
        batches: list[list[T]] = []
        room = 0
        for value in values:
            if room <= 0:
                batches.append([])
                room = BATCH_CHARACTERS
            batches[-1].append(value)
            room -= count_characters(value)
        return cls(batches)

    def __iter__(self) -> Iterator[Sequence[T]]:
        return iter(self._batches)


@attrs.frozen
class LoadResult:
    """The result of a load: a version of the policy, and new users and hosts by their full ids, each with an API key.

    The key is ``None`` where policy says that the role has none (TOK-53).

    ``audited`` are the numbers of its events in the database: after the first of the two, up to the second. ``repeated``: it
    was made before, and this is the answer that was kept.
    """

    version: int
    api_keys: Batches[tuple[str, str | None]] = Batches()
    warnings: tuple[str, ...] = ()
    audited: tuple[int, int] = (0, 0)
    repeated: bool = False


#: A thing at one moment, in the fields of the wire (POL-69). One that is too long for a batch comes in parts: the first has
#: ``identifier`` alone; each other has some of one field, and goes on where the one before ended if it names the same.
Item = dict[str, Any]


@attrs.frozen
class NameSample:
    """Roles or resources of one kind: how many they are, and the full ids of the first, in order.

    ``differs``: they are there at only one of the two moments: created by the load, or deleted.
    """

    kind: str
    count: int
    first: tuple[str, ...]
    differs: bool


@attrs.frozen
class AccessChange:
    """Roles that gain, or that lose, privileges on resources by a load.

    With ``owner`` these are all privileges, of whatever name, except those ``excepted``, which the roles have at both
    moments; otherwise ``privileges``. ``pairs``: how many pairs of one of the roles and one of the resources are meant,
    fewer than all where they differ. ``through`` is the next role on the way of each role, if that is the same one and the
    caller sees it. ``path`` is that of the first role to one of its resources; ``None`` if it is too long.
    """

    roles: NameSample
    resources: NameSample
    privileges: tuple[str, ...]
    owner: bool
    excepted: tuple[str, ...]
    through: str | None
    pairs: int
    path: AccessPath | None


#: Advice where not all changes of access could be reported (POL-88).
ADVICE: Final = (
    "Load the document in parts, each after a dry run of its own, or ask for each resource in question who can use it, "
    "before the load and after it."
)


@attrs.frozen
class UnreportedChanges:
    """Changes of access that a dry run doesn't report: ``gains`` and ``losses`` that the caller may not see.

    ``new_gains`` are those of roles or on resources that the load creates; ``gains`` only those of others. Not ``complete``:
    there was too much to follow, and there may be more than is reported.
    """

    gains: bool = False
    new_gains: bool = False
    losses: bool = False
    complete: bool = True

    @property
    def advice(self) -> str | None:
        """Advice, if it isn't complete."""
        return None if self.complete else ADVICE


@attrs.frozen
class DryRun:
    """The changes that a load would make; items that differ are in the same order in ``before`` and ``after``.

    ``gains`` and ``losses`` are those of access, as far as they are not ``unreported``.
    """

    created: Batches[Item] = Batches()
    before: Batches[Item] = Batches()
    after: Batches[Item] = Batches()
    deleted: Batches[Item] = Batches()
    warnings: tuple[str, ...] = ()
    gains: Batches[AccessChange] = Batches()
    losses: Batches[AccessChange] = Batches()
    unreported: UnreportedChanges = UnreportedChanges()


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


LoadOutcome = LoadResult | DryRun | DocumentFaults


def count_characters(value: object) -> int:
    """Return how many characters the texts in a value have, with something for each text."""
    match value:
        case str():
            return len(value) + 8
        case dict():
            return sum(count_characters(name) + count_characters(each) for name, each in value.items())
        case list() | tuple():
            return sum(map(count_characters, value))
        case AccessChange() | NameSample() | PathStep():
            return count_characters(attrs.astuple(value, recurse=False))
        case _:
            return 8


class ILoads(Interface):
    """Loads of policy documents, wherever the work is done."""

    async def load_policy(load: Load) -> LoadOutcome:
        """Load a document, or find out what that would change, for a caller who has the privilege that the mode requires.

        When cancelled, the load runs to its end with its result dropped, or doesn't begin.

        :raises Refusal: the document can't be loaded, or the caller may not do all that it says, or not now.
        """

"""Records that policy deleted, and values that newer ones pushed out, kept for a while: values and port.

An identity is a role's full id with its creation. Kept records belong to identities: the next role of a name is another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import attrs
from zope.interface import Interface

from svc.model.names import RoleName
from svc.model.policy_rows import AnnotationRow, MembershipRow, PermissionRow, RestrictionRow
from svc.model.ports import IPolicyTransaction

T = TypeVar("T")

#: How many records are kept of an account, and how many rows of pushed out values of one variable.
RECORDS_MOST: Final = 100_000
OVERWRITTEN_MOST: Final = 100

#: How many bytes of facts are restored at once, since making rows of them takes a process a moment; of one record, all.
FACTS_MOST: Final = 512 * 1024


@attrs.frozen
class RecordRetention:
    """For how long deleted records are kept, in seconds, and how many bytes of one account; with 0 seconds, nothing is."""

    seconds: float = 7 * 86400.0
    bytes: int = 256 * 1024 * 1024

    @property
    def is_enabled(self) -> bool:
        """Return whether anything is kept."""
        return self.seconds > 0


#: The retention unless the configuration sets another.
DEFAULT_RETENTION: Final = RecordRetention()


class RoleIdentity(NamedTuple):
    """A role, and which of the roles of its name it is."""

    role: str
    creation: int


@attrs.frozen
class DeletedRecordOwner:
    """An owner of kept records: whether it exists, and, if it is a kept record itself, its own owner."""

    identity: RoleIdentity
    exists: bool
    owner: RoleIdentity | None = None


@attrs.frozen
class DeletedRecord:
    """A record that was deleted, or values of one that were ``overwritten``, which have only ``versions``.

    ``creation``: that of its role, ``None`` where it has none. Times are in seconds since the epoch; from ``until`` on it is
    gone. ``made_at`` is when it had been made: another record of the name has another time. ``readers`` were permitted to
    read its values. ``versions`` ascend. ``grants`` and ``permissions`` are those that its policy recorded, with the record
    at either end. ``creations`` are those of all roles that these name, at the deletion.
    """

    number: int
    resource: str
    owner: RoleIdentity
    creation: int | None
    overwritten: bool
    made_at: float
    deleted_at: float
    until: float
    readers: frozenset[RoleIdentity] = frozenset()
    versions: tuple[int, ...] = ()
    annotations: tuple[AnnotationRow, ...] = ()
    restrictions: tuple[RestrictionRow, ...] = ()
    grants: tuple[MembershipRow, ...] = ()
    permissions: tuple[PermissionRow, ...] = ()
    creations: Mapping[str, int] = attrs.field(factory=dict)
    #: False where it lacks all this, since the records chosen before it have as much as may be restored at once.
    whole: bool = True


@attrs.frozen
class PresentRecord:
    """A record that is there: its owner, the policy that recorded it, and the newest version of its values.

    ``made_at`` and ``readers`` are as in ``DeletedRecord``.
    """

    owner: RoleIdentity
    policy: str | None
    made_at: float
    readers: frozenset[RoleIdentity]
    newest: int | None


@attrs.frozen
class RetainedTotals:
    """How much is kept in all: records, and approximate bytes."""

    records: int = 0
    bytes: int = 0


class IDeletedTransaction(IPolicyTransaction):
    """A transaction of a policy that can read and restore deleted records. Those past their retention don't appear."""

    async def list_owners(policy: RoleName) -> list[DeletedRecordOwner]:
        """Return the owners of the policy's kept records, each once; of those that are kept their owners, and so on."""

    async def filter_inspected(caller: RoleName, resources: Iterable[str]) -> frozenset[str]:
        """Return those of the resources that the caller inspects (INS-1)."""

    async def list_records(policy: RoleName, owners: Iterable[RoleIdentity], limit: int, offset: int) -> list[DeletedRecord]:
        """Return the policy's kept records that belonged to these owners, the newest first."""

    async def lock_records(policy: RoleName, owners: Iterable[RoleIdentity], numbers: Sequence[int]) -> list[DeletedRecord]:
        """Return those of the same with these numbers, the newest first, locked until the transaction ends.

        Those that are named first are ``whole``, until their facts have ``FACTS_MOST`` bytes together.
        """

    async def read_present_records(resources: Iterable[str]) -> dict[str, PresentRecord]:
        """Return the state of those of the resources that exist, locked against writers of values."""

    async def read_creations(roles: Iterable[str]) -> dict[str, int]:
        """Return the creations of those of the roles that exist."""

    async def restore_records(made: Sequence[DeletedRecord], filled: Sequence[DeletedRecord]) -> None:
        """Restore what was kept of records, and remove it from the kept ones.

        ``made``: those that this transaction has made again. They get the times when they had been made; webservices are
        switched, and distrust keys, as before; roles that can't log in get their creations back. Of users and hosts the next
        creation takes the place of the old one, where it owned kept records. ``filled``: those whose values are put back,
        with versions, times and expirations as they were.
        """

    async def purge_records(policy: RoleName, owners: Iterable[RoleIdentity], numbers: Sequence[int] | None) -> list[str]:
        """Remove for good what ``lock_records`` would return, or ``list_records`` in all; return the full id of each."""


class IDeletedRecords(Interface):
    """The store of kept records. Errors: see ``ports``."""

    async def transact_read_only(work: Callable[[IDeletedTransaction], Awaitable[T]]) -> T:
        """Run ``work``, which changes nothing, in a transaction; a standby can do so too."""

    async def transact(work: Callable[[IDeletedTransaction], Awaitable[T]]) -> T:
        """Run ``work`` as ``IPolicies.transact`` does."""

    async def purge_old() -> int:
        """Remove for good the records past their retention, some at a time, and return how many those were."""

    async def enforce_limits() -> dict[str, int]:
        """Remove the oldest records of accounts that have too many, and return how many these were, by account."""

    async def read_usage() -> RetainedTotals:
        """Return how much is kept."""

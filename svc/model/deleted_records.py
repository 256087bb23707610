"""Records that policy deleted, and values that newer ones pushed out, kept for a while.

An identity is a role's full id with its creation. Kept records belong to identities: the next role of a name is another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import attrs

from svc.model.policy_loads import AnnotationRow, MembershipRow, PermissionRow, RestrictionRow

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

"""Data keys as the database has them: their ids, and the progress of a rotation from one to the next."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence

import attrs

from svc.model.query_results import Sealed

#: Re-encrypts a value that is sealed under this name; ``None`` when it doesn't open.
Reseal = Callable[[str, Sealed], Sealed | None]


@attrs.frozen
class StoredDataKey:
    """A data key of the database. ``closed``: nothing new may be sealed under it; ``retired``: nothing is any more.

    ``age`` is for how many seconds it has been in use.
    """

    key_id: str
    closed: bool = False
    retired: bool = False
    age: float = attrs.field(default=0.0, eq=False)


@attrs.frozen
class KeyUser:
    """A process that seals values, by its last announcement: ``display_name`` is its name for operators."""

    display_name: str
    seals: str
    knows: tuple[str, ...]


class ResealOutcome(enum.Enum):
    """The result of a step of re-encryption."""

    NOTHING = "another server moves, it is too soon, or no key is to be retired"
    WAITING = "some servers don't seal with the new key yet"
    CLOSED = "the old key seals nothing any more"
    SETTLING = "transactions that may have sealed with the old key haven't ended"
    SEALED = "values were looked at, and sealed again"
    RETIRED = "nothing is sealed under the old key"


@attrs.frozen
class KeyProgress:
    """The progress of re-encryption, in values by sealed column.

    ``unopened``: how many of the values that were met in this pass the old key doesn't open, and ``first_unopened``: the
    first of them.
    """

    totals: Mapping[str, int] = attrs.field(factory=dict)
    resealed: Mapping[str, int] = attrs.field(factory=dict)
    unopened: int = 0
    first_unopened: str | None = None

    @property
    def resealed_count(self) -> int:
        """How many were re-encrypted."""
        return sum(self.resealed.values())

    @property
    def remaining_count(self) -> int:
        """How many there were to begin with, minus those: about as many as are left."""
        return sum(max(0, total - self.resealed[target]) for target, total in self.totals.items())


#: Returns the ids of the data keys that another server knows; ``None`` when it gives no answer that can be trusted.
FetchKeyIds = Callable[[], Awaitable[Sequence[str] | None]]

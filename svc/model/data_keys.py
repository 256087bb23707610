"""Data keys as the database has them: their ids, and the progress of a rotation from one to the next."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence

import attrs
from zope.interface import Interface

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


class IDataKeys(Interface):
    """The data keys of the database. Every method may raise ``StoreUnavailable``, those that write ``StoreReadOnly``."""

    async def list_keys() -> list[StoredDataKey]:
        """Return the keys in their order; none when only one has ever been, which no server has noted."""

    async def record_first_key(key_id: str) -> None:
        """Note the key that the database was initialised with, unless there is one."""

    async def announce_process(process: str, user: KeyUser) -> None:
        """Announce the key that a process seals with, and those that it knows; ``process`` is a name that no other has."""

    async def list_key_users() -> list[KeyUser]:
        """Return the processes with a recent announcement."""

    async def count_sealed_values() -> dict[str, int]:
        """Count the sealed values, by sealed column; that may take long."""

    async def begin_rotation(current: str, new: str, canary: Sealed, totals: Mapping[str, int]) -> bool:
        """Begin to rotate to a new key, with a canary that is sealed under it.

        Return whether that was possible: ``current`` is the key that seals, and all before it are retired.
        """

    async def advance_rotation(reseal: Reseal, most: int, pause: float) -> ResealOutcome:
        """Go a step further, if no server did so in the last ``pause`` seconds: re-encrypt at most ``most`` values."""

    async def read_progress() -> KeyProgress:
        """Return the progress of the rotation."""


#: Returns the ids of the data keys that another server knows; ``None`` when it gives no answer that can be trusted.
FetchKeyIds = Callable[[], Awaitable[Sequence[str] | None]]

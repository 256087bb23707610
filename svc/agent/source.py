"""The source of values: the agent's interface to a client, and the requests that it makes (AGT-15).

Note [Two batches]. A batch with something in it that can't be read has no tag (SEC-39), and so would be read whole in every
round. So readable and refused variables are two batches. The first is mostly answered with "unchanged"; the second, of those
refused the last time, is requested too, since that may have changed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Protocol

import attrs


@attrs.frozen
class VariableBatch:
    """The answer to a batch: values by ids, and for the others why not; ``tag`` is ``None`` where there is none."""

    values: Mapping[str, bytes] = attrs.field(repr=False)
    refused: Mapping[str, str]
    tag: str | None


class VariableClient(Protocol):
    """A client, logged in as need be."""

    async def read(self, ids: Sequence[str], tag: str | None) -> VariableBatch | None:
        """Read these; ``None`` where nothing has changed since the batch of this tag.

        :raises SourceFault: there is no answer.
        """

    def watch(self, ids: Sequence[str]) -> AsyncIterator[None]:
        """Return what yields whenever some of these may have changed, first of all when the server watches them.

        It ends, or raises ``SourceFault``, when the server doesn't watch any more.
        """


@attrs.frozen
class VariableSnapshot:
    """The result of reading variables: their values, and for the others a sentence that says why they can't be read."""

    values: Mapping[str, bytes] = attrs.field(factory=dict, repr=False)
    refused: Mapping[str, str] = attrs.field(factory=dict)


class VariableSource:
    """The values of variables, with as few requests as possible."""

    def __init__(self, batches: VariableClient) -> None:
        self._client = batches
        self._refused: frozenset[str] = frozenset()
        self._last: tuple[tuple[str, ...], VariableBatch] | None = None

    async def read(self, ids: Iterable[str]) -> VariableSnapshot:
        """Return what is known now of these variables (Note [Two batches]).

        :raises SourceFault: there is no answer.
        """
        wanted = frozenset(ids)
        values: dict[str, bytes] = {}
        refused: dict[str, str] = {}
        if good := tuple(sorted(wanted - self._refused)):
            batch = await self._read_if_changed(good)
            values |= batch.values
            refused |= batch.refused
        if bad := tuple(sorted(wanted & self._refused)):
            batch = await self._client.read(bad, None) or VariableBatch({}, {}, None)
            values |= batch.values
            refused |= batch.refused
        self._refused = frozenset(refused)
        return VariableSnapshot(values, refused)

    async def _read_if_changed(self, ids: tuple[str, ...]) -> VariableBatch:
        last = self._last if self._last is not None and self._last[0] == ids else None
        batch = await self._client.read(ids, last[1].tag if last is not None else None)
        if batch is None:
            assert last is not None, "nothing is unchanged that wasn't read"
            return last[1]
        self._last = (ids, batch) if batch.tag is not None else None
        return batch

    def watch(self, ids: Iterable[str]) -> AsyncIterator[None]:
        """Return what ``VariableClient.watch`` does."""
        return self._client.watch(sorted(ids))

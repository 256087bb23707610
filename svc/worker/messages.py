"""Messages between the server and its processes for large policy loads.

The bytes that go beside a message's value are a client's document, or a batch of an outcome.

Note [Batches stay pickled]. An outcome may have 200,000 rows. Its batches come before it, a message each, and stay as they
come, which takes a fraction of the memory: none is unpickled before its turn to be written.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from svc.model.deleted_records import KEEPING, Keeping
from svc.model.dialect import Dialect
from svc.model.pickled_messages import written
from svc.model.policy_loads import Batches, LoadOutcome
from svc.policy.document import Bounds


@attrs.frozen
class Task:
    """A worker's settings. ``statement_timeout`` is in seconds."""

    dsn: str = attrs.field(repr=False)
    statement_timeout: float
    data_keys: tuple[bytes, ...] = attrs.field(repr=False)
    dialect: Dialect
    bounds: Bounds
    keeping: Keeping = KEEPING


@attrs.frozen
class DataKeys:
    """The data keys for the loads from now on, where they are others than the task's."""

    keys: tuple[bytes, ...] = attrs.field(repr=False)


@attrs.frozen
class Bug:
    """The answer when a load met a bug, which is in the log."""

    why: str


@attrs.frozen
class Committed:
    """The version of the state after the load whose outcome is to come, as ``request_notes`` has it."""

    version: str


@attrs.frozen
class Batch:
    """The content beside it is the next batch in this field of the outcome to come."""

    field: str


@attrs.frozen
class Pickled:
    """Batches as they came through the pipe; each is unpickled on demand."""

    _batches: Sequence[bytes] = attrs.field(repr=False)

    def __iter__(self) -> Iterator[Any]:
        return map(pickle.loads, self._batches)


def outcome_written(outcome: LoadOutcome) -> Iterator[bytes]:
    """Return the messages of an outcome, in pieces: its batches, then the rest (Note [Batches stay pickled])."""
    batched = {name: value for name, value in attrs.asdict(outcome, recurse=False).items() if isinstance(value, Batches)}
    for field, batches in batched.items():
        for batch in batches:
            yield from written(Batch(field), pickle.dumps(batch))
    rest: Any = outcome
    yield from written(attrs.evolve(rest, **dict.fromkeys(batched, Batches[Any]())))


def outcome_of(rest: Any, batches: Mapping[str, Sequence[bytes]]) -> LoadOutcome:
    """Return an outcome from its batches, by the names of fields, and the rest."""
    outcome: LoadOutcome = attrs.evolve(rest, **{field: Batches(Pickled(some)) for field, some in batches.items()})
    return outcome

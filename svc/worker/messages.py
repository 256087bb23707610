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

from svc.model.deleted_records import DEFAULT_RETENTION, RecordRetention
from svc.model.dialect import Dialect
from svc.model.pickled_messages import encode_message
from svc.model.policy_loads import Batches, LoadOutcome
from svc.policy.document import Bounds


@attrs.frozen
class LoadWorkerSettings:
    """A worker's settings. ``statement_timeout`` is in seconds."""

    dsn: str = attrs.field(repr=False)
    statement_timeout: float
    data_keys: tuple[bytes, ...] = attrs.field(repr=False)
    dialect: Dialect
    bounds: Bounds
    retention: RecordRetention = DEFAULT_RETENTION


@attrs.frozen
class DataKeys:
    """The data keys for the loads from now on, where they are others than the task's."""

    keys: tuple[bytes, ...] = attrs.field(repr=False)


@attrs.frozen
class LoadBug:
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
class PickledBatches:
    """Batches as they came through the pipe; each is unpickled on demand."""

    _batches: Sequence[bytes] = attrs.field(repr=False)

    def __iter__(self) -> Iterator[Any]:
        return map(pickle.loads, self._batches)


def encode_outcome(outcome: LoadOutcome) -> Iterator[bytes]:
    """Return the messages of an outcome, in pieces: its batches, then the rest (Note [Batches stay pickled])."""
    batched = {name: value for name, value in attrs.asdict(outcome, recurse=False).items() if isinstance(value, Batches)}
    for field, batches in batched.items():
        for batch in batches:
            yield from encode_message(Batch(field), pickle.dumps(batch))
    rest: Any = outcome
    yield from encode_message(attrs.evolve(rest, **dict.fromkeys(batched, Batches[Any]())))


def decode_outcome(rest: Any, batches: Mapping[str, Sequence[bytes]]) -> LoadOutcome:
    """Return an outcome from its batches, by the names of fields, and the rest."""
    outcome: LoadOutcome = attrs.evolve(rest, **{field: Batches(PickledBatches(some)) for field, some in batches.items()})
    return outcome

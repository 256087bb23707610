"""Messages between the server and its workers, over pipes: a value, pickled, and bytes that go as they are.

Both ends are one program and trust each other: what is unpickled was written by the other end, never by a client. Those
bytes are a client's document, or a batch of an outcome.

Note [Batches stay pickled]. An outcome may tell of 200,000 rows. Its batches come before it, a message each, and stay as
they come, which takes a fraction of the memory: none is unpickled before its turn to be written down.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import attrs

from svc.model.dialect import Dialect
from svc.model.policy_loads import Batches, LoadOutcome
from svc.policy.document import Bounds

_LENGTHS: Final = struct.Struct(">QQ")


@attrs.frozen
class Task:
    """A worker's settings. ``statement_timeout`` is in seconds."""

    dsn: str = attrs.field(repr=False)
    statement_timeout: float
    data_key: bytes = attrs.field(repr=False)
    dialect: Dialect
    bounds: Bounds


@attrs.frozen
class Bug:
    """The answer when a load met a bug, which is in the log."""

    why: str


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


class Message(NamedTuple):
    """A value, and bytes beside it."""

    value: Any
    content: bytes


def written(value: object, content: bytes = b"") -> list[bytes]:
    """Return a message as it goes through the pipe, in pieces."""
    pickled = pickle.dumps(value)
    return [_LENGTHS.pack(len(pickled), len(content)), pickled, content]


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


class Reading:
    """Bytes from the pipe, on their way to messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def take(self, data: bytes) -> Iterator[Message]:
        """Take the next bytes, and return the messages that they complete."""
        self._buffer += data
        while len(self._buffer) >= _LENGTHS.size:
            value, content = _LENGTHS.unpack_from(self._buffer)
            end = _LENGTHS.size + value + content
            if len(self._buffer) < end:
                return
            with memoryview(self._buffer) as view:
                pickled = view[_LENGTHS.size : _LENGTHS.size + value]
                message = Message(pickle.loads(pickled), bytes(view[_LENGTHS.size + value : end]))  # noqa: S301 - ours
                pickled.release()
            del self._buffer[:end]
            yield message

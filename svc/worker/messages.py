"""Messages between the server and its workers, over pipes: a value, pickled, and bytes that go as they are.

Both ends are one program and trust each other: what is unpickled was written by the other end, never by a client. Those
bytes are a client's, or are for one.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import attrs

from svc.model.dialect import Dialect
from svc.policy.document import Bounds

_LENGTHS: Final = struct.Struct(">QQ")


@attrs.frozen
class Task:
    """What a worker needs to know before its first load: the database's DSN, the time-out of statements there in seconds,
    the data key, and how documents are read.
    """

    dsn: str = attrs.field(repr=False)
    statement_timeout: float
    data_key: bytes = attrs.field(repr=False)
    dialect: Dialect
    bounds: Bounds


@attrs.frozen
class Bug:
    """What a worker answers when a load met a bug, after it has said on standard error which."""

    why: str


class Message(NamedTuple):
    """A value, and bytes beside it."""

    value: Any
    content: bytes


def written(value: object, content: bytes = b"") -> list[bytes]:
    """A message as it goes through the pipe, in pieces."""
    pickled = pickle.dumps(value)
    return [_LENGTHS.pack(len(pickled), len(content)), pickled, content]


class Reading:
    """Takes bytes as they come through the pipe, and gives messages when they are complete."""

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

"""Messages between processes of one server, over pipes: a value, pickled, and bytes that are sent as they are.

Both ends are one program and trust each other: what is unpickled was written by the other end, never by a client.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_LENGTHS: Final = struct.Struct(">QQ")


class Message(NamedTuple):
    """A value, and bytes beside it."""

    value: Any
    content: bytes


def encode_message(value: object, content: bytes = b"") -> list[bytes]:
    """Return a message as it is sent through the pipe, in pieces."""
    pickled = pickle.dumps(value)
    return [_LENGTHS.pack(len(pickled), len(content)), pickled, content]


class MessageDecoder:
    """Bytes from the pipe that aren't complete messages yet."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
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

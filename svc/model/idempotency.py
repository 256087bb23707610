"""Answers that are kept for ten minutes, so that a client which lost one can ask for it again (WIRE-53).

Note [Made once]. A client identifies a change by a key of its own choice, and sends the same request again when the answer
got lost. The answer is written in the change's own transaction: either both are there or neither is. That transaction also
holds a lock on the key, which PostgreSQL releases when the transaction ends, however it ends. So a key makes one change at
most, whatever server or process handles the requests, and whatever crashes.

Note [Callers of a key]. A key belongs to its caller: one creation of a role, one token of a host factory, or one API key
that replaces itself. Callers that use the same key learn nothing about each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

import attrs

from svc.model.errors import InvalidParameter
from svc.model.query_results import Caller, Sealed

T = TypeVar("T")

#: The header that names a change.
HEADER: Final = "Idempotency-Key"

#: For how many seconds after it was made an answer is kept.
RETENTION_SECONDS: Final = 600.0

#: How many pieces of answers are kept for one caller; a usual answer is one piece, one of 100,000 new roles some 500.
PIECES_MOST: Final = 5000


def digest_secret(secret: bytes) -> str:
    """Return a digest of an unguessable secret, which identifies its owner as a caller."""
    return hashlib.sha256(secret).hexdigest()


@attrs.frozen
class RequestKey:
    """The key of a change, and the request that it identifies: ``target`` is method, path and query, ``body`` a digest."""

    key: str
    target: str
    body: bytes = b""
    #: See Note [Callers of a key].
    caller: str = ""

    def for_caller(self, caller: Caller | str) -> RequestKey:
        """Return it as a key of a caller."""
        name = f"{caller.role} {caller.creation}" if isinstance(caller, Caller) else caller
        return attrs.evolve(self, caller=name)

    def with_body(self, body: bytes) -> RequestKey:
        """Return it for a request with this body."""
        return attrs.evolve(self, body=hashlib.sha256(body).digest())

    @property
    def request_digest(self) -> bytes:
        """A digest of the request."""
        return hashlib.sha256(self.target.encode("ascii", "replace") + b"\n" + self.body).digest()


@attrs.frozen
class StoredAnswer:
    """An answer that is kept: the digest of its request, and the sealed pieces."""

    request: bytes
    pieces: Sequence[Sealed] = attrs.field(repr=False)

    def require_same_request(self, request: RequestKey) -> None:
        """Refuse a request that isn't the one of this answer.

        :raises InvalidParameter: it differs in method, path, query or body.
        """
        if self.request != request.request_digest:
            message = f"this {HEADER} belongs to another request: use a new key for each change"
            raise InvalidParameter(HEADER, message, code="unprocessable_entity")


@attrs.frozen
class AlreadyAnswered(Exception):
    """The change was made before, with this answer: raised within its transaction, which is rolled back."""

    request: RequestKey
    answer: StoredAnswer


@attrs.frozen
class Once(Generic[T]):
    """Instructs a store to make a change once: the key, and a function that returns the sealed answer from the result."""

    request: RequestKey
    answer: Callable[[T], Sequence[Sealed]] = attrs.field(repr=False)

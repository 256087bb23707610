"""Kept answers, sealed: small documents of JSON in pieces (``svc.model.idempotency``)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from svc.crypto.vault import Vault, stored_answer_name
from svc.model.idempotency import AlreadyAnswered, Once, RequestKey, StoredAnswer
from svc.model.query_results import Sealed


def make_once(vault: Vault, request: RequestKey | None, caller: Any, answer: Any) -> Once[Any] | None:
    """Return the order to a store to make a change once for a caller's key, and keep ``answer``; ``None`` without a key."""
    if request is None:
        return None
    own = request.for_caller(caller)
    return Once(own, lambda _: sealed_pieces(vault, own, [answer]))


def sealed_pieces(vault: Vault, request: RequestKey, documents: Iterable[Any]) -> list[Sealed]:
    """Return documents of JSON sealed, each as one piece."""
    return [
        vault.seal(stored_answer_name(request.caller, request.key, number), json.dumps(document).encode("ascii"))
        for number, document in enumerate(documents)
    ]


@attrs.frozen
class DecryptedPieces:
    """The documents of a kept answer from one piece on, each opened only when it is reached; they can be iterated again.

    Iteration raises ``WrongDataKey``.
    """

    vault: Vault
    request: RequestKey
    answer: StoredAnswer
    first: int = 0

    def __iter__(self) -> Iterator[Any]:
        for number, piece in enumerate(self.answer.pieces[self.first :], self.first):
            yield json.loads(self.vault.open(stored_answer_name(self.request.caller, self.request.key, number), piece))


def open_answer(vault: Vault, before: AlreadyAnswered) -> Any:
    """Return the first document of a kept answer.

    :raises WrongDataKey: it doesn't open.
    """
    return next(iter(DecryptedPieces(vault, before.request, before.answer)))

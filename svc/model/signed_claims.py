"""Third parties' signed tokens as values: before their signature is verified, and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NewType

import attrs

from svc.model.reasons import Reason

#: The claims of a token whose signature has been verified. ``crypto.signatures`` alone makes them.
SignedClaims = NewType("SignedClaims", Mapping[str, object])


@attrs.frozen
class UnverifiedToken:
    """A well-formed token, of which nothing is known to be true. Only its header has been read."""

    algorithm: str
    key_id: str | None
    signing_input: bytes = attrs.field(repr=False)
    payload: bytes = attrs.field(repr=False)
    signature: bytes = attrs.field(repr=False)


@attrs.frozen(str=False)
class EvidenceRefused(Exception):
    """A token proves nothing; raised by its readers and the checks of its claims, and turned into a ``Refused``.

    ``detail`` is for operators: bounded, without control characters, never the token. ``retry_after`` is in seconds.
    """

    reason: Reason
    detail: str
    retry_after: int | None = None

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"

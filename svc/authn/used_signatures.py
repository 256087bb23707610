"""Signatures that have admitted somebody, kept for as long as they could admit again.

Note [Bounded]. Only logins that are admitted are kept, so that strangers can't fill the room. When it is full, further
logins are postponed, rather than one dropped.

Note [One process]. Where several processes serve, one keeps the signatures for all (``svc/server/supervisor.py``). It ends
with the server: the promise is once for each server while it runs (AWS-10).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from svc.model.aws import IUsedSignatures
from svc.model.errors import StoreUnavailable
from svc.model.query_results import address_counting_key

#: The most signatures that are kept.
MAX_SIGNATURES: Final = 100_000


@attrs.frozen
class _Use:
    """By which address a signature was used, when first, and when it is dropped."""

    address: str
    at: float
    ends_at: float


@implementer(IUsedSignatures)
class UsedSignatures:
    """Provides ``IUsedSignatures`` for the processes of a server; ``most`` of them are kept (Note [Bounded])."""

    def __init__(self, clock: IReactorTime, most: int = MAX_SIGNATURES) -> None:
        self._clock, self._limit = clock, most
        self._uses: OrderedDict[bytes, _Use] = OrderedDict()

    async def is_used(self, signature: str, address: str, again: float) -> bool:
        """See ``IUsedSignatures``."""
        return self._is_digest_used(_digest_signature(signature), address, again)

    async def claim_signature(self, signature: str, address: str, again: float, lasting: float) -> bool:
        """See ``IUsedSignatures``."""
        digest, now = _digest_signature(signature), self._clock.seconds()
        if self._is_digest_used(digest, address, again):
            return False
        if digest in self._uses:
            return True
        while self._uses and next(iter(self._uses.values())).ends_at <= now:
            self._uses.popitem(last=False)
        if len(self._uses) >= self._limit:
            raise StoreUnavailable(f"{self._limit} signatures are remembered already")
        self._uses[digest] = _Use(address_counting_key(address), now, now + lasting)
        return True

    def _is_digest_used(self, digest: bytes, address: str, again: float) -> bool:
        use, now = self._uses.get(digest), self._clock.seconds()
        if use is None or use.ends_at <= now:
            self._uses.pop(digest, None)
            return False
        return use.address != address_counting_key(address) or now - use.at >= again


@implementer(IUsedSignatures)
@attrs.frozen
class RemoteSignatures:
    """Provides ``IUsedSignatures`` by the process that keeps them (Note [One process])."""

    _query_used: Callable[[str, str, float], Awaitable[bool]]
    _request_claim: Callable[[str, str, float, float], Awaitable[bool]]

    async def is_used(self, signature: str, address: str, again: float) -> bool:
        """See ``IUsedSignatures``."""
        return await self._query_used(signature, address, again)

    async def claim_signature(self, signature: str, address: str, again: float, lasting: float) -> bool:
        """See ``IUsedSignatures``."""
        return await self._request_claim(signature, address, again, lasting)


def _digest_signature(signature: str) -> bytes:
    return blake2b(signature.encode("ascii"), digest_size=16).digest()

"""The check of ``authn``: access tokens are issued with accounts' keys, and prove whom they were issued to.

It tries a share of the keys in each round (``sampling``), some in one turn of the reactor, and never for longer than a
moment: the others come first in the next round. So neither many accounts nor a busy server make it fail.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from zope.interface import implementer

from svc.health.probes import ProbeFailed
from svc.health.sampling import AccountSampler
from svc.model.authentication import Admitted
from svc.model.errors import Refusal, StoreUnavailable
from svc.model.names import admin_of
from svc.model.probes import IProbe
from svc.model.query_results import Caller, StoredSigningKey

#: How many accounts a round looks at, how many of their keys it tries, how many of these in one turn of the reactor (a key
#: takes some tenths of a millisecond), and after how many seconds it tries no further one.
ACCOUNTS_PER_ROUND: Final = 500
KEYS_PER_ROUND: Final = 20
KEYS_PER_TICK: Final = 4
_MAX_SECONDS: Final = 0.1


class _Keys(Protocol):
    """``svc.crypto.tokens.SigningKeys``."""

    async def refresh(self) -> None: ...
    async def list_signing_keys(self, after: str, limit: int) -> Sequence[tuple[str, StoredSigningKey | None]]: ...
    def cache_key(self, stored: StoredSigningKey) -> None: ...


class _Tokens(Protocol):
    """``svc.crypto.tokens.AccessTokens``."""

    async def issue_token(self, admitted: Admitted) -> bytes: ...
    async def find_caller(self, authorization: bytes | None) -> Caller: ...


@implementer(IProbe)
class AuthnProbe:
    """Opens keys as the store has them, issues an access token with each, and proves its caller by it."""

    service = "authn"

    def __init__(self, keys: _Keys, tokens: _Tokens, clock: IReactorTime) -> None:
        self._keys, self._tokens, self._clock = keys, tokens, clock
        self._sampler: AccountSampler[StoredSigningKey | None] = AccountSampler(
            self._list_keys, ACCOUNTS_PER_ROUND, KEYS_PER_ROUND
        )

    async def check(self) -> None:
        """Fail while an account is known that has no key, or whose key doesn't open, sign or verify."""
        await self._keys.refresh()
        ends = self._clock.seconds() + _MAX_SECONDS
        for number, (account, stored) in enumerate(await self._sampler.next_sample(), 1):
            self._sampler.record_result(account, await self._try_key(account, stored))
            if number % KEYS_PER_TICK == 0:
                await deferLater(self._clock, 0)
                if self._clock.seconds() > ends:
                    break
        if (trouble := self._sampler.failure_summary) is not None:
            raise ProbeFailed(trouble)

    async def _list_keys(self, after: str, limit: int) -> Sequence[tuple[str, Mapping[str, StoredSigningKey | None]]]:
        return [(account, {account: stored}) for account, stored in await self._keys.list_signing_keys(after, limit)]

    async def _try_key(self, account: str, stored: StoredSigningKey | None) -> str | None:
        if stored is None:
            return f"it has no key to sign with: run svc account rotate-signing-key {account}"
        role = admin_of(account)
        try:
            # From here to the end the keyring has it, so that no account that is deleted meanwhile looks faulty.
            self._keys.cache_key(stored)
            token = base64.b64encode(await self._tokens.issue_token(Admitted(role, stored.key_id)))
            caller = await self._tokens.find_caller(b'Token token="%s"' % token)
        except StoreUnavailable:
            raise
        except Refusal as refusal:
            return str(refusal)
        return None if caller.role == role else f"a token for {role} proves {caller.role}"

"""The signing keys of every account, opened once and cached; access tokens are issued and verified with them."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Final

import attrs

from svc.crypto.tokens import INVALID, MISSING, SigningKey, VerificationKey, parse_authorization
from svc.crypto.vault import Vault, signing_key_name
from svc.model.authentication import Admitted
from svc.model.clocks import WallClock
from svc.model.errors import AuthenticationRefused, BearerRefused
from svc.model.query_results import Caller, Sealed, StoredSigningKey
from svc.model.reasons import Reason
from svc.storage.accounts import AccountStore

REFRESH_LIMIT: Final = 500  #: most keys that one refresh asks for
CACHED_TOKENS: Final = 16 * 1024  #: verified tokens, which take about 10 MB together


def new_signing_key(vault: Vault, account: str, now: float) -> StoredSigningKey:
    """Make a signing key for ``account``, sealed as the store keeps it."""
    key = SigningKey.generate(account)
    key_id = key.verification.key_id
    return StoredSigningKey(account, key_id, vault.seal(signing_key_name(account, key_id), key.private_bytes()), now)


@attrs.frozen
class _CachedKey:
    key: SigningKey
    retires_at: float | None
    sealed: Sealed

    def can_verify(self, now: float) -> bool:
        return self.retires_at is None or now < self.retires_at


class AccountKeys:
    """The account signing keys of the store, each opened when it is first needed, and cached until it is gone.

    Later changes of a cached key, its retirement above all, arrive with :meth:`refresh`, in a round of health. A key that
    doesn't open raises ``WrongDataKey``.
    """

    def __init__(self, accounts: AccountStore, vault: Vault, wall: WallClock) -> None:
        self._accounts = accounts
        self._vault = vault
        self._wall = wall
        self._cached_keys: OrderedDict[str, _CachedKey] = OrderedDict()

    async def load_signing_key(self, key_id: str) -> SigningKey:
        """Return the key to sign with, which the store named as its account's newest.

        :raises AuthenticationRefused: it went with its account since.
        """
        held = self._cached_keys.get(key_id) or await self._load_key(key_id)
        if held is None:
            raise AuthenticationRefused(Reason.ACCOUNT_UNKNOWN)
        return held.key

    async def load_verification_key(self, key_id: str) -> VerificationKey | None:
        """Return the key to verify with, ``None`` when there is none of that id or it has retired."""
        held = self._cached_keys.get(key_id) or await self._load_key(key_id)
        return held.key.verification if held is not None and held.can_verify(self._wall.seconds()) else None

    def can_verify(self, key_id: str, now: float) -> bool:
        """Return whether the key of that id is cached and verifies tokens at ``now``; the store isn't queried."""
        held = self._cached_keys.get(key_id)
        return held is not None and held.can_verify(now)

    async def public_keys(self, account: str) -> list[dict[str, str]]:
        """Return the keys that verify an account's tokens now, as members of a JWK set, the newest last."""
        now = self._wall.seconds()
        held = [self._cache_or_update(stored) for stored in await self._accounts.list_signing_keys(account)]
        return [each.key.verification.public_jwk() for each in held if each.can_verify(now)]

    async def list_signing_keys(self, after: str, limit: int) -> Sequence[tuple[str, StoredSigningKey | None]]:
        """Return the next accounts after one, as ``AccountStore.list_newest_signing_keys``."""
        return await self._accounts.list_newest_signing_keys(after, limit)

    def cache_key(self, stored: StoredSigningKey) -> None:
        """Cache a key as it is stored, opened again if its bytes changed; if that fails, the old one goes on serving."""
        held = self._cached_keys.get(stored.key_id)
        if held is None or held.sealed != stored.sealed:
            self._cached_keys[stored.key_id] = self._open_key(stored)

    async def refresh(self) -> None:
        """Update when cached keys retire, and drop those that the store no longer has: of many some, in turn."""
        asked = list(islice(self._cached_keys, REFRESH_LIMIT))
        stored = {key.key_id: key for key in await self._accounts.find_signing_keys(asked)} if asked else {}
        for key_id in asked:
            held = self._cached_keys.pop(key_id, None)
            if held is not None and key_id in stored:
                self._cached_keys[key_id] = attrs.evolve(held, retires_at=stored[key_id].retires_at)

    def drop_account(self, account: str) -> None:
        """Forget the keys of an account."""
        for key_id in [key_id for key_id, held in self._cached_keys.items() if held.key.verification.account == account]:
            del self._cached_keys[key_id]

    async def rotate_key(self, account: str, longest_lifetime: int) -> None:
        """Give the account a new key, and let the old one verify for ``longest_lifetime`` seconds, until its tokens end.

        :raises NotFound: the account is missing.
        """
        now = self._wall.seconds()
        await self._accounts.rotate_signing_key(new_signing_key(self._vault, account, now), now + longest_lifetime)
        self.drop_account(account)

    async def _load_key(self, key_id: str) -> _CachedKey | None:
        for stored in await self._accounts.find_signing_keys([key_id]):
            return self._cache_or_update(stored)
        return None

    def _cache_or_update(self, stored: StoredSigningKey) -> _CachedKey:
        known = self._cached_keys.get(stored.key_id)
        held = self._open_key(stored) if known is None else attrs.evolve(known, retires_at=stored.retires_at)
        self._cached_keys[stored.key_id] = held
        return held

    def _open_key(self, stored: StoredSigningKey) -> _CachedKey:
        private = self._vault.open(signing_key_name(stored.account, stored.key_id), stored.sealed)
        return _CachedKey(SigningKey.from_bytes(stored.account, private), stored.retires_at, stored.sealed)


@attrs.frozen
class _VerifiedToken:
    key_id: str
    expires_at: int
    caller: Caller


class AccessTokens:
    """Issues access tokens, and returns the callers of requests.

    Note [Cached tokens]. To verify a token costs as much as the rest of a request for a secret. So the ``cache_limit``
    tokens that were used last are known by the SHA-256 of their header. Each use checks again that the token is alive and
    that its key still verifies, without the store. Refused tokens aren't cached.
    """

    def __init__(
        self, keys: AccountKeys, wall: WallClock, user_ttl: int, host_ttl: int, cache_limit: int = CACHED_TOKENS
    ) -> None:
        self._keys = keys
        self._wall = wall
        self._lifetimes = {"user": user_ttl, "host": host_ttl}
        self._cache_limit = cache_limit
        self._cached_tokens: OrderedDict[bytes, _VerifiedToken] = OrderedDict()

    async def issue_token(self, admitted: Admitted, until: float = math.inf) -> bytes:
        """Return the JSON text of a new access token for a user or host that was admitted; raises as ``signer`` does.

        It ends ``until`` a moment, in seconds since 1970, or before.
        """
        key = await self._keys.load_signing_key(admitted.signing_key)
        now = int(self._wall.seconds())
        lifetime = int(min(admitted.lifetime or self._lifetimes[admitted.role.kind], until - now))
        return key.mint_token(admitted.role, now, lifetime, admitted.creation, admitted.epoch)

    async def find_caller(self, authorization: bytes | None) -> Caller:
        """Return the role that the value of an ``Authorization`` header proves.

        :raises BearerRefused: it is absent, or proves none, or no longer.
        """
        if authorization is None:
            raise BearerRefused(MISSING)
        digest = hashlib.sha256(authorization).digest()
        now = self._wall.seconds()
        known = self._cached_tokens.get(digest)
        if known is not None and now < known.expires_at and self._keys.can_verify(known.key_id, now):
            self._cached_tokens.move_to_end(digest)
            return known.caller
        self._cached_tokens.pop(digest, None)
        known = await self._verify_header(authorization)
        self._evict_tokens(now)
        self._cached_tokens[digest] = known
        return known.caller

    def _evict_tokens(self, now: float) -> None:
        """Make room for one more: of those used longest ago, drop the dead, and one in any case when there is no room."""
        while self._cached_tokens:
            oldest = next(iter(self._cached_tokens.values()))
            if len(self._cached_tokens) < self._cache_limit and now < oldest.expires_at:
                return
            self._cached_tokens.popitem(last=False)

    async def _verify_header(self, authorization: bytes) -> _VerifiedToken:
        token = parse_authorization(authorization)
        key = await self._keys.load_verification_key(token.key_id)
        if key is None:
            raise BearerRefused(INVALID)
        read = key.verify(token, self._wall.seconds())
        caller = Caller(read.role, read.issued_at, read.creation, read.epoch, read.expires_at)
        return _VerifiedToken(token.key_id, read.expires_at, caller)

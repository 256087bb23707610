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
from svc.model.ports import IAccounts
from svc.model.query_results import Caller, Sealed, StoredSigningKey
from svc.model.reasons import Reason

REFRESHED: Final = 500  #: most keys that one refresh asks for
TOKENS_REMEMBERED: Final = 16 * 1024  #: verified tokens, which take about 10 MB together


def new_signing_key(vault: Vault, account: str, now: float) -> StoredSigningKey:
    """Make a signing key for ``account``, sealed as the store keeps it."""
    key = SigningKey.new(account)
    key_id = key.verification.key_id
    return StoredSigningKey(account, key_id, vault.seal(signing_key_name(account, key_id), key.private_bytes()), now)


@attrs.frozen
class _Held:
    key: SigningKey
    retires_at: float | None
    sealed: Sealed

    def verifies(self, now: float) -> bool:
        return self.retires_at is None or now < self.retires_at


class AccountKeys:
    """The account signing keys of the store, each opened when it is first needed, and cached until it is gone.

    Later changes of a cached key, its retirement above all, arrive with :meth:`refresh`, in a round of health. A key that
    doesn't open raises ``WrongDataKey``.
    """

    def __init__(self, accounts: IAccounts, vault: Vault, wall: WallClock) -> None:
        self._accounts = accounts
        self._vault = vault
        self._wall = wall
        self._ring: OrderedDict[str, _Held] = OrderedDict()

    async def signer(self, key_id: str) -> SigningKey:
        """Return the key to sign with, which the store named as its account's newest.

        :raises AuthenticationRefused: it went with its account since.
        """
        held = self._ring.get(key_id) or await self._load(key_id)
        if held is None:
            raise AuthenticationRefused(Reason.ACCOUNT_UNKNOWN)
        return held.key

    async def verifier(self, key_id: str) -> VerificationKey | None:
        """Return the key to verify with, ``None`` when there is none of that id or it has retired."""
        held = self._ring.get(key_id) or await self._load(key_id)
        return held.key.verification if held is not None and held.verifies(self._wall.seconds()) else None

    def verifies(self, key_id: str, now: float) -> bool:
        """Return whether the key of that id is cached and verifies tokens at ``now``; the store isn't queried."""
        held = self._ring.get(key_id)
        return held is not None and held.verifies(now)

    async def public_keys(self, account: str) -> list[dict[str, str]]:
        """Return the keys that verify an account's tokens now, as members of a JWK set, the newest last."""
        now = self._wall.seconds()
        held = [self._hold(stored) for stored in await self._accounts.list_signing_keys(account)]
        return [each.key.verification.public_jwk() for each in held if each.verifies(now)]

    async def signers(self, after: str, limit: int) -> Sequence[tuple[str, StoredSigningKey | None]]:
        """Return the next accounts after one, as ``IAccounts.list_newest_signing_keys``."""
        return await self._accounts.list_newest_signing_keys(after, limit)

    def hold(self, stored: StoredSigningKey) -> None:
        """Remember a key as it is stored, opened again if its bytes changed; if that fails, the old one goes on serving."""
        held = self._ring.get(stored.key_id)
        if held is None or held.sealed != stored.sealed:
            self._ring[stored.key_id] = self._opened(stored)

    async def refresh(self) -> None:
        """Update when cached keys retire, and drop those that the store no longer has: of many some, in turn."""
        asked = list(islice(self._ring, REFRESHED))
        stored = {key.key_id: key for key in await self._accounts.find_signing_keys(asked)} if asked else {}
        for key_id in asked:
            held = self._ring.pop(key_id, None)
            if held is not None and key_id in stored:
                self._ring[key_id] = attrs.evolve(held, retires_at=stored[key_id].retires_at)

    def forget(self, account: str) -> None:
        """Forget the keys of an account."""
        for key_id in [key_id for key_id, held in self._ring.items() if held.key.verification.account == account]:
            del self._ring[key_id]

    async def rotate(self, account: str, longest_lifetime: int) -> None:
        """Give the account a new key, and let the old one verify for ``longest_lifetime`` seconds, until its tokens end.

        :raises NotFound: the account is missing.
        """
        now = self._wall.seconds()
        await self._accounts.rotate_signing_key(new_signing_key(self._vault, account, now), now + longest_lifetime)
        self.forget(account)

    async def _load(self, key_id: str) -> _Held | None:
        for stored in await self._accounts.find_signing_keys([key_id]):
            return self._hold(stored)
        return None

    def _hold(self, stored: StoredSigningKey) -> _Held:
        known = self._ring.get(stored.key_id)
        held = self._opened(stored) if known is None else attrs.evolve(known, retires_at=stored.retires_at)
        self._ring[stored.key_id] = held
        return held

    def _opened(self, stored: StoredSigningKey) -> _Held:
        private = self._vault.open(signing_key_name(stored.account, stored.key_id), stored.sealed)
        return _Held(SigningKey.loaded(stored.account, private), stored.retires_at, stored.sealed)


@attrs.frozen
class _VerifiedToken:
    key_id: str
    expires_at: int
    caller: Caller


class AccessTokens:
    """Issues access tokens, and returns the callers of requests.

    Note [Remembered tokens]. To verify a token costs as much as the rest of a request for a secret. So the ``remembered``
    tokens that were used last are known by the SHA-256 of their header. Each use checks again that the token is alive and
    that its key still verifies, without the store. Refused tokens aren't cached.
    """

    def __init__(
        self, keys: AccountKeys, wall: WallClock, user_ttl: int, host_ttl: int, remembered: int = TOKENS_REMEMBERED
    ) -> None:
        self._keys = keys
        self._wall = wall
        self._lifetimes = {"user": user_ttl, "host": host_ttl}
        self._remembered = remembered
        self._verified: OrderedDict[bytes, _VerifiedToken] = OrderedDict()

    async def issue(self, admitted: Admitted, until: float = math.inf) -> bytes:
        """Return the JSON text of a new access token for a user or host that was admitted; raises as ``signer`` does.

        It ends ``until`` a moment, in seconds since 1970, or before.
        """
        key = await self._keys.signer(admitted.signing_key)
        now = int(self._wall.seconds())
        lifetime = int(min(admitted.lifetime or self._lifetimes[admitted.role.kind], until - now))
        return key.mint(admitted.role, now, lifetime, admitted.creation, admitted.epoch)

    async def caller(self, authorization: bytes | None) -> Caller:
        """Return the role that the value of an ``Authorization`` header proves.

        :raises BearerRefused: it is absent, or proves none, or no longer.
        """
        if authorization is None:
            raise BearerRefused(MISSING)
        digest = hashlib.sha256(authorization).digest()
        now = self._wall.seconds()
        known = self._verified.get(digest)
        if known is not None and now < known.expires_at and self._keys.verifies(known.key_id, now):
            self._verified.move_to_end(digest)
            return known.caller
        self._verified.pop(digest, None)
        known = await self._verify(authorization)
        self._forget(now)
        self._verified[digest] = known
        return known.caller

    def _forget(self, now: float) -> None:
        """Make room for one more: of those used longest ago, drop the dead, and one in any case when there is no room."""
        while self._verified:
            oldest = next(iter(self._verified.values()))
            if len(self._verified) < self._remembered and now < oldest.expires_at:
                return
            self._verified.popitem(last=False)

    async def _verify(self, authorization: bytes) -> _VerifiedToken:
        token = parse_authorization(authorization)
        key = await self._keys.verifier(token.key_id)
        if key is None:
            raise BearerRefused(INVALID)
        read = key.verify(token, self._wall.seconds())
        caller = Caller(read.role, read.issued_at, read.creation, read.epoch, read.expires_at)
        return _VerifiedToken(token.key_id, read.expires_at, caller)

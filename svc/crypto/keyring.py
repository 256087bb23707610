"""The signing keys of every account, opened once and remembered; access tokens issued and verified with them."""

from __future__ import annotations

import hashlib
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

#: Of how many remembered keys a refresh asks what has become of them.
REFRESHED: Final = 500

#: How many verified tokens are remembered; all of them together take about 10 MB.
TOKENS_REMEMBERED: Final = 16 * 1024


def new_signing_key(vault: Vault, account: str, now: float) -> StoredSigningKey:
    """Make a signing key for ``account``, sealed as the store keeps it."""
    key = SigningKey.new(account)
    key_id = key.verification.key_id
    return StoredSigningKey(account, key_id, vault.seal(signing_key_name(account, key_id), key.private_bytes()), now)


@attrs.frozen
class _Held:
    """``sealed`` is what it was opened from."""

    key: SigningKey
    retires_at: float | None
    sealed: Sealed

    def verifies(self, now: float) -> bool:
        return self.retires_at is None or now < self.retires_at


class AccountKeys:
    """The account signing keys of the store, each opened when it is first asked for, and remembered until it is gone.

    What the store says of a remembered key later, its retirement above all, arrives with :meth:`refresh`: with a round of
    health, while no more than ``REFRESHED`` are remembered.
    """

    def __init__(self, accounts: IAccounts, vault: Vault, wall: WallClock) -> None:
        self._accounts = accounts
        self._vault = vault
        self._wall = wall
        self._ring: OrderedDict[str, _Held] = OrderedDict()

    async def signer(self, key_id: str) -> SigningKey:
        """Return the key to sign with, which is the one that the store named as its account's newest.

        :raises AuthenticationRefused: it went with its account since.
        :raises WrongDataKey: it doesn't open.
        """
        held = self._ring.get(key_id) or await self._load(key_id)
        if held is None:
            raise AuthenticationRefused(Reason.ACCOUNT_UNKNOWN)
        return held.key

    async def verifier(self, key_id: str) -> VerificationKey | None:
        """Return the key to verify with, ``None`` when there is none of that id or it has retired.

        An id that is not in the ring costs one question to the store, each time that it is unknown there too.

        :raises WrongDataKey: the key doesn't open.
        """
        held = self._ring.get(key_id) or await self._load(key_id)
        return held.key.verification if held is not None and held.verifies(self._wall.seconds()) else None

    def verifies(self, key_id: str, now: float) -> bool:
        """Whether the key of that id is remembered and verifies tokens at ``now``; the store isn't asked."""
        held = self._ring.get(key_id)
        return held is not None and held.verifies(now)

    async def public_keys(self, account: str) -> list[dict[str, str]]:
        """The keys that verify an account's tokens now, as members of a JWK set, the newest last; none without account.

        :raises WrongDataKey: one of them doesn't open.
        """
        now = self._wall.seconds()
        held = [self._hold(stored) for stored in await self._accounts.signing_keys(account)]
        return [each.key.verification.public_jwk() for each in held if each.verifies(now)]

    async def signers(self, after: str, limit: int) -> Sequence[tuple[str, StoredSigningKey | None]]:
        """The next accounts in order after one, each with the key that it signs with, as the store has it."""
        return await self._accounts.signers(after, limit)

    def hold(self, stored: StoredSigningKey) -> None:
        """Remember a key as it is stored; one that was opened from other bytes is opened anew.

        :raises WrongDataKey: it doesn't open; the remembered one goes on serving.
        """
        held = self._ring.get(stored.key_id)
        if held is None or held.sealed != stored.sealed:
            self._ring[stored.key_id] = _Held(self._open(stored), stored.retires_at, stored.sealed)

    async def refresh(self) -> None:
        """Learn which remembered keys retire, and forget those that the store no longer has: of many some, in turn."""
        asked = list(islice(self._ring, REFRESHED))
        stored = {key.key_id: key for key in await self._accounts.signing_keys_named(asked)} if asked else {}
        for key_id in asked:
            held = self._ring.pop(key_id, None)
            if held is not None and key_id in stored:
                self._ring[key_id] = attrs.evolve(held, retires_at=stored[key_id].retires_at)

    def forget(self, account: str) -> None:
        """Forget the keys of an account: what the store has of them is asked when one is needed."""
        for key_id in [key_id for key_id, held in self._ring.items() if held.key.verification.account == account]:
            del self._ring[key_id]

    async def rotate(self, account: str, longest_lifetime: int) -> None:
        """Give the account a new key to sign with, and let the old one verify until the last token that it signed has died.

        ``longest_lifetime``: that of the longest-lived tokens, in seconds.

        :raises NotFound: there is no such account.
        """
        now = self._wall.seconds()
        await self._accounts.rotate_signing_key(new_signing_key(self._vault, account, now), now + longest_lifetime)
        self.forget(account)

    async def _load(self, key_id: str) -> _Held | None:
        for stored in await self._accounts.signing_keys_named([key_id]):
            return self._hold(stored)
        return None

    def _hold(self, stored: StoredSigningKey) -> _Held:
        known = self._ring.get(stored.key_id)
        held = (
            _Held(self._open(stored), stored.retires_at, stored.sealed)
            if known is None
            else attrs.evolve(known, retires_at=stored.retires_at)
        )
        self._ring[stored.key_id] = held
        return held

    def _open(self, stored: StoredSigningKey) -> SigningKey:
        name = signing_key_name(stored.account, stored.key_id)
        return SigningKey.loaded(stored.account, self._vault.open(name, stored.sealed))


@attrs.frozen
class _VerifiedToken:
    key_id: str
    expires_at: int
    caller: Caller


class AccessTokens:
    """Issues access tokens, and tells who the caller of a request is.

    Note [Remembered tokens]. To verify a token costs as much as all the rest of a request for a secret, and a caller sends
    the same one many times. So the ``remembered`` tokens that were used last are known by the SHA-256 of their header. Each
    use asks again whether the token is alive and its key still verifies, and asks nothing of the store. Refused tokens
    aren't remembered.
    """

    def __init__(
        self,
        keys: AccountKeys,
        wall: WallClock,
        user_ttl: int,
        host_ttl: int,
        remembered: int = TOKENS_REMEMBERED,
    ) -> None:
        self._keys = keys
        self._wall = wall
        self._lifetimes = {"user": user_ttl, "host": host_ttl}
        self._remembered = remembered
        self._verified: OrderedDict[bytes, _VerifiedToken] = OrderedDict()

    async def issue(self, admitted: Admitted) -> bytes:
        """Return the JSON text of a new access token for a user or host that was admitted.

        :raises AuthenticationRefused: its account is gone since.
        """
        key = await self._keys.signer(admitted.signing_key)
        lifetime = self._lifetimes[admitted.role.kind]
        return key.mint(admitted.role, int(self._wall.seconds()), lifetime, admitted.creation)

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
        """Make room for one more: of those used longest ago, forget the dead, and one in any case when there is no room."""
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
        return _VerifiedToken(token.key_id, read.expires_at, Caller(read.role, read.issued_at, read.creation))

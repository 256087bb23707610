"""Access tokens: minting, the ``Authorization`` header, verification; and the signing keys of accounts, cached.

Note [ES256]. An account signs with ECDSA on P-256, which more JOSE libraries know than Ed25519, and which is faster here: 20
µs against 26 to sign, 58 against 85 to verify. RSA-2048 signs in 250.

Note [Plain base64]. Published clients decode a token's parts as plain base64, where JOSE writes base64url. The two agree
without ``>`` ``?`` ``~`` and DEL, so the JSON inside escapes these like what is not ASCII, and the ``=`` padding stays.
Without the padding and joined by dots the parts are a JWS (RFC 7515 7.1); the padding is not signed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, Self

import attrs
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_der_private_key

from svc.crypto.vault import Vault, signing_key_name
from svc.model.authentication import Admitted
from svc.model.clocks import WallClock
from svc.model.errors import AuthenticationRefused, BearerRefused, InvalidName
from svc.model.names import ACTOR_KINDS, RoleName
from svc.model.query_results import Caller, Sealed, StoredSigningKey
from svc.model.reasons import Reason
from svc.model.strict_json import parse_json_value
from svc.storage.accounts import AccountStore

#: Longest ``Authorization`` header that is looked at, in bytes; the token with the longest name that can log in fits.
AUTHORIZATION_LIMIT: Final = 16 * 1024

# The texts of WIRE-30.
MISSING: Final = "Authorization missing"
MALFORMED: Final = "Malformed authorization token"
INVALID: Final = "Unauthorized: Invalid token"
UNRECOGNIZED: Final = "token contains unrecognized claims"

_ES256: Final = ec.ECDSA(hashes.SHA256())
_COORDINATE_BYTES: Final = 32
_PLAIN, _URL_SAFE = b"+/", b"-_"  # what base64 writes for 62 and 63
_AUTHORIZATION: Final = re.compile(rb'Token token=("?)([^"]*)\1')
#: The claims with the creation and the epoch of the token's role (TOK-28), and what these numbers are less than.
_CREATION: Final = "creation"
_EPOCH: Final = "epoch"
_NUMBERS: Final = 2**63
_KEY_ID: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_ESCAPES: Final = str.maketrans({character: f"\\u{ord(character):04x}" for character in ">?~\x7f"})


@attrs.frozen
class UnverifiedAccessToken:
    """A well-formed token whose signature hasn't been verified. ``signed`` is what that must cover."""

    key_id: str
    signed: bytes = attrs.field(repr=False)
    payload: bytes = attrs.field(repr=False)
    signature: bytes = attrs.field(repr=False)


@attrs.frozen
class AccessToken:
    """The claims of a verified token; times in seconds since 1970. ``creation`` and ``epoch`` are as in ``Caller``."""

    role: RoleName
    issued_at: int
    expires_at: int
    creation: int = 0
    epoch: int = 0


def parse_authorization(header: bytes | None) -> UnverifiedAccessToken:
    """Read ``Token token="<base64>"``, or the same without quotation marks (WIRE-28).

    The base64 is the standard one, padded or not, with any blanks and newlines. The JSON inside is an object of the three
    members, whose texts alone count: the client may have written it again (TOK-30).

    :raises BearerRefused: the header is absent, of another form, or doesn't hold a token of this service's form.
    """
    if header is None:
        raise BearerRefused(MISSING)
    if len(header) > AUTHORIZATION_LIMIT:
        raise BearerRefused(MALFORMED)
    form = _AUTHORIZATION.fullmatch(header)
    if form is None:
        raise BearerRefused(MISSING)
    try:
        token = parse_json_value(_decode_base64(b"".join(form[2].split()).decode("ascii"), _PLAIN))
    except ValueError:
        raise BearerRefused(MALFORMED) from None
    try:
        return _parse_token(token)
    except ValueError:
        raise BearerRefused(INVALID) from None


def has_token_form(evidence: bytes) -> bool:
    """Return whether evidence is written as a token of this service: its JSON, the base64 of that, or a header with it."""
    text = evidence.strip()
    for header in (text, b"Token token=" + text, b"Token token=" + base64.b64encode(text)):
        with suppress(BearerRefused):
            parse_authorization(header)
            return True
    return False


def _parse_token(token: object) -> UnverifiedAccessToken:
    match token:
        case {"protected": str(protected), "payload": str(payload), "signature": str(signature), **others} if not others:
            signed = f"{_strip_padding(protected)}.{_strip_padding(payload)}"
        case _:
            raise ValueError("not an object of three texts")
    match parse_json_value(_decode_base64(protected)):
        case {"alg": "ES256", "kid": str(key_id), **others} if not others and _KEY_ID.fullmatch(key_id):
            return UnverifiedAccessToken(key_id, signed.encode("ascii"), _decode_base64(payload), _decode_base64(signature))
        case _:
            raise ValueError("not a header of this service")


@attrs.frozen
class VerificationKey:
    """The public half of an account's signing key. ``key_id`` is its RFC 7638 thumbprint."""

    account: str
    key_id: str
    _public: ec.EllipticCurvePublicKey = attrs.field(repr=False, eq=False)

    def verify(self, token: UnverifiedAccessToken, now: float) -> AccessToken:
        """Return the claims of the token, if this key signed it and it hasn't expired at ``now``.

        The service grants its own tokens no leeway, and doesn't compare ``iat`` with the clock (TOK-29).

        :raises BearerRefused: the signature is wrong, the claims are not those of an access token, or it has expired.
        """
        if token.key_id != self.key_id or len(token.signature) != 2 * _COORDINATE_BYTES:
            raise BearerRefused(INVALID)
        r, s = (int.from_bytes(half) for half in (token.signature[:_COORDINATE_BYTES], token.signature[_COORDINATE_BYTES:]))
        try:
            self._public.verify(encode_dss_signature(r, s), token.signed, _ES256)
        except InvalidSignature:
            raise BearerRefused(INVALID) from None
        read = self._read_claims(token.payload)
        if read.expires_at <= now:
            raise BearerRefused(INVALID)
        return read

    def _read_claims(self, payload: bytes) -> AccessToken:
        try:
            match parse_json_value(payload):
                case {"iat": int(issued_at), "sub": str(subject), "exp": int(expires_at), **others} if bool not in {
                    type(issued_at),
                    type(expires_at),
                }:
                    role = RoleName.from_login(self.account, subject)
                case _:
                    raise BearerRefused(INVALID)
        except (ValueError, InvalidName):
            raise BearerRefused(INVALID) from None
        creation, epoch = (_read_number(others.pop(claim, 0)) for claim in (_CREATION, _EPOCH))
        if others:
            raise BearerRefused(UNRECOGNIZED)
        return AccessToken(role, issued_at, expires_at, creation, epoch)

    def public_jwk(self) -> dict[str, str]:
        """Return the key as a member of a JWK set (RFC 7517)."""
        return {**_required_members(self._public), "kid": self.key_id, "alg": "ES256", "use": "sig"}


@attrs.frozen
class SigningKey:
    """An account's key to sign access tokens with. ``verification`` is its public half."""

    verification: VerificationKey
    _private: ec.EllipticCurvePrivateKey = attrs.field(repr=False, eq=False)
    _protected: bytes = attrs.field(repr=False)

    @classmethod
    def generate(cls, account: str) -> Self:
        """Make a key for ``account``."""
        return cls._from_key(account, ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def from_bytes(cls, account: str, private: bytes) -> Self:
        """Take up what :meth:`private_bytes` returned."""
        key = load_der_private_key(private, password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return cls._from_key(account, key)

    @classmethod
    def _from_key(cls, account: str, private: ec.EllipticCurvePrivateKey) -> Self:
        public = private.public_key()
        thumbprint = hashlib.sha256(json.dumps(_required_members(public), separators=(",", ":")).encode("ascii"))
        key_id = _encode_base64(thumbprint.digest()).rstrip("=")
        protected = urlsafe_b64encode(b'{"alg":"ES256","kid":"%b"}' % key_id.encode("ascii"))
        return cls(VerificationKey(account, key_id, public), private, protected)

    def private_bytes(self) -> bytes:
        """Return the key to be sealed and stored, as PKCS #8 in DER."""
        return self._private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())

    def mint_token(self, role: RoleName, issued_at: int, lifetime: int, creation: int = 0, epoch: int = 0) -> bytes:
        """Return the JSON text of a token for ``role``, a user or host of this key's account.

        ``issued_at`` is in seconds since 1970, ``lifetime`` in seconds. ``creation`` and ``epoch`` are as in ``Caller``; a
        number of 0 is left out.
        """
        if role.kind not in ACTOR_KINDS or role.account != self.verification.account:
            raise ValueError(f"a key of {self.verification.account} signs no token for {role}")
        subject = json.dumps(role.login).translate(_ESCAPES)
        bound = f',"{_CREATION}":{creation}' if creation else ""
        bound += f',"{_EPOCH}":{epoch}' if epoch else ""
        claims = f'{{"iat":{issued_at},"sub":{subject},"exp":{issued_at + lifetime}{bound}}}'
        payload = urlsafe_b64encode(claims.encode("ascii"))
        signed = b"%b.%b" % (self._protected.rstrip(b"="), payload.rstrip(b"="))
        r, s = decode_dss_signature(self._private.sign(signed, _ES256))
        signature = urlsafe_b64encode(r.to_bytes(_COORDINATE_BYTES) + s.to_bytes(_COORDINATE_BYTES))
        return b'{"protected":"%b","payload":"%b","signature":"%b"}' % (self._protected, payload, signature)


def _read_number(claim: object) -> int:
    if type(claim) is not int or not 0 <= claim < _NUMBERS:
        raise BearerRefused(INVALID)
    return claim


def _required_members(public: ec.EllipticCurvePublicKey) -> dict[str, str]:
    """Return the members of a JWK that make its thumbprint, in the thumbprint's order (RFC 7638 3.2)."""
    point = public.public_numbers()
    x, y = (_encode_base64(coordinate.to_bytes(_COORDINATE_BYTES)).rstrip("=") for coordinate in (point.x, point.y))
    return {"crv": "P-256", "kty": "EC", "x": x, "y": y}


def _encode_base64(data: bytes, alphabet: bytes = _URL_SAFE) -> str:
    encoded = urlsafe_b64encode(data) if alphabet == _URL_SAFE else base64.b64encode(data, alphabet)
    return encoded.decode("ascii")


def _strip_padding(part: str) -> str:
    text = part.rstrip("=")
    if part not in (text, text + "=" * (-len(text) % 4)):
        raise ValueError("half padded")
    return text


def _decode_base64(part: str, alphabet: bytes = _URL_SAFE) -> bytes:
    """Decode base64, padded or not, in the one spelling that the encoder gives."""
    text = _strip_padding(part)
    data = base64.b64decode(text + "=" * (-len(text) % 4), alphabet)
    if _encode_base64(data, alphabet).rstrip("=") != text:
        raise ValueError("not canonical base64")
    return data


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
    retires_at: float
    sealed: Sealed


def _retirement_of(stored: StoredSigningKey) -> float:
    return math.inf if stored.retires_at is None else stored.retires_at


class SigningKeys:
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
        return held.key.verification if held is not None and self._wall.seconds() < held.retires_at else None

    def can_verify(self, key_id: str, now: float) -> bool:
        """Return whether the key of that id is cached and verifies tokens at ``now``; the store isn't queried."""
        held = self._cached_keys.get(key_id)
        return held is not None and now < held.retires_at

    async def public_keys(self, account: str) -> list[dict[str, str]]:
        """Return the keys that verify an account's tokens now, as members of a JWK set, the newest last."""
        now = self._wall.seconds()
        held = [self._cache_or_update(stored) for stored in await self._accounts.list_signing_keys(account)]
        return [each.key.verification.public_jwk() for each in held if now < each.retires_at]

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
                self._cached_keys[key_id] = attrs.evolve(held, retires_at=_retirement_of(stored[key_id]))

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
        held = self._open_key(stored) if known is None else attrs.evolve(known, retires_at=_retirement_of(stored))
        self._cached_keys[stored.key_id] = held
        return held

    def _open_key(self, stored: StoredSigningKey) -> _CachedKey:
        private = self._vault.open(signing_key_name(stored.account, stored.key_id), stored.sealed)
        return _CachedKey(SigningKey.from_bytes(stored.account, private), _retirement_of(stored), stored.sealed)


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
        self, keys: SigningKeys, wall: WallClock, user_ttl: int, host_ttl: int, cache_limit: int = CACHED_TOKENS
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

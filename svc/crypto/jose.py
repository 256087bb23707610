"""Third parties' signed tokens and key sets (RFC 7515, 7517, 7518, 7519): read strictly, verified, and nothing else.

Note [What is ours]. The reading of tokens and keys is ours, the cryptography is the ``cryptography`` library's. JOSE
libraries are kind to what they are given: PyJWT 2.15, for one, takes padding, members named twice, NaN, and keys that carry
private parts, and costs four times the RSA operation. Here a text has one reading or none. What is accepted is listed: three
algorithms, one key type, one serialisation. A header says which of the three digests was used and which key to try; it can't
bring a key, name a place to fetch one, or change what a signature means.

Note [Verified claims]. Nothing of a payload is read before its signature has been verified: :class:`Unverified` has no
claims, and only :meth:`KeySet.verify` makes :data:`SignedClaims`.

No message of this module repeats a token or a part of one, apart from the names of its algorithm and key.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Final, NewType

import attrs
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, HashAlgorithm

from svc.crypto.rsakeys import fault_of
from svc.model.reasons import Reason

#: Longest token, in bytes, unless the caller says otherwise (rulings 8).
TOKEN_LIMIT: Final = 16 * 1024

#: Deepest nesting of a JSON text (rulings 8).
NESTING_LIMIT: Final = 64

#: Most keys in a set. Providers publish a few; each costs time when the set is read.
KEYS_LIMIT: Final = 256

#: The algorithms that exist here, by their exact names (RFC 7518 3.3). All are RSASSA-PKCS1-v1_5.
_DIGESTS: Final[Mapping[str, HashAlgorithm]] = {"RS256": SHA256(), "RS384": SHA384(), "RS512": SHA512()}
_PADDING: Final = PKCS1v15()

#: Header parameters and their types (RFC 7515 4.1). Apart from ``kid`` nothing here reads them.
_TYPES: Final = {"jwk": dict, "x5c": list} | dict.fromkeys(("kid", "typ", "cty", "jku", "x5u", "x5t", "x5t#S256"), str)

#: Members that only a private or symmetric key has (RFC 7518 6.3.2, 6.4).
_SECRET_MEMBERS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})

#: Characters of a foreign text, and keys or problems of keys, that a message shows.
_SHOWN: Final = 100
_NAMED: Final = 5


@attrs.frozen(str=False)
class Malformed(Exception):
    """A text is not what it has to be; raised by the readers of this module.

    ``why`` says so in words that can stand after "it": "it is no JSON object".
    """

    why: str

    def __str__(self) -> str:
        return self.why


@attrs.frozen(str=False)
class EvidenceRefused(Exception):
    """A token proves nothing; raised here and by ``authenticators.claims``, and made a ``Refused`` by the authenticator.

    ``detail`` is for operators: bounded, without control characters, and never holds the token. ``retry_after``: the seconds
    after which a token may be judged that can't be now.
    """

    reason: Reason
    detail: str
    retry_after: int | None = None

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


def shown(text: str) -> str:
    """A text from outside as it may stand in a message: quoted, shortened, without control characters or odd Unicode."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


# -- strict texts -----------------------------------------------------------------------------------------------------

_URL_ALPHABET: Final = bytes.maketrans(b"-_+/=", b"+/!!!")
_NEEDLESS_BITS: Final = {2: b"AQgw", 3: b"AEIMQUYcgkosw048"}


def base64url(text: bytes) -> bytes:
    """Decode base64url without padding, in its one canonical spelling (RFC 7515 2, RFC 4648 3.5).

    :raises Malformed: a foreign character, padding, an impossible length, or bits set where none belong.
    """
    rest = len(text) % 4
    if rest and text[-1] not in _NEEDLESS_BITS.get(rest, b""):
        raise Malformed("it is not canonical base64url")
    try:
        return binascii.a2b_base64(text.translate(_URL_ALPHABET) + b"=" * (-rest % 4), strict_mode=True)
    except binascii.Error:
        raise Malformed("it is not base64url without padding") from None


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Malformed("it names a member twice")
    return members


def _no_constant(_: str) -> object:
    raise Malformed("it holds NaN or Infinity, which are no JSON")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_constant=_no_constant)
# A string may lack its end, so that the match of one never fails: to try again from each of its characters takes forever.
_STRINGS_AND_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)


def json_object(document: bytes) -> dict[str, object]:
    """Read a JSON object: UTF-8, no member twice, no NaN, at most ``NESTING_LIMIT`` deep (RFC 7493; rulings 8).

    :raises Malformed: the document is anything else.
    """
    try:
        text = document.decode("utf-8").strip(" \t\n\r")
    except UnicodeDecodeError:
        raise Malformed("it is not UTF-8") from None
    if text.count("[") + text.count("{") > NESTING_LIMIT and _depth(text) > NESTING_LIMIT:
        raise Malformed(f"it is nested more than {NESTING_LIMIT} deep")
    try:
        value, end = _DECODER.raw_decode(text)
    except ValueError:  # a syntax error, or an integer of thousands of digits
        raise Malformed("it is not JSON") from None
    if end != len(text) or not isinstance(value, dict):
        raise Malformed("it is no JSON object, or not only one")
    return value


def _depth(text: str) -> int:
    depth = deepest = 0
    for match in _STRINGS_AND_BRACKETS.finditer(text):
        mark = match.group()[0]
        if mark in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif mark != '"':
            depth -= 1
    return deepest


# -- tokens -----------------------------------------------------------------------------------------------------------

#: The claims of a token whose signature has been verified (Note [Verified claims]).
SignedClaims = NewType("SignedClaims", Mapping[str, object])


@attrs.frozen
class Unverified:
    """A token in good form, of which nothing is known to be true. Only its header has been read."""

    algorithm: str
    key_id: str | None
    signing_input: bytes = attrs.field(repr=False)
    payload: bytes = attrs.field(repr=False)
    signature: bytes = attrs.field(repr=False)


def parse_compact(token: bytes, limit: int = TOKEN_LIMIT) -> Unverified:
    """Take a compact JWS apart (RFC 7515 7.1): three parts in base64url, the first a JSON header that is wholly understood.

    :raises EvidenceRefused: the token is longer than ``limit`` bytes, malformed, unsigned, of another algorithm, or has
        header parameters that change the meaning of the signature.
    """
    if len(token) > limit:
        raise EvidenceRefused(Reason.TOKEN_TOO_LARGE, f"the token has {len(token)} bytes, {limit} are allowed")
    parts = token.split(b".", 3)
    if len(parts) != 3:
        raise EvidenceRefused(Reason.TOKEN_MALFORMED, "the token does not have three parts separated by dots")
    if not parts[0] or not parts[1]:
        raise EvidenceRefused(Reason.TOKEN_MALFORMED, "the token has an empty part")
    if not parts[2]:
        raise EvidenceRefused(Reason.TOKEN_UNSIGNED, "the token has no signature")
    algorithm, key_id = _read_header(parts[0])
    try:
        payload, signature = base64url(parts[1]), base64url(parts[2])
    except Malformed as error:
        raise EvidenceRefused(Reason.TOKEN_MALFORMED, f"a part of the token is unusable: {error}") from None
    return Unverified(algorithm, key_id, token[: -len(parts[2]) - 1], payload, signature)


@functools.lru_cache(maxsize=64)  # the tokens of one provider and key begin with the same bytes
def _read_header(part: bytes) -> tuple[str, str | None]:
    """The algorithm and the key id. What else is well formed is ignored, ``jwk``, ``jku``, ``x5c`` and ``x5u`` above all."""
    try:
        header = json_object(base64url(part))
    except Malformed as error:
        raise EvidenceRefused(Reason.TOKEN_MALFORMED, f"the token's header is unusable: {error}") from None
    algorithm = header.get("alg")
    if not isinstance(algorithm, str):
        raise EvidenceRefused(Reason.TOKEN_MALFORMED, "the token's header names no algorithm")
    if algorithm.lower() == "none":
        raise EvidenceRefused(Reason.TOKEN_UNSIGNED, f"the token's algorithm is {shown(algorithm)}")
    if algorithm not in _DIGESTS:
        raise EvidenceRefused(Reason.ALGORITHM_REFUSED, f"the algorithm is {shown(algorithm)}, not RS256, RS384 or RS512")
    for name in ("crit", "b64"):
        if name in header:
            raise EvidenceRefused(Reason.CRITICAL_HEADER, f"the token's header has {name!r}, which nothing here understands")
    for name, kind in _TYPES.items():
        if not isinstance(header.get(name, kind()), kind):
            raise EvidenceRefused(Reason.TOKEN_MALFORMED, f"the token's header has {name!r} of the wrong type")
    key_id = header.get("kid")
    return algorithm, key_id if isinstance(key_id, str) else None


# -- keys -------------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class VerificationKey:
    """A usable public key of a set. ``thumbprint`` is the one of RFC 7638, SHA-256, in base64url."""

    key_id: str | None
    thumbprint: str
    algorithms: frozenset[str]
    public: RSAPublicKey = attrs.field(repr=False)


@attrs.frozen(eq=False)
class KeySet:
    """The usable keys that one document held, and what was wrong with others, a sentence each.

    Keys have distinct ids; a key without id is alone in its set (rulings 2.5). Two sets are never equal: what was fetched
    later is another set.
    """

    keys: tuple[VerificationKey, ...]
    problems: tuple[str, ...] = ()
    _by_id: Mapping[str | None, VerificationKey] = attrs.field(init=False, repr=False)

    @_by_id.default
    def _index(self) -> Mapping[str | None, VerificationKey]:
        return {key.key_id: key for key in self.keys}

    @property
    def why_unusable(self) -> str:
        """What to say of a set without usable key, with the first few of its problems."""
        return " ".join(["it has no usable key.", *self.problems[:_NAMED]])

    def verify(self, token: Unverified, distrusted: frozenset[str] = frozenset()) -> SignedClaims:
        """Verify the signature and return the claims, whose values are not yet checked for anything.

        A key verifies nothing when its thumbprint, one of its ids, or the one by which the token calls it is ``distrusted``.
        That is looked at last: a wrong signature under a distrusted key may be a right one by the key that took its place.

        :raises EvidenceRefused: no key of this set verifies the token, or its payload is no JSON object.
        """
        key = self.key_for(token)
        if token.algorithm not in key.algorithms:
            raise EvidenceRefused(
                Reason.ALGORITHM_REFUSED, f"the key is for {', '.join(sorted(key.algorithms))}, not {token.algorithm}"
            )
        try:
            key.public.verify(token.signature, token.signing_input, _PADDING, _DIGESTS[token.algorithm])
        except InvalidSignature:
            raise EvidenceRefused(Reason.SIGNATURE_WRONG, f"the signature is not by the key {_named(key.key_id)}") from None
        names = {other.key_id for other in self.keys if other.thumbprint == key.thumbprint} if distrusted else ()
        for name in (key.thumbprint, token.key_id, *names):
            if name in distrusted:
                raise EvidenceRefused(Reason.KEY_DISTRUSTED, f"the key {_named(name)} is distrusted here")
        try:
            return SignedClaims(json_object(token.payload))
        except Malformed as error:
            raise EvidenceRefused(Reason.TOKEN_MALFORMED, f"the token's payload is unusable: {error}") from None

    def key_for(self, token: Unverified) -> VerificationKey:
        """The one key that the token can be signed with; a missing id on either side is no hindrance in a set of one."""
        key = self._by_id.get(token.key_id)
        if key is not None:
            return key
        if len(self.keys) == 1 and None in {token.key_id, self.keys[0].key_id}:
            return self.keys[0]
        if token.key_id is None:
            raise EvidenceRefused(
                Reason.KEY_ID_MISSING, f"the token names no key, and there are {len(self.keys)} to choose from"
            )
        known = ", ".join(_named(key.key_id) for key in self.keys[:_NAMED])
        raise EvidenceRefused(
            Reason.KEY_UNKNOWN, f"the token names the key {shown(token.key_id)}; usable are {known or 'none'}"
        )


def _named(key_id: str | None) -> str:
    return "without id" if key_id is None else shown(key_id)


def parse_key_set(document: bytes) -> KeySet:
    """Read a JWK set (RFC 7517 5), as a provider publishes it.

    :raises Malformed: it is no JWK set. A set of which no key is usable is one.
    """
    return key_set(json_object(document))


def key_set(members: Mapping[str, object]) -> KeySet:
    """Make a set of the members of a JWK set.

    Keys of other types and uses are skipped. Private, symmetric, weak and malformed keys are left out and reported, and so
    are all that share an id without being the same key (rulings 2.5).

    :raises Malformed: it has no list of keys, or too long a one.
    """
    entries = members.get("keys")
    if not isinstance(entries, list):
        raise Malformed("it is no JWK set: it has no list of keys")
    if len(entries) > KEYS_LIMIT:
        raise Malformed(f"it has {len(entries)} keys, {KEYS_LIMIT} are allowed")
    problems = []
    found: dict[str | None, list[VerificationKey]] = {}
    for number, entry in enumerate(entries, 1):
        try:
            key = _verification_key(entry)
        except Malformed as error:
            label = _named(entry.get("kid")) if isinstance(entry, dict) and isinstance(entry.get("kid"), str) else ""
            problems.append(f"key {number} {label}".rstrip() + f" is refused: {error}")
            continue
        if key is not None:
            found.setdefault(key.key_id, []).append(key)
    nameless = found.pop(None, [])
    usable: list[VerificationKey] = []
    for key_id, keys in found.items():
        if len({key.thumbprint for key in keys}) == 1:
            usable.append(attrs.evolve(keys[0], algorithms=frozenset().union(*(key.algorithms for key in keys))))
        else:
            problems.append(f"{len(keys)} different keys are refused: they share the id {_named(key_id)}")
    if len(nameless) == 1 and not found:
        usable = nameless
    elif nameless:
        problems.append(f"{len(nameless)} keys without id are refused: the set holds others")
    return KeySet(tuple(usable), tuple(problems))


def _verification_key(entry: object) -> VerificationKey | None:
    """Read one JWK; ``None`` for one that verifies nothing here.

    :raises Malformed: it has no place in a set of public keys, or is too weak, too large, or not well formed.
    """
    if not isinstance(entry, dict):
        raise Malformed("it is no JSON object")
    if entry.get("kty") == "oct" or not _SECRET_MEMBERS.isdisjoint(entry):
        raise Malformed("it is symmetric or holds private parts")
    if not isinstance(entry.get("kty"), str):
        raise Malformed("it has no type")
    algorithms = frozenset(algorithm for algorithm in _DIGESTS if entry.get("alg", algorithm) == algorithm)
    operations = entry.get("key_ops", ["verify"])
    verifies = entry.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
    if entry["kty"] != "RSA" or not algorithms or not verifies:
        return None
    key_id = entry.get("kid")
    if not (isinstance(key_id, str) or (key_id is None and "kid" not in entry)):
        raise Malformed("its id is no text")
    exponent, modulus = _number(entry, "e"), _number(entry, "n")
    fault = fault_of(exponent, modulus)
    if fault is not None:
        raise Malformed(fault)
    return VerificationKey(
        key_id, _thumbprint(exponent, modulus), algorithms, RSAPublicNumbers(exponent, modulus).public_key()
    )


def _number(entry: Mapping[str, object], member: str) -> int:
    """A ``Base64urlUInt`` (RFC 7518 2). Leading zero octets, which some providers write, change nothing."""
    text = entry.get(member)
    if not isinstance(text, str) or not text.isascii():
        raise Malformed(f"it has no {member!r}")
    return int.from_bytes(base64url(text.encode("ascii")), "big")


def _thumbprint(exponent: int, modulus: int) -> str:
    e, n = (_url_text(number.to_bytes((number.bit_length() + 7) // 8, "big")) for number in (exponent, modulus))
    return _url_text(hashlib.sha256(f'{{"e":"{e}","kty":"RSA","n":"{n}"}}'.encode("ascii")).digest())


def _url_text(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode("ascii")

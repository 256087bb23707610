"""Tokens that were tampered with, and three readers that say what they make of each.

``tokens(count)`` yields tokens; a seed makes them the same in every run. Some are a good token with other octets, parts,
spellings or signatures; some have another header or payload under the signature of the unchanged one; and some have been
signed again, with a right key, over a header or payload that is not what it should be. The last are the ones that only a
strict reader refuses.

The readers are this service (``svc.crypto`` and the checks of ``svc.authn.checks``), PyJWT and joserfc. Each gets the
same keys, the same algorithms, issuer and audience, and demands an expiry. Times are decades away from now, since
PyJWT can't be told the time. Of ``sub`` and ``jti`` the libraries are not asked: here they mean nothing by themselves.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Any, Final

import attrs
import jwt
from joserfc import jwt as joserfc_jwt
from joserfc.jwk import KeySet as JoserfcKeys
from joserfc.jws import JWSRegistry
from joserfc.registry import HeaderParameter

from svc.crypto.jws import parse_compact, verify_token
from svc.crypto.key_sets import parse_key_set
from svc.model.key_sets import ALGORITHMS, EvidenceRefused
from tests.authn.verified import check_audience, check_begun, check_expiry, check_issuer
from tests.signing import base64url, jwk_for, jwks, private_key, sign, token

ISSUER: Final = "https://idp.example"
AUDIENCE: Final = "svc"
PAST, NOW, FUTURE = 1_000_000_000, 1_800_000_000, 4_000_000_000
#: Keys, and the algorithms that each signs with.
SIGNERS: Final = {
    "k1": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "k2": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "e1": ("ES256",),
    "e2": ("ES384",),
    "d1": ("EdDSA",),
}
HEADER: Final = {"alg": '"RS256"', "typ": '"JWT"', "kid": '"k1"'}
PAYLOAD: Final = {
    "iss": json.dumps(ISSUER),
    "aud": json.dumps(AUDIENCE),
    "exp": str(FUTURE),
    "iat": str(PAST),
    "sub": '"build"',
    "nested": '{"a":[1,2.5,null,true]}',
}

# -- readers ----------------------------------------------------------------------------------------------------------

#: Claims that mean nothing to this service, unless a setting or annotation names them; then only text will do.
_MEANINGLESS: Final = frozenset({"sub", "jti"})

Reader = Callable[[bytes], Mapping[str, Any]]


def readers() -> tuple[Reader, dict[str, Reader]]:
    """Our reader, and the libraries' by name. Each returns the claims of a token, or raises whatever it likes."""
    document = jwks(*(jwk_for(algorithms[0], name) for name, algorithms in SIGNERS.items()))
    keys = parse_key_set(document, ALGORITHMS)
    # A ``PyJWK`` that doesn't name its algorithm would be for RS256 alone.
    pyjwt_keys = {key.key_id: key.key for key in jwt.PyJWKSet.from_json(document.decode("ascii")).keys}
    joserfc_keys = JoserfcKeys.import_key_set(json.loads(document))
    # Parameters that nobody knows are to be ignored (RFC 7515 4), and where keys are said to be nobody goes.
    unread = {
        "jku": HeaderParameter("", _is(str)),
        "x5u": HeaderParameter("", _is(str)),
        "jwk": HeaderParameter("", _is(dict)),
        "x5c": HeaderParameter("", _is(list)),
    }
    header_rules = JWSRegistry(unread, list(ALGORITHMS), strict_check_header=False)
    claim_rules = joserfc_jwt.JWTClaimsRegistry(
        now=NOW,
        leeway=0,
        exp={"essential": True},
        iss={"essential": True, "value": ISSUER},
        aud={"essential": True, "value": AUDIENCE},
    )

    def svc(text: bytes) -> Mapping[str, Any]:
        claims = verify_token(keys, parse_compact(text, algorithms=ALGORITHMS))
        check_expiry(claims, NOW, 0)
        check_begun(claims, "nbf", NOW, 0)
        check_issuer(claims, ISSUER, mandatory=True)
        check_begun(claims, "iat", NOW, 0)
        check_audience(claims, AUDIENCE)
        return claims

    def pyjwt(text: bytes) -> Mapping[str, Any]:
        claims: Mapping[str, Any] = jwt.decode(
            text,
            pyjwt_keys[jwt.get_unverified_header(text)["kid"]],
            algorithms=list(ALGORITHMS),
            issuer=ISSUER,
            audience=AUDIENCE,
            options={"require": ["exp"], "verify_sub": False, "verify_jti": False},
        )
        return claims

    def joserfc(text: bytes) -> Mapping[str, Any]:
        claims = joserfc_jwt.decode(text, joserfc_keys, registry=header_rules).claims
        claim_rules.validate({name: value for name, value in claims.items() if name not in _MEANINGLESS})
        return claims

    return svc, {"PyJWT": pyjwt, "joserfc": joserfc}


def _is(kind: type) -> Callable[[object], None]:
    def check(value: object) -> None:
        if not isinstance(value, kind):
            raise ValueError(value)

    return check


@attrs.define
class Comparison:
    """How many tokens there were, how many this service accepted, and those of them that a library refuses or reads as
    something else.
    """

    count: int = 0
    accepted: int = 0
    disputed: list[str] = attrs.Factory(list)


def compare(texts: Iterable[bytes]) -> Comparison:
    """Have each token read by this service, and each that it accepts by the libraries too."""
    comparison = Comparison()
    svc, libraries = readers()
    for text in texts:
        comparison.count += 1
        try:
            ours = svc(text)
        except EvidenceRefused:
            continue
        comparison.accepted += 1
        for name, read in libraries.items():
            try:
                theirs: object = read(text)
            except Exception as error:  # libraries raise what they like at what they don't like
                theirs = error
            if theirs != ours:
                comparison.disputed.append(f"{name}: {theirs!r}: {text!r}")
    return comparison


# -- mutations --------------------------------------------------------------------------------------------------------

_OCTETS: Final = b".=+/-_ \t\n\r\x00%~{}\"'A\x80\xff"

_VALUES: Final = (
    *("null", "true", "false", "0", "-1", "1e400", "-1e400", "NaN", "Infinity", "01", "1" * 5000),
    *('""', '"JWT"', '"jwt"', '"none"', '"None"', '"HS256"', '"ES256"', '"PS256"', '"EdDSA"', '"rs256"', '"RS256 "'),
    *('"RS256"', '"RS384"', '["RS256"]', '"k1"', '"k2"', '"k3"', '"K1"', '"k1\\u0000"', '"k\\u0031"', '["k1"]', '"../k1"'),
    *("[]", "{}", '["exp"]', '["b64"]', "[" * 70 + "]" * 70, '"\\ud800"', '"\udcff"', '"é"', '"https://evil.example/keys"'),
    *("1000000000", "4000000000", "4e9", "1e9", "4000000000.5", "-4000000000", '"4000000000"', '"1000000000"'),
    *(json.dumps(ISSUER), json.dumps([ISSUER]), json.dumps(ISSUER + "/"), json.dumps(ISSUER[:-1]), '"HTTPS://IDP.EXAMPLE"'),
    *('"svc"', '["svc"]', '["x","svc"]', '["svc",1]', '["svc",null]', '"SVC"', '"svc "', '"\\u0073vc"', '["sv","c"]'),
)
_HEADERS: Final = (
    *("alg", "kid", "typ", "cty", "crit", "b64", "jku", "jwk", "x5u", "x5c", "x5t", "x5t#S256"),
    *("enc", "zip", "epk", "p2c", "Alg", "iss", "nonce", "exp"),
)
_CLAIMS: Final = ("exp", "nbf", "iat", "iss", "aud", "sub", "jti", "azp", "Exp", "nested", "")


def _good(random: Random) -> bytes:
    """One of the few good tokens, made once."""
    return random.choice(_goods)


_goods: list[bytes] = []


def tokens(count: int, seed: int = 0) -> Iterator[bytes]:
    """So many tokens; the first of a longer series are the tokens of a shorter one."""
    random = Random(seed)
    if not _goods:
        claims = json.loads(_written(PAYLOAD))
        _goods.extend(token(claims, key, algorithm) for key, algorithms in SIGNERS.items() for algorithm in algorithms)
    kinds, weights = zip(*_KINDS.items(), strict=True)
    for kind in random.choices(kinds, weights, k=count):
        yield kind(random)


def _octets(random: Random) -> bytes:
    """A few octets changed, added, removed or repeated."""
    text = bytearray(_good(random))
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(text))
        octet = random.choice(_OCTETS) if random.random() < 0.7 else random.randrange(256)
        way = random.randrange(5)
        if way == 0:
            text[at] = octet
        elif way == 1:
            text.insert(at, octet)
        elif way == 2:
            del text[at]
        elif way == 3:
            text[at:at] = text[at : at + random.randint(1, 40)]
        else:
            text.append(octet)
    return bytes(text)


def _parts(random: Random) -> bytes:
    """Parts left out, emptied, repeated, exchanged, or taken from another good token."""
    parts, others = _good(random).split(b"."), _good(random).split(b".")
    at = random.randrange(3)
    way = random.randrange(6)
    if way == 0:
        del parts[at]
    elif way == 1:
        parts[at] = b""
    elif way == 2:
        parts.insert(at, random.choice([b"", parts[at], b"e30"]))
    elif way == 3:
        parts[at] = parts[at - 1]
    elif way == 4:
        parts[at] = others[at]
    else:
        parts = [*parts, *others][: random.randint(4, 6)]
    return b".".join(parts)


def _spelling(random: Random) -> bytes:
    """A part in another spelling of the same octets, or nearly."""
    parts = _good(random).split(b".")
    at = random.randrange(3)
    part = parts[at]
    parts[at] = random.choice(
        [
            part + b"=" * (-len(part) % 4),
            part + b"=",
            part + b"==",
            part + b"A",
            part + b"AAAA",
            part[:-1] + bytes([part[-1] + 1]),
            part[:-1] + bytes([part[-1] - 1]),
            part.replace(b"-", b"+").replace(b"_", b"/"),
            part[:40] + random.choice([b"\n", b"\r\n", b" ", b"\t", b"\x00", b"=", b"%0A"]) + part[40:],
            random.choice([b" ", b"\n", b'"']) + part,
            base64.b64encode(part).rstrip(b"="),
            part.lower(),
        ]
    )
    return b".".join(parts)


def _bits(random: Random) -> bytes:
    """A bit of what a part means turned."""
    parts = _good(random).split(b".")
    at = random.randrange(3)
    octets = bytearray(base64.urlsafe_b64decode(parts[at] + b"=="))
    octets[random.randrange(len(octets))] ^= 1 << random.randrange(8)
    parts[at] = base64url(bytes(octets)).encode("ascii")
    return b".".join(parts)


def _signature(random: Random) -> bytes:
    """A signature cut, extended, shifted by the modulus, turned round, or of nothing but one octet."""
    head, _, last = _good(random).rpartition(b".")
    octets = base64.urlsafe_b64decode(last + b"==")
    moved = int.from_bytes(octets, "big") + private_key("k1").public_key().public_numbers().n
    other = random.choice(
        [
            octets[:-1],
            octets[1:],
            octets + b"\x00",
            b"\x00" + octets,
            octets[::-1],
            moved.to_bytes(257, "big").lstrip(b"\x00"),
            bytes([random.randrange(256)]) * random.choice([1, 64, 255, 256, 257, 512]),
        ]
    )
    return head + b"." + base64url(other).encode("ascii")


def _written(members: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in members.items()) + "}"


def _document(random: Random, members: Mapping[str, str], names: tuple[str, ...]) -> bytes:
    """A header or payload with members changed, added and removed, and perhaps written oddly."""
    changed = dict(members)
    for _ in range(random.randint(0, 2)):
        changed[random.choice(names)] = random.choice(_VALUES)
    if random.random() < 0.15:
        del changed[random.choice(list(changed))]
    text = _written(changed)
    if random.random() < 0.25:
        name, value = random.choice(list(changed.items()))
        text = random.choice(
            [
                text[:-1] + f",{json.dumps(name)}:{value}}}",
                text[:-1] + f',"\\u{ord((name or "a")[0]):04x}{name[1:]}":{random.choice(_VALUES)}}}',
                text[:-1] + ",}",
                text.replace(",", " ,\n\t "),
                text.replace('"', "'"),
                f"[{text}]",
                f"{text}{text}",
                f" {text}\n",
                f"\ufeff{text}",
                f"{text}\x00",
                f"/**/{text}",
                text[: random.randrange(len(text))],
            ]
        )
    encoding = random.choices(["utf-8", "utf-16", "latin-1"], [30, 1, 1])[0]
    return text.encode(encoding, {"utf-8": "surrogateescape", "utf-16": "surrogatepass"}.get(encoding, "replace"))


def _swapped(random: Random) -> bytes:
    """Another header or payload under an old signature."""
    parts = _good(random).split(b".")
    header, payload = _document(random, HEADER, _HEADERS), _document(random, PAYLOAD, _CLAIMS)
    at = random.randrange(2)
    parts[at] = base64url((header, payload)[at]).encode("ascii")
    return b".".join(parts)


def _signed(random: Random) -> bytes:
    """Another header or payload, rightly signed with a right key, by whatever algorithm."""
    header, payload = _written(HEADER).encode(), _written(PAYLOAD).encode()
    if random.random() < 0.5:
        header = _document(random, HEADER, _HEADERS)
    else:
        payload = _document(random, PAYLOAD, _CLAIMS)
    signing_input = f"{base64url(header)}.{base64url(payload)}".encode("ascii")
    signer = random.choices(list(SIGNERS), [12, 1, 1, 1, 1])[0]
    return sign(signing_input, signer, random.choice(SIGNERS[signer]) if random.random() < 0.2 else SIGNERS[signer][0])


#: The ways to tamper, and how often each comes. To sign costs a hundred times what all else does.
_KINDS: Final[Mapping[Callable[[Random], bytes], int]] = {
    _octets: 25,
    _parts: 12,
    _spelling: 15,
    _bits: 15,
    _signature: 8,
    _swapped: 18,
    _signed: 7,
}

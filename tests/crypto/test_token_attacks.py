"""Published attacks on signed tokens, each of which must fail (RFC 8725 and its kin).

What needs claims, settings or a host is in ``authenticators/test_attacks``; what needs sockets in ``integration/``.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from twisted.trial.unittest import SynchronousTestCase

from svc.crypto.jws import parse_compact, verify_token
from svc.crypto.key_sets import parse_key_set
from svc.model.key_sets import EvidenceRefused, KeySet
from svc.model.reasons import Reason
from svc.model.strict_json import Malformed
from tests.signing import base64url, jwk, jwks, number, private_key, sign, signed, token

CLAIMS: Mapping[str, object] = {"sub": "build", "exp": 2_000_000_000}
MODULUS_BYTES = 256


def encoded(part: Mapping[str, object] | bytes) -> str:
    """A header or payload as it stands in a token."""
    return base64url(part if isinstance(part, bytes) else json.dumps(part).encode())


def forged(header: Mapping[str, object] | bytes, by: Callable[[bytes], bytes]) -> bytes:
    """A token whose signature ``by`` makes of the signing input."""
    signing_input = f"{encoded(header)}.{encoded(CLAIMS)}".encode("ascii")
    return signing_input + b"." + base64url(by(signing_input)).encode("ascii")


def encrypted_block(block: bytes) -> bytes:
    """What the private key ``k1`` makes of a block, whether that is a right one or not."""
    private = private_key().private_numbers()
    power = pow(int.from_bytes(block, "big"), private.d, private.public_numbers.n)
    return power.to_bytes(MODULUS_BYTES, "big")


def zeros(size: int) -> Callable[[bytes], bytes]:
    """What signs with so many zero octets."""
    return lambda _: bytes(size)


class Attack(SynchronousTestCase):
    """A provider with two keys, ``k1`` and ``k2``."""

    def setUp(self) -> None:
        """Publish them."""
        self.keys = parse_key_set(jwks(jwk("k1"), jwk("k2")))

    def verified(self, text: bytes, keys: KeySet | None = None, limit: int = 16_384) -> Mapping[str, object]:
        """The claims of a token that is good."""
        return verify_token(keys or self.keys, parse_compact(text, limit))

    def assert_refused(self, text: bytes, *reasons: Reason, keys: KeySet | None = None, limit: int = 16_384) -> None:
        """The token is refused for one of the reasons, in few words that hold nothing of the token."""
        refused: EvidenceRefused = self.assertRaises(EvidenceRefused, self.verified, text, keys, limit)
        self.assertIn(refused.reason, reasons, refused.detail)
        self.assertTrue(refused.detail.isprintable() and len(refused.detail) < 500, refused.detail)
        for part in text.split(b"."):
            if len(part) > 20:
                self.assertNotIn(part.decode("latin-1"), refused.detail)


class AlgorithmAttacks(Attack):
    """The header says how the signature is to be verified, and lies."""

    def test_none_in_every_spelling(self) -> None:
        """A token without algorithm is refused, however that is written, whether it has a signature or not."""
        _, body, right = token(CLAIMS).split(b".")
        spellings = ["".join(letters) for letters in itertools.product(*zip("none", "NONE", strict=True))]
        for spelling in spellings:
            head = encoded({"alg": spelling, "kid": "k1"}).encode()
            for signature in (b"", b"AAAA", right):
                self.assert_refused(b".".join((head, body, signature)), Reason.TOKEN_UNSIGNED)
        for lookalike in ("", " none", "none ", "none\x00", "n\u043ene", "nil", "null", "plain"):
            self.assert_refused(signed({"alg": lookalike, "kid": "k1"}, CLAIMS), Reason.ALGORITHM_REFUSED)

    def test_public_key_as_hmac_secret(self) -> None:
        """A signature by HMAC, with whatever form of the public key as its secret, is none."""
        public = private_key().public_key()
        numbers = public.public_numbers()
        forms = [
            public.public_bytes(encoding, form)
            for encoding in (Encoding.PEM, Encoding.DER)
            for form in (PublicFormat.SubjectPublicKeyInfo, PublicFormat.PKCS1)
        ]
        forms += [forms[0].strip(), forms[0].replace(b"\n", b"\r\n"), jwks(jwk("k1"), jwk("k2")), b""]
        forms += [json.dumps(jwk()).encode(), json.dumps(jwk(), sort_keys=True, separators=(",", ":")).encode()]
        forms += [numbers.n.to_bytes(MODULUS_BYTES, "big"), number(numbers.n).encode()]
        for secret in forms:
            for bits in ("256", "384", "512"):

                def mac(signing_input: bytes, secret: bytes = secret, digest: str = f"sha{bits}") -> bytes:
                    return hmac.digest(secret, signing_input, digest)

                self.assert_refused(forged({"alg": f"HS{bits}", "kid": "k1"}, mac), Reason.ALGORITHM_REFUSED)
                self.assert_refused(forged({"alg": f"RS{bits}", "kid": "k1"}, mac), Reason.SIGNATURE_WRONG)

    def test_another_family_where_rs_is_expected(self) -> None:
        """A right signature by ES256, PS256 or EdDSA is refused, also when its header says RS256."""

        def es256(signing_input: bytes) -> bytes:
            r, s = decode_dss_signature(ec.generate_private_key(ec.SECP256R1()).sign(signing_input, ec.ECDSA(SHA256())))
            return r.to_bytes(32, "big") + s.to_bytes(32, "big")

        def ps256(signing_input: bytes) -> bytes:
            return private_key().sign(signing_input, padding.PSS(padding.MGF1(SHA256()), 32), SHA256())

        for name, by in (("ES256", es256), ("PS256", ps256), ("EdDSA", ed25519.Ed25519PrivateKey.generate().sign)):
            self.assert_refused(forged({"alg": name, "kid": "k1"}, by), Reason.ALGORITHM_REFUSED)
            self.assert_refused(forged({"alg": "RS256", "kid": "k1"}, by), Reason.SIGNATURE_WRONG)

    def test_signature_of_zeros(self) -> None:
        """A signature whose numbers are all zero, which some libraries took for any key's, is refused."""
        for name, size in (("ES256", 64), ("ES384", 96), ("EdDSA", 64)):
            self.assert_refused(forged({"alg": name, "kid": "k1"}, zeros(size)), Reason.ALGORITHM_REFUSED)
        for size in (1, 64, MODULUS_BYTES):
            self.assert_refused(forged({"alg": "RS256", "kid": "k1"}, zeros(size)), Reason.SIGNATURE_WRONG)

    def test_loose_padding(self) -> None:
        """A block that only resembles the one of PKCS #1 v1.5 is refused, even when the right key has signed it."""
        prefix = bytes.fromhex("3031300d060960864801650304020105000420")
        without_null = bytes.fromhex("302f300b0609608648016503040201" + "0420")

        def block(signing_input: bytes, before: bytes, info: bytes, after: bytes = b"", fill: bytes = b"\xff") -> bytes:
            digest = hashlib.sha256(signing_input).digest()
            short = len(before) + 1 + len(info + digest + after)
            return encrypted_block(before + fill * (MODULUS_BYTES - short) + b"\x00" + info + digest + after)

        header = {"alg": "RS256", "kid": "k1"}
        self.verified(forged(header, lambda text: block(text, b"\x00\x01", prefix)))
        for by in (
            lambda text: block(text, b"\x00\x02", prefix),
            lambda text: block(text, b"\x00\x00", prefix),
            lambda text: block(text, b"\x00\x01", prefix, fill=b"\xfe"),
            lambda text: block(text, b"\x00\x01", prefix, after=b"\x00" * 8),
            lambda text: block(text, b"\x00\x01" + b"\xff" * 8 + b"\x00", prefix),
            lambda text: block(text, b"\x00\x01", without_null),
            lambda text: block(text, b"\x00\x01", b""),
        ):
            self.assert_refused(forged(header, by), Reason.SIGNATURE_WRONG)

    def test_signature_shifted_by_the_modulus(self) -> None:
        """A signature plus the modulus, or with octets before or behind, is another text for one number, and refused."""
        head, _, right = token(CLAIMS).rpartition(b".")
        octets = private_key().sign(head, padding.PKCS1v15(), SHA256())
        self.assertEqual(base64url(octets).encode(), right)
        moved = int.from_bytes(octets, "big") + private_key().public_key().public_numbers().n
        for other in (moved.to_bytes(257, "big"), b"\x00" + octets, octets + b"\x00", octets * 2, octets[:-1]):
            self.assert_refused(head + b"." + base64url(other).encode(), Reason.SIGNATURE_WRONG)

    def test_another_digest_than_the_header_says(self) -> None:
        """A right signature with another digest than the header names is wrong."""
        for stated, used in itertools.permutations(("RS256", "RS384", "RS512"), 2):
            self.assert_refused(signed({"alg": stated, "kid": "k1"}, CLAIMS, algorithm=used), Reason.SIGNATURE_WRONG)

    def test_key_that_is_for_another_algorithm(self) -> None:
        """A key that its provider publishes for another algorithm or use verifies nothing."""
        keys = parse_key_set(jwks(jwk("k1", alg="PS256"), jwk("k2", use="enc"), jwk("k3", alg="RS512"), jwk("k4")))
        self.assert_refused(token(CLAIMS, "k1"), Reason.KEY_UNKNOWN, keys=keys)
        self.assert_refused(token(CLAIMS, "k2"), Reason.KEY_UNKNOWN, keys=keys)
        self.assert_refused(token(CLAIMS, "k3"), Reason.ALGORITHM_REFUSED, keys=keys)


class BroughtKeyAttacks(Attack):
    """The token brings the key to be verified with, or says where one is."""

    def assert_useless(self, **brought: Any) -> None:
        """A token by ``evil`` is refused under a known key's id and under its own, and a good token stays good."""
        self.assert_refused(token(CLAIMS, "evil", kid="k1", **brought), Reason.SIGNATURE_WRONG)
        self.assert_refused(token(CLAIMS, "evil", **brought), Reason.KEY_UNKNOWN)
        self.assert_refused(token(CLAIMS, "evil", kid=None, **brought), Reason.KEY_ID_MISSING)
        self.assertEqual(self.verified(token(CLAIMS, **brought)), CLAIMS)

    def test_embedded_jwk(self) -> None:
        """A key in the header is not used, whatever id it claims."""
        self.assert_useless(jwk=jwk("evil"))
        self.assert_useless(jwk=jwk("evil", kid="k1"))

    def test_jku(self) -> None:
        """The address of a key set in the header is not used (NET-18)."""
        self.assert_useless(jku="https://evil.example/jwks.json")
        self.assert_useless(jku="https://idp.example/keys/../../@evil.example/")

    def test_x5u(self) -> None:
        """The address of a certificate in the header is not used."""
        self.assert_useless(x5u="https://evil.example/cert.pem")
        self.assert_useless(x5u="file:///proc/self/environ")

    def test_x5c(self) -> None:
        """A certificate in the header is not used, and its digests neither."""
        key, name = private_key("evil"), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "idp.example")])
        start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
        made = x509.CertificateBuilder(name, name, key.public_key(), 1, start, start + datetime.timedelta(days=36_500))
        der = made.sign(key, SHA256()).public_bytes(Encoding.DER)
        digests = {"x5t": base64url(hashlib.sha1(der).digest()), "x5t#S256": base64url(hashlib.sha256(der).digest())}
        self.assert_useless(x5c=[base64url(der)], **digests)

    def test_parameters_of_the_wrong_type(self) -> None:
        """A registered parameter of another type than it has to be makes the header malformed, though nobody reads it
        (AUTH-18).
        """
        for name in ("kid", "typ", "cty", "jku", "x5u", "x5t", "x5t#S256", "jwk", "x5c"):
            for value in (None, 1, True, 1.5):
                text = signed({"alg": "RS256", "kid": "k1", name: value}, CLAIMS)
                self.assert_refused(text, Reason.TOKEN_MALFORMED)


class HeaderAttacks(Attack):
    """Headers that should confuse."""

    def test_unknown_crit(self) -> None:
        """Critical extensions are refused, also those that no list names and those that mean nothing."""
        for value in (["exp"], ["http://example.com/UNDEFINED"], ["alg"], ["crit"], [], [""], "exp", None, {"exp": 1}):
            text = signed({"alg": "RS256", "kid": "k1", "crit": value}, CLAIMS)
            self.assert_refused(text, Reason.CRITICAL_HEADER)

    def test_unencoded_payload(self) -> None:
        """With ``b64`` false the payload is signed as it is (RFC 7797), which is refused, with ``crit`` and without."""
        for header in ({"b64": False, "crit": ["b64"]}, {"b64": False}, {"b64": True}):
            head = encoded({"alg": "RS256", "kid": "k1", **header})
            for payload in (json.dumps(CLAIMS).encode(), encoded(CLAIMS).encode()):
                text = sign(head.encode() + b"." + payload)
                self.assert_refused(text, Reason.CRITICAL_HEADER, Reason.TOKEN_MALFORMED)

    def test_key_id_as_path(self) -> None:
        """A key id that names a file names no key."""
        for key_id in (
            "/dev/null",
            "../../../dev/null",
            "k1/../k1",
            "./k1",
            "file:///etc/hostname",
            "C:\\k1",
            "k1;id",
            "$(id)",
        ):
            self.assert_refused(token(CLAIMS, kid=key_id), Reason.KEY_UNKNOWN)

    def test_key_id_as_query(self) -> None:
        """A key id that would be true in SQL names no key."""
        for key_id in ("k1' OR '1'='1", "' UNION SELECT 'key'--", "k1';DROP TABLE accounts;--", "%", "k_", "*"):
            self.assert_refused(token(CLAIMS, kid=key_id), Reason.KEY_UNKNOWN)

    def test_key_id_with_nul(self) -> None:
        """A key id doesn't end at a NUL."""
        for key_id in ("k1\x00", "\x00k1", "k1\x00.pem", "\x00"):
            self.assert_refused(token(CLAIMS, kid=key_id), Reason.KEY_UNKNOWN)

    def test_key_id_of_64_kib(self) -> None:
        """A key id of 64 KiB is refused for its token's size; where that is allowed it is told in short."""
        text = token(CLAIMS, kid="k" * 65_536)
        self.assert_refused(text, Reason.TOKEN_TOO_LARGE)
        self.assert_refused(text, Reason.KEY_UNKNOWN, limit=1 << 20)

    def test_key_id_that_looks_alike(self) -> None:
        """Key ids are compared exactly: no case, blank, width or composition of letters is overlooked (AUTH-41)."""
        keys = parse_key_set(jwks(jwk("k1", kid="cl\u00e9"), jwk("k2")))
        self.assertEqual(self.verified(token(CLAIMS, kid="cl\u00e9"), keys), CLAIMS)
        for key_id in (
            "cle\u0301",
            "CL\u00c9",
            "cl\u00e9 ",
            "\ufeffcl\u00e9",
            "\uff43l\u00e9",
            "cl\u00e9\u200b",
            "cl\\u00e9",
        ):
            self.assert_refused(token(CLAIMS, kid=key_id), Reason.KEY_UNKNOWN, keys=keys)

    def test_key_id_missing_with_several_keys(self) -> None:
        """A token without key id is not tried against one key after the other."""
        self.assert_refused(token(CLAIMS, kid=None), Reason.KEY_ID_MISSING)
        self.assert_refused(token(CLAIMS, kid=""), Reason.KEY_UNKNOWN)

    def test_header_names_twice(self) -> None:
        """A header that says something twice is refused, in whatever order and spelling."""
        for header in (
            b'{"alg":"none","alg":"RS256","kid":"k1"}',
            b'{"alg":"RS256","alg":"none","kid":"k1"}',
            b'{"alg":"RS256","\\u0061lg":"none","kid":"k1"}',
            b'{"alg":"RS256","kid":"k1","kid":"k2"}',
            b'{"alg":"RS256","kid":"k1","kid":"k1"}',
            b'{"alg":"RS256","kid":"k1","x":{"a":1,"a":1}}',
        ):
            self.assert_refused(signed(header, CLAIMS), Reason.TOKEN_MALFORMED)

    def test_claim_names_twice(self) -> None:
        """A payload that says something twice is refused, at whatever depth and in whatever spelling."""
        for payload in (
            b'{"sub":"build","sub":"admin"}',
            b'{"exp":1,"exp":2000000000}',
            b'{"exp":1,"e\\u0078p":2000000000}',
            b'{"a":{"b":[{"c":1,"c":2}]}}',
        ):
            self.assert_refused(token(payload), Reason.TOKEN_MALFORMED)

    def test_encrypted_and_nested_tokens(self) -> None:
        """A token that is encrypted, or has a token as its payload, is refused (AUTH-14)."""
        inner = token(CLAIMS)
        self.assert_refused(token(inner, cty="JWT"), Reason.TOKEN_MALFORMED)
        self.assert_refused(token(json.dumps(inner.decode()).encode(), cty="JWT"), Reason.TOKEN_MALFORMED)
        head = encoded({"alg": "RSA-OAEP", "enc": "A256GCM", "kid": "k1"})
        self.assert_refused(f"{head}.AAAA.AAAA.AAAA.AAAA".encode(), Reason.TOKEN_MALFORMED)
        self.assert_refused(f"{head}.AAAA.AAAA".encode(), Reason.ALGORITHM_REFUSED)


class SpellingAttacks(Attack):
    """Other spellings of a good token, which would make a list of revoked ones useless."""

    def setUp(self) -> None:
        """A good token."""
        super().setUp()
        self.good = token(CLAIMS)
        self.parts = self.good.split(b".")

    def assert_malformed(self, *texts: bytes) -> None:
        """None of the texts is a token."""
        for text in texts:
            self.assert_refused(text, Reason.TOKEN_MALFORMED)

    def assert_parts_malformed(self, change: Callable[[bytes], bytes]) -> None:
        """The token is malformed when any one of its parts is changed."""
        for at, part in enumerate(self.parts):
            self.assert_malformed(b".".join((*self.parts[:at], change(part), *self.parts[at + 1 :])))

    def test_json_serialisation(self) -> None:
        """Neither the general nor the flattened JSON serialisation is read (RFC 7515 7.2) (AUTH-14)."""
        head, body, signature = (part.decode() for part in self.parts)
        flat = {"payload": body, "protected": head, "signature": signature}
        general = {"payload": body, "signatures": [{"protected": head, "signature": signature}]}
        for document in (flat, general, {**flat, "header": {"alg": "none"}}, [flat], self.good.decode()):
            self.assert_malformed(json.dumps(document).encode())

    def test_json_that_holds_a_compact_token(self) -> None:
        """A text that is JSON to one reader and a compact token to another is neither here."""
        _, body, signature = self.parts
        self.assert_malformed(b'{"protected":"' + self.parts[0] + b"." + body + b"." + signature + b'"}')

    def test_extra_dots(self) -> None:
        """More dots, anywhere, are too many."""
        head, body, signature = self.parts
        self.assert_malformed(b"." + self.good, self.good + b".", self.good + b".AAAA", self.good + b"." + self.good)
        self.assert_malformed(b"..".join(self.parts), head + b"." + body + b".." + signature, b"." * 16_000)

    def test_padding(self) -> None:
        """Padding is refused, also where it would be right."""
        self.assert_parts_malformed(lambda part: part + b"=" * (-len(part) % 4 or 4))
        self.assert_parts_malformed(lambda part: part + b"=")

    def test_whitespace(self) -> None:
        """Blanks are refused, in a part and around it."""
        for blank in (b" ", b"\t", b"\n", b"\r\n", b"\x0b", b"\x0c", b"\x00", b"\xc2\xa0"):
            for at, part in enumerate(self.parts):
                for spoilt in (part[:8] + blank + part[8:], blank + part, part + blank):
                    self.assert_malformed(b".".join((*self.parts[:at], spoilt, *self.parts[at + 1 :])))

    def test_non_canonical_base64url(self) -> None:
        """The bits that the last character of a part doesn't need must be unset, or a part would have several spellings."""
        alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        spelt = {}
        for filler in ("", "x", "xx"):
            head, body, signature = token({"f": filler}).split(b".")
            spelt[len(body) % 4] = (head, body, signature)
        for rest, spare in ((2, 16), (3, 4)):
            head, body, signature = spelt[rest]
            value = alphabet.index(body[-1:])
            self.assertEqual(value % spare, 0)
            for bits in range(1, spare):
                text = b".".join((head, body[:-1] + alphabet[value + bits : value + bits + 1], signature))
                self.assert_malformed(text)
        self.assertEqual(len(self.parts[2]) % 4, 2)
        last = alphabet.index(self.parts[2][-1:])
        for bits in range(1, 16):
            self.assert_malformed(self.good[:-1] + alphabet[last + bits : last + bits + 1])

    def test_standard_base64(self) -> None:
        """The alphabet of plain base64 is not read."""
        self.assert_parts_malformed(lambda part: part[:-4] + b"+/+/")

    def test_trailing_zeros(self) -> None:
        """Zero octets behind a part belong to it."""
        head, body, signature = self.parts
        self.assert_malformed(b".".join((head + b"A" * (-len(head) % 4 + 4), body, signature)))
        padded = json.dumps(CLAIMS).encode() + b"\x00"
        self.assert_malformed(sign(head + b"." + base64url(padded).encode()))
        self.assert_refused(self.good + b"AAAA", Reason.SIGNATURE_WRONG)

    def test_other_encodings_of_characters(self) -> None:
        """A token in percent encoding, quotes, full-width letters or UTF-16 is none."""
        text = self.good.decode()
        wide = "".join(chr(ord(character) + 0xFEE0) if character.isalnum() else character for character in text)
        self.assert_malformed(text.replace(".", "%2E").encode(), f'"{text}"'.encode(), wide.encode(), text.encode("utf-16"))


class KeyAttacks(Attack):
    """Weak and malformed keys in a provider's set."""

    def assert_unusable(self, entry: object, *, reported: bool = True) -> None:
        """The key verifies nothing, which is reported, and a good key beside it still verifies."""
        keys = parse_key_set(jwks(entry, jwk("k2")))
        self.assertEqual([key.key_id for key in keys.keys], ["k2"])
        self.assertEqual(len(keys.problems), int(reported), keys.problems)
        self.assertEqual(self.verified(token(CLAIMS, "k2"), keys), CLAIMS)

    def test_short_modulus(self) -> None:
        """A modulus of less than 2048 bits is refused, also when zero octets make it look longer."""
        numbers = private_key("short", 1024).public_key().public_numbers()
        self.assert_unusable(jwk("short", 1024))
        self.assert_unusable(jwk(n=base64url(numbers.n.to_bytes(256, "big"))))
        self.assert_unusable(jwk(n=number((1 << 2047) - 1)))

    def test_modulus_of_16k_bits(self) -> None:
        """A modulus that would make each verification slow is refused."""
        self.assert_unusable(jwk(n=number((1 << 16_384) - 1)))
        self.assert_unusable(jwk(n=number((1 << 1_000_000) - 1)))

    def test_exponent_of_one(self) -> None:
        """With an exponent of one the signature is the padded digest itself, which anyone can write."""
        self.assert_unusable(jwk(e="AQ"))

    def test_weak_exponents(self) -> None:
        """Exponents that are small, even or as large as the modulus are refused."""
        for exponent in (0, 2, 3, 5, 17, 257, 65_536, 65_538, (1 << 32) + 1, (1 << 2048) - 1):
            self.assert_unusable(jwk(e=number(exponent) if exponent else "AA"))

    def test_even_modulus(self) -> None:
        """A modulus that is even, or nothing, is refused."""
        self.assert_unusable(jwk(n=number(private_key().public_key().public_numbers().n - 1)))
        self.assert_unusable(jwk(n=""))

    def test_private_parts(self) -> None:
        """A key that holds any private part is refused: readers of the set could sign with it."""
        for member in ("d", "p", "q", "dp", "dq", "qi", "oth", "k"):
            self.assert_unusable({**jwk(), member: "AQAB"})

    def test_symmetric_key(self) -> None:
        """A symmetric key in a set is refused, and one with a known key's id takes nothing from that."""
        self.assert_unusable({"kty": "oct", "kid": "k1", "alg": "HS256", "k": "c2VjcmV0"})
        self.assert_unusable({"kty": "oct", "kid": "k2", "k": "c2VjcmV0"})

    def test_other_types(self) -> None:
        """A key of another type is skipped, also when it has an RSA key's numbers."""
        for kind in ("EC", "OKP", "rsa", "RSA ", "none"):
            self.assert_unusable(jwk(kty=kind), reported=False)

    def test_malformed_keys(self) -> None:
        """What isn't a key is reported and left out."""
        entries: list[object] = [None, 1, "key", [], {}, jwk(kty=None), jwk(kid=1), jwk(n=None), jwk(e=None), jwk(n="A A=")]
        for entry in (*entries, jwk(e=65537)):
            self.assert_unusable(entry)

    def test_different_keys_of_one_id(self) -> None:
        """Of two keys with one id neither is used: an attacker who can add a key can't take an id over."""
        keys = parse_key_set(jwks(jwk("k1"), jwk("evil", kid="k1"), jwk("k2")))
        for key in ("k1", "evil"):
            self.assert_refused(token(CLAIMS, key, kid="k1"), Reason.KEY_UNKNOWN, keys=keys)

    def test_certificate_of_a_key(self) -> None:
        """A certificate beside a key's numbers changes nothing: the numbers are the key."""
        keys = parse_key_set(jwks(jwk("k1", x5c=["MIIB"], x5u="https://evil.example"), jwk("k2")))
        self.assertEqual(self.verified(token(CLAIMS), keys), CLAIMS)

    def test_endless_set(self) -> None:
        """A set of more keys than anyone needs is refused as a whole, before any is read (AUTH-42)."""
        document = b'{"keys":[' + b",".join([b"{}"] * 10_000) + b"]}"
        self.assertIn("10000 keys", str(self.assertRaises(Malformed, parse_key_set, document)))

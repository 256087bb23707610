"""Tests of ``svc.crypto.jose``: tokens and key sets are read one way or not at all."""

from __future__ import annotations

import ast
import base64
import contextlib
import hashlib
import hmac
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateNumbers, RSAPublicNumbers
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

import svc
from svc.crypto.jose import (
    EvidenceRefused,
    KeySet,
    Malformed,
    SignedClaims,
    base64url,
    json_object,
    key_set,
    parse_compact,
    parse_key_set,
    shown,
)
from svc.model.reasons import Reason
from tests import EXAMPLES, signing
from tests.signing import jwk, jwks, number, private_key, roca_prime, sign, signed, token

CLAIMS = {"sub": "build", "exp": 2_000_000_000, "nested": {"a": [1, 2.5, None, True]}}


def verified(text: bytes, keys: KeySet) -> SignedClaims:
    """Read and verify, as the authenticator does."""
    return keys.verify(parse_compact(text))


class Base64urlTests(SynchronousTestCase):
    """``base64url``."""

    def assert_malformed(self, text: bytes) -> None:
        """``text`` is refused."""
        self.assertRaises(Malformed, base64url, text)

    @given(st.binary(max_size=100))
    def test_reads_what_is_canonical(self, octets: bytes) -> None:
        """Octets come back from their canonical spelling."""
        self.assertEqual(base64url(signing.base64url(octets).encode("ascii")), octets)

    @given(st.binary(max_size=40) | st.text("AQgwBc-_+/= \n", max_size=9).map(str.encode))
    def test_has_one_spelling(self, text: bytes) -> None:
        """Whatever text is read is the canonical spelling of what it means."""
        try:
            octets = base64url(text)
        except Malformed:
            return
        self.assertEqual(signing.base64url(octets).encode("ascii"), text)

    def test_refuses_padding(self) -> None:
        """Padding is refused, also where it would be right."""
        for text in (b"QQ==", b"QUI=", b"QQ=", b"="):
            self.assert_malformed(text)

    def test_refuses_the_standard_alphabet(self) -> None:
        """``+`` and ``/`` belong to another encoding."""
        self.assert_malformed(b"+___")
        self.assert_malformed(b"/___")

    def test_refuses_needless_bits(self) -> None:
        """A last character with bits that encode nothing is refused."""
        self.assert_malformed(b"QR")
        self.assert_malformed(b"QUJ")

    def test_refuses_blanks_and_control_characters(self) -> None:
        """No blank, line end or NUL is skipped."""
        for text in (b"QUJD\n", b" QUJD", b"QU JD", b"QUJD\x00", b"QUJD\x00\x00\x00\x00", b"QUJ\xc3"):
            self.assert_malformed(text)

    def test_refuses_impossible_lengths(self) -> None:
        """One character beyond a group of four encodes nothing."""
        self.assert_malformed(b"Q")
        self.assert_malformed(b"QUJDQ")


class JsonTests(SynchronousTestCase):
    """``json_object``."""

    def refusal(self, document: bytes) -> str:
        """Why the document is refused."""
        refused: Malformed = self.assertRaises(Malformed, json_object, document)
        return refused.why

    @given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text())))
    def test_reads_objects(self, value: Mapping[str, object]) -> None:
        """An object comes back as it was written."""
        self.assertEqual(json_object(json.dumps(value).encode("utf-8")), value)

    def test_reads_blanks_around(self) -> None:
        """Blanks around the object are part of JSON."""
        self.assertEqual(json_object(b' \r\n\t{"a": 1} \n'), {"a": 1})

    def test_refuses_other_values(self) -> None:
        """Anything but one object is refused."""
        for document in (b"", b"[]", b"1", b'"a"', b"null", b"{} {}", b"{}x", b"{", b"{'a': 1}", b'{"a": 1,}', b"\xa0{}"):
            self.refusal(document)

    def test_refuses_members_named_twice(self) -> None:
        """A member that is named twice, at any depth and in any spelling, has no one meaning (WIRE-26)."""
        for document in (b'{"a": 1, "a": 1}', b'{"b": [{"a": 1, "a": 2}]}', b'{"a": 1, "\\u0061": 2}'):
            self.assertIn("twice", self.refusal(document))

    def test_refuses_numbers_that_are_none(self) -> None:
        """NaN and the infinities are no JSON."""
        for document in (b'{"a": NaN}', b'{"a": Infinity}', b'{"a": [-Infinity]}'):
            self.assertIn("NaN or Infinity", self.refusal(document))

    def test_refuses_numbers_of_thousands_of_digits(self) -> None:
        """An integer that takes long to read is refused."""
        self.refusal(b'{"a": ' + b"1" * 10_000 + b"}")

    def test_refuses_other_encodings(self) -> None:
        """Invalid UTF-8, a byte order mark, and UTF-16 are refused (WIRE-26)."""
        for document in (b'{"a": "\xff"}', b"\xef\xbb\xbf{}", '{"a": 1}'.encode("utf-16"), b'{"a": "\xed\xa0\x80"}'):
            self.refusal(document)

    def test_bounds_nesting(self) -> None:
        """64 levels are read, 65 are refused, and brackets in texts are not levels (WIRE-26)."""
        for left, right in ((b"[", b"]"), (b'{"a":', b"}")):
            inner = b"1" if right == b"}" else b""
            json_object(b'{"a":' + left * 63 + inner + right * 63 + b"}")
            self.assertIn("nested", self.refusal(b'{"a":' + left * 64 + inner + right * 64 + b"}"))
        json_object(b'{"a": "' + b"[{" * 1000 + b'\\"[[", "b": "[' + b"]" * 100 + b'"}')
        json_object(b'{"a": [' + b"[]," * 1000 + b"[]]}")

    def test_endless_nesting_is_refused_in_no_time(self) -> None:
        """Depth and unfinished texts exhaust neither the stack nor the processor."""
        self.assertIn("nested", self.refusal(b"[" * 200_000))

    def test_a_string_without_an_end(self) -> None:
        """A string that never ends, of escapes with one left over, is read once, not once from each of its characters."""
        document = b"{" + b"[" * 65 + b'"' + b'\\"' * 100_000 + b"\\"
        self.assertIn("nested", self.refusal(document))
        self.refusal(b'{"a": [' + b"[" * 60 + b'"\\"' * 60_000)

    @given(st.binary(max_size=200) | st.text('{}[]",:\\ 0a', max_size=60).map(str.encode))
    def test_raises_nothing_else(self, document: bytes) -> None:
        """Any bytes are an object or malformed."""
        with contextlib.suppress(Malformed):
            self.assertIsInstance(json_object(document), dict)


class CompactTests(SynchronousTestCase):
    """``parse_compact``."""

    def refusal(self, text: bytes, reason: Reason) -> str:
        """The detail with which the token is refused for this reason."""
        refused: EvidenceRefused = self.assertRaises(EvidenceRefused, parse_compact, text)
        self.assertEqual(refused.reason, reason)
        for part in text.split(b"."):
            if len(part) > 8:
                self.assertNotIn(part.decode("latin-1"), refused.detail)
        return refused.detail

    def test_reads_algorithm_and_key_id(self) -> None:
        """Of the header, the algorithm and the key id are kept."""
        parsed = parse_compact(token(CLAIMS, algorithm="RS384"))
        self.assertEqual((parsed.algorithm, parsed.key_id), ("RS384", "k1"))
        self.assertIsNone(parse_compact(token(CLAIMS, kid=None)).key_id)

    def test_shows_no_part_of_a_token(self) -> None:
        """The representation of an unverified token has neither payload nor signature."""
        self.assertEqual(repr(parse_compact(token(CLAIMS))), "Unverified(algorithm='RS256', key_id='k1')")

    def test_bounds_size(self) -> None:
        """A token of a megabyte is refused by its length, before it is taken apart (AUTH-14)."""
        self.refusal(b"a" * (1 << 20), Reason.TOKEN_TOO_LARGE)
        text = token({"pad": "x" * 100})
        self.assertRaises(EvidenceRefused, parse_compact, text, len(text) - 1)
        parse_compact(text, len(text))

    def test_has_three_parts(self) -> None:
        """Fewer or more parts, empty ones, and the JSON serialisation are no compact JWS (AUTH-14)."""
        good = token(CLAIMS)
        head, body, signature = good.split(b".")
        for text in (
            b"",
            b".",
            b"..",
            b"abc",
            head + b"." + body,
            good + b".",
            good + b".e30",
            b"." + good,
            b"." + body + b".s",
        ):
            self.refusal(text, Reason.TOKEN_MALFORMED)
        self.refusal(head + b".." + signature, Reason.TOKEN_MALFORMED)
        self.refusal(json.dumps({"payload": "e30", "signatures": []}).encode(), Reason.TOKEN_MALFORMED)

    def test_unsigned_tokens_are_refused(self) -> None:
        """A token without signature, or with ``none`` in any spelling, is unsigned (AUTH-16)."""
        self.refusal(token(CLAIMS).rpartition(b".")[0] + b".", Reason.TOKEN_UNSIGNED)
        for spelling in ("none", "None", "NONE", "nOnE"):
            self.refusal(signed({"alg": spelling}, CLAIMS), Reason.TOKEN_UNSIGNED)

    def test_other_algorithms_are_refused(self) -> None:
        """Only RS256, RS384 and RS512 in exactly this spelling are read (AUTH-17)."""
        for name in ("rs256", "RS256 ", "RS1", "HS256", "ES256", "PS256", "EdDSA", "", "RS256\x00", "x" * 5000):
            self.refusal(signed({"alg": name}, CLAIMS), Reason.ALGORITHM_REFUSED)
        for value in (None, 256, ["RS256"], {"RS256": 1}, True):
            self.refusal(signed({"alg": value}, CLAIMS), Reason.TOKEN_MALFORMED)
        self.refusal(signed({"kid": "k1"}, CLAIMS), Reason.TOKEN_MALFORMED)

    def test_hs256_signed_with_the_public_key_is_refused(self) -> None:
        """The public key's PEM, DER and JWK forms are not shared secrets."""
        public = private_key().public_key()
        pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        for secret in (pem, pem.strip(), der, json.dumps(jwk()).encode()):
            parts = signed({"alg": "HS256", "kid": "k1"}, CLAIMS).rpartition(b".")[0]
            forged = parts + b"." + signing.base64url(hmac.new(secret, parts, hashlib.sha256).digest()).encode()
            self.refusal(forged, Reason.ALGORITHM_REFUSED)

    def test_critical_extensions_are_refused(self) -> None:
        """No ``crit`` and no ``b64`` is understood, whatever its value (AUTH-18)."""
        for extension in (b'"crit":["exp"]', b'"crit":[]', b'"crit":null', b'"b64":false,"crit":["b64"]', b'"b64":true'):
            self.refusal(signed(b'{"alg":"RS256","kid":"k1",' + extension + b"}", CLAIMS), Reason.CRITICAL_HEADER)

    def test_key_ids_are_text(self) -> None:
        """A key id that isn't text is no key id."""
        for value in (None, 1, ["k1"], {"k": 1}, True):
            self.refusal(signed({"alg": "RS256", "kid": value}, CLAIMS), Reason.TOKEN_MALFORMED)

    def test_headers_are_strict_json(self) -> None:
        """A header that names a member twice, or is no JSON object, is refused (AUTH-15)."""
        for header in (
            b'{"alg":"none","alg":"RS256"}',
            b"[]",
            b"alg",
            b'{"alg":"RS256"} x',
            b'{"alg":"RS256","x":NaN}',
            b"\xff",
        ):
            self.refusal(signed(header, CLAIMS), Reason.TOKEN_MALFORMED)

    def test_parts_are_strict_base64url(self) -> None:
        """Padding, blanks, foreign characters, needless bits and trailing NULs are refused in every part (AUTH-14)."""
        parts = token(CLAIMS).split(b".")
        for number_ in range(3):
            for spoilt in (b"=", b"==", b" ", b"\n", b"\x00", b"+", b"\xff"):
                changed = [part + spoilt if index == number_ else part for index, part in enumerate(parts)]
                self.refusal(b".".join(changed), Reason.TOKEN_MALFORMED)

    @given(
        st.binary(max_size=300)
        | st.lists(st.binary(max_size=60).map(base64.urlsafe_b64encode) | st.just(b"eyJhbGciOiJSUzI1NiJ9"), max_size=4).map(
            b".".join
        )
    )
    def test_raises_nothing_else(self, text: bytes) -> None:
        """Any bytes are an unverified token or refused."""
        with contextlib.suppress(EvidenceRefused):
            parse_compact(text)


class VerifyTests(SynchronousTestCase):
    """``KeySet.verify``."""

    def setUp(self) -> None:
        """A set of two keys."""
        self.keys = parse_key_set(jwks(jwk("k1"), jwk("k2")))

    def refusal(self, text: bytes, reason: Reason, keys: KeySet | None = None) -> EvidenceRefused:
        """The refusal of a token that no key of the set verifies."""
        refused: EvidenceRefused = self.assertRaises(EvidenceRefused, verified, text, keys or self.keys)
        self.assertEqual(refused.reason, reason)
        return refused

    def test_verifies_every_algorithm(self) -> None:
        """The three RSA algorithms verify, and the claims come back."""
        for algorithm in ("RS256", "RS384", "RS512"):
            for key in ("k1", "k2"):
                self.assertEqual(verified(token(CLAIMS, key, algorithm), self.keys), CLAIMS)

    def test_unknown_key(self) -> None:
        """A key id that no usable key has is refused, and the message says which there are."""
        refused = self.refusal(token(CLAIMS, "k3"), Reason.KEY_UNKNOWN)
        self.assertEqual(refused.detail, "the token names the key 'k3'; usable are 'k1', 'k2'")

    def test_wrong_key_id(self) -> None:
        """A signature by one key under the id of another is wrong."""
        self.refusal(token(CLAIMS, "k1", kid="k2"), Reason.SIGNATURE_WRONG)

    def test_key_ids_are_only_compared(self) -> None:
        """Paths, queries, control characters and 10 kB in a key id name no key, and are shown in short."""
        for key_id in ("../../dev/null", "' OR 1=1 --", "k1\x00", "K1", "k" * 10_000, "\n\ud800\u202e"):
            detail = self.refusal(token(CLAIMS, kid=key_id), Reason.KEY_UNKNOWN).detail
            self.assertTrue(detail.isprintable() and len(detail) < 300, detail)

    def test_another_digest_than_stated(self) -> None:
        """A signature made with another digest than the header says is wrong."""
        self.refusal(signed({"alg": "RS512", "kid": "k1"}, CLAIMS, algorithm="RS256"), Reason.SIGNATURE_WRONG)

    def test_missing_key_id_with_several_keys(self) -> None:
        """A token without key id isn't tried against every key (AUTH-41)."""
        self.refusal(token(CLAIMS, kid=None), Reason.KEY_ID_MISSING)

    def test_missing_key_id_with_one_key(self) -> None:
        """When the set has one usable key, a missing key id on either side is no hindrance (AUTH-41)."""
        named, nameless = parse_key_set(jwks(jwk("k1"))), parse_key_set(jwks(jwk("k1", kid=None)))
        self.assertEqual(verified(token(CLAIMS, kid=None), named), CLAIMS)
        self.assertEqual(verified(token(CLAIMS, kid=None), nameless), CLAIMS)
        self.assertEqual(verified(token(CLAIMS, kid="any"), nameless), CLAIMS)
        self.refusal(token(CLAIMS, kid="any"), Reason.KEY_UNKNOWN, named)

    def test_brought_keys_are_ignored(self) -> None:
        """A key, certificate or address in the header changes nothing (AUTH-18)."""
        brought: dict[str, Any] = {
            "jwk": jwk("evil"),
            "jku": "https://evil.example",
            "x5u": "https://evil.example",
            "x5c": ["AAAA"],
        }
        self.refusal(token(CLAIMS, "evil", kid="k1", **brought), Reason.SIGNATURE_WRONG)
        self.assertEqual(verified(token(CLAIMS, **brought), self.keys), CLAIMS)

    def test_algorithm_of_the_key(self) -> None:
        """A key that names its algorithm verifies no other (AUTH-17)."""
        keys = parse_key_set(jwks(jwk(alg="RS512")))
        self.assertEqual(verified(token(CLAIMS, algorithm="RS512"), keys), CLAIMS)
        self.refusal(token(CLAIMS), Reason.ALGORITHM_REFUSED, keys)

    def test_odd_signatures_are_wrong(self) -> None:
        """Signatures that are short, long, zero or as large as the modulus are wrong, and nothing worse."""
        parts = token(CLAIMS).rpartition(b".")[0] + b"."
        modulus = private_key().public_key().public_numbers().n
        for signature in (b"\x00", b"\x00" * 256, b"\xff" * 256, b"\x01" * 255, b"\x01" * 257, modulus.to_bytes(256, "big")):
            self.refusal(parts + signing.base64url(signature).encode(), Reason.SIGNATURE_WRONG)

    def test_distrusted(self) -> None:
        """A key that is distrusted by its id or thumbprint verifies nothing, and is named; the others verify."""
        for name in ("k1", self.keys.keys[0].thumbprint):
            refused: EvidenceRefused = self.assertRaises(
                EvidenceRefused, self.keys.verify, parse_compact(token(CLAIMS)), frozenset({name, "other"})
            )
            self.assertEqual(
                (refused.reason, refused.detail), (Reason.KEY_DISTRUSTED, f"the key '{name}' is distrusted here")
            )
            self.assertEqual(self.keys.verify(parse_compact(token(CLAIMS, "k2")), frozenset({name})), CLAIMS)

    def test_distrusted_under_every_name(self) -> None:
        """A key that its set publishes under two ids is distrusted by either (AUTH-51)."""
        keys = parse_key_set(jwks(jwk("k1"), jwk("k1", kid="again"), jwk("k2")))
        for name in ("k1", "again"):
            refused = self.assertRaises(
                EvidenceRefused, keys.verify, parse_compact(token(CLAIMS, "k1", kid=name)), frozenset({"k1"})
            )
            self.assertEqual(refused.reason, Reason.KEY_DISTRUSTED)
        self.assertEqual(keys.verify(parse_compact(token(CLAIMS, "k2")), frozenset({"k1"})), CLAIMS)

    def test_distrusted_by_the_name_in_the_token(self) -> None:
        """A key without id in its set is distrusted by the id that tokens give it, too."""
        keys = parse_key_set(jwks(jwk("k1", kid=None)))
        parsed = parse_compact(token(CLAIMS, kid="k7"))
        self.assertEqual(keys.verify(parsed, frozenset({"k1"})), CLAIMS)
        self.assertRaises(EvidenceRefused, keys.verify, parsed, frozenset({"k7"}))

    def test_payload_is_read_after_the_signature(self) -> None:
        """A payload that is no JSON object is malformed under a right signature, and unread under a wrong one (AUTH-15)."""
        for payload in (b"[]", b"x", b'{"a":1,"a":2}', b'{"exp":NaN}', b'"eyJ"', token(CLAIMS), b"\xff"):
            good = token(payload)
            refused = self.assertRaises(EvidenceRefused, verified, good, self.keys)
            self.assertEqual((refused.reason, type(refused)), (Reason.TOKEN_MALFORMED, EvidenceRefused))
            self.refusal(token(payload, "k2", kid="k1"), Reason.SIGNATURE_WRONG)

    @settings(max_examples=4 * EXAMPLES)
    @given(st.data())
    def test_no_altered_token_verifies(self, data: st.DataObject) -> None:
        """A token with one octet changed, added or removed proves nothing."""
        good = token(CLAIMS)
        at = data.draw(st.integers(0, len(good) - 1))
        octet = data.draw(st.integers(0, 255).map(lambda value: bytes([value])) | st.sampled_from([b"A", b".", b"=", b"-"]))
        altered = data.draw(
            st.sampled_from([good[:at] + octet + good[at + 1 :], good[:at] + octet + good[at:], good[:at] + good[at + 1 :]])
        )
        if altered != good:
            self.assertRaises(EvidenceRefused, verified, altered, self.keys)

    @given(st.binary(max_size=40), st.binary(max_size=40))
    def test_no_moved_payload_verifies(self, left: bytes, right: bytes) -> None:
        """A signature holds for its own two parts and no others."""
        head, _, signature = token(CLAIMS).split(b".")
        body = signing.base64url(left + right).encode()
        if body:
            self.assertRaises(EvidenceRefused, verified, b".".join((head, body, signature)), self.keys)

    def test_signed_claims_are_made_here_alone(self) -> None:
        """No module of the program but this one makes signed claims."""
        makers = set()
        for path in Path(svc.__file__).parent.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("SignedClaims"):
                    makers.add(path.name)
        self.assertEqual(makers, {"jose.py"})


class KeySetTests(SynchronousTestCase):
    """``parse_key_set``."""

    def ids(self, keys: KeySet) -> list[str | None]:
        """The ids of the usable keys."""
        return [key.key_id for key in keys.keys]

    def problem(self, *entries: object) -> str:
        """The one problem of a set of these keys, none of which is usable."""
        keys = parse_key_set(jwks(*entries))
        self.assertEqual(self.ids(keys), [])
        (problem,) = keys.problems
        return problem

    def test_keys_of_other_types_and_uses_are_skipped(self) -> None:
        """Keys for something else lie beside a usable one without harm or report (AUTH-40)."""
        others = [
            {"kty": "EC", "kid": "ec", "crv": "P-256", "x": "AA", "y": "AA"},
            {"kty": "OKP", "crv": "Ed25519", "x": "AA"},
            {"kty": "quantum"},
            jwk("k2", use="enc"),
            jwk("k2", use=1),
            jwk("k2", key_ops=["encrypt"]),
            jwk("k2", key_ops="verify"),
            jwk("k2", alg="PS256"),
            jwk("k2", alg="RSA-OAEP"),
            jwk("k2", alg=["RS256"]),
        ]
        keys = parse_key_set(jwks(*others, jwk("k1", use="sig", key_ops=["verify"], alg="RS256", x5c=["AAAA"])))
        self.assertEqual((self.ids(keys), keys.problems), (["k1"], ()))

    def test_secret_keys_are_refused(self) -> None:
        """A private or symmetric key has no place in a published set (AUTH-40)."""
        private = private_key().private_numbers()
        for entry in (
            jwk(d=number(private.d)),
            jwk(p="AA"),
            {"kty": "oct", "kid": "s", "k": "AAAA"},
            {"kty": "EC", "d": "AA"},
        ):
            self.assertIn("private", self.problem(entry))
        self.assertNotIn(number(private.d), self.problem(jwk(d=number(private.d))))

    def test_weak_and_huge_keys_are_refused(self) -> None:
        """A modulus has 2048 to 8192 bits (AUTH-40)."""
        self.assertEqual(
            self.problem(jwk("weak", 1024)), "key 1 'weak' is refused: it has 1024 bits; 2048 to 8192 are allowed"
        )
        for bits in (2047, 8193, 16384):
            self.assertIn(f"it has {bits} bits", self.problem(jwk(n=number((1 << bits) - 1))))
        largest = next(n for n in range((1 << 8192) - 1, 0, -2) if math.gcd(n, math.factorial(751)) == 1)
        self.assertEqual(self.ids(parse_key_set(jwks(jwk(n=number(largest))))), ["k1"])

    def test_keys_that_can_be_broken_are_refused(self) -> None:
        """A key by a library whose keys can be broken is left out and reported, though its signatures are right
        (AUTH-40).
        """
        p, q = roca_prime(), roca_prime()
        numbers = RSAPublicNumbers(65537, p * q)
        d = pow(65537, -1, math.lcm(p - 1, q - 1))
        key = RSAPrivateNumbers(p, q, d, d % (p - 1), d % (q - 1), pow(q, -1, p), numbers).private_key()
        parts = signed({"alg": "RS256", "kid": "card"}, CLAIMS).rpartition(b".")[0]
        signature = key.sign(parts, PKCS1v15(), SHA256())
        key.public_key().verify(signature, parts, PKCS1v15(), SHA256())
        keys = parse_key_set(jwks(jwk("k1"), jwk(kid="card", n=number(numbers.n))))
        self.assertEqual(self.ids(keys), ["k1"])
        self.assertIn("key 2 'card' is refused: it was made by a library whose keys can be broken", keys.problems[0])
        evidence = parts + b"." + signing.base64url(signature).encode("ascii")
        self.assertRaises(EvidenceRefused, verified, evidence, keys)

    def test_strange_exponents_are_refused(self) -> None:
        """An exponent is odd, at least 65537, and no longer than 32 bits (AUTH-40)."""
        for exponent in (0, 1, 2, 3, 17, 65535, 65536, 65538, (1 << 32) + 1, (1 << 2047) + 1):
            self.assertIn("exponent", self.problem(jwk(e=number(exponent))))
        self.assertEqual(self.ids(parse_key_set(jwks(jwk(e=number((1 << 32) - 1))))), ["k1"])

    def test_malformed_keys_are_refused(self) -> None:
        """A key without its numbers, type or a text as id is reported, and others beside it serve."""
        entries: list[object] = [1, None, [], "key", {}, jwk(kty=1), jwk(kid=7), jwk(n=None, x=1), jwk(e=""), jwk(n="")]
        entries += [jwk(n=5), jwk(n="AA=="), jwk(n="\u00e9\u00e9"), jwk(n=number((1 << 2047) + 2))]
        for entry in entries:
            keys = parse_key_set(jwks(entry, jwk("k2")))
            self.assertEqual((self.ids(keys), len(keys.problems)), (["k2"], 1))

    def test_a_null_id_is_no_id(self) -> None:
        """An id that is null is refused: it is neither text nor absent."""
        self.assertIn("id is no text", self.problem({**jwk(), "kid": None}))

    def test_leading_zeros_of_a_modulus_change_nothing(self) -> None:
        """A modulus written with the sign octet that some libraries add is the same key."""
        modulus = private_key().public_key().public_numbers().n
        keys = parse_key_set(jwks(jwk(n=signing.base64url(modulus.to_bytes(257, "big")))))
        self.assertEqual(keys.keys[0].thumbprint, parse_key_set(jwks()).keys[0].thumbprint)

    def test_different_keys_of_one_id_are_refused(self) -> None:
        """When two keys share an id neither is used, and others are (AUTH-40)."""
        keys = parse_key_set(jwks(jwk("k1", kid="same"), jwk("k2", kid="same"), jwk("k3")))
        self.assertEqual(self.ids(keys), ["k3"])
        self.assertEqual(keys.problems, ("2 different keys are refused: they share the id 'same'",))

    def test_one_key_listed_twice_is_one_key(self) -> None:
        """The same key under the same id counts once, with the algorithms of both entries."""
        keys = parse_key_set(jwks(jwk(alg="RS256"), jwk(alg="RS512")))
        self.assertEqual((self.ids(keys), keys.problems), (["k1"], ()))
        self.assertEqual(keys.keys[0].algorithms, {"RS256", "RS512"})

    def test_a_key_without_id_is_alone(self) -> None:
        """Keys without id are usable only as the one usable key of a set."""
        self.assertEqual(self.ids(parse_key_set(jwks(jwk(kid=None)))), [None])
        self.assertEqual(self.ids(parse_key_set(jwks(jwk(kid=None), jwk("k2", use="enc")))), [None])
        keys = parse_key_set(jwks(jwk(kid=None), jwk("k2")))
        self.assertEqual((self.ids(keys), len(keys.problems)), (["k2"], 1))
        self.problem(jwk(kid=None), jwk("k2", kid=None))

    def test_documents_that_are_no_set(self) -> None:
        """Anything but an object with a list of keys is malformed."""
        for document in (b"", b"<html>", b"[]", b"{}", b'{"keys": {}}', b'{"keys": null}', b'{"keys": [], "keys": []}'):
            self.assertRaises(Malformed, parse_key_set, document)
        self.assertRaises(Malformed, key_set, {"keys": [jwk()] * 257})

    def test_a_hundred_problems_are_told_in_short(self) -> None:
        """The complaint about a set without usable key has room in a log."""
        keys = parse_key_set(jwks(*[jwk("x" * 1000, e="AQ") for _ in range(100)]))
        self.assertEqual(len(keys.problems), 100)
        self.assertLess(len(keys.why_unusable), 2000)

    def test_an_empty_set_is_a_set(self) -> None:
        """Whether a set without usable keys will do is for the caller to say."""
        self.assertEqual(parse_key_set(b'{"keys": []}').keys, ())

    def test_thumbprint(self) -> None:
        """The thumbprint is that of RFC 7638, whose example it reproduces."""
        example = {
            "kty": "RSA",
            "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjB"
            "ZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8"
            "KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_"
            "xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
            "e": "AQAB",
            "alg": "RS256",
            "kid": "2011-04-29",
        }
        (key,) = key_set({"keys": [example]}).keys
        self.assertEqual(key.thumbprint, "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs")

    @given(
        st.dictionaries(
            st.sampled_from(["kty", "kid", "n", "e", "d", "use", "alg", "key_ops"]),
            st.none()
            | st.integers()
            | st.text(max_size=5)
            | st.lists(st.text(max_size=3))
            | st.sampled_from(["RSA", "AQAB"]),
        )
    )
    def test_raises_nothing_else(self, members: Mapping[str, object]) -> None:
        """Any object in the list is used, skipped or reported."""
        key_set({"keys": [members, {**jwk(), **members}]})


class ShownTests(SynchronousTestCase):
    """``shown``."""

    @given(st.text(st.characters(exclude_categories=()), max_size=300))
    def test_is_one_short_printable_line(self, text: str) -> None:
        """Whatever comes from outside is short and printable in a message."""
        self.assertTrue(shown(text).isprintable())
        self.assertLess(len(shown(text)), 1200)

    def test_quotes(self) -> None:
        """A plain text stands in quotes."""
        self.assertEqual(shown("a"), "'a'")


class ReadingTests(SynchronousTestCase):
    """Both halves together."""

    def test_signing_input_is_what_was_sent(self) -> None:
        """The signature covers the parts as sent, not as written anew: blanks in the JSON survive."""
        keys = parse_key_set(jwks())
        text = signed(b' {"alg" : "RS256",\n"kid":"k1"} ', b'{ "a" : 1 }')
        self.assertEqual(verified(text, keys), {"a": 1})
        head, body, _ = signed(b'{"alg":"RS256","kid":"k1"}', b'{"a":1}').split(b".")
        self.assertEqual(verified(sign(head + b"." + body), keys), {"a": 1})

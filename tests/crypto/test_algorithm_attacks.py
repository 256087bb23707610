"""Published attacks on each algorithm that an operator may allow, in the manner of the Wycheproof vectors.

Every token here is as strict in form as it must be: what is wrong is the signature, the key, or which belongs to which.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterator
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.hashes import SHA1, SHA256, SHA512, HashAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.crypto.jws import parse_compact, verify_token
from svc.crypto.key_sets import parse_key_set
from svc.model.key_sets import ALGORITHMS, DEFAULT_ALGORITHMS, EvidenceRefused, KeySet
from svc.model.reasons import Reason
from tests import signing
from tests.signing import CURVES, DIGESTS, base64url, edwards_key, elliptic_key, jwk, jwk_for, jwks, private_key, token

CLAIMS = {"sub": "build", "exp": 2_000_000_000}

#: Of each curve: the prime of its field, and the order of its group (SP 800-186 3.2.1).
PRIMES = {
    "ES256": 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF,
    "ES384": 2**384 - 2**128 - 2**96 + 2**32 - 1,
    "ES512": 2**521 - 1,
}
ORDERS = {
    "ES256": 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
    "ES384": 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973,
    "ES512": 2**521 - 0x5AE79787C40D069948033FEB708F65A2FC44A36477663B851449048E16EC79BF7,
}

#: The order of the group that Ed25519 signs in (RFC 8032 5.1).
EDWARDS_ORDER = 2**252 + 27742317777372353535851937790883648493


def resigned(text: bytes, by: Callable[[bytes], bytes]) -> bytes:
    """A token with the signature that ``by`` makes of its signing input."""
    signing_input = text.rpartition(b".")[0]
    return signing_input + b"." + base64url(by(signing_input)).encode("ascii")


def replaced(text: bytes, signature: bytes) -> bytes:
    """A token with another signature."""
    return resigned(text, lambda _: signature)


def signature_of(text: bytes) -> bytes:
    """The signature in a token."""
    return signing.decoded(text.rpartition(b".")[2])


class Attack(SynchronousTestCase):
    """Key sets of one provider, and what is refused with them."""

    def keys(self, *entries: object, allowed: tuple[str, ...] = ALGORITHMS) -> KeySet:
        """A set of these keys, for an authenticator that allows these algorithms."""
        return parse_key_set(jwks(*entries), allowed)

    def verified(self, text: bytes, keys: KeySet, allowed: tuple[str, ...] = ALGORITHMS) -> object:
        """The claims of a token that is good."""
        return verify_token(keys, parse_compact(text, algorithms=allowed))

    def assert_refused(
        self, text: bytes, keys: KeySet, *reasons: Reason, allowed: tuple[str, ...] = ALGORITHMS, about: object = None
    ) -> None:
        """The token is refused, for one of the reasons."""
        refused: EvidenceRefused = self.assertRaises(EvidenceRefused, self.verified, text, keys, allowed)
        self.assertIn(refused.reason, reasons, (refused.detail, about))
        self.assertTrue(refused.detail.isprintable() and len(refused.detail) < 500, refused.detail)

    def assert_wrong(self, text: bytes, keys: KeySet, about: object = None) -> None:
        """The signature is wrong."""
        self.assert_refused(text, keys, Reason.SIGNATURE_WRONG, about=about)

    def assert_problem(self, what: str, entry: dict[str, object]) -> None:
        """The key is refused for what is said, and a good one beside it serves."""
        keys = self.keys(entry, jwk("good"))
        self.assertEqual([key.key_id for key in keys.keys], ["good"])
        (problem,) = keys.problems
        self.assertIn(f"key 1 'k1' is refused: {what}", problem)

    def assert_unused(self, entry: dict[str, object], allowed: tuple[str, ...] = ALGORITHMS) -> None:
        """The key is for something else, which is no fault, and told."""
        keys = self.keys(entry, allowed=allowed)
        self.assertEqual((keys.keys, keys.problems), ((), ()))
        self.assertIn("key 1 'k1' is not used", keys.unused[0])


class EveryAlgorithmAttacks(Attack):
    """What holds for each of the ten."""

    def test_verifies(self) -> None:
        """A good token is good with a key that names its algorithm, and one that names none, where it is allowed."""
        for algorithm in ALGORITHMS:
            for entry in (jwk_for(algorithm), jwk_for(algorithm, alg=algorithm, use="sig", key_ops=["verify"])):
                for allowed in (ALGORITHMS, (algorithm,)):
                    text = token(CLAIMS, algorithm=algorithm)
                    self.assertEqual(self.verified(text, self.keys(entry, allowed=allowed), allowed), CLAIMS)

    def test_what_is_not_allowed(self) -> None:
        """No key and no header widens what the operator allows: neither the token nor its key is used (AUTH-17)."""
        for algorithm in ALGORITHMS:
            others = tuple(other for other in ALGORITHMS if other != algorithm)
            for allowed in (others, DEFAULT_ALGORITHMS if algorithm not in DEFAULT_ALGORITHMS else ("ES256",)):
                keys = self.keys(jwk_for(algorithm, alg=algorithm), allowed=allowed)
                text = token(CLAIMS, algorithm=algorithm)
                self.assert_refused(text, keys, Reason.ALGORITHM_REFUSED, allowed=allowed)
                self.assertEqual(keys.keys, ())
                self.assert_unused(jwk_for(algorithm, alg=algorithm), allowed)
                # Not even where the reader of tokens would let it pass.
                self.assert_refused(text, keys, Reason.KEY_UNKNOWN)

    def test_what_the_key_is_not_for(self) -> None:
        """A key that names an algorithm verifies no other, though the type of the key were right (AUTH-17)."""
        for algorithm in ALGORITHMS:
            for other in set(ALGORITHMS) - {algorithm}:
                entry = jwk_for(algorithm, alg=other)
                keys = self.keys(entry)
                reason = Reason.ALGORITHM_REFUSED if keys.keys else Reason.KEY_UNKNOWN
                self.assert_refused(token(CLAIMS, algorithm=algorithm), keys, reason, about=other)
            for name in ("Ed448", "ES256K", "HS256", "none", algorithm.lower(), f"{algorithm} "):
                self.assert_unused(jwk_for(algorithm, alg=name))
            for value in (1, [algorithm], {algorithm: 1}):
                self.assert_unused({**jwk_for(algorithm), "alg": value})

    def test_one_algorithm_for_another(self) -> None:
        """A right signature by one algorithm is wrong under the name of another, whichever keys are there."""
        for used in ALGORITHMS:
            for stated in set(ALGORITHMS) - {used}:
                text = signing.signed({"alg": stated, "kid": "k1"}, CLAIMS, algorithm=used)
                keys = self.keys(jwk_for(stated))
                self.assert_wrong(text, keys, (used, stated))
                self.assert_refused(text, self.keys(jwk_for(used)), Reason.ALGORITHM_REFUSED, Reason.SIGNATURE_WRONG)

    def test_public_key_as_hmac_secret(self) -> None:
        """A signature by HMAC, with whatever form of the public key as its secret, is none."""
        publics: dict[str, Any] = {"EdDSA": edwards_key().public_key()}
        for algorithm in ALGORITHMS:
            public = (
                publics.get(algorithm)
                or (elliptic_key("k1", algorithm) if algorithm in CURVES else private_key()).public_key()
            )
            keys = self.keys(jwk_for(algorithm))
            for secret in (
                public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
                public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
                json.dumps(jwk_for(algorithm)).encode(),
                str(jwk_for(algorithm).get("x", "")).encode(),
                b"",
            ):

                def mac(signing_input: bytes, secret: bytes = secret) -> bytes:
                    return hmac.digest(secret, signing_input, "sha256")

                text = signing.signed({"alg": "HS256", "kid": "k1"}, CLAIMS)
                self.assert_refused(resigned(text, mac), keys, Reason.ALGORITHM_REFUSED)
                self.assert_wrong(resigned(token(CLAIMS, algorithm=algorithm), mac), keys)

    def test_lengths(self) -> None:
        """A signature that is shorter or longer, by zeros or anything, is wrong, and nothing worse."""
        for algorithm in ALGORITHMS:
            keys, text = self.keys(jwk_for(algorithm)), token(CLAIMS, algorithm=algorithm)
            right = signature_of(text)
            for other in (
                *(right[:-1], right[1:], right + b"\0", b"\0" + right, right * 2, right[: len(right) // 2], b"\0", b"\x01"),
                *(bytes(len(right)), b"\xff" * len(right), right[::-1], bytes(1024)),
            ):
                self.assert_wrong(replaced(text, other), keys, (algorithm, other.hex()))

    def test_leading_zeros(self) -> None:
        """An RSA signature that begins with a zero is wrong without it: it is as long as its key (RFC 8017 8.1.2)."""
        for algorithm in ("RS256", "PS256"):
            keys = self.keys(jwk_for(algorithm))
            texts = (token({**CLAIMS, "jti": str(number)}, algorithm=algorithm) for number in range(10_000))
            text = next(text for text in texts if signature_of(text)[0] == 0)
            verify_token(keys, parse_compact(text, algorithms=ALGORITHMS))
            self.assert_wrong(replaced(text, signature_of(text)[1:]), keys, algorithm)

    @given(st.sampled_from(ALGORITHMS), st.data())
    def test_turned_bits(self, algorithm: str, data: st.DataObject) -> None:
        """A signature with one bit turned is wrong."""
        text = token(CLAIMS, algorithm=algorithm)
        octets = bytearray(signature_of(text))
        bit = data.draw(st.integers(0, 8 * len(octets) - 1))
        octets[bit // 8] ^= 1 << bit % 8
        self.assert_wrong(replaced(text, bytes(octets)), self.keys(jwk_for(algorithm)))

    def test_changed_claims(self) -> None:
        """A signature holds for its own header and payload alone."""
        for algorithm in ALGORITHMS:
            text = token(CLAIMS, algorithm=algorithm)
            keys = self.keys(jwk_for(algorithm))
            head, body, end = text.split(b".")
            admin = base64url(json.dumps({**CLAIMS, "sub": "admin"}).encode()).encode()
            other = base64url(json.dumps({"alg": algorithm, "kid": "k1"}).encode()).encode()
            self.assert_wrong(b".".join((head, admin, end)), keys)
            self.assert_wrong(b".".join((other, body, end)), keys)

    def test_another_key(self) -> None:
        """A signature by another key of the same kind is wrong."""
        for algorithm in ALGORITHMS:
            keys = self.keys(jwk_for(algorithm), jwk_for(algorithm, "k2"))
            self.assert_wrong(token(CLAIMS, "k2", algorithm, kid="k1"), keys)
            self.assertEqual(self.verified(token(CLAIMS, "k2", algorithm), keys), CLAIMS)

    def test_private_parts(self) -> None:
        """A key that holds private parts is refused, whatever its type."""
        for algorithm in ALGORITHMS:
            for member in ("d", "k", "p", "oth"):
                self.assert_problem("it is symmetric or holds private parts", jwk_for(algorithm, **{member: "AQ"}))

    def test_other_uses(self) -> None:
        """A key for another use is not used."""
        for algorithm in ALGORITHMS:
            uses: tuple[dict[str, object], ...] = (
                {"use": "enc"},
                {"use": 1},
                {"key_ops": ["sign"]},
                {"key_ops": "verify"},
                {"key_ops": ["sign", "encrypt"]},
            )
            for members in uses:
                self.assert_unused(jwk_for(algorithm) | members)

    def test_odd_ids(self) -> None:
        """An id is text or absent; of one key without id in a set of one a token needs to say none."""
        for algorithm in ALGORITHMS:
            keys = self.keys({**jwk_for(algorithm), "kid": 1}, jwk("good"))
            self.assertIn("its id is no text", keys.problems[0])
            nameless = self.keys(jwk_for(algorithm, kid=None))
            self.assertEqual(self.verified(token(CLAIMS, algorithm=algorithm, kid=None), nameless), CLAIMS)

    def test_a_set_of_all_types(self) -> None:
        """To an authenticator with three algorithms of RSA, keys of other types are as good as not there."""
        others = [jwk_for(algorithm, name, alg=algorithm) for name, algorithm in (("e", "ES256"), ("p", "PS256"))]
        keys = self.keys(*others, jwk_for("EdDSA", "k1"), jwk("k1", kid=None), allowed=DEFAULT_ALGORITHMS)
        self.assertEqual([key.key_id for key in keys.keys], [None])
        self.assertEqual((keys.problems, len(keys.unused)), ((), 3))
        self.assertEqual(self.verified(token(CLAIMS, kid=None), keys), CLAIMS)
        self.assertEqual(self.verified(token(CLAIMS), keys), CLAIMS)

    def test_an_id_of_two_types(self) -> None:
        """Of several keys of one id that of the token's algorithm is used, and no other (AUTH-41)."""
        keys = self.keys(*(jwk_for(algorithm, "k1", alg=algorithm) for algorithm in ("ES256", "EdDSA", "RS256")))
        self.assertEqual((len(keys.keys), keys.problems), (3, ()))
        for algorithm in ("ES256", "EdDSA", "RS256"):
            self.assertEqual(self.verified(token(CLAIMS, algorithm=algorithm), keys), CLAIMS)
            self.assert_wrong(replaced(token(CLAIMS, algorithm=algorithm), b"x" * 64), keys)
        self.assert_refused(token(CLAIMS, algorithm="RS384"), keys, Reason.ALGORITHM_REFUSED)
        self.assert_wrong(signing.signed({"alg": "ES256", "kid": "k1"}, CLAIMS, algorithm="RS256"), keys)

    def test_an_id_of_two_keys(self) -> None:
        """Different keys of one id that may verify the same algorithm are refused, and others are not (AUTH-40)."""
        entries = jwk_for("RS256", "k1"), jwk_for("RS256", "k3", kid="k1", alg="RS512"), jwk_for("ES256", "k2")
        keys = self.keys(*entries)
        self.assertEqual([key.key_id for key in keys.keys], ["k2"])
        self.assertEqual(keys.problems, ("2 different keys are refused: they share the id 'k1' and an algorithm",))


class EllipticAttacks(Attack):
    """ES256, ES384 and ES512."""

    def curves(self) -> Iterator[tuple[str, KeySet, bytes, int, int, int]]:
        """Of each algorithm: a set with its key, a token, the size of a number, and both numbers of its signature."""
        for algorithm, (_, _, size) in CURVES.items():
            text = token(CLAIMS, algorithm=algorithm)
            octets = signature_of(text)
            r, s = (int.from_bytes(half, "big") for half in (octets[:size], octets[size:]))
            yield algorithm, self.keys(jwk_for(algorithm)), text, size, r, s

    def test_published_example(self) -> None:
        """The example of RFC 7515 A.3 is good, and its key has no other thumbprint than other libraries give it."""
        key = {
            "kty": "EC",
            "crv": "P-256",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
        }
        text = (
            b"eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290"
            b"Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
        )
        keys = self.keys(key)
        claims = {"iss": "joe", "exp": 1300819380, "http://example.com/is_root": True}
        self.assertEqual(self.verified(text, keys), claims)
        self.assertEqual(keys.keys[0].thumbprint, "oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-U")

    def test_numbers_out_of_range(self) -> None:
        """A number that is nothing, the order of the group, or more, is wrong, also where it stands for a right one."""
        for algorithm, keys, text, size, r, s in self.curves():
            order, most = ORDERS[algorithm], (1 << 8 * size) - 1
            odd = (0, order, order + 1, most, PRIMES[algorithm])
            pairs = [(0, 0), (1, 1), (order, order), (order - 1, order - 1), (s, r), (order - r, s), (r, r), (0, 1), (1, 0)]
            pairs += [(number, s) for number in odd] + [(r, number) for number in odd]
            for left, right in pairs:
                octets = left.to_bytes(size, "big") + right.to_bytes(size, "big")
                self.assert_wrong(replaced(text, octets), keys, (algorithm, left, right))

    def test_other_spellings(self) -> None:
        """A signature in DER, or of numbers with more or fewer octets, is wrong: it has one length, and one spelling."""
        for algorithm, keys, text, size, r, s in self.curves():
            digest = DIGESTS[algorithm[2:]]
            private = elliptic_key("k1", algorithm)
            der = private.sign(text.rpartition(b".")[0], ec.ECDSA(digest))
            self.assert_wrong(replaced(text, der), keys)
            for width in {size - 1, size + 1, 66, 2 * size} - {size}:
                octets = b"".join((number % (1 << 8 * width)).to_bytes(width, "big") for number in (r, s))
                self.assert_wrong(replaced(text, octets), keys, (algorithm, width))
            little = r.to_bytes(size, "little") + s.to_bytes(size, "little")
            self.assert_wrong(replaced(text, little), keys, algorithm)

    def test_another_digest(self) -> None:
        """A signature of another digest than the algorithm's is wrong."""
        for algorithm, keys, text, size, _, _ in self.curves():
            for digest in (SHA1(), *(other for bits, other in DIGESTS.items() if bits != algorithm[2:])):

                def by(part: bytes, digest: HashAlgorithm = digest, name: str = algorithm, size: int = size) -> bytes:
                    return signing.raw(elliptic_key("k1", name).sign(part, ec.ECDSA(digest)), size)

                self.assert_wrong(resigned(text, by), keys, (algorithm, digest.name))

    def test_another_curve(self) -> None:
        """A key on another curve verifies nothing, and the curve's name alone makes no key (AUTH-40)."""
        for algorithm, (curve, _, size) in CURVES.items():
            other = {"ES256": "ES384", "ES384": "ES512", "ES512": "ES256"}[algorithm]
            text = token(CLAIMS, algorithm=algorithm)
            self.assert_refused(text, self.keys(jwk_for(other)), Reason.ALGORITHM_REFUSED)
            self.assert_unused(jwk_for(other), (algorithm,))
            wrong = CURVES[other][2]
            self.assert_problem(f"its 'x' has {wrong} octets, not {size}", jwk_for(other, crv=curve))
            for name in ("secp256k1", "K-256", "p-256", "P256", "Ed25519", "", 256, None, ["P-256"]):
                self.assert_unused({**jwk_for(algorithm), "crv": name})
            self.assert_unused(jwk_for(algorithm, crv=None))

    def test_points_that_are_none(self) -> None:
        """Coordinates off the curve, at infinity or beyond the field make no key, and neither do those of other sizes."""
        for algorithm, (_, _, size) in CURVES.items():
            point, prime = elliptic_key("k1", algorithm).public_key().public_numbers(), PRIMES[algorithm]

            def entry(x: int, y: int, algorithm: str = algorithm, size: int = size) -> dict[str, object]:
                return jwk_for(algorithm, x=base64url(x.to_bytes(size, "big")), y=base64url(y.to_bytes(size, "big")))

            self.assertEqual(len(self.keys(entry(point.x, prime - point.y)).keys), 1)
            for x, y in ((point.x, point.y ^ 1), (point.y, point.x), (0, 0), (point.x, 0), (0, 1), (1, 1), (prime, prime)):
                self.assert_problem("it is no point of its curve", entry(x, y))
            for number in (prime, (1 << 8 * size) - 1):
                self.assert_problem("it is no point of its curve", entry(number, point.y))
                self.assert_problem("it is no point of its curve", entry(point.x, number))
            text = str(jwk_for(algorithm)["x"])
            for other in (f"AA{text}"[: len(text)] + "AAAA", base64url(bytes(size - 1)), base64url(b"\0" + bytes(size))):
                self.assert_problem("its 'x' has ", jwk_for(algorithm, x=other))
            odd: tuple[object, ...] = (None, "", 1, f"{text}=", f"{text[:-1]} ", ["AA"])
            for value in odd:
                for member in ("x", "y"):
                    keys = self.keys({**jwk_for(algorithm), member: value}, jwk("good"))
                    self.assertEqual((len(keys.keys), len(keys.problems)), (1, 1))

    def test_coordinates_beyond_the_field(self) -> None:
        """A point has one spelling: a small coordinate to which the prime of the field was added is none."""
        prime, b = PRIMES["ES256"], 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
        for x in range(1, 50):
            square = (x**3 - 3 * x + b) % prime
            y = pow(square, (prime + 1) // 4, prime)
            if y * y % prime != square:
                continue
            coordinates = {"y": base64url(y.to_bytes(32, "big"))}
            self.assertEqual(len(self.keys(jwk_for("ES256", x=base64url(x.to_bytes(32, "big")), **coordinates)).keys), 1)
            moved = base64url((x + prime).to_bytes(32, "big"))
            self.assert_problem("it is no point of its curve", jwk_for("ES256", x=moved, **coordinates))


class PssAttacks(Attack):
    """PS256, PS384 and PS512."""

    def test_salts_and_digests(self) -> None:
        """Salt, digest and that of the mask are those of the algorithm (RFC 7518 3.5); a signature with others is wrong."""
        for algorithm in ("PS256", "PS384", "PS512"):
            keys, text, digest = self.keys(jwk_for(algorithm)), token(CLAIMS, algorithm=algorithm), DIGESTS[algorithm[2:]]
            size = digest.digest_size
            cases = [(digest, digest, salt) for salt in (0, 1, size - 1, size + 1, 20, PSS.MAX_LENGTH)]
            cases += [(digest, other, size) for other in (SHA1(), *DIGESTS.values()) if other.name != digest.name]
            cases += [(other, other, size) for other in (SHA1(), *DIGESTS.values()) if other.name != digest.name]
            cases += [(other, digest, size) for other in DIGESTS.values() if other.name != digest.name]

            for used, mask, salt in cases:

                def by(part: bytes, used: Any = used, mask: Any = mask, salt: Any = salt) -> bytes:
                    return private_key().sign(part, PSS(MGF1(mask), salt), used)

                self.assert_wrong(resigned(text, by), keys, (algorithm, used.name, mask.name, salt))

    def test_shifted_by_the_modulus(self) -> None:
        """A signature plus the modulus is another text for one number, and refused."""
        for algorithm in ("PS256", "PS384", "PS512"):
            text = token(CLAIMS, algorithm=algorithm)
            moved = int.from_bytes(signature_of(text), "big") + private_key().public_key().public_numbers().n
            for size in (256, 257):
                if moved.bit_length() <= 8 * size:
                    octets = moved.to_bytes(size, "big")
                    self.assert_wrong(replaced(text, octets), self.keys(jwk_for(algorithm)))

    def test_weak_keys(self) -> None:
        """What is too weak a key for RS256 is too weak for PS256."""
        self.assert_problem("it has 1024 bits", {**jwk("short", 1024, alg="PS256"), "kid": "k1"})
        self.assert_problem("its exponent is not", jwk("k1", e="Aw", alg="PS512"))


class EdwardsAttacks(Attack):
    """EdDSA."""

    def test_published_example(self) -> None:
        """The key of RFC 8037 A.2 verifies what is signed with it in A.4, and has the thumbprint of A.3."""
        keys = self.keys({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"})
        self.assertEqual(keys.keys[0].thumbprint, "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k")
        text = (
            b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR"
            b"4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
        )
        # Its payload is no JSON, which nobody knows before the signature was verified.
        self.assert_refused(text, keys, Reason.TOKEN_MALFORMED)
        self.assert_wrong(text.replace(b"IHNpZ25pbmc", b"IHNpZ25pbmd"[:10] + b"k"), keys)

    def test_second_spellings(self) -> None:
        """A signature whose number is not less than the order of the group is wrong (RFC 8032 5.1.7)."""
        text, keys = token(CLAIMS, algorithm="EdDSA"), self.keys(jwk_for("EdDSA"))
        octets = signature_of(text)
        number = int.from_bytes(octets[32:], "little")
        for more in (EDWARDS_ORDER, 2 * EDWARDS_ORDER, 8 * EDWARDS_ORDER, 1 << 255):
            if number + more < 1 << 256:
                other = octets[:32] + (number + more).to_bytes(32, "little")
                self.assert_wrong(replaced(text, other), keys, more)
        for beginning in (bytes(32), b"\x01" + bytes(31), b"\xff" * 32, (2**255 - 18).to_bytes(32, "little")):
            for end in (bytes(32), b"\x01" + bytes(31), octets[32:], EDWARDS_ORDER.to_bytes(32, "little")):
                self.assert_wrong(replaced(text, beginning + end), keys)

    def test_other_edwards_algorithms(self) -> None:
        """Neither Ed448 nor X25519 is EdDSA here, and a key of either is not used."""
        public = ed448.Ed448PrivateKey.generate().public_key().public_bytes_raw()
        self.assert_unused({"kty": "OKP", "crv": "Ed448", "kid": "k1", "x": base64url(public)})
        for curve in ("X25519", "X448", "ed25519", "P-256", "", None, 25519, ["Ed25519"]):
            self.assert_unused({**jwk_for("EdDSA"), "crv": curve})
        self.assert_problem("its 'x' has 57 octets, not 32", jwk_for("EdDSA", x=base64url(public)))
        signer = ed448.Ed448PrivateKey.generate()
        self.assert_wrong(resigned(token(CLAIMS, algorithm="EdDSA"), signer.sign), self.keys(jwk_for("EdDSA")))

    def test_keys_of_other_sizes(self) -> None:
        """A key has 32 octets, in base64url without padding."""
        octets = edwards_key().public_key().public_bytes_raw()
        for other in (octets[:-1], octets + b"\0", octets * 2):
            self.assert_problem(f"its 'x' has {len(other)} octets, not 32", jwk_for("EdDSA", x=base64url(other)))
        for text in (1, None, f"{base64url(octets)}=", ["AA"]):
            keys = self.keys({**jwk_for("EdDSA"), "x": text}, jwk("good"))
            self.assertEqual((len(keys.keys), len(keys.problems)), (1, 1))

    def test_keys_of_small_order(self) -> None:
        """A key for which anybody could sign is refused, though the library would take the signature (AUTH-40)."""
        neutral = b"\x01" + bytes(31)
        anybodys = neutral + bytes(32)
        ed25519.Ed25519PublicKey.from_public_bytes(neutral).verify(anybodys, b"whatever")
        self.assert_problem("its point is of a small order", jwk_for("EdDSA", x=base64url(neutral)))
        # ``y`` that isn't the field's own, for the same point.
        self.assert_problem(
            "it is no point of its curve", jwk_for("EdDSA", x=base64url((2**255 - 18).to_bytes(32, "little")))
        )

    def test_keys_off_the_curve(self) -> None:
        """A key that is no point is refused when it is read, and not only with each of its tokens."""
        off = (2).to_bytes(32, "little")
        library = ed25519.Ed25519PublicKey.from_public_bytes(off)
        self.assertRaises(InvalidSignature, library.verify, bytes(64), b"")
        self.assert_problem("it is no point of its curve", jwk_for("EdDSA", x=base64url(off)))


class RsaAttacks(Attack):
    """The algorithms of RSA beside each other."""

    def test_both_paddings(self) -> None:
        """A key that names no algorithm verifies both paddings where both are allowed, and one where one is."""
        both = self.keys(jwk(), allowed=("RS256", "PS256"))
        for algorithm in ("RS256", "PS256"):
            self.assertEqual(self.verified(token(CLAIMS, algorithm=algorithm), both), CLAIMS)
            one = self.keys(jwk(), allowed=(algorithm,))
            other = {"RS256": "PS256", "PS256": "RS256"}[algorithm]
            self.assert_refused(token(CLAIMS, algorithm=other), one, Reason.ALGORITHM_REFUSED)
            self.assert_wrong(signing.signed({"alg": algorithm, "kid": "k1"}, CLAIMS, algorithm=other), one)

    def test_digest_of_another_size(self) -> None:
        """PS512 signed with the digest of PS256, and the other way round, is wrong."""
        for stated, digest in (("PS256", SHA512()), ("PS512", SHA256())):

            def by(part: bytes, digest: Any = digest) -> bytes:
                return private_key().sign(part, PSS(MGF1(digest), digest.digest_size), digest)

            self.assert_wrong(resigned(token(CLAIMS, algorithm=stated), by), self.keys(jwk()))

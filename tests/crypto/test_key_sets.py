"""Tests of ``svc.crypto.key_sets``: key sets are read one way or not at all."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateNumbers, RSAPublicNumbers
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.crypto.key_sets import build_key_set, parse_key_set
from svc.model.key_sets import EvidenceRefused, KeySet
from svc.model.strict_json import Malformed
from tests import signing
from tests.crypto.test_signatures import CLAIMS, verified
from tests.signing import jwk, jwk_for, jwks, number, private_key, roca_prime, signed


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
        for exponent in (1, 2, 3, 17, 65535, 65536, 65538, (1 << 32) + 1, (1 << 2047) + 1):
            self.assertIn("exponent", self.problem(jwk(e=number(exponent))))
        self.assertEqual(self.ids(parse_key_set(jwks(jwk(e=number((1 << 32) - 1))))), ["k1"])

    def test_malformed_keys_are_refused(self) -> None:
        """A key without its numbers, type or a text as id is reported, and others beside it serve."""
        entries: list[object] = [1, None, [], "key", {}, jwk(kty=1), jwk(kid=7), jwk(n=None, x=1), jwk(e=""), jwk(n="")]
        entries += [jwk(n=5), jwk(n="AA=="), jwk(n="\u00e9\u00e9"), jwk(n=number((1 << 2047) + 2))]
        for entry in entries:
            keys = parse_key_set(jwks(entry, jwk("k2")))
            self.assertEqual((self.ids(keys), len(keys.problems)), (["k2"], 1))

    def test_malformed_members_are_named(self) -> None:
        """The problem of a key names the member that can't be read, and why: absent, no text, or no base64url (AUTH-40)."""
        modulus = number((1 << 2047) + 1)
        for members, why in (
            ({"e": None}, "it has no 'e'"),
            ({"e": 65537}, "its 'e' is no text in base64url"),
            ({"n": f"{modulus}="}, "its 'n' is refused: it is not "),
            ({"n": f"{modulus[:-2]}+/"}, "its 'n' is refused: it is not "),
            ({"n": f"{modulus[:76]}\n{modulus[76:]}"}, "its 'n' is refused: it is not "),
            ({"n": "\u00e9"}, "its 'n' is refused: it is not "),
        ):
            self.assertIn(f"key 1 'k1' is refused: {why}", self.problem({**jwk(), **members}))

    def test_members_that_are_absent(self) -> None:
        """A member that is null or empty is as good as absent, as serializers write them, and no number is a private part;
        members that hold a text, or list other uses, count (AUTH-40).
        """
        absent: tuple[dict[str, object], ...] = (
            {"key_ops": [], "oth": [], "x5c": []},
            dict.fromkeys(("d", "p", "q", "dp", "dq", "qi", "k", "oth", "use", "alg", "key_ops", "x5c", "x5t", "x5u")),
            {"use": "", "alg": "", "d": "", "oth": {}},
            {"d": 0, "p": False, "q": True, "dp": 1.5, "k": 0},
        )
        for members in absent:
            keys = parse_key_set(jwks({**jwk(), **members}))
            self.assertEqual((self.ids(keys), keys.problems, keys.unused), (["k1"], (), ()), members)
            self.assertEqual(verified(signed({"alg": "RS256", "kid": "k1"}, CLAIMS), keys), CLAIMS)
        kids: tuple[object, ...] = (None, "", [])
        for kid in kids:
            keys = parse_key_set(jwks({**jwk(), "kid": kid}))
            self.assertEqual(self.ids(keys), [None])
            self.assertEqual(verified(signed({"alg": "RS256", "kid": "other"}, CLAIMS), keys), CLAIMS)
        held: tuple[dict[str, object], ...] = (
            {"d": "AQ"},
            {"oth": [{}]},
            {"oth": "x"},
            {"k": "AQ"},
            {"qi": ["AQ"]},
        )
        for members in held:
            self.assertIn("private", self.problem({**jwk(), **members}))
        self.assertIn("its 'key_ops'", parse_key_set(jwks({**jwk(), "key_ops": ["encrypt"]})).unused[0])

    def test_each_reason_is_told(self) -> None:
        """A set without usable key says of each why, and which algorithms could be allowed for them (AUTH-40)."""
        for entries, why, wanted in (
            ((), "it has no usable key: the set is empty", ()),
            (
                (jwk_for("ES256", "e1"),),
                "it has no usable key: key 1 'e1' is not used: it is for ES256, not for RS256, RS384 or RS512;"
                " the variable algorithms could allow ES256",
                ("ES256",),
            ),
            (
                (jwk_for("EdDSA", "a", alg="Ed25519"), jwk_for("ES384", "b", alg="ES384", use="sig"), jwk("c", alg="PS256")),
                "it has no usable key: key 1 'a' is not used: it is for EdDSA, not for RS256, RS384 or RS512;"
                " key 2 'b' is not used: it is for ES384, not for RS256, RS384 or RS512;"
                " key 3 'c' is not used: it is for PS256, not for RS256, RS384 or RS512;"
                " the variable algorithms could allow ES384 or PS256 or EdDSA",
                ("ES384", "PS256", "EdDSA"),
            ),
            (
                (jwk("a", use="jwt-svid"),),
                "it has no usable key: key 1 'a' is not used: its 'use' is 'jwt-svid', not 'sig'",
                (),
            ),
            ((jwk("a", use="SIG"),), "it has no usable key: key 1 'a' is not used: its 'use' is 'SIG', not 'sig'", ()),
            (
                (jwk("a", alg="RSA"),),
                "it has no usable key: key 1 'a' is not used:"
                " its 'alg' is 'RSA', which is no signature that a key of its kind verifies here",
                (),
            ),
            (
                ({"kty": "OKP", "crv": "Ed448", "kid": "a", "x": "AA"}, {"kty": "AKP", "kid": "b"}),
                "it has no usable key:"
                " key 1 'a' is not used: keys of the type 'OKP' on the curve 'Ed448' verify nothing here;"
                " key 2 'b' is not used: keys of the type 'AKP' verify nothing here",
                (),
            ),
            (
                (jwk("weak", 1024), jwk_for("ES256", "e1")),
                "it has no usable key: key 1 'weak' is refused: it has 1024 bits; 2048 to 8192 are allowed;"
                " key 2 'e1' is not used: it is for ES256, not for RS256, RS384 or RS512;"
                " the variable algorithms could allow ES256",
                ("ES256",),
            ),
        ):
            keys = parse_key_set(json.dumps({"keys": entries}).encode())
            self.assertEqual((keys.why_unusable, keys.wanted), (why, wanted))

    def test_leading_zeros_of_a_modulus_change_nothing(self) -> None:
        """A modulus written with the sign octet that some libraries add is the same key."""
        modulus = private_key().public_key().public_numbers().n
        keys = parse_key_set(jwks(jwk(n=signing.base64url(modulus.to_bytes(257, "big")))))
        self.assertEqual(keys.keys[0].thumbprint, parse_key_set(jwks()).keys[0].thumbprint)

    def test_different_keys_of_one_id_are_refused(self) -> None:
        """When two keys share an id neither is used, and others are (AUTH-40)."""
        keys = parse_key_set(jwks(jwk("k1", kid="same"), jwk("k2", kid="same"), jwk("k3")))
        self.assertEqual(self.ids(keys), ["k3"])
        self.assertEqual(keys.problems, ("2 different keys are refused: they share the id 'same' and an algorithm",))

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
        self.assertRaises(Malformed, build_key_set, {"keys": [jwk()] * 257})

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
        (key,) = build_key_set({"keys": [example]}).keys
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
        build_key_set({"keys": [members, {**jwk(), **members}]})

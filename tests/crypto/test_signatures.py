"""Tests of ``svc.crypto.jws``: what a key set verifies."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

import svc
from svc.crypto.jws import parse_compact, verify_token
from svc.crypto.key_sets import parse_key_set
from svc.model.key_sets import EvidenceRefused, KeySet, SignedClaims
from svc.model.reasons import Reason
from tests import EXAMPLES, signing
from tests.signing import jwk, jwks, private_key, sign, signed, token

CLAIMS = {"sub": "build", "exp": 2_000_000_000, "nested": {"a": [1, 2.5, None, True]}}


def verified(text: bytes, keys: KeySet) -> SignedClaims:
    """Read and verify, as the authenticator does."""
    return verify_token(keys, parse_compact(text))


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
                EvidenceRefused, verify_token, self.keys, parse_compact(token(CLAIMS)), frozenset({name, "other"})
            )
            self.assertEqual(
                (refused.reason, refused.detail), (Reason.KEY_DISTRUSTED, f"the key '{name}' is distrusted here")
            )
            self.assertEqual(verify_token(self.keys, parse_compact(token(CLAIMS, "k2")), frozenset({name})), CLAIMS)

    def test_distrusted_under_every_name(self) -> None:
        """A key that its set publishes under two ids is distrusted by either (AUTH-51)."""
        keys = parse_key_set(jwks(jwk("k1"), jwk("k1", kid="again"), jwk("k2")))
        for name in ("k1", "again"):
            refused = self.assertRaises(
                EvidenceRefused, verify_token, keys, parse_compact(token(CLAIMS, "k1", kid=name)), frozenset({"k1"})
            )
            self.assertEqual(refused.reason, Reason.KEY_DISTRUSTED)
        self.assertEqual(verify_token(keys, parse_compact(token(CLAIMS, "k2")), frozenset({"k1"})), CLAIMS)

    def test_distrusted_by_the_name_in_the_token(self) -> None:
        """A key without id in its set is distrusted by the id that tokens give it, too."""
        keys = parse_key_set(jwks(jwk("k1", kid=None)))
        parsed = parse_compact(token(CLAIMS, kid="k7"))
        self.assertEqual(verify_token(keys, parsed, frozenset({"k1"})), CLAIMS)
        self.assertRaises(EvidenceRefused, verify_token, keys, parsed, frozenset({"k7"}))

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
        self.assertEqual(makers, {"jws.py"})


class ReadingTests(SynchronousTestCase):
    """Both halves together."""

    def test_signing_input_is_what_was_sent(self) -> None:
        """The signature covers the parts as sent, not as written again: blanks in the JSON survive."""
        keys = parse_key_set(jwks())
        text = signed(b' {"alg" : "RS256",\n"kid":"k1"} ', b'{ "a" : 1 }')
        self.assertEqual(verified(text, keys), {"a": 1})
        head, body, _ = signed(b'{"alg":"RS256","kid":"k1"}', b'{"a":1}').split(b".")
        self.assertEqual(verified(sign(head + b"." + body), keys), {"a": 1})

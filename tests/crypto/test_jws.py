"""Tests of ``svc.crypto.jws``: tokens are read one way or not at all."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.crypto.jws import decode_base64url, parse_compact
from svc.model.key_sets import EvidenceRefused
from svc.model.reasons import Reason
from svc.model.strict_json import Malformed
from tests import signing
from tests.signing import jwk, private_key, signed, token

CLAIMS = {"sub": "build", "exp": 2_000_000_000, "nested": {"a": [1, 2.5, None, True]}}


class Base64urlTests(SynchronousTestCase):
    """``decode_base64url``."""

    def assert_malformed(self, text: bytes) -> None:
        """``text`` is refused."""
        self.assertRaises(Malformed, decode_base64url, text)

    @given(st.binary(max_size=100))
    def test_reads_what_is_canonical(self, octets: bytes) -> None:
        """Octets come back from their canonical spelling."""
        self.assertEqual(decode_base64url(signing.base64url(octets).encode("ascii")), octets)

    @given(st.binary(max_size=40) | st.text("AQgwBc-_+/= \n", max_size=9).map(str.encode))
    def test_has_one_spelling(self, text: bytes) -> None:
        """Whatever text is read is the canonical spelling of what it means."""
        try:
            octets = decode_base64url(text)
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
        self.assertEqual(repr(parse_compact(token(CLAIMS))), "UnverifiedJws(algorithm='RS256', key_id='k1')")

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

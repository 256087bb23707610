"""Tests of ``svc.rotation.scram``."""

from __future__ import annotations

import base64
import hashlib
import hmac

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.rotation.scram import MAX_ITERATIONS, ScramExchange, ScramFailed, make_verifier, prepare_password

SALT = b"W" * 16


class Keeper:
    """A server that keeps a verifier, and judges and proves by it alone (RFC 5802 3)."""

    def __init__(self, kept: str) -> None:
        iterations, rest = kept.removeprefix("SCRAM-SHA-256$").split(":", 1)
        salt, keys = rest.split("$")
        self.first = f"r=%s,s={salt},i={iterations}"
        self.stored, self.server = (base64.b64decode(key) for key in keys.split(":"))

    def begin(self, message: bytes) -> bytes:
        """Answer the client's first message."""
        self.bare = message.removeprefix(b"n,,")
        self.nonce = self.bare.split(b"r=")[1] + b"server"
        self.said = (self.first % self.nonce.decode()).encode()
        return self.said

    def end(self, message: bytes) -> bytes | None:
        """Answer the client's final message; ``None`` when its password is wrong."""
        without, _, proof = message.rpartition(b",p=")
        whole = b",".join((self.bare, self.said, without))
        signature = hmac.digest(self.stored, whole, "sha256")
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.sha256(key).digest() != self.stored or without != b"c=biws,r=" + self.nonce:
            return None
        return b"v=" + base64.b64encode(hmac.digest(self.server, whole, "sha256"))


class ScramTests(SynchronousTestCase):
    """Logins and verifiers."""

    def test_known_keys(self) -> None:
        """The verifier of a password has the keys of RFC 7677's example."""
        kept = make_verifier(b"pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
        self.assertEqual(
            kept,
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
            ":wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=",
        )

    @settings(max_examples=20)
    @given(st.binary(min_size=1, max_size=40), st.binary(min_size=1, max_size=40))
    def test_logins(self, password: bytes, other: bytes) -> None:
        """Who knows the password logs in, and learns that the server knows it; who doesn't know it doesn't."""
        keeper = Keeper(make_verifier(password))
        exchange = ScramExchange(password)
        answer = keeper.end(exchange.final_message(keeper.begin(exchange.first_message())))
        assert answer is not None
        exchange.verify_server(answer)
        if other != password and other.strip() != password.strip():
            wrong = ScramExchange(other)
            self.assertIsNone(keeper.end(wrong.final_message(keeper.begin(wrong.first_message()))))

    def test_prepared(self) -> None:
        """A password is hashed in the form that RFC 4013 gives it, and as it is where it gives none."""
        for password, form in (
            ("I\u00adX", "IX"),
            ("\u00aa", "a"),
            ("\u2168", "IX"),
            ("a\u00a0b\u3000c", "a b c"),
            ("a\u200bb", "a b"),
            ("\ufb01ne", "fine"),
            ("e\u0301", "\u00e9"),
            ("\u0627\u0628", "\u0627\u0628"),
            *(
                (same, same)
                for same in ("plain \x07", "a\u0007\u00e9", "\u06271", "a\u0627", "\u00ad", "\u0221", "\ue000\u2168")
            ),
            *((same, same) for same in ("\U0001f600\u2168", "\u2168\u0340")),
        ):
            self.assertEqual(prepare_password(password.encode()), form.encode(), ascii(password))
        self.assertEqual(prepare_password(b"\xff\xc2\xaa"), b"\xff\xc2\xaa")

    def test_servers_that_do_not_know_the_password(self) -> None:
        """A server that can't prove itself isn't believed, whatever it says; nor is one that says so before its time."""
        keeper, exchange = Keeper(make_verifier(b"other")), ScramExchange(b"secret")
        exchange.final_message(keeper.begin(exchange.first_message()))
        for answer in (b"", b"v=", b"v=" + base64.b64encode(bytes(32)), b"e=invalid-proof"):
            self.assertRaises(ScramFailed, exchange.verify_server, answer)
        self.assertRaises(ScramFailed, ScramExchange(b"secret").verify_server, b"v=")

    def test_first_messages(self) -> None:
        """A first message with a foreign nonce, a strange salt or too few or many iterations isn't answered."""
        nonce = b"abc"
        good = b"r=abcdef,s=" + base64.b64encode(SALT) + b",i=4096"
        self.assertTrue(ScramExchange(b"x", nonce).final_message(good))
        for bad in (
            b"",
            good.replace(b"abcdef", b"abc"),
            good.replace(b"abcdef", b"xabcdef"),
            good.replace(b"4096", b"4095"),
            good.replace(b"4096", b"1"),
            good.replace(b"4096", str(MAX_ITERATIONS + 1).encode()),
            good.replace(b"4096", b"-4096"),
            good.replace(b"4096", b"4096,m=x"),
            good.replace(b"s=V", b"s=="),
            b"m=ext," + good,
            good + b"\0",
        ):
            self.assertRaises(ScramFailed, ScramExchange(b"x", nonce).final_message, bad)

    def test_nothing_is_shown(self) -> None:
        """A password isn't in the text of what holds it, and no two verifiers of it are alike."""
        self.assertNotIn("secret", repr(ScramExchange(b"secret")))
        self.assertNotEqual(make_verifier(b"secret"), make_verifier(b"secret"))

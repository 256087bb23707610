"""Tests of ``svc.model.credentials``."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.credentials import KEY_LIMIT, parse_public_key
from tests.sshkeys import ONE, RSA, encoded

PRIVATE: Sequence[rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey] = (
    rsa.generate_private_key(65537, 1024),
    ed25519.Ed25519PrivateKey.generate(),
    ec.generate_private_key(ec.SECP256R1()),
    ec.generate_private_key(ec.SECP384R1()),
    ec.generate_private_key(ec.SECP521R1()),
)


class PublicKeyTests(SynchronousTestCase):
    """Which texts are public keys."""

    def refuse(self, text: str) -> None:
        """The text is refused in words that don't repeat it."""
        refusal = self.assertRaises(ValueError, parse_public_key, text)
        self.assertEqual(str(refusal), "Invalid public key format")

    def test_keys(self) -> None:
        """The keys of every algorithm that SSH has are taken, with a comment or without (KEY-1)."""
        for private in PRIVATE:
            text = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
            for key in (text, f"{text} alice@laptop", f"{text} a comment of ünï words"):
                self.assertEqual(parse_public_key(key), key)
        for algorithm, fields in (
            ("sk-ssh-ed25519@openssh.com", (bytes(32), b"ssh:")),
            ("sk-ecdsa-sha2-nistp256@openssh.com", (b"nistp256", bytes(65), b"ssh:")),
            ("ssh-dss", (b"p", b"q", b"g", b"y")),
        ):
            key = f"{algorithm} {encoded(algorithm.encode(), *fields)}"
            self.assertEqual(parse_public_key(key), key)

    def test_blanks(self) -> None:
        """Blanks around a key and between its words don't count, and the end of the only line doesn't (KEY-1)."""
        self.assertEqual(parse_public_key(f"  {ONE}   a  b \r\n"), f"{ONE} a b")

    def test_private_keys(self) -> None:
        """A private key is refused in every form, also one that is dressed as a public key (KEY-2)."""
        for private in PRIVATE:
            for form in (PrivateFormat.OpenSSH, PrivateFormat.PKCS8):
                pem = private.private_bytes(Encoding.PEM, form, NoEncryption()).decode()
                inner = "".join(pem.splitlines()[1:-1])
                self.refuse(pem)
                for algorithm in ("ssh-rsa", "ssh-ed25519"):
                    self.refuse(f"{algorithm} {inner} laptop")

    def test_junk(self) -> None:
        """What is cut off, goes on, is called otherwise, isn't base64 or has an empty field is refused (KEY-2)."""
        algorithm, key = ONE.split()
        blob = base64.b64decode(key)
        cut = [base64.b64encode(blob[:length]).decode() for length in range(len(blob))]
        for text in (
            "",
            " ",
            algorithm,
            key,
            f"{key} {algorithm}",
            f"ssh-rsa {key}",
            f"SSH-ED25519 {key}",
            f"{algorithm} {RSA.split()[1]}",
            f"{algorithm} {key}=",
            f"{algorithm} {key[:-1]}",
            f"{algorithm} {key.replace('A', '-')}",
            f"{algorithm} ü",
            f"{algorithm} {encoded(algorithm.encode(), bytes(32), b'more')}",
            f"{algorithm} {encoded(algorithm.encode(), b'')}",
            f'command="id" {ONE}',
            *(f"{algorithm} {text}" for text in cut),
        ):
            self.refuse(text)

    def test_lines(self) -> None:
        """A key is one line: what would begin another is refused, as is all that doesn't print (KEY-2)."""
        for char in "\n\r\x0b\x0c\x1c\x85\u2028\u2029\t\x00\x1b\u202e\xa0":
            self.refuse(f"{ONE} a{char}b")
            self.refuse(f"{ONE}{char}{ONE}")

    def test_long(self) -> None:
        """A key has an end (KEY-2)."""
        self.assertEqual(len(parse_public_key(f"{ONE} {'x' * (KEY_LIMIT - len(ONE) - 1)}")), KEY_LIMIT)
        self.refuse(f"{ONE} {'x' * (KEY_LIMIT - len(ONE))}")

    @given(st.text(), st.sampled_from([ONE, RSA, "ssh-rsa", "ssh-rsa AAAA"]))
    def test_any_text(self, text: str, before: str) -> None:
        """Any text makes one line that is taken again as it is, or is refused."""
        for tried in (text, f"{before} {text}", f"{text} {before}"):
            try:
                key = parse_public_key(tried)
            except ValueError:
                continue
            self.assertEqual(parse_public_key(key), key)
            self.assertTrue(key.isprintable())

"""Tests of ``svc.providers.trust``: certificates in PEM, whole or refused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.errors import KeysUnavailable
from svc.providers.trust import certificates, client_tls
from tests.providers.authority import Authority

ONE, TWO = Authority().pem, Authority().pem


class CertificatesTests(SynchronousTestCase):
    """``certificates``."""

    def assert_refused(self, text: str, why: str) -> None:
        """The text is refused for a reason that names the variable."""
        refusal = self.assertRaises(KeysUnavailable, certificates, text)
        self.assertIn(why, refusal.why)
        self.assertTrue(refusal.why.startswith("ca-cert "))

    def test_one_and_several(self) -> None:
        """One certificate is read, and several, with comments between them, other ends of lines, and one twice."""
        for text, count in (
            (ONE, 1),
            (ONE.strip(), 1),
            (ONE + TWO, 2),
            (ONE + ONE, 2),
            (f"# \u00e9\n{ONE}\nsubject=x\n{TWO}", 2),
            (ONE.replace("\n", "\r\n"), 1),
        ):
            self.assertEqual(len(certificates(text)), count)
            client_tls("idp.example", text)

    def test_none(self) -> None:
        """A text without certificate is refused, and so is one that breaks off."""
        for text in ("", "-----BEGIN CERTIFICATE-----", "MIIB", ONE[:-30], ONE.replace("CERTIFICATE", "X509 CRL")):
            self.assert_refused(text, "holds no whole certificate in PEM")

    def test_broken(self) -> None:
        """One broken certificate among good ones is enough, and is named by its place."""
        broken = ONE.replace("\nMII", "\nMIJ")
        self.assertNotEqual(broken, ONE)
        for text in (broken, TWO + broken, "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"):
            self.assert_refused(text, " is broken")
        self.assert_refused(TWO + broken, "certificate 2 of 2")
        self.assert_refused(ONE + TWO[:-30], "holds a broken certificate")

    def test_keys_have_no_place(self) -> None:
        """A private key beside the certificate is a mistake that is told, without the key."""
        self.assert_refused(f"{ONE}-----BEGIN PRIVATE KEY-----\nMC4CAQ\n-----END PRIVATE KEY-----\n", "something else")

    @given(st.text(max_size=40), st.integers(0, len(ONE)), st.integers(0, len(ONE)))
    def test_any_text_is_read_or_refused(self, text: str, start: int, end: int) -> None:
        """Whatever stands in the variable, it is trusted or refused."""
        try:
            certificates(ONE[:start] + text + ONE[end:])
        except KeysUnavailable as error:
            self.assertLess(len(error.why), 200)

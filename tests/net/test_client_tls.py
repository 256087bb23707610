"""Tests of ``svc.net.client_tls``: variables that say whom to trust."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import KeysUnavailable
from svc.net.client_tls import client_tls
from tests.authn.providers.authority import Authority


class ClientTLSTests(SynchronousTestCase):
    """``client_tls``."""

    def test_certificates(self) -> None:
        """The certificates of a variable are taken, also where blanks stand in the place of ends of lines."""
        pem = Authority().pem
        for text in (None, pem, pem.replace("\n", " ")):
            client_tls("idp.example", text)

    def test_faults(self) -> None:
        """What is wrong with a variable is told under its name."""
        for variable in ("ca-cert", "tls-ca-cert"):
            refusal = self.assertRaises(KeysUnavailable, client_tls, "idp.example", "nonsense", variable)
            self.assertTrue(refusal.why.startswith(f"{variable} holds no whole certificate"))

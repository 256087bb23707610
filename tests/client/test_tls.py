"""Tests of ``svc.client.tls``: whose certificates are taken, in memory."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

from OpenSSL import SSL
from twisted.trial.unittest import SynchronousTestCase

from svc.client.tls import client_context, tls_fault
from svc.workload.faults import NoEvidence
from tests.certificates import CHAINS, HOST, TRUSTED, Chain, chain, named


def heard(context: ssl.SSLContext, chain: Chain, host: str = HOST) -> bytes:
    """What a server with this chain hears of a client's first word.

    :raises ssl.SSLError: the client ends it.
    """
    server = SSL.Connection(chain.context())
    server.set_accept_state()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=host)
    for _ in range(6):
        try:
            client.do_handshake()
            client.write(b"secret")
        except ssl.SSLWantReadError:
            if sent := outgoing.read():
                server.bio_write(sent)
            with contextlib.suppress(SSL.Error):
                server.do_handshake()
            with contextlib.suppress(SSL.WantReadError):
                while True:
                    incoming.write(server.bio_read(65_536))
        else:
            server.bio_write(outgoing.read())
            return server.recv(100)
    raise AssertionError("the handshake doesn't end")


class ClientContextTests(SynchronousTestCase):
    """The standard library, as clients of the service use it."""

    def context(self, text: str = TRUSTED) -> ssl.SSLContext:
        """One that trusts the authorities of a text."""
        path = Path(self.mktemp())
        path.write_text(text)
        return client_context(path)

    def test_chains(self) -> None:
        """Good chains are taken; with all others the server hears nothing, and the fault says why (NET-1)."""
        context = self.context()
        for each in CHAINS:
            if each.good:
                self.assertEqual(heard(context, each), b"secret", each.name)
            else:
                error = self.assertRaises(ssl.SSLError, heard, context, each)
                self.assertTrue(tls_fault(error), each.name)

    def test_numbers(self) -> None:
        """A host that is a number needs a certificate with that IP address."""
        context = self.context()
        self.assertEqual(heard(context, Chain("", named("IP:192.0.2.1")), "192.0.2.1"), b"secret")
        for names in (named("192.0.2.1"), named("IP:192.0.2.2"), named(HOST)):
            self.assertRaises(ssl.SSLError, heard, context, Chain("", names), "192.0.2.1")

    def test_only_the_file(self) -> None:
        """With a file nobody else is trusted; without one, the system's authorities alone are."""
        self.assertRaises(ssl.SSLError, heard, client_context(), chain("the host's name"))
        self.assertFalse(self.context().cert_store_stats()["x509"] > 2)

    def test_old_protocols(self) -> None:
        """Nothing before TLS 1.2 is spoken."""
        self.assertEqual(self.context().minimum_version, ssl.TLSVersion.TLSv1_2)

    def test_bad_files(self) -> None:
        """A file that is absent, or holds anything else than whole certificates, is a fault that names it."""
        broken = TRUSTED.replace("MII", "MIJ", 1)
        for text, told in (
            ("", "holds no whole certificate"),
            (TRUSTED + "-----BEGIN PRIVATE KEY-----", "something else than certificates"),
            (TRUSTED.replace("\n", "\n=", 2), "is not usable"),
            (broken, "is broken"),
        ):
            self.assertIn(told, str(self.assertRaises(NoEvidence, self.context, text)))
        absent = self.assertRaises(NoEvidence, client_context, Path(self.mktemp()))
        self.assertIn("cannot be read: No such file", str(absent))

    def test_causes(self) -> None:
        """What is behind an error is found; an error that has nothing of TLS isn't one of it."""
        try:
            try:
                raise ssl.SSLCertVerificationError("x")
            except ssl.SSLError as error:
                error.verify_message = "certificate has expired"  # type: ignore[attr-defined] # as OpenSSL sets it
                raise OSError from error
        except OSError as error:
            self.assertEqual(tls_fault(error), "certificate has expired")
        self.assertIsNone(tls_fault(OSError()))
        self.assertIsNone(tls_fault(None))

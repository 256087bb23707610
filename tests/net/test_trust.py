"""Tests of ``svc.net.trust``: whose certificates are taken, over OpenSSL on both sides and in memory."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

import attrs
from hypothesis import given
from hypothesis import strategies as st
from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.model.errors import KeysUnavailable
from svc.net.trust import EncryptedOnly, Trust, Unproven, client_tls, parse_certificates, tls_fault, web_tls
from tests.authn.providers.authority import Authority
from tests.certificates import CHAINS, HOST, TRUSTED, Chain, named

ONE, TWO = Authority().pem, Authority().pem


def carry(source: SSL.Connection, target: SSL.Connection) -> None:
    """Carry what one side has written to the other."""
    with contextlib.suppress(SSL.WantReadError):
        while True:
            target.bio_write(source.bio_read(65_536))


@attrs.frozen
class Meeting:
    """A client and a server of TLS."""

    client: SSL.Connection
    server: SSL.Connection

    @classmethod
    def of(cls, client: IOpenSSLClientConnectionCreator, chain: Chain) -> Meeting:
        """Begin."""
        server = SSL.Connection(chain.context())
        server.set_accept_state()
        connection = client.clientConnectionForTLS(None)  # type: ignore[arg-type] # it is of no use to it
        connection.set_connect_state()
        return cls(connection, server)

    def greet(self, word: bytes = b"secret") -> bytes:
        """Send a word from the client as soon as may be, and return what the server hears of it.

        :raises SSL.Error: the client ends it.
        """
        for _ in range(6):
            try:
                self.client.send(word)
            except SSL.WantReadError:
                carry(self.client, self.server)
                with contextlib.suppress(SSL.WantReadError):
                    self.server.do_handshake()
                carry(self.server, self.client)
            else:
                carry(self.client, self.server)
                return self.heard()
        raise AssertionError("the handshake doesn't end")

    def heard(self) -> bytes:
        """What has reached the server."""
        try:
            return self.server.recv(100)
        except SSL.Error:
            return b""


def fault(client: IOpenSSLClientConnectionCreator, chain: Chain) -> str | None:
    """What is wrong with a chain in the client's eyes; it says nothing to that server, and hears nothing."""
    meeting = Meeting.of(client, chain)
    try:
        heard = meeting.greet()
    except SSL.Error as error:
        end = meeting.client
        attempts: list[Callable[[], object]] = [
            end.do_handshake,
            *(functools.partial(say, b"secret") for say in (end.send, end.write, end.sendall)),
            *(functools.partial(hear, 1) for hear in (end.recv, end.read)),
            functools.partial(end.recv_into, bytearray(1)),
        ]
        for again in attempts:
            try:
                again()
            except SSL.Error:
                continue
            raise AssertionError("it went on") from None
        carry(meeting.client, meeting.server)
        assert meeting.heard() == b""
        return tls_fault(error)
    assert heard == b"secret"
    return None


class ChainTests(SynchronousTestCase):
    """Chains of certificates."""

    def test_table(self) -> None:
        """Each good chain is taken, and each bad one refused before a byte is said (NET-1, NET-2)."""
        trust = Trust.from_pem(TRUSTED)
        self.assertGreaterEqual(len(CHAINS), 24)
        for chain in CHAINS:
            found = fault(trust.connection_creator(HOST), chain)
            self.assertEqual(found is None, chain.good, f"{chain.name}: {found}")

    def test_faults(self) -> None:
        """An operator reads what is wrong: with the chain in OpenSSL's own words, else with its names (NET-3)."""
        by_name = {chain.name: chain for chain in CHAINS}
        for name, told in (
            ("another host", "the certificate is for another host"),
            ("no name, and an old printer's", "the certificate is for no host"),
            ("expired", "TLS failed: certificate verify failed: certificate has expired"),
            ("not yet valid", "certificate verify failed: certificate is not yet valid"),
            ("signed by itself", "certificate verify failed: self-signed certificate"),
            ("an unknown authority", "certificate verify failed: unable to get local issuer certificate"),
            ("an unknown authority that is sent along", "self-signed certificate in certificate chain"),
            ("the authority between isn't sent", "unable to get local issuer certificate"),
            ("a key of 1024 bits", "EE certificate key too weak"),
            ("an IP address of three bytes", "the certificate can't be judged (ValueError)"),
        ):
            self.assertIn(told, fault(Trust.from_pem(TRUSTED).connection_creator(HOST), by_name[name]) or "")

    def test_hosts(self) -> None:
        """A name is compared with names and a number with numbers, whatever way of writing them is taken (NET-2)."""
        trust = Trust.from_pem(TRUSTED)
        for host, name, good in (
            (HOST.upper(), HOST, True),
            ("bücher.team.example", "xn--bcher-kva.team.example", True),
            ("bücher.team.example", "*.team.example", False),
            ("127.0.0.1", "IP:127.0.0.1", True),
            ("127.0.0.1", "IP:127.0.0.2", False),
            ("127.0.0.1", "127.0.0.1", False),
            ("127.0.0.1", "*.0.0.1", False),
            ("127.0.0.1", "*", False),
            ("::1", "IP:::1", True),
            ("0:0::0:1", "IP:::1", True),
            ("::1", "IP:::2", False),
            ("::ffff:127.0.0.1", "IP:127.0.0.1", False),
            ("fe80::1%lo", "IP:fe80::1", False),
            ("localhost", "localhost", True),
            ("localhost", "*", False),
        ):
            found = fault(trust.connection_creator(host), Chain(name, named(name)))
            self.assertEqual(found is None, good, f"{host} and {name}: {found}")

    def test_no_host(self) -> None:
        """No certificate can be for what is no name of a host (NET-5)."""
        for host in ("", "my_host", "a..b", "-a.b", "a b", "x" * 64, "a\0b", "*.team.example", "1234"):
            self.assertRaises(UnicodeError, Trust.from_pem(TRUSTED).connection_creator, host)

    def test_names_and_numbers_in_greetings(self) -> None:
        """The server is told which name is asked for, and never a number (NET-5)."""
        chain = CHAINS[0]
        for host, told in ((HOST, HOST.encode()), ("127.0.0.1", None), ("::1", None)):
            meeting = Meeting.of(Trust.from_pem(TRUSTED).connection_creator(host), chain)
            self.assertRaises(SSL.WantReadError, meeting.client.do_handshake)
            carry(meeting.client, meeting.server)
            self.assertRaises(SSL.WantReadError, meeting.server.do_handshake)
            self.assertEqual(meeting.server.get_servername(), told)

    def test_any_exception(self) -> None:
        """Whatever goes wrong while a certificate is judged, it isn't taken (NET-3)."""
        for raised in (ValueError("bug"), RuntimeError(), KeyError(1), MemoryError(), RecursionError(), AssertionError()):
            meeting = Meeting.of(Trust.from_pem(TRUSTED).connection_creator(HOST), CHAINS[0])

            class Broken:
                """A name that can't be compared."""

                def verify(self, pattern: object, error: Exception = raised) -> bool:
                    """Fail."""
                    raise error

            meeting.client._wanted = Broken()  # type: ignore[attr-defined] # which nothing but a defect does
            refusal = self.assertRaises(Unproven, meeting.greet)
            self.assertIn(type(raised).__name__, str(refusal))
            self.assertEqual(meeting.heard(), b"")

    def test_platform(self) -> None:
        """Without authorities of its own a trust is the platform's, to which this one doesn't belong (NET-1)."""
        self.assertEqual(
            fault(Trust().connection_creator(HOST), CHAINS[0]),
            "TLS failed: certificate verify failed: unable to get local issuer certificate",
        )

    def test_old_versions(self) -> None:
        """TLS before 1.2 is refused, as is what offers no encryption (NET-4)."""
        for prepare in (
            lambda context: context.set_max_proto_version(SSL.TLS1_1_VERSION),
            lambda context: (
                context.set_max_proto_version(SSL.TLS1_2_VERSION),
                context.set_cipher_list(b"eNULL:@SECLEVEL=0"),
            ),
        ):
            meeting = Meeting.of(Trust.from_pem(TRUSTED).connection_creator(HOST), attrs.evolve(CHAINS[0], weak=True))
            context = attrs.evolve(CHAINS[0], weak=True).context()
            prepare(context)
            server = SSL.Connection(context)
            server.set_accept_state()
            self.assertRaises(SSL.Error, Meeting(meeting.client, server).greet)

    def test_encrypted_only(self) -> None:
        """Who asks for encryption alone gets it from anybody (NET-7)."""
        for chain in CHAINS:
            if chain.certificates and not chain.weak:
                self.assertIsNone(fault(EncryptedOnly(), chain), chain.name)

    def test_provides(self) -> None:
        """They are what Twisted begins TLS with."""
        verifyObject(IOpenSSLClientConnectionCreator, EncryptedOnly())
        verifyObject(IOpenSSLClientConnectionCreator, Trust().connection_creator(HOST))


class CertificatesTests(SynchronousTestCase):
    """``parse_certificates``."""

    def assert_refused(self, text: str, why: str) -> None:
        """The text is refused for this reason."""
        self.assertIn(why, str(self.assertRaises(ValueError, parse_certificates, text)))

    def test_one_and_several(self) -> None:
        """One certificate is read, and several, with comments between them, other ends of lines, and one twice (NET-6)."""
        for text, count in (
            (ONE, 1),
            (ONE.strip(), 1),
            (ONE + TWO, 2),
            (ONE + ONE, 2),
            (f"# \u00e9\n{ONE}\nsubject=x\n{TWO}", 2),
            (ONE.replace("\n", "\r\n"), 1),
        ):
            self.assertEqual(len(parse_certificates(text)), count)

    def test_one_line(self) -> None:
        """Certificates whose ends of lines became blanks, or nothing, are the same certificates (NET-6)."""
        whole = [each.to_cryptography() for each in parse_certificates(ONE + TWO)]
        for blank in (" ", "  ", "\t", " \n ", ""):
            read = parse_certificates((ONE + TWO).replace("\n", blank))
            self.assertEqual([each.to_cryptography() for each in read], whole)

    def test_none(self) -> None:
        """A text without certificate is refused, and so is one that breaks off (NET-6)."""
        for text in ("", "-----BEGIN CERTIFICATE-----", "MIIB", ONE[:-30], ONE.replace("CERTIFICATE", "X509 CRL")):
            self.assert_refused(text, "holds no whole certificate in PEM")

    def test_broken(self) -> None:
        """One broken certificate among good ones is enough, and is named by its place (NET-6)."""
        broken = ONE.replace("\nMII", "\nMIJ")
        self.assertNotEqual(broken, ONE)
        for text in (broken, TWO + broken, "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"):
            self.assert_refused(text, " is broken")
        self.assert_refused(TWO + broken, "certificate 2 of 2")
        self.assert_refused(ONE + TWO[:-30], "holds a broken certificate")

    def test_keys_have_no_place(self) -> None:
        """A private key beside the certificate is a mistake that is told, without the key (NET-6)."""
        self.assert_refused(f"{ONE}-----BEGIN PRIVATE KEY-----\nMC4CAQ\n-----END PRIVATE KEY-----\n", "something else")

    @given(st.text(max_size=40), st.integers(0, len(ONE)), st.integers(0, len(ONE)))
    def test_any_text_is_read_or_refused(self, text: str, start: int, end: int) -> None:
        """Whatever the text, it is trusted or refused."""
        try:
            parse_certificates(ONE[:start] + text + ONE[end:])
        except ValueError as error:
            self.assertLess(len(str(error)), 200)


class ClientTLSTests(SynchronousTestCase):
    """``client_tls``."""

    def test_certificates(self) -> None:
        """The certificates of a variable are taken, also where blanks stand in the place of ends of lines."""
        pem = Authority().pem
        for text in (None, pem, pem.replace("\n", " ")):
            client_tls("idp.example", text)

    def test_protocol(self) -> None:
        """Where HTTP is spoken, HTTP/1.1 is offered, so that a server that has another alone ends the handshake (NET-13)."""
        for client, offered in (
            (web_tls("127.0.0.1", None), [b"http/1.1"]),
            (web_tls("idp.example", None), [b"http/1.1"]),
            (client_tls("idp.example", None), None),
        ):
            context, heard = CHAINS[0].context(), list[list[bytes]]()

            def select(_: object, protocols: list[bytes], heard: list[list[bytes]] = heard) -> bytes:
                heard.append(protocols)
                return protocols[0]

            context.set_alpn_select_callback(select)
            server, end = SSL.Connection(context), client.clientConnectionForTLS(None)  # type: ignore[arg-type]
            server.set_accept_state()
            end.set_connect_state()
            with contextlib.suppress(SSL.Error):
                Meeting(end, server).greet()
            self.assertEqual(heard, [] if offered is None else [offered])

    def test_faults(self) -> None:
        """What is wrong with a variable is told under its name."""
        for variable in ("ca-cert", "tls-ca-cert"):
            refusal = self.assertRaises(KeysUnavailable, client_tls, "idp.example", "nonsense", variable)
            self.assertTrue(refusal.why.startswith(f"{variable} holds no whole certificate"))

"""What ``svc.crypto`` and ``svc.net`` take for granted of libraries, and no page of theirs promises."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import jwt
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePublicKey, EllipticCurvePublicNumbers
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.url import URL
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import ProxyAgent
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from svc.model.key_sets import ALGORITHMS
from tests.signing import edwards_key, elliptic_key, jwk_for, private_key, raw, signature

#: The version of each library with which all of this was seen to hold.
SEEN = {"PyJWT": "2.15.1", "cryptography": "50.0.2", "treq": "26.7.0", "Twisted": "26.10.0"}


def seen(library: str) -> str:
    """What a failure says of the library."""
    return f"seen with {library} {SEEN[library]}, here is {version(library)}"


class PyJwtLeanings(SynchronousTestCase):
    """PyJWT: keys and algorithms, without its tokens."""

    def test_keys_are_those_of_cryptography(self) -> None:
        """``PyJWK.key`` is a public key of ``cryptography``, made of the required members alone."""
        kinds = {"E": EllipticCurvePublicKey, "d": Ed25519PublicKey, "R": RSAPublicKey, "P": RSAPublicKey}
        for algorithm in ALGORITHMS:
            kind = kinds["d" if algorithm == "EdDSA" else algorithm[0]]
            self.assertIsInstance(jwt.PyJWK(jwk_for(algorithm, kid=None), algorithm).key, kind, seen("PyJWT"))

    def test_what_is_no_key(self) -> None:
        """A point off its curve is an error of PyJWT's own, or, as of 2.10, the ``ValueError`` of cryptography."""
        wrong = jwk_for("ES256", x=jwk_for("ES256")["y"])
        try:
            self.fail(f"{jwt.PyJWK(wrong, 'ES256')} was made, {seen('PyJWT')}")
        except (jwt.PyJWTError, ValueError) as error:
            self.assertTrue(str(error))

    def test_verification_is_a_boolean(self) -> None:
        """``verify`` takes that key as it is, and tells by true or false, whatever the length of a signature."""
        for algorithm in ALGORITHMS:
            key = jwt.PyJWK(jwk_for(algorithm), algorithm).key
            verifier = jwt.get_algorithm_by_name(algorithm)
            right = signature(b"text", "k1", algorithm)
            self.assertIs(verifier.verify(b"text", key, right), True, seen("PyJWT"))
            for wrong in (right[:-1], right + b"\0", b"", b"\0", bytes(len(right)), b"\xff" * len(right), bytes(5000)):
                self.assertIs(verifier.verify(b"text", key, wrong), False, seen("PyJWT"))

    def test_curves_are_ours_to_compare(self) -> None:
        """Verifying by ES256 goes with a key on any curve: ``key_sets`` sees to it that a key is for its own alone."""
        key = jwt.PyJWK(jwk_for("ES384"), "ES384").key
        odd = raw(elliptic_key("k1", "ES384").sign(b"text", ECDSA(SHA256())), 48)
        self.assertIs(jwt.get_algorithm_by_name("ES256").verify(b"text", key, odd), True, seen("PyJWT"))


class CryptographyLeanings(SynchronousTestCase):
    """cryptography: what it leaves to its callers."""

    def test_signatures_that_are_wrong(self) -> None:
        """A signature of a wrong size is an ``InvalidSignature`` like any other."""
        for size in (0, 1, 63, 65, 1000):
            self.assertRaises(InvalidSignature, edwards_key().public_key().verify, bytes(size), b"text")

    def test_points_of_small_order(self) -> None:
        """It takes them for keys, and anybody's signatures by them: ``key_sets`` refuses them."""
        neutral = b"\x01" + bytes(31)
        self.assertIsNone(Ed25519PublicKey.from_public_bytes(neutral).verify(neutral + bytes(32), b"text"))

    def test_coordinates_beyond_the_field(self) -> None:
        """It reduces them: ``key_sets`` refuses them."""
        prime, x = 2**256 - 2**224 + 2**192 + 2**96 - 1, 5
        square = (x**3 - 3 * x + 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B) % prime
        y = pow(square, (prime + 1) // 4, prime)
        self.assertEqual(y * y % prime, square)
        key = EllipticCurvePublicNumbers(x + prime, y, SECP256R1()).public_key()
        self.assertEqual(key.public_numbers().x % prime, x, seen("cryptography"))

    def test_what_a_key_costs_is_ours_to_bound(self) -> None:
        """Keys are what was asked for: sizes are checked by ``key_sets``."""
        self.assertEqual(private_key("short", 1024).key_size, 1024)
        self.assertEqual(elliptic_key().curve.name, "secp256r1")


@implementer(IAgent)
class Asked:
    """An agent that keeps what it is asked for."""

    def __init__(self) -> None:
        self.uris: list[bytes] = []

    def request(
        self, method: bytes, uri: bytes, headers: Headers | None = None, bodyProducer: IBodyProducer | None = None
    ) -> Deferred[IResponse]:
        """Never answer."""
        self.uris.append(uri)
        return Deferred()


class AsIs(URL):
    """An address whose text is its own affair."""

    def to_uri(self) -> AsIs:
        """Return it."""
        return self

    def to_text(self, with_password: bool = False) -> str:
        """Return a text that no parser would give."""
        return "http://[::1]//a?"


class HttpLeanings(SynchronousTestCase):
    """treq and Twisted: an address goes out as it was written."""

    def test_treq_asks_for_the_text_of_an_address(self) -> None:
        """Given a ``URL``, treq asks its agent for what ``to_uri().to_text()`` says (``outgoing._VerbatimUrl``)."""
        agent = Asked()
        reactor: Any = MemoryReactorClock()
        HTTPClient(agent).get(AsIs(), allow_redirects=False, unbuffered=True, reactor=reactor)
        self.assertEqual(agent.uris, [b"http://[::1]//a?"], seen("treq"))

    def test_a_proxy_agent_sends_what_it_is_given(self) -> None:
        """``ProxyAgent`` writes the request's target as it is given, with the ``Host`` that it is told."""
        reactor: Any = MemoryReactorClock()
        agent = ProxyAgent(TCP4ClientEndpoint(reactor, "192.0.2.1", 80), reactor)
        agent.request(b"GET", b"//a;?", Headers({b"Host": [b"my_idp"]}))
        transport = StringTransport()
        reactor.tcpClients[0][2].buildProtocol(None).makeConnection(transport)
        self.assertEqual(transport.value().split(b"\r\n")[0], b"GET //a;? HTTP/1.1", seen("Twisted"))
        self.assertEqual(transport.value().count(b"Host: "), 1)

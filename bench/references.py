"""The two references, as simple as ``twisted.web`` allows: ``python -m bench.references bare|limit [KEY.pem]``.

``bare`` answers every request with 100 bytes. ``limit`` does what a login cannot do without: it parses the form, verifies
the RS256 signature with ``cryptography`` and returns an Ed25519-signed token; it knows no policy and no database. Both print
their address as one line.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from twisted.application.reactors import installReactor
from twisted.web import http
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from bench.settings import BARE_BYTES, REACTOR


class Bare(Resource):
    """Answers every request with the same bytes."""

    isLeaf = True

    def render(self, _: Request) -> bytes:
        """Answer."""
        return b"x" * BARE_BYTES


def _decoded(part: bytes) -> bytes:
    return base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))


def _encoded(part: bytes) -> bytes:
    return base64.urlsafe_b64encode(part)


class Limit(Resource):
    """Exchanges a signed JWT for a signed token, and nothing more."""

    isLeaf = True

    def __init__(self, key: RSAPublicKey) -> None:
        super().__init__()
        self._key = key
        self._signer = Ed25519PrivateKey.generate()
        self._protected = _encoded(b'{"alg":"EdDSA"}')

    def render(self, request: Request) -> bytes:
        """Verify, check the expiry, sign."""
        header, payload, signature = request.args[b"jwt"][0].split(b".")
        assert json.loads(_decoded(header))["alg"] == "RS256"
        self._key.verify(_decoded(signature), header + b"." + payload, PKCS1v15(), SHA256())
        claims = json.loads(_decoded(payload))
        now = int(time.time())
        assert claims["exp"] > now
        body = _encoded(json.dumps({"iat": now, "sub": claims["sub"], "exp": now + 480}).encode())
        token = {
            "protected": self._protected.decode(),
            "payload": body.decode(),
            "signature": _encoded(self._signer.sign(self._protected + b"." + body)).decode(),
        }
        request.setHeader(b"content-type", b"application/json")
        return json.dumps(token).encode()


class QuietSite(Site):
    """Writes no access log."""

    def log(self, request: http.Request) -> None:
        """Say nothing."""


def main(name: str, key: str = "") -> None:
    """Serve one reference on a free loopback port until killed."""
    reactor: Any = installReactor(REACTOR)
    if name == "bare":
        resource: Resource = Bare()
    else:
        loaded = load_pem_public_key(Path(key).read_bytes())
        assert isinstance(loaded, RSAPublicKey)
        resource = Limit(loaded)
    site = QuietSite(resource)
    port = reactor.listenTCP(0, site, interface="127.0.0.1")
    print(f"http://127.0.0.1:{port.getHost().port}", flush=True)
    reactor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])

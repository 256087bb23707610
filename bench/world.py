"""The data of the server under load, created through its own HTTP interface.

An account with ``HOSTS`` hosts, each with annotations that its token must match, in a group of the authenticator's
``apps``, of two authenticators, for JWTs and for a cloud's workloads; a provider of both that serves its key set, and where
that is, over HTTP; variables with a value; a group with members.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

import attrs
import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bench.client import Client
from bench.load import Request
from bench.server import ACCOUNT, SERVICE, Server, say
from bench.settings import (
    ALGORITHM,
    ANNOTATIONS,
    CLAIMS_BYTES,
    HOSTS,
    KEY_BITS,
    MEMBERS,
    MEMBERS_PAGE,
    REFUSED,
    UNKNOWN,
    VARIABLES,
)

ISSUER: Final = "https://provider.bench"
AUDIENCE: Final = "svc"
KEY_ID: Final = "bench-1"
SUBSCRIPTION: Final = "11111111-2222-3333-4444-555555555555"
GROUP: Final = "bench"

#: Routes, by their names in the report.
JWT: Final = "JWT authenticate"
CLOUD: Final = "Cloud authenticate"
API_KEY: Final = "API key authenticate"
SECRET: Final = "secret read"
BATCH: Final = f"batch of {VARIABLES}"
MEMBERS_PART: Final = f"members ({MEMBERS_PAGE} of {MEMBERS})"
MEMBERS_ALL: Final = f"members (all {MEMBERS + 1})"
WHOAMI: Final = "whoami"
HEALTH: Final = "health"

_BY_JWT: Final = f"/authn-jwt/{SERVICE}/{ACCOUNT}/authenticate"
_FORM: Final = ("Content-Type", "application/x-www-form-urlencoded")


class Provider:
    """A provider of JWTs and of cloud identity tokens: a key, its tokens, and its key set on a loopback port."""

    def __init__(self) -> None:
        self._key: RSAPrivateKey = generate_private_key(65537, KEY_BITS)
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        keys = self.key_set = json.dumps({"keys": [{**public, "kid": KEY_ID, "use": "sig", "alg": ALGORITHM}]}).encode()

        class KeySet(BaseHTTPRequestHandler):
            """Answers with the key set, and for a tenant with the document that names its address."""

            def do_GET(self) -> None:
                """Answer."""
                document = discovery if self.path.startswith("/tenant/") else keys
                self.send_response(200)
                self.send_header("Content-Length", str(len(document)))
                self.end_headers()
                self.wfile.write(document)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), KeySet)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{self._server.server_port}"
        self.uri, self.tenant = f"{base}/keys", f"{base}/tenant/"
        discovery = json.dumps({"issuer": self.tenant, "jwks_uri": self.uri}).encode()

    def public_pem(self) -> bytes:
        """The public key."""
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def tokens(self, count: int = HOSTS) -> list[str]:
        """One JWT for each host."""
        return [self.jwt(number) for number in range(count)]

    def refused_tokens(self, count: int = REFUSED) -> dict[str, list[str]]:
        """JWTs that are refused, by why they are."""
        return {
            "signature wrong": [forged(self.jwt(number)) for number in range(count)],
            "expired": [self.jwt(number, exp=int(time.time()) - 60) for number in range(count)],
            "unknown host": [self.jwt(number, sub=f"nobody-{number}") for number in range(count)],
            "claim wrong": [self.jwt(number, claim0="another") for number in range(count)],
        }

    def cloud_tokens(self, count: int = HOSTS) -> list[str]:
        """One cloud identity token for each host."""
        return [
            self.token(
                {
                    "iss": self.tenant,
                    "aud": AUDIENCE,
                    "sub": f"oid-{number}",
                    "oid": f"oid-{number}",
                    "xms_mirid": f"/subscriptions/{SUBSCRIPTION}/resourcegroups/{GROUP}/providers"
                    f"/Microsoft.Compute/virtualMachines/vm-{number}",
                }
            )
            for number in range(count)
        ]

    def jwt(self, number: int, **other: object) -> str:
        """The JWT of a host; ``other`` claims take the place of its own."""
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": f"app-{number}"}
        return self.token(claims | {f"claim{n}": f"value {n} of app-{number}" for n in range(ANNOTATIONS)} | other)

    def token(self, claims: Mapping[str, object]) -> str:
        """A token whose claims are padded to ``CLAIMS_BYTES`` of JSON."""
        now = int(time.time())
        timed = {"iat": now, "exp": now + 7200, **claims}
        padding = CLAIMS_BYTES - len(json.dumps(timed | {"padding": ""}, separators=(",", ":")))
        return jwt.encode(timed | {"padding": "x" * padding}, self._key, ALGORITHM, {"kid": KEY_ID})


def _policy() -> Iterator[str]:
    for authenticator, names in (
        ("authn-jwt", ("jwks-uri", "issuer", "audience", "token-app-property", "identity-path")),
        ("authn-cloud", ("provider-uri", "audience")),
    ):
        yield f"- !policy\n  id: svc/{authenticator}/{SERVICE}\n  body:\n  - !webservice\n  - !group apps\n"
        for name in names:
            yield f"  - !variable {name}\n"
        yield "  - !permit\n    role: !group apps\n    privileges: [read, authenticate]\n    resource: !webservice\n"
    yield "- !policy\n  id: apps\n  body:\n  - !group all\n"
    for number in range(HOSTS):
        yield f"  - !host\n    id: app-{number}\n    annotations:\n"
        for n in range(ANNOTATIONS):
            yield f"      authn-jwt/{SERVICE}/claim{n}: value {n} of app-{number}\n"
        yield f"      authn-cloud/subscription-id: {SUBSCRIPTION}\n      authn-cloud/resource-group: {GROUP}\n"
        yield f"      authn-cloud/{SERVICE}/system-assigned-identity: oid-{number}\n"
    yield "  - !grant\n    role: !group all\n    members:\n"
    yield from (f"    - !host app-{number}\n" for number in range(HOSTS))
    for number in range(VARIABLES):
        yield f"  - !variable secret-{number}\n"
        yield f"  - !permit\n    role: !host app-{number}\n    privileges: [read, execute]\n"
        yield f"    resource: !variable secret-{number}\n"
    yield "  - !host reader\n  - !group readers\n"
    yield "  - !grant\n    role: !group readers\n    member: !host reader\n"
    yield "  - !permit\n    role: !group readers\n    privileges: [read, execute]\n    resources:\n"
    yield from (f"    - !variable secret-{number}\n" for number in range(VARIABLES))
    yield "  - !group listed\n  - !grant\n    role: !group listed\n    members:\n"
    yield from (f"    - !host app-{number}\n" for number in range(min(MEMBERS, HOSTS)))
    for authenticator in ("authn-jwt", "authn-cloud"):
        yield f"- !grant\n  role: !group svc/{authenticator}/{SERVICE}/apps\n  member: !group apps/all\n"


def forged(token: str) -> str:
    """The token with another signature."""
    signed, _, signature = token.rpartition(".")
    return f"{signed}.{signature[:100]}{_other(signature[100])}{signature[101:]}"


def wrong(login: Request) -> Request:
    """The login with another API key."""
    return attrs.evolve(login, body=_other(login.body[0]) + login.body[1:])


def by_jwt(token: str) -> Request:
    """A login with a JWT."""
    return Request("POST", _BY_JWT, _FORM, f"jwt={token}")


def by_api_key(host: str, key: str) -> Request:
    """A login of a host with its API key."""
    return Request("POST", f"/authn/{ACCOUNT}/host%2F{quote(host, safe='')}/authenticate", body=key)


def _other(letter: str) -> str:
    return "1" if letter == "2" else "2"


@attrs.frozen
class World:
    """The prepared requests of each route, by its name in the report; those that are refused, by route and why; the seconds
    that the policy took to load; and the admin's API key.
    """

    provider: Provider
    requests: dict[str, list[Request]]
    refused: dict[str, dict[str, list[Request]]]
    policy_seconds: float
    api_key: str = attrs.field(repr=False)

    @classmethod
    def laid(cls, folder: Path) -> Self:
        """Fill a fresh server through its HTTP interface, and stop it: others are started where it was."""
        say("Making the provider, its tokens, and a server with its policy …")
        provider, server = Provider(), Server.started(folder)
        try:
            return cls._filled(server, provider)
        finally:
            server.stop()

    @classmethod
    def _filled(cls, server: Server, provider: Provider) -> Self:
        admin, tokens = server.admin(), provider.tokens()
        started = time.perf_counter()
        loaded = json.loads(admin.ask("POST", f"/policies/{ACCOUNT}/policy/root", "".join(_policy()).encode()))
        policy_seconds = time.perf_counter() - started
        values = {
            f"authn-jwt/{SERVICE}/jwks-uri": provider.uri,
            f"authn-jwt/{SERVICE}/issuer": ISSUER,
            f"authn-jwt/{SERVICE}/audience": AUDIENCE,
            f"authn-jwt/{SERVICE}/token-app-property": "sub",
            f"authn-jwt/{SERVICE}/identity-path": "apps",
            f"authn-cloud/{SERVICE}/provider-uri": provider.tenant,
            f"authn-cloud/{SERVICE}/audience": AUDIENCE,
        }
        for name, value in values.items():
            path = quote(f"svc/{name}", safe="")
            admin.ask("POST", f"/secrets/{ACCOUNT}/variable/{path}", value.encode())
        for number in range(VARIABLES):
            admin.ask("POST", f"/secrets/{ACCOUNT}/variable/apps%2Fsecret-{number}", b"s" * 32)

        reads = []
        for number in range(VARIABLES):
            host = Client(server.url).logged_in(_BY_JWT, b"jwt=" + tokens[number].encode())
            reads.append(Request("GET", f"/secrets/{ACCOUNT}/variable/apps%2Fsecret-{number}", host.header))
        keys = {role["id"].split(":", 2)[2]: role["api_key"] for role in loaded["created_roles"].values()}
        reader = by_api_key("apps/reader", keys["apps/reader"])
        header = Client(server.url).logged_in(reader.path, reader.body.encode()).header
        listed = ",".join(f"{ACCOUNT}:variable:apps/secret-{number}" for number in range(VARIABLES))
        members = f"/roles/{ACCOUNT}/group/apps%2Flisted?members"
        by_cloud = f"/authn-cloud/{SERVICE}/{ACCOUNT}/host%2Fapps%2Fapp-{{}}/authenticate"
        by_keys = [by_api_key(f"apps/app-{number}", keys[f"apps/app-{number}"]) for number in range(HOSTS)]
        return cls(
            provider,
            {
                JWT: [by_jwt(token) for token in tokens],
                CLOUD: [
                    Request("POST", by_cloud.format(number), _FORM, f"jwt={token}")
                    for number, token in enumerate(provider.cloud_tokens())
                ],
                API_KEY: by_keys,
                SECRET: reads,
                BATCH: [Request("GET", f"/secrets?variable_ids={quote(listed, safe='')}", header)],
                MEMBERS_PART: [Request("GET", f"{members}&limit={MEMBERS_PAGE}", admin.header)],
                MEMBERS_ALL: [Request("GET", members, admin.header)],
                WHOAMI: [Request("GET", "/whoami", admin.header)],
                HEALTH: [Request("GET", "/health")],
            },
            {
                JWT: {why: [by_jwt(token) for token in refused] for why, refused in provider.refused_tokens().items()},
                API_KEY: {
                    "key wrong": [wrong(login) for login in by_keys[:REFUSED]],
                    "unknown host": [by_api_key(f"apps/nobody-{n}", by_keys[0].body) for n in range(UNKNOWN)],
                },
            },
            policy_seconds,
            server.api_key,
        )

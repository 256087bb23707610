"""A client of a server under test, over real sockets: what a user or a workload sends, and nothing more.

``Api(url, account)`` asks; ``KeySetSite`` is a JWT provider's web site, whose key set can be changed and whose requests are
counted.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final
from urllib.parse import quote, urlencode

import attrs
import treq
from klein import Klein
from treq.client import HTTPClient
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTCP, IReactorTime
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent, HTTPConnectionPool
from twisted.web.server import Request, Site

from tests.integration.postgres import PATIENCE
from tests.integration.process import beat
from tests.negotiation import is_acceptable
from tests.signing import jwks, token

#: The ``<service-id>`` of the authenticator in :data:`POLICY`.
SERVICE_ID: Final = "ci"

#: Claims of a token that :data:`POLICY` admits, but for its times.
CLAIMS: Final = {"iss": "https://ci.example", "aud": "svc", "app": "shop", "project": "acme/shop", "branch": "main"}

POLICY: Final = """
- !policy
  id: {prefix}/authn-jwt/ci
  body:
    - !webservice
    - !variable jwks-uri
    - !variable issuer
    - !variable audience
    - !variable token-app-property
    - !variable identity-path
    - !group apps
    - !permit
      role: !group apps
      privileges: [ read, authenticate ]
      resource: !webservice
- !policy
  id: apps
  body:
    - !group all
    - !host
      id: shop
      annotations:
        authn-jwt/ci/project: acme/shop
        authn-jwt/ci/branch: main
    - !host bare
    - !host
      id: outsider
      annotations:
        authn-jwt/ci/project: acme/shop
    - !grant
      role: !group all
      members: [ !host shop, !host bare ]
    - !variable password
    - !permit
      role: !host shop
      privileges: [ read, execute ]
      resource: !variable password
- !user alice
- !grant
  role: !group {prefix}/authn-jwt/ci/apps
  member: !group apps/all
"""


@attrs.frozen
class Answer:
    """One answer."""

    status: int
    body: bytes
    headers: dict[str, str]

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@attrs.define
class Api:
    """One server and account, as one client sees them."""

    url: str
    account: str
    http: HTTPClient

    @classmethod
    def of(cls, case: TestCase, url: str, account: str = "acme") -> Api:
        """Make a client whose connections are closed when the test ends."""
        pool = HTTPConnectionPool(installed_reactor)
        case.addCleanup(pool.closeCachedConnections)
        return cls(url, account, HTTPClient(Agent(installed_reactor, pool=pool)))

    async def ask(self, method: str, path: str, body: bytes | None = None, token: str = "", **headers: str) -> Answer:
        """Send a request with an access token, or without."""
        fields: dict[bytes | str, bytes | str] = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            fields["Authorization"] = f'Token token="{token}"'
        response = await self.http.request(method, f"{self.url}{path}", data=body, headers=fields, timeout=60)
        named = {k.decode().lower(): v[-1].decode() for k, v in response.headers.getAllRawHeaders()}
        return Answer(response.code, await treq.content(response), named)

    async def tells(self, path: str, status: int) -> None:
        """Wait until this route has this status."""
        for _ in range(int(PATIENCE / 0.05)):
            if (await self.ask("GET", path)).status == status:
                return
            await beat()
        raise AssertionError(f"{path} never is {status}")

    async def authenticate(self, login: str, api_key: str) -> str:
        """Exchange an API key for an access token."""
        path = f"/authn/{self.account}/{quote(login, safe='')}/authenticate"
        answer = await self.ask("POST", path, api_key.encode())
        assert answer.status == 200, answer
        return base64.b64encode(answer.body).decode()

    async def present(self, jwt: bytes | str, service_id: str = SERVICE_ID, host: str = "") -> Answer:
        """Present a JWT."""
        middle = f"{quote(host, safe='')}/" if host else ""
        path = f"/authn-jwt/{service_id}/{self.account}/{middle}authenticate"
        return await self.ask("POST", path, urlencode({"jwt": jwt}).encode(), Accept_Encoding="base64")

    async def set_up(self, admin_key: str, keys_uri: str, prefix: str = "svc") -> str:
        """Load :data:`POLICY` and set its variables; return the admin's access token."""
        admin = await self.authenticate("admin", admin_key)
        loaded = await self.ask(
            "POST", f"/policies/{self.account}/policy/root", POLICY.format(prefix=prefix).encode(), admin
        )
        assert loaded.status == 201, loaded
        await self.set_values(admin, keys_uri, prefix)
        return admin

    async def set_values(self, admin: str, keys_uri: str, prefix: str = "svc") -> None:
        """Set the variables of :data:`POLICY`, with the admin's access token."""
        values = {
            f"{prefix}/authn-jwt/ci/jwks-uri": keys_uri,
            f"{prefix}/authn-jwt/ci/issuer": CLAIMS["iss"],
            f"{prefix}/authn-jwt/ci/audience": CLAIMS["aud"],
            f"{prefix}/authn-jwt/ci/token-app-property": "app",
            f"{prefix}/authn-jwt/ci/identity-path": "apps",
            "apps/password": "s3cret",
        }
        for name, value in values.items():
            answer = await self.ask("POST", self.variable(name), value.encode(), admin)
            assert answer.status == 201, answer

    def variable(self, identifier: str) -> str:
        """The path of a variable's value."""
        return f"/secrets/{self.account}/variable/{quote(identifier, safe='')}"


def now() -> float:
    """The time, as the server sees it."""
    return IReactorTime(installed_reactor).seconds()


def workload_token(key: str = "k1", **claims: object) -> bytes:
    """A token of the workload ``shop``, good for five minutes; ``claims`` are added, those that are ``None`` left out."""
    all_claims = {**CLAIMS, "iat": int(now()), "exp": int(now()) + 300, **claims}
    return token({name: value for name, value in all_claims.items() if value is not None}, key)


class KeySetSite:
    """A JWT provider's web site. ``document`` is its key set, or one to come, ``asked`` how often it was fetched."""

    def __init__(self, case: TestCase) -> None:
        self.document: bytes | Deferred[bytes] = jwks()
        self.asked = 0
        app = Klein()

        @app.route("/jwks.json")
        def key_set(request: Request) -> bytes | Deferred[bytes]:
            self.asked += 1
            if not is_acceptable(request.getHeader("accept"), "/jwks.json"):
                request.setResponseCode(406)
                return b""
            return self.document

        class Quiet(Site):
            """Writes no access log."""

            noisy = False

            def log(self, request: Any) -> None:
                """Say nothing."""

        site: Any = Quiet(app.resource())
        self._port: Any = IReactorTCP(installed_reactor).listenTCP(0, site, interface="127.0.0.1")
        case.addCleanup(self._port.stopListening)

    @property
    def uri(self) -> str:
        """The address of the key set."""
        return f"http://127.0.0.1:{self._port.getHost().port}/jwks.json"

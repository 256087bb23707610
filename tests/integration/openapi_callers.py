"""Who requests to a real server come from, and the records that they are about, made again when they are gone."""

from __future__ import annotations

import base64
import json
import math
import time
from collections import deque
from typing import Final
from urllib.parse import quote

import attrs
import requests

from svc.model.dialect import Dialect
from tests.integration.openapi_examples import ALICE, FACTORY_TOKEN
from tests.integration.openapi_shots import Shot
from tests.integration.openapi_values import POLICY
from tests.signing import jwks, token

#: Seconds that an answer may take.
PATIENCE: Final = 30

#: Seconds for which a token is surely valid.
_VALID: Final = 120

#: After how many requests records are made again, where some were deleted, and in any case; after how many times others
#: than the admin log in again, and a token is kept until it is none.
_SOME: Final = 100
_MANY: Final = 2000
_OTHERS: Final = 5
_RARELY: Final = 60

#: How often a load is tried that others are in the way of.
_ATTEMPTS: Final = 20

#: Others than the admin: their roles and logins, and what examples have in place of their keys.
_OTHER_ROLES: Final = (
    ("host:app/web", "host/app/web", "5nk1x8w3q7z2"),
    ("user:bob", "bob", ""),
    ("user:alice", "alice", "3mk9b1z2x7n4w8q5v6c0"),
)

_MADE_UP: Final = (
    "",
    "Token",
    'Token token=""',
    'Token token="e30="',
    "Bearer e30.e30.e30",
    "Basic",
    "Basic Og==",
    "Digest x",
)


@attrs.define
class Callers:
    """Those who call one server; ``proofs`` are values of ``Authorization``, most of which prove somebody."""

    url: str
    admin_key: str
    dialect: Dialect
    #: What is sent in place of what examples say: keys and tokens.
    real: dict[str, str] = attrs.field(factory=dict)
    #: The admin's access token, in base64.
    token: str = ""
    proofs: tuple[str, ...] = ()
    _made: int = 0
    _since: int = 0
    _at: float = -math.inf
    _stale: bool = True
    _revoked: bool = False
    _others: list[str] = attrs.field(factory=list)
    #: Tokens from before, which expire or were revoked one day.
    _former: deque[str] = attrs.field(factory=lambda: deque(maxlen=3))
    _http: requests.Session = attrs.field(factory=requests.Session)

    def __attrs_post_init__(self) -> None:
        self._http.trust_env = False

    @property
    def http(self) -> requests.Session:
        """Connections to the server."""
        return self._http

    @property
    def by_token(self) -> str:
        """What proves the admin."""
        return f'Token token="{self.token}"'

    @property
    def by_key(self) -> str:
        """What proves the admin where a password or key is needed."""
        return _basic("admin", self.admin_key)

    def filled(self, shot: Shot) -> Shot:
        """Return a request with real keys and tokens where it has those of examples."""
        for said, meant in self.real.items():
            if said.encode("ascii") in shot.body:
                shot = attrs.evolve(shot, body=shot.body.replace(said.encode("ascii"), meant.encode("ascii")))
            if said in shot.raw_path:
                values = {name: value.replace(said, meant) for name, value in shot.values.items()}
                shot = attrs.evolve(shot, values=values)
            if said in shot.header("authorization"):
                headers = tuple((name, value.replace(said, meant)) for name, value in shot.headers)
                shot = attrs.evolve(shot, headers=headers)
        return shot

    def answered(self, method: str, path: str, status: int, content_type: str) -> None:
        """Take note of an answer: what it deleted or replaced is made again soon, and a token that is none at once."""
        self._since += 1
        if status < 300 and (method == "DELETE" or (method != "POST" and path.startswith("/policies"))):
            self._stale = True
        # Other refusals have another form; a variant of a token is refused like this, too.
        self._revoked = self._revoked or (status == 401 and content_type.startswith("text/plain"))

    @property
    def due(self) -> bool:
        """Whether to renew."""
        late = time.monotonic() - self._at > _VALID or self._since >= _MANY
        self._stale = self._stale or late
        return late or self._revoked or (self._stale and self._since >= _SOME)

    def renew(self) -> None:
        """Have an access token, and the records that requests are about, if they may be gone."""
        login = self._http.post(f"{self.url}/authn/acme/admin/authenticate", self.admin_key, timeout=PATIENCE)
        assert login.status_code == 200, f"the admin can't log in any more: {login.status_code} {login.text}"
        self.token, self._revoked = base64.b64encode(login.content).decode("ascii"), False
        if self._stale:
            self._make()
        self.proofs = (*[self.by_token] * 4, *self._others, *self._former, self.by_key, *_MADE_UP)

    def _make(self) -> None:
        """Make the records that requests are about, and from time to time have the others log in again."""
        policy = POLICY.format(prefix=self.dialect.prefix, cloud=self.dialect.cloud)
        for attempt in range(_ATTEMPTS):
            loaded = self._ask("POST", "/policies/acme/policy/root", policy)
            if loaded.status_code == 201:
                break
            # Others load at the same time.
            assert loaded.status_code in {409, 503}, loaded.text
            time.sleep(0.01 * attempt)
        self._ask("POST", "/secrets/acme/variable/app%2Fpassword", b"s3cret")
        if self._made % _OTHERS == 0:
            self._others = self._logged_in()
        if self._made % _RARELY == 0:
            self._former.append(self.by_token)
        self._made += 1
        self._since, self._at, self._stale = 0, time.monotonic(), False

    def _ask(self, method: str, path: str, body: bytes | str = b"") -> requests.Response:
        headers = {"Authorization": self.by_token, "Content-Type": "application/x-www-form-urlencoded"}
        return self._http.request(method, self.url + path, data=body, headers=headers, timeout=PATIENCE)

    def _logged_in(self) -> list[str]:
        """What proves the others: roles with few rights, a session, a host factory, an identity provider."""
        found = []
        for role, login, said in _OTHER_ROLES:
            key = self._ask("PUT", f"/authn/acme/api_key?role={role}").text
            place = f"{self.url}/authn/acme/{quote(login, safe='')}"
            answer = self._http.post(f"{place}/authenticate", key.encode(), timeout=PATIENCE)
            found += [f'Token token="{base64.b64encode(answer.content).decode("ascii")}"', _basic(login, key)]
            self.real |= {said: key, ALICE: _basic(login, key)} if said else {}
            opened = self._http.post(f"{place}/sessions", key.encode(), timeout=PATIENCE)
            self.real["svcr_refresh"] = opened.json()["refresh_token"] if opened.status_code == 201 else "svcr_x"
        later = "host_factory=acme:host_factory:app/machines&expiration=2999-01-01T00:00:00Z"
        made = self._ask("POST", "/host_factory_tokens", later)
        for each in made.json() if made.status_code == 200 else ():
            found.append(f'Token token="{each["token"]}"')
            self.real[FACTORY_TOKEN] = each["token"]
        provider = {
            "authn-jwt/ci/public-keys": json.dumps({"type": "jwks", "value": json.loads(jwks())}),
            "authn-jwt/ci/token-app-property": "app",
            "authn-jwt/ci/issuer": "idp",
            "authn-oidc/corp/provider-uri": "https://127.0.0.1:9",
            "authn-oidc/corp/client-id": "svc",
            "authn-oidc/corp/id-token-user-property": "name",
            f"{self.dialect.cloud}/corp/provider-uri": "https://127.0.0.1:9",
        }
        for name, value in provider.items():
            branch = quote(f"{self.dialect.prefix}/{name}", safe="")
            self._ask("POST", f"/secrets/acme/variable/{branch}", value)
        self._ask("PATCH", "/authn-jwt/ci/acme", "enabled=true")
        claims = {"iss": "idp", "app": "shop", "project": "acme/shop", "exp": int(time.time()) + 3600}
        self.real["eyJhbGciOiJSUzI1NiJ9.e30.c2lnbmF0dXJl"] = token(claims).decode("ascii")
        return found


def _basic(login: str, secret: str) -> str:
    return f"Basic {base64.b64encode(f'{login}:{secret}'.encode()).decode('ascii')}"

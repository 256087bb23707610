"""Who requests to a real server come from, and the records that they are about, made again when they are gone."""

from __future__ import annotations

import base64
import time
from collections import deque
from typing import Final
from urllib.parse import quote

import attrs
import requests

from tests.integration.openapi_values import POLICY

#: Seconds that an answer may take.
PATIENCE: Final = 30

#: Seconds for which a token is surely valid, and how many renewals pass until others than the admin log in again.
_VALID: Final = 120
_OTHERS: Final = 8

#: How often a load is tried that others are in the way of.
_ATTEMPTS: Final = 20

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
    #: The admin's access token, in base64.
    token: str = ""
    proofs: tuple[str, ...] = ()
    renewals: int = 0
    _since: int = 0
    _at: float = 0.0
    _stale: bool = True
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

    def answered(self, method: str, status: int, proof: str) -> None:
        """Take note of an answer: what it deleted, revoked or replaced is made again soon."""
        self._since += 1
        changed = status < 300 and method in {"PUT", "PATCH", "DELETE"}
        self._stale = self._stale or changed or (status == 401 and proof == self.by_token)

    @property
    def due(self) -> bool:
        """Whether to renew."""
        if time.monotonic() - self._at > _VALID:
            return True
        return self._since >= (40 if self._stale else 400)

    def renew(self) -> None:
        """Have an access token, and the records that requests are about."""
        login = self._http.post(f"{self.url}/authn/acme/admin/authenticate", self.admin_key, timeout=PATIENCE)
        assert login.status_code == 200, f"the admin can't log in any more: {login.status_code} {login.text}"
        if self.token and self.renewals % 50 == 0:
            self._former.append(self.by_token)
        self.token = base64.b64encode(login.content).decode("ascii")
        for attempt in range(_ATTEMPTS):
            loaded = self._ask("POST", "/policies/acme/policy/root", POLICY)
            if loaded.status_code == 201:
                break
            # Others load at the same time.
            assert loaded.status_code in {409, 503}, loaded.text
            time.sleep(0.01 * attempt)
        self._ask("POST", "/secrets/acme/variable/app%2Fpassword", b"s3cret")
        if self.renewals % _OTHERS == 0:
            self._others = self._logged_in()
        self.proofs = (*[self.by_token] * 4, *self._others, *self._former, self.by_key, *_MADE_UP)
        self._since, self._at, self._stale = 0, time.monotonic(), False
        self.renewals += 1

    def _ask(self, method: str, path: str, body: bytes | str = b"") -> requests.Response:
        headers = {"Authorization": self.by_token, "Content-Type": "application/x-www-form-urlencoded"}
        return self._http.request(method, self.url + path, data=body, headers=headers, timeout=PATIENCE)

    def _logged_in(self) -> list[str]:
        """What proves the others: roles with few rights, a session, a host factory."""
        found = []
        for role, login in (("user:alice", "alice"), ("host:app/web", "host/app/web"), ("user:bob", "bob")):
            key = self._ask("PUT", f"/authn/acme/api_key?role={role}").text
            place = f"{self.url}/authn/acme/{quote(login, safe='')}"
            answer = self._http.post(f"{place}/authenticate", key.encode(), timeout=PATIENCE)
            found += [f'Token token="{base64.b64encode(answer.content).decode("ascii")}"', _basic(login, key)]
        later = "host_factory=acme:host_factory:app/machines&expiration=2999-01-01T00:00:00Z"
        made = self._ask("POST", "/host_factory_tokens", later)
        found += [f'Token token="{each["token"]}"' for each in (made.json() if made.status_code == 200 else ())]
        return found


def _basic(login: str, secret: str) -> str:
    return f"Basic {base64.b64encode(f'{login}:{secret}'.encode()).decode('ascii')}"

"""Requests to a real server that schemathesis makes up from its OpenAPI document, and the judgement of the answers.

Half of the requests keep to the document and half don't. Most have an access token, or the proof that the operation takes,
and names of records that there are, since requests with made-up names seldom come far. What a request deletes is made again
from time to time. The one operation whose answer doesn't end is asked without a token alone.
"""

from __future__ import annotations

import base64
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import attrs
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from svc.web.http.faults import V2
from svc.web.openapi.document import operations
from tests.web.openapi.judging import Judge

#: Seconds that an answer may take.
PATIENCE: Final = 30

#: Answers of 500 and more that are no faults: a type without a status, an authenticator that isn't configured, no changes to
#: watch, a server that isn't well, a login that can't be judged.
MEANT: Final = frozenset({501, 502, 503})

#: Nouns of the newer interface.
_NEWER: Final = frozenset({"branches", "groups", "group-members", "configured-authenticators"})

ENDLESS: Final = "secret_watches_watch"

POLICY: Final = """
- !user alice
- !user bob
- !host shop
- !policy
  id: app
  body:
    - !host web
    - !user carol
    - &variables [ !variable password, !variable url, !variable old ]
    - !group { id: readers, annotations: { note: reads } }
    - !layer machines
    - !host-factory { id: machines, layers: [ !layer machines ] }
    - !permit { role: !group readers, privileges: [ read, execute ], resources: *variables }
    - !grant { role: !group readers, members: [ !host web, !user /alice ] }
- !policy { id: team, annotations: { owner: red } }
- !policy svc/authn-jwt
- !policy { id: svc/authn-jwt/ci, body: [ !webservice , !webservice status, !variable jwks-uri, !group apps ] }
- !policy { id: svc/authn-jwt/new, body: [ !webservice ] }
- !webservice svc/authn-gcp
"""

#: Names of records that there are, by the name of the value in the path.
_NAMES: Final = {
    "account": ("acme",),
    "identifier": (
        "app",
        "app/password",
        "app/web",
        "app/readers",
        "app/machines",
        "bob@app",
        "root",
        "acme:user:admin",
    ),
    "login": ("admin", "host/app/web", "bob@app"),
    "kind": ("user", "host", "group", "variable", "policy", "jwt"),
    "service_id": ("ci", "corp"),
    "name": ("ci",),
    "member": ("app/web",),
    "privilege": ("read", "execute"),
    "role": ("acme:user:admin", "host:app/web"),
    "variable_ids": ("acme:variable:app/password", "acme:variable:app/password,acme:variable:app/url"),
    "secrets": ("acme:variable:app/password",),
    "host_factory": ("acme:host_factory:app/machines",),
}


def _examples(raw: Any) -> Iterator[Mapping[str, Any]]:
    """The examples of an operation, by their names, from all places that have some."""
    yield from (parameter.get("examples", {}) for parameter in raw["parameters"])
    yield from (content.get("examples", {}) for content in raw.get("requestBody", {}).get("content", {}).values())


@attrs.define
class Fuzz:
    """Requests to one server; ``faults`` are what its document doesn't tell, in words, each with a request that shows it."""

    url: str
    admin_key: str
    deadline: float
    sent: int = 0
    slowest: float = 0.0
    statuses: Counter[int] = attrs.field(factory=Counter)
    faults: dict[str, str] = attrs.field(factory=dict)
    _http: requests.Session = attrs.field(factory=requests.Session)
    _token: str = ""
    _judge: Judge = attrs.field(init=False)
    _paths: dict[str, str] = attrs.field(factory=dict)
    _random: random.Random = attrs.field(factory=lambda: random.Random(0))

    def run(self, *, each: int, number: int = 0, at_most: int | None = None) -> None:
        """Send ``each`` requests of each operation, again and again with other seeds, until the deadline or ``at_most``."""
        self._http.trust_env = False
        document = self._http.get(f"{self.url}/openapi.json", timeout=PATIENCE).json()
        self._judge = Judge(document)
        schema = schemathesis.openapi.from_dict(document)
        self._paths = {operation["operationId"]: path for path, _, operation in operations(document)}
        made = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
        while not self._over(at_most):
            for operation in made:
                self.renew()
                self._try(operation, each, number, at_most)
            number += 1

    def _over(self, at_most: int | None) -> bool:
        return time.monotonic() > self.deadline or (at_most is not None and self.sent >= at_most)

    def renew(self) -> None:
        """Have an access token, and the records that requests are about."""
        login = self._http.post(f"{self.url}/authn/acme/admin/authenticate", self.admin_key, timeout=PATIENCE)
        self._token = base64.b64encode(login.content).decode("ascii")
        headers = {"Authorization": f'Token token="{self._token}"'}
        path = f"{self.url}/policies/acme/policy/root"
        loaded = self._http.post(path, POLICY, headers=headers, timeout=PATIENCE)
        assert loaded.status_code in {201, 409}, loaded.text
        self._http.post(f"{self.url}/secrets/acme/variable/app%2Fpassword", b"s3cret", headers=headers, timeout=PATIENCE)

    def _try(self, operation: Any, each: int, number: int, at_most: int | None) -> None:
        modes = [operation.as_strategy(generation_mode=mode) for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)]

        @seed(number)
        @settings(
            max_examples=each,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.one_of(modes))
        def attempt(case: Any) -> None:
            if not self._over(at_most):
                self._send(case)

        attempt()

    def _send(self, case: Any) -> None:
        # Hypothesis would draw the simplest too often.
        often, choice = (lambda: self._random.random() < 0.85), self._random.choice
        raw = case.operation.definition.raw
        name = raw["operationId"]
        exemplified = self._random.random() < 0.4 and self._exemplify(case, raw)
        for place in () if exemplified else (case.path_parameters, case.query):
            for parameter in (place or {}).keys() & _NAMES.keys():
                if often():
                    place[parameter] = choice(_NAMES[parameter])
        headers = dict(case.headers or {})
        for header in {"Svc-At-Least", "If-Match", "If-None-Match"} & headers.keys():
            if often():
                del headers[header]
        if often() and name != ENDLESS:
            proof = raw["security"][-1] if raw["security"] else {}
            basic = base64.b64encode(f"admin:{self.admin_key}".encode()).decode("ascii")
            headers |= {"Authorization": f'Token token="{self._token}"'} if "token" in proof else {}
            headers |= {"Authorization": f"Basic {basic}"} if "basic" in proof else {}
        elif name == ENDLESS:
            headers.pop("Authorization", None)
        accept = "*/*"
        if raw["tags"][0] in _NEWER and often():
            accept = choice([V2, V2, f"{V2}, application/json"])
        case.headers = headers

        def accepting(request: requests.PreparedRequest) -> requests.PreparedRequest:
            # Schemathesis would send one of its own.
            request.headers["Accept"] = accept
            return request

        began = time.monotonic()
        try:
            answer = case.call(base_url=self.url, timeout=PATIENCE, session=self._http, auth=accepting)
        except requests.Timeout:
            self._fault(case, "a hang", "")
            return
        except (requests.exceptions.InvalidHeader, requests.exceptions.InvalidURL, UnicodeError):
            return
        self.slowest = max(self.slowest, time.monotonic() - began)
        self.sent += 1
        self.statuses[answer.status_code] += 1
        self._judged(case, answer, self._paths[name])

    def _exemplify(self, case: Any, raw: Any) -> bool:
        """Have a request say what one of the operation's examples says, if it has one; what that leaves open stays."""
        names = sorted({name for place in _examples(raw) for name in place})
        if not names:
            return False
        name = self._random.choice(names)
        for parameter in raw["parameters"]:
            place = {"path": case.path_parameters, "query": case.query}.get(parameter.get("in"))
            if place is not None and name in parameter.get("examples", {}):
                value = parameter["examples"][name]["value"]
                place[parameter["name"]] = quote(value, safe="") if parameter["in"] == "path" else value
        for media_type, content in raw.get("requestBody", {}).get("content", {}).items():
            if name in content.get("examples", {}):
                case.body, case.media_type = content["examples"][name]["value"], media_type
        return True

    def _judged(self, case: Any, answer: Any, path: str) -> None:
        headers = {name.lower(): values[-1] for name, values in answer.headers.items()}
        method, status = case.operation.method.upper(), answer.status_code
        untold = self._judge.untold(path, method, status, headers, answer.content)
        if untold is not None:
            self._fault(case, untold, answer.content.decode("utf-8", "replace"))
        if (
            status >= 500
            and status not in MEANT
            and not (status == 500 and path.endswith("/status") and b'"status":"error"' in answer.content)
        ):
            self._fault(case, f"a {status}", answer.content.decode("utf-8", "replace"))
        # It knows no answers that may be empty, and no policy among YAML.
        shaped = answer.content and "yaml" not in headers.get("content-type", "")
        checks = [status_code_conformance, *([response_schema_conformance] if shaped else [])]
        try:
            case.validate_response(answer, checks=[*checks, response_headers_conformance])
        except FailureGroup as error:
            self._fault(case, "; ".join(f"{each.title}, {each.message[:300]}" for each in error.exceptions), "")

    def _fault(self, case: Any, why: str, body: str) -> None:
        request = f"{case.method} {case.path} {case.path_parameters} {case.query} {case.headers} {str(case.body)[:300]}"
        key = f"{case.operation.label}: {why}"
        if len(self.faults) < 100:
            self.faults.setdefault(key[:800], f"{request}\n  answered {body[:500]}")

    def told(self) -> str:
        """Return the figures in one line."""
        codes = ", ".join(f"{status}: {number}" for status, number in sorted(self.statuses.items()))
        return f"{self.sent} requests, {len(self.faults)} faults, the slowest {self.slowest:.2f} s; {codes}"

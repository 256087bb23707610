"""Requests to a real server that schemathesis makes up from its OpenAPI document, and the judgement of the answers.

Half of the requests keep to the document and half don't. Most have an access token, or the proof that the operation takes,
and names of records that there are, since requests with made-up names seldom come far. What a request deletes is made again
from time to time. The one operation whose answer doesn't end is asked without a token alone.

Schemathesis takes most of the time to make one up. So each is followed by variants of it (``openapi_volley``).
"""

from __future__ import annotations

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

from svc.model.dialect import NATIVE, Dialect
from svc.web.http.refusal_responses import V2
from svc.web.openapi.document import iterate_operations
from tests.integration.openapi_callers import PATIENCE, Callers
from tests.integration.openapi_values import NAMES
from tests.integration.openapi_volley import Findings, Volley, unmeant
from tests.web.openapi.judging import Judge

#: Nouns of the newer interface.
_NEWER: Final = frozenset({"branches", "groups", "group-members", "configured-authenticators"})

#: How a server is started for this; guessers would have to wait, and most requests guess.
OPTIONS: Final = (
    "--account=acme",
    "--login-throttle=no",
    "--authenticators=authn,authn-jwt/ci,authn-jwt/new,authn-gcp,authn-iam/prod,authn-ldap/corp,authn-oidc/corp",
)

ENDLESS: Final = "secret_watches_watch"


def _examples(raw: Any) -> Iterator[Mapping[str, Any]]:
    """The examples of an operation, by their names, from all places that have some."""
    yield from (parameter.get("examples", {}) for parameter in raw["parameters"])
    yield from (content.get("examples", {}) for content in raw.get("requestBody", {}).get("content", {}).values())


@attrs.define
class Fuzz:
    """Requests to one server, each followed by ``variants`` of it, until the deadline or ``at_most``."""

    url: str
    admin_key: str
    deadline: float
    dialect: Dialect = NATIVE
    variants: int = 0
    at_most: int | None = None
    findings: Findings = attrs.field(init=False)
    _callers: Callers = attrs.field(init=False)
    _volley: Volley = attrs.field(init=False)
    _paths: dict[str, str] = attrs.field(factory=dict)
    _random: random.Random = attrs.field(factory=lambda: random.Random(0))

    @property
    def faults(self) -> Mapping[str, str]:
        """What the document doesn't tell, in words, each with a request that shows it."""
        return self.findings.faults

    @property
    def statuses(self) -> Counter[int]:
        """How many answers had each status."""
        return self.findings.statuses

    @property
    def sent(self) -> int:
        """How many requests were answered."""
        return self.findings.own + self.findings.varied

    def run(self, *, each: int, number: int = 0) -> None:
        """Send ``each`` requests of each operation, with their variants, again and again with other seeds."""
        self._random.seed(number)
        self._callers = Callers(self.url, self.admin_key, self.dialect)
        document = self._callers.http.get(f"{self.url}/openapi.json", timeout=PATIENCE).json()
        self.findings = Findings(Judge(document))
        self._volley = Volley(self._callers, self.findings, self._random)
        schema = schemathesis.openapi.from_dict(document)
        self._paths = {operation["operationId"]: path for path, _, operation in iterate_operations(document)}
        made = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
        while not self._over():
            # A short run has some of all.
            self._random.shuffle(made)
            for operation in made:
                self._volley.renew()
                self._try(operation, each, number)
            number += 1
        self._volley.drain()
        self._volley.close()

    def told(self) -> str:
        """Return the figures in one line."""
        return self.findings.told()

    def _over(self) -> bool:
        return time.monotonic() > self.deadline or (self.at_most is not None and self.sent >= self.at_most)

    def _try(self, operation: Any, each: int, number: int) -> None:
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
            if not self._over():
                self._send(case)

        attempt()

    def _send(self, case: Any) -> None:
        # Hypothesis would draw the simplest too often.
        often, choice = (lambda: self._random.random() < 0.85), self._random.choice
        raw = case.operation.definition.raw
        name = raw["operationId"]
        exemplified = self._random.random() < 0.4 and self._exemplify(case, raw)
        for place in () if exemplified else (case.path_parameters, case.query):
            for parameter in sorted((place or {}).keys() & NAMES.keys()):
                if often():
                    place[parameter] = choice(NAMES[parameter])
        headers = dict(case.headers or {})
        for header in sorted({"Svc-At-Least", "If-Match", "If-None-Match"} & headers.keys()):
            if often():
                del headers[header]
        if often() and name != ENDLESS:
            proof = raw["security"][-1] if raw["security"] else {}
            headers |= {"Authorization": self._callers.by_token} if "token" in proof else {}
            headers |= {"Authorization": self._callers.by_key} if "basic" in proof else {}
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
            answer = case.call(base_url=self.url, timeout=PATIENCE, session=self._callers.http, auth=accepting)
        except requests.Timeout:
            self._fault(case, "a hang", "")
            return
        except (requests.exceptions.InvalidHeader, requests.exceptions.InvalidURL, UnicodeError):
            return
        self.findings.own += 1
        path = self._paths[name]
        asked = (case.operation.method.upper(), path)
        self.findings.count(asked, answer.status_code, time.monotonic() - began, answer.request.url)
        self._judged(case, answer, path)
        kinds = answer.headers.get("content-type", [""])
        self._callers.answered(asked[0], path, answer.status_code, kinds[0])
        self._volley.send(name, answer.request, self.variants)

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
                value = content["examples"][name]["value"]
                # It would write text as a scalar of YAML.
                case.body, case.media_type = value.encode() if "yaml" in media_type else value, media_type
        return True

    def _judged(self, case: Any, answer: Any, path: str) -> None:
        headers = {name.lower(): values[-1] for name, values in answer.headers.items()}
        method, status = case.operation.method.upper(), answer.status_code
        untold = self.findings.judge.untold(path, method, status, headers, answer.content)
        said = answer.content.decode("utf-8", "replace")
        if untold is not None:
            self._fault(case, untold, said)
        if unmeant(path, status, answer.content):
            self._fault(case, f"a {status}", said)
        # It knows no answers that may be empty, and no policy among YAML.
        shaped = answer.content and "yaml" not in headers.get("content-type", "")
        checks = [status_code_conformance, *([response_schema_conformance] if shaped else [])]
        try:
            case.validate_response(answer, checks=[*checks, response_headers_conformance])
        except FailureGroup as error:
            self._fault(case, "; ".join(f"{each.title}, {each.message[:300]}" for each in error.exceptions), "")

    def _fault(self, case: Any, why: str, body: str) -> None:
        request = f"{case.method} {case.path} {case.path_parameters} {case.query} {case.headers} {str(case.body)[:300]}"
        self.findings.fault(case.operation.label, why, request, body)

"""Tests of ``tests.web.openapi.judging``: what the judge of answers lets pass, and what it doesn't."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.model.dialect import NATIVE
from svc.web.openapi.document import build_document
from svc.web.openapi.served_routes import routes_of_dialect
from tests.web.openapi.judging import Judge

JSON = {"content-type": "application/json"}
MISSING = {"error": {"code": "not_found", "message": "there is no such thing"}}


class JudgeTests(SynchronousTestCase):
    """A judge by the document of this program."""

    def setUp(self) -> None:
        """Have one."""
        self.judge = Judge(build_document(routes_of_dialect(NATIVE), NATIVE))

    def test_paths(self) -> None:
        """A request is about the operation that the server would choose: a fixed segment comes before a value, and what goes
        on behind a value of several segments comes before what ends with it (OAS-3, WIRE-8, WIRE-14, WIRE-15).
        """
        for method, raw, path in (
            ("GET", "/", "/"),
            ("HEAD", "/health/", "/health"),
            ("GET", "/health//", None),
            ("OPTIONS", "/health", None),
            ("GET", "/%68ealth", None),
            ("POST", "/secrets/acme/variable/a/b", "/secrets/{account}/variable/{identifier}"),
            ("POST", "/secrets/acme/group/a%2Fb", "/secrets/{account}/{kind}/{identifier}"),
            ("GET", "/groups/acme/a/b/members", "/groups/{account}/{identifier}/members"),
            ("GET", "/groups/acme/a/b", "/groups/{account}/{identifier}"),
            ("GET", "/resources/a%2Fb/variable/x", None),
            ("PATCH", "/authn-jwt/ci/acme", "/authn-{kind}/{service_id}/{account}"),
            ("PATCH", "/authn-jwt%2Fci/acme", "/authn-{kind}/{service_id}/{account}"),
            ("PATCH", "/authn-a%3Ab%2Fci/acme", "/authn-{kind}/{service_id}/{account}"),
            ("POST", "/authn-jwt/ci/acme/authenticate", "/authn-jwt/{service_id}/{account}/authenticate"),
            ("POST", "/authn-jwt/ci/acme//authenticate", "/authn-jwt/{service_id}/{account}/authenticate"),
            ("POST", "/authn-jwt/ci/acme/x/authenticate", "/authn-jwt/{service_id}/{account}/{login}/authenticate"),
        ):
            self.assertEqual(self.judge.path_of(method, raw), path, (method, raw))

    def test_values(self) -> None:
        """The values of a path are those that stand on the wire."""
        values = self.judge.values_of("/secrets/{account}/variable/{identifier}", "/secrets/acme/variable/a%2Fb/c/")
        self.assertEqual(values, {"account": "acme", "identifier": "a%2Fb/c"})

    def test_judged(self) -> None:
        """A status, a header, a type or a body of which the document doesn't tell is found by both validators (OAS-6)."""
        path, more = "/secrets/{account}/variable/{identifier}", {"error": {**MISSING["error"], "more": 1}}
        cases: tuple[tuple[str | None, str, int, dict[str, str], Any, str | None], ...] = (
            (path, "GET", 404, JSON, MISSING, None),
            (path, "HEAD", 404, JSON, None, None),
            (path, "GET", 418, JSON, MISSING, "the status 418"),
            (path, "GET", 404, {}, MISSING, "that 404 has no content type"),
            (path, "GET", 404, {"content-type": "text/html"}, MISSING, "that 404 is text/html"),
            (path, "GET", 404, JSON, {"error": {"code": "not_found"}}, "message"),
            (path, "GET", 404, JSON, more, "more"),
            (path, "GET", 404, JSON, float("nan"), "no JSON"),
            ("/health", "GET", 201, JSON, {}, "the status 201"),
            (None, "GET", 404, JSON, MISSING, None),
            (None, "GET", 200, JSON, {}, "the status 200"),
            (None, "GET", 404, JSON, more, "more"),
        )
        for place, method, status, headers, body, why in cases:
            written = None if body is None else json.dumps(body).encode()
            for quickly in (False, True):
                untold = self.judge.untold(place, method, status, headers, written, quickly=quickly)
                if why is None:
                    self.assertIsNone(untold)
                else:
                    self.assertIn(why, untold or "", (place, method, status, quickly))

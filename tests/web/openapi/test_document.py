"""Tests of ``svc.web.openapi.document``: the document tells all routes, and it is valid."""

from __future__ import annotations

from typing import Any

from openapi_spec_validator import OpenAPIV31SpecValidator
from twisted.trial.unittest import SynchronousTestCase

from svc._version import VERSION
from svc.model.dialect import CONJUR, NATIVE, Dialect
from svc.model.errors import FormRefused
from svc.web.http.declarations import Answer, Parameter
from svc.web.http.messages import Response
from svc.web.http.refusal_responses import REFUSALS
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.http.shapes import INTEGER, TEXT, array_shape, object_shape
from svc.web.openapi.document import TaggedRoutes, build_document, iterate_operations, operation_paths, tag_routes
from svc.web.openapi.served_routes import routes_of_dialect
from tests.web.declared import declared
from tests.web.world import WorldCase


def told(dialect: Dialect) -> dict[str, Any]:
    """The document of a dialect."""
    return build_document(routes_of_dialect(dialect), dialect)


class DocumentTests(SynchronousTestCase):
    """The documents of both dialects."""

    def test_valid(self) -> None:
        """OAS-2: the documents of both dialects are OpenAPI 3.1, by a validator that is not of this project's making."""
        for dialect in (NATIVE, CONJUR):
            self.assertEqual(list(OpenAPIV31SpecValidator(told(dialect)).iter_errors()), [])

    def test_all_routes(self) -> None:
        """OAS-3: each route that any module declares is in the document, with each of its paths."""
        document = told(NATIVE)
        for _, route in declared():
            for _, rule in operation_paths(route):
                path = rule.replace("<", "{").replace(">", "}")
                for word in ("flat:", "tail:", "optional:", "raw:", "mapped:"):
                    path = path.replace(word, "")
                self.assertIn(
                    route.method.lower(), document["paths"].get(path, {}), f"{route}: see svc/web/openapi/served_routes.py"
                )

    def test_names(self) -> None:
        """OAS-4: each operation has a name of its own, a noun that is described, a summary and a description."""
        for dialect in (NATIVE, CONJUR):
            document = told(dialect)
            each = [operation for _, _, operation in iterate_operations(document)]
            names = [operation["operationId"] for operation in each]
            self.assertEqual(len(names), len(set(names)))
            tags = {tag["name"] for tag in document["tags"] if tag["description"]}
            self.assertEqual({tag for operation in each for tag in operation["tags"]}, tags)
            self.assertEqual([o["operationId"] for o in each if not (o["summary"] and o["description"])], [])

    def test_dialects(self) -> None:
        """OAS-5: the document is that of one dialect: the cloud's authenticator has the name that it has there."""
        for dialect, other in ((NATIVE, CONJUR), (CONJUR, NATIVE)):
            document = told(dialect)
            self.assertIn(f"/{dialect.cloud}/{{service_id}}/{{account}}/status", document["paths"])
            self.assertEqual([path for path in document["paths"] if path.startswith(f"/{other.cloud}/")], [])
            self.assertIn(f"`{dialect.name}`", document["info"]["description"])
            self.assertEqual(document["info"]["version"], VERSION)

    def test_refusals(self) -> None:
        """OAS-6: every refusal that is answered is described in the document, but that of forms of the console."""
        self.assertEqual({refusal for refusal, row in REFUSALS.items() if not row.answers}, {FormRefused})


class ServedTests(WorldCase):
    """The document that a server tells."""

    def test_the_same(self) -> None:
        """OAS-1: a server tells of the nouns that it serves what the command tells without one."""
        for dialect in (NATIVE, CONJUR):
            self.dialect = dialect
            self.setUp()
            mine = set(tag_routes(self.client.router._resources))
            self.assertEqual(mine - set(routes_of_dialect(dialect)), set())

    def test_answers(self) -> None:
        """OAS-1: it is told without a token, with a tag by which clients ask whether it is as it was."""
        answer = self.client.get("/openapi.json")
        self.assertEqual((answer.status, answer.headers["cache-control"]), (200, "no-cache"))
        self.assertEqual(answer.json()["openapi"], "3.1.1")
        tag = answer.headers["etag"]
        again = self.client.get("/openapi.json", headers=[("If-None-Match", f'"x", {tag}')])
        self.assertEqual((again.status, again.body, again.headers["etag"]), (304, b"", tag))
        self.assertEqual(self.client.get("/openapi.json", headers=[("If-None-Match", '"x"')]).status, 200)
        head = self.client.head("/openapi.json")
        self.assertEqual({**head.headers, "x-request-id": ""}, {**answer.headers, "x-request-id": ""})

    def test_no_other_methods(self) -> None:
        """OAS-7: a method that a path does not list is 404, as ``OPTIONS`` is on all; each ``GET`` answers ``HEAD``."""
        document = self.client.get("/openapi.json").json()
        for path, methods in document["paths"].items():
            target = path.replace("{", "").replace("}", "").replace("authn-kind", "authn-jwt")
            for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} - {m.upper() for m in methods}:
                answer = self.client.request(method, target)
                other = answer.status == 404 and "there is no route" in answer.json()["error"]["message"]
                # A path may be that of another operation, too, whose values are names here.
                self.assertTrue(other or method not in {"OPTIONS", "TRACE"}, f"{method} {path}")
            if "get" in methods:
                self.assertNotIn("there is no route", self.client.get(target).body.decode())
                self.assertEqual(self.client.head(target).status, self.client.get(target).status, path)


class Made:
    """A noun that the tests make up."""

    routes = Routes()

    @routes.add(
        "GET",
        "/made/<flat:account>/<optional:rest>",
        when="few",
        caller=REQUIRED,
        query=(Parameter.positive_integer("limit", "how many", required=True),),
        answers=(Answer(200, "some", array_shape(TEXT)),),
        privileges="none",
    )
    async def few(self, call: Call, account: str, rest: str | None, *, limit: int | None) -> Response:
        """Return a few (WIRE-22)."""
        raise AssertionError

    @routes.add(
        "GET",
        "/made/<flat:account>/<optional:rest>",
        caller=REQUIRED,
        query=(Parameter.text("limit", "any"),),
        answers=(Answer(200, "their number", object_shape({"n": INTEGER}), ("ETag",)), Answer(304, "known")),
        privileges="read",
    )
    async def number(self, call: Call, account: str, rest: str | None, *, limit: str | None) -> Response:
        """Return how many there are. There may be none."""
        raise AssertionError


class OperationsTests(SynchronousTestCase):
    """How declarations become operations."""

    def setUp(self) -> None:
        """Make the document of a noun."""
        self.document = build_document((TaggedRoutes.from_class(Made, None, Made.routes),), NATIVE)
        self.operation = self.document["paths"]["/made/{account}/{rest}"]["get"]

    def test_paths(self) -> None:
        """OAS-3: a value that may be absent makes two paths, with two names."""
        self.assertEqual(list(self.document["paths"]), ["/made/{account}", "/made/{account}/{rest}"])
        without = self.document["paths"]["/made/{account}"]["get"]
        self.assertEqual(
            (self.operation["operationId"], without["operationId"]), ("made_number", "made_number_without_rest")
        )

    def test_alternatives(self) -> None:
        """OAS-8: routes that a flag chooses among are one operation: the flag is a parameter, what differs is either."""
        parameters = {parameter["name"]: parameter for parameter in self.operation["parameters"] if "name" in parameter}
        self.assertEqual(list(parameters), ["account", "rest", "few", "limit"])
        self.assertFalse(parameters["few"]["required"])
        self.assertEqual(len(parameters["limit"]["schema"]["anyOf"]), 2)
        self.assertNotIn("required", parameters["limit"])
        answer = self.operation["responses"]["200"]
        schema = answer["content"]["application/json"]["schema"]
        self.assertEqual([each["type"] for each in schema["anyOf"]], ["array", "object"])
        self.assertNotIn("required", answer["headers"]["ETag"])
        self.assertEqual(self.operation["summary"], "Return how many there are")
        self.assertIn("With `few` in the query: Return a few.", self.operation["description"])

    def test_refusals(self) -> None:
        """OAS-6: refusals follow from the declaration, with their codes."""
        statuses = set(self.operation["responses"])
        self.assertEqual(statuses, {*["200", "304", "400", "401", "404", "408", "413", "414", "422", "431", "500", "503"]})
        shared = self.document["components"]["responses"]
        self.assertIn("`argument_error`", str(shared[self.operation["responses"]["422"]["$ref"].rpartition("/")[2]]))

    def test_security(self) -> None:
        """OAS-9: what a caller shows follows from who is admitted."""
        self.assertEqual(self.operation["security"], [{"token": []}])
        found = {o["operationId"]: o["security"] for _, _, o in iterate_operations(told(NATIVE))}
        expected: tuple[tuple[str, list[dict[str, list[str]]]], ...] = (
            ("authn_authenticate_by_api_key", []),
            ("authn_tell_api_key", [{"basic": []}]),
            ("credentials_rotate_api_key", [{"basic": []}, {"token": []}]),
            ("public_keys_show", [{}, {"token": []}]),
            ("oidc_authn_authenticate_by_token", [{}, {"id_token": []}]),
            ("host_factories_create_host", [{"factory": []}]),
        )
        for name, schemes in expected:
            self.assertEqual(found[name], schemes, name)

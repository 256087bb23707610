"""Routes declare all that clients need to know of them, and what they answer is what they declare."""

from __future__ import annotations

import inspect
import itertools
import json
import re
from typing import Any
from urllib.parse import quote

import attrs
from twisted.trial.unittest import SynchronousTestCase

from svc.model.dialect import CONJUR, NATIVE, Dialect
from svc.model.errors import BadRequest, Conflict, InvalidParameter, ReadOnlyStandby, Refusal
from svc.model.limits import Limits
from svc.model.names import RoleName
from svc.model.reasons import Reason
from svc.web.http.declarations import (
    NO_BODY,
    PARAMETER_MEDIA_TYPES,
    WHOLE_BODY,
    Answer,
    Body,
    BodySize,
    Parameter,
    PathName,
    Unaudited,
)
from svc.web.http.messages import Response
from svc.web.http.parameters import Parameters
from svc.web.http.query import NO_QUERY, Form, Query
from svc.web.http.refusal_responses import REFUSALS
from svc.web.http.router import Alternatives
from svc.web.http.routing import PUBLIC, REQUIRED, Call, Route, Routes
from svc.web.http.shapes import (
    ANY,
    BOOLEAN,
    INTEGER,
    NUMBER,
    TEXT,
    array_shape,
    integer_shape,
    mapping_shape,
    object_shape,
    string_shape,
)
from tests.web.declared import declared, declared_pages, misfit
from tests.web.support import Client

#: What a client writes behind a parameter's name that takes one value, where its library makes lists or objects of all.
BRACKETS = ("[]", "[0]", "[a]", "[", "[][]", "[0][a]")

LATE = Parameter.text("late", "what is read by the route itself", late=True)


def _described(route: Route) -> list[Parameter[Any]]:
    """The parameters of a route, with the parts of those that are read together."""
    return [part for parameter in route.parameters for part in parameter.parts or (parameter,)]


@attrs.frozen
class Source:
    """A request with parameters in its query or its body."""

    dialect: Dialect
    query: Query = NO_QUERY
    body: bytes = b""
    content_type: str | None = None

    @property
    def parameters(self) -> Parameters:
        """The parameters of the body and the query."""
        return Parameters.parse(self.content_type, self.body, self.query)

    def header(self, name: str) -> str | None:
        """Return the content type."""
        return self.content_type if name == "Content-Type" else None

    def parse_form(self) -> Form:
        """Return the body as a form."""
        return Form.parse(self.body)


def _sources(route: Route, parameter: Parameter[Any], key: str) -> list[Source]:
    """The requests that have this parameter with this key behind its name, once for each place that it may stand in."""
    name, dialects = f"{parameter.name}{key}", (NATIVE, CONJUR)
    in_query = [Source(dialect, Query.parse(f"{quote(name)}=1")) for dialect in dialects]
    if route.body is None or parameter not in [part for each in route.body.fields for part in each.parts or (each,)]:
        return in_query
    # The parameters of some bodies may stand in the query as well.
    in_query = in_query if route.body.media_types == PARAMETER_MEDIA_TYPES and parameter.name != "enabled" else []
    bodies = {"application/x-www-form-urlencoded": f"{quote(name)}=1", "application/json": json.dumps({name: "1"})}
    return [
        *in_query,
        *(
            Source(CONJUR, body=bodies[media_type].encode(), content_type=media_type)
            for media_type in route.body.media_types
        ),
    ]


def _takes(parameter: Parameter[Any], key: str) -> bool:
    """Whether a parameter may be written with this key."""
    keyed = parameter.shape.kind == "object" and key in {"[0]", "[a]"}
    return keyed or (parameter.shape.kind == "array" and key == "[]")


def _missing(route: Route) -> list[str]:
    """What a route does not declare."""
    said = {
        "answers": route.answers,
        "privileges": route.privileges,
        "audit": route.audit or (route.unaudited and route.unaudited.reason),
        "body": route.method in {"GET", "DELETE"} or route.body,
        "docstring": route.handler.__doc__,
        "descriptions": all([*(p.description for p in _described(route)), *(a.description for a in route.answers)]),
    }
    return [name for name, value in said.items() if not value]


class DeclarationsTests(SynchronousTestCase):
    """All routes of the server."""

    def test_everything_is_declared(self) -> None:
        """A route declares its answers, privileges, body and audit, or why there is none, each in words."""
        missing = {
            f"{route.handler.__module__}: {route}, {route.when}": gaps
            for _, route in (*declared(), *declared_pages())
            if (gaps := _missing(route))
        }
        self.assertEqual(missing, {})

    def test_refusals_have_answers(self) -> None:
        """Every refusal that a route declares, or that follows from its declaration, has a row in the table of refusals, and
        every row is that of a refusal in which some route may end (FAIL-6).
        """
        refused = {refusal for _, route in (*declared(), *declared_pages()) for refusal in route.possible_refusals}
        self.assertEqual(refused, set(REFUSALS))

    def test_nothing_else_is_read(self) -> None:
        """A route reads of a request what it declares: no header or parameter by hand, and no body without ``Body``.
        What was asked for, right or wrong, is for the events of the audit alone.
        """
        by_hand = re.compile(r"call\.(query\.\w+|header|form|parameters)\b")
        for _, route in (*declared(), *declared_pages()):
            module = inspect.getmodule(route.handler)
            assert module is not None
            self.assertIsNone(by_hand.search(inspect.getsource(module)), module.__name__)
            self.assertNotIn("call.asked_", inspect.getsource(route.handler), str(route))
            if "call.body" in inspect.getsource(route.handler):
                self.assertNotIn(route.body, {None, NO_BODY}, str(route))

    def test_brackets(self) -> None:
        """A parameter that is written with brackets, and doesn't take them so, is refused, on any route, in a query, in a
        form and in JSON; it is not read as if it were absent (WIRE-21).
        """
        count = 0
        for _, route in (*declared(), *declared_pages()):
            for parameter in route.parameters if route.query is not None else ():
                described = parameter.parts or (parameter,)
                for part, key in itertools.product(described, BRACKETS):
                    if parameter in route.headers or part.name == WHOLE_BODY or _takes(part, key):
                        continue
                    for source in _sources(route, part, key):
                        count += 1
                        with self.subTest(f"{route} {part.name}{key} {source}"):
                            self._refuse(parameter, source)
        self.assertGreater(count, 1000)

    def _refuse(self, parameter: Parameter[Any], source: Source) -> None:
        """Have a parameter refuse a request."""
        try:
            found = parameter.read(source)
        except (InvalidParameter, ValueError):
            return
        # Logins return why there is no evidence, since they are all refused alike.
        self.assertIsInstance(found, tuple)
        self.assertEqual((found[0], found[1][0]), ("", Reason.REQUEST_MALFORMED))

    def test_absent_parameters(self) -> None:
        """A parameter that isn't read where the request has none of its name has the value that would be read (RES-4,
        ROLE-21).
        """
        found = [each for _, route in (*declared(), *declared_pages()) for each in route.parameters if each.key is not None]
        for parameter, dialect in itertools.product(found, (NATIVE, CONJUR)):
            self.assertEqual(parameter.read(Source(dialect)), parameter.absent, parameter.name)
        self.assertGreater(len(found), 50)

    def test_flags(self) -> None:
        """A flag that chooses a route is refused with brackets, beside another one too (WIRE-21)."""
        alike: dict[str, list[Route]] = {}
        for _, route in (*declared(), *declared_pages()):
            alike.setdefault(str(route), []).append(route)
        for routes in alike.values():
            flags = {route.when for route in routes if route.when is not None}
            alternatives = Alternatives.from_routes(list({route.when: route for route in routes}.values()))
            for flag, key, other in itertools.product(flags, BRACKETS, ("", *flags)):
                query = Query.parse(f"{other}&{quote(flag + key)}=1")
                self.assertRaises(InvalidParameter, alternatives.select_route, query)

    def test_bodies_of_other_types(self) -> None:
        """A body that is neither a form nor JSON by its content type is refused by each parameter that a form may have
        (WIRE-59).
        """
        many = b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n1\r\n--x--\r\n'
        for _, route in (*declared(), *declared_pages()):
            if route.body is None or route.body.media_types == ("application/json",):
                continue
            for parameter in route.body.fields:
                name = parameter.name.encode()
                for body in (
                    many % name,
                    b'{"%s":"1"}' % name,
                    b'{"%s":["1=2"]}' % name,
                    b"%s: 1\n" % name,
                    b"<%s/>" % name,
                ):
                    for media_type in (None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
                        source = Source(NATIVE, body=body, content_type=media_type)
                        with self.subTest(f"{route} {source}"):
                            self._refuse_body(route, parameter, source)

    def _refuse_body(self, route: Route, parameter: Parameter[Any], source: Source) -> None:
        """Have a parameter refuse a body, by a refusal that its route declares."""
        try:
            self._refuse(parameter, source)
        except BadRequest as refusal:
            self.assertIn("no form", refusal.message)
            self.assertIn(BadRequest, route.possible_refusals)

    def test_names(self) -> None:
        """No route declares two parameters, nor two answers of the same status and description, alike."""
        for _, route in (*declared(), *declared_pages()):
            names = [parameter.name.lower() for parameter in _described(route)]
            self.assertEqual(sorted(set(names)), sorted(names), str(route))
            answers = [(answer.status, answer.description) for answer in route.answers]
            self.assertEqual(len(set(answers)), len(answers), str(route))


@attrs.define
class Noun:
    """A noun whose routes declare what they do, while the test lets them."""

    routes = Routes()

    response: Response = attrs.field(factory=lambda: Response.json({"n": 1}))
    refusal: Refusal | None = None
    told: list[object] = attrs.field(factory=list)

    async def answer(self) -> Response:
        """Answer as the test says."""
        if self.refusal is not None:
            raise self.refusal
        return self.response

    @routes.add("GET", "/x", when="first", caller=PUBLIC, query=(Parameter.natural("n", "n"),), answers=(Answer(204, ""),))
    async def first(self, call: Call, *, n: int | None) -> Response:
        """Record the number."""
        self.told.append(("first", n))
        return Response.empty()

    @routes.add("GET", "/x", when="second", caller=PUBLIC, answers=(Answer(204, ""),))
    async def second(self, call: Call) -> Response:
        """Record the call."""
        self.told.append("second")
        return Response.empty()

    @routes.add("GET", "/x", caller=PUBLIC, answers=(Answer(200, "n", object_shape({"n": INTEGER})),), errors=(Conflict,))
    async def rest(self, call: Call) -> Response:
        """Answer as the test says."""
        return await self.answer()

    @routes.add(
        "PUT",
        "/y/<account>/<kind>/<identifier>",
        when="flag",
        kinds=frozenset({"user"}),
        name=PathName("role", RoleName.from_parts),
        caller=PUBLIC,
        query=(Parameter.natural("offset", "").as_ignored, LATE),
        body=NO_BODY,
        answers=(Answer(204, ""),),
    )
    async def named(self, call: Call, role: RoleName) -> Response:
        """Record the name, and a parameter that is read late."""
        self.told.append((str(role), call.read_late(LATE)))
        return Response.empty()


class DeclaredTests(SynchronousTestCase):
    """How a declaration works."""

    def setUp(self) -> None:
        """Serve one noun."""
        self.noun = Noun()
        self.client = Client(self.noun)

    def test_flags(self) -> None:
        """Of the routes of a path the first answers whose flag the query has, whatever its value, or the one without."""
        for query, status in (("second=no", 204), ("second&first", 204), ("first&n=7", 204), ("", 200)):
            self.assertEqual(self.client.get(f"/x?{query}").status, status)
        self.assertEqual(self.noun.told, ["second", ("first", None), ("first", 7)])

    def test_parameters(self) -> None:
        """A parameter that is declared is read before the route runs; one that another route declares is not."""
        self.assertEqual(self.client.get("/x?first&n=-1").status, 422)
        self.assertEqual(self.client.get("/x?second&n=-1").status, 204)
        self.assertEqual(self.noun.told, ["second"])

    def test_path_names(self) -> None:
        """The path's kind comes first, then the name, the flag, and the query; a kind that isn't declared is no route."""
        for target, status in (
            ("/y/a/group/i?offset=x", 404),
            ("/y/a%20b/user/i", 422),
            ("/y/a/user/i", 404),
            ("/y/a/user/i?flag&offset=x", 422),
            ("/y/a/user/i?flag&late=1", 204),
        ):
            self.assertEqual(self.client.put(target).status, status, target)
        self.assertEqual(self.noun.told, [("a:user:i", "1")])

    def test_undeclared_parameters(self) -> None:
        """What a route does not declare as late can't be read as that."""

        class Wrong:
            routes = Routes()

            @routes.add("GET", "/", caller=PUBLIC)
            async def show(self, call: Call) -> Response:
                call.read_late(Parameter.text("x", "x"))
                raise AssertionError

        self.assertEqual(Client(Wrong()).get("/").status, 500)
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)

    def test_signatures(self) -> None:
        """A coroutine that doesn't take what is declared, or takes more, stops the import."""
        query = (Parameter.text("a", "a"), Parameter.text("b", "b", late=True))

        async def none(self: object, call: Call) -> Response:
            raise AssertionError

        async def positional(self: object, call: Call, a: str) -> Response:
            raise AssertionError

        async def late(self: object, call: Call, *, a: str, b: str) -> Response:
            raise AssertionError

        for handler in (none, positional, late):
            self.assertRaises(TypeError, Routes().add("GET", "/", caller=PUBLIC, query=query), handler)
        twice = (Parameter.text("a", "a"), Parameter.text("x", "b", field="a"))
        self.assertRaises(TypeError, Routes().add("GET", "/", caller=PUBLIC, query=twice), late)

    def test_alternatives(self) -> None:
        """The routes of one path are alike in what comes before the query, and each has a flag of its own."""

        async def show(self: object, call: Call) -> Response:
            raise AssertionError

        class Served:
            def __init__(self, **second: object) -> None:
                self.routes = Routes()
                large = Body("text", size=BodySize.POLICY)
                self.routes.add("POST", "/", caller=PUBLIC, when="a", body=large)(show)
                other = {"caller": PUBLIC, "when": "b", "body": large, **second}
                self.routes.add("POST", "/", **other)(show)  # type: ignore[arg-type]

        client = Client(Served(), limits=Limits(body=10, policy_body=20))
        for size, status in ((10, 404), (11, 404), (20, 404), (21, 413)):
            self.assertEqual(client.post("/", b"x" * size).status, status)
        self.assertRaises(ValueError, Client, Served(when="a"))
        self.assertRaises(TypeError, Client, Served(caller=REQUIRED))
        self.assertRaises(TypeError, Client, Served(writes=False))
        self.assertRaises(TypeError, Client, Served(body=NO_BODY))

    def test_answers_that_are_not_declared(self) -> None:
        """The client of these tests fails on an answer, a shape and a refusal that the route does not declare."""
        self.client.get("/x")
        for response in (
            Response.json({"n": "1"}),
            Response.json({"n": 1, "m": 1}),
            Response.json({}),
            Response.json({"n": 1}, 201),
            Response.text("n"),
            Response.empty(200),
        ):
            self.noun.response = response
            self.assertRaises(AssertionError, self.client.get, "/x")
        self.noun.refusal = Conflict("t", "i", "m")
        self.assertEqual(self.client.get("/x").status, 409)
        self.noun.refusal = ReadOnlyStandby()
        self.assertRaises(AssertionError, self.client.get, "/x")

    def test_unaudited(self) -> None:
        """A route that leaves no record says why."""
        routes = Routes()

        async def show(self: object, call: Call) -> Response:
            raise AssertionError

        routes.add("GET", "/", caller=PUBLIC, audit=Unaudited("it is public"))(show)
        [route] = routes
        self.assertEqual((route.audit, route.unaudited), (None, Unaudited("it is public")))


class ShapesTests(SynchronousTestCase):
    """What fits a shape."""

    def test_shapes(self) -> None:
        """Values fit the shape of their own type, within its bounds; an object has no member that isn't declared."""
        record = object_shape({"a": TEXT}, {"b": array_shape(INTEGER)})
        for shape, fits, others in (
            (TEXT, ["", "x"], [1, None, ["x"]]),
            (string_shape("a", "b"), ["a", "b"], ["c"]),
            (INTEGER, [0, -1], [True, 1.5, "1"]),
            (integer_shape(1, 3), [1, 3], [0, 4]),
            (NUMBER, [1, 1.5], [False, "1"]),
            (BOOLEAN, [True, False], [0, None]),
            (ANY, [None, 1, {"x": []}], []),
            (TEXT.or_null(), [None, "x"], [1]),
            (array_shape(TEXT), [[], ["x"]], [["x", 1], {}, "x"]),
            (record, [{"a": "x"}, {"a": "x", "b": [1]}], [{}, {"b": [1]}, {"a": "x", "b": ["1"]}, {"a": "x", "c": 1}]),
            (mapping_shape(INTEGER), [{}, {"x": 1}], [{"x": "1"}, []]),
        ):
            self.assertEqual([value for value in fits if misfit(shape, value)], [], shape)
            self.assertEqual([value for value in others if not misfit(shape, value)], [], shape)

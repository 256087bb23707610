"""How a route is declared, and how a request finds its way to it and an answer its way back.

A noun declares its routes in one place, and there is no other way to add one::

    class Whoami:
        '''Who the caller is.'''

        routes = Routes()

        @routes.add("GET", "/whoami", caller=REQUIRED)
        async def show(self, call: Call) -> Response:
            '''Tell what the access token says.'''
            return Response.json({"username": call.caller.role.login, "client_ip": call.client_ip})

        @routes.add("POST", "/policies/<flat:account>/policy/<tail:identifier>", caller=REQUIRED, body=BodySize.POLICY)
        async def load(self, call: Call, account: str, identifier: str) -> Response: ...

* ``caller`` has no default: a route says ``REQUIRED``, ``OPTIONAL`` or ``PUBLIC``, or its module doesn't import.
* What changes anything is refused on a follower. A ``GET`` changes nothing, and every other route is taken to, unless it
  says ``writes=False``.
* Patterns are those of :class:`svc.web.paths.Pattern`; the values arrive decoded, under the names they have there. A route
  of ``GET`` answers ``HEAD`` too. Two decorators give one coroutine two paths.
* A route takes values and returns a :class:`~svc.web.response.Response`; it never sees the request. To refuse it raises one
  of ``svc.errors``, which ``faults`` turns into an answer.
* ``tap`` hands all nouns to one :class:`Router`, complete; a pattern that doesn't fit its coroutine stops the start there.

Note [Order of checks]: unknown route or method (404); access token (401); names in the path and the query (422); on a
follower, whether the route writes (405); size of the body (413); then the route. All but the last two happen before the body
has arrived: none of it is kept for strangers, nor where nothing can be done with it. A public route that writes proves by
itself who calls, and then asks ``call.demand_primary()`` before it goes to any expense.

Note [Klein without its resource]: Klein holds the map and runs the endpoints. Its ``KleinResource`` is not used: it decodes
paths before it matches them, answers in HTML, runs on without a caller, and costs as much as all the rest of a request.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol, TypeVar

import attrs
from klein import Klein
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.logger import Logger
from werkzeug.exceptions import HTTPException

from svc.audit import printable
from svc.authentication import Caller
from svc.errors import BearerRefused, Forbidden, Refusal, StoreUnavailable, WrongDataKey
from svc.limits import Limits
from svc.web.faults import answer_to, internal_error, no_route
from svc.web.incoming import Incoming
from svc.web.paths import Pattern, prepare, split_target
from svc.web.query import Form, Query
from svc.web.response import Response

_log = Logger()

_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})


class Admission(enum.Enum):
    """Who may call a route."""

    #: Whoever shows a valid access token.
    REQUIRED = "required"
    #: Anyone; a ``Token`` in the ``Authorization`` header must be valid, though (wire facts, core 0.1).
    OPTIONAL = "optional"
    #: Anyone; the ``Authorization`` header is the route's own business.
    PUBLIC = "public"


REQUIRED: Final = Admission.REQUIRED
OPTIONAL: Final = Admission.OPTIONAL
PUBLIC: Final = Admission.PUBLIC


class BodySize(enum.Enum):
    """How large a body a route takes."""

    USUAL = "usual"
    POLICY = "policy"

    def limit(self, limits: Limits) -> int:
        """The most bytes that such a body may have."""
        return limits.policy_body if self is BodySize.POLICY else limits.body


@attrs.frozen
class Call:
    """A request as a route sees it: complete, within its limits, its token verified."""

    _incoming: Incoming = attrs.field(repr=False)
    #: The role of the access token; ``None`` where a route that doesn't require one was called without.
    caller_if_any: Caller | None
    query: Query
    body: bytes = attrs.field(repr=False)
    _demand_primary: Callable[[], Awaitable[None]] = attrs.field(repr=False)

    async def demand_primary(self) -> None:
        """Return when this server may write; the router sees to it for all routes but those that are public.

        :raises StoreReadOnly: it is a follower (rulings: followers).
        """
        await self._demand_primary()

    @property
    def caller(self) -> Caller:
        """The role of the access token.

        :raises BearerRefused: there was none.
        """
        if self.caller_if_any is None:
            raise BearerRefused("Authorization missing")
        return self.caller_if_any

    @property
    def client_ip(self) -> str:
        """The client's address, told by a trusted proxy or by the socket."""
        return self._incoming.client_ip

    @property
    def request_id(self) -> str:
        """The id by which logs know this request; every answer carries it."""
        return self._incoming.request_id

    def header(self, name: str) -> str | None:
        """The value of a header; several lines of one name are joined with commas (RFC 9110 5.3)."""
        return self._incoming.header(name.encode("ascii"))

    def form(self) -> Form:
        """The body as a form, whatever its content type.

        :raises BadRequest: it is none.
        :raises TooLarge: it is longer than forms are.
        """
        return Form.parse(self.body)


Handler = Callable[..., Awaitable[Response]]
_H = TypeVar("_H", bound=Handler)


@attrs.frozen(kw_only=True)
class Route:
    """One declaration."""

    method: str = attrs.field(validator=attrs.validators.in_(_METHODS))
    pattern: Pattern
    admission: Admission = attrs.field(validator=attrs.validators.instance_of(Admission))
    body: BodySize
    writes: bool
    handler: Handler

    def __attrs_post_init__(self) -> None:
        """Refuse what is no coroutine, or doesn't take what the pattern gives."""
        expected = ("self", "call", *self.pattern.names)
        if not inspect.iscoroutinefunction(self.handler) or tuple(inspect.signature(self.handler).parameters) != expected:
            raise TypeError(f"{self} needs a coroutine with the parameters {', '.join(expected)}")

    def __str__(self) -> str:
        return f"{self.method} {self.pattern.text}"


class Routes:
    """The routes of one noun."""

    def __init__(self) -> None:
        self._routes: list[Route] = []
        self._under: dict[str, Routes] = {}

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def add(
        self,
        method: str,
        path: str,
        *,
        caller: Admission,
        body: BodySize = BodySize.USUAL,
        writes: bool | None = None,
    ) -> Callable[[_H], _H]:
        """Declare the decorated coroutine to be a route; see the module's docstring.

        ``writes``: whether it changes anything, when the method doesn't say.

        :raises TypeError: it is no coroutine, its parameters are not those that the path gives, or ``caller`` is none.
        :raises ValueError: there is no such method.
        """

        def declare(handler: _H) -> _H:
            pattern = Pattern(path)
            changes = method != "GET" if writes is None else writes
            self._routes.append(
                Route(method=method, pattern=pattern, admission=caller, body=body, writes=changes, handler=handler)
            )
            return handler

        return declare

    def under(self, name: str) -> Routes:
        """The same routes with the segment ``name`` before each path; of one name always the same object.

        It is for a noun that serves several names, each by an object of its own.
        """
        routes = self._under.get(name)
        if routes is None:
            routes = self._under[name] = Routes()
            routes._routes = [attrs.evolve(route, pattern=Pattern(f"/{name}{route.pattern.text}")) for route in self]
        return routes


class Noun(Protocol):
    """What a router is made of: an object whose class declares ``routes``."""

    @property
    def routes(self) -> Routes:
        """The routes, whose coroutines are methods of this object."""


class Router:
    """All routes of the server, complete when it is made."""

    def __init__(
        self,
        nouns: Iterable[Noun],
        *,
        caller: Callable[[bytes | None], Awaitable[Caller]],
        demand_primary: Callable[[], Awaitable[None]],
        limits: Limits,
        new_id: Callable[[], str],
    ) -> None:
        """Compose the routes of ``nouns``.

        :param caller: verifies the value of an ``Authorization`` header; raises ``BearerRefused``.
        :param demand_primary: returns when this server may write; raises ``StoreReadOnly``.
        :param new_id: makes the ids under which bugs are logged.
        :raises ValueError: two routes match the same requests.
        """
        self._nouns = tuple(nouns)
        self._caller = caller
        self._demand_primary = demand_primary
        self._limits = limits
        self._new_id = new_id
        self._klein = _composed(tuple(noun.routes for noun in self._nouns))
        self._map = self._klein.url_map.bind("svc")

    def respond(self, incoming: Incoming) -> Deferred[Response]:
        """Answer a request. The result fails only by cancellation, once ``incoming.abandoned`` is set."""
        path, query = split_target(incoming.target)
        # werkzeug would read "get" as "GET", and "//x" or "x" as "/x".
        if incoming.method.isupper() and path.startswith("/") and not path.startswith("//"):
            try:
                endpoint, raw = self._map.match(path, incoming.method)
            except HTTPException:
                pass
            else:
                # Klein calls the first a request, and hands them all on to the endpoint untouched.
                return self._klein.execute_endpoint(endpoint, self, incoming, raw, query)  # type: ignore[arg-type, return-value]
        return succeed(no_route(path))

    async def answer(self, number: int, route: Route, incoming: Incoming, raw: Mapping[str, str], query: str) -> Response:
        """The answer of a route of the noun of this number, whatever happens."""
        try:
            return await self._perform(self._nouns[number], route, incoming, raw, query)
        except Refusal as refusal:
            return self._refused(route, incoming, refusal)
        except CancelledError:
            if incoming.abandoned:
                raise
            return self._failed(route, incoming)
        except Exception:
            return self._failed(route, incoming)

    async def _perform(self, noun: Noun, route: Route, incoming: Incoming, raw: Mapping[str, str], query: str) -> Response:
        """Note [Order of checks]."""
        incoming.limit = route.body.limit(self._limits)
        caller = await self._admitted(route, incoming)
        values = route.pattern.read(raw, self._limits.identifier)
        parameters = Query.parse(query)
        if route.writes and route.admission is not PUBLIC:
            await self._demand_primary()
        call = Call(incoming, caller, parameters, await incoming.body(), self._demand_primary)
        response = await route.handler(noun, call, **values)
        if not isinstance(response, Response):
            raise TypeError("the route returned no response")
        return response

    async def _admitted(self, route: Route, incoming: Incoming) -> Caller | None:
        if route.admission is PUBLIC:
            return None
        values = incoming.headers.getRawHeaders(b"Authorization", ())
        if len(values) > 1:
            raise BearerRefused("Malformed authorization token")
        authorization = values[0] if values else None
        if route.admission is OPTIONAL and not (authorization or b"").startswith(b"Token "):
            return None
        caller = await self._caller(authorization)
        # Nothing less will do, however the verifier was wired.
        if not isinstance(caller, Caller):
            raise TypeError("the verifier of access tokens returned no caller")
        return caller

    def _refused(self, route: Route, incoming: Incoming, refusal: Refusal) -> Response:
        response = answer_to(refusal)
        if response is None:
            return self._failed(route, incoming)
        if isinstance(refusal, Forbidden):
            _log.info(
                "{route} is forbidden: {why} ({id})", route=str(route), why=printable(refusal.why), id=incoming.request_id
            )
        elif isinstance(refusal, StoreUnavailable):
            _log.warn("{route} lacks its store: {why} ({id})", route=str(route), why=refusal.why, id=incoming.request_id)
        elif isinstance(refusal, WrongDataKey):
            _log.error(
                "{route}: {name} doesn't open ({id})", route=str(route), name=printable(refusal.name), id=incoming.request_id
            )
        return response

    def _failed(self, route: Route, incoming: Incoming) -> Response:
        incident = self._new_id()
        _log.failure(
            "{route} failed, incident {incident} ({id})", route=str(route), incident=incident, id=incoming.request_id
        )
        return internal_error(incident)


@functools.cache
def _composed(declared: tuple[Routes, ...]) -> Klein:
    """The map of all routes, each with the number of its noun; it depends on nothing but the declarations.

    :raises ValueError: two routes match the same requests.
    """
    klein = Klein()
    prepare(klein.url_map)
    taken: set[tuple[str, str]] = set()
    for number, routes in enumerate(declared):
        for route in routes:
            shapes = {(route.method, shape) for shape in route.pattern.shapes()}
            if shapes & taken:
                raise ValueError(f"{route} is declared twice")
            taken |= shapes
            _add(klein, number, route)
    return klein


def _add(klein: Klein, number: int, route: Route) -> None:
    def endpoint(router: Router, incoming: Incoming, raw: Mapping[str, str], query: str) -> Awaitable[Response]:
        return router.answer(number, route, incoming, raw, query)

    for rule, values in route.pattern.rules():
        name = f"{route.method} {rule}"
        # Klein's types know of endpoints that return what it can render; it hands on whatever there is.
        klein.route(rule, methods=[route.method], defaults=values, endpoint=name)(endpoint)  # type: ignore[type-var]

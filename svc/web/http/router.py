"""The router: it finds a request's route in Klein's map, checks and records what the route declares, and counts answers.

Note [Order of checks]: unknown route or method (404); a connection beyond the limit (503); access token (401); names in the
path, the query, and ``Svc-At-Least`` (422); on a follower, whether the route writes (405); whether reads are as new as the
request requires (503); size of the body (413); then the route, its parameters first. All but the last two happen before the
body has arrived: none of it is kept for strangers. A public route that writes proves its caller by itself, and then asks
``call.ensure_writable()`` before it goes to any expense. Only requests with an access token wait for a state:
``Svc-At-Least`` is ignored in others, at logins too.

Note [Recorded before it is answered]: a route that has ``audit`` begins only while the journal takes records, and its answer
is written when the journal has taken the request's events, be it a refusal: no secret leaves, and no change is confirmed,
without one.

Klein holds the map and runs the endpoints. Its ``KleinResource`` and ``Requirer`` are not used: they decode paths before
they match them, answer errors in HTML, go on without a caller, and cost as much as all the rest of a request.

Note [One rule that fits]. werkzeug decides which of several rules a path belongs to, by walking through all that it may be.
That takes several times as long as to decrypt a secret. But most paths fit one rule alone, and in whatever order rules are
tried, that one is it. So the few rules of a method whose paths begin with the same segment are tried, each as one regular
expression, and werkzeug decides unless exactly one matches. It prefers a segment that a rule names to one that may be any,
so rules that begin with a value don't count beside these. It also decides on paths with empty segments, which it treats
specially. Requests leave no state behind.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from re import Match
from typing import Any, Final, Protocol

import attrs
from klein import Klein
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, MapAdapter

from svc.model.dialect import Dialect
from svc.model.errors import (
    AuditUnavailable,
    BearerRefused,
    BodyEncoded,
    Forbidden,
    FormRefused,
    Refusal,
    StoreUnavailable,
    TooManyConnections,
    WrongDataKey,
)
from svc.model.events import AuditContext, IJournal, Outcome
from svc.model.limits import Limits
from svc.model.names import RoleName
from svc.model.query_results import Caller
from svc.model.request_notes import STALE_HEADER, RequestNotes, is_stale, request_notes, set_notes
from svc.model.text import escape_unprintable
from svc.model.versions import AT_LEAST_HEADER, VERSION_HEADER, StateVersion, parse_versions
from svc.web.http.console import IConsole
from svc.web.http.declarations import BodySize
from svc.web.http.messages import IncomingRequest, Response, split_target
from svc.web.http.query import NO_QUERY, Query
from svc.web.http.refusal_responses import audit_reason, no_route, response_to
from svc.web.http.routing import (
    OPTIONAL,
    PUBLIC,
    SESSION,
    AuditEventsFunction,
    Call,
    ResourceRoutes,
    Route,
    Routes,
    configure_map,
    rule_expression,
)

_log = Logger()

_AT_LEAST_HEADER: Final = AT_LEAST_HEADER.lower().encode("ascii")


#: The operation of a request that no route answers, and the status of one whose client left before there was an answer.
NO_ROUTE: Final = "none"
CLIENT_GONE: Final = "gone"


class Router:
    """All routes of the server, complete when it is made."""

    def __init__(
        self,
        resources: Iterable[ResourceRoutes],
        *,
        caller: Callable[[bytes | None], Awaitable[Caller]],
        ensure_writable: Callable[[], Awaitable[None]],
        reached: Callable[[Sequence[StateVersion], RoleName], Awaitable[None]],
        limits: Limits,
        new_id: Callable[[], str],
        journal: IJournal,
        dialect: Dialect,
        clock: IReactorTime,
        count: Callable[[str, str, float], object] = lambda *_: None,
        console: IConsole | None = None,
        refused: Callable[[IncomingRequest, Mapping[str, str], Refusal], object] = lambda *_: None,
    ) -> None:
        """Compose the routes of ``resources``.

        :param caller: verifies the value of an ``Authorization`` header; raises ``BearerRefused``.
        :param ensure_writable: returns when this server may write; raises ``ReadOnlyStandby``.
        :param reached: returns when what is read is at least as new as these versions, for a role; raises ``StoreBehind``.
        :param journal: takes the events of a request before it is answered.
        :param new_id: makes the ids under which bugs are logged.
        :param dialect: in which parameters are read, and refusals answered.
        :param count: is called for each request with its route, the status of its answer, and the seconds until there was
            one: the labels are ``NO_ROUTE`` where there is no route, and ``CLIENT_GONE`` where the client left before.
        :param console: what pages of the console have in common; needed where one of the routes is a page.
        :param refused: is called with each refused request, the values of its path, and the refusal.
        :raises ValueError: two routes match the same requests.
        :raises TypeError: routes of one method and path differ in what is looked at before the query, or there is a page
            of the console, and no console.
        """
        self._resources = tuple(resources)
        self._verify_token = caller
        self._require_primary = ensure_writable
        self._await_versions = reached
        self._limits = limits
        self._new_id = new_id
        self._journal = journal
        self._dialect = dialect
        self._clock, self._count = clock, count
        self._console = console
        pages = [route for resource in self._resources for route in resource.routes if route.admission.is_console_page]
        if pages and console is None:
            raise TypeError(f"{pages[0]} is a page of the console, and there is no console")
        self._on_refused = refused
        self._klein, self._map = _compose_routes(tuple(resource.routes for resource in self._resources))

    def respond(self, incoming: IncomingRequest) -> Deferred[Response]:
        """Answer a request. The result fails only by cancellation, once ``incoming.abandoned`` is set."""
        path, query = split_target(incoming.target)
        found = self._map.find_route(incoming.method, path)
        if found is None and (prefix := self._dialect.api_prefix) and f"{path}/".startswith(f"{prefix}/"):
            found = self._map.find_api_route(incoming.method, path.removeprefix(prefix) or "/")
        if found is None:
            missing = None if self._console is None else self._console.missing_page(path)
            response = missing or no_route(path)
            self._count(NO_ROUTE, str(response.status), 0.0)
            return succeed(response)
        # Klein calls the first a request, and hands them all on to the endpoint untouched.
        endpoint, raw = found
        return self._klein.execute_endpoint(endpoint, self, incoming, raw, query)  # type: ignore[arg-type, return-value]

    async def answer_request(
        self, incoming: IncomingRequest, raw: Mapping[str, str], query: str, *, number: int, alternatives: Alternatives
    ) -> Response:
        """Return the answer of one of these routes, of the resource of this number; nothing but a cancellation is raised."""
        began, status = self._clock.seconds(), CLIENT_GONE
        # Alternatives of a path and method are alike in what is read of the default here.
        default = incoming.route = alternatives.default
        # The context of this coroutine is the request's own.
        notes = RequestNotes(default.writes, default.serves_stale, request_id=incoming.request_id)
        set_notes(notes)
        try:
            try:
                response = await self._perform_route(self._resources[number], alternatives, incoming, raw, query)
            except Refusal as refusal:
                self._on_refused(incoming, raw, refusal)
                incoming.call = None  # which refers to it
                response = self._refusal_response(default, incoming, refusal)
            except CancelledError:
                if incoming.abandoned:
                    raise
                response = self._failure_response(default, incoming)
            except Exception:
                response = self._failure_response(default, incoming)
            if self._console is not None and default.admission.is_console_page:
                response = self._console.finish_page(incoming, response)
            status = str(response.status)
        finally:
            self._count(default.label, status, max(0.0, self._clock.seconds() - began))
        if notes.version is None and notes.stale is None:
            return response
        version = () if notes.version is None else ((VERSION_HEADER, notes.version),)
        stale = () if notes.stale is None else ((STALE_HEADER, str(math.ceil(notes.stale))),)
        return attrs.evolve(response, headers=(*response.headers, *version, *stale))

    async def _perform_route(
        self,
        resource: ResourceRoutes,
        alternatives: Alternatives,
        incoming: IncomingRequest,
        raw: Mapping[str, str],
        query: str,
    ) -> Response:
        """Note [Order of checks]; up to the query, all alternatives are alike."""
        route = alternatives.default
        if incoming.overflow and not route.vital:
            raise TooManyConnections
        incoming.limit = self._limits.policy_body if route.size is BodySize.POLICY else self._limits.body
        visit = None
        if self._console is not None and route.admission.is_console_page:
            visit = incoming.visit = await self._console.admit_visit(incoming, signed_in=route.admission is SESSION)
            caller = visit.caller
        else:
            caller = None if route.admission is PUBLIC else await self._verify_caller(route, incoming)
        values = route.pattern.decode_values(raw, self._limits.identifier)
        parameters = Query.parse(query) if query and route.query is not None else NO_QUERY
        asks = caller is not None and _AT_LEAST_HEADER in incoming.headers
        header = incoming.header(_AT_LEAST_HEADER) if asks else None
        versions = None if header is None else parse_versions(header)
        if alternatives.flagged and parameters.pairs:
            route = incoming.route = alternatives.select_route(parameters)
        if route.writes and route.admission is not PUBLIC:
            await self._require_primary()
        if caller is not None and versions is not None:
            await self._await_versions(versions, caller.role)
        body = await incoming.read_body()
        if body and route.body is not None and b"content-encoding" in incoming.headers and incoming.is_encoded:
            raise BodyEncoded
        if self._console is not None and visit is not None and incoming.method not in {"GET", "HEAD"}:
            self._console.check_form(visit, incoming, body)
        user = None if caller is None else caller.role.full_id
        origin = AuditContext(self._journal.server, user, incoming.client_ip, incoming.request_id)
        call = Call(
            incoming,
            caller,
            parameters,
            body,
            values,
            client_ip=incoming.client_ip,
            origin=origin,
            dialect=self._dialect,
            require_primary=self._require_primary,
            route=route,
            visit=visit,
        )
        try:
            if route.audit is None:
                response = await route.handler(resource, call, **route.read_arguments(call))
            else:
                response = await self._perform_audited(resource, route, route.audit, call)
        except Refusal:
            incoming.call = call
            raise
        if not isinstance(response, Response):
            raise TypeError("the route returned no response")
        return response

    async def _perform_audited(
        self, resource: ResourceRoutes, route: Route, audit: AuditEventsFunction, call: Call
    ) -> Response:
        """Return the answer of a route, once its events are recorded (Note [Recorded before it is answered])."""
        self._journal.require_available()
        try:
            response = await route.handler(resource, call, **route.read_arguments(call))
            reason = f"http-{response.status}" if response.status >= 400 else None
        except Refusal as refusal:
            await self._journal.record_events(call.origin, audit(call), Outcome(audit_reason(refusal), stale=is_stale()))
            raise
        except Exception as error:
            # The client has left before the answer, or it is a bug's: nobody waits.
            why = "client-gone" if isinstance(error, CancelledError) else "error"
            taking = Deferred.fromCoroutine(self._journal.record_events(call.origin, audit(call), Outcome(why)))
            taking.addErrback(lambda failure: failure.trap(AuditUnavailable))
            raise
        notes = request_notes()
        outcome = Outcome(reason, stale=notes is not None and notes.stale is not None)
        await self._journal.record_events(call.origin, audit(call), outcome)
        return response

    async def _verify_caller(self, route: Route, incoming: IncomingRequest) -> Caller | None:
        values = incoming.headers.get(b"authorization", ())
        if len(values) > 1:
            raise BearerRefused("Malformed authorization token")
        authorization = values[0] if values else None
        if route.admission is OPTIONAL and not (authorization or b"").startswith(b"Token "):
            return None
        caller = await self._verify_token(authorization)
        if not isinstance(caller, Caller):
            raise TypeError("the verifier of access tokens returned no caller")
        return caller

    def _refusal_response(self, route: Route, incoming: IncomingRequest, refusal: Refusal) -> Response:
        response = response_to(refusal, self._dialect)
        if response is None:
            return self._failure_response(route, incoming)
        if self._console is not None and route.admission.is_console_page:
            response = self._console.refusal_page(incoming, refusal, response)
        if route.reshape is not None:
            response = route.reshape(incoming, response)
        where = {"route": route.plain_label, "id": incoming.request_id}
        if isinstance(refusal, Forbidden | FormRefused):
            _log.info("{route} is forbidden: {why} ({id})", why=escape_unprintable(refusal.why), **where)
        elif isinstance(refusal, StoreUnavailable):
            _log.warn("{route} lacks its store: {why} ({id})", why=refusal.why, **where)
        elif isinstance(refusal, WrongDataKey):
            _log.error("{route}: {name} doesn't open ({id})", name=escape_unprintable(refusal.name), **where)
        return response

    def _failure_response(self, route: Route, incoming: IncomingRequest) -> Response:
        incident = self._new_id()
        message = "{route} failed, incident {incident} ({id})"
        _log.failure(message, route=route.plain_label, incident=incident, id=incoming.request_id)
        if self._console is not None and route.admission.is_console_page:
            return self._console.failure_page(incoming, incident)
        return Response.internal_error(incident)


@functools.cache
def _compose_routes(declared: tuple[Routes, ...]) -> tuple[Klein, RouteMap]:
    """Return all routes, each with its resource's number, and the search in them; they depend on the declarations alone."""
    klein = Klein()
    configure_map(klein.url_map)
    taken: set[tuple[str, str]] = set()
    for number, routes in enumerate(declared):
        together: dict[str, list[Route]] = {}
        for route in routes:
            together.setdefault(str(route), []).append(route)
        for same in together.values():
            first = same[0]
            shapes = {(first.method, shape) for shape in first.pattern.anonymous_rules()}
            if shapes & taken:
                raise ValueError(f"{first} is declared twice")
            taken |= shapes
            _add_endpoint(klein, number, first, Alternatives.from_routes(same))
    return klein, RouteMap(klein.url_map)


def _add_endpoint(klein: Klein, number: int, first: Route, alternatives: Alternatives) -> None:
    answer = functools.partial(Router.answer_request, number=number, alternatives=alternatives)
    # Klein asks for a name.
    endpoint = functools.update_wrapper(answer, Router.answer_request)
    for rule, values in first.pattern.werkzeug_rules():
        name = f"{first.method} {rule}"
        # Klein's types know of endpoints that return what it can render; it hands on whatever there is.
        klein.route(rule, methods=[first.method], defaults=values, endpoint=name)(endpoint)  # type: ignore[type-var]


@attrs.frozen
class Alternatives:
    """The routes of one method and path, of which a flag in the query (``?members``) chooses one: the first whose flag it
    has, or the ``default``.
    """

    flagged: tuple[tuple[str, Route], ...]
    default: Route

    @classmethod
    def from_routes(cls, routes: Sequence[Route]) -> Alternatives:
        """Put together the routes of one method and path. Where all have a flag, a request with none of these is 404.

        :raises ValueError: two have the same flag, or none.
        :raises TypeError: they differ in something that is looked at before the query.
        """
        first = routes[0]
        flags = [route.when for route in routes]
        if len(set(flags)) < len(flags):
            raise ValueError(f"{first} is declared twice")
        if len({_shared_declarations(route) for route in routes}) > 1 or (first.query is None and any(flags)):
            raise TypeError(f"all routes of {first} need the same caller, name in the path, size of the body, and writes")
        rest = next((route for route in routes if route.when is None), None)
        if rest is None:
            body = None if first.body is None else attrs.evolve(first.body, fields=())
            rest = attrs.evolve(first, handler=_refuse_without_flag, query=(), headers=(), body=body)
        return cls(tuple((route.when, route) for route in routes if route.when is not None), rest)

    def select_route(self, query: Query) -> Route:
        """Return the route that a query selects.

        :raises InvalidParameter: a flag is written with brackets, even if it is another that selects the route.
        """
        found = [route for flag, route in self.flagged if flag in query.first_values and query.has_flag(flag)]
        return found[0] if found else self.default


def _shared_declarations(route: Route) -> tuple[object, ...]:
    known = route.query is not None
    return (
        route.admission,
        route.pattern,
        route.kinds,
        route.name,
        route.size,
        route.writes,
        route.vital,
        route.serves_stale,
        known,
    )


async def _refuse_without_flag(_: object, call: Call, **__: object) -> Response:
    """Refuse what only routes with a flag have a path for."""
    raise call.route_not_found()


#: The server name that the map is bound to; routes don't depend on it.
_SERVER: Final = "svc"


#: The first segments of what isn't of the API.
_OUTSIDE_API: Final = frozenset({"ui", "docs", "openapi.json"})


class _RuleMatcher(Protocol):
    def __call__(self, path: str, /) -> Match[str] | None: ...


@attrs.frozen
class _Rule:
    """A rule for one method: whether a path ``match_path``, its endpoint, and the values that it presupposes."""

    match_path: _RuleMatcher
    endpoint: str
    defaults: Mapping[str, Any]


class RouteMap:
    """Klein's map, complete, and its rules by method and first segment (Note [One rule that fits])."""

    def __init__(self, routes: Map) -> None:
        self._map: MapAdapter = routes.bind(_SERVER)
        self._rules: dict[tuple[str, str], list[_Rule]] = {}
        for rule in routes.iter_rules():
            found = _Rule(rule_expression(rule.rule).fullmatch, rule.endpoint, rule.defaults or {})
            for method in rule.methods or ():
                self._rules.setdefault((method, rule.rule[1:].partition("/")[0]), []).append(found)

    def find_route(self, method: str, path: str) -> tuple[str, Mapping[str, Any]] | None:
        """Return the endpoint of a request, and the values in its path, undecoded; ``None`` when it has no route."""
        if "//" not in path and not path.endswith("/"):
            fitting = [
                (rule, match)
                for rule in self._rules.get((method, path[1:].partition("/")[0]), ())
                if (match := rule.match_path(path)) is not None
            ]
            if len(fitting) == 1:
                rule, match = fitting[0]
                return rule.endpoint, {**match.groupdict(), **rule.defaults}
        # werkzeug would read "get" as "GET", and "//x" or "x" as "/x".
        if not method.isupper() or not path.startswith("/") or path.startswith("//"):
            return None
        try:
            return self._map.match(path, method)
        except HTTPException:
            return None

    def find_api_route(self, method: str, path: str) -> tuple[str, Mapping[str, Any]] | None:
        """Return what ``find_route`` does, but for pages and what describes the API: they aren't of it."""
        return None if path[1:].partition("/")[0] in _OUTSIDE_API else self.find_route(method, path)

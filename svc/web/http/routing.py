"""How a route is declared, and what it sees of a request.

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
* Patterns are those of :class:`svc.web.http.paths.Pattern`; the values arrive decoded, under the names they have there. A
  route of ``GET`` answers ``HEAD`` too. Two decorators give one coroutine two paths.
* ``audit`` names the function of ``auditing`` that tells what the request is in the audit; a route without leaves no record.
* A route takes values and returns a :class:`~svc.web.http.response.Response`; it never sees the request. To refuse it raises
  one of ``svc.model.errors``, which ``faults`` turns into an answer.
* ``composition`` hands all nouns to one ``router.Router``, complete. What doesn't fit its coroutine stops the import.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import attrs

from svc.model.errors import BearerRefused
from svc.model.events import Event, Origin, Trail
from svc.model.limits import Limits
from svc.model.query_results import Caller
from svc.services.invocation import Invocation
from svc.web.http.incoming import Incoming
from svc.web.http.paths import Pattern
from svc.web.http.query import Form, Query
from svc.web.http.response import Response

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
    #: What the path says, under the names of the route's pattern.
    values: Mapping[str, Any]
    #: Where the request comes from, for the audit.
    origin: Origin
    _demand_primary: Callable[[], Awaitable[None]] = attrs.field(repr=False)
    _recount: Recount | None = None
    #: What the route has found out, for the audit; see :meth:`tell`.
    facts: dict[str, Any] = attrs.field(factory=dict, repr=False, init=False)

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
    def invocation(self) -> Invocation:
        """The caller, its address and this call as the recorder, for a use case.

        :raises BearerRefused: there was no access token.
        """
        return Invocation(self.caller, self.client_ip, self)

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

    def tell(self, **facts: object) -> None:
        """Tell the audit what the path and the query don't say, as soon as it is known; never a secret."""
        self.facts.update(facts)

    @property
    def events(self) -> Sequence[Event]:
        """The events of this request as far as they are known."""
        return () if self._recount is None else self._recount(self)

    @property
    def trail(self) -> Trail:
        """They, for the transaction that makes the request's changes."""
        return Trail(self.origin, tuple(self.events))

    def form(self) -> Form:
        """The body as a form, whatever its content type.

        :raises BadRequest: it is none.
        :raises TooLarge: it is longer than forms are.
        """
        return Form.parse(self.body)


#: Tells the events of a request, for the audit, from the call; a list of none for one that changed nothing after all.
Recount = Callable[[Call], Sequence[Event]]

Handler = Callable[..., Coroutine[Any, Any, Response]]
_H = TypeVar("_H", bound=Handler)


@attrs.frozen(kw_only=True)
class Route:
    """One declaration."""

    method: str = attrs.field(validator=attrs.validators.in_(_METHODS))
    pattern: Pattern
    admission: Admission = attrs.field(validator=attrs.validators.instance_of(Admission))
    body: BodySize
    writes: bool
    query: bool
    vital: bool
    handler: Handler
    audit: Recount | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse what is no coroutine, or doesn't take what the pattern gives."""
        expected = ("self", "call", *self.pattern.names)
        if not inspect.iscoroutinefunction(self.handler) or tuple(inspect.signature(self.handler).parameters) != expected:
            raise TypeError(f"{self} needs a coroutine with the parameters {', '.join(expected)}")

    def __str__(self) -> str:
        return f"{self.method} {self.pattern}"


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
        query: bool = True,
        vital: bool = False,
        audit: Recount | None = None,
    ) -> Callable[[_H], _H]:
        """Declare the decorated coroutine to be a route; see the module's docstring.

        ``writes``: whether it changes anything, when the method doesn't say. One with ``query`` false knows no parameters:
        its query is not read, and no query is a mistake. One that is ``vital`` answers on connections beyond the limit, too.

        :raises TypeError: it is no coroutine, its parameters are not those that the path gives, or ``caller`` is none.
        :raises ValueError: there is no such method.
        """

        def declare(handler: _H) -> _H:
            pattern = Pattern(path)
            route = Route(
                method=method,
                pattern=pattern,
                admission=caller,
                body=body,
                writes=method != "GET" if writes is None else writes,
                query=query,
                vital=vital,
                handler=handler,
                audit=audit,
            )
            self._routes.append(route)
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

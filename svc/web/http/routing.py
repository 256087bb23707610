"""How a route is declared, and what it sees of a request.

A class declares its routes in one place, and there is no other way to add one::

    class Roles:
        routes = Routes()

        @routes.add(
            "GET",
            "/roles/<flat:account>/<kind>/<tail:identifier>",
            when="all",
            kinds=ROLE_KINDS,
            name=PathName("role", RoleName.from_parts),
            caller=REQUIRED,
            query=(Parameter.texts("filter", "only these roles", field="wanted"), Parameter.boolean("count", "...")),
            answers=(Answer(200, "ids of roles", array_shape(TEXT)), Answer(200, "their number", INTEGER)),
            errors=(NotFound, Forbidden),
            privileges="sees the role",
            audit=role_queried,
        )
        async def all(self, call: Call, role: RoleName, *, wanted: tuple[str, ...], count: bool) -> Response: ...

Arguments that several routes of a class share are in a ``functools.partial`` of ``Routes.add`` above them. A route takes
values and returns a ``Response``; to refuse, it raises one of ``svc.model.errors``, which ``refusal_responses`` turns into
an answer. A route of ``GET`` answers ``HEAD`` too. A declaration that doesn't match its coroutine fails at import.

Note [Raw paths]: ``%2F`` belongs to a name, ``/`` separates. So a path is matched undecoded, and each value is decoded after
it was cut out, strictly (``messages.percent_decoded``); ``/%68ealth`` is not ``/health``. A ``+`` is a ``+``.
"""

from __future__ import annotations

import enum
import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Container, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar, Unpack

import attrs
from werkzeug.routing import BaseConverter, Map

from svc.model.dialect import Dialect
from svc.model.errors import (
    AuditUnavailable,
    BadRequest,
    BearerRefused,
    BodyEncoded,
    CallerReplaced,
    FormRefused,
    InvalidName,
    InvalidParameter,
    OutcomeUnknown,
    PrimaryContested,
    ReadOnlyStandby,
    Refusal,
    RouteNotFound,
    StoreBehind,
    StoreUnavailable,
    TooLarge,
    TooManyConnections,
    WritesUnavailable,
)
from svc.model.events import AuditContext, AuditFacts, Event, EventBatch, Subject
from svc.model.idempotency import RequestKey
from svc.model.names import is_other_kind
from svc.model.query_results import Caller
from svc.services.invocation import Invocation
from svc.web.http.console import Visit
from svc.web.http.declarations import Answer, Body, BodySize, Parameter, PathName, Unaudited
from svc.web.http.messages import IncomingRequest, Response, percent_decoded, split_target
from svc.web.http.parameters import Parameters
from svc.web.http.query import Form, Query

T = TypeVar("T")

_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})


_VARIABLE: Final = re.compile("<(?:([a-z]+):)?([a-z_]+)>")
_OPTIONAL: Final = re.compile("/<optional:([a-z_]+)>")
_ABSENT: Final = re.compile("/<absent:([a-z_]+)>")

#: A slash that may be encoded, in a pattern, and how it may be written in a path.
_EITHER_SLASH: Final = "{/}"
_SLASHES: Final = ("/", "%2F", "%2f")


class _Flat(BaseConverter):
    """One segment that may not hold a slash, not even an encoded one."""

    regex = "(?:[^/%]|%(?!2[Ff]))+"
    part_isolating = True


class _Tail(BaseConverter):
    """One segment or more."""

    regex = ".+"
    part_isolating = False
    weight = 200


class _Raw(BaseConverter):
    """One segment as it stands on the wire."""

    part_isolating = True


class _Optional(BaseConverter):
    """Any number of segments, none included."""

    regex = ".*"
    part_isolating = False
    weight = 200


class _Mapped(BaseConverter):
    """One segment, other than the words that paths of logins end with; encoded, these are names too."""

    regex = r"(?!(?:authenticate|explain)\Z)[^/]+"
    part_isolating = True


_CONVERTERS: Final = {"flat": _Flat, "tail": _Tail, "raw": _Raw, "optional": _Optional, "mapped": _Mapped}


def configure_map(routes: Map) -> None:
    """Teach a map the converters of :class:`Pattern`, and keep it from rewriting paths."""
    routes.converters.update(_CONVERTERS)
    routes.merge_slashes = False
    routes.redirect_defaults = False


def rule_expression(rule: str) -> re.Pattern[str]:
    """Return the regular expression of the paths without empty segments that fit a rule, with its values by their names."""
    pieces, end = [], 0
    for variable in _VARIABLE.finditer(rule):
        regex = _CONVERTERS[variable[1]].regex if variable[1] else BaseConverter.regex
        pieces += [re.escape(rule[end : variable.start()]), f"(?P<{variable[2]}>{regex})"]
        end = variable.end()
    return re.compile("".join([*pieces, re.escape(rule[end:])]))


@attrs.frozen
class Pattern:
    """The pattern of a route's path.

    ``<name>`` is one segment, ``%2F`` allowed; ``<flat:name>`` one without a slash, encoded or not; ``<mapped:name>`` one
    that no login's path ends with; ``<tail:name>`` one or more, where ``/`` and ``%2F`` are one; ``<optional:name>`` may be
    absent too, with its slash or without (WIRE-14), and is then ``None``; ``<absent:name>`` always is, with its slash.
    ``<raw:name>``, which has no other beside it, is one segment that isn't decoded, of any length. ``{/}`` is a slash,
    encoded or not.
    """

    text: str
    _undecoded: bool = attrs.field(init=False, repr=False, eq=False)

    @_undecoded.default
    def _has_raw(self) -> bool:
        return "<raw:" in self.text

    def __str__(self) -> str:
        return _ABSENT.sub("", self.text).replace(_EITHER_SLASH, "/")

    @property
    def value_names(self) -> tuple[str, ...]:
        """The names of the values, in order."""
        return tuple(name for _, name in _VARIABLE.findall(self.text))

    def with_prefix(self, name: str, absent: Collection[str]) -> Pattern:
        """Return the pattern with the segment ``name`` before it, in which the values of the names ``absent`` are absent."""
        text = _VARIABLE.sub(lambda found: f"<absent:{found[2]}>" if found[2] in absent else found[0], self.text)
        return Pattern(f"/{name}{text}")

    def format_path(self, values: Mapping[str, str | None]) -> str:
        """Return the path that has these values, decoded, for messages."""
        return _VARIABLE.sub(lambda variable: values[variable[2]] or "", str(self))

    def werkzeug_rules(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Return the rules that make it up, each with the values that it presupposes."""
        for slash in _SLASHES if _EITHER_SLASH in self.text else ("/",):
            text = _ABSENT.sub("", self.text.replace(_EITHER_SLASH, slash))
            absent = dict.fromkeys(_ABSENT.findall(self.text), "")
            yield text, absent
            shorter, found = _OPTIONAL.subn("", text)
            if found:
                yield shorter, absent | dict.fromkeys(_OPTIONAL.findall(text), "")

    def anonymous_rules(self) -> set[str]:
        """Return the rules without the names of their values, which are equal for patterns that match the same paths."""
        return {_VARIABLE.sub(r"<\1>", rule) for rule, _ in self.werkzeug_rules()}

    def decode_values(self, raw: Mapping[str, str], limit: int) -> dict[str, str | None]:
        """Decode the values that were cut out of a path; each may have at most ``limit`` bytes.

        :raises InvalidName: one doesn't decode, or is too long.
        """
        if self._undecoded:
            return dict(raw)
        values: dict[str, str | None] = {}
        for name, text in raw.items():
            # A byte takes three characters at most.
            try:
                value = percent_decoded(text) if "%" in text and len(text) <= 3 * limit else text
            except ValueError as error:
                raise InvalidName(name, f"the {name} in the path {error}") from None
            if len(text) > limit and len(value.encode("utf-8")) > limit:
                raise InvalidName(name, f"the {name} in the path is longer than {limit} bytes")
            values[name] = value or None
        return values


class Admission(enum.Enum):
    """The callers that a route admits."""

    #: A valid access token.
    REQUIRED = "required"
    #: Anyone; a ``Token`` in the ``Authorization`` header must be valid, though (WIRE-29).
    OPTIONAL = "optional"
    #: Anyone; the ``Authorization`` header is the route's own business.
    PUBLIC = "public"
    #: A browser with a session of the console, whose cookie proves the caller; the ``Authorization`` header proves nothing.
    SESSION = "session"
    #: Any browser; the route is a page of the console all the same, whose forms and refusals are those of its pages.
    VISITOR = "visitor"

    @property
    def is_console_page(self) -> bool:
        """Whether the route is a page of the console (``svc.web.http.console``)."""
        return self in {Admission.SESSION, Admission.VISITOR}


REQUIRED: Final = Admission.REQUIRED
OPTIONAL: Final = Admission.OPTIONAL
PUBLIC: Final = Admission.PUBLIC
SESSION: Final = Admission.SESSION
VISITOR: Final = Admission.VISITOR


@attrs.frozen
class Call:
    """A request as a route sees it: complete, within its limits, its token verified."""

    incoming: IncomingRequest = attrs.field(repr=False)
    #: The role of the access token; ``None`` where a route that doesn't require one was called without.
    caller_if_any: Caller | None
    query: Query
    body: bytes = attrs.field(repr=False)
    #: The values in the path, under the names of the route's pattern.
    values: Mapping[str, Any]
    #: The client's address, as a trusted proxy or the socket reports it.
    client_ip: str
    #: Where the request comes from, for the audit.
    origin: AuditContext
    #: The dialect that the server speaks.
    dialect: Dialect
    _require_primary: Callable[[], Awaitable[None]] = attrs.field(repr=False)
    route: Route = attrs.field(repr=False)
    _visit: Visit | None = attrs.field(default=None, repr=False)
    #: Facts that the route recorded for the audit; see :meth:`add_audit_facts`.
    audit_facts: AuditFacts = attrs.field(factory=AuditFacts, repr=False, init=False)

    async def require_primary(self) -> None:
        """Raise ``ReadOnlyStandby`` on a follower (CLU-3); for all routes but public ones the router does so itself."""
        await self._require_primary()

    @property
    def path_prefix(self) -> str:
        """The prefix of the request's path before the route's own: ``Dialect.api_prefix``, or nothing."""
        prefix = self.dialect.api_prefix
        return prefix if prefix and split_target(self.incoming.target)[0].startswith(f"{prefix}/") else ""

    @property
    def caller(self) -> Caller:
        """The role of the access token.

        :raises BearerRefused: there was none.
        """
        if self.caller_if_any is None:
            raise BearerRefused("Authorization missing")
        return self.caller_if_any

    @property
    def visit(self) -> Visit:
        """The visit to the console that the request is a part of.

        :raises LookupError: the route is no page of the console.
        """
        if self._visit is None:
            raise LookupError(f"{self.route} is no page of the console")
        return self._visit

    @property
    def invocation(self) -> Invocation:
        """The caller, its address and this call as the recorder, for a use case.

        :raises BearerRefused: there was no access token.
        """
        return Invocation(self.caller, self.client_ip, self)

    def request_key(self, key: str | None) -> RequestKey | None:
        """Return the key of this request, still without its caller, and of a policy document without its body."""
        if key is None:
            return None
        request = RequestKey(key, f"{self.incoming.method} {self.incoming.target}")
        return request if self.route.size is BodySize.POLICY else request.with_body(self.body)

    def header(self, name: str) -> str | None:
        """Return the value of a header; several lines of one name are joined with commas (RFC 9110 5.3)."""
        return self.incoming.header(name.encode("ascii"))

    def add_audit_facts(self, **facts: Unpack[AuditFacts]) -> None:
        """Record for the audit what the path and the query don't say, as soon as it is known; never a secret."""
        self.audit_facts.update(facts)

    def path_full_id(self, kind: str | None = None) -> str:
        """Return the full id that the path makes, of this kind where the path has none."""
        return f"{self.values['account']}:{kind or self.values['kind']}:{self.values['identifier']}"

    def asked_value(self, name: str) -> str | None:
        """Return the first value of the query under a name, right or wrong, for the audit: empty where the name is bare."""
        return self.query.first_values.get(name)

    def asked_flag(self, name: str) -> bool:
        """Return whether the query has a flag, for the audit; it raises what ``Query.has_flag`` does."""
        return self.query.has_flag(name)

    def asked_values(self, *names: str) -> Subject:
        """Return the values of these names in the path or the query, the first of each, as the subject of an event."""
        asked = self.query.first_values
        pairs = [(name, self.values.get(name) or asked.get(name)) for name in names]
        return tuple([(name, text) for name, text in pairs if text is not None])

    @property
    def event_batch(self) -> EventBatch:
        """The events so far, for the transaction that makes the request's changes."""
        return EventBatch(self.origin, () if self.route.audit is None else tuple(self.route.audit(self)))

    @functools.cached_property
    def parameters(self) -> Parameters:
        """The parameters of the body, a form or JSON, and of the query; it raises what ``Parameters.parse`` does."""
        return Parameters.parse(self.header("Content-Type"), self.body, self.query)

    def read_late(self, parameter: Parameter[T]) -> T:
        """Read a parameter that the route declares as late.

        :raises LookupError: it declares none.
        """
        if not any(parameter is late for late in self.route.late_parameters):
            raise LookupError(f"{self.route} declares no late {parameter.name}")
        return parameter.read(self)

    def route_not_found(self) -> RouteNotFound:
        """Return the refusal of a path that is no route after all."""
        return RouteNotFound(self.route.method, self.route.pattern.format_path(self.values))

    def parse_form(self) -> Form:
        """Return the body as a form, under any content type; it raises what ``Form.parse`` does."""
        return Form.parse(self.body)


#: Returns the events of a request, for the audit; none for one that changed nothing after all. They are made from the path,
#: the query and the facts that the route recorded, and have the words of the installed base where it has them (AUD-3).
AuditEventsFunction = Callable[[Call], Sequence[Event]]

#: Returns the answer to a refusal, from the request and the answer that other routes would give.
RefusalFormatter = Callable[[IncomingRequest, Response], Response]

Handler = Callable[..., Coroutine[Any, Any, Response]]
_H = TypeVar("_H", bound=Handler)


@attrs.frozen(kw_only=True)
class Route:
    """One declaration; its fields are those of ``Routes.add``."""

    method: str = attrs.field(validator=attrs.validators.in_(_METHODS))
    pattern: Pattern
    when: str | None
    kinds: frozenset[str] | None
    name: PathName[Any] | None
    admission: Admission = attrs.field(validator=attrs.validators.instance_of(Admission))
    query: tuple[Parameter[Any], ...] | None
    headers: tuple[Parameter[Any], ...]
    body: Body | None
    answers: tuple[Answer, ...]
    errors: tuple[type[Refusal], ...]
    privileges: str
    writes: bool
    vital: bool
    serves_stale: bool
    audit: AuditEventsFunction | None
    unaudited: Unaudited | None
    reshape: RefusalFormatter | None
    handler: Handler
    #: The parameters that are read before the coroutine is called, and those that it reads itself.
    early_parameters: tuple[Parameter[Any], ...] = attrs.field(init=False)
    late_parameters: tuple[Parameter[Any], ...] = attrs.field(init=False)
    #: The size of the bodies that it takes.
    size: BodySize = attrs.field(init=False)
    #: Its method and path, as they are logged and counted.
    label: str = attrs.field(init=False, repr=False)

    @early_parameters.default
    def _default_early(self) -> tuple[Parameter[Any], ...]:
        return tuple(parameter for parameter in self.parameters if not parameter.late)

    @late_parameters.default
    def _default_late(self) -> tuple[Parameter[Any], ...]:
        return tuple(parameter for parameter in self.parameters if parameter.late)

    @size.default
    def _default_size(self) -> BodySize:
        return BodySize.USUAL if self.body is None else self.body.size

    @label.default
    def _default_label(self) -> str:
        return f"{self.method} {self.pattern}"

    def __str__(self) -> str:
        return self.label

    @property
    def plain_label(self) -> str:
        """Its method and path for people: as the documents write it, with nothing of how values are matched."""
        return _VARIABLE.sub(r"<\2>", self.label)

    @property
    def parameters(self) -> tuple[Parameter[Any], ...]:
        """The parameters, in the order in which they are read."""
        return (*(self.query or ()), *self.headers, *(() if self.body is None else self.body.fields))

    @property
    def possible_refusals(self) -> frozenset[type[Refusal]]:
        """The refusals that the route may end in: those of ``errors``, and those that follow from the rest."""
        implied: set[type[Refusal]] = {TooManyConnections, TooLarge, StoreUnavailable}
        if self.pattern.value_names or self.name:
            implied.add(InvalidName)
        if self.query is not None:
            implied.add(InvalidParameter)
        if self.body is not None:
            implied.add(BodyEncoded)
        if self.kinds is not None or self.when is not None:
            implied.add(RouteNotFound)
        if self.admission not in {PUBLIC, VISITOR}:
            implied |= {BearerRefused, CallerReplaced, StoreBehind, InvalidParameter}
        if self.admission.is_console_page and self.method != "GET":
            implied |= {FormRefused, BadRequest}
        if self.writes:
            implied |= {ReadOnlyStandby, WritesUnavailable, PrimaryContested, OutcomeUnknown}
        if self.audit is not None:
            implied.add(AuditUnavailable)
        return frozenset({*implied, *self.errors})

    def check_handler(self) -> None:
        """Raise ``TypeError`` unless the handler is a coroutine that takes what the route declares."""
        fields = [parameter.field for parameter in self.early_parameters if parameter.field]
        named = self.pattern.value_names if self.name is None else (self.name.field,)
        expected = ["self", "call", *named, *fields]
        given = inspect.signature(self.handler).parameters.values()
        words = [parameter.name for parameter in given if parameter.kind is not parameter.KEYWORD_ONLY]
        keywords = [parameter.name for parameter in given if parameter.kind is parameter.KEYWORD_ONLY]
        fits = words == expected[: len(words)] and sorted(keywords) == sorted(fields) and len(words) == 2 + len(named)
        if not inspect.iscoroutinefunction(self.handler) or not fits or len(set(expected)) < len(expected):
            after = f", and the keywords {', '.join(fields)}" if fields else ""
            raise TypeError(f"{self} needs a coroutine with the parameters {', '.join(expected[: 2 + len(named)])}{after}")

    def read_arguments(self, call: Call) -> dict[str, Any]:
        """Read what the coroutine takes: the name in the path, then the parameters."""
        path, name = call.values, self.name
        if self.kinds is not None and not (path["kind"] in self.kinds or _is_custom_kind(path["kind"], call.dialect)):
            raise call.route_not_found()
        if name is None:
            values = dict(path)
        else:
            values = {name.field: name.make(path["account"], name.kind or path["kind"], path["identifier"])}
        names: Container[str | bytes] = call.query.first_values
        headers: Container[str | bytes] = call.incoming.headers
        for parameter in self.early_parameters:
            key = parameter.key
            if key is None or key in (headers if isinstance(key, bytes) else names):
                values[parameter.field] = parameter.read(call)
            else:
                values[parameter.field] = parameter.absent
        values.pop("", None)
        return values


def _is_custom_kind(kind: str, dialect: Dialect) -> bool:
    return dialect.lenient_policy and is_other_kind(kind)


class Routes:
    """The routes of one class."""

    def __init__(self) -> None:
        self._routes: list[Route] = []
        self._prefixed: dict[str, Routes] = {}

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def add(
        self,
        method: str,
        path: str,
        *,
        caller: Admission,
        when: str | None = None,
        kinds: frozenset[str] | None = None,
        name: PathName[Any] | None = None,
        query: tuple[Parameter[Any], ...] | None = (),
        headers: tuple[Parameter[Any], ...] = (),
        body: Body | None = None,
        answers: tuple[Answer, ...] = (),
        errors: tuple[type[Refusal], ...] = (),
        privileges: str = "",
        writes: bool | None = None,
        vital: bool = False,
        serves_stale: bool = False,
        audit: AuditEventsFunction | Unaudited | None = None,
        reshape: RefusalFormatter | None = None,
    ) -> Callable[[_H], _H]:
        """Declare the decorated coroutine to be a route.

        :param path: a :class:`Pattern`, whose values arrive decoded, under the names they have there.
        :param caller: who may call it; there is no default.
        :param when: the flag in the query that chooses this route among those of the same method and path.
        :param kinds: which of our kinds the path may name, beside those that policies may make up; else it is no route.
        :param name: what the path's account, kind and identifier are together.
        :param query: its parameters, in the order in which they are read. With ``None`` the query is not looked at.
        :param headers: the headers that it reads, after the query.
        :param body: the body that it takes; its fields are read last. ``None``: the body is ignored.
        :param answers: everything that it answers but refusals.
        :param errors: the refusals that it may raise, beside those that follow from the rest (``Route.possible_refusals``).
        :param privileges: what the caller needs, in words.
        :param writes: whether it changes anything, which a follower refuses; by default, all but ``GET`` do.
        :param vital: whether it answers on connections beyond the limit, too.
        :param serves_stale: whether it may be answered from the read cache while the database is away (CLU-36).
        :param audit: the function that returns the events of a request, or why there are none.
        :param reshape: gives the answer to a refusal the form that its clients expect.
        :raises TypeError: it is no coroutine, its parameters are not those that are declared, or ``caller`` is none.
        :raises ValueError: there is no such method.
        """

        def declare(handler: _H) -> _H:
            route = Route(
                method=method,
                pattern=Pattern(path),
                when=when,
                kinds=kinds,
                name=name,
                admission=caller,
                query=query,
                headers=headers,
                body=body,
                answers=answers,
                errors=errors,
                privileges=privileges,
                writes=method != "GET" if writes is None else writes,
                vital=vital,
                serves_stale=serves_stale,
                audit=None if isinstance(audit, Unaudited) else audit,
                unaudited=audit if isinstance(audit, Unaudited) else None,
                reshape=reshape,
                handler=handler,
            )
            route.check_handler()
            self._routes.append(route)
            return handler

        return declare

    def with_prefix(self, name: str, *absent: str) -> Routes:
        """Return the same routes as ``Pattern.with_prefix`` has their paths; of one name always the same object."""
        if name not in self._prefixed:
            routes = self._prefixed[name] = Routes()
            routes._routes = [attrs.evolve(route, pattern=route.pattern.with_prefix(name, absent)) for route in self]
        return self._prefixed[name]


class ResourceRoutes(Protocol):
    """An object whose class declares ``routes``."""

    @property
    def routes(self) -> Routes:
        """The routes, whose coroutines are methods of this object."""

"""The parts of a route's declaration: names in the path, parameters, the body, answers.

A parameter is read before the route's coroutine is called, in the order of the declaration, and arrives there as a keyword
argument. One that may only be read after a query to the store (a 422 must not reveal to a stranger what a 404 hides) is
``late``: the coroutine reads it by ``call.late(PARAMETER)``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

import attrs

from svc.model.dialect import Dialect
from svc.web.http.parameters import Parameters
from svc.web.http.query import Form, Query
from svc.web.http.shapes import ANY, BOOLEAN, TEXT, Shape, array_shape, integer_shape, mapping_shape

T = TypeVar("T")

_INTEGER_MAX: Final = 2**63 - 1


class ParameterSource(Protocol):
    """A request, as the reader of a parameter sees it."""

    @property
    def query(self) -> Query:
        """The parameters of the query."""

    @property
    def body(self) -> bytes:
        """The whole body."""

    @property
    def parameters(self) -> Parameters:
        """The parameters of the body, a form or JSON, and of the query; it raises what ``Parameters.parse`` does."""

    @property
    def dialect(self) -> Dialect:
        """The dialect that the server speaks."""

    def header(self, name: str) -> str | None:
        """Return the value of a header, ``None`` when it is absent."""

    def parse_form(self) -> Form:
        """Return the body as a form; it raises what ``Form.parse`` does."""


class _ParameterFactory(Protocol[T]):
    def __call__(self, name: str, description: str, **more: Any) -> Parameter[T]: ...


def _query_parameter(read: Callable[[Query, str], T], shape: Shape, absent: Any) -> _ParameterFactory[T]:
    def declare(name: str, description: str, **more: Any) -> Parameter[T]:
        return Parameter(name, lambda source: read(source.query, name), shape, description, key=name, absent=absent, **more)

    return declare


def _body_parameter(read: Callable[[Parameters, str], T], shape: Shape) -> _ParameterFactory[T]:
    def declare(name: str, description: str, **more: Any) -> Parameter[T]:
        return Parameter(name, lambda source: read(source.parameters, name), shape, description, **more)

    return declare


@attrs.frozen
class Parameter(Generic[T]):
    """One parameter of a query, one header, or one field of a body, by where it is declared.

    ``name`` stands in the request, ``field`` in the coroutine's signature. ``read`` returns the value, or raises a refusal.
    ``parts`` are the parameters that a value is read from where these are several, as with :meth:`combine`. ``scheme`` is
    the security scheme of a header by which callers prove who they are, as the interface's document calls it.

    ``key`` is the name in the query, or in bytes the one of a header in lower case, without which the value is ``absent``,
    and nothing is read. With ``None``, ``read`` decides in any case.
    """

    name: str
    read: Callable[[ParameterSource], T] = attrs.field(repr=False)
    shape: Shape
    description: str
    field: str = attrs.field(default=attrs.Factory(lambda parameter: parameter.name, takes_self=True), kw_only=True)
    required: bool = attrs.field(default=False, kw_only=True)
    late: bool = attrs.field(default=False, kw_only=True)
    parts: tuple[Parameter[Any], ...] = attrs.field(default=(), kw_only=True)
    scheme: str | None = attrs.field(default=None, kw_only=True)
    key: str | bytes | None = attrs.field(default=None, kw_only=True, repr=False)
    absent: Any = attrs.field(default=None, kw_only=True, repr=False)

    @staticmethod
    def combine(
        field: str, read: Callable[[ParameterSource], T], *parts: Parameter[Any], late: bool = False
    ) -> Parameter[T]:
        """Declare several parameters that ``read`` makes one value of, in an order of its own."""
        return Parameter(field, read, ANY, "", late=late, parts=parts)

    @property
    def as_ignored(self) -> Parameter[T]:
        """The same parameter, for a route that refuses a wrong value, and ignores a right one."""
        return attrs.evolve(self, field="")

    @staticmethod
    def header(name: str, description: str, **more: Any) -> Parameter[str | None]:
        """Declare a header, whose text is taken as it is."""
        more.setdefault("field", name.lower().replace("-", "_"))
        key = name.lower().encode("ascii")
        return Parameter(name, lambda source: source.header(name), TEXT, description, key=key, **more)

    # Parameters of the query, and of the body or else the query, as the methods of the same names read them.
    text = staticmethod(_query_parameter(Query.text, TEXT, None))
    texts = staticmethod(_query_parameter(Query.texts, array_shape(TEXT), ()))
    positive_integer = staticmethod(_query_parameter(Query.positive_integer, integer_shape(1, _INTEGER_MAX), None))
    natural = staticmethod(_query_parameter(Query.natural, integer_shape(0, _INTEGER_MAX), None))
    integer = staticmethod(_query_parameter(Query.integer, integer_shape(-_INTEGER_MAX, _INTEGER_MAX), None))
    boolean = staticmethod(_query_parameter(Query.boolean, BOOLEAN, False))
    flag = staticmethod(_query_parameter(Query.has_flag, BOOLEAN, False))
    body_text = staticmethod(_body_parameter(Parameters.text, TEXT))
    body_texts = staticmethod(_body_parameter(Parameters.texts, array_shape(TEXT)))
    body_texts_by_key = staticmethod(_body_parameter(Parameters.texts_by_key, mapping_shape(TEXT)))


@attrs.frozen
class PathName(Generic[T]):
    """The name that account, kind and identifier in a path make together; it is read before the query.

    ``make`` is ``RoleName.from_parts`` or ``ResourceName.from_parts``. ``field`` takes the place of the path's values in the
    coroutine's signature. ``kind`` is that of all names where the path has none.
    """

    field: str
    make: Callable[[str, str, str], T] = attrs.field(repr=False)
    kind: str | None = None


class BodySize(enum.Enum):
    """How large a body a route takes."""

    USUAL = "usual"
    POLICY = "policy"


@attrs.frozen
class Body:
    """The body that a route takes.

    ``media_types`` are those that it is documented under; what else a client names is read alike, unless ``fields`` say
    otherwise. ``fields`` are its parameters, where it is a form or JSON; one without is taken raw.
    """

    description: str
    media_types: tuple[str, ...] = ("application/octet-stream",)
    size: BodySize = attrs.field(default=BodySize.USUAL, kw_only=True)
    fields: tuple[Parameter[Any], ...] = attrs.field(default=(), kw_only=True)
    required: bool = attrs.field(default=True, kw_only=True)


#: A body is taken, within the usual size, and not looked at.
NO_BODY: Final = Body("none", (), required=False)

#: The name of a parameter that is the whole body, a JSON object.
WHOLE_BODY: Final = "body"

#: The media types of parameters that a client may send as it finds handy, ``Parameter.body_text`` and its likes.
PARAMETER_MEDIA_TYPES: Final = ("application/x-www-form-urlencoded", "application/json")


@attrs.frozen
class Answer:
    """One answer of a route that isn't a refusal; ``shape`` is ``None`` where it has no body."""

    status: int
    description: str
    shape: Shape | None = None
    headers: tuple[str, ...] = ()


@attrs.frozen
class Unaudited:
    """The reason why a route leaves no record, where its audit function would stand."""

    reason: str

"""The choice among the routes of one method and path by a flag in the query (``?members``)."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from svc.web.http.query import Query
from svc.web.http.response import Response
from svc.web.http.routing import Call, Route


@attrs.frozen
class Alternatives:
    """The routes of one method and path, of which the query chooses one: the first whose flag it has, or the ``rest``."""

    flagged: tuple[tuple[str, Route], ...]
    rest: Route

    @classmethod
    def of(cls, routes: Sequence[Route]) -> Alternatives:
        """Put together the routes of one method and path. Where all have a flag, a request with none of these is 404.

        :raises ValueError: two have the same flag, or none.
        :raises TypeError: they differ in something that is looked at before the query.
        """
        first = routes[0]
        flags = [route.when for route in routes]
        if len(set(flags)) < len(flags):
            raise ValueError(f"{first} is declared twice")
        if len({_before_query(route) for route in routes}) > 1 or (first.query is None and any(flags)):
            raise TypeError(f"all routes of {first} need the same caller, name in the path, size of the body, and writes")
        rest = next((route for route in routes if route.when is None), None)
        if rest is None:
            body = None if first.body is None else attrs.evolve(first.body, fields=())
            rest = attrs.evolve(first, handler=_none, query=(), headers=(), body=body)
        return cls(tuple((route.when, route) for route in routes if route.when is not None), rest)

    def chosen(self, query: Query) -> Route:
        """Return the route that a query selects."""
        for flag, route in self.flagged:
            if query.flag(flag):
                return route
        return self.rest


def _before_query(route: Route) -> tuple[object, ...]:
    known = route.query is not None
    return (
        route.admission,
        route.pattern,
        route.kinds,
        route.name,
        route.size,
        route.writes,
        route.vital,
        route.outlives,
        known,
    )


async def _none(_: object, call: Call, **__: object) -> Response:
    """Refuse what only routes with a flag have a path for."""
    raise call.no_route()

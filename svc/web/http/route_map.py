"""The search for a request's route in Klein's map.

Note [One rule that fits]. werkzeug decides which of several rules a path belongs to, by walking through all that it may be.
That takes several times as long as to decrypt a secret. But most paths fit one rule alone, and in whatever order rules are
tried, that one is it. So the few rules of a method whose paths begin with the same segment are tried, each as one regular
expression, and werkzeug decides unless exactly one matches. It prefers a segment that a rule names to one that may be any,
so rules that begin with a value don't count beside these. It also decides on paths with empty segments, which it treats
specially. Requests leave no state behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from re import Match
from typing import Any, Final, Protocol

import attrs
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, MapAdapter

from svc.web.http.paths import rule_expression

#: The server name that the map is bound to; routes don't depend on it.
_SERVER: Final = "svc"


#: The first segments of what isn't of the API.
_OUTSIDE_API: Final = frozenset({"/ui", "/docs", "/openapi.json"})


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
                self._rules.setdefault((method, _first_segment(rule.rule)), []).append(found)

    def find_route(self, method: str, path: str) -> tuple[str, Mapping[str, Any]] | None:
        """Return the endpoint of a request, and the values in its path, undecoded; ``None`` when it has no route."""
        if "//" not in path and not path.endswith("/"):
            fitting = [
                (rule, match)
                for rule in self._rules.get((method, _first_segment(path)), ())
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
        return None if _first_segment(path) in _OUTSIDE_API else self.find_route(method, path)


def _first_segment(path: str) -> str:
    """Return what stands before the second slash."""
    end = path.find("/", 1)
    return path if end < 0 else path[:end]

"""The search for a route finds what werkzeug finds (Note [One rule that fits])."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule

from svc.web.http.router import RouteMap
from svc.web.http.routing import configure_map
from tests.web.declared import declared
from tests.work import functions_called

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get", "G.")

#: Segments that a rule may take for another's words, or for two segments, or for none.
ODD: Final = ("", "a", "a%2Fb", "a%2fb", "%2F", "%", "%2", "a%2", "%zz", "+", ".", "..", "a:b", "é", "x.json", "~")


def _map(rules: set[tuple[str, str, tuple[tuple[str, str], ...]]]) -> Map:
    routes = Map()
    configure_map(routes)
    for method, rule, values in sorted(rules):
        routes.add(Rule(rule, methods=[method], defaults=dict(values), endpoint=f"{method} {rule}"))
    return routes


RULES: Final = {
    (route.method, rule, tuple(values.items())) for _, route in declared() for rule, values in route.pattern.werkzeug_rules()
}
ROUTES: Final = _map(RULES)
WORDS: Final = sorted({word for _, rule, _ in RULES for word in rule.split("/") if "<" not in word})

segments = st.one_of(st.sampled_from(ODD), st.sampled_from(WORDS), st.text(st.characters(codec="ascii"), max_size=4))
tails = st.lists(segments, min_size=1, max_size=5).map("/".join)
paths = tails.map(lambda tail: f"/{tail}")


@st.composite
def filled(draw: Callable[..., Any]) -> tuple[str, str]:
    """The method of a rule, and its path with anything for values."""
    method, rule, _ = draw(st.sampled_from(sorted(RULES)))
    return method, re.sub("<[^>]*>", lambda _: draw(st.one_of(segments, tails)), rule)


def by_werkzeug(method: str, path: str) -> tuple[str, Any] | None:
    """What the map itself has for a request."""
    if not method.isupper() or not path.startswith("/") or path.startswith("//"):
        return None
    try:
        return ROUTES.bind("svc").match(path, method)
    except HTTPException:
        return None


class RouteMapTests(SynchronousTestCase):
    """All routes of the server."""

    found = RouteMap(ROUTES)

    @given(st.one_of(filled(), st.tuples(st.sampled_from(METHODS), st.one_of(paths, tails))))
    def test_as_werkzeug(self, request: tuple[str, str]) -> None:
        """For every method and path the endpoint and the values are those that werkzeug finds, or none (WIRE-16)."""
        self.assertEqual(self.found.find_route(*request), by_werkzeug(*request))

    def test_every_rule(self) -> None:
        """Each rule is found, with its values raw."""
        for method, rule, values in RULES:
            path = re.sub("<(?:[a-z]+:)?([a-z_]+)>", r"\1%41", rule)
            endpoint, raw = self.found.find_route(method, path) or ("", {})
            self.assertEqual(endpoint, f"{method} {rule}")
            self.assertEqual(raw, {name: f"{name}%41" for name in re.findall("[:<]([a-z_]+)>", rule)} | dict(values))

    def test_several_fit(self) -> None:
        """Where several rules fit a path, werkzeug says which of them counts."""
        routes = _map({("GET", rule, ()) for rule in ("/a/<x>/c", "/a/<tail:x>", "/a/b/<x>", "/<tail:x>")})
        found, known = RouteMap(routes), routes.bind("svc")
        for path in ("/a/b/c", "/a/x/c", "/a/b/x", "/a/x/y", "/a/x"):
            self.assertEqual(found.find_route("GET", path), known.match(path, "GET"))

    def test_the_usual_is_found_at_once(self) -> None:
        """For the paths that clients ask for werkzeug isn't asked: no more than five functions run."""
        for method, path in (
            ("GET", "/whoami"),
            ("GET", "/health"),
            ("GET", "/secrets/acme/variable/db%2Fpassword"),
            ("POST", "/authn/acme/host%2Fweb/authenticate"),
            ("GET", "/roles/acme/group/all"),
        ):
            called = functions_called(partial(self.found.find_route, method, path))
            self.assertNotIn("match", called, path)
            self.assertLessEqual(len(called), 5, path)

"""Every route that any module of ``svc.web.routes`` declares, for tests of what holds for all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

import svc.web.routes
from svc.web.http.routing import Route, Routes

#: The name that nouns which are served under several have here.
NAME: Final = "authn-jwt"


def declared() -> Iterator[tuple[Routes, Route]]:
    """Every route, each with all of its noun."""
    for info in iter_modules(svc.web.routes.__path__):
        module = import_module(f"svc.web.routes.{info.name}")
        for noun in vars(module).values():
            if isinstance(noun, type) and noun.__module__ == module.__name__:
                for attribute, routes in vars(noun).items():
                    if isinstance(routes, Routes):
                        served = routes if attribute == "routes" else routes.under(NAME)
                        yield from ((served, route) for route in served)


def path_of(route: Route) -> str:
    """A path that the route matches."""
    return re.sub(r"<[^>]*>", "x", str(route.pattern))

"""The document as a whole: all paths, and the parts that they share (OAS-1 to OAS-9)."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Self

import attrs

from svc._version import VERSION
from svc.model.dialect import Dialect
from svc.web.http.refusal_responses import V2
from svc.web.http.routing import ResourceRoutes, Route, Routes
from svc.web.openapi.operations import build_operation, build_response, docstring_text
from svc.web.openapi.refusals import COMMON_ANSWERS
from svc.web.openapi.schemas import SHARED_SCHEMAS, Object

_VARIABLE: Final = re.compile("<(?:[a-z]+:)?([a-z_]+)>")
_CAPITALS: Final = re.compile("(?<=[a-z])(?=[A-Z])")

_DESCRIPTION: Final = """\
This server keeps secrets, and decides who may read them. The document describes the dialect `{dialect}` that it serves.

* A slash in a value of a path is sent as `%2F`.
* Each `GET` answers `HEAD` with the same status and headers, and no body. `OPTIONS` and all other methods that a path
  doesn't list are 404, as unknown paths are.
* A flag of the query, as `members`, is set if it is there, with any value or none. Parameters that no route knows are
  ignored, but in the newer interface. Its media type, `{v2}`, has to be in `Accept`, whose whole text is the
  content type of what it answers.
* A body is read as its route reads it, whatever `Content-Type` says, unless a route has bodies of several types.
* Every answer has `X-Request-Id`, which a request may choose, and every answer to a change `Svc-Version`. An answer with
  `Svc-Stale` comes from memory, and is that many seconds old.
"""

_SCHEMES: Final[Object] = {
    "token": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": 'An access token: `Token token="…"`, with the answer of a login in base64.',
    },
    "basic": {"type": "http", "scheme": "basic", "description": "A login, and its password or API key."},
    "factory": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": 'A token of a host factory: `Token token="…"`.',
    },
    "id_token": {"type": "http", "scheme": "bearer", "description": "An id token of OpenID Connect."},
}

_PARAMETERS: Final[Object] = {
    "SvcAtLeast": {
        "name": "Svc-At-Least",
        "in": "header",
        "description": "one to four values of `Svc-Version`, parted by commas: the answer is at least as new",
        "schema": {"type": "string"},
    }
}


@attrs.frozen
class TaggedRoutes:
    """The routes of one class, under the tag that the document has for it."""

    tag: str
    description: str
    routes: Routes

    @classmethod
    def from_resource(cls, resource: ResourceRoutes) -> Self:
        """Return those of an object that is served; one that is served under several names has the name for its tag."""
        several = hasattr(type(resource), "declared")
        name = next(iter(resource.routes)).pattern.text.split("/")[1] if several else None
        return cls.from_class(type(resource), name, resource.routes)

    @classmethod
    def from_class(cls, resource: type, name: str | None, routes: Routes) -> Self:
        """Return the routes of a class, perhaps under a name."""
        tag = name or _CAPITALS.sub("-", resource.__name__).lower()
        return cls(tag, docstring_text(resource.__doc__).split(". ")[0], routes)


def tag_routes(resources: Iterable[ResourceRoutes]) -> tuple[TaggedRoutes, ...]:
    """Return the resources that have routes for programs: pages of the console are for people."""
    found = (TaggedRoutes.from_resource(resource) for resource in resources)
    return tuple(each for each in found if not all(route.admission.is_console_page for route in each.routes))


@functools.lru_cache(8)
def build_document(resources: tuple[TaggedRoutes, ...], dialect: Dialect) -> Object:
    """Return the document; it depends on the declarations and the dialect alone, and nobody changes it."""
    paths: Object = {}
    for resource in sorted(resources, key=lambda resource: resource.tag):
        for path, method, operation in _build_operations(resource):
            paths.setdefault(path, {})[method] = operation
    shared = _extract_responses(paths)
    about = {resource.tag: resource.description for resource in reversed(resources)}
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "svc",
            "version": VERSION,
            "summary": "A server that holds secrets and decides who may read them.",
            "description": _DESCRIPTION.format(dialect=dialect.name, v2=V2),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "the server that reports it"}],
        "tags": [{"name": tag, "description": about[tag]} for tag in sorted(about)],
        "paths": {path: paths[path] for path in sorted(paths)},
        "components": {
            "schemas": dict(SHARED_SCHEMAS),
            "parameters": _PARAMETERS,
            "responses": {**{name: build_response([answer]) for name, answer in COMMON_ANSWERS.items()}, **shared},
            "securitySchemes": _SCHEMES,
        },
    }


def _extract_responses(paths: Object) -> Object:
    """Replace what several operations answer alike by references, and return it by its names."""
    found: dict[str, list[tuple[Object, str]]] = {}
    for methods in paths.values():
        for operation in methods.values():
            responses = operation["responses"]
            for status in (status for status in responses if status >= "400" and "$ref" not in responses[status]):
                found.setdefault(f"{status} {json.dumps(responses[status])}", []).append((responses, status))
    shared: Object = {}
    for places in found.values():
        if len(places) > 1:
            status = places[0][1]
            number = sum(name.startswith(f"Status{status}") for name in shared)
            name = f"Status{status}" + (f"Or{number}" if number else "")
            shared[name] = places[0][0][status]
            for responses, _ in places:
                responses[status] = {"$ref": f"#/components/responses/{name}"}
    return shared


def iterate_operations(document: Object) -> Iterator[tuple[str, str, Any]]:
    """Yield all operations of a document: path, method in capitals, and the operation."""
    for path, methods in document["paths"].items():
        yield from ((path, method.upper(), operation) for method, operation in methods.items())


def _build_operations(resource: TaggedRoutes) -> Iterator[tuple[str, str, Object]]:
    together: dict[str, list[Route]] = {}
    for route in resource.routes:
        if not route.admission.is_console_page:
            together.setdefault(str(route), []).append(route)
    for same in together.values():
        routes = sorted(same, key=lambda route: route.when is None)
        for suffix, rule in operation_paths(routes[-1]):
            name = operation_name(resource.tag, routes) + suffix
            yield _VARIABLE.sub(r"{\1}", rule), routes[-1].method.lower(), build_operation(name, resource.tag, routes, rule)


def operation_name(tag: str, routes: Sequence[Route]) -> str:
    """Return the name of routes of one method and path: that of the one without a flag, or the last."""
    return f"{tag}_{routes[-1].handler.__name__}".replace("-", "_")


def operation_paths(route: Route) -> Iterator[tuple[str, str]]:
    """Yield the paths of a route, as its pattern has them, each with what its operation is called by beside the name."""
    whole = None
    for rule, _ in route.pattern.werkzeug_rules():
        if "%2" in rule:
            continue
        whole = whole or rule
        left_out = [name for name in _VARIABLE.findall(whole) if name not in _VARIABLE.findall(rule)]
        yield "".join(f"_without_{name}" for name in left_out), rule

"""Every route that any module of ``svc.web.routes`` and ``svc.web.openapi`` declares, and every page of ``svc.web.console``,
for tests of what holds for all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, Final

import svc.web.console
import svc.web.openapi
import svc.web.routes
from svc.model.errors import Refusal
from svc.web.http.declarations import Answer
from svc.web.http.refusal_responses import REFUSALS, V2
from svc.web.http.routing import Route, Routes
from svc.web.http.shapes import ANY, Shape
from svc.web.openapi.refusals import answer_content, v2_forms

#: The name that nouns which are served under several have here.
NAME: Final = "authn-jwt"


def declared() -> Iterator[tuple[Routes, Route]]:
    """Every route, each with all of its noun."""
    yield from _declared_in(svc.web.routes)
    yield from _declared_in(svc.web.openapi)


def declared_pages() -> Iterator[tuple[Routes, Route]]:
    """Every route of the console, likewise."""
    return _declared_in(svc.web.console)


def _declared_in(room: ModuleType) -> Iterator[tuple[Routes, Route]]:
    for info in iter_modules(room.__path__):
        module = import_module(f"{room.__name__}.{info.name}")
        for noun in vars(module).values():
            if isinstance(noun, type) and noun.__module__ == module.__name__:
                for attribute, routes in vars(noun).items():
                    if isinstance(routes, Routes):
                        served = routes if attribute == "routes" else routes.with_prefix(NAME)
                        yield from ((served, route) for route in served)


def path_of(route: Route) -> str:
    """A path that the route matches, with the flag that chooses it."""
    return re.sub(r"<[^>]*>", "x", str(route.pattern)) + ("" if route.when is None else f"?{route.when}")


def undeclared(
    route: Route, refusal: Refusal | None, status: int, headers: Mapping[str, str], body: bytes | None
) -> str | None:
    """What a route does not declare of an answer, ``None`` when it declares all; the ``body`` is ``None`` for a ``HEAD``."""
    if refusal is not None:
        if type(refusal) not in route.possible_refusals:
            return f"the refusal {refusal!r} is not among its errors"
        return None if route.admission.is_console_page else _untold(route, refusal, status, headers, body)
    if status == 500:
        return None
    faults = [_fault(answer, headers, body) for answer in route.answers if answer.status == status]
    if None in faults:
        return None
    return f"the answer {status} is not declared so: {faults or 'the status is not'}; {(body or b'')[:300]!r}"


def _untold(route: Route, refusal: Refusal, status: int, headers: Mapping[str, str], body: bytes | None) -> str | None:
    """What the OpenAPI document does not tell of the answer to a refusal."""
    told = [
        form
        for each in REFUSALS[type(refusal)].answers
        for form in (v2_forms(each) if route.reshape is not None else (each,))
    ]
    given = headers.get("content-type", "").partition(";")[0]
    code = str(json.loads(body)["error"]["code"]) if given == "application/json" and body else None
    for each in told:
        types = list(answer_content(each)) or [""]
        if (
            each.status == status
            and given in types
            and code in {each.code, None}
            and each.has_retry_after == ("retry-after" in headers)
        ):
            return None
    return f"svc/web/http/refusal_responses.py does not tell of {status} {given} {code} for {refusal!r}"


def _fault(answer: Answer, headers: Mapping[str, str], body: bytes | None) -> str | None:
    missing = [name for name in answer.headers if name.lower() not in headers]
    if missing:
        return f"no {missing[0]}"
    if answer.shape is None:
        return "it has a body" if body or "content-type" in headers else None
    given, wanted = headers.get("content-type", ""), answer.shape.media_type
    # The newer interface returns what the client accepts, which has its media type somewhere.
    if wanted not in {given, "*/*"} and not (wanted == V2 and V2 in given):
        return f"it is {given}"
    return None if body is None or answer.shape.kind == "raw" else misfit(answer.shape, json.loads(body))


_TYPES: Final[Mapping[str, Any]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def misfit(shape: Shape, value: Any, place: str = "$") -> str | None:
    """Where and why a value in JSON does not fit a shape; ``None`` when it does."""
    if shape.kind == "any" or (value is None and shape.nullable):
        return None
    if not isinstance(value, _TYPES[shape.kind]) or (isinstance(value, bool) and shape.kind != "boolean"):
        return f"{place} is no {shape.kind}"
    if shape.kind == "array" and shape.items is not None:
        found = (misfit(shape.items, item, f"{place}[{index}]") for index, item in enumerate(value))
        return next(filter(None, found), None)
    if shape.kind == "object":
        return _misfit_object(shape, value, place)
    low, high = shape.minimum is not None and value < shape.minimum, shape.maximum is not None and value > shape.maximum
    return f"{place} is {value!r}" if low or high or (shape.choices and value not in shape.choices) else None


def _misfit_object(shape: Shape, value: Mapping[str, Any], place: str) -> str | None:
    missing = [name for name in shape.members if name not in value and name not in shape.optional]
    more = [name for name in value if name not in shape.members]
    if missing or (more and shape.items is None):
        return f"{place} has {more or 'no'} {missing}"
    found = (misfit(shape.members.get(name, shape.items or ANY), item, f"{place}.{name}") for name, item in value.items())
    return next(filter(None, found), None)

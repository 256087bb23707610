"""The operations of one method and path: the declarations of all routes that the query selects among, in one object.

Note [One operation for several routes]. A path and method have one operation in OpenAPI, and here several routes, of which a
flag in the query chooses one (``?members``). So their parameters and answers stand together, the flags among the parameters;
the description says what each of the routes is.

Note [Examples]. Examples of requests and their answers, one for each route, are in ``examples/``, one file for some classes,
under the name of the route's coroutine (``Secrets.read``). Tests send them, and compare the answers. ``as`` says what proves
the caller, ``path``, ``query`` and ``headers`` the values of parameters, ``type`` and ``body`` what is sent. ``status`` and
``answer`` are the answer; with ``varies`` it isn't the same each time.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from svc.model.errors import CredentialInsufficient, RouteNotFound
from svc.model.names import OTHER_KIND
from svc.web.http.declarations import WHOLE_BODY, Answer, Body, Parameter
from svc.web.http.refusal_responses import RefusalAnswer
from svc.web.http.routing import OPTIONAL, PUBLIC, REQUIRED, Route
from svc.web.openapi.refusals import COMMON_ANSWERS, answer_content, answers_to, v2_forms
from svc.web.openapi.schemas import Object, any_of, bare_media_type, json_schema, with_description

#: Headers that OpenAPI has other places for; a route's text on them is in its description.
_RESERVED_HEADERS: Final = frozenset({"accept", "authorization", "content-type"})

#: Numbers of rules, which docstrings cite.
_RULE_CITATION: Final = re.compile(r"\s*\((?:[A-Z]+-[0-9]+)[^)]*\)")
_VARIABLE: Final = re.compile("<(?:([a-z]+):)?([a-z_]+)>")

_SEGMENTS: Final = {
    "flat": "one segment, which may not have a slash, encoded or not",
    "mapped": "one segment; `authenticate` and `explain` are to be sent encoded, as `%61uthenticate`",
    "tail": "one or more segments: a slash may be sent as %2F, or as it is",
    "optional": "one or more segments: a slash may be sent as %2F, or as it is",
    "raw": "one segment, which is not decoded",
    "": "one segment; a slash in it is sent as %2F",
}

_FLAG: Final[Object] = {"type": "string", "enum": ["", "true"]}
#: The header of what may be tried later.
_RETRY_HEADERS: Final[tuple[str, ...]] = ("Retry-After",)
_TEXT: Final[Object] = {"type": "string"}

#: The folder of examples (Note [Examples]).
EXAMPLES_FOLDER: Final = Path(__file__).with_name("examples")


def docstring_text(text: str | None) -> str:
    """Return a docstring as one paragraph, without the rules that it cites."""
    return " ".join(_RULE_CITATION.sub("", inspect.cleandoc(text or "")).replace("``", "`").split())


def _as_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}" if text else ""


def build_operation(name: str, tag: str, routes: Sequence[Route], rule: str) -> Object:
    """Return the operation of routes of one method and path, of which at most the last has no flag.

    :param rule: the path as the pattern has it, without what is optional and absent.
    """
    usual = routes[-1]
    found: Object = {
        "operationId": name,
        "tags": [tag],
        "summary": docstring_text(usual.handler.__doc__).split(". ")[0].rstrip("."),
        "description": "\n\n".join(_describe_route(route) for route in reversed(routes)),
        "parameters": [*_path_parameters(usual, rule), *_query_parameters(routes), *_header_parameters(routes)],
        "responses": _build_responses(routes),
        "security": _security_requirements(usual),
    }
    if body := _request_body(routes):
        found["requestBody"] = body
    add_examples(found, routes)
    return found


def _describe_route(route: Route) -> str:
    about = [docstring_text(route.handler.__doc__)]
    if route.when is not None:
        about[0] = f"With `{route.when}` in the query: {about[0]}"
    about.append(f"Privileges: {route.privileges}.")
    for parameter in _expand_parameters(route.headers):
        if parameter.name.lower() in _RESERVED_HEADERS:
            about.append(f"`{parameter.name}`: {parameter.description}.")
    if route.body is not None and route.body.fields and route.body.media_types[0] != "application/json":
        about.append("The body is read as a form unless its Content-Type says JSON.")
    if route.writes:
        about.append("A follower refuses it.")
    return " ".join(about)


def _path_parameters(route: Route, rule: str) -> Iterator[Object]:
    for converter, name in _VARIABLE.findall(rule):
        schema: Object = {"type": "string", "minLength": 1}
        if name == "kind" and route.kinds is not None:
            ours: Object = {"type": "string", "enum": sorted(route.kinds)}
            schema = {"anyOf": [ours, {"type": "string", "pattern": f"^{OTHER_KIND}$"}]}
        yield {"name": name, "in": "path", "required": True, "schema": schema, "description": _SEGMENTS[converter]}


def _query_parameters(routes: Sequence[Route]) -> Iterator[Object]:
    named = {parameter.name for route in routes for parameter in _expand_parameters(route.query or ())}
    flags = [route for route in routes if route.when is not None and route.when not in named]
    for route in flags:
        # Where there is one route alone, its flag must be there.
        yield {
            "name": route.when,
            "in": "query",
            "required": len(routes) == 1,
            "allowEmptyValue": True,
            "schema": _FLAG,
            "description": f"With any value or none: {docstring_text(route.handler.__doc__)}",
        }
    yield from _merge_parameters("query", [(route, tuple(_expand_parameters(route.query or ()))) for route in routes])


def _header_parameters(routes: Sequence[Route]) -> Iterator[Object]:
    yield from _merge_parameters("header", [(route, tuple(_expand_parameters(route.headers))) for route in routes])
    if routes[-1].admission not in {PUBLIC, OPTIONAL}:
        yield {"$ref": "#/components/parameters/SvcAtLeast"}


def _merge_parameters(place: str, of_routes: Sequence[tuple[Route, Sequence[Parameter[Any]]]]) -> Iterator[Object]:
    names = dict.fromkeys(parameter.name for _, parameters in of_routes for parameter in parameters)
    for name in names:
        if place == "header" and name.lower() in _RESERVED_HEADERS:
            continue
        same = [(route, parameter) for route, parameters in of_routes for parameter in parameters if parameter.name == name]
        texts = dict.fromkeys(parameter.description for _, parameter in same)
        found: Object = {
            "name": name,
            "in": place,
            "description": "; ".join(texts),
            "schema": any_of(json_schema(parameter.shape) for _, parameter in same),
        }
        if all(parameter.required for _, parameter in same) and len(same) == len(of_routes):
            found["required"] = True
        if "<" in name:
            # Names that follow a pattern are the members of one object, each written as a parameter of its own.
            members = {"type": "object", "additionalProperties": _TEXT, "propertyNames": {"pattern": "@43868/"}}
            found |= {"name": "data", "style": "form", "explode": True, "schema": members}
        if found["schema"].get("type") == "boolean":
            found["allowEmptyValue"] = True
        yield found


def _expand_parameters(parameters: Iterable[Parameter[Any]]) -> Iterator[Parameter[Any]]:
    for parameter in parameters:
        yield from parameter.parts or (parameter,)


def _request_body(routes: Sequence[Route]) -> Object:
    bodies = [route.body for route in routes if route.body is not None and route.body.media_types]
    if not bodies:
        return {}
    content: dict[str, list[Object]] = {}
    for body in bodies:
        for media_type in body.media_types:
            content.setdefault(media_type, []).append(_body_schema(body, media_type))
    return {
        "description": "; ".join(dict.fromkeys(body.description for body in bodies)),
        "required": len(bodies) == len(routes) and all(body.required for body in bodies),
        "content": {media_type: {"schema": any_of(schemas)} for media_type, schemas in content.items()},
    }


def _body_schema(body: Body, media_type: str) -> Object:
    fields = tuple(_expand_parameters(body.fields))
    if not fields:
        return _TEXT if media_type.startswith("text/") else {}
    if fields[0].name == WHOLE_BODY:
        return json_schema(fields[0].shape)
    found: Object = {
        "type": "object",
        "properties": {field.name: with_description(json_schema(field.shape), field.description) for field in fields},
    }
    required = [field.name for field in fields if field.required]
    return found | ({"required": required} if required else {})


def _security_requirements(route: Route) -> list[Object]:
    schemes = [(parameter.scheme, parameter.required) for parameter in _expand_parameters(route.headers) if parameter.scheme]
    if route.admission is REQUIRED:
        return [{"token": []}]
    if not schemes:
        return [{}, {"token": []}] if route.admission is OPTIONAL else []
    found: list[Object] = [{name: []} for name, _ in schemes]
    if CredentialInsufficient in route.errors:
        # It answers a client with a token that a password is needed, so it takes tokens, too.
        found.append({"token": []})
    return found if all(required for _, required in schemes) else [{}, *found]


def _build_responses(routes: Sequence[Route]) -> Object:
    answers: dict[int, list[Answer | RefusalAnswer]] = {}
    for route in routes:
        for answer in route.answers:
            answers.setdefault(answer.status, []).append(answer)
    refused = {refusal for route in routes for refusal in route.possible_refusals}
    if routes[-1].pattern.value_names or routes[-1].when is not None:
        refused.add(RouteNotFound)
    for refusal_answer in answers_to(refused):
        for form in v2_forms(refusal_answer) if routes[-1].reshape is not None else (refusal_answer,):
            answers.setdefault(refusal_answer.status, []).append(form)
    alone = {
        refusal_answer.status: name
        for name, refusal_answer in COMMON_ANSWERS.items()
        if refusal_answer.status not in answers
    }
    for refusal_answer in COMMON_ANSWERS.values():
        answers.setdefault(refusal_answer.status, []).append(refusal_answer)
    return {
        str(status): {"$ref": f"#/components/responses/{alone[status]}"} if status in alone else build_response(found)
        for status, found in sorted(answers.items())
    }


def build_response(answers: Sequence[Answer | RefusalAnswer]) -> Object:
    """Return the response of one status, which may mean several things."""
    content: dict[str, list[Object]] = {}
    headers: dict[str, list[bool]] = {}
    sentences: dict[str, None] = {}
    for answer in answers:
        if isinstance(answer, RefusalAnswer):
            sentences[_as_sentence(f"`{answer.code}`: {answer.description}" if answer.code else answer.description)] = None
            parts, its = answer_content(answer), _RETRY_HEADERS if answer.has_retry_after else ()
        else:
            sentences[_as_sentence(answer.description)] = None
            parts = {} if answer.shape is None else {bare_media_type(answer.shape.media_type): json_schema(answer.shape)}
            its = answer.headers
        for media_type, schema in parts.items():
            content.setdefault(media_type, []).append(schema)
        for header in its:
            headers.setdefault(header, []).append(True)
    if content and any(
        (isinstance(answer, RefusalAnswer) and answer.form == "empty") or _is_empty(answer) for answer in answers
    ):
        sentences["The body may be empty."] = None
    found: Object = {"description": "\n".join(sentences)}
    if headers:
        found["headers"] = {
            name: {"schema": _TEXT, **({"required": True} if len(times) == len(answers) else {})}
            for name, times in headers.items()
        }
    if content:
        found["content"] = {media_type: {"schema": any_of(schemas)} for media_type, schemas in content.items()}
    return found


def _is_empty(answer: Answer | RefusalAnswer) -> bool:
    return isinstance(answer, Answer) and answer.shape is None


@functools.cache
def load_examples() -> Mapping[str, Mapping[str, Any]]:
    """Return all examples by the names of their routes."""
    found: dict[str, Mapping[str, Any]] = {}
    for path in sorted(EXAMPLES_FOLDER.glob("*.json")):
        found |= json.loads(path.read_text(encoding="utf-8"))
    return found


def example_name(route: Route) -> str:
    """Return the name of a route's example."""
    return route.handler.__qualname__


def add_examples(operation: Object, routes: Sequence[Route]) -> None:
    """Put the examples of the routes of an operation into its parameters, its body and its answers."""
    placed = {parameter["name"] for parameter in operation["parameters"] if parameter.get("in") == "path"}
    for route in routes:
        example = load_examples().get(example_name(route))
        # A value that may be left out of the path is there, or isn't, as in the operation's.
        if example is None or not placed <= example.get("path", {}).keys():
            continue
        name = route.handler.__name__
        summary = (route.handler.__doc__ or "").split(" (")[0].split("\n")[0].rstrip(".")
        for parameter in operation["parameters"]:
            given = example.get({"header": "headers"}.get(parameter.get("in"), parameter.get("in")), {})
            if parameter.get("name") in given:
                parameter.setdefault("examples", {})[name] = {"value": given[parameter["name"]]}
        if "body" in example:
            content = operation["requestBody"]["content"]
            media_type = example.get("type", next(iter(content)))
            content[media_type].setdefault("examples", {})[name] = {"summary": summary, "value": example["body"]}
        _add_answer_example(operation["responses"][str(example["status"])], example, name, summary)


def _add_answer_example(response: Object, example: Mapping[str, Any], name: str, summary: str) -> None:
    if "answer" not in example or "content" not in response:
        return
    written = isinstance(example["answer"], str)
    for media_type, content in response["content"].items():
        if media_type.endswith("json") != written:
            content.setdefault("examples", {})[name] = {"summary": summary, "value": example["answer"]}
            return

"""The document as a page: one style, no script, and nothing from elsewhere, which the page's policy forbids besides."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
from jinja2 import Environment, PackageLoader, StrictUndefined

from svc.web.openapi.document import iterate_operations
from svc.web.openapi.schemas import Object

_TICKED: Final = re.compile("`([^`]*)`")


@attrs.frozen
class OperationView:
    """An operation as the page shows it."""

    anchor: str
    method: str
    path: str
    summary: str
    paragraphs: Sequence[str]
    proof: str
    parameters: Sequence[Object]
    body: Object
    answers: Sequence[tuple[str, Object]]


@functools.cache
def _make_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("svc.web.openapi"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"pieces": split_code, "schema": format_schema, "example": format_example}
    return environment


def render_page(document: Object) -> tuple[bytes, str]:
    """Return the page of a document, and the policy of its contents that its answer has to have."""
    environment = _make_environment()
    style = environment.get_template("style.css").render()
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    shown: dict[str, list[OperationView]] = {tag["name"]: [] for tag in document["tags"]}
    for path, method, operation in iterate_operations(document):
        shown[operation["tags"][0]].append(_operation_view(document, path, method, operation))
    about = [line.removeprefix("* ") for line in document["info"]["description"].replace("\n  ", " ").splitlines() if line]
    text = environment.get_template("docs.html").render(
        document=document,
        about=about,
        shown=shown,
        schemas={name: format_schema(schema) for name, schema in document["components"]["schemas"].items()},
    )
    return text.encode("utf-8"), policy


def _operation_view(document: Object, path: str, method: str, operation: Object) -> OperationView:
    ways = [" and ".join(way) or "nothing" for way in operation["security"]]
    return OperationView(
        anchor=operation["operationId"],
        method=method,
        path=path,
        summary=operation["summary"],
        paragraphs=operation["description"].split("\n\n"),
        proof=" or ".join(ways) or "nothing",
        parameters=[_resolve_reference(document, parameter) for parameter in operation["parameters"]],
        body=operation.get("requestBody", {}),
        answers=[(status, _resolve_reference(document, response)) for status, response in operation["responses"].items()],
    )


def _resolve_reference(document: Object, found: Object) -> Object:
    for name in found.get("$ref", "#").split("/")[1:]:
        document = document[name]
    return document if "$ref" in found else found


def split_code(text: str) -> list[tuple[str, bool]]:
    """Return a text in pieces, each with whether it is code, which stands between backticks."""
    return [(piece, bool(number % 2)) for number, piece in enumerate(_TICKED.split(text)) if piece]


def format_schema(schema: Mapping[str, Any]) -> str:
    """Return a schema in few words, as people read it."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " | ".join(map(format_schema, schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(json.dumps(choice) for choice in schema["enum"])
    kinds = schema.get("type", "any")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    return " | ".join(_format_kind(kind, schema) for kind in kinds)


def _format_kind(kind: str, schema: Mapping[str, Any]) -> str:
    if kind == "array" and "items" in schema:
        return f"[{format_schema(schema['items'])}]"
    if kind == "object":
        required = schema.get("required", ())
        members = [
            f"{name}{'' if name in required else '?'}: {format_schema(member)}"
            for name, member in schema.get("properties", {}).items()
        ]
        more = schema.get("additionalProperties")
        members += [f"…: {format_schema(more)}"] if isinstance(more, dict) else []
        return f"{{{', '.join(members)}}}"
    bounds = [f"{sign} {schema[name]}" for name, sign in (("minimum", "≥"), ("maximum", "≤")) if name in schema]
    return f"{kind} {', '.join(bounds)}" if bounds else kind


def format_example(value: object) -> str:
    """Return an example as a client sends or gets it."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)

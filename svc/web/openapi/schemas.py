"""Shapes as JSON Schema, in the version that OpenAPI 3.1 has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from svc.web.http.shapes import Shape

#: One schema, or another object of the document.
Object = dict[str, Any]


def json_schema(shape: Shape) -> Object:
    """Return the schema of the values that have a shape; for anything but JSON it says at most that it is text."""
    if shape.kind == "any":
        return {}
    if shape.kind == "raw":
        return {"type": "string"} if shape.media_type.startswith(("text/", "application/x-yaml")) else {}
    found: Object = {"type": [shape.kind, "null"] if shape.nullable else shape.kind}
    if shape.kind == "array" and shape.items is not None:
        found["items"] = json_schema(shape.items)
    if shape.kind == "object":
        found |= _object_schema(shape)
    if shape.choices:
        found["enum"] = [*shape.choices, *([None] if shape.nullable else [])]
    bounds = {"minimum": shape.minimum, "maximum": shape.maximum}
    return found | {name: bound for name, bound in bounds.items() if bound is not None}


def _object_schema(shape: Shape) -> Object:
    found: Object = {"additionalProperties": False if shape.items is None else json_schema(shape.items)}
    if shape.members:
        found["properties"] = {name: json_schema(member) for name, member in shape.members.items()}
    required = [name for name in shape.members if name not in shape.optional]
    return found | ({"required": required} if required else {})


def any_of(schemas: Iterable[Object]) -> Object:
    """Return the schema of what fits one of these."""
    found: list[Object] = []
    for schema in schemas:
        found += [schema] if schema not in found else []
    if len(found) == 1:
        return found[0]
    return {} if {} in found else {"anyOf": found}


def bare_media_type(name: str) -> str:
    """Return a media type without its parameters."""
    return name.partition(";")[0].strip()


def with_description(schema: Object, description: str) -> Object:
    """Return a schema with a description, if there is one."""
    return {**schema, "description": description} if description else schema


#: The schemas that all routes share.
SHARED_SCHEMAS: Final[Mapping[str, Object]] = {
    "Refusal": {
        "type": "object",
        "description": "A refusal: programs read the code, the message is for people.",
        "required": ["error"],
        "additionalProperties": False,
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message"],
                "additionalProperties": False,
                "properties": {
                    "code": {"type": ["string", "integer"]},
                    "message": {"type": "string"},
                    "target": {"type": "string"},
                    "details": {"type": ["object", "array"]},
                    "innererror": {"type": "object"},
                },
            }
        },
    },
    "NewerRefusal": {
        "type": "object",
        "description": "A refusal in the newer interface, where nothing but its media type is accepted.",
        "required": ["code", "message"],
        "additionalProperties": False,
        "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
    },
}

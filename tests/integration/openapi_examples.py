"""The examples of an OpenAPI document as requests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from svc.web.http.refusal_responses import V2
from svc.web.openapi.document import iterate_operations
from tests.integration.openapi_shots import Shot
from tests.integration.openapi_words import encoded

#: What proves alice by her key in these, and the token of a host factory that examples have: others are sent in their place.
ALICE: Final = "Basic alice"
FACTORY_TOKEN: Final = "1cv3rn2m8t0kq5"


def examples_of(document: Mapping[str, Any]) -> Mapping[str, tuple[Shot, ...]]:
    """Return the requests that each operation has for examples, by its name."""
    return {found["operationId"]: tuple(_shots(*told)) for told in iterate_operations(dict(document)) for found in told[2:]}


def _shots(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[Shot]:
    parameters = [each for each in operation["parameters"] if "in" in each]
    contents = operation.get("requestBody", {}).get("content", {})
    names = {name for place in (*parameters, *contents.values()) for name in place.get("examples", {})}
    for name in sorted(names):
        given = {
            place: {
                each["name"]: each["examples"][name]["value"]
                for each in parameters
                if each["in"] == place and name in each.get("examples", {})
            }
            for place in ("path", "query", "header")
        }
        headers, body = dict(given["header"]), b""
        for media_type, content in contents.items():
            if name in content.get("examples", {}):
                headers["Content-Type"], body = media_type, _body(media_type, content["examples"][name]["value"])
        if any(V2 in response.get("content", {}) for response in operation["responses"].values()):
            headers["Accept"] = V2
        schemes = {scheme for each in operation["security"] for scheme in each}
        if "basic" in schemes:
            headers["Authorization"] = ALICE
        elif "factory" in schemes:
            headers["Authorization"] = f'Token token="{FACTORY_TOKEN}"'
        yield Shot(
            method=method,
            path=path,
            values={each: encoded(value) for each, value in given["path"].items()},
            query=tuple(
                (each, encoded(str(value)))
                for each, values in given["query"].items()
                for value in (values if isinstance(values, list) else [values])
            ),
            headers=tuple(headers.items()),
            body=body,
        )


def _body(media_type: str, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8")
    return (urlencode(value, doseq=True) if "form" in media_type else json.dumps(value)).encode("utf-8")

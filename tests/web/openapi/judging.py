"""A judge of answers: whether an OpenAPI document tells of them."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any, Final

import attrs
from jsonschema import Draft202012Validator

_MAY_BE_EMPTY: Final = "The body may be empty."


@attrs.frozen(eq=False)
class Judge:
    """What one document says."""

    document: Mapping[str, Any]

    def resolved(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an object of the document, or that which it refers to."""
        place: Any = self.document
        for name in found["$ref"].split("/")[1:] if "$ref" in found else ():
            place = place[name]
        return place if "$ref" in found else found

    def untold(self, path: str, method: str, status: int, headers: Mapping[str, str], body: bytes | None) -> str | None:
        """Return what the document doesn't tell of an answer, ``None`` when it tells all.

        ``headers`` have names in lower case; ``body`` is ``None`` for an answer to ``HEAD``.
        """
        operation = self.document["paths"][path]["get" if method == "HEAD" else method.lower()]
        if str(status) not in operation["responses"]:
            return f"the status {status}"
        response = self.resolved(operation["responses"][str(status)])
        missing = [
            name for name, its in response.get("headers", {}).items() if its.get("required") and name.lower() not in headers
        ]
        if missing:
            return f"that {missing[0]} is missing"
        content, given = response.get("content", {}), headers.get("content-type")
        if given is None:
            empty = not content or _MAY_BE_EMPTY in response["description"]
            return None if empty and not body else f"that {status} has no content type"
        media_type = next((each for each in (given.partition(";")[0], given, "*/*") if each in content), None)
        if media_type is None:
            # The newer interface returns the text of Accept, which has its media type somewhere.
            media_type = next((each for each in content if each in given), None)
        if media_type is None:
            return f"that {status} is {given}"
        if body is None or not media_type.endswith("json"):
            return None
        return self.misfit(content[media_type]["schema"], json.loads(body))

    def misfit(self, schema: Mapping[str, Any], value: Any) -> str | None:
        """Return where a value doesn't fit a schema of the document."""
        error = next(iter(self._validator(json.dumps(schema)).iter_errors(value)), None)
        return None if error is None else f"{error.json_path}: {error.message[:500]}"

    @functools.lru_cache(1000)  # noqa: B019 (there are few judges)
    def _validator(self, schema: str) -> Draft202012Validator:
        whole = {**json.loads(schema), "components": self.document["components"]}
        return Draft202012Validator(whole)

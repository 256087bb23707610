"""Examples of requests and their answers, one for each route; tests send them, and hold what is answered against them.

They are in ``examples/``, one file for some nouns, under the name of the route's coroutine (``Secrets.read``). ``as`` says
what proves the caller, ``path``, ``query`` and ``headers`` the values of parameters, ``type`` and ``body`` what is sent.
``status`` and ``answer`` are the answer; with ``varies`` it isn't the same each time.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from svc.web.http.routing import Route
from svc.web.openapi.schemas import Object

FOLDER: Final = Path(__file__).with_name("examples")


@functools.cache
def examples() -> Mapping[str, Mapping[str, Any]]:
    """Return all examples by the names of their routes."""
    found: dict[str, Mapping[str, Any]] = {}
    for path in sorted(FOLDER.glob("*.json")):
        found |= json.loads(path.read_text(encoding="utf-8"))
    return found


def example_name(route: Route) -> str:
    """Return the name of a route's example."""
    return route.handler.__qualname__


def show_examples(operation: Object, routes: Sequence[Route]) -> None:
    """Put the examples of the routes of an operation into its parameters, its body and its answers."""
    placed = {parameter["name"] for parameter in operation["parameters"] if parameter.get("in") == "path"}
    for route in routes:
        example = examples().get(example_name(route))
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
        _show_answer(operation["responses"][str(example["status"])], example, name, summary)


def _show_answer(response: Object, example: Mapping[str, Any], name: str, summary: str) -> None:
    if "answer" not in example or "content" not in response:
        return
    written = isinstance(example["answer"], str)
    for media_type, content in response["content"].items():
        if media_type.endswith("json") != written:
            content.setdefault("examples", {})[name] = {"summary": summary, "value": example["answer"]}
            return

"""Examples are requests that work: each is sent, and answered as it says."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from svc.model.dialect import NATIVE
from svc.web.http.routing import Route
from svc.web.openapi.document import build_document, operation_paths
from svc.web.openapi.operations import EXAMPLES_FOLDER, example_name, load_examples
from svc.web.openapi.served_routes import routes_of_dialect
from tests.web.declared import NAME, declared
from tests.web.openapi.judging import Judge
from tests.web.openapi.scene import SceneCase, target_of
from tests.web.support import Answer

#: Set to have the answers of this run written into the examples; read them before they are kept.
RECORD: Final = "SVC_RECORD_EXAMPLES"

_MEND: Final = (
    "write the request and its status into a file of svc/web/openapi/examples, under this name, as"
    f" svc/web/openapi/operations.py says; with {RECORD}=1 in its environment this test writes the answer"
)


def _routes() -> Iterator[tuple[str, str, Route]]:
    """Every route, with the name of its example and the path that the example has."""
    for _, each in declared():
        name = example_name(each)
        route = _under(each) if name.startswith("SignedAuthn.") else each
        example = load_examples().get(name, {})
        for _, rule in operation_paths(route):
            path = _braced(rule)
            if {piece.partition("}")[0] for piece in path.split("{")[1:]} == example.get("path", {}).keys():
                yield name, path, route


def _braced(rule: str) -> str:
    for word in ("flat:", "tail:", "optional:", "raw:", "mapped:"):
        rule = rule.replace(word, "")
    return rule.replace("<", "{").replace(">", "}")


def _under(route: Route) -> Route:
    return attrs.evolve(route, pattern=type(route.pattern)(route.pattern.text.replace(NAME, "authn-iam")))


class ExampleTests(SceneCase):
    """All examples."""

    def test_every_route(self) -> None:
        """OAS-11: every route has an example, and every example a route."""
        names = {example_name(route) for _, route in declared()}
        self.assertEqual(names - load_examples().keys(), set(), _MEND)
        self.assertEqual(load_examples().keys() - names, set(), "these routes are gone: remove their examples")
        self.assertEqual(names - {name for name, _, _ in _routes()}, set(), "the example has other values than the path")

    def test_sent(self) -> None:
        """OAS-11: each example is answered as it says, or with what fits the same schema where that varies."""
        judge = Judge(build_document(routes_of_dialect(NATIVE), NATIVE))
        recorded: dict[str, Any] = {}
        wrong, used = {}, False
        for name, path, route in list(_routes()):
            if used:
                self._anew()
            # A login by a code, too, works once.
            used = route.method != "GET" or "authenticate" in path
            example = load_examples()[name]
            target = target_of(path, example)
            answer = self.ask(example, route.method, target)
            told = _told(answer)
            recorded[name] = told if answer.status == example["status"] else None
            fault = self._fault(judge, example, path, route, answer, told)
            if fault is None and route.method == "GET":
                if used:
                    self._anew()
                head = self.ask(example, route.method, target, as_method="HEAD")
                fault = None if head.status == answer.status else f"HEAD is {head.status} (WIRE-17)"
            if fault is not None:
                wrong[name] = fault
        if os.environ.get(RECORD):
            _record(recorded)
        faults = "\n".join(f"{name}: {fault[:1000]}" for name, fault in wrong.items())
        self.assertEqual(faults, "", f"\n{faults}\n{_MEND}")

    def _fault(
        self, judge: Judge, example: Mapping[str, Any], path: str, route: Route, answer: Answer, told: Any
    ) -> str | None:
        if answer.status != example["status"]:
            return f"it is {answer.status}: {answer.body[:300]!r}"
        untold = judge.untold(path, route.method, answer.status, answer.headers, answer.body)
        if untold is not None:
            return f"the document does not tell {untold}"
        if told is None:
            return None
        if "answer" not in example:
            return f"it lacks its answer: {told}"
        said = judge.untold(path, route.method, answer.status, answer.headers, _written(example["answer"]))
        if said is not None:
            return f"the document does not tell what it says: {said}"
        return None if example.get("varies") or example["answer"] == told else f"it is answered {json.dumps(told)}"

    def _anew(self) -> None:
        """Have a server to which nothing was sent yet."""
        self.setUp()


def _told(answer: Answer) -> Any:
    """What is told of an answer: JSON, or text, shortened where it is long."""
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if not answer.body:
        return None
    text = answer.body.decode("utf-8")
    return json.loads(text) if kind.endswith("json") else text


def _written(said: Any) -> bytes:
    return said.encode() if isinstance(said, str) else json.dumps(said).encode()


def _record(recorded: Mapping[str, Any]) -> None:
    for path in EXAMPLES_FOLDER.glob("*.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        for name, example in found.items():
            keep = example.get("varies") and "answer" in example
            if recorded.get(name) is not None and not keep:
                example["answer"] = recorded[name]
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

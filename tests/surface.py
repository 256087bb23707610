"""List the public surface: what users, their programs and their dashboards name, and what an upgrade must not take away.

``python -m tests.surface`` writes the list to ``tests/surface.txt``; ``tests/test_surface.py`` fails while the file differs.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

import svc.workload
from svc.cli.main import COMMANDS, main
from svc.cli.options import RenamedOption
from svc.model.dialect import CONJUR, NATIVE
from svc.model.reasons import Reason
from svc.settings.config import OPTIONS
from svc.web.openapi.document import build_document, iterate_operations
from svc.web.openapi.served_routes import routes_of_dialect

ROOT: Final = Path(__file__).resolve().parent.parent
FILE: Final = Path(__file__).with_suffix(".txt")
_STARS: Final[Mapping[Any, str]] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
#: The public packages: the names of the first, and those of the modules of the second.
CLIENT, WORKLOAD = "svc.client", "svc.workload"

_METRIC: Final = re.compile(r"svc_[a-z_]+\Z")


def list_surface() -> str:
    """Return the list: sections with a heading each, and a line for each thing."""
    sections = {
        "HTTP": _http(),
        "Settings": sorted(f"{option.name} {option.variable}{_places(option)}" for option in OPTIONS),
        "Commands": _commands(),
        "Metrics": sorted(set(_metrics())),
        "Log namespaces": sorted(set(_namespaces())),
        "Reasons": sorted(reason.value for reason in Reason),
        **{module: _names(module) for module in _modules()},
    }
    return "\n".join(line for heading, lines in sections.items() for line in (f"# {heading}", *lines, ""))


def _places(option: Any) -> str:
    return ("" if option.on_command_line else " (no option)") + ("" if option.in_file else " (not in a file)")


def _http() -> list[str]:
    """Operations with parameters, members of bodies and of answers; a line says in which dialects it is so."""
    found: dict[str, list[str]] = {}
    for dialect in (NATIVE, CONJUR):
        document = build_document(routes_of_dialect(dialect), dialect)
        for path, method, operation in iterate_operations(document):
            for line in _operation(document, operation):
                found.setdefault(f"{path} {method.upper()}{line}", []).append(dialect.name)
    return sorted(line + ("" if len(dialects) == 2 else f" ({dialects[0]})") for line, dialects in found.items())


def _operation(document: Mapping[str, Any], operation: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    for given in operation.get("parameters", ()):
        parameter = _resolved(document, given)
        yield f" {parameter['in']} {parameter['name']}{' (required)' if parameter.get('required') else ''}"
    yield from (f" body {line}" for line in _content(document, operation.get("requestBody", {})))
    yield f" answers {' '.join(operation['responses'])}"
    for status, given in operation["responses"].items():
        if status < "400":  # refusals have one form
            answer = _resolved(document, given)
            yield from (f" {status} header {name}" for name in answer.get("headers", ()))
            yield from (f" {status} {line}" for line in _content(document, answer))


def _content(document: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    for media_type, content in _resolved(document, given).get("content", {}).items():
        yield media_type
        yield from sorted({f"{media_type} {name}" for name in _members(document, content.get("schema", {}))})


def _members(document: Mapping[str, Any], given: Mapping[str, Any], depth: int = 6) -> Iterator[str]:
    """Return the members of a schema by their ways, such as ``data[].id``."""
    schema = _resolved(document, given)
    if not depth:
        return
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _members(document, part, depth)
    for name, each in schema.get("properties", {}).items():
        yield name
        yield from (f"{name}{'' if way[0] == '[' else '.'}{way}" for way in _members(document, each, depth - 1))
    if isinstance(schema.get("items"), Mapping):
        yield from (f"[]{'' if way[0] == '[' else '.'}{way}" for way in _members(document, schema["items"], depth - 1))


def _resolved(document: Mapping[str, Any], found: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in found:
        target: Any = document
        for step in found["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        found = target
    return found


def _commands() -> list[str]:
    context = click.Context(main)
    return [line for name in sorted(COMMANDS) for line in _command(main.get_command(context, name), f"svc {name}")]


def _command(command: click.Command | None, name: str) -> Iterator[str]:
    assert command is not None, name
    arguments = [parameter.make_metavar(click.Context(command)) for parameter in command.params
                 if isinstance(parameter, click.Argument)]  # fmt: skip
    yield " ".join([name, *arguments])
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            words = "/".join([*parameter.opts, *parameter.secondary_opts, *_former(parameter)])
            variable = parameter.envvar if isinstance(parameter.envvar, str) else ""
            yield f"{name} {words}{f' {variable}' if variable else ''}"
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in sorted(command.list_commands(context)):
            yield from _command(command.get_command(context, each), f"{name} {each}")


def _former(parameter: click.Option) -> list[str]:
    return [parameter.former] if isinstance(parameter, RenamedOption) else []


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "svc").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        yield module, ast.parse(path.read_text(encoding="utf-8"))


def _calls() -> Iterator[tuple[str, ast.Call]]:
    for module, tree in _trees():
        yield from ((module, node) for node in ast.walk(tree) if isinstance(node, ast.Call))


def _metrics() -> Iterator[str]:
    """The first arguments of calls that look like the name of a metric, and whose second one is its text."""
    for _, call in _calls():
        texts = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if len(call.args) > 1 and texts and _METRIC.match(texts[0]) and call.args[0] is not None:
            yield texts[0]


def _namespaces() -> Iterator[str]:
    for module, call in _calls():
        if isinstance(call.func, ast.Name) and call.func.id == "Logger":
            given = [each.value for each in call.args if isinstance(each, ast.Constant)]
            yield str(given[0]) if given else module


def _modules() -> list[str]:
    return [CLIENT, *(f"{WORKLOAD}.{found.name}" for found in pkgutil.iter_modules(svc.workload.__path__))]


def _names(name: str) -> list[str]:
    module = importlib.import_module(name)
    own = [each for each, found in vars(module).items() if getattr(found, "__module__", None) == name and each[0] != "_"]
    return [line for each in sorted(getattr(module, "__all__", own)) for line in _python(each, getattr(module, each))]


def _python(name: str, found: object) -> Iterator[str]:
    if inspect.isclass(found):
        yield f"class {name}{_signature(found)}"
        for each in sorted(each for each in dir(found) if not each.startswith("_")):
            member = inspect.getattr_static(found, each)
            if isinstance(member, classmethod | staticmethod):
                member = member.__func__
            called = _signature(member) if inspect.isfunction(member) else ""
            if hasattr(BaseException, each) or (called and not member.__module__.startswith("svc.")):
                continue
            yield f"{name}.{each}{called}"
    elif callable(found):
        yield f"{name}{_signature(found)}"
    else:
        yield name


def _signature(found: Any) -> str:
    """Return the names of parameters, and which of them have defaults."""
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return ""
    words = []
    for parameter in parameters:
        prefix = _STARS.get(parameter.kind, "")
        words.append(f"{prefix}{parameter.name}{'' if parameter.default is parameter.empty else '='}")
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words and not any(w[:1] == "*" for w in words):
            words.insert(-1, "*")
    return f"({', '.join(word for word in words if word != 'self')})"


if __name__ == "__main__":
    FILE.write_text(list_surface(), encoding="utf-8")

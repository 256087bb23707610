"""The file that says which variables of the environment hold which secrets: YAML, ``VAR: variable-id``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
import yaml

#: The longest file that is read, in bytes.
LIMIT: Final = 1024 * 1024

#: The names of environment variables that every shell can read.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

#: Messages in which the parser quotes a name, which may be a part of an unquoted secret.
_QUOTED_NAME: Final = re.compile(r" (alias|tag handle) .*", re.DOTALL)


#: The tag of an id in files of other programs, which is ignored here.
_VARIABLE: Final = "!var"


def read_mapping(path: Path) -> dict[str, str]:
    """Read a file of ``VAR: variable-id``; names and ids are as written, whatever YAML thinks of ``NO`` or ``12``."""
    try:
        with path.open("rb") as file:
            contents = file.read(LIMIT + 1)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}") from None
    if len(contents) > LIMIT:
        raise click.ClickException(f"{path} is longer than {LIMIT} bytes")
    try:
        return parse_mapping(contents)
    except ValueError as error:
        raise click.ClickException(f"{path}: {error}") from None


def parse_mapping(contents: bytes) -> dict[str, str]:
    """Read the contents of a file of ``VAR: variable-id``.

    :raises ValueError: they say something else.
    """
    try:
        text = contents.decode("utf-8")
    except UnicodeDecodeError as error:
        line = contents.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is not UTF-8") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ValueError(_describe_error(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(node, yaml.MappingNode):
        raise ValueError("it must be a mapping, with a line such as DB_PASSWORD: ci/database/password for each secret")
    found: dict[str, str] = {}
    for key, value in node.value:
        place = f"line {key.start_mark.line + 1}"
        name = _scalar_text(key)
        if name is None or not _NAME.fullmatch(name):
            raise ValueError(f"{place}: the name of a variable has letters, digits and _ alone, such as DB_PASSWORD")
        if name in found:
            raise ValueError(f"{place}: {name} stands there twice")
        if (refusal := _explain_unsupported(value)) is not None:
            raise ValueError(f"{place}: {name} {refusal}")
        variable = _scalar_text(value)
        if not variable:
            raise ValueError(f"{place}: {name} must be followed by the id of a variable, such as ci/database/password")
        found[name] = variable
    return found


def environment_with(values: Mapping[str, bytes], mapping: Mapping[str, str]) -> dict[str, bytes]:
    """Return the variables that a mapping names, with the values of their secrets, which can't hold a NUL byte."""
    for name, variable in mapping.items():
        if b"\0" in values[variable]:
            raise click.ClickException(
                f"the value of {variable} holds a NUL byte, which {name} cannot: let the command run `svc variable get`"
            )
    return {name: values[variable] for name, variable in mapping.items()}


def _explain_unsupported(node: yaml.Node) -> str | None:
    """Return what to say of a value that other programs take, and this file may not have."""
    if isinstance(node, yaml.MappingNode):
        return "has a section beneath it: a file is for one environment, so write one file for each"
    if not isinstance(node, yaml.ScalarNode) or not node.tag.startswith("!") or node.tag == _VARIABLE:
        return None
    if node.tag.startswith(f"{_VARIABLE}:"):
        modifiers = node.tag.split(":")
        if any(modifier.startswith("default") for modifier in modifiers):
            return "has a default: leave that out; a secret that is missing keeps the command from being started"
        files = "; `svc agent` writes secrets to files" if "file" in modifiers else ""
        return f"has !var with something behind it: leave that out{files}"
    return "has a value of its own: only ids of variables stand here, so set it where the command is started"


def _scalar_text(node: yaml.Node) -> str | None:
    """Return a scalar as it is written; ``None`` for anything else, or with a tag of its own other than ``!var``."""
    if not isinstance(node, yaml.ScalarNode) or not (node.tag.startswith("tag:yaml.org,2002:") or node.tag == _VARIABLE):
        return None
    return str(node.value)


def _describe_error(error: yaml.YAMLError) -> str:
    """Return what is wrong with the YAML, without a quotation of more than a character."""
    mark = getattr(error, "problem_mark", None)
    place = "it" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"
    problem = _QUOTED_NAME.sub(r" \1", getattr(error, "problem", None) or "")
    return f"{place} is not YAML" + (f": {problem}" if problem else "")

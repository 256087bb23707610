"""Statements of policy as text: YAML that this program and others read back with the same meaning, and JSON.

The text comes in small pieces, so that a caller can pause between them, which the YAML library's emitters don't allow.
Scalars are plain only when no reader could read them as anything but text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

import attrs


@attrs.frozen(eq=False)
class PolicyBody:
    """The body of a policy; to be read once."""

    statements: Iterator[Tagged]


@attrs.frozen
class Tagged:
    """A record, a statement or a reference: its tag without the ``!``, and its attributes in order."""

    tag: str
    attributes: dict[str, Value]


@attrs.frozen
class Comment:
    """Lines for people, which a document in YAML has and one in JSON can't have."""

    lines: tuple[str, ...]


Value = str | bool | Tagged | tuple[str, ...] | list[Tagged] | dict[str, str] | PolicyBody

#: Texts that need no quotes, except for some words. A text that begins with a digit, a sign or a dot may be a number or a
#: date.
_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.@+-]*(?: [A-Za-z0-9_/.@+]+)*")
_WORDS: Final = frozenset({"false", "n", "no", "null", "off", "on", "true", "y", "yes"})
#: A longer key needs the explicit form: readers search at most 1,024 characters for the colon.
_KEY: Final = 128


def write_yaml(statements: Iterable[Tagged | Comment | None]) -> Iterator[str]:
    """Write a document in YAML, in pieces; ``None`` among the statements is a pause, and an empty piece.

    It begins with the mark of a document, ``---``, as those of published servers do (POL-75).
    """
    yield "---\n"
    empty = True
    for statement in statements:
        if statement is None:
            yield ""
        elif isinstance(statement, Comment):
            yield from (f"# {line}\n" for line in statement.lines)
        else:
            empty = False
            yield "- "
            yield from _write_thing(statement, "  ")
    if empty:
        yield "[]\n"


def write_json(statements: Iterable[Tagged | Comment | None]) -> Iterator[str]:
    """Write a document in JSON, in pieces: every thing is an object with its tag for a name, which holds the attributes."""
    before = "["
    for statement in statements:
        if statement is None:
            yield ""
        elif isinstance(statement, Tagged):
            yield before
            yield from _write_object(statement)
            before = ","
    yield "[]" if before == "[" else "]"


def quote_scalar(text: str) -> str:
    """Return a scalar of YAML, on one line, that every reader reads as this text."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    # The reader of documents counts directives by their spelling (svc/policy/document.py, Note [Tag directives]).
    if text.isprintable() and "%TAG" not in text:
        return "'" + text.replace("'", "''") + "'"
    return (
        '"' + "".join(char if char.isprintable() and char not in '"\\%' else _escape_character(char) for char in text) + '"'
    )


def _escape_character(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _write_thing(thing: Tagged, indent: str) -> Iterator[str]:
    """Write a thing whose line has begun; one that has only an id has the short form."""
    attributes = thing.attributes
    if not attributes:
        yield f"!{thing.tag}\n"
        return
    if len(attributes) == 1 and isinstance(ident := attributes.get("id"), str):
        yield f"!{thing.tag} {quote_scalar(ident)}\n"
        return
    yield f"!{thing.tag}\n"
    for name, value in attributes.items():
        yield from _write_attribute(name, value, indent)


def _write_attribute(name: str, value: Value, indent: str) -> Iterator[str]:
    if isinstance(value, bool):
        yield f"{indent}{name}: {'true' if value else 'false'}\n"
    elif isinstance(value, str):
        yield f"{indent}{name}: {quote_scalar(value)}\n"
    elif isinstance(value, Tagged):
        yield f"{indent}{name}: "
        yield from _write_thing(value, f"{indent}  ")
    elif isinstance(value, tuple):
        yield f"{indent}{name}: [ {', '.join(map(quote_scalar, value))} ]\n"
    elif isinstance(value, dict):
        yield f"{indent}{name}:\n"
        for key, text in ((quote_scalar(key), quote_scalar(text)) for key, text in value.items()):
            pair = f"{key}: {text}" if len(key) <= _KEY else f"? {key}\n{indent}  : {text}"
            yield f"{indent}  {pair}\n"
    else:
        yield f"{indent}{name}:\n"
        for thing in value.statements if isinstance(value, PolicyBody) else value:
            yield f"{indent}  - "
            yield from _write_thing(thing, f"{indent}    ")


def _write_object(thing: Tagged) -> Iterator[str]:
    before = f'{{"{thing.tag}":{{'
    for name, value in thing.attributes.items():
        yield f"{before}{json.dumps(name)}:"
        if isinstance(value, Tagged):
            yield from _write_object(value)
        elif isinstance(value, PolicyBody):
            yield from write_json(value.statements)
        elif isinstance(value, list):
            yield from write_json(value)
        else:
            yield json.dumps(value)
        before = ","
    yield "}}" if before == "," else f"{before}}}}}"

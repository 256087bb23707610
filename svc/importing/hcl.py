"""The syntax of HCL, version 1, in which policies of Vault and OpenBao are written, and the same in JSON.

Note [Version 1]. Parsers of version 2 refuse texts that Vault takes, and lose rights in others: of two attributes of one
name they keep one. So this reads what Vault's own parser reads: attributes and blocks are items in their order, each as
often as it is written, with or without commas and line breaks between them, with names that may be quoted. It reads no more
than that: a text with one fault is refused as a whole, by its line, since half a policy may lack a ``deny``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import attrs

#: How deep blocks and lists may be nested; policies need four.
DEPTH_LIMIT: Final = 32


@attrs.frozen(str=False)
class HclInvalid(Exception):
    """A text isn't HCL; ``why`` begins a sentence in small letters, ``line`` counts from one."""

    line: int
    why: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.why}"


@attrs.frozen
class Number:
    """A number, as its text: nothing here computes with it."""

    text: str


@attrs.frozen
class Block:
    """The contents of a pair of braces, or the whole text: items in their order, of which several may have one name."""

    items: tuple[Item, ...]

    def named(self, name: str) -> Iterator[Item]:
        """Return the items whose first name it is."""
        return (item for item in self.items if item.names[0] == name)


@attrs.frozen
class Item:
    """An attribute, or a block with one name or more; ``line`` is where it begins."""

    names: tuple[str, ...]
    value: Value
    line: int


Value: TypeAlias = "str | Number | bool | tuple[Value, ...] | Block | None"


@attrs.frozen
class _Token:
    kind: str
    text: str
    line: int


def parse_hcl(text: str) -> Block:
    """Return the items of a text; one that begins with a brace is JSON.

    :raises HclInvalid: it is neither.
    """
    return _parse_json(text) if text.lstrip(" \t\r\n").startswith("{") else _Parser(_tokens(text)).parse_document()


_SKIPPED: Final = re.compile(r"[ \t\r\n]+|\#[^\n]*|//[^\n]*|/\*.*?\*/", re.DOTALL)
#: Names begin with a letter or an underscore, and go on with digits, hyphens and dots, too.
_NAME: Final = re.compile(r"[^\W\d][\w.-]*")
_NUMBER: Final = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)")
_HEREDOC: Final = re.compile(r"<<(-?)([^\W_][^\W_]*)\r?\n")
#: A string up to its end or the next ``${``.
_PLAIN: Final = re.compile(r'(?:[^"\\\n$]|\\[^\n]|\$(?!\{))*')
_BRACES: Final = re.compile(r"[{}\n]")
_ESCAPE: Final = re.compile(r'\\(?:([abfnrtv\\"])|([0-7]{3})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|)')
_LETTERS: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"'}
_MARKS: Final = frozenset("{}[],=")


def _tokens(text: str) -> Iterator[_Token]:
    at, line = 0, 1
    while True:
        while skipped := _SKIPPED.match(text, at):
            line += skipped[0].count("\n")
            at = skipped.end()
        if at == len(text):
            yield _Token("end", "the end", line)
            return
        first = text[at]
        if first in _MARKS:
            yield _Token(first, first, line)
            at += 1
        elif first == '"':
            value, end = _read_string(text, at + 1, line)
            yield _Token("string", value, line)
            at = end
        elif matched := _HEREDOC.match(text, at):
            value, end = _read_heredoc(text, matched, line)
            yield _Token("heredoc", value, line)
            line += text.count("\n", at, end)
            at = end
        elif matched := _NAME.match(text, at):
            yield _Token("name", matched[0], line)
            at = matched.end()
        elif matched := _NUMBER.match(text, at):
            yield _Token("number", matched[0], line)
            at = matched.end()
        else:
            raise HclInvalid(line, f"{first!r} begins nothing that could stand there")


def _read_string(text: str, at: int, line: int) -> tuple[str, int]:
    """Return the value of a string, and where what follows it begins; within ``${`` and ``}`` nothing is an escape."""
    parts = []
    while True:
        plain = _PLAIN.match(text, at)
        assert plain is not None
        parts.append(_ESCAPE.sub(lambda escape: _unescape(escape, line), plain[0]))
        at = plain.end()
        if text.startswith('"', at):
            return "".join(parts), at + 1
        if not text.startswith("${", at):
            raise HclInvalid(line, "a string does not end in its line")
        end = _find_interpolation_end(text, at, line)
        parts.append(text[at:end])
        at = end


def _find_interpolation_end(text: str, at: int, line: int) -> int:
    depth = 0
    for mark in _BRACES.finditer(text, at):
        depth += {"{": 1, "}": -1, "\n": 0}[mark[0]]
        if mark[0] == "\n":
            break
        if not depth:
            return mark.end()
    raise HclInvalid(line, "a string does not end in its line")


def _unescape(escape: re.Match[str], line: int) -> str:
    letter, octal, *hexadecimal = escape.groups()
    if letter:
        return _LETTERS[letter]
    code = int(octal, 8) if octal else next((int(digits, 16) for digits in hexadecimal if digits), None)
    if code is None or code > 0x10FFFF or 0xD800 <= code < 0xE000 or (octal and code > 0xFF):
        raise HclInvalid(line, "a string has a backslash before what is no escape")
    return chr(code)


def _read_heredoc(text: str, start: re.Match[str], line: int) -> tuple[str, int]:
    indented, word = start.groups()
    lines: list[str] = []
    at = start.end()
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        row = text[at:end]
        if (row.strip() if indented else row.rstrip("\r")) == word:
            return _join_heredoc(lines, bool(indented)), end
        lines.append(row)
        at = end + 1
    raise HclInvalid(line, f"the text that begins with <<{indented}{word} has no end")


def _join_heredoc(lines: list[str], indented: bool) -> str:
    if indented:
        margins = [len(row) - len(row.lstrip(" \t")) for row in lines if row.strip()]
        lines = [row[min(margins, default=0) :] for row in lines]
    return "".join(f"{row}\n" for row in lines)


class _Parser:
    """Reads tokens, one ahead."""

    def __init__(self, tokens: Iterator[_Token]) -> None:
        self._tokens = tokens
        self._next = next(tokens)

    def parse_document(self) -> Block:
        """Read all of a text."""
        return Block(tuple(self._parse_items("end", 0)))

    def _take(self) -> _Token:
        token = self._next
        if token.kind != "end":
            self._next = next(self._tokens)
        return token

    def _take_kind(self, kind: str, what: str) -> _Token:
        if self._next.kind != kind:
            raise HclInvalid(self._next.line, f"{what}, and not {self._next.text[:40]!r}")
        return self._take()

    def _parse_items(self, end: str, depth: int) -> Iterator[Item]:
        while self._next.kind != end:
            if self._next.kind == "end":
                raise HclInvalid(self._next.line, "the text ends before a block does")
            yield self._parse_item(depth)
            if self._next.kind == ",":
                self._take()

    def _parse_item(self, depth: int) -> Item:
        line, names = self._next.line, []
        while self._next.kind in {"name", "string"}:
            names.append(self._take().text)
        if not names:
            raise HclInvalid(line, f"an attribute or a block begins with its name, and not {self._next.text[:40]!r}")
        if self._next.kind == "=":
            if len(names) > 1:
                raise HclInvalid(line, "a block with several names has no = before its brace")
            self._take()
            return Item((names[0],), self._parse_value(depth), line)
        self._take_kind("{", "after a name comes = or {")
        return Item(tuple(names), self._parse_block(depth), line)

    def _parse_block(self, depth: int) -> Block:
        if depth >= DEPTH_LIMIT:
            raise HclInvalid(self._next.line, f"blocks and lists are nested more than {DEPTH_LIMIT} deep")
        items = tuple(self._parse_items("}", depth + 1))
        self._take()
        return Block(items)

    def _parse_value(self, depth: int) -> Value:
        token = self._take()
        match token.kind:
            case "string" | "heredoc":
                return token.text
            case "number":
                return Number(token.text)
            case "name" if token.text in {"true", "false"}:
                return token.text == "true"
            case "{":
                return self._parse_block(depth)
            case "[":
                return self._parse_list(depth)
        raise HclInvalid(token.line, f"{token.text[:40]!r} is no value")

    def _parse_list(self, depth: int) -> tuple[Value, ...]:
        if depth >= DEPTH_LIMIT:
            raise HclInvalid(self._next.line, f"blocks and lists are nested more than {DEPTH_LIMIT} deep")
        values: list[Value] = []
        while self._next.kind != "]":
            values.append(self._parse_value(depth + 1))
            if self._next.kind != "]":
                self._take_kind(",", "in a list there are commas between values")
        self._take()
        return tuple(values)


def _parse_json(text: str) -> Block:
    try:
        value = json.loads(
            text, object_pairs_hook=_Pairs, parse_float=Number, parse_int=Number, parse_constant=_refuse_constant
        )
    except json.JSONDecodeError as error:
        raise HclInvalid(error.lineno, f"it begins as JSON, and is none: {error.msg}") from None
    except RecursionError:
        raise HclInvalid(1, f"blocks and lists are nested more than {DEPTH_LIMIT} deep") from None
    block = _read_json(value, 0)
    assert isinstance(block, Block)
    return block


class _Pairs(list[tuple[str, Any]]):
    """The members of an object of JSON, of which several may have one name."""


def _refuse_constant(name: str) -> Any:
    raise HclInvalid(1, f"{name} is no JSON")


def _read_json(value: Any, depth: int) -> Value:
    if depth > DEPTH_LIMIT:
        raise HclInvalid(1, f"blocks and lists are nested more than {DEPTH_LIMIT} deep")
    if isinstance(value, _Pairs):
        return Block(tuple(Item((name,), _read_json(member, depth + 1), 1) for name, member in value))
    if isinstance(value, list):
        return tuple(_read_json(each, depth + 1) for each in value)
    assert value is None or isinstance(value, str | bool | Number)
    return value

"""A policy document as YAML: parses text to nodes with their places, one document, within bounds.

Note [Bounded expansion]. An alias stands for all that its anchor contains, so a few lines can stand for more than fits into
a machine's memory. An alias is a pointer here, and never copied. The parser counts the nodes that a reader who follows every
alias meets, and their depth; both are known when the anchored node is complete, so a "billion laughs" bomb is refused at the
alias that triggers it.

Note [Tag directives]. The YAML library compares each ``%TAG`` directive with all before it, so a document of nothing else
costs quadratic time inside a single call. They are counted first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import attrs
import yaml
from yaml.error import MarkedYAMLError, YAMLError
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from yaml.reader import ReaderError

from svc.model.errors import InvalidParameter, PolicyInvalid
from svc.model.limits import RECORD_LIMITS, RecordLimits


@attrs.frozen(kw_only=True)
class Bounds:
    """The limits of a document (LIM-11); more is refused."""

    nesting: int = 64  # levels, aliases followed
    aliases: int = 10_000
    nodes: int = 3_000_000  # scalars, sequences and mappings, aliases followed; people write one per 12 bytes
    records: RecordLimits = RECORD_LIMITS  # what a record may carry, with all that it has already


class Scalar(NamedTuple):
    """A text. ``plain``: unquoted and untagged, so that it may mean a number or another thing that is no text."""

    value: str
    plain: bool
    tag: str | None
    anchor: str | None
    line: int
    column: int


class Sequence(NamedTuple):
    """A list of nodes."""

    items: list[Node]
    tag: str | None
    anchor: str | None
    line: int
    column: int


class Mapping(NamedTuple):
    """Nodes by name; no name stands twice. ``flow``: in braces."""

    pairs: list[tuple[Scalar, Node]]
    tag: str | None
    anchor: str | None
    line: int
    column: int
    flow: bool = False


class Alias(NamedTuple):
    """A place where the node of an anchor stands again."""

    node: Scalar | Sequence | Mapping
    anchor: str
    line: int
    column: int


#: A node that may have a tag, and any node.
TaggedNode = Scalar | Sequence | Mapping
Node = TaggedNode | Alias

#: How the tags of YAML itself begin, which documents write as ``!!``.
STANDARD_TAG: Final = "tag:yaml.org,2002:"

#: libyaml refuses deeper flow collections by itself, before the first event; since 0.2.6 in these words.
_PARSER_LIMIT: Final = 1000
_PARSER_NESTING: Final = "exceeded maximum nesting depth"

#: Makes a source of events out of UTF-8: the library's C parser where it was built, else the one in Python.
FASTEST_LOADER: Final[Callable[[bytes], Any]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TAG_DIRECTIVES: Final = 100

#: The advice for a value that begins with a character that is often meant as text.
_SIGNS: Final = {
    **dict.fromkeys("@`%,]}", "no text"),
    "*": "an alias",
    "&": "an anchor",
    "|": "a block of text",
    ">": "a block of text",
    "{": "a mapping",
    "[": "a list",
}
#: The same for characters that mean something only before a blank, and the parsers' messages about them.
_INDICATORS: Final = {"-": "an item of a list", "?": "a key"}
_MISPLACED: Final = (
    *("block sequence entries", "sequence entries", "mapping keys"),
    *("did not find expected node content", "expected the node content"),
)
#: Where one of these comes next, a tag needs a blank behind it.
_AFTER_TAGS: Final = frozenset('{}[],"')
#: Behind these a value has ended.
_ENDS: Final = frozenset("]}'\"")


@attrs.define
class _Open:
    """A sequence or mapping whose end has not come yet; ``size`` and ``height`` are those of Note [Bounded expansion]."""

    start: SequenceStartEvent | MappingStartEvent
    line: int
    column: int
    children: list[Any] = attrs.field(factory=list)
    size: int = 1
    height: int = 1


class _Anchored(NamedTuple):
    """A complete node that has an anchor."""

    node: Scalar | Sequence | Mapping
    size: int
    height: int


#: Returns a node that has a tag as it is meant; called with whether a scalar isn't quoted.
ReadTag = Callable[[TaggedNode, bool], TaggedNode]


def keep_tag(node: TaggedNode, _: bool) -> TaggedNode:
    """Return the node with its tag as it stands."""
    return node


#: Raises a fault, or keeps it for later.
Refuse = Callable[[PolicyInvalid], None]


def raise_fault(fault: PolicyInvalid) -> None:
    """Raise a fault."""
    raise fault


def parse_nodes(
    text: str | bytes,
    bounds: Bounds,
    parser: Callable[[bytes], Any] = FASTEST_LOADER,
    read_tag: ReadTag = keep_tag,
    refuse: Refuse = raise_fault,
) -> Iterator[Node]:
    """Return the items of the root sequence, each as soon as it is complete.

    ``refuse`` is called with each fault after which the text can be read on.

    :raises InvalidParameter: there is nothing but blanks.
    :raises PolicyInvalid: this is not one YAML document whose root is a sequence, or it exceeds the bounds.
    """
    composition = _Composer(bounds, read_tag, refuse)
    for event in _parse_events(_encode_document(text), parser, min(bounds.nesting, _PARSER_LIMIT)):
        node = composition.take_event(event)
        if node is not None:
            yield node


def follow_alias(node: Node) -> Scalar | Sequence | Mapping:
    """Return the node itself; if an alias is followed, with the alias's place, which messages name."""
    return node.node._replace(line=node.line, column=node.column) if isinstance(node, Alias) else node


def list_items(node: Sequence, written: Node) -> Iterator[Node]:
    """Return the items of a list; if ``written`` is an alias of it, they have the alias's place."""
    for item in node.items:
        if not isinstance(written, Alias):
            yield item
        elif isinstance(item, Sequence):
            yield Alias(item, written.anchor, written.line, written.column)
        else:
            yield item._replace(line=written.line, column=written.column)


def shorten_text(text: str) -> str:
    """Return a text as messages repeat it: shortened."""
    return text if len(text) <= 256 else f"{text[:255]}…"


def show_tag(tag: str) -> str:
    """Return a tag as documents write it: ``!!int``, ``!host``."""
    return shorten_text(f"!!{tag.removeprefix(STANDARD_TAG)}" if tag.startswith(STANDARD_TAG) else tag)


class _Composer:
    def __init__(self, bounds: Bounds, read_tag: ReadTag, refuse: Refuse) -> None:
        self._bounds, self._read_tag, self._refuse = bounds, read_tag, refuse
        self._open: list[_Open] = []
        self._named: set[str] = set()
        self._anchored: dict[str, _Anchored] = {}
        self._documents = self._aliases = self._total = 0

    def take_event(self, event: Any) -> Node | None:
        """Take the next event, and return the item of the root sequence that it completes, if any."""
        kind = type(event)
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        if kind is ScalarEvent:
            value, tag, anchor = event.value, event.tag, event.anchor
            if "\x00" in value or not value.isascii():
                _refuse_text(value, line, column)
            if anchor is not None:
                self._add_anchor(anchor, line, column)
            node: TaggedNode = Scalar(value, tag is None and event.implicit[0], tag, anchor, line, column)
            if tag is not None:
                node = self._read_tag(node, not event.style)
            return self._complete_node(node, anchor, 1, 0)
        if kind is MappingStartEvent or kind is SequenceStartEvent:
            self._open_collection(event, line, column)
        elif kind is MappingEndEvent or kind is SequenceEndEvent:
            ended = self._open.pop()
            closed: TaggedNode = _close_collection(ended, self._refuse)
            if closed.tag is not None:
                closed = self._read_tag(closed, False)
            return self._complete_node(closed, ended.start.anchor, ended.size, ended.height)
        elif kind is AliasEvent:
            return self._add_alias(event.anchor, line, column)
        elif kind is DocumentStartEvent:
            self._documents += 1
            if self._documents > 1:
                message = "Multiple YAML documents encountered. Only a single document is permitted per policy."
                raise PolicyInvalid(message, line, column)
        return None

    def _open_collection(self, event: Any, line: int, column: int) -> None:
        if not self._open and type(event) is MappingStartEvent:
            raise PolicyInvalid("Unexpected mapping", line, column)
        if not self._open and event.tag is not None:
            root = self._read_tag(Sequence([], event.tag, None, line, column), False)
            if root.tag is not None:
                raise PolicyInvalid(f"Unexpected tag '{show_tag(event.tag)}'", line, column)
        if event.anchor is not None:
            self._add_anchor(event.anchor, line, column)
        self._open.append(_Open(event, line, column))
        self._refuse_depth(0, line, column)

    def _add_alias(self, anchor: str, line: int, column: int) -> Node | None:
        known = self._anchored.get(anchor)
        if known is None:
            hint = f"{suggest_quotes('*', 'an alias')}, or define the anchor before, outside of what it stands for"
            raise PolicyInvalid(f"Unknown anchor {shorten_text(anchor)}{hint}", line, column)
        self._aliases += 1
        if self._aliases > self._bounds.aliases:
            raise PolicyInvalid(f"More than {self._bounds.aliases} aliases", line, column)
        self._refuse_depth(known.height, line, column)
        self._total += known.size - 1
        return self._complete_node(Alias(known.node, anchor, line, column), None, known.size, known.height)

    def _complete_node(self, node: Node, anchor: str | None, size: int, height: int) -> Node | None:
        """Append a complete node to its parent; return it when that is the root sequence."""
        self._total += 1
        if self._total > self._bounds.nodes:
            raise PolicyInvalid(f"More than {self._bounds.nodes} elements, aliases followed", node.line, node.column)
        if anchor is not None:
            self._anchored[anchor] = _Anchored(follow_alias(node), size, height)
        if len(self._open) == 1:
            return node
        if self._open:
            parent = self._open[-1]
            parent.children.append(node)
            parent.size += size
            if height >= parent.height:
                parent.height = height + 1
        elif isinstance(node, Scalar) and (node.value or not node.plain):
            raise PolicyInvalid("Unexpected scalar", node.line, node.column)
        return None

    def _add_anchor(self, anchor: str, line: int, column: int) -> None:
        if anchor in self._named:
            raise PolicyInvalid(f"Duplicate anchor {shorten_text(anchor)}", line, column)
        self._named.add(anchor)

    def _refuse_depth(self, height: int, line: int, column: int) -> None:
        if len(self._open) + height > self._bounds.nesting:
            raise PolicyInvalid(f"Nested more than {self._bounds.nesting} levels deep", line, column)


def _encode_document(text: str | bytes) -> bytes:
    try:
        if isinstance(text, bytes):
            decoded, encoded = text.decode("utf-8"), text
        else:
            decoded, encoded = text, text.encode("utf-8")
    except UnicodeDecodeError as error:
        raise PolicyInvalid("The text is not valid UTF-8", *_line_and_column(error.object, error.start)) from None
    except UnicodeEncodeError:
        raise PolicyInvalid("The text is not valid Unicode") from None
    if not decoded.lstrip("\ufeff").strip():
        raise InvalidParameter("policy_text", "is not present", "validation_failed")
    if encoded.count(b"%TAG") > _TAG_DIRECTIVES:  # Note [Tag directives]
        raise PolicyInvalid(f"More than {_TAG_DIRECTIVES} %TAG directives")
    return encoded


def _parse_events(encoded: bytes, parser: Callable[[bytes], Any], nesting: int) -> Iterator[Any]:
    try:
        next_event = parser(encoded).get_event
        while (event := next_event()) is not None:
            yield event
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = " ".join(filter(None, (error.problem, error.context)))
        if message.startswith(_PARSER_NESTING):
            message = f"Nested more than {nesting} levels deep"
        elif _is_tab(error, encoded):
            message = "YAML takes no tab for indentation: use blanks"
        else:
            message += _syntax_hint(error, encoded)
        raise PolicyInvalid(message, mark.line + 1 if mark else None, mark.column + 1 if mark else None) from None
    except ReaderError as error:
        raise PolicyInvalid(f"{error.reason}", *_line_and_column(encoded, error.position)) from None
    except (YAMLError, ValueError, OverflowError) as error:
        # The parser in Python passes "\U00110000" to chr() unchecked.
        raise PolicyInvalid(f"This is not YAML: {error}") from None


def _is_tab(error: MarkedYAMLError, encoded: bytes) -> bool:
    """Return whether a tab stands where blanks are to be; the two parsers have several messages for it."""
    problem, mark = error.problem or "", error.problem_mark
    if problem.startswith("found character that") and mark is not None:
        return encoded.decode("utf-8-sig", "replace")[mark.index : mark.index + 1] == "\t"
    return problem.startswith(("found a tab character", "found character '\\t'"))


def suggest_quotes(sign: str, what: str) -> str:
    """Return the end of a message about a text that should have had quotes."""
    return f". In YAML {sign} begins {what}: put quotes around a text that begins so"


def _syntax_hint(error: MarkedYAMLError, encoded: bytes) -> str:
    """Return a hint to add to the parser's message, if a text without quotes is the likely cause."""
    problem = error.problem or ""
    if problem.startswith("mapping values"):
        return ". Put quotes around a text with a colon before a blank"
    text = encoded.decode("utf-8", "replace")
    if problem.startswith(_MISPLACED) and error.problem_mark is not None:
        sign = text[error.problem_mark.index : error.problem_mark.index + 1]
        if sign in _INDICATORS:
            more = ", or begin the list on a line of its own" if sign == "-" else ""
            return suggest_quotes(f"{sign} before a blank", _INDICATORS[sign]) + more
    for place in (mark.index for mark in (error.context_mark, error.problem_mark) if mark):
        sign = text[place : place + 1]
        if error.context == "while scanning a tag" and sign in _AFTER_TAGS and "'>'" not in problem:
            return f". Put a blank between the tag and '{sign}', or quotes around a text that begins with !"
        if sign in _SIGNS:
            return suggest_quotes(sign, _SIGNS[sign])
        if text[max(0, text.rfind("\n", 0, place)) : place].rstrip()[-1:] in _ENDS:
            return ". Put quotes around the whole of a text that begins with a quote or a bracket"
    return ""


def _line_and_column(encoded: bytes, position: int) -> tuple[int, int]:
    before = encoded[:position]
    last = before[before.rfind(b"\n") + 1 :]
    return before.count(b"\n") + 1, len(last.decode("utf-8", "ignore")) + 1


def _refuse_text(value: str, line: int, column: int) -> None:
    """Refuse what PostgreSQL cannot store as text: an escape may have made it."""
    if "\x00" in value:
        raise PolicyInvalid("A text may not hold a NUL character", line, column)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise PolicyInvalid("A text must be valid Unicode", line, column) from None


def _close_collection(opened: _Open, refuse: Refuse) -> Sequence | Mapping:
    start, children = opened.start, opened.children
    if type(start) is SequenceStartEvent:
        return Sequence(children, start.tag, start.anchor, opened.line, opened.column)
    pairs = []
    seen = set()
    for name, value in zip(children[::2], children[1::2], strict=True):
        key = follow_alias(name)
        if not isinstance(key, Scalar):
            kind = "mapping" if isinstance(key, Mapping) else "sequence"
            hint = suggest_quotes("{", "a mapping") if isinstance(key, Mapping) and key.flow else ""
            raise PolicyInvalid(f"Unexpected {kind}{hint}", name.line, name.column)
        if key.value in seen:
            refuse(PolicyInvalid(f"Duplicate attribute: {shorten_text(key.value)}", name.line, name.column))
            continue
        seen.add(key.value)
        pairs.append((key, value))
    return Mapping(pairs, start.tag, start.anchor, opened.line, opened.column, bool(start.flow_style))

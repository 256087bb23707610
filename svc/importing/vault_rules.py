"""Policies of Vault and OpenBao: their rules, and which of them decides about a path.

Note [One rule decides]. All policies of a token are one set of rules. Rules of one pattern are one rule: their rights add
up, and a ``deny`` wins. For a path a rule without wildcards decides; else the one whose first wildcard comes later; at the
same place one without ``*``, then the one with fewer ``+``, then the longer. No other rule counts. So a longer allow beats a
shorter ``deny``, across policies, too, and rights can't be had by adding up what each policy alone would give.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import attrs

from svc.importing.hcl import Block, HclInvalid, Item, Number, Value, parse_hcl

#: All capabilities; ``subscribe`` and ``recover`` are Vault's alone, ``scan`` is OpenBao's.
CAPABILITIES: Final = frozenset(
    {*("create", "read", "update", "patch", "delete", "list", "sudo", "deny"), *("scan", "subscribe", "recover")}
)

#: The values of the older attribute ``policy``, each with its capabilities.
_SHORTHANDS: Final = {
    "": (),
    "deny": ("deny",),
    "read": ("read", "list"),
    "write": ("create", "read", "update", "delete", "list"),
    "sudo": ("create", "read", "update", "delete", "list", "sudo"),
}

#: Attributes of a rule under which it grants only sometimes.
_CONDITIONS: Final = frozenset(
    {
        *("allowed_parameters", "denied_parameters", "required_parameters", "min_wrapping_ttl", "max_wrapping_ttl"),
        *("mfa_methods", "control_group", "pagination_limit", "list_scan_response_keys_filter_path", "expiration"),
        *("subscribe_event_types", "response_keys_filter_path"),
    }
)


@attrs.frozen
class Rule:
    """The rights to all paths of a pattern; ``conditions`` are the names of the attributes on which they depend."""

    pattern: str
    capabilities: frozenset[str]
    conditions: frozenset[str] = frozenset()

    @property
    def is_deny(self) -> bool:
        """Return whether it denies, whatever else it says."""
        return "deny" in self.capabilities

    def merge(self, other: Rule) -> Rule:
        """Return this and another rule of the same pattern as one."""
        if self.is_deny or other.is_deny:
            return Rule(self.pattern, frozenset({"deny"}))
        return Rule(self.pattern, self.capabilities | other.capabilities, self.conditions | other.conditions)

    def granted(self) -> frozenset[str]:
        """Return the capabilities that it grants whatever is asked: none with a condition."""
        return frozenset() if self.is_deny or self.conditions else self.capabilities


def read_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules of a policy's text, HCL or JSON, in their order.

    :raises HclInvalid: there is one fault in it, or something that this doesn't know, which may be a condition.
    """
    document = parse_hcl(text)
    for item in document.items:
        if item.names[0] not in {"name", "path"}:
            raise HclInvalid(item.line, f"{item.names[0][:40]!r} is unknown beside rules")
    return tuple(_read_rule(*each) for item in document.named("path") for each in _paths_of(item))


def _paths_of(item: Item) -> Iterator[tuple[str, Block, int]]:
    """Return the path of a rule, its block and line; in JSON one item has several paths."""
    if len(item.names) > 1:
        assert isinstance(item.value, Block)
        yield item.names[1], item.value, item.line
        return
    for block in item.value if isinstance(item.value, tuple) else (item.value,):
        if not isinstance(block, Block):
            raise HclInvalid(item.line, "a path has no rule")
        for inner in block.items:
            if len(inner.names) != 1 or not isinstance(inner.value, Block):
                raise HclInvalid(inner.line, "a rule has no path")
            yield inner.names[0], inner.value, inner.line


def _read_rule(pattern: str, block: Block, line: int) -> Rule:
    if "+*" in pattern:
        raise HclInvalid(line, f"{pattern[:100]!r}: '+*' is no wildcard")
    if not _is_balanced(pattern):
        raise HclInvalid(line, f"{pattern[:100]!r}: the braces of a template don't match")
    capabilities: set[str] = set()
    conditions: set[str] = set()
    for item in block.items:
        name = item.names[0]
        if name == "capabilities":
            capabilities.update(_read_capabilities(item))
        elif name == "policy":
            capabilities.update(_read_shorthand(item))
        elif name in _CONDITIONS:
            conditions.update({name} if _is_condition(item.value) else ())
        elif name != "comment":
            raise HclInvalid(item.line, f"{name[:40]!r} is unknown in a rule")
    return Rule(pattern.removeprefix("/"), frozenset(capabilities), frozenset(conditions))


def _read_capabilities(item: Item) -> Iterator[str]:
    if not isinstance(item.value, tuple):
        raise HclInvalid(item.line, "capabilities are a list")
    for each in item.value:
        if not isinstance(each, str) or each not in CAPABILITIES:
            shown = each if isinstance(each, str) else type(each).__name__.lower()
            raise HclInvalid(item.line, f"{shown[:40]!r} is no capability")
        yield each


def _read_shorthand(item: Item) -> tuple[str, ...]:
    if not isinstance(item.value, str) or item.value not in _SHORTHANDS:
        raise HclInvalid(item.line, "policy is one of deny, read, write and sudo")
    return _SHORTHANDS[item.value]


def _is_condition(value: Value) -> bool:
    """Return whether an attribute says something: not where it is empty, or zero."""
    return value not in ("", "0", "0s", (), Block(()), Number("0"), None)


def _is_balanced(pattern: str) -> bool:
    left = _TEMPLATE.sub("", pattern)
    return "{{" not in left and "}}" not in left


_TEMPLATE: Final = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")


def has_template(pattern: str) -> bool:
    """Return whether a pattern depends on who asks."""
    return "{{" in pattern


def resolve_template(pattern: str, find: Callable[[str], str | None]) -> str | None:
    """Return a pattern with its templates replaced by what ``find`` returns of each; ``None`` where one has nothing.

    A wildcard in a value would be one in the pattern, so that such a value is none.
    """
    parts = [find(name) for name in _TEMPLATE.findall(pattern)]
    if any(part is None or not part or set(part) & set("*+") for part in parts):
        return None
    values = iter(parts)
    return _TEMPLATE.sub(lambda _: next(values) or "", pattern)


@attrs.frozen(order=True)
class _Precedence:
    """The order of rules with wildcards that match a path; the greatest decides."""

    first_wildcard: int
    is_exact_length: bool
    fewer_segments: int
    length: int
    pattern: str


class RuleSet:
    """The rules of several policies together (Note [One rule decides])."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.exact: dict[str, Rule] = {}
        self.prefixes: dict[str, Rule] = {}
        self.segments: dict[str, Rule] = {}
        for rule in rules:
            kept, key = self._place_of(rule.pattern)
            kept[key] = kept[key].merge(rule) if key in kept else rule

    def _place_of(self, pattern: str) -> tuple[dict[str, Rule], str]:
        if pattern == "+" or pattern.startswith("+/") or "/+" in pattern:
            return self.segments, pattern
        return (self.prefixes, pattern[:-1]) if pattern.endswith("*") else (self.exact, pattern)

    def decide(self, path: str, *, listing: bool = False) -> Rule | None:
        """Return the rule that decides about a path, or about listing a folder; ``None``: nothing is granted."""
        found = self.exact.get(path)
        if found is None and listing:
            found = self.exact.get(path.removesuffix("/"))
        if found is None:
            found = self._decide_by_wildcard(path)
        if found is None and listing and path.endswith("/"):
            found = self._decide_by_wildcard(path[:-1])
        return found

    def _decide_by_wildcard(self, path: str) -> Rule | None:
        best: tuple[_Precedence, Rule] | None = None
        for end in range(len(path), -1, -1) if self.prefixes else ():
            if (rule := self.prefixes.get(path[:end])) is not None:
                best = _Precedence(end, False, 0, end, path[:end]), rule
                break
        parts = path.split("/")
        for pattern, rule in self.segments.items():
            if not _matches_segments(pattern, parts):
                continue
            bare = pattern.removesuffix("*")
            fewer = -bare.split("/").count("+")
            rank = _Precedence(pattern.index("+"), bare == pattern, fewer, len(bare), bare)
            if best is None or rank > best[0]:
                best = rank, rule
        return None if best is None else best[1]


def _matches_segments(pattern: str, parts: list[str]) -> bool:
    *whole, last = pattern.removesuffix("*").split("/")
    is_prefix = pattern.endswith("*")
    if len(parts) <= len(whole) or (len(parts) > len(whole) + 1 and not is_prefix):
        return False
    if not all(wanted in ("+", part) for wanted, part in zip(whole, parts, strict=False)):
        return False
    part = parts[len(whole)]
    return last in ("+", part) or (is_prefix and part.startswith(last))

"""Rules of policies, and which decides; the tables were compared with OpenBao's own answers."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.importing.hcl import HclInvalid
from svc.importing.vault_rules import Rule, RuleSet, has_template, read_rules, resolve_template


def policy(*rules: tuple[str, str]) -> tuple[Rule, ...]:
    """Return rules of patterns and capabilities."""
    return tuple(Rule(pattern, frozenset(capabilities.split())) for pattern, capabilities in rules)


class ReadingTests(SynchronousTestCase):
    """A policy's text."""

    def test_taken(self) -> None:
        """A text gives the rights that it gives there (MOVE-17)."""
        for text, expected in (
            ('path "x" { capabilities = ["read"] }', "read"),
            ('path "x" { capabilities = ["read"] capabilities = ["list"] }', "list read"),
            ('path "x" { capabilities = ["read"], policy = "read", }', "list read"),
            ('path "x" { policy = "write" }', "create delete list read update"),
            ('path "x" { policy = "sudo" }', "create delete list read sudo update"),
            ('path "x" { policy = "deny" capabilities = ["read"] }', "deny read"),
            ('path "x" { policy = "" }', ""),
            ('path "x" { }', ""),
            ('path "x"\n{\n"capabilities"\n=\n["read"]\n}', "read"),
            ('path x { capabilities = ["read"] }', "read"),
            ('path "/x" { capabilities = ["read"] }', "read"),
            ('name = "a" path "x" { comment = "b" capabilities = ["patch", "scan"] }', "patch scan"),
            ('{"path": {"x": {"capabilities": ["read"]}}}', "read"),
            ('{"path": [{"x": {"capabilities": ["read"]}}]}', "read"),
        ):
            with self.subTest(text):
                self.assertEqual(read_rules(text), policy(("x", expected)))
        both = 'path "x" { capabilities = ["read"] }\npath "x" { capabilities = ["list"] }'
        self.assertEqual(RuleSet(read_rules(both)).decide("x"), Rule("x", frozenset({"read", "list"})))

    def test_refused(self) -> None:
        """A text with anything unknown is refused as a whole, with its line (MOVE-17)."""
        for text, line in (
            ('path "x" {\n capabilities = ["reed"] }', 2),
            ('path "x" { capabilities = ["READ"] }', 1),
            ('path "x" { capabilities = "read" }', 1),
            ('path "x" { capabilities = [1] }', 1),
            ('path "x" { capabilities = [["read"]] }', 1),
            ('path "x" { policy = "foo" }', 1),
            ('path "y" { policy = "read" }\npath "x" {\n when = "monday" }', 3),
            ('path "x" { Capabilities = ["read"] }', 1),
            ('limit = 1\npath "x" { capabilities = ["read"] }', 1),
            ('Path "x" { capabilities = ["read"] }', 1),
            ('path "secret/+*" { capabilities = ["read"] }', 1),
            ('path = "x"', 1),
            ('path { capabilities = ["read"] }', 1),
            ('path "x/{{identity.entity.name" { }', 1),
            ('path "x/}}" { }', 1),
            ('{"path": {"x": {"capabilities": null}}}', 1),
        ):
            with self.subTest(text):
                self.assertEqual(self.assertRaises(HclInvalid, read_rules, text).line, line)

    def test_conditions(self) -> None:
        """A rule with a condition grants nothing without it, also when it is one rule with another (MOVE-21)."""
        for text in (
            'allowed_parameters = {"version" = ["1"]}',
            'allowed_parameters {"version" = ["1"]}',
            "denied_parameters = {version = []}",
            'required_parameters = ["a"]',
            'min_wrapping_ttl = "1s"',
            'max_wrapping_ttl = "1h"',
            'expiration = "2020-01-01T00:00:00Z"',
            "pagination_limit = 5",
            'list_scan_response_keys_filter_path = "x"',
            'mfa_methods = ["a"]',
            'control_group = {ttl = "1h"}',
        ):
            with self.subTest(text):
                rules = read_rules(f'path "x" {{ capabilities = ["read"] {text} }} path "x" {{ capabilities = ["list"] }}')
                decided = RuleSet(rules).decide("x")
                assert decided is not None
                self.assertEqual(decided.granted(), frozenset())
                self.assertEqual(decided.conditions, {text.split()[0]})
        for text in ("allowed_parameters = {}", 'min_wrapping_ttl = "0"', "pagination_limit = 0", "mfa_methods = []"):
            with self.subTest(text):
                self.assertEqual(read_rules(f'path "x" {{ capabilities = ["read"] {text} }}'), policy(("x", "read")))


class DecisionTests(SynchronousTestCase):
    """Which rule decides."""

    def test_table(self) -> None:
        """One rule decides: the one whose first wildcard comes later, at the same place + before * (MOVE-19)."""
        for rules, path, expected in (
            ([("secret/data/*", "read"), ("secret/+/x", "list")], "secret/data/x", "read"),
            ([("secret/data/b/*", "read"), ("secret/data/+/c", "list")], "secret/data/b/c", "read"),
            ([("secret/data/+/c", "read"), ("secret/data/*", "list")], "secret/data/b/c", "read"),
            ([("secret/data/x", "read"), ("secret/data/+", "list")], "secret/data/x", "read"),
            ([("secret/*", "deny"), ("secret/data/*", "read")], "secret/data/x", "read"),
            ([("secret/data/*", "deny"), ("secret/data/*", "read")], "secret/data/x", ""),
            ([("secret/data/*", "read"), ("secret/data/*", "list")], "secret/data/x", "list read"),
            ([("secret/data/*", "read")], "secret/data/", "read"),
            ([("secret/data/*", "read")], "secret/data", ""),
            ([("secret/data*", "read")], "secret/data", "read"),
            ([("+", "read")], "a", "read"),
            ([("a/+", "read")], "a/", "read"),
            ([("a/+/b", "read")], "a//b", "read"),
            ([("a/+/b", "read")], "a/x/y/b", ""),
            ([("a+", "read")], "ab", ""),
            ([("a+", "read")], "a+", "read"),
            ([("a/+b", "read")], "a/xb", ""),
            ([("a*b", "read")], "axb", ""),
            ([("a*b*", "read")], "a*bc", "read"),
            ([("a**", "read")], "ab", ""),
            ([("a/b+c/+/d", "read"), ("a/b+c/*", "list")], "a/b+c/x/d", "list"),
            ([("a/+b/+/c", "read"), ("a/+b/x/*", "list")], "a/+b/x/c", "read"),
            ([("a/+/+", "read"), ("a/+/*", "list")], "a/x/b", "read"),
            ([("a/+/b*", "read"), ("a/+/+", "list")], "a/x/b/c", "read"),
            ([("+/+", "read"), ("+/b", "list")], "a/b", "list"),
            ([], "a", ""),
        ):
            with self.subTest(rules=rules, path=path):
                decided = RuleSet(policy(*rules)).decide(path)
                self.assertEqual(set() if decided is None else decided.granted(), set(expected.split()))

    def test_listing(self) -> None:
        """A folder may be listed by a rule with or without its slash (MOVE-19)."""
        for pattern, path, expected in (
            ("m/a", "m/a/", True),
            ("m/a/", "m/a/", True),
            ("m/+", "m/a/", True),
            ("m/+/", "m/a/", True),
            ("m/+", "m/a/b/", False),
            ("m/b", "m/a/", False),
        ):
            with self.subTest(pattern):
                decided = RuleSet(policy((pattern, "list"))).decide(path, listing=True)
                self.assertEqual(decided is not None, expected)
        self.assertIsNone(RuleSet(policy(("m/a", "list"))).decide("m/a/"))
        both = RuleSet(policy(("m/+", "list"), ("m/a/*", "read")))
        self.assertEqual(both.decide("m/a/", listing=True), Rule("m/a/*", frozenset({"read"})))

    def test_templates(self) -> None:
        """A template stands for the text that it has, is no letter, and absent metadata match nothing (MOVE-22)."""
        values = {"identity.entity.name": "ann", "identity.entity.metadata.team": "*", "identity.entity.id": ""}
        for pattern, expected in (
            ("s/{{identity.entity.name}}/*", "s/ann/*"),
            ("s/{{ identity.entity.name }}-{{identity.entity.name}}", "s/ann-ann"),
            ("s/{{identity.entity.metadata.none}}", None),
            ("s/{{identity.entity.metadata.team}}", None),
            ("s/{{identity.entity.id}}", None),
        ):
            with self.subTest(pattern):
                self.assertTrue(has_template(pattern))
                self.assertEqual(resolve_template(pattern, values.get), expected)


_SEGMENTS = st.sampled_from(["a", "b", "ab", "+", "", "a+", "+b"])
_PATTERNS = st.builds(
    lambda segments, end: "/".join(segments) + end,
    st.lists(_SEGMENTS, min_size=1, max_size=4),
    st.sampled_from(["", "*", "/*"]),
).filter(lambda pattern: "+*" not in pattern)
_PATHS = st.lists(st.sampled_from(["a", "b", "ab", "a+", "+b", "c", ""]), min_size=1, max_size=4).map("/".join)
_RULES = st.builds(
    Rule,
    _PATTERNS,
    st.frozensets(st.sampled_from(["read", "list", "update", "deny"]), max_size=2),
    st.frozensets(st.sampled_from(["expiration"]), max_size=1),
)


def _expression(pattern: str) -> re.Pattern[str]:
    """Return a pattern as a regular expression, by its description and not by the code under test."""
    bare = pattern.removesuffix("*")
    parts = ["[^/]*" if part == "+" else re.escape(part) for part in bare.split("/")]
    return re.compile("/".join(parts) + (".*" if bare != pattern else "") + r"\Z", re.DOTALL)


def _first_wildcard(pattern: str) -> int:
    plus = pattern.find("+") if pattern == "+" or pattern.startswith("+/") or "/+" in pattern else -1
    return plus if plus >= 0 else pattern.find("*", len(pattern) - 1) if pattern.endswith("*") else len(pattern) + 1000


class PropertyTests(SynchronousTestCase):
    """Any rules and paths."""

    @given(st.lists(_RULES, max_size=6), _PATHS)
    def test_rule_decides(self, rules: list[Rule], path: str) -> None:
        """A rule decides that matches, and none that matches has its first wildcard later; its rights are of rules with its
        pattern, a deny among them wins, and none decides only where none matches (MOVE-19).
        """
        decided = RuleSet(rules).decide(path)
        matching = [rule for rule in rules if _expression(rule.pattern).match(path)]
        if decided is None:
            self.assertEqual(matching, [])
            return
        self.assertTrue(_expression(decided.pattern).match(path))
        self.assertEqual(_first_wildcard(decided.pattern), max(_first_wildcard(rule.pattern) for rule in matching))
        same = [rule for rule in rules if rule.pattern == decided.pattern]
        denied = any("deny" in rule.capabilities for rule in same) or any(rule.conditions for rule in same)
        expected = set() if denied else {each for rule in same for each in rule.capabilities}
        self.assertEqual(decided.granted(), expected)

    @given(st.lists(_RULES, max_size=6), st.randoms(), _PATHS)
    def test_order(self, rules: list[Rule], random: object, path: str) -> None:
        """The order of policies and rules decides nothing (MOVE-19)."""
        shuffled = list(rules)
        random.shuffle(shuffled)  # type: ignore[attr-defined]
        self.assertEqual(RuleSet(shuffled).decide(path), RuleSet(rules).decide(path))

    @given(st.lists(_RULES, max_size=5), _RULES, _PATHS)
    def test_another_rule(self, rules: list[Rule], more: Rule, path: str) -> None:
        """One more rule changes what is decided only where it matches (MOVE-19)."""
        before, after = RuleSet(rules).decide(path), RuleSet([*rules, more]).decide(path)
        if not _expression(more.pattern).match(path):
            self.assertEqual(after, before)
        elif after is not None and before is not None and after.pattern != before.pattern:
            self.assertEqual(after.pattern, more.pattern)

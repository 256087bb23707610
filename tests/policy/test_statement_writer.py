"""Statements as text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.policy.document import FASTEST_LOADER, Alias, Bounds, Mapping, Scalar, Sequence, parse_nodes
from svc.policy.statement_writer import PolicyBody, Tagged, Value, quote_scalar, write_json, write_yaml
from tests.strategies import IDENTIFIERS

_TEXTS = st.one_of(
    IDENTIFIERS, st.sampled_from(["", " ", "yes", "No", "~", "1.0", "0x1", "12:30", "- a", "a: b", "%TAG", "é"])
)

_SHORT = st.builds(lambda tag, text: Tagged(tag, {"id": text} if text else {}), st.sampled_from(["user", "host"]), _TEXTS)
_LONG = st.builds(
    lambda ident, owner, annotations, flow, admin, members: Tagged(
        "policy",
        {
            "id": ident,
            **({"owner": owner} if owner else {}),
            **({"annotations": annotations} if annotations else {}),
            "privileges": tuple(flow),
            "admin": admin,
            **({"members": members} if members else {}),
        },
    ),
    _TEXTS,
    st.none() | _SHORT,
    st.dictionaries(st.one_of(_TEXTS, st.just("k" * 1024)), _TEXTS, max_size=3),
    st.lists(_TEXTS, min_size=1, max_size=3),
    st.booleans(),
    st.lists(_SHORT, max_size=3),
)
_THINGS = st.recursive(
    st.one_of(_SHORT, _LONG),
    lambda inner: st.builds(
        lambda body: Tagged("policy", {"id": "p", "members": body}), st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


def meant(node: Any) -> Any:
    """What a node of YAML says: tags with attributes, lists, and texts, of which none may mean anything else."""
    assert not isinstance(node, Alias)
    if isinstance(node, Sequence):
        return [meant(item) for item in node.items]
    if isinstance(node, Mapping):
        pairs = {key.value: meant(value) for key, value in node.pairs}
        return pairs if node.tag is None else {node.tag[1:]: pairs}
    assert isinstance(node, Scalar)
    if node.tag is not None:
        return {node.tag[1:]: {"id": node.value} if node.value else {}}
    return node.value


def said(value: Value) -> Any:
    """What a value is meant to say, as :func:`meant` tells it."""
    if isinstance(value, Tagged):
        return {value.tag: {name: said(of) for name, of in value.attributes.items()}}
    if isinstance(value, tuple | list):
        return [said(item) for item in value]
    return ("true" if value else "false") if isinstance(value, bool) else value


class YamlTests(SynchronousTestCase):
    """YAML."""

    @given(st.lists(_THINGS, max_size=4))
    def test_read_back(self, things: list[Tagged]) -> None:
        """What is written is read back as it was meant, by the parser in C and by the one in Python."""
        text = "".join(write_yaml(things))
        for parser in (FASTEST_LOADER, yaml.SafeLoader):
            read = [meant(node) for node in parse_nodes(text, Bounds(), parser)]
            self.assertEqual(read, [said(thing) for thing in things])

    @given(_TEXTS)
    def test_texts(self, text: str) -> None:
        """A text is a text to other readers of YAML, too, plain or quoted, in a list of texts and as a key."""
        self.assertEqual(yaml.safe_load(f"a: {quote_scalar(text)}"), {"a": text})
        self.assertEqual(yaml.safe_load(f"- [ {quote_scalar(text)}, {quote_scalar(text)} ]"), [[text, text]])
        self.assertEqual(yaml.safe_load(f"? {quote_scalar(text)}\n: b"), {text: "b"})
        self.assertNotIn("\n", quote_scalar(text))

    def test_form(self) -> None:
        """A document begins with its mark; a thing that has but an id has the short form; privileges are in one line,
        members below each other (POL-75, POL-78).
        """
        document = [
            Tagged("user", {"id": "alice"}),
            Tagged(
                "policy",
                {
                    "id": "dev",
                    "owner": Tagged("user", {"id": "/alice"}),
                    "annotations": {"note": "it's", "n": "1"},
                    "body": PolicyBody(
                        iter(
                            [
                                Tagged("layer", {}),
                                Tagged("grant", {"role": Tagged("layer", {}), "members": [Tagged("user", {"id": "/bob"})]}),
                                Tagged("permit", {"privileges": ("read", "no"), "admin": True}),
                            ]
                        )
                    ),
                },
            ),
        ]
        expected = """\
---
- !user alice
- !policy
  id: dev
  owner: !user /alice
  annotations:
    note: 'it''s'
    'n': '1'
  body:
    - !layer
    - !grant
      role: !layer
      members:
        - !user /bob
    - !permit
      privileges: [ read, 'no' ]
      admin: true
"""
        self.assertEqual("".join(write_yaml(document)), expected)

    def test_nothing(self) -> None:
        """A document of nothing is an empty list."""
        self.assertEqual("".join(write_yaml([])), "---\n[]\n")
        self.assertEqual("".join(write_json([])), "[]")

    def test_pauses(self) -> None:
        """A pause among the statements is an empty piece, and leaves no trace in the text."""
        things: list[Tagged | None] = [None, Tagged("user", {"id": "a"}), None]
        for write, text in ((write_yaml, "---\n- !user a\n"), (write_json, '[{"user":{"id":"a"}}]')):
            pieces = list(write(things))
            self.assertEqual(pieces.count(""), 2)
            self.assertEqual("".join(pieces), text)


class JsonTests(SynchronousTestCase):
    """JSON."""

    @given(st.lists(_THINGS, max_size=4))
    def test_read_back(self, things: list[Tagged]) -> None:
        """Every thing is an object with its tag for a name, which holds the attributes; the text is ASCII (POL-79)."""
        text = "".join(write_json(things))
        self.assertTrue(text.isascii())
        self.assertEqual(json.loads(text), [_json(thing) for thing in things])

    def test_bodies(self) -> None:
        """What stands in a body is a list in the object of its policy (POL-79)."""

        def body() -> Iterator[Tagged]:
            yield Tagged("layer", {})
            yield Tagged("host", {"id": "<h>"})

        text = "".join(write_json([Tagged("policy", {"id": "p", "body": PolicyBody(body())})]))
        self.assertEqual(json.loads(text), [{"policy": {"id": "p", "body": [{"layer": {}}, {"host": {"id": "<h>"}}]}}])


def _json(value: Value) -> Any:
    if isinstance(value, Tagged):
        return {value.tag: {name: _json(of) for name, of in value.attributes.items()}}
    return [_json(item) for item in value] if isinstance(value, tuple | list) else value

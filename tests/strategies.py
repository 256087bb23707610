"""Hypothesis strategies for the values of the domain: names, policy documents, and what only looks like one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from svc.model.names import RESOURCE_KINDS, ROLE_KINDS, ResourceName, RoleName
from svc.model.policy_loads import LoadMode
from tests.sshkeys import ONE, TWO

#: Names of accounts.
ACCOUNTS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"], exclude_characters=":/"), min_size=1, max_size=60)

#: Identifiers of every sort: slashes, colons, quotes, line ends, scripts of the world.
IDENTIFIERS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=250)

ROLE_NAMES = st.builds(RoleName, ACCOUNTS, st.sampled_from(sorted(ROLE_KINDS)), IDENTIFIERS)
RESOURCE_NAMES = st.builds(ResourceName, ACCOUNTS, st.sampled_from(sorted(RESOURCE_KINDS)), IDENTIFIERS)

LOAD_MODES = st.sampled_from(LoadMode)

# What documents speak of is drawn from short lists: so that they speak of the same things, and in one draw each.

_ELEMENTS = ["a", "b", "a-b", "b@a", "root", "admin"]
_PATHS = [*_ELEMENTS, *(f"{first}/{second}" for first in _ELEMENTS for second in _ELEMENTS), "a/b/a", "a/b/a-b/b"]
_ROLES = ["user", "host", "group", "layer", "policy"]
_THINGS = [*_ROLES, "variable", "webservice"]
_WORDS = ["read", "execute", "update", "kind", "x y", "yes", "1.10"]

#: Paths of one to four elements.
PATHS = st.sampled_from(_PATHS)


def _references(kinds: Sequence[str]) -> st.SearchStrategy[str]:
    return st.sampled_from([f"!{kind} '{slash}{path}'" for path in _PATHS for kind in kinds for slash in ("", "/")])


_ROLE = _references(_ROLES)
_RESOURCE = _references(_THINGS)
_MEMBER = st.one_of(_ROLE, _ROLE.map("{{role: {}, admin: true}}".format))
_RANGES = st.sampled_from(["[]", "10.0.0.0/8", "[10.0.0.0/8, '::1']"])
_KEYS = st.sampled_from(["[]", f"{ONE} one", f"[{ONE} one, {TWO} two]"])
_LAYERS = st.sampled_from(["!layer a", "[!layer a, !layer '/b']", "{kind: layer, id: b}"])
_ANNOTATIONS = st.dictionaries(st.sampled_from(_WORDS), st.sampled_from([*_WORDS, ""]), max_size=2).map(json.dumps)


def _written(tag: str, **attributes: str) -> str:
    return f"!{tag} {{{', '.join(f'{name}: {value}' for name, value in attributes.items())}}}"


def _listed(items: Sequence[str]) -> str:
    return f"[{', '.join(items)}]"


@st.composite
def _records(draw: st.DrawFn, depth: int) -> str:
    tag = draw(st.sampled_from([*_THINGS, "host-factory"]))
    attributes = {"id": f"'{draw(PATHS)}'", "annotations": draw(_ANNOTATIONS)}
    if tag in ("user", "host"):
        attributes["restricted_to"] = draw(_RANGES)
    if tag == "user":
        attributes["public_keys"] = draw(_KEYS)
    if tag == "host-factory":
        attributes["layers"] = draw(_LAYERS)
    if draw(st.booleans()):
        attributes["owner"] = draw(_ROLE)
    if tag == "policy" and depth:
        attributes["body"] = _listed(draw(_statements(depth - 1)))
    return _written(tag, **attributes)


def _statements(depth: int) -> st.SearchStrategy[list[str]]:
    grants = st.builds(
        lambda roles, members: _written("grant", roles=_listed(roles), members=_listed(members)),
        st.lists(_ROLE, max_size=2),
        st.lists(_MEMBER, max_size=2),
    )
    permits = st.builds(
        lambda role, privilege, resources: _written(
            "permit", role=role, privilege=json.dumps(privilege), resources=_listed(resources)
        ),
        _ROLE,
        st.sampled_from(_WORDS),
        st.lists(_RESOURCE, max_size=2),
    )
    low = st.builds(lambda kind, path: f"!role {{kind: {kind}, id: {path}}}", st.sampled_from(_ROLES), PATHS)
    return st.lists(st.one_of(_records(depth), grants, permits, low), max_size=4)


#: Policy documents as lists of statements, each in one line. They may declare a thing twice, or own in circles.
STATEMENTS = _statements(1)


def document(statements: Sequence[str]) -> str:
    """The text of a document of these statements."""
    return "".join(f"- {statement}\n" for statement in statements) or "[]"


POLICIES = STATEMENTS.map(document)

#: Statements that take something away, each in one line.
DELETIONS = st.lists(
    st.one_of(
        st.builds("!revoke {{role: {}, members: [{}]}}".format, _ROLE, _MEMBER),
        st.builds("!deny {{role: {}, privileges: [read, update], resource: {}}}".format, _ROLE, _RESOURCE),
        st.builds("!delete {{record: {}}}".format, _RESOURCE),
    ),
    max_size=4,
)

#: Policy documents that also take things away.
EDITS = st.builds(lambda made, taken: document([*made, *taken]), STATEMENTS, DELETIONS)

#: Texts made of what means something to YAML.
_MORSELS = [*"-!&*[]{}:,#|>%@'\"\\?~ \n\tab0.\x00é", "!user ", "- ", "!grant\n", "&a ", "*a", "id: "]
SOUP = st.lists(st.sampled_from(_MORSELS), max_size=60).map("".join)


@st.composite
def mangled(draw: st.DrawFn) -> str:
    """A policy document in which a stretch was replaced."""
    text = draw(EDITS)
    start = draw(st.integers(0, len(text)))
    return text[:start] + draw(SOUP) + text[start + draw(st.integers(0, 20)) :]


def trees() -> st.SearchStrategy[Any]:
    """Anything that JSON can say, and so YAML: lists, mappings with the language's words, scalars."""
    words = st.sampled_from(
        ["id", "kind", "owner", "role", "member", "members", "annotations", "body", "resource", "privilege", "record", "x"]
    )
    scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
    return st.recursive(
        scalars,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(words, inner, max_size=4)),
        max_leaves=20,
    )

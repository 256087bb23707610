"""The types of record and statement, and their attributes; others are refused with ``PolicyInvalid`` (POL-10, POL-17)."""

from __future__ import annotations

import re
from typing import Final

import attrs

from svc.model.errors import PolicyInvalid
from svc.policy.document import (
    STANDARD_TAG,
    Mapping,
    Node,
    Refuse,
    Scalar,
    Sequence,
    raise_fault,
    shorten_text,
    show_tag,
)


@attrs.frozen
class NodeType:
    """The type of a tag: the kind of the records that it declares, if it has one, and attributes by their singular names."""

    name: str
    kind: str | None
    attributes: frozenset[str]


_OF_RECORDS: Final = frozenset({"id", "account", "owner", "annotations"})


def _record_type(name: str, *more: str, kind: str | None = None) -> NodeType:
    return NodeType(name, kind or name.lower(), _OF_RECORDS.union(more))


# The low-level types, whose kind is an attribute.
ROLE: Final = NodeType("Role", None, _OF_RECORDS | {"kind"})
RESOURCE: Final = NodeType("Resource", None, _OF_RECORDS | {"kind"})

LAYER: Final = _record_type("Layer")

GRANT: Final = NodeType("Grant", None, frozenset({"role", "member"}))
REVOKE: Final = NodeType("Revoke", None, GRANT.attributes)
PERMIT: Final = NodeType("Permit", None, frozenset({"role", "privilege", "resource"}))
DENY: Final = NodeType("Deny", None, PERMIT.attributes)
DELETE: Final = NodeType("Delete", None, frozenset({"record"}))
MEMBER: Final = NodeType("Member", None, frozenset({"role", "admin"}))

#: A role that very old servers kept beside each layer. It can be named, but doesn't exist.
AUTOMATIC_ROLE: Final = NodeType("AutomaticRole", None, frozenset({"record", "role_name"}))

_HOST_FACTORY: Final = _record_type("HostFactory", "layer", "role", kind="host_factory")

_TYPES: Final = {
    "!policy": _record_type("Policy", "body"),
    "!user": _record_type("User", "uidnumber", "public_key", "restricted_to"),
    "!host": _record_type("Host", "restricted_to"),
    "!group": _record_type("Group", "gidnumber"),
    "!layer": LAYER,
    "!variable": _record_type("Variable", "kind", "mime_type"),
    "!webservice": _record_type("Webservice"),
    "!host-factory": _HOST_FACTORY,
    "!host_factory": _HOST_FACTORY,
    "!role": ROLE,
    "!resource": RESOURCE,
    "!grant": GRANT,
    "!revoke": REVOKE,
    "!permit": PERMIT,
    "!deny": DENY,
    "!delete": DELETE,
    "!member": MEMBER,
    "!automatic-role": AUTOMATIC_ROLE,
    "!managed-role": AUTOMATIC_ROLE,
}
_UNDERSCORED: Final = {tag.replace("-", "_"): tag for tag in _TYPES}
#: Where a word begins in capitals; no character is consumed, so the time is linear in the length of a tag (POL-97).
_WORD_START: Final = re.compile("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SINGULARS: Final = {
    "layers": "layer",
    "members": "member",
    "privileges": "privilege",
    "public_keys": "public_key",
    "records": "record",
    "resources": "resource",
    "roles": "role",
}

#: Every attribute of the language. An annotation of that name is likely to be a misplaced attribute (POL-36).
ATTRIBUTES: Final = frozenset(_SINGULARS).union(*(known.attributes for known in _TYPES.values()))

#: The hint in a message about the name ``<<``, which merges another mapping in YAML 1.1.
MERGED: Final = ". Merge keys are not read: write out what they would merge"

#: The tags that make a scalar a text and nothing else, and no tag.
TEXT_TAGS: Final = frozenset({None, "!", f"{STANDARD_TAG}str"})


def type_of(node: Scalar | Sequence | Mapping) -> NodeType | None:
    """Return the type that the tag of a node stands for, ``None`` when it has none, or one that makes a scalar a text."""
    tag = node.tag
    if tag is None:
        return None
    known = _TYPES.get(tag)
    if known is None and not (tag in TEXT_TAGS and isinstance(node, Scalar)):
        raise PolicyInvalid(f"Unrecognized data type '{show_tag(tag)}'", node.line, node.column)
    return known


def normalize_tag(tag: str) -> str:
    """Return the tag of the type that this one names for the installed base: ``!HostFactory`` and ``!Host_Factory``, too."""
    if tag in _TYPES:
        return tag
    return _UNDERSCORED.get(_WORD_START.sub("_", tag).replace("-", "_").lower(), tag)


def refuse_type(node: Scalar | Sequence | Mapping) -> None:
    """Refuse a tag on a list, or on a name."""
    if type_of(node) is not None:
        raise PolicyInvalid(f"Unexpected tag '{show_tag(node.tag or '')}'", node.line, node.column)


def read_attributes(
    node: Scalar | Mapping, known: NodeType, *, lenient: bool = False, refuse: Refuse = raise_fault
) -> dict[str, Node]:
    """Return the attributes of a node of a known type, under their singular names; a scalar has only its ``id``.

    ``lenient``: if an attribute is given in singular and plural, the last one counts. ``refuse`` is called with each fault;
    unless it raises, the attribute is left out.
    """
    if isinstance(node, Scalar):
        if "id" not in known.attributes:
            raise _unknown_attribute("id", known, node)
        return {"id": node}
    values: dict[str, Node] = {}
    for key, value in node.pairs:
        refuse_type(key)
        name = _SINGULARS.get(key.value, key.value)
        if name not in known.attributes:
            refuse(_unknown_attribute(key.value, known, key))
            continue
        if name in values and not lenient:
            refuse(PolicyInvalid(f"Duplicate attribute: {key.value}", key.line, key.column))
            continue
        values[name] = value
    return values


def read_required(node: Scalar | Mapping, known: NodeType, *names: str, lenient: bool = False) -> dict[str, Node]:
    """Return the attributes of a node, among which must be ``names``."""
    values = read_attributes(node, known, lenient=lenient)
    for name in names:
        if name not in values:
            raise missing_attribute(name, known, node)
    return values


def missing_attribute(name: str, known: NodeType, node: Scalar | Mapping) -> PolicyInvalid:
    """Return the refusal of a node without an attribute that it must have."""
    return PolicyInvalid(f"Attribute '{name}' is missing on type {known.name}", node.line, node.column)


def _unknown_attribute(name: str, known: NodeType, node: Scalar | Mapping) -> PolicyInvalid:
    hint = MERGED if name == "<<" else ""
    return PolicyInvalid(f"No such attribute '{shorten_text(name)}' on type {known.name}{hint}", node.line, node.column)

"""The policy language: nodes of YAML to statements (POL-1 to 20); unquoted scalars may be numbers or null (POL-7 to 9).

Note [Aliases]. An alias where a thing is referred to (owner, role, member, resource) means the thing at the anchor, in the
scope of the anchor, as in the installed base: ``*app`` is the same host in every policy. An alias where a statement is
expected means the text once more, in the scope of the alias: one body may serve two policies.

Note [Low-level records]. ``!role`` and ``!resource`` with a kind are other spellings of the tag of that kind; where a
reference is expected the tag may be left out. In the vocabulary of the installed base they may make up kinds: a thing with a
made-up kind is a record with a role, whichever of the two declares it. There a role has only its name, and both may be in
one document: together they declare one record here.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from svc.model.credentials import is_public_key, normalize_key_line
from svc.model.errors import PolicyInvalid
from svc.model.names import RESOURCE_KINDS, ROLE_KINDS, is_kind, is_other_kind, is_role_kind
from svc.policy.document import (
    STANDARD_TAG,
    Alias,
    Bounds,
    Mapping,
    Node,
    Scalar,
    Sequence,
    TaggedNode,
    follow_alias,
    keep_tag,
    list_items,
    parse_nodes,
    shorten_text,
    suggest_quotes,
)
from svc.policy.faults import FaultCollector
from svc.policy.ids import is_padded
from svc.policy.ranges import normalize_cidr
from svc.policy.statements import (
    Annotation,
    Delete,
    Deny,
    Grant,
    Member,
    Permit,
    PublicKey,
    Record,
    Reference,
    Revoke,
    Scope,
    Statement,
)
from svc.policy.vocabulary import (
    AUTOMATIC_ROLE,
    DELETE,
    DENY,
    GRANT,
    LAYER,
    MEMBER,
    MERGED,
    PERMIT,
    RESOURCE,
    REVOKE,
    ROLE,
    TEXT_TAGS,
    NodeType,
    missing_attribute,
    normalize_tag,
    read_attributes,
    read_required,
    refuse_type,
    type_of,
)

T = TypeVar("T")

#: The attributes that most records have alone.
_NAMING: Final = frozenset({"id", "account", "body"})

#: The tags of statements that declare nothing.
_RELATIONS: Final = frozenset({"!grant", "!revoke", "!permit", "!deny", "!delete"})

_STRING: Final = "String"
_INTEGER_CLASS: Final = "Integer"
_NOTHING: Final = "NilClass"
_TRUE: Final = "TrueClass"
_FALSE: Final = "FalseClass"

#: The standard tags of what unquoted scalars mean.
_CLASS_TAGS: Final = {_INTEGER_CLASS: "int", "Float": "float", _NOTHING: "null", _TRUE: "bool", _FALSE: "bool"}

_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_FLOAT: Final = re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _spell_words(*words: str) -> frozenset[str]:
    return frozenset(spelt for word in words for spelt in (word, word.capitalize(), word.upper()))


_WORDS: Final = {
    **dict.fromkeys({"", "~", *_spell_words("null")}, _NOTHING),
    **dict.fromkeys(_spell_words("true", "yes", "on"), _TRUE),
    **dict.fromkeys(_spell_words("false", "no", "off"), _FALSE),
}
_NUMERIC: Final = frozenset("0123456789+-.")


def classify_scalar(scalar: Scalar) -> str:
    """Return the meaning of a scalar by one of these words, ``Float`` or ``Date``.

    Octal, hexadecimal and sexagesimal numbers are read as texts: nobody who writes ``0755`` or ``12:30`` means 493 or 750.
    """
    value = scalar.value
    if not scalar.plain:
        return _STRING
    if value[:1] in _NUMERIC:
        if _INTEGER.fullmatch(value):
            return _INTEGER_CLASS
        if _FLOAT.fullmatch(value):
            return "Float"
        return "Date" if _DATE.fullmatch(value) and _is_date(value) else _STRING
    return _WORDS.get(value, _STRING)


def as_text(scalar: Scalar) -> str:
    """Return the text of a meaning: ``yes`` is ``true``, ``1.10`` is ``1.1``, ``~`` is empty."""
    value = scalar.value
    match classify_scalar(scalar):
        case "Integer":
            # Not by int(), which refuses thousands of digits.
            digits = value.lstrip("+-").replace("_", "")
            return f"-{digits}" if value[0] == "-" and digits != "0" else digits
        case "Float":
            return _float_text(float(value.replace("_", "")))
        case other:
            return {_TRUE: "true", _FALSE: "false", _NOTHING: ""}.get(other, value)


def is_nothing(node: Scalar | Sequence | Mapping) -> bool:
    """Return whether a value was left out, or is ``~`` or ``null``."""
    return isinstance(node, Scalar) and classify_scalar(node) == _NOTHING


def is_text(node: Scalar | Sequence | Mapping) -> bool:
    """Return whether a value is a text, without a tag that makes it something else."""
    return isinstance(node, Scalar) and node.tag in TEXT_TAGS and classify_scalar(node) == _STRING


def read_text(node: Node, field: str) -> str | None:
    """Read the text of a field, ``None`` for nothing."""
    return _read_typed(node, field, "string", _STRING)


def read_texts(node: Node, field: str) -> Iterator[Scalar]:
    """Read the texts of a field, one or a list, as scalars with their places."""
    found = follow_alias(node)
    if isinstance(found, Sequence):
        refuse_type(found)
        for item in list_items(found, node):
            yield from read_texts(item, field)
        return
    value = read_scalar(node, field, "string")
    if classify_scalar(value) != _STRING:
        raise unexpected_value(value, field, "string")
    yield value


def read_integer(node: Node, field: str) -> str | None:
    """Read the integer of a field, in decimal, ``None`` for nothing."""
    return _read_typed(node, field, "integer", _INTEGER_CLASS)


def _read_typed(node: Node, field: str, expected: str, wanted: str) -> str | None:
    value = read_scalar(node, field, expected)
    got = classify_scalar(value)
    if got not in {wanted, _NOTHING}:
        raise unexpected_value(value, field, expected)
    return as_text(value) if got == wanted else None


def read_boolean(node: Node, field: str) -> bool:
    """Read a field that is true or false, or one of these words in quotes."""
    value = read_scalar(node, field, "boolean")
    if classify_scalar(value) in {_TRUE, _FALSE, _STRING} and as_text(value) in {"true", "false"}:
        return as_text(value) == "true"
    raise unexpected_value(value, field, "boolean")


def read_scalar(node: Node, field: str, expected: str) -> Scalar:
    """Read the scalar of a field, whatever it means."""
    node = follow_alias(node)
    if isinstance(node, Mapping) and node.tag is None:
        hint = MERGED if field == "<<" else ""
        if node.flow and all(is_nothing(follow_alias(value)) for _, value in node.pairs):
            hint = suggest_quotes("{", "a mapping")
        raise PolicyInvalid(f"Attribute '{shorten_text(field)}' can't be a mapping{hint}", node.line, node.column)
    if not isinstance(node, Scalar) or node.tag not in TEXT_TAGS:
        raise unexpected_value(node, field, expected)
    return node


def unexpected_value(node: Scalar | Sequence | Mapping, field: str, expected: str) -> PolicyInvalid:
    """Return the refusal of a value that isn't what its field expects."""
    known = type_of(node)
    if isinstance(node, Sequence):
        got = "Array"
    elif known is not None:
        got = known.name
    else:
        got = classify_scalar(node) if isinstance(node, Scalar) else "Hash"
    hint = MERGED if field == "<<" and not isinstance(node, Scalar) else ""
    return PolicyInvalid(f"Expected a {expected} for field '{shorten_text(field)}', got {got}{hint}", node.line, node.column)


def _is_date(value: str) -> bool:
    try:
        datetime.date.fromisoformat(value)
    except ValueError:
        return False
    return True


def _float_text(number: float) -> str:
    """Return a number as the installed base writes it: ``1.0e+20``, ``Infinity``."""
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    mantissa, e, power = repr(number).partition("e")
    return f"{mantissa}.0{e}{power}" if e and "." not in mantissa else f"{mantissa}{e}{power}"


#: The attributes that stand for an annotation of that name, under the dialect's prefix, and how each is read.
_PROPERTIES: Final = {
    "kind": read_text,
    "mime_type": read_text,
    "uidnumber": read_integer,
    "gidnumber": read_integer,
}

_OTHERS: Final = ", and others of up to 64 letters, digits, hyphens and underscores that don't look like one of these"
_NO_KEY: Final = "Invalid public key format"  # (KEY-4)


class _Expected(NamedTuple):
    """The records that a field may refer to: their name in messages, their kinds, and the type of one without a tag."""

    label: str
    accepts: Callable[[str], bool]
    untagged: NodeType


_ROLES: Final = _Expected("role", is_role_kind, ROLE)
_EXPECTED: Final = {
    "layer": _Expected("layer", "layer".__eq__, ROLE),
    "record": _Expected("record", is_kind, RESOURCE),
    "resource": _Expected("resource", is_kind, RESOURCE),
}


def parse_document(
    text: str | bytes, bounds: Bounds | None = None, lenient: bool = False, faults: FaultCollector | None = None
) -> list[Statement]:
    """Read a policy document, which is valid when it is empty: its statements in order, a policy before its body.

    ``lenient``: what the installed base accepts is accepted, even if it is likely a mistake (POL-90). With ``faults``, these
    are added there, and what has one is left out.

    :raises InvalidParameter: there is nothing but blanks.
    :raises PolicyInvalid: it isn't YAML, isn't policy, or exceeds the bounds; without ``faults``.
    """
    faults = FaultCollector(0) if faults is None else faults
    reading, read_tag = _PolicyReader(lenient, faults), _read_lenient_tag if lenient else keep_tag
    statements: list[Statement] = []
    try:
        for node in parse_nodes(text, bounds or Bounds(), read_tag=read_tag, refuse=faults.add_loss):
            statements.extend(reading.read_statements(node, None))
    except PolicyInvalid as fault:
        faults.end_with(fault)
    return statements


def _read_lenient_tag(node: TaggedNode, unquoted: bool) -> TaggedNode:
    """Return a node with its tag in the usual spelling, and without a standard tag that says what it is anyway."""
    tag = node.tag or ""
    if not tag.startswith(STANDARD_TAG):
        return node._replace(tag=normalize_tag(tag))
    name = tag.removeprefix(STANDARD_TAG)
    if isinstance(node, Scalar):
        untagged = node._replace(plain=True, tag=None)
        return untagged if unquoted and _CLASS_TAGS.get(classify_scalar(untagged)) == name else node
    return node._replace(tag=None) if name == ("seq" if isinstance(node, Sequence) else "map") else node


class _PolicyReader:
    """The reading of a document; ``anchored`` holds the scope in which each anchor was last read (Note [Aliases])."""

    def __init__(self, lenient: bool, faults: FaultCollector) -> None:
        self._lenient = lenient
        self._faults = faults
        self._anchored: dict[str, Scope | None] = {}
        self._stated: set[tuple[str, Scope | None]] = set()

    def read_statements(self, node: Node, scope: Scope | None, alias: Alias | None = None) -> Iterator[Statement]:
        """Read a statement, or a list of them, which have the place of the outermost ``alias`` that stands for them."""
        if node.anchor is not None:
            # The same text again in the same scope adds nothing new.
            if self._lenient and isinstance(node, Alias) and (node.anchor, scope) in self._stated:
                return
            self._stated.add((node.anchor, scope))
        written = node
        if alias is None and isinstance(node, Alias):
            alias = node
        try:
            node = self._resolve_text(node, scope)
            if alias is not None:
                node = node._replace(line=alias.line, column=alias.column)
            if isinstance(node, Sequence):
                refuse_type(node)
                for item in node.items:
                    yield from self.read_statements(item, scope, alias)
                return
            known = type_of(node)
            if known is None or known is MEMBER or known is AUTOMATIC_ROLE:
                raise PolicyInvalid(f"Unexpected {_describe_node(node, known)}", node.line, node.column)
            if known is GRANT or known is REVOKE:
                values = read_required(node, known, "role", "member", lenient=self._lenient)
                roles = tuple(self._read_references(values["role"], "role", scope))
                granted = (roles, tuple(self._read_members(values["member"], scope)), node.line, node.column)
                yield Grant(*granted) if known is GRANT else Revoke(*granted)
            elif known is PERMIT or known is DENY:
                values = read_required(node, known, "role", "privilege", "resource", lenient=self._lenient)
                roles = tuple(self._read_references(values["role"], "role", scope))
                privileges = tuple(self._read_privileges(values["privilege"], known))
                resources = tuple(self._read_references(values["resource"], "resource", scope))
                permitted = (roles, privileges, resources, node.line, node.column)
                yield Permit(*permitted) if known is PERMIT else Deny(*permitted)
            elif known is DELETE:
                values = read_required(node, known, "record", lenient=self._lenient)
                yield Delete(tuple(self._read_references(values["record"], "record", scope)), node.line, node.column)
            else:
                yield from self._read_record(node, known, scope, alias)
        except PolicyInvalid as fault:
            self._faults.loses_declarations |= follow_alias(written).tag not in _RELATIONS
            self._faults.add_fault(fault)

    def _read_record(
        self, node: Scalar | Mapping, known: NodeType, scope: Scope | None, alias: Alias | None
    ) -> Iterator[Statement]:
        """Read a record and its body; what is wrong with an attribute is added to the faults."""
        before = len(self._faults.found)
        values = read_attributes(node, known, lenient=self._lenient, refuse=self._faults.add_fault)
        properties: tuple[Annotation, ...] = ()
        if known.kind is not None and not values.keys().isdisjoint(_PROPERTIES):
            properties = self._read_properties(values)
        name = self._read_name(node, known, values, scope)
        more = {} if values.keys() <= _NAMING else self._read_more(values, scope)
        bare = is_other_kind(name.kind) and values.keys().isdisjoint({"owner", "annotations"}) if known is ROLE else False
        record = Record(name, properties=properties, role_alone=bare, **more)
        # It may have been a body, or a public key.
        if len(self._faults.found) > before and not {"body", "public_key"}.isdisjoint(known.attributes):
            self._faults.loses_declarations = True
        yield record
        if "body" in values and not is_nothing(follow_alias(values["body"])):
            yield from self.read_statements(values["body"], Scope(scope, name.id), alias)

    def _read_more(self, values: dict[str, Node], scope: Scope | None) -> dict[str, Any]:
        """Return the attributes that are neither name nor body nor properties, by the names that ``Record`` has for them."""

        def read(name: str, read_node: Callable[[Node], Any]) -> Any:
            return self._read_attribute(values, name, lambda node, _: read_node(node), ())

        def refer(node: Node, field: str) -> Reference | None:
            return self._read_reference(node, field, scope)

        return {
            "owner": self._read_attribute(values, "owner", refer, None),
            "annotations": read("annotations", _read_annotations),
            "restrictions": read("restricted_to", lambda node: tuple(_read_restrictions(node, self._lenient))),
            "public_keys": read("public_key", lambda node: _read_public_keys(node, self._lenient)),
            # A host factory without them has another fault.
            "layers": tuple(self._read_references(values["layer"], "layer", scope)) if "layer" in values else None,
            "factory_role": self._read_attribute(values, "role", refer, None),
        }

    def _read_attribute(self, values: dict[str, Node], name: str, read: Callable[[Node, str], T], otherwise: T) -> T:
        """Return an attribute, or something else if it isn't given, or has a fault, which is added to the others."""
        if name not in values:
            return otherwise
        try:
            return read(values[name], name)
        except PolicyInvalid as fault:
            self._faults.add_fault(fault)
            return otherwise

    def _read_properties(self, values: dict[str, Node]) -> tuple[Annotation, ...]:
        written = ((name, self._read_attribute(values, name, read, None)) for name, read in _PROPERTIES.items())
        return tuple(Annotation(name, value) for name, value in written if value is not None)

    def _read_members(self, node: Node, scope: Scope | None) -> Iterator[Member]:
        """Read members: roles, or mappings of a role and its admin option."""
        written = node
        node, scope = self._resolve_thing(node, scope)
        if isinstance(node, Sequence):
            refuse_type(node)
            for item in list_items(node, written):
                yield from self._read_members(item, scope)
        elif isinstance(node, Mapping) and (
            type_of(node) is MEMBER or (node.tag is None and all(key.value != "kind" for key, _ in node.pairs))
        ):
            values = read_required(node, MEMBER, "role", lenient=self._lenient)
            admin = "admin" in values and read_boolean(values["admin"], "admin")
            yield Member(self._read_reference(values["role"], "role", scope), admin)
        else:
            for role in self._read_references(node, "member", scope):
                yield Member(role, False)

    def _read_privileges(self, node: Node, known: NodeType) -> Iterator[str]:
        """Read the privileges of a permit or a denial. A denial may remove each that was ever permitted."""
        for text in read_texts(node, "privilege"):
            if known is PERMIT and not self._lenient and is_padded(text.value):
                message = f"The privilege '{shorten_text(text.value)}' is blank, or begins or ends with a blank"
                raise PolicyInvalid(message, text.line, text.column)
            yield text.value

    def _read_reference(self, node: Node, field: str, scope: Scope | None) -> Reference:
        """Read exactly one reference."""
        references = list(self._read_references(node, field, scope))
        if len(references) != 1:
            raise unexpected_value(follow_alias(node), field, _EXPECTED.get(field, _ROLES).label)
        return references[0]

    def _read_references(self, node: Node, field: str, scope: Scope | None) -> Iterator[Reference]:
        """Read what a field refers to. Of a record only its name counts."""
        written = node
        node, scope = self._resolve_thing(node, scope)
        if isinstance(node, Sequence):
            refuse_type(node)
            for item in list_items(node, written):
                yield from self._read_references(item, field, scope)
            return
        expected = _EXPECTED.get(field, _ROLES)
        known = _type_of_reference(node, field, expected)
        if known is None and field == "layer" and self._lenient and is_text(node):
            known = LAYER
        if known is AUTOMATIC_ROLE and expected is _ROLES:
            yield self._read_automatic_role(node, scope)
            return
        if known is None or (known.kind is None and known is not ROLE and known is not expected.untagged):
            raise unexpected_value(node, field, expected.label)
        name = self._read_name(node, known, read_attributes(node, known, lenient=self._lenient), scope)
        if not expected.accepts(name.kind):
            raise unexpected_value(node, field, expected.label)
        yield name

    def _read_automatic_role(self, node: Scalar | Mapping, scope: Scope | None) -> Reference:
        """Read an automatic role: that of ``record`` named ``role_name``."""
        values = read_required(node, AUTOMATIC_ROLE, "record", "role_name", lenient=self._lenient)
        role_name = read_text(values["role_name"], "role_name")
        if role_name is None or not role_name.strip():
            raise PolicyInvalid("role_name has a blank id", node.line, node.column, bare=True)
        record = self._read_reference(values["record"], "record", scope)
        return record._replace(line=node.line, column=node.column, automatic=role_name)

    def _read_name(self, node: Scalar | Mapping, known: NodeType, values: dict[str, Node], scope: Scope | None) -> Reference:
        kind = known.kind or self._read_kind(node, known, values)
        account = None
        if isinstance(node, Scalar):
            written = node.value
        else:
            written = (read_text(values["id"], "id") if "id" in values else None) or ""
            account = read_text(values["account"], "account") if "account" in values else None
        return Reference(kind, written if written.strip() else "", account, scope, node.line, node.column)

    def _read_kind(self, node: Scalar | Mapping, known: NodeType, values: dict[str, Node]) -> str:
        """Return the kind of a record whose tag doesn't have one (Note [Low-level records])."""
        if "kind" not in values:
            raise missing_attribute("kind", known, node)
        value = follow_alias(values["kind"])
        kind = read_text(value, "kind") or ""
        kinds = ROLE_KINDS if known is ROLE else RESOURCE_KINDS
        if kind in kinds or (self._lenient and is_other_kind(kind)):
            return kind
        message = f"Unknown kind '{shorten_text(kind)}' of type {known.name}: there are {', '.join(sorted(kinds))}"
        raise PolicyInvalid(f"{message}{_OTHERS if self._lenient else ''}", value.line, value.column)

    def _resolve_text(self, node: Node, scope: Scope | None) -> Scalar | Sequence | Mapping:
        """Return the node itself, where an alias means its text once more."""
        node = follow_alias(node)
        if node.anchor is not None:
            self._anchored[node.anchor] = scope
        return node

    def _resolve_thing(self, node: Node, scope: Scope | None) -> tuple[Scalar | Sequence | Mapping, Scope | None]:
        """Return the node itself and its scope, where an alias means the thing at the anchor."""
        if isinstance(node, Alias):
            return follow_alias(node), self._anchored.get(node.anchor, scope)
        return self._resolve_text(node, scope), scope


def _type_of_reference(node: Scalar | Mapping, field: str, expected: _Expected) -> NodeType | None:
    known = type_of(node)
    if known is None and isinstance(node, Mapping):
        return expected.untagged
    if known is None and isinstance(node, Scalar) and (is_nothing(node) or not node.value.strip()):
        raise PolicyInvalid(f"{field} has a blank id", node.line, node.column, bare=True)
    return known


def _describe_node(node: Scalar | Mapping, known: NodeType | None) -> str:
    """Return the name in messages of a node that is no statement."""
    if known is not None:
        return "member" if known is MEMBER else "automatic role"
    return "mapping" if isinstance(node, Mapping) else "scalar"


def _read_restrictions(node: Node, lenient: bool) -> Iterator[str]:
    for text in read_texts(node, "restricted_to"):
        try:
            yield normalize_cidr(text.value, zoned=lenient)
        except ValueError as error:
            raise PolicyInvalid(str(error), text.line, text.column) from None


def _read_public_keys(node: Node, lenient: bool) -> tuple[PublicKey, ...]:
    keys = []
    for text in read_texts(node, "public_key"):
        try:
            line = normalize_key_line(text.value)
            # Without a third word the key has no name.
            _, _, name = line.split(" ", 2)
        except ValueError:
            raise PolicyInvalid(_NO_KEY, text.line, text.column) from None
        sound = is_public_key(line)
        if not (sound or lenient):
            raise PolicyInvalid(_NO_KEY, text.line, text.column)
        keys.append(PublicKey(name, line, sound))
    return tuple({key.name: key for key in keys}.values()) if lenient else tuple(keys)


def _read_annotations(node: Node) -> tuple[Annotation, ...]:
    node = follow_alias(node)
    if is_nothing(node) or (isinstance(node, Sequence) and not node.items and type_of(node) is None):
        return ()
    if not isinstance(node, Mapping) or type_of(node) is not None:
        raise unexpected_value(node, "annotations", "mapping")
    annotations = []
    for key, value in node.pairs:
        refuse_type(key)
        if not key.value.strip():
            raise PolicyInvalid("annotation has a blank name", key.line, key.column)
        found = read_scalar(value, key.value, "string")
        annotations.append(Annotation(key.value, as_text(found), omitted=found.plain and not found.value))
    return tuple(annotations)

"""The policy language: nodes of YAML to statements (wire facts, core 1.1 to 1.3).

Note [Aliases]. An alias where a thing is referred to (owner, role, member, resource) means the thing that stands at the
anchor, in the scope where it stands there, as the installed base has it: ``*app`` is the same host in every policy. An alias
where a statement is expected means the text once more, in the scope of the alias: one body may serve two policies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from svc.errors import PolicyInvalid
from svc.names import ROLE_KINDS
from svc.policy import scalars
from svc.policy.document import Alias, Bounds, Mapping, Node, Scalar, Sequence, nodes, target
from svc.policy.statements import Annotation, Grant, Member, Permit, Record, Reference, Scope, Statement
from svc.policy.vocabulary import GRANT, MEMBER, PERMIT, Type, attributes, refuse_type, required, type_of

#: The attributes that stand for an annotation of that name, under the dialect's prefix.
_PROPERTIES: Final = ("kind", "mime_type")


def parse(text: str | bytes, bounds: Bounds | None = None) -> list[Statement]:
    """Read a policy document, which is valid when it is empty.

    :raises InvalidParameter: there is nothing but blanks.
    :raises PolicyInvalid: it isn't YAML, isn't policy, or exceeds the bounds.
    """
    return [statement for statement in parsing(text, bounds) if statement is not None]


def parsing(text: str | bytes, bounds: Bounds | None = None) -> Iterator[Statement | None]:
    """Read a policy document bit by bit: statements as they come, a policy before its body, and ``None`` now and then.

    Raises what :func:`parse` does, when it comes to it.
    """
    reading = _Reading()
    for node in nodes(text, bounds or Bounds()):
        if node is None:
            yield None
        else:
            yield from reading.statements(node, None)


class _Reading:
    """One document being read: ``anchored`` holds the scope in which each anchor was last read (Note [Aliases])."""

    def __init__(self) -> None:
        self._anchored: dict[str, Scope | None] = {}

    def statements(self, node: Node, scope: Scope | None) -> Iterator[Statement]:
        """Read a statement, or a list of them."""
        node = self._here(node, scope)
        if isinstance(node, Sequence):
            refuse_type(node)
            for item in node.items:
                yield from self.statements(item, scope)
            return
        known = type_of(node)
        if known is None or known is MEMBER:
            what = "member" if known else "mapping" if isinstance(node, Mapping) else "scalar"
            raise PolicyInvalid(f"Unexpected {what}", node.line, node.column)
        if known is GRANT:
            yield self._grant(node, scope)
        elif known is PERMIT:
            yield self._permit(node, scope)
        else:
            values = attributes(node, known)
            record = self._record(node, known, values, scope)
            yield record
            if "body" in values and not scalars.is_nothing(target(values["body"])):
                yield from self.statements(values["body"], Scope(scope, record.name.id))

    def _record(self, node: Scalar | Mapping, known: Type, values: dict[str, Node], scope: Scope | None) -> Record:
        texts = [(name, scalars.text(values[name], name)) for name in _PROPERTIES if name in values]
        return Record(
            _name(node, known, values, scope),
            self._role(values["owner"], "owner", scope) if "owner" in values else None,
            _annotations(values["annotations"]) if "annotations" in values else (),
            tuple(Annotation(name, text) for name, text in texts if text is not None),
        )

    def _grant(self, node: Scalar | Mapping, scope: Scope | None) -> Grant:
        values = required(node, GRANT, "role", "member")
        return Grant(
            tuple(self._references(values["role"], "role", scope)),
            tuple(self._members(values["member"], scope)),
            node.line,
            node.column,
        )

    def _permit(self, node: Scalar | Mapping, scope: Scope | None) -> Permit:
        values = required(node, PERMIT, "role", "privilege", "resource")
        return Permit(
            tuple(self._references(values["role"], "role", scope)),
            tuple(scalars.texts(values["privilege"], "privilege")),
            tuple(self._references(values["resource"], "resource", scope)),
            node.line,
            node.column,
        )

    def _members(self, node: Node, scope: Scope | None) -> Iterator[Member]:
        """Read members: roles, or mappings that say of a role whether it is an admin of what it is granted."""
        node, scope = self._there(node, scope)
        if isinstance(node, Sequence):
            refuse_type(node)
            for item in node.items:
                yield from self._members(item, scope)
        elif isinstance(node, Mapping) and (node.tag is None or type_of(node) is MEMBER):
            values = required(node, MEMBER, "role")
            admin = "admin" in values and scalars.truth(values["admin"], "admin")
            yield Member(self._role(values["role"], "role", scope), admin)
        else:
            for role in self._references(node, "member", scope):
                yield Member(role, False)

    def _role(self, node: Node, field: str, scope: Scope | None) -> Reference:
        """Read exactly one role."""
        roles = list(self._references(node, field, scope))
        if len(roles) != 1:
            raise scalars.unexpected(target(node), field, "role")
        return roles[0]

    def _references(self, node: Node, field: str, scope: Scope | None) -> Iterator[Reference]:
        """Read what a field refers to: anything for ``resource``, roles elsewhere. Of a record only its name counts."""
        node, scope = self._there(node, scope)
        if isinstance(node, Sequence):
            refuse_type(node)
            for item in node.items:
                yield from self._references(item, field, scope)
            return
        known = type_of(node)
        expected = "resource" if field == "resource" else "role"
        if known is None and isinstance(node, Mapping):
            # The place alone makes it the language's !role or !resource.
            raise PolicyInvalid(f"'!{expected}' is not supported yet", node.line, node.column)
        if known is None and isinstance(node, Scalar) and (scalars.is_nothing(node) or not node.value.strip()):
            raise PolicyInvalid(f"{field} has a blank id", node.line, node.column, bare=True)
        if known is None or known.kind is None or (expected == "role" and known.kind not in ROLE_KINDS):
            raise scalars.unexpected(node, field, expected)
        yield _name(node, known, attributes(node, known), scope)

    def _here(self, node: Node, scope: Scope | None) -> Scalar | Sequence | Mapping:
        """The node itself, where an alias means its text once more."""
        node = target(node)
        if node.anchor is not None:
            self._anchored[node.anchor] = scope
        return node

    def _there(self, node: Node, scope: Scope | None) -> tuple[Scalar | Sequence | Mapping, Scope | None]:
        """The node itself and its scope, where an alias means the thing at the anchor."""
        if isinstance(node, Alias):
            # Whoever is told about it looks for it where it was used.
            return node.node._replace(line=node.line, column=node.column), self._anchored.get(node.anchor, scope)
        return self._here(node, scope), scope


def _name(node: Scalar | Mapping, known: Type, values: dict[str, Node], scope: Scope | None) -> Reference:
    assert known.kind is not None
    account = None
    if isinstance(node, Scalar):
        written = node.value
    else:
        written = (scalars.text(values["id"], "id") if "id" in values else None) or ""
        account = scalars.text(values["account"], "account") if "account" in values else None
    return Reference(known.kind, written if written.strip() else "", account, scope, node.line, node.column)


def _annotations(node: Node) -> tuple[Annotation, ...]:
    node = target(node)
    if scalars.is_nothing(node):
        return ()
    if not isinstance(node, Mapping) or type_of(node) is not None:
        raise scalars.unexpected(node, "annotations", "mapping")
    annotations = []
    for key, value in node.pairs:
        refuse_type(key)
        if not key.value.strip():
            raise PolicyInvalid("annotation has a blank name", key.line, key.column)
        annotations.append(Annotation(key.value, scalars.as_text(scalars.scalar(value, key.value, "string"))))
    return tuple(annotations)

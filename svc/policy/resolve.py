"""What a document means: statements to rows, with every id full, and what those rows rest on.

Rules of ids and owners: wire facts, core 1.4 to 1.6; rulings 2.2 and 2.13. A document that is loaded into a policy other
than the root is that policy's body.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import attrs

from svc.errors import InvalidName, PolicyInvalid
from svc.names import ROLE_KINDS, RoleName, admin_of, root_policy
from svc.names import identifier as checked_identifier
from svc.policy.document import shown
from svc.policy.ids import climbed, identifier_of, inside, under
from svc.policy.statements import Annotation, Grant, Permit, Record, Reference, Scope, Statement
from svc.policy.vocabulary import ATTRIBUTES
from svc.records import AnnotationRow, MembershipRow, PermissionRow, ResourceRow, Rows

#: Longest name of an annotation, in bytes of UTF-8.
ANNOTATION_NAME_LIMIT: Final = 1024

#: Longest privilege, in bytes of UTF-8: a row's key of two ids and a privilege must fit into a page of an index.
PRIVILEGE_LIMIT: Final = 64

#: How many grants and permissions a document may make: a few lines can name a product of long lists.
ROWS_LIMIT: Final = 2_000_000


class Place(NamedTuple):
    """Where in the document; both count from 1."""

    line: int
    column: int


@attrs.frozen
class Resolved:
    """What a document means for ``policy``. Full ids come with the place of their first mention, in that order.

    ``references`` are those that the document names without declaring them, so they must exist. ``roles_granted`` and
    ``resources_permitted`` are those that lie outside of the policy by their name alone, and that it grants to others, or
    permits or annotates; what of them takes more authority is for ``references.claims`` to say.
    """

    policy: RoleName
    rows: Rows
    references: Mapping[str, Place]
    roles_granted: Mapping[str, Place]
    resources_permitted: Mapping[str, Place]
    warnings: tuple[str, ...]


def resolve(statements: Iterable[Statement], policy: RoleName, prefix: str) -> Resolved:
    """Resolve the statements of a document that is loaded into ``policy``. ``prefix`` is the dialect's.

    :raises PolicyInvalid: an id is no id, a thing is declared twice or owned in a circle, or the document makes too much.
    """
    resolution = _Resolution(policy, prefix)
    relations: list[Grant | Permit] = []
    declared: list[tuple[str, Record]] = []
    for statement in statements:
        if isinstance(statement, Record):
            declared.append((resolution.declare(statement), statement))
        else:
            relations.append(statement)
    for full, record in declared:
        resolution.own(full, record)
    resolution.refuse_circles()
    for relation in relations:
        if isinstance(relation, Grant):
            resolution.grant(relation)
        else:
            resolution.permit(relation)
    return resolution.resolved()


def described(full: str) -> str:
    """A full id as messages name it: ``Host_factory 'x'`` (wire facts, core 0.4)."""
    _, kind, identifier = full.split(":", 2)
    return f"{kind.capitalize()} '{identifier}'"


class _Resolution:
    """A document being resolved: records first, then their owners, then grants and permits."""

    def __init__(self, policy: RoleName, prefix: str) -> None:
        self._policy = policy
        self._prefix = prefix
        self._account = policy.account
        self._is_root = policy == root_policy(policy.account)
        self._namespaces: dict[Scope | None, str] = {None: "" if self._is_root else policy.identifier}
        self._declared: dict[str, Place] = {}
        self._owners: dict[str, str] = {}
        self._memberships: dict[tuple[str, str], bool] = {}
        self._permissions: dict[PermissionRow, None] = {}
        self._annotations: list[AnnotationRow] = []
        self._named: dict[str, Place] = {}
        self._roles_granted: dict[str, Place] = {}
        self._resources_permitted: dict[str, Place] = {}
        self._warnings: dict[str, None] = {}
        self._counted = 0

    def declare(self, record: Record) -> str:
        """Take up a record with its annotations, and return its full id."""
        name = record.name
        if name.id.startswith("/"):
            raise _refused(f"Illegal absolute id: {shown(name.id)}", name)
        path = self._path(name)
        full = self._full(name, path)
        if full in self._declared or (full == str(self._policy) and not self._is_root):
            raise _refused(f"{described(full)} is declared more than once", name)
        self._declared[full] = Place(name.line, name.column)
        self._annotate(record, path, full)
        return full

    def own(self, full: str, record: Record) -> None:
        """Give a declared record its owner."""
        if record.owner is not None:
            self._owners[full] = self._climbing(record.owner)
        elif record.name.scope is not None:
            self._owners[full] = f"{self._account}:policy:{self._namespace(record.name.scope)}"
        else:
            self._owners[full] = str(admin_of(self._account) if self._is_root else self._policy)

    def refuse_circles(self) -> None:
        """Refuse declared roles that own each other, and so are nobody's; the account's admin alone is his own."""
        sound = {str(admin_of(self._account))}
        for start in self._owners:
            trail: dict[str, None] = {}
            current = start
            while current in self._owners and current not in sound:
                if current in trail:
                    owned = described(next(reversed(trail)))
                    message = f"Dependency cycle encountered between {owned} and {described(current)}"
                    raise PolicyInvalid(message, *self._declared[current], bare=True)
                trail[current] = None
                current = self._owners[current]
            sound.update(trail)

    def grant(self, grant: Grant) -> None:
        """Take up a grant: what is granted twice is granted with the greater right."""
        roles = [self._direct(role, self._roles_granted) for role in grant.roles]
        members = [(self._climbing(member.role), member.admin) for member in grant.members]
        self._count(len(roles) * len(members), grant)
        for role in roles:
            for member, admin in members:
                self._memberships[role, member] = admin or self._memberships.get((role, member), False)

    def permit(self, permit: Permit) -> None:
        """Take up a permission."""
        roles = [self._climbing(role) for role in permit.roles]
        resources = [self._direct(resource, self._resources_permitted) for resource in permit.resources]
        for privilege in permit.privileges:
            if len(privilege.encode("utf-8")) > PRIVILEGE_LIMIT:
                message = f"A privilege is at most {PRIVILEGE_LIMIT} bytes long"
                raise PolicyInvalid(message, permit.line, permit.column, bare=True)
        self._count(len(roles) * len(resources) * len(permit.privileges), permit)
        for resource in resources:
            for privilege in permit.privileges:
                for role in roles:
                    self._permissions[PermissionRow(resource, privilege, role)] = None

    def resolved(self) -> Resolved:
        """What it came to."""
        ownerships = (
            MembershipRow(full, owner, True, True)
            for full, owner in self._owners.items()
            if full.split(":", 2)[1] in ROLE_KINDS
        )
        grants = (MembershipRow(role, member, False, admin) for (role, member), admin in self._memberships.items())
        return Resolved(
            self._policy,
            Rows(
                tuple(ResourceRow(full, owner) for full, owner in self._owners.items()),
                (*ownerships, *grants),
                tuple(self._permissions),
                tuple(self._annotations),
            ),
            {full: place for full, place in self._named.items() if full not in self._declared},
            self._roles_granted,
            self._resources_permitted,
            tuple(self._warnings),
        )

    def _annotate(self, record: Record, path: str, full: str) -> None:
        name = record.name
        explicit = {annotation.name for annotation in record.annotations}
        derived = (Annotation(f"{self._prefix}/{property_.name}", property_.value) for property_ in record.properties)
        annotations = [*record.annotations, *(annotation for annotation in derived if annotation.name not in explicit)]
        for annotation in annotations:
            if annotation.name in ATTRIBUTES:
                self._warnings[
                    f"Annotation '{annotation.name}' matches a known policy attribute. This annotation will not be treated "
                    "as a standard attribute and may not have the intended effect."
                ] = None
            if len(annotation.name.encode("utf-8")) > ANNOTATION_NAME_LIMIT:
                raise _refused(f"The name of an annotation is at most {ANNOTATION_NAME_LIMIT} bytes long", name)
            value = annotation.value
            if ".." in value and ".." in value.split("/"):
                value = _climb(f"{path}/{value}", name)
            self._annotations.append(AnnotationRow(full, annotation.name, value))
        if annotations:
            self._mind(name, full, self._resources_permitted)

    def _direct(self, name: Reference, outside: dict[str, Place]) -> str:
        """The full id of a reference in which ``..`` means nothing: a role that is granted, a resource that is permitted."""
        full = self._full(name, self._path(name))
        self._mention(name, full)
        self._mind(name, full, outside)
        return full

    def _climbing(self, name: Reference) -> str:
        """The full id of a reference in which ``..`` is resolved: an owner, a member, a role that is permitted something."""
        full = self._full(name, _climb(self._path(name), name))
        self._mention(name, full)
        return full

    def _mention(self, name: Reference, full: str) -> None:
        if full not in self._named:
            self._named[full] = Place(name.line, name.column)

    def _mind(self, name: Reference, full: str, outside: dict[str, Place]) -> None:
        if full not in outside and not inside(self._policy, name.kind, full.split(":", 2)[2]):
            outside[full] = Place(name.line, name.column)

    def _path(self, name: Reference) -> str:
        if name.account is not None and name.account != self._account:
            raise _refused(f"{name.kind} '{shown(name.id)}' is of another account", name)
        path = name.id[1:] if name.id.startswith("/") else under(self._namespace(name.scope), name.id)
        if not path:
            raise _refused(f"{name.kind} has a blank id", name)
        return path

    def _namespace(self, scope: Scope | None) -> str:
        namespace = self._namespaces.get(scope)
        if namespace is None:
            assert scope is not None
            namespace = self._namespaces[scope] = under(self._namespace(scope.outer), scope.id)
        return namespace

    def _full(self, name: Reference, path: str) -> str:
        identifier = identifier_of(name.kind, path)
        try:
            checked_identifier(identifier)
        except InvalidName as error:
            raise _refused(f"{name.kind} '{shown(name.id)}': {error.message}", name) from None
        return f"{self._account}:{name.kind}:{identifier}"

    def _count(self, count: int, relation: Grant | Permit) -> None:
        self._counted += count
        if self._counted > ROWS_LIMIT:
            message = f"More than {ROWS_LIMIT} grants and permissions"
            raise PolicyInvalid(message, relation.line, relation.column, bare=True)


def _climb(path: str, name: Reference) -> str:
    climb = climbed(path)
    if climb is None:
        raise _refused(f"Invalid relative reference: {shown(path)}", name)
    return climb


def _refused(message: str, name: Reference) -> PolicyInvalid:
    return PolicyInvalid(message, name.line, name.column, bare=True)

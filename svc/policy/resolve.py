"""The meaning of a document: statements to rows, with every id full, and the references of these rows (POL-24 to POL-36).

A document that is loaded into a policy other than the root is that policy's body. Records that it refers to and
doesn't declare must exist.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Final

from svc.model.credentials import API_KEY_ANNOTATION
from svc.model.dialect import UNSERVED, Dialect
from svc.model.errors import InvalidName, InvalidParameter, PolicyInvalid
from svc.model.names import ACTOR_KINDS, RoleName, admin_of, is_role_kind, root_policy
from svc.model.names import check_identifier as checked_identifier
from svc.model.policy_loads import AnnotationRow, LoadMode, MembershipRow, PresentRows, ResourceRow, RestrictionRow, Rows
from svc.policy.document import shorten_text
from svc.policy.faults import FaultCollector
from svc.policy.ids import PUBLIC_KEY, identifier_of, is_inside, is_padded, is_rewritten, join_path, resolve_parents
from svc.policy.meaning_warnings import warn_of_annotations, warn_of_privileges
from svc.policy.resolved_policy import GrantProduct, PermitProduct, ResolvedPolicy, SourcePosition
from svc.policy.statements import Annotation, Delete, Deny, Grant, Permit, Record, Reference, Revoke, Scope, Statement
from svc.policy.vocabulary import ATTRIBUTES

#: Bytes of UTF-8; a row's key of two ids and a privilege must fit into a page of an index.
ANNOTATION_NAME_LIMIT: Final = 1024
ANNOTATION_VALUE_LIMIT: Final = 64 * 1024
PRIVILEGE_LIMIT: Final = 64

#: How many grants and permissions a document may make or remove: a few lines can name a product of long lists
#: (``resolved_policy``, Note [Products]).
ROWS_LIMIT: Final = 2_000_000

#: How many bytes a document may amount to when each mention of an id is written in full, and each row: ids grow by those of
#: the policies around them, products and aliases repeat what was written once, so that 32 MiB could otherwise mean gigabytes
#: in memory and in the database. A host whose full id has 50 bytes makes 250: that leaves room for a million.
BYTES_LIMIT: Final = 256 * 1024 * 1024

WARNINGS_MOST: Final = 100  # records that are named in one warning


def resolve_statements(
    statements: Iterable[Statement], policy: RoleName, dialect: Dialect, faults: FaultCollector | None = None
) -> ResolvedPolicy:
    """Resolve the statements of a document that is loaded into ``policy``. With ``faults``, these are added there.

    :raises PolicyInvalid: an id is no id, a thing is declared twice or owned in a circle, or the document makes too much;
        without ``faults``.
    """
    faults = FaultCollector(0) if faults is None else faults
    resolution = _Resolver(policy, dialect, faults)
    try:
        _resolve_all(statements, resolution)
    except PolicyInvalid as fault:
        faults.end_with(fault)
    return resolution.build_result()


def _resolve_all(statements: Iterable[Statement], resolution: _Resolver) -> None:
    """Resolve statements: records first, then their owners, then the statements that relate them."""
    relations: list[Grant | Revoke | Permit | Deny | Delete] = []
    declared: list[tuple[str, Record]] = []
    alone: list[Record] = []
    for statement in statements:
        if not isinstance(statement, Record):
            relations.append(statement)
        elif statement.role_alone:
            alone.append(statement)
        else:
            try:
                declared.append((resolution.declare_record(statement), statement))
            except PolicyInvalid as fault:
                resolution.add_fault(fault)
    for record in alone:
        try:
            bare = resolution.declare_bare_role(record)
        except PolicyInvalid as fault:
            resolution.add_fault(fault)
        else:
            declared += [] if bare is None else [(bare, record)]
    for full, record in declared:
        try:
            resolution.set_owner(full, record)
        except PolicyInvalid as fault:
            resolution.add_fault(fault)
    resolution.refuse_circles()
    for relation in relations:
        try:
            resolution.add_relation(relation)
        except PolicyInvalid as fault:
            resolution.add_fault(fault)


def describe_id(full: str) -> str:
    """Return a full id as messages name it: ``Host_factory 'x'`` (ROLE-6)."""
    _, kind, identifier = full.split(":", 2)
    return f"{kind.capitalize()} '{identifier}'"


class _Resolver:
    """The resolution of a document: records first, then their owners, then the statements that relate them."""

    def __init__(self, policy: RoleName, dialect: Dialect, faults: FaultCollector) -> None:
        self._policy = policy
        self._faults = faults
        self._prefix = dialect.prefix
        self._cloud = dialect.cloud
        self._lenient = dialect.lenient_policy
        self._account = policy.account
        self._is_root = policy == root_policy(policy.account)
        self._namespaces: dict[Scope | None, str] = {None: "" if self._is_root else policy.identifier}
        self._declared: dict[str, SourcePosition] = {}
        self._owners: dict[str, str] = {}
        self._annotations: list[AnnotationRow] = []
        self._restrictions: dict[RestrictionRow, None] = {}
        self._public_keys: dict[str, str] = {}
        self._granted: list[GrantProduct] = []
        self._permitted: list[PermitProduct] = []
        self._revoked: list[GrantProduct] = []
        self._denied: list[PermitProduct] = []
        self._deleted: dict[str, None] = {}
        self._deletes = False
        self._named: dict[str, SourcePosition] = {}
        self._alone: set[str] = set()
        self._roles_granted: dict[str, SourcePosition] = {}
        self._resources_permitted: dict[str, SourcePosition] = {}
        self._warnings: dict[str, None] = {}
        self._invalid_keys: list[str] = []
        self._zoned: list[str] = []
        self._padded: dict[str, None] = {}
        self._omitted: list[str] = []
        self._rewritten: list[str] = []
        self._counted = 0
        self._weighed = 0

    def add_fault(self, fault: PolicyInvalid) -> None:
        """Add a fault; once the document makes too much, everything else does, too."""
        if self._counted > ROWS_LIMIT or self._weighed > BYTES_LIMIT:
            raise fault
        self._faults.add_fault(fault)

    def declare_record(self, record: Record) -> str:
        """Add a record with its attributes, and return its full id."""
        name = record.name
        try:
            path, full = self._read_declared_id(name)
        except PolicyInvalid:
            self._faults.loses_declarations = True
            raise
        identifier = identifier_of(name.kind, path)
        self._register_id(full, name)
        if is_rewritten(identifier):
            self._rewritten.append(describe_id(full))
        if name.kind == "webservice":
            self._warn_of_unserved(identifier)
        self._add_annotations(record, path, full)
        for cidr in record.restrictions:
            if "%" in cidr:
                self._zoned.append(f"'{cidr}' of {describe_id(full)}")
            self._restrictions[RestrictionRow(full, cidr)] = None
            self._count_bytes(_byte_length(full) + len(cidr), name)
        for key in record.public_keys:
            key_full = self._full_id(name._replace(kind=PUBLIC_KEY), f"user/{identifier}/{key.name}")
            self._register_id(key_full, name)
            self._public_keys[key_full] = key.line
            if not key.is_valid:
                self._invalid_keys.append(f"'{shorten_text(key.name)}' of {describe_id(full)}")
            self._count_bytes(_byte_length(key.line), name)
        if name.kind == "host_factory" and (record.layers is None or not (record.layers or self._lenient)):
            raise _refusal_at(f"Host factory '{identifier}' does not include any layers", name)
        return full

    def _read_declared_id(self, name: Reference) -> tuple[str, str]:
        """Return the path and the full id of a record that is declared."""
        if name.id.startswith("/"):
            raise _refusal_at(f"Illegal absolute id: {shorten_text(name.id)}", name)
        if not name.id and name.kind == "policy":
            raise _refusal_at(f"{name.kind} has a blank id", name)
        path = self._path_of(name)
        full = self._full_id(name, path)
        if name.kind == PUBLIC_KEY:
            # Otherwise the owner of a policy "user/bob" could add keys to bob.
            raise _refusal_at("A public key is declared with its user", name)
        return path, full

    def declare_bare_role(self, record: Record) -> str | None:
        """Add a role that has only its name, and return its full id; ``None`` if a resource of the same name is declared."""
        name = record.name
        full = self._literal_id(name)
        declared = full in self._declared and full not in self._alone and not name.id.startswith("/")
        self._alone.add(full)
        return None if declared else self.declare_record(record)

    def set_owner(self, full: str, record: Record) -> None:
        """Add the owner of a declared record, and the layers of a host factory."""
        name = record.name
        if record.owner is not None:
            owner = self._existing_id(record.owner)
        elif name.scope is not None:
            owner = f"{self._account}:policy:{self._namespace_of(name.scope)}"
        else:
            owner = str(admin_of(self._account) if self._is_root else self._policy)
        self._owners[full] = owner
        weight = _byte_length(full) + _byte_length(owner)
        self._count_bytes(2 * weight if is_role_kind(name.kind) else weight, name)
        _, _, identifier = full.split(":", 2)
        for key in record.public_keys:
            key_full = f"{self._account}:{PUBLIC_KEY}:user/{identifier}/{key.name}"
            self._owners[key_full] = owner
            self._count_bytes(_byte_length(key_full) + _byte_length(owner), name)
        if record.layers:
            layers = [self._existing_target(layer, self._roles_granted) for layer in record.layers]
            self._add_grant(self._granted, layers, [(full, False)], name)
        if record.factory_role is not None:
            self._add_reference(record.factory_role, self._literal_id(record.factory_role))

    def refuse_circles(self) -> None:
        """Refuse declared roles that own each other, so that nobody else owns them. The account's admin owns itself, and in
        a dialect that permits it a policy may, too.
        """
        sound = {str(admin_of(self._account))}
        if self._lenient:
            sound.update(full for full, owner in self._owners.items() if full == owner and full.split(":", 2)[1] == "policy")
        for start in self._owners:
            trail: dict[str, None] = {}
            current = start
            while current in self._owners and current not in sound:
                if current in trail:
                    owned = describe_id(next(reversed(trail)))
                    message = f"Dependency cycle encountered between {owned} and {describe_id(current)}"
                    self._faults.add_fault(PolicyInvalid(message, *self._declared[current], bare=True))
                    break
                trail[current] = None
                current = self._owners[current]
            sound.update(trail)

    def add_relation(self, relation: Grant | Revoke | Permit | Deny | Delete) -> None:
        """Add a statement that is no record. Things that it removes need not exist, so they aren't references."""
        self._deletes = self._deletes or isinstance(relation, Revoke | Deny | Delete)
        if isinstance(relation, Grant | Revoke):
            self._relate_members(relation)
        elif isinstance(relation, Permit | Deny):
            self._relate_privileges(relation)
        else:
            for record in relation.records:
                full = self._target_id(record, self._resources_permitted)
                if full == str(self._policy):
                    raise _refusal_at(f"{describe_id(full)} can't be deleted by a document that is loaded into it", record)
                self._deleted[full] = None

    def _relate_members(self, relation: Grant | Revoke) -> None:
        granting = isinstance(relation, Grant)
        role_of, member_of = (self._existing_target, self._existing_id) if granting else (self._target_id, self._resolved_id)
        roles = [role_of(role, self._roles_granted) for role in relation.roles]
        members = [(member_of(member.role), granting and member.admin) for member in relation.members]
        self._add_grant(self._granted if granting else self._revoked, roles, members, relation)

    def _relate_privileges(self, relation: Permit | Deny) -> None:
        permitting = isinstance(relation, Permit)
        role_of, resource_of = (
            (self._existing_id, self._existing_target) if permitting else (self._resolved_id, self._target_id)
        )
        roles = [role_of(role) for role in relation.roles]
        resources = [resource_of(resource, self._resources_permitted) for resource in relation.resources]
        if permitting:
            self._padded |= dict.fromkeys(filter(is_padded, relation.privileges))
        self._add_permission(self._permitted if permitting else self._denied, resources, roles, relation)

    def build_result(self) -> ResolvedPolicy:
        """Return the result."""
        return ResolvedPolicy(
            policy=self._policy,
            declared=Rows(
                tuple(ResourceRow(full, owner) for full, owner in self._owners.items()),
                tuple(
                    MembershipRow(full, owner, True, True)
                    for full, owner in self._owners.items()
                    if is_role_kind(full.split(":", 2)[1])
                ),
                (),
                tuple(self._annotations),
                tuple(self._restrictions),
            ),
            references={full: place for full, place in self._named.items() if full not in self._declared},
            roles_granted=self._roles_granted,
            resources_permitted=self._resources_permitted,
            warnings=(
                *self._warnings,
                *_about_keys(self._invalid_keys),
                *_about_zones(self._zoned),
                *_about_padded_privileges(list(self._padded)),
                *_about_omitted(self._omitted),
                *_about_paths(self._rewritten),
                *warn_of_privileges(self._permitted),
                *warn_of_annotations(self._annotations, self._cloud, describe_id),
            ),
            public_keys=self._public_keys,
            deletes=self._deletes,
            related=self._counted,
            granted=self._granted,
            permitted=self._permitted,
            revoked=self._revoked,
            denied=self._denied,
            deleted=self._deleted,
        )

    def _warn_of_unserved(self, webservice: str) -> None:
        """Warn about a webservice that declares an authenticator which is not served (AUTH-66)."""
        for kind, sentence in UNSERVED.items():
            if webservice.startswith(f"{self._prefix}/{kind}/"):
                self._warnings[f"{sentence}."] = None

    def _warn_of_api_key(self, kind: str, full: str, value: str) -> None:
        """Warn about an annotation that doesn't mean what its author may think (TOK-56)."""
        if kind not in ACTOR_KINDS:
            self._warnings[
                f"{describe_id(full)} has an annotation '{API_KEY_ANNOTATION}', which is for users and hosts."
            ] = None
        elif value.strip(" \t\r\n").lower() not in {"true", "false"}:
            self._warnings[
                f"The annotation '{API_KEY_ANNOTATION}' of {describe_id(full)} is neither true nor false: it has no effect."
            ] = None

    def _register_id(self, full: str, name: Reference) -> None:
        if full in self._declared:
            raise _refusal_at(f"{describe_id(full)} is declared more than once", name)
        self._declared[full] = SourcePosition(name.line, name.column)

    def _add_annotations(self, record: Record, path: str, full: str) -> None:
        name = record.name
        explicit = {annotation.name for annotation in record.annotations}
        derived = (Annotation(f"{self._prefix}/{property_.name}", property_.value) for property_ in record.properties)
        annotations = [*record.annotations, *(annotation for annotation in derived if annotation.name not in explicit)]
        for annotation in annotations:
            if annotation.omitted:
                self._omitted.append(f"'{annotation.name}' of {describe_id(full)}")
            if annotation.name in ATTRIBUTES:
                self._warnings[
                    f"Annotation '{annotation.name}' matches a known policy attribute. This annotation will not be treated "
                    "as a standard attribute and may not have the intended effect."
                ] = None
            if annotation.name == API_KEY_ANNOTATION:
                self._warn_of_api_key(name.kind, full, annotation.value)
            if _byte_length(annotation.name) > ANNOTATION_NAME_LIMIT:
                raise _refusal_at(f"The name of an annotation is at most {ANNOTATION_NAME_LIMIT} bytes long", name)
            value = annotation.value
            if ".." in value and ".." in value.split("/"):
                value = _resolve_path(f"{path}/{value}", name)
            if _byte_length(value) > ANNOTATION_VALUE_LIMIT:
                raise _refusal_at(f"The value of an annotation is at most {ANNOTATION_VALUE_LIMIT} bytes long", name)
            self._count_bytes(_byte_length(full) + _byte_length(annotation.name) + _byte_length(value), name)
            self._annotations.append(AnnotationRow(full, annotation.name, value))
        if annotations:
            self._note_outside(name, full, self._resources_permitted)

    def _add_grant(
        self, into: list[GrantProduct], roles: list[str], members: list[tuple[str, bool]], where: Reference | Grant | Revoke
    ) -> None:
        self._count_rows(len(roles) * len(members), where)
        of_roles, of_members = sum(map(_byte_length, roles)), sum(_byte_length(member) for member, _ in members)
        self._count_bytes(of_roles * len(members) + of_members * len(roles), where)
        into.append(GrantProduct(roles, members))

    def _add_permission(
        self, into: list[PermitProduct], resources: list[str], roles: list[str], where: Permit | Deny
    ) -> None:
        for privilege in where.privileges:
            if _byte_length(privilege) > PRIVILEGE_LIMIT:
                message = f"A privilege is at most {PRIVILEGE_LIMIT} bytes long"
                raise PolicyInvalid(message, where.line, where.column, bare=True)
        lists = (resources, where.privileges, roles)
        count = len(resources) * len(where.privileges) * len(roles)
        self._count_rows(count, where)
        self._count_bytes(sum(sum(map(_byte_length, items)) * (count // len(items)) for items in lists if items), where)
        into.append(PermitProduct(*lists))

    def _existing_target(self, name: Reference, outside: dict[str, SourcePosition]) -> str:
        """Return the full id of a role to grant, or a resource to permit: it must exist, and may lie outside."""
        self._add_reference(name, full := self._target_id(name, outside))
        return full

    def _target_id(self, name: Reference, outside: dict[str, SourcePosition]) -> str:
        """Return the full id of a thing that a statement acts on, and record it if it lies outside."""
        self._note_outside(name, full := self._literal_id(name), outside)
        return full

    def _literal_id(self, name: Reference) -> str:
        return self._full_id(name, self._path_of(name))

    def _existing_id(self, name: Reference) -> str:
        """Return the full id of an owner, a member, a role that is permitted something: it must exist."""
        self._add_reference(name, full := self._resolved_id(name))
        return full

    def _resolved_id(self, name: Reference) -> str:
        return self._full_id(name, _resolve_path(self._path_of(name), name))

    def _add_reference(self, name: Reference, full: str) -> None:
        if full not in self._named:
            self._named[full] = SourcePosition(name.line, name.column)

    def _note_outside(self, name: Reference, full: str, outside: dict[str, SourcePosition]) -> None:
        if full not in outside and not is_inside(self._policy, *full.split(":", 2)[1:]):
            outside[full] = SourcePosition(name.line, name.column)

    def _path_of(self, name: Reference) -> str:
        if name.account is not None and name.account != self._account:
            raise _refusal_at(f"{name.kind} '{shorten_text(name.id)}' is of another account", name)
        path = name.id[1:] if name.id.startswith("/") else join_path(self._namespace_of(name.scope), name.id)
        if not path:
            raise _refusal_at(f"{name.kind} has a blank id", name)
        return path

    def _namespace_of(self, scope: Scope | None) -> str:
        namespace = self._namespaces.get(scope)
        if namespace is None:
            assert scope is not None
            namespace = self._namespaces[scope] = join_path(self._namespace_of(scope.outer), scope.id)
        return namespace

    def _full_id(self, name: Reference, path: str) -> str:
        kind, identifier = name.kind, identifier_of(name.kind, path)
        if name.automatic is not None:
            kind, identifier = "@", f"{kind}/{identifier}/{name.automatic}"
        try:
            checked_identifier(identifier)
        except InvalidName as error:
            raise _refusal_at(f"{name.kind} '{shorten_text(name.id)}': {error.message}", name) from None
        full = f"{self._account}:{kind}:{identifier}"
        self._count_bytes(_byte_length(full), name)
        return full

    def _count_rows(self, count: int, where: _Located) -> None:
        self._counted += count
        if self._counted > ROWS_LIMIT:
            raise PolicyInvalid(f"More than {ROWS_LIMIT} grants and permissions", where.line, where.column, bare=True)

    def _count_bytes(self, weight: int, where: _Located) -> None:
        self._weighed += weight
        if self._weighed > BYTES_LIMIT:
            raise PolicyInvalid(f"More than {BYTES_LIMIT} bytes of ids and texts", where.line, where.column, bare=True)


def _about_keys(unsound: list[str]) -> Iterator[str]:
    """Return warnings about public keys that are invalid."""
    yield from (f"Public key {key} is none that SSH takes." for key in unsound[:WARNINGS_MOST])
    if len(unsound) > WARNINGS_MOST:
        yield f"Nor are {len(unsound) - WARNINGS_MOST} other public keys."


def _about_paths(rewritten: list[str]) -> Iterator[str]:
    """Return warnings about ids that proxies may rewrite to those of other records (POL-92)."""
    yield from (
        f"{name} has '//', '.' or '..' in its id, which a proxy may make another." for name in rewritten[:WARNINGS_MOST]
    )
    if len(rewritten) > WARNINGS_MOST:
        yield f"So have {len(rewritten) - WARNINGS_MOST} other records."


def _about_zones(zoned: list[str]) -> Iterator[str]:
    """Return warnings about addresses with zones: the interface by which a client connects isn't known (POL-14)."""
    yield from (f"The range {cidr} has a zone and so admits nobody." for cidr in zoned[:WARNINGS_MOST])
    if len(zoned) > WARNINGS_MOST:
        yield f"So have {len(zoned) - WARNINGS_MOST} other ranges."


def _about_padded_privileges(privileges: list[str]) -> Iterator[str]:
    """Return warnings about privileges that look like others, or like none (POL-90)."""
    yield from (
        f"The privilege '{shorten_text(privilege)}' is blank, or begins or ends with a blank: no other request uses it."
        for privilege in privileges[:WARNINGS_MOST]
    )
    if len(privileges) > WARNINGS_MOST:
        yield f"So are {len(privileges) - WARNINGS_MOST} other privileges."


def _about_omitted(omitted: list[str]) -> Iterator[str]:
    """Return warnings about annotations whose values were left out, perhaps since YAML reads them as something else."""
    yield from (
        f"The annotation {name} is empty. In YAML # begins a comment and & an anchor: put quotes around"
        " a text that begins so."
        for name in omitted[:WARNINGS_MOST]
    )
    if len(omitted) > WARNINGS_MOST:
        yield f"So are {len(omitted) - WARNINGS_MOST} other annotations."


_Located = Reference | Grant | Revoke | Permit | Deny


def _byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8"))


def _resolve_path(path: str, name: Reference) -> str:
    climb = resolve_parents(path)
    if climb is None:
        raise _refusal_at(f"Invalid relative reference: {shorten_text(path)}", name)
    return climb


def _refusal_at(message: str, name: Reference) -> PolicyInvalid:
    return PolicyInvalid(message, name.line, name.column, bare=True)


def refuse_deletions(mode: LoadMode, resolved: ResolvedPolicy) -> None:
    """Refuse with ``InvalidParameter`` to remove anything by ``APPEND`` (POL-42)."""
    if mode is LoadMode.APPEND and resolved.deletes:
        raise InvalidParameter("policy_text", "may not contain deletion statements", "validation_failed")


def find_missing(resolved: ResolvedPolicy, existing: Container[str]) -> Iterator[PolicyInvalid]:
    """Return a refusal for each reference to what doesn't exist, in the order of the document."""
    return _not_found_refusals(resolved, (full for full in resolved.references if full not in existing))


def list_required(mode: LoadMode, resolved: ResolvedPolicy, present: PresentRows) -> list[str]:
    """Return what must exist after a load that replaces a policy: its references, and records that may be deleted."""
    if mode is not LoadMode.REPLACE:
        return []
    return [*resolved.references, *_declared_deletable(resolved, present)]


def find_lost(resolved: ResolvedPolicy, present: PresentRows, existing: Container[str]) -> Iterator[PolicyInvalid]:
    """Return a refusal for each record that must be kept and is gone after the load: deleted with one that is left out."""
    yield from find_missing(resolved, existing)
    for full in _declared_deletable(resolved, present):
        if full not in existing:
            yield PolicyInvalid(
                f"{describe_id(full)} would be deleted with its owner or its policy, which the document drops"
            )


def _declared_deletable(resolved: ResolvedPolicy, present: PresentRows) -> Iterator[str]:
    """Return the records that the document declares and doesn't delete, but that may be deleted with those it leaves out:
    those that another policy recorded, and policies that own themselves.
    """
    declared = {row.resource for row in resolved.declared.resources}.difference(resolved.removals.resources)
    foreign = (row.resource for row in present.foreign.resources)
    own = (row.resource for row in resolved.declared.resources if row.owner == row.resource)
    return (full for full in dict.fromkeys((*foreign, *own)) if full in declared)


def _not_found_refusals(resolved: ResolvedPolicy, references: Iterable[str]) -> Iterator[PolicyInvalid]:
    for full in references:
        message = f"{describe_id(full)} not found in account '{resolved.policy.account}'"
        yield PolicyInvalid(message, *resolved.references[full], bare=True)

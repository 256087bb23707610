"""Rows that policy records, and the values that loads read and change; every id is a full one, ``account:kind:identifier``.

Rows are named tuples of plain text: a policy load makes hundreds of thousands of them, and sets of tuples are compared in C.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

import attrs

from svc.model.names import RoleName
from svc.model.query_results import Sealed


class ResourceRow(NamedTuple):
    """A resource and the role that owns it. Kinds in ``names.ROLE_KINDS`` have a role of the same id."""

    resource: str
    owner: str


class MembershipRow(NamedTuple):
    """A role, a direct member of it, and how the membership came about; ``ownership`` rows follow from ``owner``."""

    role: str
    member: str
    ownership: bool
    admin_option: bool


class PermissionRow(NamedTuple):
    """A privilege on a resource that a role holds."""

    resource: str
    privilege: str
    role: str


class AnnotationRow(NamedTuple):
    """A named text on a resource."""

    resource: str
    name: str
    value: str


class RestrictionRow(NamedTuple):
    """A network from which a user or host may log in, in CIDR notation; a role without any may from everywhere."""

    role: str
    cidr: str


@attrs.frozen
class Rows:
    """A set of rows of every sort; the order doesn't matter."""

    resources: tuple[ResourceRow, ...] = ()
    memberships: tuple[MembershipRow, ...] = ()
    permissions: tuple[PermissionRow, ...] = ()
    annotations: tuple[AnnotationRow, ...] = ()
    restrictions: tuple[RestrictionRow, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.resources or self.memberships or self.permissions or self.annotations or self.restrictions)

    def merge_with(self, other: Rows) -> Rows:
        """Return these rows and those of another set."""
        return Rows(
            (*self.resources, *other.resources),
            (*self.memberships, *other.memberships),
            (*self.permissions, *other.permissions),
            (*self.annotations, *other.annotations),
            (*self.restrictions, *other.restrictions),
        )


@attrs.frozen
class PresentRows:
    """The stored rows that are relevant to one policy load.

    ``own`` are all rows that the policy recorded; ``foreign`` are rows with another recorder or none that share a key with a
    wanted one, or with a resource to be deleted. ``own`` has restrictions of wanted roles that the policy recorded.
    """

    own: Rows
    foreign: Rows


@attrs.frozen
class RowKeys:
    """The keys of rows of four sorts, and the roles whose restrictions are meant."""

    resources: tuple[str, ...]
    memberships: tuple[tuple[str, str, bool], ...]
    permissions: tuple[PermissionRow, ...]
    annotations: tuple[tuple[str, str], ...]
    restricted: tuple[str, ...]

    @property
    def count(self) -> int:
        """Return how many keys there are."""
        return sum(map(len, attrs.astuple(self, recurse=False)))


@attrs.frozen
class Removals:
    """Keys of rows to remove: resources of any policy, memberships and permissions of this one (POL-43, POL-44)."""

    resources: tuple[str, ...] = ()
    memberships: tuple[tuple[str, str], ...] = ()
    permissions: tuple[PermissionRow, ...] = ()


@attrs.frozen
class Changes:
    """The changes that a load makes; rows to ``update`` have a key that is present and a new value."""

    create: Rows = Rows()
    update: Rows = Rows()
    delete: Rows = Rows()


class RecordLimit(enum.StrEnum):
    """The limits of a record; the values are the names in ``limits.RecordLimits``."""

    ANNOTATIONS = "annotations"
    ANNOTATION_BYTES = "annotation_bytes"
    PERMISSIONS = "permissions"
    RESTRICTIONS = "restrictions"
    PUBLIC_KEYS = "public_keys"
    LAYERS = "layers"


@attrs.frozen
class PolicyVersion:
    """One load of a policy, for its history."""

    policy: RoleName
    text: str = attrs.field(repr=False)
    sha256: str
    loaded_by: RoleName
    client_ip: str


@attrs.frozen
class EffectiveQuery:
    """A query for a policy with all beneath it, from any recorder; for the root, the whole account.

    Resources of the kinds ``omitted_kinds`` don't count. ``depth``: how many more slashes an id may have than the policy's;
    with ``None`` any number. ``limit``: how many resources, annotations and permissions there may be together. ``viewer``:
    the reader, which gets only the kinds of resources that it doesn't see; ``None`` sees all. ``suffix`` and ``namesakes``:
    what may belong to a policy without lying beneath it, users whose ids end with ``suffix``, or go on after it with a
    hyphen, and full ids, beside those of what has the policy's id and a kind that policies made up.
    """

    policy: RoleName
    omitted_kinds: tuple[str, ...]
    depth: int | None
    limit: int
    suffix: str
    namesakes: tuple[str, ...]
    viewer: RoleName | None = None


@attrs.frozen
class EffectivePolicyRows:
    """The resources of a policy, itself among them, with their rows; of host factories, also the layers.

    ``around``: ids of policies whose ids are proper beginnings of the policy's path. ``public_keys``: those of the users
    among the resources, by the full ids of the keys. ``hidden``: the kinds of resources that the viewer doesn't see.
    """

    rows: Rows
    around: frozenset[str] = frozenset()
    public_keys: Mapping[str, Sealed] = attrs.field(factory=dict, repr=False)
    hidden: tuple[str, ...] = ()


@attrs.frozen
class Excess:
    """A policy holds more than may be read at once: about ``value`` where ``limit`` is the most, counted in ``unit``."""

    value: int
    limit: int
    unit: str = "objects"


@attrs.frozen
class RecordedOwner:
    """The owner of a resource, and the policy that recorded it, as they stand in a transaction."""

    owner: str
    policy: str | None


@attrs.frozen
class Surroundings:
    """Resources that a load concerns, and the first so many rows that name one of them, for each resource, sort and end."""

    recorded_owners: Mapping[str, RecordedOwner]
    rows: Rows


class Side(enum.StrEnum):
    """The direction in which access is followed from a role or a resource."""

    MEMBERS = "members"  #: from a role: memberships of others in it
    HELD = "held"  #: from a role: its own memberships
    GRANTED = "granted"  #: from a role: what it owns, and what is permitted to it
    GIVEN = "given"  #: from a resource: its owner, and what is permitted on it

"""What policy records, and what loads of it read and change; every id is a full one, ``account:kind:identifier``.

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
    """A range of addresses from which a user or host may log in, in CIDR notation; who has none may from everywhere."""

    role: str
    cidr: str


@attrs.frozen
class Rows:
    """A set of rows of every sort, in no order that matters."""

    resources: tuple[ResourceRow, ...] = ()
    memberships: tuple[MembershipRow, ...] = ()
    permissions: tuple[PermissionRow, ...] = ()
    annotations: tuple[AnnotationRow, ...] = ()
    restrictions: tuple[RestrictionRow, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.resources or self.memberships or self.permissions or self.annotations or self.restrictions)


@attrs.frozen
class Present:
    """What the store holds that bears on one policy load.

    ``own`` are all rows recorded by the policy; ``foreign`` the rows that share a key with a wanted one, or with a resource
    to be deleted, but were recorded by another policy or by none. Restrictions are not recorded: ``own`` has those of roles
    that are wanted and that the policy recorded, ``foreign`` none.
    """

    own: Rows
    foreign: Rows


@attrs.frozen
class Removals:
    """What a document takes away expressly, by keys: resources by whomever they were recorded, memberships (role, member)
    and permissions where the policy itself recorded them (POL-43, POL-44).
    """

    resources: tuple[str, ...] = ()
    memberships: tuple[tuple[str, str], ...] = ()
    permissions: tuple[PermissionRow, ...] = ()


@attrs.frozen
class Changes:
    """What a load has to do; rows to ``update`` have a key that is present and another value."""

    create: Rows = Rows()
    update: Rows = Rows()
    delete: Rows = Rows()


class RecordLimit(enum.StrEnum):
    """What a record may carry only so much of; the values are the names in ``limits.RecordLimits``."""

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
    """What to read of a policy, with all beneath it, whoever recorded it; of the root, the whole account.

    Only resources of ``kinds`` count. ``depth``: how many more slashes an id may have than the policy's, ``None`` for any
    number; that of the root has none. ``limit``: how many resources, annotations and permissions there may be together.
    ``viewer``: who reads it, and is told no more of resources that he doesn't see than their kinds; ``None`` sees all.
    ``suffix`` and ``namesakes`` tell what may belong to a policy other than the root without lying beneath it: users whose
    ids end with ``suffix``, or go on after it with a hyphen, and things of these full ids.
    """

    policy: RoleName
    kinds: tuple[str, ...]
    depth: int | None
    limit: int
    suffix: str
    namesakes: tuple[str, ...]
    viewer: RoleName | None = None


@attrs.frozen
class Effective:
    """What a policy holds: its resources, itself among them, and the annotations, permissions, members and restrictions that
    these have; of host factories, also their memberships in layers.

    ``around``: ids of those policies whose ids are proper beginnings of the policy's path. ``public_keys``: those of the
    users among the resources, by the full ids of the keys. ``hidden``: the kinds of the resources that the viewer doesn't
    see, one for each; nothing else is told of these.
    """

    rows: Rows
    around: frozenset[str] = frozenset()
    public_keys: Mapping[str, Sealed] = attrs.field(factory=dict, repr=False)
    hidden: tuple[str, ...] = ()


@attrs.frozen
class Excess:
    """A policy holds more than may be read at once: ``value`` where ``limit`` is the most, counted in ``unit``.

    Nothing is counted much further than the limit of all limits.
    """

    value: int
    limit: int
    unit: str = "objects"


@attrs.frozen
class Seen:
    """A resource as it stands in a transaction: who owns it, and who recorded it."""

    owner: str
    policy: str | None


@attrs.frozen
class Surroundings:
    """What stands around resources that a load concerns: themselves, and a sample of the rows that name one of them.

    The sample has, for each resource and each sort of rows and end, the first so many.
    """

    seen: Mapping[str, Seen]
    rows: Rows

"""The meaning of a document: the rows that it declares, the rows that it removes, and the references of these.

Note [Products]. A grant names lists, and means each member with each role: 20 KiB of text can mean half a million rows. So
rows are counted and weighed while statements are resolved, and made on demand, after all references were found.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import attrs

from svc.model.names import ACTOR_KINDS, RoleName
from svc.model.policy_loads import MembershipRow, PermissionRow, Removals, RowKeys, Rows


class SourcePosition(NamedTuple):
    """A place in the document; both count from 1."""

    line: int
    column: int


class GrantProduct(NamedTuple):
    """Each of the roles to each of the members, with their admin options."""

    roles: Sequence[str]
    members: Sequence[tuple[str, bool]]

    def iter_rows(self) -> Iterable[tuple[str, tuple[str, bool]]]:
        """Return the product."""
        return itertools.product(self.roles, self.members)


class PermitProduct(NamedTuple):
    """Each of the privileges on each of the resources to each of the roles."""

    resources: Sequence[str]
    privileges: Sequence[str]
    roles: Sequence[str]

    def iter_rows(self) -> Iterable[PermissionRow]:
        """Return the product."""
        return itertools.starmap(PermissionRow, itertools.product(*self))


@attrs.frozen
class ResolvedPolicy:
    """The meaning of a document for ``policy``. Full ids come with the place of their first mention, in that order.

    ``declared`` are the rows of records: resources, memberships of their owners, annotations, restrictions. ``references``
    are the ids that the document names without declaring them, so they must exist. ``roles_granted`` and
    ``resources_permitted`` lie outside of the policy by their name, and are granted or revoked, or permitted, annotated,
    denied or deleted (see ``authority``). ``public_keys`` are texts by the full ids of their resources. ``deletes``: some
    statements remove something. ``related`` is how many grants and permissions the document makes or removes.
    """

    policy: RoleName
    declared: Rows
    references: Mapping[str, SourcePosition]
    roles_granted: Mapping[str, SourcePosition]
    resources_permitted: Mapping[str, SourcePosition]
    warnings: tuple[str, ...]
    public_keys: Mapping[str, str]
    deletes: bool
    related: int
    _granted: Sequence[GrantProduct]
    _permitted: Sequence[PermitProduct]
    _revoked: Sequence[GrantProduct]
    _denied: Sequence[PermitProduct]
    _deleted: Mapping[str, None]

    @functools.cached_property
    def rows(self) -> Rows:
        """The rows that the document declares (Note [Products]). A role granted twice is granted with the greater right."""
        grants: dict[tuple[str, str], bool] = {}
        for granted in self._granted:
            for role, (member, admin) in granted.iter_rows():
                grants[role, member] = admin or grants.get((role, member), False)
        return attrs.evolve(
            self.declared,
            memberships=(
                *self.declared.memberships,
                *(MembershipRow(role, member, False, admin) for (role, member), admin in grants.items()),
            ),
            permissions=tuple(dict.fromkeys(row for permitted in self._permitted for row in permitted.iter_rows())),
        )

    @functools.cached_property
    def removals(self) -> Removals:
        """The rows that the document removes (Note [Products])."""
        return Removals(
            tuple(self._deleted),
            tuple(dict.fromkeys((role, member) for revoked in self._revoked for role, (member, _) in revoked.iter_rows())),
            tuple(dict.fromkeys(row for denied in self._denied for row in denied.iter_rows())),
        )

    @functools.cached_property
    def row_keys(self) -> RowKeys:
        """The keys of all rows that are relevant to a load which doesn't replace the policy."""
        rows, removals = self.rows, self.removals
        declared = [row.resource for row in rows.resources]
        resources: Iterable[str] = (
            *(*declared, *removals.resources, *self.roles_granted, *self.resources_permitted),
            *(row.role for row in rows.memberships),
            *(row.resource for row in (*rows.permissions, *removals.permissions)),
            *(row.resource for row in rows.annotations),
            *(role for role, _ in removals.memberships),
        )
        return RowKeys(
            tuple(dict.fromkeys(resources)),
            (
                *(row[:3] for row in rows.memberships),
                *((role, member, False) for role, member in removals.memberships),
            ),
            (*rows.permissions, *removals.permissions),
            tuple(row[:2] for row in rows.annotations),
            tuple(name for name in declared if name.split(":", 2)[1] in ACTOR_KINDS),
        )

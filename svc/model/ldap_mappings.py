"""Mappings of LDAP authenticators: names that a directory has for people and their groups, and the roles that they give.

Note [Said by nobody]. A mapped membership is one that exists only because of mappings. One that policy or an operator made
isn't mapped, though a mapping would give it too; and if one of them grants it later, it is theirs from then on. So their
memberships stay when mappings are removed, and mapped ones are removed with the mappings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

import attrs
from zope.interface import Interface

from svc.model.events import EventBatch
from svc.model.names import ResourceName, RoleName
from svc.model.ports import IPolicyTransaction

T = TypeVar("T")

#: The kinds of names.
GROUP: Final = "group"
USER: Final = "user"

#: Names of each kind that an authenticator maps at most, and roles that a name is mapped to.
NAMES_MOST: Final = 1000
ROLES_MOST: Final = 50

#: Bytes of a name's key and the full ids of webservice and role, together: with a member's they must fit into a page of an
#: index.
BYTES_MOST: Final = 1400


@attrs.frozen(order=True)
class DirectoryName:
    """A name of a directory's: its ``kind``, and its ``key``, by which names are compared."""

    kind: str
    key: str


@attrs.frozen
class LdapMapping:
    """A mapping: the name as it was written, and the full ids of its roles, in order."""

    name: str
    roles: tuple[str, ...]


class MappedRole(NamedTuple):
    """A role that a mapping gives to a member, or has given.

    ``given``: it does now. ``made``: the membership exists because of it, perhaps among others. ``member``: the grant
    exists. ``mapped``: it exists because of mappings alone. ``elsewhere``: because of another authenticator's.
    """

    name: DirectoryName
    role: str
    given: bool
    made: bool
    member: bool
    mapped: bool
    elsewhere: bool


@attrs.frozen
class MappingDifference:
    """The difference between memberships as mappings give them and as they are.

    Mappings to roles that begin or cease to hold, and the full ids of the roles that their member gains and loses by that.
    """

    begins: tuple[tuple[DirectoryName, str], ...] = ()
    ceases: tuple[tuple[DirectoryName, str], ...] = ()
    gains: tuple[str, ...] = ()
    loses: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.begins or self.ceases)

    @classmethod
    def from_rows(cls, rows: Iterable[MappedRole]) -> MappingDifference:
        """Compare what mappings of one authenticator give a member, and have given (Note [Said by nobody])."""
        every = sorted(rows)
        begins = tuple(
            (row.name, row.role) for row in every if row.given and not row.made and (row.mapped or not row.member)
        )
        ceases = tuple((row.name, row.role) for row in every if row.made and not row.given)
        staying = {row.role for row in every if (row.made and row.given) or row.elsewhere} | {role for _, role in begins}
        gains = {row.role for row in every if row.given and not row.member}
        loses = {role for _, role in ceases} - staying
        return cls(begins, ceases, tuple(sorted(gains)), tuple(sorted(loses)))


@attrs.frozen
class MappingPreview:
    """The changes that a login would make, the names that are mapped, and whether its role could authenticate after it."""

    difference: MappingDifference
    names: tuple[DirectoryName, ...]
    may_authenticate: bool


#: Returns the events of what a member gains and loses, for the transaction.
TrailOf = Callable[[MappingDifference], EventBatch | None]


class IMappingTransaction(IPolicyTransaction):
    """A transaction in which mappings change."""

    async def lock_mappings(webservice: ResourceName) -> None:
        """Wait until no other transaction changes the mappings of an authenticator, and keep others out."""

    async def read_mapping(webservice: ResourceName, name: DirectoryName) -> LdapMapping | None:
        """Return what a name is mapped to, ``None`` for nothing."""

    async def count_names(webservice: ResourceName, kind: str) -> int:
        """Return how many names of a kind are mapped."""

    async def set_mapping(webservice: ResourceName, name: DirectoryName, said: str, roles: Sequence[str]) -> None:
        """Map a name, written as ``said``, to these roles and no others; with none, the mapping is removed.

        Memberships that followed only from roles that are left out are removed.
        """

    async def list_lost_memberships(
        webservice: ResourceName, name: DirectoryName, roles: Collection[str]
    ) -> list[tuple[str, str]]:
        """Return roles and members, in order, whose membership follows from a name's mapping to these roles alone."""


class ILdapMappings(Interface):
    """The store of mappings. Errors: see ``ports``."""

    async def transact(work: Callable[[IMappingTransaction], Awaitable[T]]) -> T:
        """Run ``work`` in one transaction, as ``IPolicies.transact`` does."""

    async def read_mapping(webservice: ResourceName, name: DirectoryName) -> LdapMapping | None:
        """Return what a name is mapped to, ``None`` for nothing."""

    async def list_names(webservice: ResourceName, kind: str) -> list[str]:
        """Return the names of a kind that are mapped, as they were written, in the order of their keys."""

    async def list_kinds(webservice: ResourceName) -> frozenset[str]:
        """Return the kinds of the names that are mapped."""

    async def preview_changes(webservice: ResourceName, member: RoleName, names: Sequence[DirectoryName]) -> MappingPreview:
        """Return what ``apply_mappings`` would change."""

    async def apply_mappings(
        webservice: ResourceName, member: RoleName, names: Sequence[DirectoryName], trail: TrailOf
    ) -> tuple[MappingDifference, bool]:
        """Bring a member's mapped memberships in line with the mappings of these names.

        All in one transaction, with the events. Return what changed, and whether the member may authenticate now. A member
        that doesn't exist has no change.
        """

"""Mappings of LDAP authenticators: names that a directory has for people and their groups, and the roles that they give.

Note [Granted by nobody]. A mapped membership is one that exists only because of mappings. One that policy or an operator
made isn't mapped, though a mapping would give it too; and if one of them grants it later, it is theirs from then on. So
their memberships stay when mappings are removed, and mapped ones are removed with the mappings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import attrs

from svc.model.events import EventBatch

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
        """Compare what mappings of one authenticator give a member, and have given (Note [Granted by nobody])."""
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

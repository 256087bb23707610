"""The readings of a store that decisions about access need."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from zope.interface import Interface

from svc.model.access import AccessTarget, DirectAccess, Frontier, PathStep
from svc.model.names import RoleName


class IAccess(Interface):
    """Memberships, owners and permissions, read piece by piece. All texts are in the order of their bytes."""

    async def list_direct_holders(target: AccessTarget, start: str, limit: int) -> list[PathStep]:
        """Return the owner, and the roles that are permitted it themselves, in order, from the id ``start`` on."""

    async def filter_direct_holders(target: AccessTarget, roles: Collection[str]) -> list[PathStep]:
        """Return those of ``roles`` that ``list_direct_holders`` has."""

    async def list_direct_members(asked: Sequence[tuple[str, str]], limit: int) -> list[tuple[str, str]]:
        """Return pairs of a role and a direct member of it, for pairs of a role of one account and the id to begin with.

        They are in the order of ``asked``, then of the members, ``limit`` at most. A pair of which there are two
        memberships, an ownership and a grant, is there twice.
        """

    async def list_direct_memberships(asked: Sequence[tuple[str, str]], limit: int) -> list[tuple[str, str]]:
        """Return pairs of a role and one that it is a direct member of; otherwise as ``list_direct_members``."""

    async def filter_reached_earlier(candidates: Sequence[tuple[str, str]], base: Frontier, steps: int) -> frozenset[str]:
        """Return those roles, of pairs of a role and one of ``steps`` memberships from the base, of which it is a member,
        that are no more than ``steps`` memberships from the base, or one more through a role whose id comes before.
        """

    async def find_nearest_role(role: str, base: Frontier, steps: int) -> str | None:
        """Return the first role, by id, that ``role`` is a direct member of, and that is at most ``steps`` memberships from
        the base; ``None`` if there is none.
        """

    async def count_holders(target: AccessTarget, *, direct: bool) -> int:
        """Return how many roles ``direct`` has, with all that hold them unless only ``direct`` ones count."""

    async def list_rights(resources: Sequence[str], privileges: Sequence[str], roles: Collection[str]) -> list[DirectAccess]:
        """Return what each of ``roles`` has on each of the resources by itself."""

    async def list_resources(account: str, after: str, limit: int) -> list[str]:
        """Return the full ids of an account's resources, in order, from behind one on, seen or not."""

    async def filter_visible(caller: RoleName, resources: Collection[str]) -> frozenset[str]:
        """Return those of the resources, by their full ids, that the caller sees (ROLE-4)."""

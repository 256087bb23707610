"""Single changes of policy, made without a document: the port through which they are stored.

Its errors are those of ``ports``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from zope.interface import Interface

from svc.model.names import RoleName
from svc.model.policy_rows import AnnotationRow
from svc.model.ports import IPolicyTransaction

T = TypeVar("T")


class IEditTransaction(IPolicyTransaction):
    """A transaction of a policy, in which single rows can be changed, whatever policy recorded them."""

    async def list_beneath(policy: RoleName, most: int) -> list[str] | None:
        """Return the resources that have the policy's id, or whose ids begin with its id and a slash, in order.

        Users and public keys, whose ids don't show a policy, are not among them. ``None`` when they are more than ``most``.
        """

    async def remove_grant(role: RoleName, member: RoleName) -> bool:
        """Revoke a role from a direct member, and return whether there was a grant; ownership stays."""

    async def set_annotations(policy: RoleName, rows: Sequence[AnnotationRow]) -> None:
        """Set annotations of resources that exist; those of new names are recorded by ``policy``."""

    async def remove_annotation(resource: str, name: str) -> bool:
        """Remove an annotation, and return whether there was one."""

    async def switch_authenticator(webservice: str, on: bool) -> None:
        """Switch the authenticator of a webservice that exists on or off."""


class IPolicyEdits(Interface):
    """The store of single changes."""

    async def transact(work: Callable[[IEditTransaction], Awaitable[T]]) -> T:
        """Run ``work`` in one transaction, as ``IPolicies.transact`` does."""

    async def filter_readable(viewer: RoleName, resources: Sequence[str]) -> list[str]:
        """Return those of the resources, in order, that the viewer owns, inspects, or may ``read``."""

    async def filter_existing(resources: Sequence[str]) -> frozenset[str]:
        """Return those of the resources that exist."""

    async def read_switches(webservices: Sequence[str]) -> dict[str, bool]:
        """Return whether authenticators are switched on, of those that ever were switched on or off."""

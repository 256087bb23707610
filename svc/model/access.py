"""Ways: the chains of memberships by which roles have privileges.

A way goes from a role to a resource: the role is a member of another, that one of another, and the last one owns the
resource or is permitted a privilege on it. Its length is the number of these roles.
"""

from __future__ import annotations

import enum
from typing import Final

import attrs

from svc.model.names import ResourceName


class StepKind(enum.StrEnum):
    """The kind of a step on a way."""

    MEMBER = "member"
    OWNER = "owner"
    PERMITTED = "permitted"


@attrs.frozen
class PathStep:
    """A role on a way, by its full id, and its next step: a membership in the next role, or what it has on the resource.

    ``role`` is ``None`` for one or more roles in a row that are not named, since the reader doesn't see them.
    """

    role: str | None
    kind: StepKind


AccessPath = tuple[PathStep, ...]


@attrs.frozen
class PrivilegeHolder:
    """A role that has a privilege on a resource, and a shortest way to it."""

    role: str
    path: AccessPath


@attrs.frozen
class HoldersCursor:
    """Where a list of holders continues: at ways of ``length``, with the ids ``start``, the one nearest to the resource
    first.

    ``found``: whether there was a holder with a way of this length before.
    """

    length: int = 1
    found: bool = False
    start: tuple[str, ...] = ()


@attrs.frozen
class HoldersPage:
    """Some of the holders of a privilege, those with the shortest ways first; ``after`` is ``None`` after the last one."""

    holders: tuple[PrivilegeHolder, ...]
    after: HoldersCursor | None


@attrs.frozen
class AccessCheckResult:
    """Whether a role has a privilege on a resource.

    ``path``: a shortest one, if it has; ``None`` as well if none was found within the limits. ``missing``, if it hasn't: the
    roles of which each has it, so that a membership in one would be enough. ``privileges``, if it hasn't: those that are
    permitted to it, or to roles that it holds. Both are in order.
    """

    allowed: bool
    path: AccessPath | None = None
    missing: tuple[PathStep, ...] = ()
    privileges: tuple[str, ...] = ()


@attrs.frozen
class ReachableResource:
    """A resource, those of the privileges in question that a role has on it, and a shortest way to one of them."""

    resource: str
    privileges: tuple[str, ...]
    path: AccessPath | None


@attrs.frozen
class ReachableResourcesPage:
    """Some of the resources that a role reaches, ordered by id; ``after`` is the id after which the list continues."""

    resources: tuple[ReachableResource, ...]
    after: str | None


@attrs.frozen
class AccessTarget:
    """The target of ways: one of these privileges on a resource."""

    resource: ResourceName
    privileges: tuple[str, ...]


@attrs.frozen
class SearchFrontier:
    """Roles from which the rest of each way is known: these ``roles``, or those that ``direct`` has of the ``target``."""

    target: AccessTarget
    roles: frozenset[str] | None = None


@attrs.frozen
class DirectAccess:
    """A right that a role has on a resource directly: it owns it, or is permitted one of the privileges in question."""

    resource: str
    role: str
    privilege: str | None


def describe_path(way: AccessPath) -> str:
    """Return a way in words, after its first role as the subject: "is a member of group:ops, which is permitted it".

    Roles are named without their account; names come from outside and are not escaped.
    """
    words = ""
    for number, step in enumerate(way):
        several = step.role is None
        if number:
            words += "roles that you don't see, which " if step.role is None else f"{step.role.partition(':')[2]}, which "
        words += _VERBS[step.kind][several]
    return words


def pluralize_kind(kind: str, count: int) -> str:
    """Return the word for one or several things of a kind: ``host factory``, ``host factories``."""
    word = kind.replace("_", " ")
    if count == 1:
        return word
    return f"{word[:-1]}ies" if word.endswith(("cy", "ry")) else f"{word}s"


#: Each for one role, and for several.
_VERBS: Final = {
    StepKind.MEMBER: ("is a member of ", "are members of "),
    StepKind.OWNER: ("owns it", "own it"),
    StepKind.PERMITTED: ("is permitted it", "are permitted it"),
}

"""Ways by which roles come to privileges.

A way goes from a role to a resource: the role is a member of another, that one of another, and the last one owns the
resource or is permitted a privilege on it. Its length is the number of these roles.
"""

from __future__ import annotations

import enum
from typing import Final

import attrs

from svc.model.names import ResourceName


class By(enum.StrEnum):
    """What takes one step further on a way."""

    MEMBER = "member"
    OWNER = "owner"
    PERMITTED = "permitted"


@attrs.frozen
class WayStep:
    """A role on a way, by its full id, and what takes it on: a membership in the next one, or what it has on the resource.

    ``role`` is ``None`` for one or more roles in a row that are not told, since the reader doesn't see them.
    """

    role: str | None
    by: By


Way = tuple[WayStep, ...]


@attrs.frozen
class PrivilegeHolder:
    """A role that has a privilege on a resource, and a shortest way to it."""

    role: str
    way: Way


@attrs.frozen
class Position:
    """Where a list of holders goes on: at ways of ``length``, with the ids ``start``, that nearest to the resource first.

    ``found``: whether there was a holder with a way of this length before.
    """

    length: int = 1
    found: bool = False
    start: tuple[str, ...] = ()


@attrs.frozen
class HoldersPage:
    """Some of the holders of a privilege, those with the shortest ways first; ``after`` is ``None`` behind the last one."""

    holders: tuple[PrivilegeHolder, ...]
    after: Position | None


@attrs.frozen
class AccessVerdict:
    """Whether a role has a privilege on a resource.

    ``way``: a shortest one, if it has; ``None`` as well if none was found within the limits. ``missing``, if it hasn't: the
    roles of which each has it, so that a membership in one would be enough. ``privileges``, if it hasn't: those that are
    permitted to it, or to roles that it holds. Both are in order.
    """

    can: bool
    way: Way | None = None
    missing: tuple[WayStep, ...] = ()
    privileges: tuple[str, ...] = ()


@attrs.frozen
class ReachedResource:
    """A resource, those of the privileges asked about that a role has on it, and a shortest way to one of them."""

    resource: str
    privileges: tuple[str, ...]
    way: Way | None


@attrs.frozen
class ReachPage:
    """Some of the resources that a role reaches, ordered by id; ``after`` is the id behind which the list goes on."""

    resources: tuple[ReachedResource, ...]
    after: str | None


@attrs.frozen
class Target:
    """What ways lead to: one of these privileges on a resource."""

    resource: ResourceName
    privileges: tuple[str, ...]


@attrs.frozen
class Base:
    """Roles from which the rest of each way is known: these ``roles``, or those that ``direct`` has of the ``target``."""

    target: Target
    roles: frozenset[str] | None = None


@attrs.frozen
class Given:
    """What a role has on a resource by itself: it owns it, or has a privilege of those asked about."""

    resource: str
    role: str
    privilege: str | None


def in_words(way: Way) -> str:
    """Return what a way says of its first role: "is a member of group:ops, which is permitted it".

    Roles are called without their account, by names from outside as they are.
    """
    words = ""
    for number, step in enumerate(way):
        several = step.role is None
        if number:
            words += "roles that you don't see, which " if step.role is None else f"{step.role.partition(':')[2]}, which "
        words += _VERBS[step.by][several]
    return words


def in_number(kind: str, count: int) -> str:
    """Return what one or several things of a kind are called: ``host factory``, ``host factories``."""
    word = kind.replace("_", " ")
    if count == 1:
        return word
    return f"{word[:-1]}ies" if word.endswith(("cy", "ry")) else f"{word}s"


#: By whether they are several roles.
_VERBS: Final = {
    By.MEMBER: ("is a member of ", "are members of "),
    By.OWNER: ("owns it", "own it"),
    By.PERMITTED: ("is permitted it", "are permitted it"),
}

"""The statements of a policy document, with ids as they are written, relative to their ``scope``. Places count from 1."""

from __future__ import annotations

from typing import NamedTuple

import attrs


@attrs.frozen(eq=False)
class Scope:
    """The body of a policy whose id is written ``id``, inside ``outer``; ``None`` stands for the outermost."""

    outer: Scope | None
    id: str


class Reference(NamedTuple):
    """A role or resource as a document names it, or its ``automatic`` role; the ``id`` of its policy's own is empty."""

    kind: str
    id: str
    account: str | None
    scope: Scope | None
    line: int
    column: int
    automatic: str | None = None


class Member(NamedTuple):
    """A role that is granted another, and whether it may grant it further."""

    role: Reference
    admin: bool


class Annotation(NamedTuple):
    """A text on a record; ``omitted``: nothing was written where its value stands."""

    name: str
    value: str
    omitted: bool = False


class PublicKey(NamedTuple):
    """A public key of a user: its name, the line ``algorithm key name`` with single blanks, and whether SSH takes it."""

    name: str
    line: str
    is_valid: bool


@attrs.frozen
class Record:
    """The declaration of a thing. ``properties`` are annotations whose names want the dialect's prefix.

    ``restrictions`` are as ``ranges.normalize_cidr`` writes them. ``layers`` are a host factory's, ``None`` where it has no
    such attribute, as is ``factory_role``, which is obsolete. ``role_alone``: it is a ``!role`` of a kind that policies made
    up, with only its name; a ``!resource`` of the same name may be beside it.
    """

    name: Reference
    owner: Reference | None = None
    annotations: tuple[Annotation, ...] = ()
    properties: tuple[Annotation, ...] = ()
    restrictions: tuple[str, ...] = ()
    public_keys: tuple[PublicKey, ...] = ()
    layers: tuple[Reference, ...] | None = None
    factory_role: Reference | None = None
    role_alone: bool = False


@attrs.frozen
class Grant:
    """Each member is granted each role."""

    roles: tuple[Reference, ...]
    members: tuple[Member, ...]
    line: int
    column: int


@attrs.frozen
class Revoke:
    """Each member loses each role, where the policy itself had granted it."""

    roles: tuple[Reference, ...]
    members: tuple[Member, ...]
    line: int
    column: int


@attrs.frozen
class Permit:
    """Each role is given each privilege on each resource."""

    roles: tuple[Reference, ...]
    privileges: tuple[str, ...]
    resources: tuple[Reference, ...]
    line: int
    column: int


@attrs.frozen
class Deny:
    """Each role loses each privilege on each resource, where the policy itself had given it."""

    roles: tuple[Reference, ...]
    privileges: tuple[str, ...]
    resources: tuple[Reference, ...]
    line: int
    column: int


@attrs.frozen
class Delete:
    """Records are deleted with all that depends on them, including what others recorded."""

    records: tuple[Reference, ...]
    line: int
    column: int


Statement = Record | Grant | Revoke | Permit | Deny | Delete

"""What a policy document says, statement by statement, with names as they are written.

An id is relative to the policy in whose body it stands, its ``scope``. Places count from 1.
"""

from __future__ import annotations

from typing import NamedTuple

import attrs


@attrs.frozen(eq=False)
class Scope:
    """The body of a policy whose id is written ``id``, inside of ``outer``; ``None`` stands for the outermost."""

    outer: Scope | None
    id: str


class Reference(NamedTuple):
    """A role or resource as a document names it; ``id`` is empty for the thing that is called like its policy.

    ``automatic``: what is meant is not the thing, but its automatic role of that name.
    """

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
    """A text on a record."""

    name: str
    value: str


class PublicKey(NamedTuple):
    """A public key of a user: its name, and the whole line ``algorithm key name``, parted by single blanks.

    ``sound``: it is one that SSH takes.
    """

    name: str
    line: str
    sound: bool


@attrs.frozen
class Record:
    """The declaration of a thing. ``properties`` are annotations whose names want the dialect's prefix.

    ``restrictions`` are ranges of addresses as ``ranges.cidr`` writes them. ``layers`` and ``factory_role`` are a host
    factory's; hosts that it makes become members of its layers, and its role means nothing any more.
    """

    name: Reference
    owner: Reference | None = None
    annotations: tuple[Annotation, ...] = ()
    properties: tuple[Annotation, ...] = ()
    restrictions: tuple[str, ...] = ()
    public_keys: tuple[PublicKey, ...] = ()
    layers: tuple[Reference, ...] = ()
    factory_role: Reference | None = None


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
    """Records are deleted with all that goes with them, whoever recorded them."""

    records: tuple[Reference, ...]
    line: int
    column: int


Statement = Record | Grant | Revoke | Permit | Deny | Delete

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
    """A role or resource as a document names it; ``id`` is empty for the thing that is called like its policy."""

    kind: str
    id: str
    account: str | None
    scope: Scope | None
    line: int
    column: int


class Member(NamedTuple):
    """A role that is granted another, and whether it may grant it further."""

    role: Reference
    admin: bool


class Annotation(NamedTuple):
    """A text on a record."""

    name: str
    value: str


@attrs.frozen
class Record:
    """The declaration of a thing. ``properties`` are annotations whose names want the dialect's prefix."""

    name: Reference
    owner: Reference | None = None
    annotations: tuple[Annotation, ...] = ()
    properties: tuple[Annotation, ...] = ()


@attrs.frozen
class Grant:
    """Each member is granted each role."""

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


Statement = Record | Grant | Permit

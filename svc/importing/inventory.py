"""The inventory of another server, whichever it is: records, memberships, permissions, and what can't be moved.

A source is an object with these methods and attributes; everything is a coroutine of asyncio over
``svc.workload.requester.Requester``, as the commands are, and no source writes anything to its server:

``place``
    A text: the address and the account or namespace, for messages and for the file by which a load is gone on with.
``async read_inventory(progress)``
    Returns the whole :class:`Inventory`. ``progress(what, done, total)`` is called as often as it likes with a text, such as
    ``"roles"``, a count and a count or ``None``.
``read_values(variables)``
    An asynchronous iterator over :class:`Values` for these records of the inventory, each exactly once, in any order. It
    reads as it goes: no more than one batch of its server's is in memory. Of a variable that can't be read
    there is a note; a fault that ends all reading is raised as :class:`SourceStopped`.

Note [Ids]. Ids have no account, and are the source's own spelling. A source gives each an id that it would like in a target
of the dialect ``conjur``; the translation to ``native`` is the plan's. A source whose names don't fit ours (blanks at the
ends, NUL, too long) gives a proposed id, and says so by a note.

Note [Order]. Everything in an inventory is sorted, so that two runs give the same plan: so a load that was interrupted goes
on where it was. Owners and grants may form any graph, with cycles too where the source allows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import attrs

from svc.workload.faults import Untrusted

#: The callback that a source tells how far it is: of what, how many are done, and of how many, if that is known.
Progress = Callable[[str, int, int | None], None]

#: The owner of what nobody else owns.
ADMIN_ID: Final = "admin"


class SourceStopped(Exception):
    """The source can't be read on: its message says what came, for a person, and ``remedy`` how to go on.

    Nothing that was read before is wrong. No message holds a token, a key or a value.
    """

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.remedy = remedy


def refuse_certificate(fault: Untrusted) -> SourceStopped:
    """Return the fault of a source whose certificate was refused, with the option that names its authority."""
    if fault.why.startswith("TLS failed: ") and "certificate" not in fault.why:
        return SourceStopped(str(fault), "see the address and port of the source, then run the same command again")
    return SourceStopped(
        f"no answer from {fault.url}: its certificate is not to be trusted ({fault.why})",
        "name the PEM file of the authority that signed it by --source-ca-file",
    )


@attrs.frozen(order=True)
class RecordId:
    """The kind and the identifier of a role or resource, without the account: ``host``, ``ci/runner``."""

    kind: str
    identifier: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.identifier}"


@attrs.frozen
class Record:
    """A role or resource. Attributes that its kind doesn't have are empty."""

    id: RecordId
    #: ``None``: the admin of the account that it is moved to.
    owner: RecordId | None = None
    #: The identifier of the policy that declares it, ``root`` for the outermost; ``None`` where none does.
    policy: str | None = None
    annotations: Mapping[str, str] = attrs.field(factory=dict)
    #: Networks that a user or host may come from, as CIDR; none: from everywhere.
    restricted_to: tuple[str, ...] = ()
    #: A user's public keys: their names and texts.
    public_keys: tuple[tuple[str, str], ...] = ()
    #: Whether a user or host could log in by an API key (or a secret like it) there, and so wants a new one here.
    had_api_key: bool = False
    #: The layers of a host factory.
    layers: tuple[RecordId, ...] = ()
    #: The numbers of a variable's readable versions in the source, oldest first; empty: it has no value.
    versions: tuple[int, ...] = ()


@attrs.frozen(order=True)
class Grant:
    """A membership; ``admin``: the member may grant it on. ``policy`` as in :class:`Record`."""

    role: RecordId
    member: RecordId
    admin: bool = False
    policy: str | None = attrs.field(default=None, eq=False, order=False)


@attrs.frozen(order=True)
class Permission:
    """A role's privilege on a resource. Privileges are any text; ``execute`` reads values, ``update`` sets them."""

    role: RecordId
    privilege: str
    resource: RecordId
    policy: str | None = attrs.field(default=None, eq=False, order=False)


@attrs.frozen(order=True)
class Authenticator:
    """An authenticator: its type, such as ``authn-jwt``, its service id, and whether it was enabled there.

    Its settings are variables among the records, below the policy of the authenticator.
    """

    type: str
    service_id: str | None
    #: ``None``: nobody could say.
    enabled: bool | None
    #: The webservice that stands for it.
    webservice: RecordId | None = None

    @property
    def name(self) -> str:
        """Return its name, such as ``authn-jwt/ci``."""
        return self.type if self.service_id is None else f"{self.type}/{self.service_id}"


class NoteKind(StrEnum):
    """How a note counts."""

    #: Something can't be moved, and is missing afterwards.
    LEFT_OUT = "left out"
    #: Something is moved, and is other than it was.
    CHANGED = "changed"
    #: The user couldn't see it: it is neither moved nor compared, and there may be more.
    UNSEEN = "not seen"
    #: Something is moved as it was, and somebody has to know or to do something.
    TO_KNOW = "to know"


@attrs.frozen(order=True)
class Note:
    """A line of the plan about what is not moved as it is: of what, why, and what to do."""

    kind: NoteKind
    what: str
    why: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.why}" + (f"; {self.remedy}" if self.remedy else "")


@attrs.frozen
class Version:
    """One version of a variable: its number in the source and its exact bytes."""

    number: int
    value: bytes = attrs.field(repr=False)


@attrs.frozen
class Values:
    """The versions of one variable, oldest first, all of them or none; notes tell of what couldn't be read.

    ``complete``: these are all the versions that the record's ``versions`` names.
    """

    variable: RecordId
    versions: tuple[Version, ...] = attrs.field(repr=False)
    notes: tuple[Note, ...] = ()
    complete: bool = True


@attrs.frozen
class Inventory:
    """Everything that a source holds, but for values. Records are sorted by kind and id (Note [Order])."""

    #: The source's kind, such as ``conjur 1.24.0`` or ``openbao 2.6.2``, for the plan's first line.
    source: str
    records: tuple[Record, ...]
    grants: tuple[Grant, ...] = ()
    permissions: tuple[Permission, ...] = ()
    authenticators: tuple[Authenticator, ...] = ()
    notes: tuple[Note, ...] = ()

    def of_kind(self, *kinds: str) -> tuple[Record, ...]:
        """Return the records of some kinds."""
        return tuple(record for record in self.records if record.id.kind in kinds)

"""Loads of policy documents, their rows and outcomes; every id is a full one, ``account:kind:identifier``.

An outcome may have 200,000 rows: it comes in batches, between which the reactor serves others.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

import attrs
from zope.interface import Interface

from svc.model.access import AccessPath, PathStep
from svc.model.errors import DocumentFault
from svc.model.events import AuditContext
from svc.model.idempotency import RequestKey
from svc.model.names import RoleName
from svc.model.query_results import Caller, Sealed
from svc.model.readings import ReadersOfSeveral

T = TypeVar("T")

#: About how many characters a batch has: what the reactor encodes within a millisecond or so.
BATCH_CHARACTERS: Final = 32 * 1024


class LoadMode(enum.StrEnum):
    """The three ways to load a policy (POL-37)."""

    APPEND = "append"
    UPDATE = "update"
    REPLACE = "replace"


def version_tag(version: int) -> str:
    """Return the strong entity tag of a policy whose last load had this version, 0 for none (POL-102)."""
    return f'"{version}"'


@attrs.frozen
class Load:
    """A document for a policy. ``dry_run``: only report what would change. Without ``origin``, no events are written.

    ``request`` is the caller's key for it, without the digest of the document, if the load is to be made once. ``match`` are
    the entity tags of which the policy must have one, if that is required.
    """

    policy: RoleName
    mode: LoadMode
    caller: Caller
    client_ip: str
    document: bytes = attrs.field(repr=False)
    dry_run: bool = False
    origin: AuditContext | None = None
    request: RequestKey | None = None
    match: frozenset[str] | None = None


@attrs.frozen
class Batches(Generic[T]):
    """Values in batches, which can be iterated more than once."""

    _batches: Iterable[Sequence[T]] = attrs.field(default=(), repr=False)

    @classmethod
    def from_values(cls, values: Iterable[T]) -> Batches[T]:
        """Divide values into batches of about ``BATCH_CHARACTERS`` characters; a value isn't divided."""
        batches: list[list[T]] = []
        room = 0
        for value in values:
            if room <= 0:
                batches.append([])
                room = BATCH_CHARACTERS
            batches[-1].append(value)
            room -= count_characters(value)
        return cls(batches)

    def __iter__(self) -> Iterator[Sequence[T]]:
        return iter(self._batches)


#: How many full ids of each kind a summary names.
SUMMARY_NAMES: Final = 20


@attrs.frozen
class KindCount:
    """Records of one kind: how many they are, and the full ids of the first that the caller may know, in order."""

    kind: str
    count: int
    first: tuple[str, ...]


@attrs.frozen
class RowCounts:
    """Records by kind, in order, and how many grants and permissions, without those that a record's owner has or gives."""

    records: tuple[KindCount, ...] = ()
    grants: int = 0
    permissions: int = 0

    def __bool__(self) -> bool:
        return bool(self.records or self.grants or self.permissions)


@attrs.frozen
class ChangeSummary:
    """The changes of a load (POL-98): ``unchanged`` is what the document states and what was so before, ``absent`` what it
    removes and what wasn't there.
    """

    created: RowCounts = RowCounts()
    changed: RowCounts = RowCounts()
    deleted: RowCounts = RowCounts()
    unchanged: RowCounts = RowCounts()
    absent: RowCounts = RowCounts()

    def as_json(self) -> dict[str, Any]:
        """Return it as answers have it."""
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the summary that :meth:`as_json` returned as this."""
        return cls(
            **{
                name: RowCounts(
                    tuple(KindCount(each["kind"], each["count"], tuple(each["first"])) for each in rows["records"]),
                    rows["grants"],
                    rows["permissions"],
                )
                for name, rows in document.items()
            }
        )


@attrs.frozen
class LoadResult:
    """The result of a load: a version of the policy, and new users and hosts by their full ids, each with an API key.

    The key is ``None`` where policy says that the role has none (TOK-53).

    ``audited`` are the numbers of its events in the database: after the first of the two, up to the second. ``repeated``: it
    was made before, and this is the answer that was kept. ``changes`` is ``None`` if a server of before kept that.
    """

    version: int
    api_keys: Batches[tuple[str, str | None]] = Batches()
    warnings: tuple[str, ...] = ()
    audited: tuple[int, int] = (0, 0)
    repeated: bool = False
    changes: ChangeSummary | None = None


#: A thing at one moment, in the fields of the wire (POL-69). One that is too long for a batch comes in parts: the first has
#: ``identifier`` alone; each other has some of one field, and goes on where the one before ended if it names the same.
Item = dict[str, Any]


@attrs.frozen
class NameSample:
    """Roles or resources of one kind: how many they are, and the full ids of the first, in order.

    ``differs``: they are there at only one of the two moments: created by the load, or deleted.
    """

    kind: str
    count: int
    first: tuple[str, ...]
    differs: bool


@attrs.frozen
class AccessChange:
    """Roles that gain, or that lose, privileges on resources by a load.

    With ``owner`` these are all privileges, of whatever name, except those ``excepted``, which the roles have at both
    moments; otherwise ``privileges``. ``pairs``: how many pairs of one of the roles and one of the resources are meant,
    fewer than all where they differ. ``through`` is the next role on the way of each role, if that is the same one and the
    caller sees it. ``path`` is that of the first role to one of its resources; ``None`` if it is too long.
    """

    roles: NameSample
    resources: NameSample
    privileges: tuple[str, ...]
    owner: bool
    excepted: tuple[str, ...]
    through: str | None
    pairs: int
    path: AccessPath | None


#: Advice where not all changes of access could be reported (POL-88).
ADVICE: Final = (
    "Load the document in parts, each after a dry run of its own, or ask for each resource in question who can use it, "
    "before the load and after it."
)


@attrs.frozen
class UnreportedChanges:
    """Changes of access that a dry run doesn't report: ``gains`` and ``losses`` that the caller may not see.

    ``new_gains`` are those of roles or on resources that the load creates; ``gains`` only those of others. Not ``complete``:
    there was too much to follow, and there may be more than is reported.
    """

    gains: bool = False
    new_gains: bool = False
    losses: bool = False
    complete: bool = True

    @property
    def advice(self) -> str | None:
        """Advice, if it isn't complete."""
        return None if self.complete else ADVICE


@attrs.frozen
class DryRun:
    """The changes that a load would make; items that differ are in the same order in ``before`` and ``after``.

    ``gains`` and ``losses`` are those of access, as far as they are not ``unreported``. ``changes`` are as a load has them.
    ``readers`` are those of variables that would be deleted, if there are any of whose readers the caller may know.
    """

    created: Batches[Item] = Batches()
    before: Batches[Item] = Batches()
    after: Batches[Item] = Batches()
    deleted: Batches[Item] = Batches()
    warnings: tuple[str, ...] = ()
    gains: Batches[AccessChange] = Batches()
    losses: Batches[AccessChange] = Batches()
    unreported: UnreportedChanges = UnreportedChanges()
    changes: ChangeSummary = ChangeSummary()
    readers: ReadersOfSeveral | None = None


@attrs.frozen
class DocumentFaults:
    """The faults for which a dry run ended."""

    faults: Batches[DocumentFault] = Batches()


LoadOutcome = LoadResult | DryRun | DocumentFaults


def count_characters(value: object) -> int:
    """Return how many characters the texts in a value have, with something for each text."""
    match value:
        case str():
            return len(value) + 8
        case dict():
            return sum(count_characters(name) + count_characters(each) for name, each in value.items())
        case list() | tuple():
            return sum(map(count_characters, value))
        case AccessChange() | NameSample() | PathStep():
            return count_characters(attrs.astuple(value, recurse=False))
        case _:
            return 8


class ILoads(Interface):
    """Loads of policy documents, wherever the work is done."""

    async def load_policy(load: Load) -> LoadOutcome:
        """Load a document, or find out what that would change, for a caller who has the privilege that the mode requires.

        When cancelled, the load runs to its end with its result dropped, or doesn't begin.

        :raises Refusal: the document can't be loaded, or the caller may not do all that it says, or not now.
        """


class ResourceRow(NamedTuple):
    """A resource and the role that owns it. Kinds in ``names.ROLE_KINDS`` have a role of the same id."""

    resource: str
    owner: str


class MembershipRow(NamedTuple):
    """A role, a direct member of it, and how the membership came about; ``ownership`` rows follow from ``owner``."""

    role: str
    member: str
    ownership: bool
    admin_option: bool


class PermissionRow(NamedTuple):
    """A privilege on a resource that a role holds."""

    resource: str
    privilege: str
    role: str


class AnnotationRow(NamedTuple):
    """A named text on a resource."""

    resource: str
    name: str
    value: str


class RestrictionRow(NamedTuple):
    """A network from which a user or host may log in, in CIDR notation; a role without any may from everywhere."""

    role: str
    cidr: str


@attrs.frozen
class Rows:
    """A set of rows of every sort; the order doesn't matter."""

    resources: tuple[ResourceRow, ...] = ()
    memberships: tuple[MembershipRow, ...] = ()
    permissions: tuple[PermissionRow, ...] = ()
    annotations: tuple[AnnotationRow, ...] = ()
    restrictions: tuple[RestrictionRow, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.resources or self.memberships or self.permissions or self.annotations or self.restrictions)

    def merge_with(self, other: Rows) -> Rows:
        """Return these rows and those of another set."""
        return Rows(
            (*self.resources, *other.resources),
            (*self.memberships, *other.memberships),
            (*self.permissions, *other.permissions),
            (*self.annotations, *other.annotations),
            (*self.restrictions, *other.restrictions),
        )


@attrs.frozen
class PresentRows:
    """The stored rows that are relevant to one policy load.

    ``own`` are all rows that the policy recorded; ``foreign`` are rows with another recorder or none that share a key with a
    wanted one, or with a resource to be deleted. ``own`` has restrictions of wanted roles that the policy recorded.
    """

    own: Rows
    foreign: Rows


@attrs.frozen
class RowKeys:
    """The keys of rows of four sorts, and the roles whose restrictions are meant."""

    resources: tuple[str, ...]
    memberships: tuple[tuple[str, str, bool], ...]
    permissions: tuple[PermissionRow, ...]
    annotations: tuple[tuple[str, str], ...]
    restricted: tuple[str, ...]

    @property
    def count(self) -> int:
        """Return how many keys there are."""
        return sum(map(len, attrs.astuple(self, recurse=False)))


@attrs.frozen
class Removals:
    """Keys of rows to remove: resources of any policy, memberships and permissions of this one (POL-43, POL-44)."""

    resources: tuple[str, ...] = ()
    memberships: tuple[tuple[str, str], ...] = ()
    permissions: tuple[PermissionRow, ...] = ()


@attrs.frozen
class Changes:
    """The changes that a load makes; rows to ``update`` have a key that is present and a new value."""

    create: Rows = Rows()
    update: Rows = Rows()
    delete: Rows = Rows()


class RecordLimit(enum.StrEnum):
    """The limits of a record; the values are the names in ``limits.RecordLimits``."""

    ANNOTATIONS = "annotations"
    ANNOTATION_BYTES = "annotation_bytes"
    PERMISSIONS = "permissions"
    RESTRICTIONS = "restrictions"
    PUBLIC_KEYS = "public_keys"
    LAYERS = "layers"


@attrs.frozen
class PolicyVersion:
    """One load of a policy, for its history."""

    policy: RoleName
    text: str = attrs.field(repr=False)
    sha256: str
    loaded_by: RoleName
    client_ip: str


@attrs.frozen
class EffectiveQuery:
    """A query for a policy with all beneath it, from any recorder; for the root, the whole account.

    Resources of the kinds ``omitted_kinds`` don't count. ``depth``: how many more slashes an id may have than the policy's;
    with ``None`` any number. ``limit``: how many resources, annotations and permissions there may be together. ``viewer``:
    the reader, which gets only the kinds of resources that it doesn't see; ``None`` sees all. ``suffix`` and ``namesakes``:
    what may belong to a policy without lying beneath it, users whose ids end with ``suffix``, or go on after it with a
    hyphen, and full ids, beside those of what has the policy's id and a kind that policies made up.
    """

    policy: RoleName
    omitted_kinds: tuple[str, ...]
    depth: int | None
    limit: int
    suffix: str
    namesakes: tuple[str, ...]
    viewer: RoleName | None = None


@attrs.frozen
class EffectivePolicyRows:
    """The resources of a policy, itself among them, with their rows; of host factories, also the layers.

    ``around``: ids of policies whose ids are proper beginnings of the policy's path. ``public_keys``: those of the users
    among the resources, by the full ids of the keys. ``hidden``: the kinds of resources that the viewer doesn't see.
    ``version``: that of the policy's last load, 0 for none.
    """

    rows: Rows
    around: frozenset[str] = frozenset()
    public_keys: Mapping[str, Sealed] = attrs.field(factory=dict, repr=False)
    hidden: tuple[str, ...] = ()
    version: int = 0


@attrs.frozen
class Excess:
    """A policy holds more than may be read at once: about ``value`` where ``limit`` is the most, counted in ``unit``."""

    value: int
    limit: int
    unit: str = "objects"


@attrs.frozen
class RecordedOwner:
    """The owner of a resource, and the policy that recorded it, as they stand in a transaction."""

    owner: str
    policy: str | None


@attrs.frozen
class Surroundings:
    """Resources that a load concerns, and the first so many rows that name one of them, for each resource, sort and end."""

    recorded_owners: Mapping[str, RecordedOwner]
    rows: Rows


class Side(enum.StrEnum):
    """The direction in which access is followed from a role or a resource."""

    MEMBERS = "members"  #: from a role: memberships of others in it
    HELD = "held"  #: from a role: its own memberships
    GRANTED = "granted"  #: from a role: what it owns, and what is permitted to it
    GIVEN = "given"  #: from a resource: its owner, and what is permitted on it

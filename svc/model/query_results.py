"""Values that cross the seam between the domain and its store: readings, each the answer to one question.

What policy records has a room of its own, ``rows``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import NewType

import attrs

from svc.model.names import RoleName

#: Bits of an address of IPv6 that tell clients apart: each of them has 2 ** 64 addresses.
_NETWORK_BITS = 64

#: A range of addresses.
Network = IPv4Network | IPv6Network


def is_within(client_ip: str, networks: Iterable[Network]) -> bool:
    """Whether a client's address lies in one of the networks; what is no address lies in none.

    An address of IPv4 that stands in one of IPv6 is taken for that: so a client is called at an endpoint that serves both.
    """
    try:
        address = ip_address(client_ip.partition("%")[0])
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in networks)


def counted_as(client_ip: str) -> str:
    """What a client's address is counted under: itself, or its network when it is of IPv6."""
    try:
        address = ip_address(client_ip.partition("%")[0])
    except ValueError:
        return client_ip
    if isinstance(address, IPv4Address):
        return client_ip
    return str(IPv6Network((address, _NETWORK_BITS), strict=False))


#: Ciphertext that ``vault`` made; only ``vault`` can open it.
Sealed = NewType("Sealed", bytes)


@attrs.frozen
class Caller:
    """The role that a verified access token names; ``issued_at`` in seconds since the epoch.

    ``creation``: the number that the store gave the role when it was made, 0 for one that was there before these numbers.
    Whether the role still exists is for the route's own reading to find (``AccessFacts.caller_exists``). A reading that is
    given a caller, and finds a role of that name and of another creation, raises ``CallerReplaced`` (ROLE-8).
    """

    role: RoleName
    issued_at: int
    creation: int = 0


#: Who asks the store for something. A role by itself, for which no token speaks, is judged by its name, whichever creation
#: of it there is.
Asker = Caller | RoleName


@attrs.frozen
class AccessFacts:
    """How a caller stands towards a resource: the facts on which ``access`` decides.

    ``owns``: the caller holds the owner's role (itself included), which implies every privilege. ``privileges``: those that
    roles held by the caller have been given, by whatever name; not looked for, and empty, when the caller owns.
    ``holds``: there is a role of the same name, and the caller holds it, as each of its resource's owners does.
    ``recorded_by``: full id of the policy that recorded the resource, if one did.
    """

    caller_exists: bool
    exists: bool
    owns: bool = False
    privileges: frozenset[str] = frozenset()
    holds: bool = False
    recorded_by: str | None = None


@attrs.frozen
class Membership:
    """A membership as the role-members route tells it (ROLE-15).

    ``rank`` is the class in which a search by class found it (see ``Search``), ``None`` in other listings.
    """

    role: str
    member: str
    admin_option: bool
    ownership: bool
    policy: str | None
    rank: int | None = None


@attrs.frozen
class EffectiveMembers:
    """The ``members`` that hold ``role``, directly or through others, in order and each once, as far as they were asked for.

    ``ranks`` are as in ``Membership``, empty but for a search by class. ``led_from``: of which role each is a direct member,
    on a shortest way; ways are put together when they are asked for, since all of them can be much longer than the list.
    """

    role: str
    members: Sequence[str]
    ranks: Mapping[str, int]
    _led_from: Mapping[str, str] = attrs.field(repr=False, eq=False)

    def path(self, member: str) -> tuple[str, ...]:
        """One shortest way from the role to the member, both included, each a direct member of the one before it."""
        way = [member]
        while (before := self._led_from[way[-1]]) != self.role:
            way.append(before)
        return (self.role, *reversed(way))

    def place(self, member: str) -> Place:
        """The member's key in the listing."""
        return Place(member, rank=self.ranks.get(member))


@attrs.frozen
class Search:
    """What a listing is narrowed to: records in which every word of ``text`` is found (RES-10, RES-11).

    Without a word that counts, nothing is found. ``split``: the values of annotations are split at ``.`` ``/`` ``-``, as
    identifiers are. ``by_class``: what is found comes by its class, then by id. The class is the lowest in which any word is
    found: 0 identifier or annotation ``name``, 1 another annotation's value, 2 kind (RES-13).
    """

    text: str
    split: bool
    by_class: bool


@attrs.frozen
class Place:
    """The key of a row in a listing, after which the listing is to go on, whether that row is still there or not.

    ``name`` is the full id by which the listing is ordered. ``rank`` is given for a search by class, and for nothing else.
    """

    name: str
    ownership: bool = False
    rank: int | None = None

    def before(self, other: Place) -> bool:
        """Whether the row of this key comes before that of ``other``, in the same listing."""
        return (self.rank or 0, self.name, self.ownership) < (other.rank or 0, other.name, other.ownership)


@attrs.frozen
class MembersQuery:
    """Which memberships of a role to list: narrowed by ``kinds`` of member (or of the role that it is a member of) and by
    ``search``, then paged.

    ``kinds`` empty means every kind. ``limit`` ``None`` means no limit. ``after`` is where an earlier page ended.
    """

    role: RoleName
    kinds: tuple[str, ...] = ()
    limit: int | None = None
    offset: int = 0
    search: Search | None = None
    after: Place | None = None


@attrs.frozen
class RoleReading:
    """A role by itself: when it was made, in seconds since the epoch, the policy that recorded it if one did, and the
    memberships of its owners.
    """

    created_at: float
    policy: str | None
    owners: tuple[Membership, ...]


@attrs.frozen
class MemberReading:
    """What bears on a change of a role's members, read in the transaction that makes it.

    ``access_facts`` is about the role, ``over_policy`` about the policy that recorded the role's resource, ``None`` when
    none did; ``member_exists``: whether there is such a role to be added or removed.
    """

    access_facts: AccessFacts
    over_policy: AccessFacts | None
    member_exists: bool


@attrs.frozen
class ResourcesQuery:
    """Which resources to list: those that ``viewer`` sees, narrowed, then paged.

    ``account`` and ``owner`` ``None``, and ``kinds`` empty, mean every one. ``owner``: what is owned by this role or by one
    that it holds. Paging is by id, or as ``search`` says.
    """

    viewer: RoleName
    account: str | None = None
    kinds: tuple[str, ...] = ()
    owner: RoleName | None = None
    search: Search | None = None
    limit: int = 1000
    offset: int = 0


@attrs.frozen
class Permission:
    """A privilege on a resource, the role that has it, and the policy that recorded it, if one did."""

    privilege: str
    role: str
    policy: str | None


@attrs.frozen
class ResourceAnnotation:
    """An annotation of a resource, and the policy that recorded it, if one did."""

    name: str
    value: str
    policy: str | None


@attrs.frozen
class RecordedVersion:
    """A version in the history of a policy, made at ``created_at`` (seconds since the epoch).

    ``text`` is ``None`` when it wasn't asked for, or was too long.
    """

    number: int
    created_at: float
    sha256: str
    loaded_by: str
    client_ip: str
    text: str | None = attrs.field(repr=False)


@attrs.frozen
class OutstandingToken:
    """A host factory's token as its factory tells of it: when it expires (seconds since the epoch), and the networks from
    which it may be used, none meaning all.
    """

    expires_at: float
    networks: tuple[str, ...]


@attrs.frozen
class SecretVersion:
    """The number of a value, and when it ends or, of a variable that is rotated, is to be replaced; ``None`` for never."""

    number: int
    expires_at: float | None = None


@attrs.frozen
class Expiration:
    """What is known of a variable whose values end or are rotated: when it is looked at next, ``None`` for not by itself;
    how many rotations failed since the last that succeeded; and what is wrong, if anything is.
    """

    due_at: float | None = None
    failures: int = 0
    fault: str | None = None


@attrs.frozen
class Resource:
    """A resource with all that its route tells of it (RES-16, RES-18).

    ``permissions`` come by role, then privilege; ``annotations`` by name. ``secret_versions``: the values that a variable
    has, ascending; ``expiration`` is for those that end or are rotated. ``history``: the versions of a policy, ascending.
    ``layers``: ids of the layers to which a host factory belongs, ascending; ``tokens``: those of its tokens that expire
    first. ``restrictions``: from where a user or host may log in, in CIDR notation, ascending; empty means from everywhere.
    ``created_at`` is in seconds since the epoch. ``continued``: this is a part, with some of the permissions or annotations;
    the next one has others of them, and the last all that there is of the rest.
    """

    id: str
    owner: str
    policy: str | None
    created_at: float
    permissions: tuple[Permission, ...] = ()
    annotations: tuple[ResourceAnnotation, ...] = ()
    secret_versions: tuple[SecretVersion, ...] = ()
    history: tuple[RecordedVersion, ...] = ()
    layers: tuple[str, ...] = ()
    restrictions: tuple[str, ...] = ()
    tokens: tuple[OutstandingToken, ...] = ()
    expiration: Expiration | None = None
    continued: bool = False


@attrs.frozen
class SecretReading:
    """A variable as one caller sees it, with the asked version of its value.

    ``sealed`` and ``version`` are ``None`` when there is no such version; ``sealed`` alone is where there was more to read
    than was wanted, and where the value has ended: then ``ended_at`` says when. ``mime_type`` comes from the annotation.
    """

    access_facts: AccessFacts
    sealed: Sealed | None = attrs.field(default=None, repr=False)
    version: int | None = None
    mime_type: str | None = None
    ended_at: float | None = None


@attrs.frozen
class StoredSigningKey:
    """An account's signing key as the store keeps it.

    ``retires_at``: seconds since the epoch from which on the key verifies nothing; ``None`` for the newest.
    """

    account: str
    key_id: str
    sealed: Sealed = attrs.field(repr=False)
    created_at: float
    retires_at: float | None = None


@attrs.frozen
class ReplicationPosition:
    """Where the database's log stands: the write position of a primary, the last replayed one of a standby.

    ``text`` has the form ``<hex>/<hex>``, ``position`` is the same in bytes. Of a standby, ``lag_bytes`` is what it has
    received and not replayed yet, ``None`` when it has received nothing since its start; and ``lag_seconds`` is the age of
    the last sign of life of its primary that it has replayed, never negative. Both are ``None`` of a primary.
    """

    text: str
    position: int
    standby: bool
    lag_bytes: int | None = None
    lag_seconds: float | None = None


@attrs.frozen
class DatabaseIdentity:
    """Which PostgreSQL a database is of: the system that it was made as, which its copies share, and what became of it.

    ``timeline`` counts the promotions in its history. ``started`` is when the process was started, in microseconds since the
    epoch: no two of one system have that in common.
    """

    system: int
    timeline: int
    started: int
    standby: bool


@attrs.frozen
class ClusterMember:
    """Another server of the cluster: the name by which it is asked for, and the address below which it is reached.

    ``url`` ends without a slash. ``ca`` is a file of the only authorities that its certificate may come from; with ``None``
    they are those that are configured for all members.
    """

    name: str
    url: str
    ca: Path | None = None


@attrs.frozen
class Finding:
    """What came of one check of health last: the word of the report, and how many seconds it took, ``None`` before it ended.

    The check of the database has the name ``database``.
    """

    name: str
    value: str
    seconds: float | None

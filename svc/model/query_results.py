"""Values between the domain and its store: queries and their results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from socket import AF_INET6, inet_ntop, inet_pton
from typing import NamedTuple, NewType

import attrs

from svc.model.names import RoleName

Network = IPv4Network | IPv6Network


def is_within(client_ip: str, networks: Iterable[Network]) -> bool:
    """Return whether a client's address lies in one of the networks; what is no address lies in none.

    An IPv4 address mapped into IPv6, as at an endpoint that serves both, is treated as IPv4. A network with a zone contains
    nobody, since the interface by which a client connects isn't known.
    """
    try:
        address = ip_address(client_ip.partition("%")[0])
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network and not getattr(network.network_address, "scope_id", None) for network in networks)


def address_counting_key(client_ip: str) -> str:
    """Return the key that a client's address is counted under: itself, or for IPv6 its /64, all of which a client has."""
    if ":" not in client_ip:
        return client_ip
    try:
        packed = inet_pton(AF_INET6, client_ip.partition("%")[0])
    except (OSError, ValueError):
        return client_ip
    # Each refusal needs it: as a network of ``ipaddress`` it would take twenty times as long.
    return f"{inet_ntop(AF_INET6, packed[:8] + bytes(8))}/64"


#: Ciphertext that ``vault`` made; only ``vault`` can open it.
Sealed = NewType("Sealed", bytes)


@attrs.frozen
class Caller:
    """The role that a verified access token names; ``issued_at`` in seconds since the epoch.

    ``creation``: the number that the store gave the role when it was made, 0 for one that is older than these numbers.
    ``epoch``: the number that it had given the role and its account when their tokens were last revoked, 0 for never.
    A read for a caller finds out whether the role still exists (``AccessFacts.caller_exists``), and raises
    ``CallerReplaced`` when it is of another creation or epoch (ROLE-8). ``expires_at``: when the token expires, in seconds
    since the epoch.
    """

    role: RoleName
    issued_at: int
    creation: int = 0
    epoch: int = 0
    expires_at: float = attrs.field(default=math.inf, eq=False)


#: On whose behalf the store is queried. A role without a token is evaluated by its name, whatever its creation.
CallerOrRole = Caller | RoleName


@attrs.frozen
class AccessFacts:
    """The facts about a caller and a resource on which ``authorization`` decides.

    ``owns``: the caller holds the owner's role (itself included), which implies every privilege. ``privileges``: those given
    to roles that the caller holds; not looked up, and empty, when the caller owns. ``holds``: the caller holds the role of
    the same name. ``recorded_by``: full id of the policy that recorded the resource, if one did. ``inspects``: the caller
    inspects what there is of that name, a resource or only a role (INS-1); not looked up, and false, when the caller owns
    the resource or has privileges on it.
    """

    caller_exists: bool
    exists: bool
    owns: bool = False
    privileges: frozenset[str] = frozenset()
    holds: bool = False
    recorded_by: str | None = None
    inspects: bool = False


class Membership(NamedTuple):
    """A membership, as listed (ROLE-15); ``rank`` is the class in which a search by class found it (see ``Search``).

    A list has thousands: a tuple is made of a row in a quarter of the time of another object.
    """

    role: str
    member: str
    admin_option: bool
    ownership: bool
    policy: str | None
    rank: int | None = None


@attrs.frozen
class EffectiveMembers:
    """The ``members`` that hold ``role``, directly or through others, in order and each once, as far as requested.

    ``ranks`` are as in ``Membership``. ``reached_from``: of which role each is a direct member, on a shortest path; paths
    are put together on request, since all of them can be much longer than the list.
    """

    role: str
    members: Sequence[str]
    ranks: Mapping[str, int]
    _reached_from: Mapping[str, str] = attrs.field(repr=False, eq=False)

    def shortest_path(self, member: str) -> tuple[str, ...]:
        """Return a shortest path from the role to the member, both included, each a direct member of the one before it."""
        way = [member]
        while (before := self._reached_from[way[-1]]) != self.role:
            way.append(before)
        return (self.role, *reversed(way))

    def listing_key(self, member: str) -> ListingKey:
        """Return the member's key in the listing."""
        return ListingKey(member, rank=self.ranks.get(member))


@attrs.frozen
class Search:
    """A search for records in which every word of ``text`` is found; without a word, there are none (RES-10, RES-11).

    ``split``: the values of annotations are split at ``.`` ``/`` ``-``, as identifiers are. ``by_class``: what is found is
    ordered by class, then id. The class is the lowest in which any word is found: 0 identifier or annotation ``name``,
    1 another annotation's value, 2 kind (RES-13).
    """

    text: str
    split: bool
    by_class: bool


@attrs.frozen
class ListingKey:
    """The key of a row after which a listing goes on; ``name`` is a full id, ``rank`` is for searches by class."""

    name: str
    ownership: bool = False
    rank: int | None = None

    def is_before(self, other: ListingKey) -> bool:
        """Return whether the row of this key comes before that of ``other``, in the same listing."""
        return (self.rank or 0, self.name, self.ownership) < (other.rank or 0, other.name, other.ownership)


@attrs.frozen
class MembersQuery:
    """A query for memberships of a role; ``kinds`` are of the other role, empty for all; ``after`` is where a page ended."""

    role: RoleName
    kinds: tuple[str, ...] = ()
    limit: int | None = None
    offset: int = 0
    search: Search | None = None
    after: ListingKey | None = None


@attrs.frozen
class RoleReading:
    """A role by itself: when it was made (seconds since the epoch), the policy that recorded it, its owners' memberships."""

    created_at: float
    policy: str | None
    owners: tuple[Membership, ...]


@attrs.frozen
class MemberChangeFacts:
    """The facts for a change of a role's members; ``over_policy``: about the policy that recorded it, if any."""

    access_facts: AccessFacts
    over_policy: AccessFacts | None
    member_exists: bool


@attrs.frozen
class ResourcesQuery:
    """A query for resources that ``viewer`` sees, ordered by id, or as ``search`` says.

    ``account`` and ``owner`` ``None``, and ``kinds`` empty, mean every one. ``owner``: or a role that it holds. ``below``:
    what identifiers begin with, before a slash, in a query for one kind of an account. ``after``: only those whose ids come
    behind this one, of a list that isn't ordered by class.
    """

    viewer: RoleName
    account: str | None = None
    kinds: tuple[str, ...] = ()
    owner: RoleName | None = None
    search: Search | None = None
    limit: int = 1000
    offset: int = 0
    below: str | None = None
    after: str | None = None


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
    """A version in the history of a policy; ``text`` is ``None`` when it wasn't asked for, or was too long."""

    number: int
    created_at: float
    sha256: str
    loaded_by: str
    client_ip: str
    text: str | None = attrs.field(repr=False)


@attrs.frozen
class OutstandingToken:
    """A host factory's token: when it expires (seconds since the epoch), and the networks for its use, none meaning all.

    ``name`` is as ``host_factories.name_token`` returns it.
    """

    name: str
    expires_at: float
    networks: tuple[str, ...]


@attrs.frozen
class SecretVersion:
    """The number of a value, when it expires or is to be replaced by rotation, ``None`` for never, and when it was set."""

    number: int
    expires_at: float | None = None
    created_at: float = attrs.field(default=0.0, eq=False)


@attrs.frozen
class ExpirationState:
    """The state of a variable whose values expire or rotate: when it is next due, failed rotations in a row, a fault."""

    due_at: float | None = None
    failures: int = 0
    fault: str | None = None


@attrs.frozen
class Resource:
    """A resource with all that its route returns (RES-16, RES-18).

    ``permissions`` are ordered by role, then privilege; ``annotations`` by name; versions, ``history``, ``layers`` (full
    ids) and ``restrictions`` (CIDR notation; empty means from everywhere) ascend. ``tokens``: those that expire first.
    ``created_at`` is in seconds since the epoch. ``continued``: this is a part, with some of the permissions or annotations;
    the next one has others of them, and the last part has all of the rest.
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
    expiration: ExpirationState | None = None
    continued: bool = False


def count_text_bytes(resources: Iterable[Resource]) -> int:
    """Return how many bytes the texts of policies have that come with some resources."""
    return sum(len((version.text or "").encode("utf-8")) for resource in resources for version in resource.history)


@attrs.frozen
class ResourcesPage:
    """A page of a list, of one state: ``first``, the resources with which it begins, and the full ids of the ``rest``.

    ``caller_exists``: whether the caller exists; else the page is empty.
    """

    caller_exists: bool
    first: Sequence[Resource] = ()
    rest: Sequence[str] = ()


@attrs.frozen
class SecretReading:
    """A variable as one caller sees it, with the requested version of its value.

    ``sealed`` and ``version`` are ``None`` when the version is missing; only ``sealed`` is if there was more to read than
    was wanted, and if the value has expired: then ``expired_at`` is when. ``mime_type`` comes from the annotation.
    ``stamp``, set where many are read at once, is another number for a version of a variable that was deleted since.
    """

    access_facts: AccessFacts
    sealed: Sealed | None = attrs.field(default=None, repr=False)
    version: int | None = None
    mime_type: str | None = None
    expired_at: float | None = None
    stamp: int | None = attrs.field(default=None, eq=False)


@attrs.frozen
class StoredSigningKey:
    """An account's signing key as the store keeps it; from ``retires_at`` (``None`` for the newest) it verifies nothing."""

    account: str
    key_id: str
    sealed: Sealed = attrs.field(repr=False)
    created_at: float
    retires_at: float | None = None


@attrs.frozen
class CheckResult:
    """The last result of a health check: the word of the report, and its ``seconds``, ``None`` before it ended."""

    name: str
    value: str
    seconds: float | None

"""The store in memory: fakes of the seams that ``svc/storage`` provides, all looking at one :class:`Memory`.

They pass the suites of ``tests/contracts``, as the real store does, and are written for plainness, not for speed. That of
policies is in ``memory_policies``.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from ipaddress import ip_network
from math import inf
from typing import Any, TypeVar

import attrs

from svc.model.authentication import (
    ANNOTATIONS_BYTES,
    ANNOTATIONS_LIMIT,
    DISTRUSTED_LIMIT,
    WEBSERVICES_LIMIT,
    WEBSERVICES_PER_ACCOUNT,
    Admitted,
    AuthenticatorSettings,
    CandidateFacts,
    DistrustedKey,
    UserSession,
)
from svc.model.authorization import Allowed, decide_privilege
from svc.model.credentials import API_KEY_ANNOTATION, Credential, forbids_api_key
from svc.model.databases import Ages, ReplicationPosition, VerifiedBackup
from svc.model.deleted_records import DEFAULT_RETENTION, OVERWRITTEN_MOST, DeletedRecord, RecordRetention, RoleIdentity
from svc.model.errors import (
    CallerReplaced,
    Conflict,
    InvalidParameter,
    PolicyConflict,
    ReadOnlyStandby,
    RecordNotFound,
    RequestRunning,
    StoreUnavailable,
    TooOften,
)
from svc.model.events import AuditContext, Event, EventBatch
from svc.model.expiration import LIFETIME, ROTATOR, Duration, is_about_expiration, parse_lifetime
from svc.model.host_factories import FactoryToken
from svc.model.idempotency import PIECES_MOST, AlreadyAnswered, Once, RequestKey, StoredAnswer
from svc.model.idempotency import RETENTION_SECONDS as KEPT_SECONDS
from svc.model.limits import RECORD_LIMITS
from svc.model.names import (
    ACCOUNTS_WEBSERVICE,
    RESERVED_ACCOUNT,
    ResourceName,
    RoleName,
    admin_of,
    is_role_kind,
    root_policy,
)
from svc.model.ownership import Ownership
from svc.model.policy_loads import MembershipRow, PolicyVersion, RecordedOwner, RecordLimit, ResourceRow, Rows
from svc.model.query_results import (
    AccessFacts,
    Caller,
    CallerOrRole,
    EffectiveMembers,
    ListingKey,
    MemberChangeFacts,
    Membership,
    MembersQuery,
    RoleReading,
    Sealed,
    SecretReading,
    StoredSigningKey,
)
from svc.storage.accounts import AccountStore
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.credentials import CredentialStore
from svc.storage.database_state import DatabaseState
from svc.storage.idempotency import IdempotencyStore
from svc.storage.roles import RoleStore
from svc.storage.secrets import SecretStore
from tests.fakes import Fake
from tests.memory_search import search_rank

L = TypeVar("L", Membership, ListingKey)
R = TypeVar("R")

#: How many versions of a secret, and of a policy, are kept.
KEPT = 20


@attrs.frozen
class ExpirationRow:
    """What expiration has to do with a variable.

    ``noticed`` are the annotations that made it due last, ``settled`` those that were acted upon.
    """

    due_at: float = -inf
    noticed: Mapping[str, str] | None = None
    settled: Mapping[str, str] | None = None
    edition: int = 0
    failures: int = 0
    fault: str | None = None
    candidate: Sealed | None = None


@attrs.frozen
class KeptRow:
    """A deleted record with what the store knows beside: its policy, values with their times, what operators told."""

    record: DeletedRecord
    policy: RoleIdentity
    values: Mapping[int, tuple[Sealed, tuple[float, float | None]]]
    enabled: bool | None = None
    distrusted: Mapping[str, tuple[float, str]] = attrs.field(factory=dict)

    @property
    def account(self) -> str:
        """Return the account."""
        return self.record.resource.partition(":")[0]

    @property
    def bytes(self) -> int:
        """Return how much room it takes."""
        return 512 + sum(len(sealed) for sealed, _ in self.values.values())


@attrs.frozen
class SessionRow:
    """A session with the login that opened it, the digests of its tokens, and the seed of the last."""

    session: UserSession
    admitted: Admitted
    token: bytes
    used: bytes | None = None
    seed: bytes | None = None


@attrs.define
class Memory:
    """All that is stored, by its keys: role, member, ownership; resource, privilege, role; resource, name; role, range; and
    so on.

    A row ends with the policy that recorded it. The value of a secret comes with its serial number. A test may set ``down``
    to have every question refused, ``standby`` to have every write refused, and look at the rest.
    """

    down: bool = False
    standby: bool = False
    #: Accounts whose admin's key is to be shown at a start, and when accounts were recovered.
    unannounced: set[str] = attrs.field(factory=set)
    recovered: dict[str, float] = attrs.field(factory=dict)
    #: Signing keys of each account, the newest last.
    accounts: dict[str, list[StoredSigningKey]] = attrs.field(factory=dict)
    roles: dict[str, str | None] = attrs.field(factory=dict)
    #: When a resource was made, as a number that no other one has.
    made: dict[str, float] = attrs.field(factory=dict)
    #: How often a role of a name was deleted, which is the number of the next creation.
    creations: dict[str, int] = attrs.field(factory=dict)
    #: How often tokens were revoked, of a role or of an account.
    epochs: dict[str, int] = attrs.field(factory=dict)
    resources: dict[str, tuple[str, str | None]] = attrs.field(factory=dict)
    memberships: dict[tuple[str, str, bool], tuple[bool, str | None]] = attrs.field(factory=dict)
    permissions: dict[tuple[str, str, str], str | None] = attrs.field(factory=dict)
    annotations: dict[tuple[str, str], tuple[str, str | None]] = attrs.field(factory=dict)
    restrictions: dict[tuple[str, str], None] = attrs.field(factory=dict)
    #: How a mapped name was said, by webservice, kind, key and role; and grants that follow from these, with the member.
    mappings: dict[tuple[str, str, str, str], str] = attrs.field(factory=dict)
    mapped: dict[tuple[str, str, str, str, str], None] = attrs.field(factory=dict)
    credentials: dict[str, Sealed] = attrs.field(factory=dict)
    #: Hashes of passwords; when keys expire; when they were rotated.
    passwords: dict[str, Sealed] = attrs.field(factory=dict)
    key_expirations: dict[str, float] = attrs.field(factory=dict)
    rotations: dict[str, float] = attrs.field(factory=dict)
    #: The days of last logins, since when they are kept, and roles that somebody is changing.
    last_logins: dict[str, int] = attrs.field(factory=dict)
    logins_kept_since: float = 1_600_000_000.0
    #: Reads, by role, its creation, variable, and which of that name: the last day, days before it as bits, how often; the
    #: last days of variables; last batches of servers; when servers were heard and asked; days of which reads are lost.
    reads: dict[tuple[str, int, str, float], tuple[int, int, int]] = attrs.field(factory=dict)
    last_reads: dict[tuple[str, float], int] = attrs.field(factory=dict)
    reading_sources: dict[str, int] = attrs.field(factory=dict)
    reading_servers: dict[str, tuple[float | None, float]] = attrs.field(factory=dict)
    reading_losses: dict[int, None] = attrs.field(factory=dict)
    reads_kept_since: float = 1_600_000_000.0
    #: The LDAP authenticator by which a user came last, since when its entry is missing, and whether it is refused.
    directory_users: dict[str, tuple[str, float | None, bool]] = attrs.field(factory=dict)
    #: When the last round of an authenticator began, when a server last took a turn, and why that round changed nothing.
    directory_rounds: dict[str, tuple[float, float, str | None]] = attrs.field(factory=dict)
    locked_roles: set[str] = attrs.field(factory=set)
    #: How often a role's API key or password was replaced by another one.
    editions: dict[str, int] = attrs.field(factory=dict)
    #: Sessions, with what they were opened with and the tokens, by role and id.
    sessions: dict[tuple[str, str], SessionRow] = attrs.field(factory=dict)
    secrets: dict[str, dict[int, tuple[int, Sealed]]] = attrs.field(factory=dict)
    #: When a value was set, and when it ends, by variable and version.
    lives: dict[tuple[str, int], tuple[float, float | None]] = attrs.field(factory=dict)
    expirations: dict[str, ExpirationRow] = attrs.field(factory=dict)
    #: What the database's clock shows.
    now: float = 1_700_000_000.25
    versions: dict[str, dict[int, PolicyVersion]] = attrs.field(factory=dict)
    switches: dict[str, bool] = attrs.field(factory=dict)
    refreshes: dict[str, int] = attrs.field(factory=dict)
    #: Since when, and by whom, by webservice and key.
    distrusted: dict[tuple[str, str], tuple[float, str]] = attrs.field(factory=dict)
    #: Tokens of host factories, by their digests.
    factory_tokens: dict[bytes, FactoryToken] = attrs.field(factory=dict)
    #: Events, with where they came from, by their numbers.
    events: dict[int, tuple[AuditContext, Event]] = attrs.field(factory=dict)
    #: The number of the last event when each account was made.
    since: dict[str, int] = attrs.field(factory=dict)
    #: What was deleted, by its numbers; the last numbers of this, and of what was made; what is kept.
    deleted: dict[int, KeptRow] = attrs.field(factory=dict)
    last: dict[str, int] = attrs.field(factory=dict)
    keeping: RecordRetention = DEFAULT_RETENTION
    canary: Sealed | None = None
    backup: float | None = None
    verified: VerifiedBackup | None = None
    #: Where the log stands, in bytes.
    written: int = 0x16B3748
    serial: int = 0
    #: The number of the last wish for newer keys.
    refreshed: int = 0
    #: When every role was made, and every key distrusted, in seconds since the epoch.
    made_at: float = 1_700_000_000.25
    #: Policies that are being loaded.
    locked: set[str] = attrs.field(factory=set)
    #: How often a kept answer was asked for outside of changes.
    answers_sought: int = 0
    #: Answers that are kept, with when they were made, by caller and key; keys that a request under way holds.
    answers: dict[tuple[str, str], tuple[float, StoredAnswer]] = attrs.field(factory=dict)
    running: set[tuple[str, str]] = attrs.field(factory=set)

    def copied(self) -> dict[str, Any]:
        """All that is stored, for :meth:`restore`; the values themselves never change."""
        tables = {field.name: getattr(self, field.name) for field in attrs.fields(Memory)}
        return {name: _copied(table) for name, table in tables.items() if isinstance(table, dict)}

    def restore(self, tables: dict[str, Any]) -> None:
        """Let be stored what was once."""
        for name, table in tables.items():
            setattr(self, name, _copied(table))

    def ask(self) -> None:
        """Whatever begins here asks the store."""
        if self.down:
            raise StoreUnavailable("the fake is down")

    def write(self) -> None:
        """Whatever goes on from here writes."""
        self.ask()
        if self.standby:
            raise ReadOnlyStandby

    async def ensure_writable(self) -> None:
        """Return unless the memory stands by."""
        if self.standby:
            raise ReadOnlyStandby

    def record(self, trail: EventBatch | None) -> tuple[int, int]:
        """Keep the events of a trail; their numbers come after the first that is returned, up to the second."""
        before = max(self.events, default=0)
        for number, event in enumerate(() if trail is None else trail.events, before + 1):
            assert trail is not None
            self.events[number] = (trail.origin, event)
        return (before, max(self.events)) if trail is not None and trail.events else (0, 0)

    def claim(self, request: RequestKey) -> StoredAnswer | None:
        """The answer that is kept for a key that nobody holds."""
        if (request.caller, request.key) in self.running:
            raise RequestRunning
        kept = self.kept(request)
        pieces = sum(len(answer.pieces) for (caller, _), (_, answer) in self.answers.items() if caller == request.caller)
        if kept is None and pieces >= PIECES_MOST:
            raise TooOften("too many answers are kept for this caller", 60)
        return kept

    def kept(self, request: RequestKey) -> StoredAnswer | None:
        """The answer that is kept for a key."""
        made_at, answer = self.answers.get((request.caller, request.key), (-inf, None))
        return answer if made_at > self.now - KEPT_SECONDS else None

    def keep_answer(self, request: RequestKey, pieces: Sequence[Sealed]) -> None:
        """Keep an answer from now on."""
        self.answers[request.caller, request.key] = (self.now, StoredAnswer(request.request_digest, tuple(pieces)))

    def begin_once(self, once: Once[Any] | None) -> None:
        """Whatever goes on from here wasn't done before.

        :raises AnswerKept: it was.
        """
        if once is not None and (kept := self.claim(once.request)) is not None:
            kept.require_same_request(once.request)
            raise AlreadyAnswered(once.request, kept)

    def end_once(self, once: Once[R] | None, result: R) -> R:
        """What was done once had this result."""
        if once is not None:
            self.keep_answer(once.request, once.answer(result))
        return result

    def missing_from(self, role: str) -> str | None:
        """The authenticator whose directory has no entry of a user; empty where that isn't confirmed."""
        webservice, since, refused = self.directory_users.get(role, ("", None, False))
        return None if since is None else webservice if refused else ""

    def held(self, role: str) -> set[str]:
        """The roles that ``role`` holds, itself included."""
        above: dict[str, set[str]] = {}
        for granted, member, _ in self.memberships:
            above.setdefault(member, set()).add(granted)
        held, coming = {role}, [role]
        while coming:
            new = above.get(coming.pop(), set()) - held
            held |= new
            coming += new
        return held

    def asker(self, caller: CallerOrRole) -> str:
        """The role that asks, which must be the one that there is.

        :raises CallerReplaced: it isn't.
        """
        if not isinstance(caller, Caller):
            return str(caller)
        name = str(caller.role)
        if name in self.roles and (caller.creation, caller.epoch) != self.numbers(name):
            raise CallerReplaced
        return name

    def numbers(self, role: str) -> tuple[int, int]:
        """The creation and the epoch of a role."""
        epochs = self.epochs.get(role, 0) + self.epochs.get(role.partition(":")[0], 0)
        return self.creations.get(role, 0), epochs

    def seen(self, caller: RoleName, resources: Iterable[str]) -> frozenset[str]:
        """Those of the resources that the role sees."""
        self.ask()
        facts = {resource: self.access_facts(caller, resource) for resource in resources}
        return frozenset(name for name, found in facts.items() if found.exists and (found.owns or found.privileges))

    def access_facts(self, caller: CallerOrRole | str, resource: str) -> AccessFacts:
        """How ``caller`` stands towards ``resource``."""
        caller = caller if isinstance(caller, str) else self.asker(caller)
        held = self.held(caller)
        owner, policy = self.resources.get(resource, (None, None))
        owns = owner in held
        given = {
            privilege for (thing, privilege, role) in self.permissions if thing == resource and role in held and not owns
        }
        holds = resource in self.roles and (owns or resource in held)
        unseen = caller in self.roles and not owns and not given
        inspects = unseen and self.inspects(caller, resource)
        return AccessFacts(caller in self.roles, owner is not None, owns, frozenset(given), holds, policy, inspects)

    def inspects(self, role: str, resource: str) -> bool:
        """Return whether a role inspects a resource, or a role that has none."""
        if resource not in self.resources and resource not in self.roles:
            return False
        policies = {str(root_policy(resource.partition(":")[0]))}
        chain: list[str] = []
        above: str | None = resource
        while above is not None and above not in chain:
            chain.append(above)
            above = self.resources.get(above, (None, None))[0]
        policies.update(full for full in chain if kind_of(full) == "policy")
        held = self.held(role)
        return any((policy, "inspect", each) in self.permissions for policy in policies for each in held)

    def ownership(self, placed: Iterable[str]) -> Ownership:
        """Return the owner of all records, and the policies around the ids ``placed``."""
        records = {resource: RecordedOwner(owner, policy) for resource, (owner, policy) in self.resources.items()}
        around = {}
        for name in placed:
            account, _, identifier = name.split(":", 2)
            parts = identifier.split("/")[:-1]
            beginnings = [f"{account}:policy:{'/'.join(parts[:length])}" for length in range(len(parts), 0, -1)]
            root = str(root_policy(account))
            around[name] = next((policy for policy in beginnings if policy in self.resources), root)
        return Ownership(records, around)

    def api_key_off(self, role: str) -> bool:
        """Whether the annotation of a role says that it has no API key."""
        value, _ = self.annotations.get((role, API_KEY_ANNOTATION), ("", None))
        return forbids_api_key(API_KEY_ANNOTATION, value)

    def newest_key(self, account: str) -> str | None:
        """The id of the account's newest signing key."""
        keys = self.accounts.get(account)
        return keys[-1].key_id if keys else None

    def add(self, rows: Rows, policy: str | None = None, api_keys: Mapping[str, Sealed] | None = None) -> None:
        """Add rows as ``policy`` records them.

        :raises PolicyConflict: a row with that key exists, or what it refers to does not.
        """
        created = {row.resource for row in rows.resources if is_role_kind(kind_of(row.resource))}
        self.delete_roles(created - self.resources.keys())
        _insert(self.roles, dict.fromkeys(created, policy))
        _insert(self.credentials, dict(api_keys or {}))
        _insert(self.resources, {row.resource: (row.owner, policy) for row in rows.resources})
        for made in rows.resources:
            self.made[made.resource] = self.next_number("made")
        for row in rows.memberships:
            self.unmap(row.role, row.member, ownership=row.ownership)
        _insert(self.memberships, {row[:3]: (row.admin_option, policy) for row in rows.memberships})
        _insert(self.permissions, dict.fromkeys(rows.permissions, policy))
        _insert(self.annotations, {row[:2]: (row.value, policy) for row in rows.annotations})
        _insert(self.restrictions, dict.fromkeys(map(tuple, rows.restrictions)))
        referred = {
            *(row.owner for row in rows.resources),
            *(role for row in rows.memberships for role in row[:2]),
            *(row.role for row in rows.permissions),
            *(row.role for row in rows.restrictions),
            *self.credentials,
        }
        things = {row.resource for row in rows.permissions} | {row.resource for row in rows.annotations}
        if not (referred <= self.roles.keys() and things <= self.resources.keys()):
            raise PolicyConflict

    def is_mapped(self, role: str, member: str, ownership: bool = False) -> bool:
        """Whether there is a grant that nobody said."""
        return not ownership and any(mark[3:] == (role, member) for mark in self.mapped)

    def unmap(self, role: str, member: str, *, ownership: bool = False) -> None:
        """Remove a grant that nobody said."""
        if self.is_mapped(role, member, ownership):
            remove(self.mapped, lambda mark, _: mark[3:] == (role, member))
            del self.memberships[role, member, False]

    def follow_mappings(self) -> None:
        """Let go what followed from mappings that are gone, and mappings that have nothing to speak of."""
        remove(self.mappings, lambda key, _: key[0] not in self.resources or key[3] not in self.roles)
        gone = [m for m in self.mapped if m[:4] not in self.mappings or (*m[3:], False) not in self.memberships]
        for mark in gone:
            del self.mapped[mark]
        for _, _, _, role, member in gone:
            grant = self.memberships.get((role, member, False))
            if grant is not None and grant[1] is None and not self.is_mapped(role, member):
                del self.memberships[role, member, False]

    def add_value(self, resource: str, sealed: Sealed, ends_at: float | None = None) -> int:
        """Give a resource a new value, and return its version."""
        values = self.secrets.setdefault(resource, {})
        version = max(values, default=0) + 1
        self.serial += 1
        values[version] = (self.serial, sealed)
        self.lives[resource, version] = (self.now, ends_at)
        self._keep_values(resource, {old: values.pop(old) for old in sorted(values) if old <= version - KEPT})
        row = self.expirations.get(resource)
        if row is not None:
            about = self.about_expiration(resource)
            due_at = -inf if ends_at is None or row.settled != about else ends_at
            self.expirations[resource] = attrs.evolve(row, due_at=due_at, edition=row.edition + 1, failures=0, fault=None)
        return version

    def identity(self, role: str) -> RoleIdentity:
        """The role of a name that there is."""
        return RoleIdentity(role, self.creations.get(role, 0))

    def keep(self, row: KeptRow) -> None:
        """Keep what was deleted, under a number of its own, as of now."""
        number = self.next_number("deleted")
        self.deleted[number] = attrs.evolve(row, record=attrs.evolve(row.record, number=number, deleted_at=self.now))

    def next_number(self, of: str) -> int:
        """A number that nothing else of a sort has had."""
        self.last[of] = self.last.get(of, 0) + 1
        return self.last[of]

    def bound_deleted(self, account: str) -> int:
        """Remove the oldest of an account that has too much, and return how many these were."""
        total, gone = 0, []
        for number in sorted((number for number, row in self.deleted.items() if row.account == account), reverse=True):
            total += self.deleted[number].bytes
            gone += [number] if total > self.keeping.bytes else []
        for number in gone:
            del self.deleted[number]
        return len(gone)

    def _keep_values(self, resource: str, values: Mapping[int, tuple[int, Sealed]]) -> None:
        """Keep values that newer ones pushed out."""
        kept = {version: (sealed, self.lives.pop((resource, version))) for version, (_, sealed) in values.items()}
        owner, policy = self.resources.get(resource, ("", None))
        if not (kept and policy and self.keeping.is_enabled and kind_of(resource) == "variable"):
            return
        known, made = self.identity(owner), self.made[resource]
        readers = frozenset(self.identity(key[2]) for key in self.permissions if key[:2] == (resource, "execute"))
        record = DeletedRecord(0, resource, known, None, True, made, 0.0, 0.0, readers, versions=tuple(kept))
        self.keep(KeptRow(record, self.identity(policy), kept))
        pushed = [n for n, row in self.deleted.items() if row.record.resource == resource and row.record.overwritten]
        for number in sorted(pushed)[:-OVERWRITTEN_MOST]:
            del self.deleted[number]

    def about_expiration(self, resource: str) -> dict[str, str]:
        """The annotations of a resource that bear on expiration."""
        return {
            name: value
            for (thing, name), (value, _) in self.annotations.items()
            if thing == resource and is_about_expiration(name)
        }

    def carried(self, limit: RecordLimit, record: str) -> int:
        """Return how much of what a limit counts a record carries."""
        annotations = [(name, value) for (thing, name), (value, _) in self.annotations.items() if thing == record]
        match limit:
            case RecordLimit.ANNOTATIONS:
                return len(annotations)
            case RecordLimit.ANNOTATION_BYTES:
                return sum(len(text.encode("utf-8")) for annotation in annotations for text in annotation)
            case RecordLimit.PERMISSIONS:
                return sum(resource == record for resource, _, _ in self.permissions)
            case RecordLimit.RESTRICTIONS:
                return sum(role == record for role, _ in self.restrictions)
            case RecordLimit.PUBLIC_KEYS:
                return sum(record in user_of(resource) for resource in self.resources)
            case RecordLimit.LAYERS:
                held = (role for role, member, ownership in self.memberships if member == record and not ownership)
                return sum(kind_of(role) == "layer" for role in held)

    def ended_at(self, resource: str, version: int) -> float | None:
        """When a value ended; ``None`` while it hasn't."""
        _, ends_at = self.lives[resource, version]
        rotated = (resource, ROTATOR) in self.annotations
        return None if ends_at is None or ends_at > self.now or rotated else ends_at

    def delete_resources(self, resources: Iterable[str], loaded: str | None = None) -> None:
        """Delete resources and all that belongs to them, their roles among it that policies recorded, in a load of
        ``loaded``.
        """
        gone = set(resources)
        self.delete_roles((role for role in gone if self.roles.get(role) is not None), loaded)
        remove(self.resources, lambda resource, _: resource in gone)
        remove(self.permissions, lambda key, _: key[0] in gone)
        remove(self.annotations, lambda key, _: key[0] in gone)
        remove(self.secrets, lambda resource, _: resource in gone)
        remove(self.lives, lambda key, _: key[0] in gone)
        remove(self.expirations, lambda resource, _: resource in gone)
        remove(self.switches, lambda resource, _: resource in gone)
        remove(self.refreshes, lambda resource, _: resource in gone)
        remove(self.distrusted, lambda key, _: key[0] in gone)
        remove(self.directory_rounds, lambda resource, _: resource in gone)
        remove(self.directory_users, lambda _, row: row[0] in gone)
        remove(self.factory_tokens, lambda _, token: str(token.factory) in gone)
        self.follow_mappings()

    def own_within(self, gone: Iterable[str], loaded: str | None) -> set[str]:
        """Return the policies that own themselves, stand in one of those that go, and were recorded by the loaded one."""
        own = [name for name, seen in self.resources.items() if seen == (name, loaded) and kind_of(name) == "policy"]
        around = self.ownership(own).enclosing_policies
        return {name for name in own if around[name] in gone and around[name] != str(root_policy(name.partition(":")[0]))}

    def delete_roles(self, roles: Iterable[str], loaded: str | None = None) -> None:
        """Delete roles, what they own, and what they recorded if they are policies, in a load of ``loaded``."""
        gone = set(roles)
        while (
            following := {
                role
                for role, policy in self.roles.items()
                if policy is not None and gone.intersection((policy, *self.resources.get(role, ())[:1]))
            }.union(self.own_within(gone, loaded))
            - gone
        ):
            gone |= following
        if not gone:
            return
        for role in gone & self.roles.keys():
            del self.roles[role]
            self.epochs.pop(role, None)
            self.creations[role] = self.creations.get(role, 0) + 1
        for table in (
            self.credentials,
            self.passwords,
            self.key_expirations,
            self.rotations,
            self.editions,
            self.last_logins,
            self.directory_users,
        ):
            remove(table, lambda role, _: role in gone)
        remove(self.sessions, lambda key, _: key[0] in gone)
        remove(self.restrictions, lambda key, _: key[0] in gone)
        remove(self.versions, lambda policy, _: policy in gone)
        remove(self.memberships, lambda key, value: gone.intersection((*key[:2], value[1])))
        remove(self.permissions, lambda key, policy: gone.intersection((key[2], policy)))
        remove(self.annotations, lambda _, value: value[1] in gone)
        self.delete_resources(
            [
                resource
                for resource, value in self.resources.items()
                if gone.intersection(value) or gone.intersection(user_of(resource))
            ],
            loaded,
        )


def after(moment: float, duration: Duration | None) -> float | None:
    """A moment later; months have thirty days here."""
    if duration is None:
        return None
    return moment + (duration.months * 30 + duration.days) * 86400 + duration.seconds


def kind_of(name: str) -> str:
    """The kind in a full id."""
    return name.split(":", 2)[1]


def user_of(resource: str) -> list[str]:
    """Return the user that a public key is of; none for anything else."""
    account, kind, identifier = resource.split(":", 2)
    place, _, key = identifier.partition("/")
    user, slash, _ = key.partition("/")
    return [f"{account}:user:{user}"] if kind == "public_key" and place == "user" and slash else []


def _insert(table: dict[Any, Any], rows: Mapping[Any, object]) -> None:
    if table.keys() & rows.keys():
        raise PolicyConflict
    table.update(rows)


def remove(table: dict[Any, Any], condition: Callable[[Any, Any], object]) -> None:
    """Delete the rows on which ``condition(key, value)`` is true."""
    for key in [key for key, value in table.items() if condition(key, value)]:
        del table[key]


class MemoryStore(Fake):
    """The beginning of a fake that has ``memory`` in place of a database."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory


class MemoryAccounts(MemoryStore, AccountStore):
    """A fake of ``AccountStore``."""

    async def create_account(
        self,
        account: str,
        admin_key: Sealed,
        signing_key: StoredSigningKey,
        trail: EventBatch | None = None,
        once: Once[None] | None = None,
        *,
        announced: bool = True,
    ) -> None:
        """See ``AccountStore``."""
        self.memory.write()
        self.memory.begin_once(once)
        if account in self.memory.accounts:
            raise Conflict("account", account, f'account "{account}" already exists')
        admin, root = str(admin_of(account)), str(root_policy(account))
        self.memory.accounts[account] = [attrs.evolve(signing_key, retires_at=None)]
        self.memory.add(
            Rows(
                resources=(ResourceRow(admin, admin), ResourceRow(root, admin)),
                memberships=(MembershipRow(admin, admin, True, True), MembershipRow(root, admin, True, True)),
            ),
            api_keys={admin: admin_key},
        )
        if account == RESERVED_ACCOUNT:
            self.memory.add(Rows(resources=(ResourceRow(str(ACCOUNTS_WEBSERVICE), admin),)))
        if not announced:
            self.memory.unannounced.add(account)
        self.memory.since[account] = max(self.memory.events, default=0)
        self.memory.record(trail)
        self.memory.end_once(once, None)

    async def read_unannounced_key(self, account: str) -> Sealed | None:
        """See ``AccountStore``."""
        self.memory.ask()
        return self.memory.credentials.get(str(admin_of(account))) if account in self.memory.unannounced else None

    async def mark_announced(self, account: str) -> None:
        """See ``AccountStore``."""
        self.memory.write()
        self.memory.unannounced.discard(account)

    async def recover_account(self, account: str, admin_key: Sealed, trail: EventBatch | None = None) -> None:
        """See ``AccountStore``."""
        self.memory.write()
        admin = admin_of(account)
        if account not in self.memory.accounts:
            raise RecordNotFound(account, "account", account)
        if str(admin) not in self.memory.roles:
            raise RecordNotFound.for_name(admin)
        self.memory.credentials[str(admin)] = admin_key
        self.memory.editions[str(admin)] = self.memory.editions.get(str(admin), 0) + 1
        self.memory.key_expirations.pop(str(admin), None)
        self.memory.annotations.pop((str(admin), API_KEY_ANNOTATION), None)
        self.memory.recovered[account] = self.memory.now
        self.memory.record(trail)

    async def list_recovered(self, seconds: float) -> list[tuple[str, float]]:
        """See ``AccountStore``."""
        self.memory.ask()
        found = sorted(self.memory.recovered.items(), key=lambda pair: pair[1])
        return [(account, at) for account, at in found if at > self.memory.now - seconds]

    async def delete_account(self, account: str, trail: EventBatch | None = None) -> None:
        """See ``AccountStore``."""
        self.memory.write()
        if self.memory.accounts.pop(account, None) is None:
            raise RecordNotFound(account, "account", account)
        self.memory.epochs.pop(account, None)
        self.memory.unannounced.discard(account)
        self.memory.delete_resources([name for name in self.memory.resources if name.startswith(f"{account}:")])
        self.memory.delete_roles([name for name in self.memory.roles if name.startswith(f"{account}:")])
        remove(self.memory.deleted, lambda _, row: row.account == account)
        self.memory.record(trail)

    async def list_accounts(self) -> list[str]:
        """See ``AccountStore``."""
        self.memory.ask()
        return sorted(self.memory.accounts.keys() - {RESERVED_ACCOUNT}, key=str.encode)

    async def list_signing_keys(self, account: str) -> list[StoredSigningKey]:
        """See ``AccountStore``."""
        self.memory.ask()
        return list(self.memory.accounts.get(account, []))

    async def list_newest_signing_keys(self, after: str, limit: int) -> list[tuple[str, StoredSigningKey | None]]:
        """See ``AccountStore``."""
        self.memory.ask()
        newest = [(name, keys[-1] if keys else None) for name, keys in sorted(self.memory.accounts.items()) if name > after]
        return [(name, None if key is None or key.retires_at is not None else key) for name, key in newest[:limit]]

    async def find_signing_keys(self, key_ids: Sequence[str]) -> list[StoredSigningKey]:
        """See ``AccountStore``."""
        self.memory.ask()
        return [key for keys in self.memory.accounts.values() for key in keys if key.key_id in key_ids]

    async def rotate_signing_key(self, new: StoredSigningKey, retire_at: float) -> None:
        """See ``AccountStore``."""
        self.memory.write()
        if new.account not in self.memory.accounts:
            raise RecordNotFound(new.account, "account", new.account)
        retired = [
            attrs.evolve(key, retires_at=retire_at if key.retires_at is None else min(key.retires_at, retire_at))
            for key in self.memory.accounts[new.account]
        ]
        self.memory.accounts[new.account] = [*retired, attrs.evolve(new, retires_at=None)]

    async def revoke_tokens(self, account: str, trail: EventBatch | None = None) -> None:
        """See ``AccountStore``."""
        self.memory.write()
        if account not in self.memory.accounts:
            raise RecordNotFound(account, "account", account)
        self.memory.epochs[account] = self.memory.epochs.get(account, 0) + 1
        self.memory.record(trail)


class MemoryKeptAnswers(MemoryStore, IdempotencyStore):
    """A fake of ``IdempotencyStore``."""

    async def read_answer(self, request: RequestKey) -> StoredAnswer | None:
        """See ``IdempotencyStore``."""
        self.memory.ask()
        self.memory.answers_sought += 1
        return self.memory.kept(request)

    async def purge_expired(self) -> int:
        """See ``IdempotencyStore``."""
        self.memory.write()
        old = [key for key, (made_at, _) in self.memory.answers.items() if made_at < self.memory.now - KEPT_SECONDS - 60]
        return sum(len(self.memory.answers.pop(key)[1].pieces) for key in old)


class MemoryCredentials(MemoryStore, CredentialStore):
    """A fake of ``CredentialStore``."""

    async def read_credential(self, role: RoleName) -> Credential:
        """See ``CredentialStore``."""
        self.memory.ask()
        return Credential(
            role.account in self.memory.accounts,
            str(role) in self.memory.roles,
            self.memory.credentials.get(str(role)),
            self.memory.newest_key(role.account),
            self.memory.passwords.get(str(role)),
            self.memory.key_expirations.get(str(role)),
            tuple(ip_network(cidr) for name, cidr in sorted(self.memory.restrictions) if name == str(role)),
            *self.memory.numbers(str(role)),
            self.memory.editions.get(str(role), 0),
            self.memory.api_key_off(str(role)),
            self.memory.missing_from(str(role)),
        )

    async def set_api_key(
        self, role: RoleName, api_key: Sealed, trail: EventBatch | None = None, once: Once[None] | None = None
    ) -> None:
        """See ``CredentialStore``."""
        self.memory.write()
        self.memory.begin_once(once)
        if str(role) not in self.memory.roles:
            raise RecordNotFound.for_name(role)
        self.memory.credentials[str(role)] = api_key
        self.memory.editions[str(role)] = self.memory.editions.get(str(role), 0) + 1
        self.memory.rotations[str(role)] = self.memory.made_at
        self.memory.record(trail)
        self.memory.end_once(once, None)

    async def read_rotation_time(self, role: RoleName) -> float | None:
        """See ``CredentialStore``."""
        self.memory.ask()
        return self.memory.rotations.get(str(role))

    async def set_password(
        self, role: RoleName, password: Sealed, instead_of: Sealed | None = None, trail: EventBatch | None = None
    ) -> bool:
        """See ``CredentialStore``."""
        self.memory.write()
        if str(role) not in self.memory.credentials:
            return False
        if instead_of is not None and self.memory.passwords.get(str(role)) != instead_of:
            return False
        self.memory.passwords[str(role)] = password
        if instead_of is None:
            self.memory.editions[str(role)] = self.memory.editions.get(str(role), 0) + 1
        self.memory.record(trail)
        return True

    async def revoke_tokens(self, role: RoleName, trail: EventBatch | None = None) -> None:
        """See ``CredentialStore``."""
        self.memory.write()
        if str(role) not in self.memory.roles:
            raise RecordNotFound.for_name(role)
        self.memory.epochs[str(role)] = self.memory.epochs.get(str(role), 0) + 1
        self.memory.record(trail)

    def renew_password(self, role: RoleName, password: Sealed, instead_of: Sealed) -> None:
        """See ``CredentialStore``."""
        if not (self.memory.down or self.memory.standby) and self.memory.passwords.get(str(role)) == instead_of:
            self.memory.passwords[str(role)] = password


class MemoryRoles(MemoryStore, RoleStore):
    """A fake of ``RoleStore``."""

    async def access_facts(self, caller: CallerOrRole, resource: ResourceName) -> AccessFacts:
        """See ``RoleStore``."""
        self.memory.ask()
        return self.memory.access_facts(caller, str(resource))

    async def holds_role(self, caller: Caller, role: RoleName) -> bool:
        """See ``RoleStore``."""
        return (await self.access_facts(caller, role.resource)).holds

    async def can_inspect(self, caller: RoleName, resource: ResourceName) -> bool:
        """See ``RoleStore``."""
        self.memory.ask()
        return self.memory.inspects(str(caller), str(resource))

    async def cached_access_facts(self, caller: CallerOrRole, resource: ResourceName) -> AccessFacts:
        """See ``RoleStore``."""
        return await self.access_facts(caller, resource)

    async def caller_exists(self, caller: Caller) -> bool:
        """See ``RoleStore``."""
        self.memory.ask()
        return self.memory.asker(caller) in self.memory.roles

    async def read_role(self, role: RoleName) -> RoleReading | None:
        """See ``RoleStore``."""
        self.memory.ask()
        if str(role) not in self.memory.roles:
            return None
        owners = sorted((row for row in self._listed(MembersQuery(role), 0) if row.ownership), key=lambda row: row.member)
        return RoleReading(self.memory.made_at, self.memory.roles[str(role)], tuple(owners))

    async def list_members(self, query: MembersQuery) -> list[Membership]:
        """See ``RoleStore``."""
        return _page(query, self._listed(query, 0), lambda row: row.member)

    async def list_members_with_facts(
        self,
        caller: CallerOrRole,
        query: MembersQuery,
        *,
        whole: bool = False,
    ) -> tuple[AccessFacts, list[Membership]]:
        """See ``RoleStore``."""
        access_facts = await self.access_facts(caller, query.role.resource)
        known = access_facts.owns or access_facts.holds or access_facts.privileges or access_facts.inspects
        return access_facts, await self.list_members(query) if known else []

    async def count_members(self, query: MembersQuery) -> int:
        """See ``RoleStore``."""
        return len(await self.list_members(attrs.evolve(query, limit=None, offset=0, after=None)))

    async def list_memberships(self, query: MembersQuery) -> list[Membership]:
        """See ``RoleStore``."""
        return _page(query, self._listed(query, 1), lambda row: row.role)

    async def count_memberships(self, query: MembersQuery) -> int:
        """See ``RoleStore``."""
        return len(await self.list_memberships(attrs.evolve(query, limit=None, offset=0, after=None)))

    async def list_effective_members(self, query: MembersQuery) -> EffectiveMembers:
        """See ``RoleStore``."""
        self.memory.ask()
        led_from: dict[str, str] = {}
        coming = [str(query.role)]
        while coming:
            last = coming.pop(0)
            for role, member, _ in sorted(self.memory.memberships):
                if role == last and member not in led_from:
                    led_from[member] = last
                    if member != str(query.role):
                        coming.append(member)
        places = [ListingKey(member, rank=rank) for member in led_from for rank in self._ranks(query, member)]
        found = _page(query, places, lambda place: place.name)
        ranks = {place.name: place.rank for place in found if place.rank is not None}
        return EffectiveMembers(str(query.role), [place.name for place in found], ranks, led_from)

    async def list_held_roles(self, role: RoleName) -> list[str]:
        """See ``RoleStore``."""
        self.memory.ask()
        return sorted(self.memory.held(str(role)))

    async def stream_graph(self, caller: RoleName, role: RoleName) -> AsyncIterator[Sequence[tuple[str, str]]]:
        """See ``RoleStore``; a batch has two pairs."""
        below = set((await self.list_effective_members(MembersQuery(role))).members)
        around = below | self.memory.held(str(role))
        edges = sorted({(parent, child) for parent, child, _ in self.memory.memberships if parent in around})
        seen = [edge for edge in edges if self._sees(str(caller), edge[0])]
        for start in range(0, len(seen), 2):
            yield seen[start : start + 2]

    async def add_member(
        self,
        caller: CallerOrRole,
        role: RoleName,
        member: RoleName,
        decide: Callable[[MemberChangeFacts], None],
        trail: EventBatch | None = None,
    ) -> bool:
        """See ``RoleStore``."""
        self.memory.ask()
        decide(self._member_reading(caller, role, member))
        self.memory.write()
        for name in (role, member):
            if str(name) not in self.memory.roles:
                raise RecordNotFound.for_name(name)
        key = (str(role), str(member), False)
        self.memory.unmap(str(role), str(member))
        if key in self.memory.memberships:
            return False
        layers = self.memory.carried(RecordLimit.LAYERS, str(member))
        if (member.kind, role.kind) == ("host_factory", "layer") and layers >= RECORD_LIMITS.layers:
            raise InvalidParameter("member", "has too many layers")
        self.memory.memberships[key] = (False, None)
        self.memory.record(trail)
        return True

    async def remove_member(
        self,
        caller: CallerOrRole,
        role: RoleName,
        member: RoleName,
        decide: Callable[[MemberChangeFacts], None],
        trail: EventBatch | None = None,
    ) -> bool:
        """See ``RoleStore``."""
        self.memory.ask()
        decide(self._member_reading(caller, role, member))
        self.memory.write()
        removed = self.memory.memberships.pop((str(role), str(member), False), None) is not None
        self.memory.follow_mappings()
        self.memory.record(trail if removed else None)
        return removed

    def _listed(self, query: MembersQuery, own: int) -> list[Membership]:
        """What matches of the memberships whose column ``own`` has the role; 0 is that of roles, 1 that of members."""
        self.memory.ask()
        return [
            Membership(*key[:2], admin_option, key[2], policy, rank)
            for key, (admin_option, policy) in self.memory.memberships.items()
            if key[own] == str(query.role)
            for rank in self._ranks(query, key[:2][1 - own])
        ]

    def _ranks(self, query: MembersQuery, name: str) -> list[int | None]:
        """The class of a listed role, as a list that is empty when the query does not match it."""
        if query.kinds and kind_of(name) not in query.kinds:
            return []
        if query.search is None:
            return [None]
        rank = search_rank(self.memory.annotations, query.search, name) if name in self.memory.resources else None
        return [] if rank is None else [rank if query.search.by_class else None]

    def _sees(self, caller: str, resource: str) -> bool:
        access_facts = self.memory.access_facts(caller, resource)
        return access_facts.owns or bool(access_facts.privileges) or access_facts.inspects

    def _member_reading(self, caller: CallerOrRole, role: RoleName, member: RoleName) -> MemberChangeFacts:
        access_facts = self.memory.access_facts(caller, str(role))
        policy = access_facts.recorded_by
        over_policy = None if policy is None else self.memory.access_facts(caller, policy)
        return MemberChangeFacts(access_facts, over_policy, str(member) in self.memory.roles)


def _page(query: MembersQuery, rows: Iterable[L], name: Callable[[L], str]) -> list[L]:
    """What a query asks for of the rows that match it."""

    def place(row: L) -> ListingKey:
        return ListingKey(name(row), getattr(row, "ownership", False), row.rank)

    after = query.after
    found = [row for row in rows if after is None or after.is_before(place(row))]
    found.sort(key=lambda row: (row.rank or 0, name(row).encode(), place(row).ownership))
    beyond = None if query.limit is None else query.offset + query.limit
    return found[query.offset : beyond]


class MemorySecrets(MemoryStore, SecretStore):
    """A fake of ``SecretStore``; ``prefix`` is the dialect's."""

    def __init__(self, memory: Memory, prefix: str = "svc") -> None:
        super().__init__(memory)
        self.prefix = prefix

    async def read_value(self, caller: CallerOrRole, variable: ResourceName, version: int | None = None) -> SecretReading:
        """See ``SecretStore``."""
        self.memory.ask()
        return self._reading(caller, variable, version)

    async def read_newest_values(
        self, caller: CallerOrRole, resources: Sequence[ResourceName], most: int
    ) -> list[SecretReading]:
        """See ``SecretStore``."""
        self.memory.ask()
        return self._readings(caller, [str(name) for name in resources], most)

    async def digest_values(
        self, caller: CallerOrRole, ids: Sequence[str], make: Callable[[Sequence[SecretReading]], str]
    ) -> str:
        """See ``SecretStore``."""
        self.memory.ask()
        return make(self._readings(caller, ids, 0))

    def _readings(self, caller: CallerOrRole, ids: Sequence[str], most: int) -> list[SecretReading]:
        readings = [attrs.evolve(self._reading(caller, full, None), mime_type=None) for full in ids]
        readings = [
            reading if decide_privilege(reading.access_facts, "execute") == Allowed() else attrs.evolve(reading, sealed=None)
            for reading in readings
        ]
        if sum(len(reading.sealed or b"") for reading in readings) > most:
            return [attrs.evolve(reading, sealed=None) for reading in readings]
        return readings

    async def write_value(
        self,
        caller: CallerOrRole,
        variable: ResourceName,
        decide: Callable[[SecretReading], Sealed | None],
        trail: EventBatch | None = None,
    ) -> int | None:
        """See ``SecretStore``."""
        self.memory.write()
        sealed = decide(self._reading(caller, variable, None))
        if sealed is None:
            return None
        self.memory.record(trail)
        about = self.memory.about_expiration(str(variable))
        lifetime = None if ROTATOR in about else parse_lifetime(about.get(LIFETIME))
        return self.memory.add_value(str(variable), sealed, after(self.memory.now, lifetime))

    def _reading(self, caller: CallerOrRole, variable: ResourceName | str, version: int | None) -> SecretReading:
        values = self.memory.secrets.get(str(variable), {})
        asked = max(values, default=0) if version is None else version
        mime_type, _ = self.memory.annotations.get((str(variable), f"{self.prefix}/mime_type"), (None, None))
        access_facts = self.memory.access_facts(caller, str(variable))
        if asked not in values:
            return SecretReading(access_facts, mime_type=mime_type)
        ended_at = self.memory.ended_at(str(variable), asked)
        sealed = None if ended_at or access_facts.inspects else values[asked][1]
        return SecretReading(access_facts, sealed, asked, mime_type, ended_at, values[asked][0])


class MemoryAuthenticators(MemoryStore, AuthenticatorStore):
    """A fake of ``AuthenticatorStore``."""

    async def read_settings(self, account: str, branch: str, names: Sequence[str]) -> AuthenticatorSettings:
        """See ``AuthenticatorStore``."""
        self.memory.ask()
        values = {name: value for name, (_, value) in self._newest(account, branch, names).items()}
        return AuthenticatorSettings(self._edition(account, branch, names), values, *self._told(account, branch))

    async def read_candidate(
        self,
        role: RoleName,
        branch: str,
        names: Sequence[str],
        annotated: str,
        *,
        afresh: bool = False,
    ) -> CandidateFacts:
        """See ``AuthenticatorStore``."""
        self.memory.ask()
        access_facts = self.memory.access_facts(str(role), f"{role.account}:webservice:{branch}")
        annotations = {
            name: value
            for (resource, name), (value, _) in sorted(self.memory.annotations.items())
            if resource == str(role) and name.startswith(f"{annotated}/")
        }
        size = sum(len(value.encode("utf-8")) for value in annotations.values())
        return CandidateFacts(
            self._edition(role.account, branch, names),
            role.account in self.memory.accounts,
            access_facts.caller_exists,
            access_facts.exists,
            access_facts.owns or "authenticate" in access_facts.privileges,
            None if len(annotations) > ANNOTATIONS_LIMIT or size > ANNOTATIONS_BYTES else annotations,
            self.memory.newest_key(role.account),
            tuple(ip_network(cidr) for name, cidr in sorted(self.memory.restrictions) if name == str(role)),
            *self.memory.numbers(str(role)),
        )

    async def read_annotations(self, webservice: ResourceName, names: Sequence[str], limit: int) -> Mapping[str, str]:
        """See ``AuthenticatorStore``."""
        self.memory.ask()
        keys = {name: (str(webservice), name) for name in names}
        return {
            name: self.memory.annotations[key][0][:limit] for name, key in keys.items() if key in self.memory.annotations
        }

    def _told(self, account: str, branch: str) -> tuple[bool | None, frozenset[str], int]:
        """What the webservice was told."""
        webservice = f"{account}:webservice:{branch}"
        keys = frozenset(key for name, key in self.memory.distrusted if name == webservice)
        return self.memory.switches.get(webservice), keys, self.memory.refreshes.get(webservice, 0)

    def _edition(self, account: str, branch: str, names: Sequence[str]) -> str:
        serials = {name: serial for name, (serial, _) in self._newest(account, branch, names).items()}
        switched, distrusted, refreshes = self._told(account, branch)
        return repr((serials, switched, sorted(distrusted), refreshes))

    def _newest(self, account: str, branch: str, names: Sequence[str]) -> dict[str, tuple[int, Sealed | None]]:
        """Serial and value of each declared variable."""
        newest: dict[str, tuple[int, Sealed | None]] = {}
        for name in names:
            variable = f"{account}:variable:{branch}/{name}"
            if variable in self.memory.resources:
                values = self.memory.secrets.get(variable, {})
                ended = values and self.memory.ended_at(variable, max(values))
                newest[name] = (0, None) if not values or ended else values[max(values)]
        return newest

    async def list_webservices(self, prefix: str) -> list[tuple[ResourceName, bool | None]]:
        """See ``AuthenticatorStore``."""
        self.memory.ask()
        names = [ResourceName.parse(name) for name in sorted(self.memory.resources)]
        found = [name for name in names if name.kind == "webservice" and name.identifier.startswith(f"{prefix}/")]
        return [(name, self.memory.switches.get(str(name))) for name in found[:WEBSERVICES_LIMIT]]

    async def list_account_webservices(
        self, account: str, prefix: str, limit: int
    ) -> list[tuple[ResourceName, bool | None]]:
        """See ``AuthenticatorStore``."""
        return [pair for pair in await self.list_webservices(prefix) if pair[0].account == account][:limit]

    async def list_webservices_by_account(
        self, prefix: str, after: str, limit: int
    ) -> dict[str, list[tuple[ResourceName, bool | None]]]:
        """See ``AuthenticatorStore``."""
        found = [
            pair for pair in await self.list_webservices(prefix) if not re.match(f"{prefix}/.*/status$", pair[0].identifier)
        ]
        accounts = sorted(name for name in self.memory.accounts if name > after)[:limit]
        return {name: [pair for pair in found if pair[0].account == name][:WEBSERVICES_PER_ACCOUNT] for name in accounts}

    async def switch_authenticator(self, webservice: ResourceName, on: bool, trail: EventBatch | None = None) -> None:
        """See ``AuthenticatorStore``."""
        self._write(webservice)
        self.memory.record(trail)
        self.memory.switches[str(webservice)] = on

    async def request_key_refresh(self, webservice: ResourceName, trail: EventBatch | None = None) -> int:
        """See ``AuthenticatorStore``."""
        self._write(webservice)
        self.memory.record(trail)
        self.memory.refreshed += 1
        self.memory.refreshes[str(webservice)] = self.memory.refreshed
        return self.memory.refreshed

    async def distrust_key(self, webservice: ResourceName, key: str, by: RoleName, trail: EventBatch | None = None) -> None:
        """See ``AuthenticatorStore``."""
        self._write(webservice)
        others = [other for name, other in self.memory.distrusted if name == str(webservice) and other != key]
        if len(others) >= DISTRUSTED_LIMIT:
            raise InvalidParameter("key", "too many")
        self.memory.distrusted.setdefault((str(webservice), key), (self.memory.made_at, str(by)))
        self.memory.record(trail)

    async def trust_key(self, webservice: ResourceName, key: str, trail: EventBatch | None = None) -> bool:
        """See ``AuthenticatorStore``."""
        self._write(webservice)
        trusted = self.memory.distrusted.pop((str(webservice), key), None) is not None
        self.memory.record(trail if trusted else None)
        return trusted

    async def list_distrusted_keys(self, webservice: ResourceName) -> tuple[DistrustedKey, ...]:
        """See ``AuthenticatorStore``."""
        self.memory.ask()
        rows = sorted(self.memory.distrusted.items())
        return tuple(DistrustedKey(key, since, by) for (name, key), (since, by) in rows if name == str(webservice))

    def _write(self, webservice: ResourceName) -> None:
        self.memory.write()
        if str(webservice) not in self.memory.resources:
            raise RecordNotFound.for_name(webservice)


class MemoryState(MemoryStore, DatabaseState):
    """A fake of ``DatabaseState``."""

    async def check_connection(self) -> None:
        """See ``DatabaseState``."""
        self.memory.ask()

    async def check_transaction(self) -> None:
        """See ``DatabaseState``."""
        self.memory.ask()

    async def read_canary(self) -> Sealed:
        """See ``DatabaseState``."""
        self.memory.ask()
        if self.memory.canary is None:
            raise StoreUnavailable("there is no canary yet")
        return self.memory.canary

    async def establish_canary(self, sealed: Sealed) -> Sealed:
        """See ``DatabaseState``."""
        if self.memory.canary is None:
            self.memory.write()
            self.memory.canary = sealed
        return await self.read_canary()

    async def can_check_known_privileges(self) -> bool:
        """See ``DatabaseState``."""
        self.memory.ask()
        return True

    async def read_position(self) -> ReplicationPosition:
        """See ``DatabaseState``."""
        self.memory.ask()
        high, low = divmod(self.memory.written, 1 << 32)
        lag = (0, 0.0) if self.memory.standby else (None, None)
        return ReplicationPosition(f"{high:X}/{low:X}", self.memory.written, self.memory.standby, *lag)

    async def read_ages(self) -> Ages:
        """See ``DatabaseState``."""
        self.memory.ask()
        made = [keys[-1].created_at for keys in self.memory.accounts.values() if keys]
        return Ages(min(made, default=None), self.memory.backup, self.memory.verified)

    async def record_backup(self) -> None:
        """See ``DatabaseState``. The moment is as good as any other."""
        self.memory.write()
        self.memory.backup = 1.0

    async def record_verified_backup(self, backup: VerifiedBackup) -> None:
        """See ``DatabaseState``."""
        self.memory.write()
        if self.memory.verified is None or self.memory.verified.dumped <= backup.dumped:
            self.memory.verified = backup

    async def read_data_directory(self) -> str | None:
        """See ``DatabaseState``. There is none."""
        self.memory.ask()
        return None


def _copied(table: dict[Any, Any]) -> dict[Any, Any]:
    """A table of its own; the values are never changed, unless they are tables or lists themselves."""
    return {key: value.copy() if isinstance(value, dict | list) else value for key, value in table.items()}

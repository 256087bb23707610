"""The ports of the domain, each with two providers: the real one, and a fake in ``tests/`` that passes the same contract.

Every method that uses the store may raise ``StoreUnavailable`` (try again later), every one that writes ``StoreReadOnly`` (a
standby), and every one that takes a ``Caller`` ``CallerReplaced``. A change writes the events of ``trail`` in its
transaction, and none where nothing changed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from zope.interface import Attribute, Interface

from svc.model.databases import Ages, ReplicationPosition
from svc.model.events import EventBatch
from svc.model.idempotency import Once, RequestKey, StoredAnswer
from svc.model.names import ResourceName, RoleName
from svc.model.ownership import Ownership
from svc.model.policy_loads import Load, LoadOutcome
from svc.model.policy_rows import (
    Changes,
    EffectivePolicyRows,
    EffectiveQuery,
    Excess,
    PolicyVersion,
    PresentRows,
    RecordLimit,
    RowKeys,
    Rows,
    Side,
    Surroundings,
)
from svc.model.query_results import (
    AccessFacts,
    Caller,
    CallerOrRole,
    EffectiveMembers,
    MemberChangeFacts,
    Membership,
    MembersQuery,
    Resource,
    ResourcesPage,
    ResourcesQuery,
    RoleReading,
    Sealed,
    SecretReading,
    StoredSigningKey,
)

T = TypeVar("T")

Decide = Callable[[MemberChangeFacts], None]
Seal = Callable[[SecretReading], Sealed | None]


class IAccounts(Interface):
    """Accounts and their signing keys."""

    async def create_account(
        account: str,
        admin_key: Sealed,
        signing_key: StoredSigningKey,
        trail: EventBatch | None = None,
        once: Once[None] | None = None,
    ) -> None:
        """Make an account with its ``admin`` user, root policy and first signing key.

        The service's own account gets ``ACCOUNTS_WEBSERVICE`` too, which its admin owns.

        :raises Conflict: an account of that name exists.
        :raises AnswerKept: ``once`` says that it was done before (``kept_answers``).
        """

    async def delete_account(account: str, trail: EventBatch | None = None) -> None:
        """Delete an account and all that it holds, in one transaction, however long that takes.

        :raises NotFound: the account is missing.
        """

    async def list_accounts() -> list[str]:
        """Return every account but the service's own, in order."""

    async def list_signing_keys(account: str) -> list[StoredSigningKey]:
        """Return the signing keys of an account, the newest last."""

    async def list_newest_signing_keys(after: str, limit: int) -> list[tuple[str, StoredSigningKey | None]]:
        """Return the next accounts after that name, each with its newest key unless that retires; fewer at the end."""

    async def find_signing_keys(key_ids: Sequence[str]) -> list[StoredSigningKey]:
        """Return those of the signing keys of these ids that there are."""

    async def rotate_signing_key(new: StoredSigningKey, retire_at: float) -> None:
        """Add ``new`` as its account's newest key; those before it retire at ``retire_at`` (epoch seconds), or sooner.

        :raises NotFound: the account is missing.
        """

    async def revoke_tokens(account: str, trail: EventBatch | None = None) -> None:
        """Give an account another epoch, which revokes the access tokens and sessions of all its roles.

        :raises NotFound: the account is missing.
        """


class IRoles(Interface):
    """Roles, their access facts and their members."""

    async def access_facts(caller: CallerOrRole, resource: ResourceName) -> AccessFacts:
        """Return the access facts of ``caller`` and ``resource``."""

    async def holds_role(caller: Caller, role: RoleName) -> bool:
        """Return whether the role exists and the caller holds it."""

    async def can_inspect(caller: RoleName, resource: ResourceName) -> bool:
        """Return whether the role inspects a resource, whatever else it may do with it (INS-1)."""

    async def cached_access_facts(caller: CallerOrRole, resource: ResourceName) -> AccessFacts:
        """Return the access facts, for a decision on them alone: they may come from the read cache (CLU-31)."""

    async def caller_exists(caller: Caller) -> bool:
        """Return whether there is a role of the caller's name, where nothing else is read from the store."""

    async def read_role(role: RoleName) -> RoleReading | None:
        """Return the role by itself; ``None`` when there is none."""

    async def list_members(query: MembersQuery) -> list[Membership]:
        """Return the direct members of a role, by class for a search by class, by id, then grants before ownership."""

    async def list_members_with_facts(
        caller: CallerOrRole, query: MembersQuery, *, whole: bool = False
    ) -> tuple[AccessFacts, list[Membership]]:
        """Return the access facts about the role's resource, and ``list_members``, in one round trip.

        ``whole``: nothing else is read of the list, so that it may come from the read cache (CLU-34).

        There are no members for a caller that neither owns nor holds the role, nor has any privilege on its resource.
        """

    async def count_members(query: MembersQuery) -> int:
        """Return how many members the query matches, whatever its ``limit``, ``offset`` and ``after``."""

    async def list_memberships(query: MembersQuery) -> list[Membership]:
        """Return the memberships that the role itself has in others, ordered by id; otherwise like ``list_members``."""

    async def count_memberships(query: MembersQuery) -> int:
        """Return how many memberships the query matches; otherwise like ``count_members``."""

    async def list_effective_members(query: MembersQuery) -> EffectiveMembers:
        """Return all that hold the role, directly or through others, each once; otherwise like ``list_members``.

        The role itself is among them where its memberships make a circle. ``after`` has no ``ownership``.

        :raises TooManyRoles: they are too many, or too far away, to be followed.
        """

    async def list_held_roles(role: RoleName) -> list[str]:
        """Return the full ids of all roles that the role holds, directly or through others, and its own, in order.

        :raises TooManyRoles: they are too many to be followed.
        """

    def stream_graph(caller: RoleName, role: RoleName) -> AsyncIterator[Sequence[tuple[str, str]]]:
        """Return the memberships of a role, of those that it holds, and of those that hold it, in order and in batches.

        They are pairs of a role, whose resource the caller sees, and a direct member of it, each once (ROLE-31).

        :raises TooManyRoles: they are too many to be followed; before the first batch.
        """

    async def add_member(
        caller: CallerOrRole, role: RoleName, member: RoleName, decide: Decide, trail: EventBatch | None = None
    ) -> bool:
        """Let ``decide`` check, then grant the role to the member, without admin option, as recorded by no policy.

        An existing grant stays as it is; return whether there was none. ``decide`` may be called again when the transaction
        conflicted with another. An exception from it ends the transaction.

        :raises NotFound: the role or the member went meanwhile.
        :raises InvalidParameter: the member is a host factory that has as many layers as a record may have.
        """

    async def remove_member(
        caller: CallerOrRole, role: RoleName, member: RoleName, decide: Decide, trail: EventBatch | None = None
    ) -> bool:
        """Let ``decide`` check, as in ``add_member``, then remove the grant of any recorder; return if there was one."""


class IResources(Interface):
    """Resources, and who sees them."""

    async def list_visible(query: ResourcesQuery) -> list[str]:
        """Return the full ids of the resources that the query matches; a viewer that doesn't exist sees none."""

    async def read_first_page(caller: Caller, query: ResourcesQuery, text_limit: int = 0) -> ResourcesPage:
        """Return the page of a query of ``caller``, which names an account, and neither an owner nor words nor an offset.

        Its ``first`` resources are those that fit into a portion together; ``text_limit`` as in ``stream_described``.

        :raises CallerReplaced: the caller's role isn't the one that there is now.
        """

    async def count_visible(query: ResourcesQuery) -> int:
        """Return how many resources the query matches, whatever its ``limit`` and ``offset``."""

    def stream_described(ids: Sequence[str], text_limit: int = 0) -> AsyncIterator[Sequence[Resource]]:
        """Return those of the resources that exist, in the order of ``ids``, seen or not, in portions of a bounded size.

        One that is too large comes in parts (see ``Resource``), permissions before annotations. Of the histories of
        policies texts are read, of each policy the newest first, until these are more than ``text_limit`` bytes together.
        """

    async def list_permitted_roles(resource: ResourceName, privilege: str, limit: int) -> list[str]:
        """Return the full ids of the roles that have the privilege, in order: the owner, those permitted, and their holders.

        :raises TooManyRoles: they are more than ``limit``.
        """


class ISecrets(Interface):
    """Sealed values of variables, with their versions."""

    async def read_value(caller: CallerOrRole, variable: ResourceName, version: int | None = None) -> SecretReading:
        """Read a value, the newest unless ``version`` is given, and the caller's access facts, in one round trip."""

    async def read_newest_values(caller: CallerOrRole, resources: Sequence[ResourceName], most: int) -> list[SecretReading]:
        """Read the newest value of each, in the order given, in one round trip, without ``mime_type``.

        If all that the caller may read has more than ``most`` bytes, sealed, no value is returned, though each has its
        ``version``. Values that the caller may not read are never returned.
        """

    async def digest_values(caller: CallerOrRole, ids: Sequence[str], make: Callable[[Sequence[SecretReading]], str]) -> str:
        """Return the result of ``make``, always the same function of ``ids``, on ``read_newest_values`` without values;
        cached.
        """

    async def write_value(
        caller: CallerOrRole, variable: ResourceName, decide: Seal, trail: EventBatch | None = None
    ) -> int | None:
        """Let ``decide`` check the variable, locked against other writers, and store what it returns as a new version.

        Keeps the newest ``VERSIONS_KEPT`` versions. ``decide`` is as in ``IRoles.add_member``. Returns the new version,
        ``None`` when ``decide`` returned ``None``.
        """


class IPolicyTransaction(Interface):
    """One transaction of a policy load."""

    async def claim_request_key(request: RequestKey) -> StoredAnswer | None:
        """Block other requests with this key until the transaction ends, and return the answer that is kept for it.

        :raises RequestRunning: one is under way.
        :raises TooOften: too much is kept for the caller already.
        """

    async def keep_answer(request: RequestKey, pieces: Sequence[Sealed]) -> None:
        """Keep the answer to a request whose key was claimed, as sealed pieces."""

    async def lock_policy(policy: RoleName) -> None:
        """Block every other load of this policy until the transaction ends.

        :raises PolicyConflict: one is under way.
        """

    async def access_facts(caller: CallerOrRole, policy: RoleName) -> AccessFacts:
        """Return the access facts of ``caller`` and the policy; as ``IRoles.access_facts``."""

    async def owners_denying(caller: RoleName, policy: RoleName) -> list[str]:
        """Return the owners of the resources below ``<policy id>/`` that deny the caller ``update``, in order (POL-41).

        Hosts that host factories made don't count: no document changes them, and others may have made them.
        """

    async def filter_existing(resources: Sequence[str]) -> frozenset[str]:
        """Return those of the full ids whose resources exist; every role that policy can name has one."""

    async def has_more_rows(policy: RoleName, most: int) -> bool:
        """Return whether the policy has recorded more than ``most`` rows of any one sort."""

    async def read_present_rows(policy: RoleName, wanted: Rows, deleted: Sequence[str]) -> PresentRows:
        """Return the rows relevant to loading ``wanted`` into ``policy`` and to deleting the resources ``deleted``."""

    async def read_rows_by_key(policy: RoleName, keys: RowKeys) -> PresentRows:
        """Return the rows that have these keys, with the restrictions that ``policy`` recorded of these roles."""

    async def read_ownership(records: Sequence[str], placed: Sequence[str]) -> Ownership:
        """Return the ownership of existing ``records``, with the policies around the ids ``placed``, taken or not."""

    async def filter_held(caller: RoleName, roles: Iterable[str]) -> frozenset[str]:
        """Return those of the roles that the caller holds."""

    async def not_grantable(caller: RoleName, roles: Sequence[str]) -> list[str]:
        """Return those of the existing ``roles`` that the caller doesn't hold with admin option (POL-58)."""

    async def not_permittable(caller: RoleName, resources: Sequence[str]) -> list[str]:
        """Return those of the existing ``resources`` that the caller doesn't own (POL-58)."""

    async def not_updatable(caller: RoleName, resources: Sequence[str]) -> list[str]:
        """Return those of the existing ``resources`` on which the caller hasn't ``update``."""

    async def apply_changes(policy: RoleName, changes: Changes, api_keys: Mapping[str, Sealed]) -> int:
        """Make the changes, set-based. ``api_keys`` holds the sealed key of every user and host that is created with one.

        With a resource its role is deleted, what that owns and, of a policy, what it recorded, and so on; of a user, its
        public keys. Of other rows only those are changed and deleted that ``policy`` recorded. Deleted records are kept (see
        ``deleted_records``). Returns how many kept records, the oldest, had to be purged, since the account had too many.
        """

    async def list_exceeding(limit: RecordLimit, records: Sequence[str], most: int) -> list[tuple[str, int]]:
        """Return those of the records that carry more than ``most`` of what the limit counts, and how much; in order."""

    async def list_kinds(account: str) -> list[str]:
        """Return the kinds of which an account has resources, in the order of full ids."""

    async def read_sealed_values(resources: Sequence[str]) -> dict[str, Sealed]:
        """Return the newest values of those of the resources that have one."""

    async def set_values(values: Mapping[str, Sealed]) -> None:
        """Give the resources that exist new values, each as a new version, and keep as many as ``ISecrets`` does."""

    async def record_version(version: PolicyVersion) -> int:
        """Add a version to the policy's history and return its number, counting from 1."""

    async def write_events(trail: EventBatch) -> tuple[int, int]:
        """Write events, and return their numbers: after the first of the two, up to the second."""

    async def read_deletion_cascade(policy: RoleName, resources: Sequence[str], most: int) -> Rows | None:
        """Return every row that may be deleted with ``resources`` in a load of ``policy``: theirs, those of all that they
        own or recorded, and so on.

        Those of roles that outlive their resources are among them. ``None`` when these are more than ``most`` rows.
        """

    async def read_stored_rows(rows: Rows) -> Rows:
        """Return the rows that have the keys of ``rows``, of any recorder, and all restrictions of its resources."""

    async def read_surroundings(resources: Sequence[str], each: int) -> Surroundings:
        """Return the surroundings of ``resources``; of rows that name one of them, ``each`` for each, sort and end."""

    async def read_adjacent_rows(side: Side, names: Sequence[str], each: int, most: int) -> Rows:
        """Return the rows that lead from roles or resources on a side; ``each`` for each sort and name, ``most`` in all."""

    async def filter_visible(caller: RoleName, resources: Sequence[str]) -> frozenset[str]:
        """Return those of ``resources`` that exist and that the caller sees (ROLE-4)."""


class IPolicies(Interface):
    """The store of policies."""

    async def transact(work: Callable[[IPolicyTransaction], Awaitable[T]]) -> T:
        """Run ``work`` in one transaction: all of it happens, or, when it raises, nothing.

        ``work`` is run again from the start when it conflicted with another transaction, so it must be repeatable.

        :raises PolicyConflict: rows that it read were changed meanwhile.
        """


class ILoads(Interface):
    """Loads of policy documents, wherever the work is done."""

    async def load_policy(load: Load) -> LoadOutcome:
        """Load a document, or find out what that would change, for a caller who has the privilege that the mode requires.

        When cancelled, the load runs to its end with its result dropped, or doesn't begin.

        :raises Refusal: the document can't be loaded, or the caller may not do all that it says, or not now.
        """


class IEffectivePolicies(Interface):
    """Policies as they stand."""

    async def read_effective_policy(query: EffectiveQuery) -> EffectivePolicyRows | Excess | None:
        """Read a policy with all beneath it, as it stands at one moment; ``None`` when it is missing.

        Rows that name a role without a resource are left out: no document can refer to it.
        """


class IDatabaseState(Interface):
    """The state of the database, for health."""

    async def check_connection() -> None:
        """Return when a connection answers."""

    async def check_transaction() -> None:
        """Commit a simple transaction that writes (on a standby: reads)."""

    async def read_canary() -> Sealed:
        """Return the sealed canary that was stored when the database was initialised.

        :raises StoreUnavailable: there is none yet.
        """

    async def establish_canary(sealed: Sealed) -> Sealed:
        """Store the canary unless there is one, and return the one that is stored; used at the start."""

    async def can_check_known_privileges() -> bool:
        """Return whether two queries about privileges, one held and one not, are answered correctly."""

    async def read_position() -> ReplicationPosition:
        """Return the position of the log, and of a standby how far it lags behind."""

    async def read_ages() -> Ages:
        """Return since when keys are in use, and when the last backup was made."""

    async def record_backup() -> None:
        """Note that a backup was made now.

        :raises StoreReadOnly: the database is a standby.
        """


class IProbe(Interface):
    """One check of one service."""

    service = Attribute("""The name in the health report: ``core``, ``authn``, …""")

    async def check() -> None:
        """Return when the service works; raise anything when it does not. The caller sets the deadline."""

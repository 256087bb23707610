"""Policy loads, from the document to the outcome; and dry runs, which report what a load would change (POL-68 to 88).

Note [Near and far]. A large load takes seconds in which a process serves nobody. So the server does small loads itself
("near"), and leaves others to a process that does nothing else ("far", ``svc.worker``). One that began near and turns out to
be too large is rolled back, and begins again, far. A thread would not do, since it holds the interpreter's lock while it
parses. Pauses would not do either: every step would need them, and a comparison of two sets of a million rows can't have
one.

Note [Events come back]. A far load may have changed 100,000 rows. Their audit events are written to the database with the
load, and read back in batches and recorded before it is answered: nothing large goes through a pipe or waits in memory.

Note [The load itself]. A dry run is the load, in its transaction, which an exception rolls back. The rows that may change
are read before and after.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Final

import attrs
from twisted.logger import Logger
from zope.interface import implementer

from svc.crypto.vault import Vault, api_key_name
from svc.model.authentication import DAY
from svc.model.authorization import require_privilege
from svc.model.credentials import new_api_key
from svc.model.dialect import Dialect
from svc.model.errors import Forbidden, InvalidParameter, PolicyConflict, PolicyInvalid, PreconditionFailed, RequestRunning
from svc.model.events import AuditContext, Event, EventBatch, IJournal, Outcome
from svc.model.idempotency import AlreadyAnswered, RequestKey
from svc.model.limits import RecordLimits
from svc.model.names import RoleName, root_policy
from svc.model.policy_loads import (
    Batches,
    Changes,
    ChangeSummary,
    DocumentFaults,
    DryRun,
    ILoads,
    Load,
    LoadMode,
    LoadOutcome,
    LoadResult,
    PolicyVersion,
    PresentRows,
    Rows,
    Surroundings,
    UnreportedChanges,
    version_tag,
)
from svc.model.query_results import Caller
from svc.policy.authority import (
    AffectedRecords,
    RequiredAuthority,
    compute_required_authority,
    find_affected_records,
    warn_of_foreign_records,
)
from svc.policy.change_summary import summarize_load
from svc.policy.differences import LoadImpact, compute_differences, find_impact, list_mentioned
from svc.policy.document import Bounds
from svc.policy.faults import FaultCollector, describe_faults, refuse_faults
from svc.policy.grammar import parse_document
from svc.policy.load_events import make_load_events
from svc.policy.plan import find_new_actors, plan_after_deletions, plan_changes, select_public_keys
from svc.policy.record_limits import (
    excess_refusal,
    find_excess,
    find_grown_records,
    has_other_kinds,
    limit_value,
    refuse_too_many_kinds,
)
from svc.policy.resolve import describe_id, find_lost, find_missing, list_required, refuse_deletions, resolve_statements
from svc.policy.resolved_policy import ResolvedPolicy
from svc.services.access_changes import AccessEdges
from svc.services.going_records import find_effects, read_going_records
from svc.services.idempotency import DecryptedPieces, open_answer, sealed_pieces
from svc.services.invocation import Invocation, printable_facts
from svc.services.readers import ReaderService
from svc.storage.events import EventStore
from svc.storage.policies import PolicyStore, PolicyTransaction
from svc.storage.roles import RoleStore

#: The privilege on the policy that each mode requires (POL-40).
PRIVILEGES: Final = {LoadMode.APPEND: "create", LoadMode.UPDATE: "update", LoadMode.REPLACE: "update"}

LOCAL_BYTES: Final = 8 * 1024  # of a document that is read near, which takes some 5 ms
LOCAL_ROWS: Final = 1000  # of a sort that a document means, or that the policy holds which it replaces, when compared near
NAMED_ROWS: Final = 5000  # that a document may name for these alone to be read, and not all that its policy has recorded
EVENTS: Final = 5000  # of a load that are written at once
WARNINGS_LOGGED: Final = 10  # of a load that are written to the log; its answer has all
BATCHES_READ: Final = 50  # of deleted things of a dry run, in which variables are looked for
READERS_SECONDS: Final = 30 * DAY  # in which a deleted variable was read, for a dry run to name its readers
EVENTS_READ: Final = 250  # that are read and recorded at once, within a few milliseconds of the reactor

_log = Logger()


class LoadTooLarge(Exception):
    """A load is too large to be done near; it is rolled back."""


@attrs.frozen
class PolicyLoadService:
    """The use case of loading a policy, also as a dry run."""

    loads: ILoads
    roles: RoleStore
    events: EventStore
    journal: IJournal
    #: Dry runs name the readers of variables that they would delete, if this is given.
    readers: ReaderService | None = None

    async def load_policy(
        self,
        invocation: Invocation,
        policy: RoleName,
        mode: LoadMode,
        document: bytes,
        *,
        dry_run: bool,
        request: RequestKey | None = None,
        match: frozenset[str] | None = None,
    ) -> LoadOutcome:
        """Load a document into a policy, and pass the events of the rows that changed to the journal.

        With ``request``, a load that was made before isn't made again, and its answer is returned once more. ``match`` is as
        in ``Load``.

        :raises Refusal: as ``ILoads``, or the caller lacks the privilege that the mode requires.
        """
        invocation.recorder.add_audit_facts(dry_run=dry_run)
        # The cost of reading a document is not spent on callers who may not load it.
        require_privilege(
            await self.roles.access_facts(invocation.caller, policy.resource), PRIVILEGES[mode], policy.resource
        )
        trail = invocation.recorder.event_batch
        origin = None if trail is None else trail.origin
        load = Load(policy, mode, invocation.caller, invocation.client_ip, document, dry_run, origin, match=match)
        if request is not None and not dry_run:
            load = attrs.evolve(load, request=request.for_caller(invocation.caller))
        outcome = await self.loads.load_policy(load)
        if isinstance(outcome, LoadResult) and outcome.repeated:
            invocation.recorder.add_audit_facts(repeated=True)
            facts = printable_facts(role=invocation.caller.role, policy=policy)
            _log.info("{role} repeated a load of {policy}, and was given its answer again", **facts)
        elif isinstance(outcome, LoadResult) and outcome.warnings:
            warnings = " ".join(outcome.warnings[:WARNINGS_LOGGED])
            facts = printable_facts(role=invocation.caller.role, policy=policy, warnings=warnings)
            _log.info("{role} loaded {policy}, and was warned: {warnings}", **facts)
        if isinstance(outcome, LoadResult) and origin is not None:
            await self._journal_events(origin, *outcome.audited)
        return await self._add_readers(invocation, outcome) if isinstance(outcome, DryRun) else outcome

    async def _add_readers(self, invocation: Invocation, found: DryRun) -> DryRun:
        """Return the outcome of a dry run with the readers of variables that would be deleted (POL-112)."""
        if self.readers is None:
            return found
        batches = list(islice(found.deleted, BATCHES_READ + 1))
        names = [item["identifier"] for batch in batches[:BATCHES_READ] for item in batch if "identifier" in item]
        variables = [name for name in names if name.split(":", 2)[1] == "variable"]
        if not variables:
            return found
        readers = await self.readers.list_readers_of_several(invocation, variables, READERS_SECONDS)
        if readers is not None and len(batches) > BATCHES_READ:
            readers = attrs.evolve(readers, complete=False)
        return attrs.evolve(found, readers=readers)

    async def _journal_events(self, origin: AuditContext, after: int, last: int) -> None:
        """Pass the events that the database has between these numbers to the journal."""
        while after < last and (found := await self.events.list_events_after(after, last, origin, EVENTS_READ)):
            await self.journal.record_events(origin, [event for _, event in found], Outcome())
            after = found[-1][0]


@implementer(ILoads)
@attrs.frozen
class LoadRouter:
    """Provides ``ILoads`` by two others: ``local`` as long as the load is small, else ``remote`` (Note [Near and far])."""

    local: LocalLoads
    remote: ILoads
    #: The keys of loads that wait for ``remote``, or are read there: these hold no lock in the database yet.
    _in_progress: set[RequestKey] = attrs.field(factory=set, init=False)

    async def load_policy(self, load: Load) -> LoadOutcome:
        """See ``ILoads``."""
        # A dry run reads much besides the document, and aliases expand a short document to a long one.
        if len(load.document) <= LOCAL_BYTES and b"*" not in load.document and not load.dry_run:
            try:
                return await self.local.load_policy(load)
            except LoadTooLarge:
                pass
        if load.request is None:
            return await self.remote.load_policy(load)
        if (made := await self.local.find_stored_answer(load)) is not None:
            return made
        name = attrs.evolve(load.request, target="")
        if name in self._in_progress:
            raise RequestRunning
        self._in_progress.add(name)
        try:
            return await self.remote.load_policy(load)
        finally:
            self._in_progress.discard(name)


@implementer(ILoads)
@attrs.frozen
class LocalLoads:
    """Provides ``ILoads``, by doing the work.

    ``most`` bounds the rows of each sort: ``LoadTooLarge`` when there are more, or what the load deletes may reach far.
    """

    store: PolicyStore
    vault: Vault
    dialect: Dialect
    bounds: Bounds
    most: int | None = None

    async def load_policy(self, load: Load) -> LoadOutcome:
        """See ``ILoads``."""
        try:
            faults = FaultCollector()
            statements = parse_document(load.document, self.bounds, self.dialect.lenient_policy, faults)
            resolved = resolve_statements(statements, load.policy, self.dialect, faults)
            if faults.found:
                _refuse_faults(load, [*faults.found, *await self._find_missing(resolved, faults)])
            refuse_deletions(load.mode, resolved)
            self._require_small(resolved.related > (self.most or 0))
            return await self.store.transact(functools.partial(self._load_in_transaction, load, resolved))
        except DryRunFinished as end:
            return end.outcome
        except PolicyInvalid as fault:
            if not load.dry_run:
                raise (fault if fault.faults else refuse_faults(load.policy.identifier, [fault])) from None
            return finish_with_faults(load.policy, [fault]).outcome

    async def _find_missing(self, resolved: ResolvedPolicy, faults: FaultCollector) -> list[PolicyInvalid]:
        """Return the references of a document with other faults to what doesn't exist, as far as there is room for them."""
        room = faults.most - len(faults.found)
        if faults.loses_declarations or not resolved.references or room <= 0:
            return []
        references = tuple(resolved.references)
        existing = await self.store.transact(lambda transaction: transaction.filter_existing(references))
        return list(islice(find_missing(resolved, existing), room))

    async def find_stored_answer(self, load: Load) -> LoadResult | None:
        """Return the answer that is kept for a load, ``None`` when there is none, without resolving the document.

        :raises Refusal: a load with its key is under way, or the key belongs to another, or the caller may not load it now.
        """
        return await self.store.transact(functools.partial(self._find_stored_answer, load))

    async def _find_stored_answer(self, load: Load, transaction: PolicyTransaction) -> LoadResult | None:
        if load.request is None or (kept := await transaction.claim_request_key(load.request)) is None:
            return None
        # The caller may no longer be permitted to get the kept answer.
        await _require_privilege(transaction, load.caller, load.policy, load.mode)
        kept.require_same_request(load.request.with_body(load.document))
        answer = open_answer(self.vault, AlreadyAnswered(load.request, kept))
        api_keys = Batches[tuple[str, str | None]](DecryptedPieces(self.vault, load.request, kept, first=1))
        changes = ChangeSummary.from_json(answer["changes"]) if "changes" in answer else None
        return LoadResult(answer["version"], api_keys, tuple(answer["warnings"]), repeated=True, changes=changes)

    async def _load_in_transaction(self, load: Load, resolved: ResolvedPolicy, transaction: PolicyTransaction) -> LoadResult:
        policy, caller = load.policy, load.caller.role
        if (made := await self._find_stored_answer(load, transaction)) is not None:
            return made
        present = await self._read_present(load, resolved, transaction)
        changes = plan_changes(load.mode, resolved.rows, present, resolved.removals)
        self._require_small(bool(changes.delete.resources))
        await _require_authority(transaction, caller, find_affected_records(resolved, present, changes))
        warnings = (*resolved.warnings, *warn_of_foreign_records(resolved, present))
        comparison = Comparison(transaction, caller, policy, self.dialect.dry_run_lists_owners)
        if load.dry_run:
            await comparison.begin(changes)
        going = await read_going_records(transaction, load, resolved, changes)
        api_keys, rekeyed, purged = await self._apply_changes(transaction, load, resolved, present, changes)
        if changes.delete.resources and (names := list_required(load.mode, resolved, present)):
            _refuse_faults(load, find_lost(resolved, present, await transaction.filter_existing(names)))
        foreign = present.foreign
        if changes.delete.resources and (foreign.memberships or foreign.permissions or foreign.annotations):
            changes = await self._recreate_deleted(transaction, load, resolved, changes)
        await refuse_grown(transaction, changes, self.bounds.records)
        await _refuse_circles(transaction, changes)
        if purged and not load.dry_run:
            warnings = (*warnings, f"{purged} deleted records, the oldest, were purged for good: the account has too many.")
        if not (await transaction.access_facts(caller, policy)).exists:
            raise PolicyInvalid("the policy would be deleted with its owner, whom the document does not keep")
        effects = await find_effects(transaction, going, changes, rekeyed)
        api_keys = {actor: key for actor, key in api_keys.items() if actor not in effects.undone}
        summary = summarize_load(resolved, present, changes, effects)
        if load.dry_run:
            raise DryRunFinished(attrs.evolve(await comparison.end(warnings), changes=summary))
        text = load.document.decode("utf-8-sig")
        digest = hashlib.sha256(load.document).hexdigest()
        version = await transaction.record_version(PolicyVersion(policy, text, digest, caller, load.client_ip))
        audited = (0, 0)
        if load.origin is not None:
            audited = await _write_events(transaction, load.origin, make_load_events(policy, version, changes))
        loaded = LoadResult(version, Batches.from_values(api_keys.items()), warnings, audited, changes=summary)
        if load.request is not None:
            request = load.request.with_body(load.document)
            answer = ({"version": version, "warnings": warnings, "changes": summary.as_json()}, *loaded.api_keys)
            await transaction.keep_answer(request, sealed_pieces(self.vault, request, answer))
        return loaded

    async def _read_present(self, load: Load, resolved: ResolvedPolicy, transaction: PolicyTransaction) -> PresentRows:
        """Lock the policy, and return the stored rows that are relevant to a load, unless the document has faults."""
        await transaction.lock_policy(load.policy)
        await _require_privilege(transaction, load.caller, load.policy, load.mode)
        await _require_match(transaction, load)
        missing = find_missing(resolved, await transaction.filter_existing(tuple(resolved.references)))
        _refuse_faults(load, chain(missing, find_excess(resolved.rows, self.bounds.records)))
        if load.mode is not LoadMode.REPLACE and resolved.related <= NAMED_ROWS and resolved.row_keys.count <= NAMED_ROWS:
            return await transaction.read_rows_by_key(load.policy, resolved.row_keys)
        if self.most is not None:
            self._require_small(await transaction.has_more_rows(load.policy, self.most))
        return await transaction.read_present_rows(load.policy, resolved.rows, resolved.removals.resources)

    def _require_small(self, exceeds: bool) -> None:
        if exceeds and self.most is not None:
            raise LoadTooLarge

    async def _apply_changes(
        self, transaction: PolicyTransaction, load: Load, resolved: ResolvedPolicy, present: PresentRows, changes: Changes
    ) -> tuple[dict[str, str | None], frozenset[str], int]:
        """Make the changes.

        Return the users and hosts that were created, with the API keys of those that have one, the public keys that got
        another text, and how many kept records had to be purged.
        """
        api_keys = {actor: new_api_key() if has_key else None for actor, has_key in find_new_actors(changes).items()}
        given = {actor: key for actor, key in api_keys.items() if key is not None}
        names = {actor: api_key_name(RoleName.parse(actor)) for actor in given}
        sealed = {actor: self.vault.seal(names[actor], key.encode("ascii")) for actor, key in given.items()}
        purged = await transaction.apply_changes(load.policy, changes, sealed)
        keys = select_public_keys(resolved.public_keys, present, changes)
        return api_keys, await self._set_public_keys(transaction, load.mode, keys), purged

    async def _recreate_deleted(
        self, transaction: PolicyTransaction, load: Load, resolved: ResolvedPolicy, changes: Changes
    ) -> Changes:
        """Create the wanted rows that were deleted with the policy that had recorded them (POL-94); return all changes."""
        present = await transaction.read_present_rows(load.policy, resolved.rows, ())
        more = plan_after_deletions(resolved.rows, present, resolved.removals)
        if not more:
            return changes
        again = Changes(create=more)
        await _require_authority(transaction, load.caller.role, find_affected_records(resolved, present, again))
        await transaction.apply_changes(load.policy, again, {})
        return attrs.evolve(changes, create=changes.create.merge_with(more))

    async def _set_public_keys(
        self, transaction: PolicyTransaction, mode: LoadMode, keys: Mapping[str, str]
    ) -> frozenset[str]:
        """Set the texts of new public keys, and of those that differ, unless the mode only adds; return the latter."""
        if not keys:
            return frozenset()
        stored = await transaction.read_sealed_values(tuple(keys))
        due = {}
        for name, line in keys.items():
            key = line.encode("utf-8")
            if name not in stored or (mode is not LoadMode.APPEND and self.vault.open(name, stored[name]) != key):
                due[name] = self.vault.seal(name, key)
        await transaction.set_values(due)
        return frozenset(due.keys() & stored.keys())


async def _write_events(transaction: PolicyTransaction, origin: AuditContext, events: Iterator[Event]) -> tuple[int, int]:
    """Write the events of a load, some at a time, and return their numbers as ``PolicyTransaction.write_events`` does."""
    ranges = []
    while some := tuple(islice(events, EVENTS)):
        ranges.append(await transaction.write_events(EventBatch(origin, some)))
    return (ranges[0][0], ranges[-1][1]) if ranges else (0, 0)


def _refuse_faults(load: Load, faults: Iterable[PolicyInvalid]) -> None:
    """Refuse a document for its faults, if it has any."""
    if found := list(faults):
        raise finish_with_faults(load.policy, found) if load.dry_run else refuse_faults(load.policy.identifier, found)


async def _require_privilege(transaction: PolicyTransaction, caller: Caller, policy: RoleName, mode: LoadMode) -> None:
    """Refuse a caller who lacks the privilege on the policy, or, to replace it, on anything in it."""
    require_privilege(await transaction.access_facts(caller, policy), PRIVILEGES[mode], policy.resource)
    if mode is LoadMode.REPLACE and await _lacks_update_below(transaction, caller.role, policy):
        raise Forbidden(f"lacks update on something in {policy}")


async def _require_match(transaction: PolicyTransaction, load: Load) -> None:
    """Refuse a load that is for another version of the policy, which is locked (POL-103)."""
    if load.match is None:
        return
    tag = version_tag(await transaction.read_version(load.policy))
    if tag not in load.match:
        raise PreconditionFailed("If-Match", tag, "policy")


async def _lacks_update_below(transaction: PolicyTransaction, caller: RoleName, policy: RoleName) -> bool:
    """Return whether any record below the policy denies the caller ``update``. A policy that owns itself belongs here to the
    policy that recorded it, as in loads of that one (POL-33, POL-41).
    """
    owners = await transaction.owners_denying(caller, policy)
    if not owners:
        return False
    ownership = await transaction.read_ownership(owners, ())
    recorders = [frozenset(ownership.recorders_of_own(owner)) for owner in owners]
    held = await transaction.filter_held(caller, frozenset[str]().union(*recorders))
    return any(held.isdisjoint(found) for found in recorders)


async def refuse_grown(transaction: PolicyTransaction, changes: Changes, limits: RecordLimits) -> None:
    """Refuse changes by which a record carries more than it may, including other loads' rows, or an account has too many
    kinds.
    """
    for limit, records in find_grown_records(changes).items():
        most = limit_value(limit, limits)
        for record, number in await transaction.list_exceeding(limit, records, most):
            raise excess_refusal(limit, record, number, most)
    if has_other_kinds(changes.create):
        account = changes.create.resources[0].resource.partition(":")[0]
        refuse_too_many_kinds(await transaction.list_kinds(account))


async def _refuse_circles(transaction: PolicyTransaction, changes: Changes) -> None:
    """Refuse to give a role to an owner that it owns itself, since then nobody else would own either (POL-33)."""
    moved = {row.resource: row.owner for row in changes.update.resources}
    ownership = await transaction.read_ownership(tuple(moved), ()) if moved else None
    for role, owner in moved.items():
        if ownership is not None and ownership.owns_itself(role):
            raise PolicyInvalid(
                f"Dependency cycle encountered between {describe_id(owner)} and {describe_id(role)}", bare=True
            )


async def _require_authority(transaction: PolicyTransaction, caller: RoleName, load: AffectedRecords) -> None:
    """Refuse a caller who lacks the authority over any record that the load acts on (POL-55 to POL-67).

    :raises PolicyConflict: a record that the document declares was deleted since it was read.
    """
    if load.records_needing_policies or load.granted or load.changed:
        ownership = await transaction.read_ownership(load.records_needing_owners, load.records_needing_policies)
        if any(record not in ownership.records for record in load.declared):
            # It was deleted since it was read, by a load into another policy.
            raise PolicyConflict
        for verb, full in await find_lacking_authority(transaction, caller, compute_required_authority(load, ownership)):
            raise Forbidden(f"may not {verb} {full}")


async def find_lacking_authority(
    transaction: PolicyTransaction, caller: RoleName, claimed: RequiredAuthority
) -> list[tuple[str, str]]:
    """Return the required authority that the caller lacks: ``grant`` or ``permit``, and the full id."""
    roles = await transaction.not_grantable(caller, tuple(claimed.roles)) if claimed.roles else ()
    resources = await transaction.not_permittable(caller, tuple(claimed.resources)) if claimed.resources else ()
    denied = [("grant", role, claimed.roles[role]) for role in roles]
    denied += [("permit", resource, claimed.resources[resource]) for resource in resources]
    policies = frozenset[str]().union(*(vouching for _, _, vouching in denied))
    not_updatable = await transaction.not_updatable(caller, tuple(policies)) if policies else []
    return [(verb, full) for verb, full, vouching in denied if not vouching.difference(not_updatable)]


#: How many rows a dry run may touch.
ROWS_MOST: Final = 200_000
#: How many unchanged rows items list, in all, and at most for one item and one list.
UNCHANGED_MOST: Final = 50_000
UNCHANGED_PER_RECORD: Final = 1000


class DryRunFinished(Exception):
    """The end of a dry run, with its outcome."""

    def __init__(self, outcome: DryRun | DocumentFaults) -> None:
        super().__init__()
        self.outcome = outcome


def finish_with_faults(policy: RoleName, faults: Iterable[PolicyInvalid]) -> DryRunFinished:
    """Return the end of the dry run of a document with faults."""
    return DryRunFinished(DocumentFaults(Batches.from_values(describe_faults(policy.identifier, faults))))


@attrs.define
class Comparison:
    """The rows that a load touches, read by :meth:`begin` before its changes are applied, and compared by :meth:`end`."""

    _transaction: PolicyTransaction
    _caller: RoleName
    _policy: RoleName
    _reports_owners: bool
    _touched: LoadImpact = attrs.field(init=False)
    _before: Rows = attrs.field(init=False)
    _surroundings: Surroundings = attrs.field(init=False)
    _visible: frozenset[str] | None = attrs.field(init=False)

    async def begin(self, changes: Changes) -> None:
        """Read the rows that the changes may affect; ``InvalidParameter`` when they are too many to report."""
        # A role that is created may have left memberships from before, and then loses them.
        going = [row.resource for rows in (changes.delete, changes.create) for row in rows.resources]
        deleted_with = await self._transaction.read_deletion_cascade(self._policy, going, ROWS_MOST)
        if deleted_with is None:
            raise _too_many_rows()
        self._touched = find_impact(changes, deleted_with, self._reports_owners)
        if sum(len(rows) for rows in attrs.astuple(self._touched.rows, recurse=False)) > ROWS_MOST:
            raise _too_many_rows()
        concerned = self._touched.concerned
        each = max(1, min(UNCHANGED_PER_RECORD, UNCHANGED_MOST // max(1, len(concerned))))
        self._before = await self._transaction.read_stored_rows(self._touched.rows)
        self._surroundings = await self._transaction.read_surroundings(concerned, each)
        # An owner of the root holds all roles of the account, which are too many to list.
        root = await self._transaction.access_facts(self._caller, root_policy(self._policy.account))
        self._visible = None if root.owns else await self._read_visible_names()

    async def end(self, warnings: tuple[str, ...]) -> DryRun:
        """Read it again, and return what differs."""
        after = await self._transaction.read_stored_rows(self._touched.rows)
        visible = None if self._visible is None else self._visible | await self._read_visible_names()
        found = compute_differences(str(self._policy), self._touched, self._surroundings, self._before, after, visible)
        return await self._add_access_changes(attrs.evolve(found, warnings=warnings), after, visible)

    async def _add_access_changes(self, found: DryRun, after: Rows, visible: frozenset[str] | None) -> DryRun:
        """Return the differences with the gains and losses of access by them."""
        reading = AccessEdges(self._transaction, self._before, after)
        gains, losses = await reading.find_gains(), await reading.find_losses()
        if visible is not None:
            names = sorted((gains.mentioned_names() | losses.mentioned_names()) - visible)
            visible |= await self._transaction.filter_visible(self._caller, names)
        gained, lost = (gains.make_summary(reading.differing, visible), losses.make_summary(reading.differing, visible))
        untold = UnreportedChanges(
            gained.hidden_same, gained.hidden, lost.hidden or lost.hidden_same, gains.complete and losses.complete
        )
        return attrs.evolve(
            found,
            gains=Batches.from_values(gained.list_changes(gains.graph)),
            losses=Batches.from_values(lost.list_changes(losses.graph)),
            unreported=untold,
        )

    async def _read_visible_names(self) -> frozenset[str]:
        names = list_mentioned(str(self._policy), self._touched, self._surroundings)
        return await self._transaction.filter_visible(self._caller, names)


def _too_many_rows() -> InvalidParameter:
    message = f"the load would touch more than {ROWS_MOST} rows, more than a dry run tells"
    return InvalidParameter("dryRun", message, "unprocessable_entity")

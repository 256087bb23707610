"""Single changes of policy, made without a document.

Note [As a load]. A single change does what a load of one statement into a policy would do: it locks that policy, requires
the same authority, keeps to the same limits, writes an event for each row, and adds the statement to the policy's history.
It reads only what it changes, and not all that the policy holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Container, Sequence
from typing import Final, TypeVar

import attrs
from twisted.logger import Logger

from svc.model.errors import Forbidden, PolicyInvalid, Unprocessable
from svc.model.events import Event
from svc.model.limits import RecordLimits
from svc.model.names import RoleName
from svc.model.policy_loads import AnnotationRow, Changes, PolicyVersion, Rows
from svc.policy.authority import AffectedRecords, compute_required_authority
from svc.policy.ids import USER_KINDS
from svc.policy.load_events import make_load_events
from svc.policy.record_limits import refuse_excess
from svc.policy.statement_writer import Tagged, write_yaml
from svc.services.invocation import Invocation, printable_facts
from svc.services.policy_loads import find_lacking_authority, refuse_grown
from svc.storage.policy_edits import EditTransaction, PolicyEditStore

T = TypeVar("T")

#: How many records one request deletes at most, with all that they own.
DELETED_MOST: Final = 10_000

_log = Logger()


@attrs.frozen
class PolicyEdits:
    """Makes single changes of policy, each in one transaction."""

    store: PolicyEditStore
    limits: RecordLimits

    async def make_edit(self, invocation: Invocation, work: Callable[[Edit], Awaitable[T]]) -> T:
        """Return the result of ``work``, which makes its changes with the edit that it is given.

        :raises PolicyConflict: a policy that it locks is being loaded.
        """

        async def run_edit(transaction: EditTransaction) -> T:
            edit = Edit(transaction, invocation, self.limits)
            result = await work(edit)
            invocation.recorder.add_audit_facts(rows=edit.events)
            if (trail := invocation.recorder.event_batch) is not None:
                await transaction.write_events(trail)
            return result

        return await self.store.transact(run_edit)


@attrs.frozen
class Edit:
    """Changes that one transaction makes, and the events of their rows so far."""

    transaction: EditTransaction
    invocation: Invocation
    limits: RecordLimits
    events: list[Event] = attrs.field(factory=list, init=False)

    async def authorize(
        self, policy: RoleName, *, made: Sequence[str] = (), granted: Sequence[str] = (), changed: Sequence[str] = ()
    ) -> None:
        """Return if the caller, acting as the policy, has the authority to change these (POL-55 to POL-67).

        :raises Forbidden: that requires an authority which the caller lacks.
        """
        placed = [full for full in made if full.split(":", 2)[1] not in USER_KINDS]
        disposed = AffectedRecords(policy, granted, changed, (), (), placed, frozenset(), ())
        ownership = await self.transaction.read_ownership(disposed.records_needing_owners, disposed.records_needing_policies)
        for verb, full in await find_lacking_authority(
            self.transaction, self.invocation.caller.role, compute_required_authority(disposed, ownership)
        ):
            raise Forbidden(f"may not {verb} {full}")

    async def apply_changes(
        self, policy: RoleName, statements: Sequence[Tagged], changes: Changes, recorder: str | None
    ) -> None:
        """Make the changes that statements of a load into ``policy`` would; rows are recorded by ``recorder``.

        :raises PolicyInvalid: a record would carry more than it may, or the policy would be deleted as well.
        """
        refuse_excess(changes.create, self.limits)
        purged = await self.transaction.apply_changes(policy if recorder is None else RoleName.parse(recorder), changes, {})
        await refuse_grown(self.transaction, changes, self.limits)
        await self.record_history(policy, statements, changes)
        if purged:
            facts = printable_facts(purged=purged, policy=policy)
            _log.info("A change of {policy} had {purged} deleted records purged, the oldest of the account", **facts)

    async def set_annotations(self, policy: RoleName, statement: Tagged, rows: Sequence[AnnotationRow]) -> None:
        """Set annotations, whatever policy recorded them.

        :raises PolicyInvalid: the resource would carry more than it may.
        """
        stored = {
            row[:2]: row for row in (await self.transaction.read_stored_rows(Rows(annotations=tuple(rows)))).annotations
        }
        new = tuple(row for row in rows if row[:2] not in stored)
        changes = Changes(Rows(annotations=new), Rows(annotations=tuple({*rows}.difference(new, stored.values()))))
        refuse_excess(changes.create, self.limits)
        await self.transaction.set_annotations(policy, (*changes.create.annotations, *changes.update.annotations))
        await refuse_grown(self.transaction, changes, self.limits)
        await self.record_history(policy, [statement], changes)

    async def delete_records(
        self, policy: RoleName, statement: Tagged, named: Sequence[str], own: Container[str] = ()
    ) -> None:
        """Delete records with all that depends on them; the caller needs ``update`` on each of these, except its ``own``.

        :raises Lacking: on one of them the caller lacks it.
        :raises Unprocessable: they are too many.
        """
        going = await self.transaction.read_deletion_cascade(policy, named, DELETED_MOST)
        if going is None:
            raise Unprocessable(f"More than {DELETED_MOST} records and rows would go at once: delete parts of it before")
        gone = [row.resource for row in going.resources]
        others = [full for full in gone if full not in own]
        if lacking_update := await self._list_denied_update(others):
            seen = await self.transaction.filter_visible(self.invocation.caller.role, lacking_update)
            raise UpdateDenied(next((full for full in lacking_update if full in seen), None))
        if str(policy) in gone:
            raise PolicyInvalid("the policy around it would be deleted too, with its owner")
        wanted = set(named)
        rows = Rows(tuple(row for row in going.resources if row.resource in wanted))
        await self.apply_changes(policy, [statement], Changes(delete=rows), None)

    async def _list_denied_update(self, records: Sequence[str]) -> list[str]:
        """Return the records on which the caller lacks ``update``. For the records of a policy that owns itself, ``update``
        on the policy that recorded that one is enough (POL-33).
        """
        caller = self.invocation.caller.role
        denied = await self.transaction.not_updatable(caller, records)
        if not denied:
            return []
        ownership = await self.transaction.read_ownership(denied, ())
        recorders = {full: frozenset(ownership.recorders_of_own(full)) for full in denied}
        asked = frozenset[str]().union(*recorders.values())
        closed = frozenset(await self.transaction.not_updatable(caller, sorted(asked)))
        return [full for full in denied if recorders[full] <= closed]

    async def record_history(self, policy: RoleName, statements: Sequence[Tagged], changes: Changes) -> None:
        """Add changes that were made to the policy's history, and to the events; nothing where nothing changed."""
        if not (changes.create or changes.update or changes.delete):
            return
        caller = self.invocation.caller.role
        if not (await self.transaction.access_facts(caller, policy)).exists:
            raise PolicyInvalid("the policy would be deleted with its owner")
        text = "".join(write_yaml(statements))
        digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
        version = await self.transaction.record_version(
            PolicyVersion(policy, text, digest, caller, self.invocation.client_ip)
        )
        self.events.extend(make_load_events(policy, version, changes))


class UpdateDenied(Exception):
    """The caller lacks ``update`` on a record that would be deleted; ``visible_record`` is the full id of one that the
    caller sees.
    """

    def __init__(self, seen: str | None) -> None:
        super().__init__(seen)
        self.visible_record = seen

"""A store of policy in a few lines, to load documents into: it knows who recorded each row, and nothing of SQL."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import attrs

from svc.model.dialect import NATIVE, Dialect
from svc.model.errors import Forbidden
from svc.model.names import RoleName, admin_of, root_policy
from svc.model.ownership import Ownership
from svc.model.policy_loads import Changes, LoadMode, MembershipRow, PresentRows, RecordedOwner, ResourceRow, RowKeys, Rows
from svc.policy.authority import compute_required_authority, find_affected_records
from svc.policy.grammar import parse_document
from svc.policy.plan import plan_after_deletions, plan_changes
from svc.policy.resolve import find_lost, find_missing, list_required, refuse_deletions, resolve_statements
from svc.policy.resolved_policy import ResolvedPolicy

ACCOUNT = "acct"
ROOT = root_policy(ACCOUNT)
ADMIN = str(admin_of(ACCOUNT))

#: How many fields of a row are its key, by the sorts of ``Rows``.
WIDTHS = {"resources": 1, "memberships": 3, "permissions": 3, "annotations": 2, "restrictions": 2}


def policy_named(identifier: str) -> RoleName:
    """The policy of that id."""
    return RoleName(ACCOUNT, "policy", identifier)


def resolved(text: str | bytes, into: str = "root", dialect: Dialect = NATIVE) -> ResolvedPolicy:
    """What a document means that is loaded into a policy."""
    return resolve_statements(parse_document(text), policy_named(into), dialect)


def row_sets(rows: Rows) -> dict[str, set[Any]]:
    """Rows of every sort as sets, to compare."""
    return {sort: set(getattr(rows, sort)) for sort in WIDTHS}


@attrs.define
class World:
    """Rows by sort and key, each with the policy that recorded it; at first an account's own."""

    rows: dict[str, dict[tuple[Any, ...], tuple[Any, RoleName | None]]] = attrs.field()

    @rows.default
    def _of_an_account(self) -> dict[str, dict[tuple[Any, ...], tuple[Any, RoleName | None]]]:
        made: dict[str, dict[tuple[Any, ...], tuple[Any, RoleName | None]]] = {sort: {} for sort in WIDTHS}
        for name in (ADMIN, str(ROOT)):
            made["resources"][name,] = (ResourceRow(name, ADMIN), None)
            made["memberships"][name, ADMIN, True] = (MembershipRow(name, ADMIN, True, True), None)
        return made

    def present(self, into: RoleName, wanted: Rows, deleted: Iterable[str] = ()) -> PresentRows:
        """What bears on a load."""
        own = {sort: tuple(row for row, by in rows.values() if by == into) for sort, rows in self.rows.items()}
        declared = {row.resource for row in wanted.resources}
        own["restrictions"] = tuple(row for row in own["restrictions"] if row.role in declared)
        foreign = {}
        for sort, rows in self.rows.items():
            keys = {row[: WIDTHS[sort]] for row in getattr(wanted, sort)}
            if sort == "resources":
                keys |= {(resource,) for resource in deleted}
            foreign[sort] = tuple(row for key, (row, by) in rows.items() if by != into and key in keys)
        return PresentRows(Rows(**own), Rows(**foreign))

    def present_named(self, into: RoleName, keys: RowKeys) -> PresentRows:
        """What has these keys."""
        wanted = {
            "resources": {(resource,) for resource in keys.resources},
            **{sort: set(getattr(keys, sort)) for sort in ("memberships", "permissions", "annotations")},
        }
        own, foreign = (
            {
                sort: tuple(row for key, (row, by) in self.rows[sort].items() if (by == into) is is_own and key in asked)
                for sort, asked in wanted.items()
            }
            for is_own in (True, False)
        )
        own["restrictions"] = tuple(
            row for row, by in self.rows["restrictions"].values() if by == into and row.role in keys.restricted
        )
        return PresentRows(Rows(**own), Rows(**foreign))

    def ownership(self, placed: Iterable[str]) -> Ownership:
        """Whose all records are, and around which policies the ids ``placed`` are."""
        records = {
            row.resource: RecordedOwner(row.owner, None if by is None else str(by))
            for row, by in self.rows["resources"].values()
        }
        around = {}
        for name in placed:
            folders = itertools.accumulate(name.split(":", 2)[2].split("/")[:-1], "{}/{}".format)
            policies = [f"{ACCOUNT}:policy:{folder}" for folder in folders]
            around[name] = next((policy for policy in reversed(policies) if policy in records), str(ROOT))
        return Ownership(records, around)

    def apply(self, into: RoleName, changes: Changes) -> None:
        """Create, update and delete."""
        for sort, width in WIDTHS.items():
            for row in getattr(changes.create, sort):
                assert row[:width] not in self.rows[sort], f"{row} is there already"
                self.rows[sort][row[:width]] = (row, into)
            for row in getattr(changes.update, sort):
                assert self.rows[sort][row[:width]][1] == into, f"{row} is another policy's"
                self.rows[sort][row[:width]] = (row, into)
            for row in getattr(changes.delete, sort):
                by = self.rows[sort].pop(row[:width])[1]
                assert by == into or sort == "resources", f"{row} was another policy's"
        self._cascade({row.resource for row in changes.delete.resources})

    def _cascade(self, gone: set[str]) -> None:
        """Let go with deleted resources what they own or recorded, and every row that speaks of any of it."""
        while gone:
            following = {row.resource for row, by in self.rows["resources"].values() if row.owner in gone or str(by) in gone}
            for sort, rows in self.rows.items():
                for key, (row, by) in list(rows.items()):
                    if gone.intersection(row[:3]) or str(by) in gone:
                        del self.rows[sort][key]
            gone = following

    def load(
        self, text: str, into: str = "root", mode: LoadMode = LoadMode.APPEND, powers: Iterable[str] | None = None
    ) -> Changes:
        """Load a document as a server does.

        ``powers`` are the full ids that the caller may grant and permit; ``None`` for all.
        """
        policy = policy_named(into)
        wanted = resolve_statements(parse_document(text), policy, NATIVE)
        refuse_deletions(mode, wanted)
        for refusal in find_missing(wanted, {key[0] for key in self.rows["resources"]}):
            raise refusal
        present = self.present(policy, wanted.rows, wanted.removals.resources)
        changes = plan_changes(mode, wanted.rows, present, wanted.removals)
        load = find_affected_records(wanted, present, changes)
        claim = compute_required_authority(load, self.ownership(load.records_needing_policies))
        existing = {key[0] for key in self.rows["resources"]}.intersection((*claim.roles, *claim.resources))
        if powers is not None and (lacking := existing.difference(powers)):
            raise Forbidden(f"may not dispose of {sorted(lacking)}")
        before = {sort: dict(rows) for sort, rows in self.rows.items()}
        self.apply(policy, changes)
        left = {key[0] for key in self.rows["resources"]}
        for refusal in find_lost(wanted, present, left) if list_required(mode, wanted, present) else ():
            self.rows = before
            raise refusal
        return self.apply_again(policy, wanted, changes)

    def apply_again(self, into: RoleName, wanted: ResolvedPolicy, changes: Changes) -> Changes:
        """Create what went with the policy that had recorded it, as a server does; return all changes."""
        more = plan_after_deletions(wanted.rows, self.present(into, wanted.rows), wanted.removals)
        self.apply(into, Changes(create=more))
        return attrs.evolve(changes, create=changes.create.merge_with(more))

    def recorded(self, sort: str, by: RoleName) -> set[Any]:
        """The rows of a sort that a policy recorded."""
        return {row for row, policy in self.rows[sort].values() if policy == by}

    def all(self, sort: str) -> set[Any]:
        """The rows of a sort."""
        return {row for row, _ in self.rows[sort].values()}

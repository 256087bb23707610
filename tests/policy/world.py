"""A store of policy in a few lines, to load documents into: it knows who recorded each row, and nothing of SQL."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from svc.errors import Forbidden
from svc.names import RoleName, admin_of, root_policy
from svc.policy.grammar import parse
from svc.policy.plan import plan
from svc.policy.references import claims, missing
from svc.policy.resolve import Resolved, resolve
from svc.records import Changes, LoadMode, MembershipRow, Present, ResourceRow, Rows

ACCOUNT = "acct"
ROOT = root_policy(ACCOUNT)
ADMIN = str(admin_of(ACCOUNT))

#: How many fields of a row are its key, by the sorts of ``Rows``.
WIDTHS = {"resources": 1, "memberships": 3, "permissions": 3, "annotations": 2}


def policy_named(identifier: str) -> RoleName:
    """The policy of that id."""
    return RoleName(ACCOUNT, "policy", identifier)


def resolved(text: str | bytes, into: str = "root", prefix: str = "svc") -> Resolved:
    """What a document means that is loaded into a policy."""
    return resolve(parse(text), policy_named(into), prefix)


def row_sets(rows: Rows) -> dict[str, set[Any]]:
    """Rows of every sort as sets, to compare."""
    return {sort: set(getattr(rows, sort)) for sort in WIDTHS}


@attrs.define
class World:
    """Rows by sort and key, each with the policy that recorded it; at first an account's own.

    Nothing cascades: what is deleted is what a plan deletes.
    """

    rows: dict[str, dict[tuple[Any, ...], tuple[Any, RoleName | None]]] = attrs.field()

    @rows.default
    def _of_an_account(self) -> dict[str, dict[tuple[Any, ...], tuple[Any, RoleName | None]]]:
        made: dict[str, dict[tuple[Any, ...], tuple[Any, RoleName | None]]] = {sort: {} for sort in WIDTHS}
        for name in (ADMIN, str(ROOT)):
            made["resources"][name,] = (ResourceRow(name, ADMIN), None)
            made["memberships"][name, ADMIN, True] = (MembershipRow(name, ADMIN, True, True), None)
        return made

    def present(self, into: RoleName, wanted: Rows, references: Iterable[str] = ()) -> Present:
        """What bears on a load."""
        own = {sort: tuple(row for row, by in rows.values() if by == into) for sort, rows in self.rows.items()}
        foreign = {}
        for sort, rows in self.rows.items():
            keys = {row[: WIDTHS[sort]] for row in getattr(wanted, sort)}
            foreign[sort] = tuple(row for key, (row, by) in rows.items() if by != into and key in keys)
        known = {key[0] for key in self.rows["resources"]}
        return Present(Rows(**own), Rows(**foreign), frozenset(known.intersection(references)))

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
                assert self.rows[sort].pop(row[:width])[1] == into, f"{row} was another policy's"

    def load(
        self, text: str, into: str = "root", mode: LoadMode = LoadMode.APPEND, powers: Iterable[str] | None = None
    ) -> Changes:
        """Load a document as a server does.

        ``powers`` are the full ids that the caller may grant and permit; ``None`` for all.
        """
        policy = policy_named(into)
        wanted = resolve(parse(text), policy, "svc")
        present = self.present(policy, wanted.rows, wanted.references)
        for refusal in missing(mode, wanted, present):
            raise refusal
        claim = claims(wanted, present)
        if powers is not None and (lacking := {*claim.roles, *claim.resources}.difference(powers)):
            raise Forbidden(f"may not dispose of {sorted(lacking)}")
        changes = plan(mode, wanted.rows, present)
        self.apply(policy, changes)
        return changes

    def recorded(self, sort: str, by: RoleName) -> set[Any]:
        """The rows of a sort that a policy recorded."""
        return {row for row, policy in self.rows[sort].values() if policy == by}

    def all(self, sort: str) -> set[Any]:
        """The rows of a sort."""
        return {row for row, _ in self.rows[sort].values()}

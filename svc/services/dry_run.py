"""Loads that are only rehearsed: ``?dryRun=true`` (wire facts, core 1.9).

Note [Rehearsed for real]. A rehearsal is the load itself, in its transaction, which is left by an exception: what it tells
is what the database made of it, and nothing of it stays. What may change is read before and after.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NoReturn

import attrs

from svc.model.errors import InvalidParameter, PolicyInvalid
from svc.model.names import RoleName, root_policy
from svc.model.policy_rows import Changes, Rows, Surroundings
from svc.model.ports import IPolicyTransaction
from svc.policy.advice import advice
from svc.policy.differences import Differences, Item, Touched, differences, mentioned, touched
from svc.web.http.query import Query

#: How many rows a rehearsed load may touch.
ROWS_MOST: Final = 200_000

#: How many unchanged rows items list, in all, and at most for one item and one list.
UNCHANGED_MOST: Final = 50_000
UNCHANGED_EACH: Final = 1000


class Rehearsed(Exception):
    """The end of a rehearsal: it undoes the load, and carries the answer to the request."""

    def __init__(self, status: int, answer: Mapping[str, object]) -> None:
        super().__init__()
        self.status = status
        self.answer = answer


def rehearsing(query: Query) -> bool:
    """Whether a request asks for a rehearsal: ``true`` or ``false``, in any case; bare or empty is true, absent is false.

    :raises InvalidParameter: it is anything else, since whoever asks like that doesn't want the load itself, or repeated.
    """
    if not query.flag("dryRun"):
        return False
    asked = (query.text("dryRun") or "true").strip().lower()
    if asked not in {"true", "false"}:
        raise InvalidParameter("dryRun", "must be 'true' or 'false'")
    return asked == "true"


def refused(policy: RoleName, faults: Iterable[PolicyInvalid]) -> Rehearsed:
    """The end of the rehearsal of a document with faults."""
    return Rehearsed(422, {"status": "Invalid YAML", "errors": [_fault(policy, fault) for fault in faults]})


@attrs.define
class Rehearsal:
    """One load that is rehearsed: :meth:`begin` before its changes are applied, and :meth:`end` behind."""

    _transaction: IPolicyTransaction
    _caller: RoleName
    _policy: RoleName
    _tells_owners: bool
    _touched: Touched = attrs.field(init=False)
    _before: Rows = attrs.field(init=False)
    _surroundings: Surroundings = attrs.field(init=False)
    _visible: frozenset[str] | None = attrs.field(init=False)

    async def begin(self, changes: Changes) -> None:
        """Read what the changes may change.

        :raises InvalidParameter: it is too much to tell.
        """
        # A role that comes to be may have left its memberships there, and then loses them.
        going = [row.resource for rows in (changes.delete, changes.create) for row in rows.resources]
        at_stake = await self._transaction.at_stake(going, ROWS_MOST)
        if at_stake is None:
            raise _too_much()
        self._touched = touched(changes, at_stake, self._tells_owners)
        if sum(len(rows) for rows in attrs.astuple(self._touched.rows, recurse=False)) > ROWS_MOST:
            raise _too_much()
        concerned = self._touched.concerned
        each = max(1, min(UNCHANGED_EACH, UNCHANGED_MOST // max(1, len(concerned))))
        self._before = await self._transaction.stored(self._touched.rows)
        self._surroundings = await self._transaction.surroundings(concerned, each)
        # Who owns the root holds all roles of the account, and they are many.
        root = await self._transaction.standing(self._caller, root_policy(self._policy.account))
        self._visible = None if root.owns else await self._seen()

    async def end(self, warnings: tuple[str, ...]) -> NoReturn:
        """Read it again, and end the rehearsal.

        :raises Rehearsed: always.
        """
        after = await self._transaction.stored(self._touched.rows)
        visible = None if self._visible is None else self._visible | await self._seen()
        found = differences(str(self._policy), self._touched, self._surroundings, self._before, after, visible)
        raise Rehearsed(200, _told(found) | ({"warnings": warnings} if warnings else {}))

    async def _seen(self) -> frozenset[str]:
        names = mentioned(str(self._policy), self._touched, self._surroundings)
        return await self._transaction.visible(self._caller, names)


def _told(found: Differences) -> dict[str, object]:
    def items(these: tuple[Item, ...]) -> dict[str, object]:
        return {"items": these}

    return {
        "status": "Valid YAML",
        "created": items(found.created),
        "updated": {"before": items(found.before), "after": items(found.after)},
        "deleted": items(found.deleted),
    }


def _fault(policy: RoleName, fault: PolicyInvalid) -> dict[str, object]:
    place = {} if fault.line is None else {"line": fault.line, "column": fault.column}
    lines = [] if fault.line is None else [fault.line]
    return {
        **place,
        "message": f"{fault.message}\n{advice(fault)}",
        "context": {"policy_id": policy.identifier, "offending_lines": lines},
    }


def _too_much() -> InvalidParameter:
    message = f"the load would touch more than {ROWS_MOST} rows, more than a dry run tells"
    return InvalidParameter("dryRun", message, "unprocessable_entity")

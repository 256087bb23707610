"""What a policy load does, from the document to its answer, in the process that this is called in.

Note [Near and far]. Reading a long document, planning with the rows of a large policy and writing down a long answer take
seconds in which a process answers nobody. So the server does small loads itself, and leaves others to a process that does
nothing else (``svc.worker``). Which they are shows step by step, and so a load that began near may turn out to be too large:
its transaction is rolled back, and it begins again, far.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

import attrs
from zope.interface import implementer

from svc.crypto.vault import Vault, api_key_name
from svc.model.authorization import demand
from svc.model.credentials import new_api_key
from svc.model.dialect import Dialect
from svc.model.errors import Forbidden, PolicyInvalid
from svc.model.events import Event, Origin, Trail
from svc.model.limits import RecordLimits
from svc.model.names import RoleName
from svc.model.policy_rows import Changes, Load, LoadAnswer, LoadMode, PolicyVersion, Present
from svc.model.ports import ILoads, IPolicies, IPolicyTransaction
from svc.model.query_results import Caller, Sealed
from svc.policy.authority import Disposed, claims, disposed, left_alone
from svc.policy.document import Bounds
from svc.policy.grammar import parse
from svc.policy.load_events import recount
from svc.policy.meaning import Resolved
from svc.policy.plan import keys_due, new_actors, plan
from svc.policy.record_limits import grown, most_of, refuse_burdens, too_heavy
from svc.policy.references import dropped, missing, refuse_deletions
from svc.policy.resolve import resolve
from svc.services.dry_run import Rehearsal, Rehearsed, refused
from svc.web.http.response import Response

#: The privilege on the policy that each mode takes (wire facts, core 1.8).
PRIVILEGES: Final = {LoadMode.APPEND: "create", LoadMode.UPDATE: "update", LoadMode.REPLACE: "update"}

#: How long a document may be that is read near, in bytes: it takes some 5 ms.
NEAR_BYTES: Final = 8 * 1024

#: How many rows of a sort a document may mean, and its policy hold, when they are compared near.
NEAR_ROWS: Final = 1000


#: How many events of a load are made and written at once.
EVENTS: Final = 5000


class TooLarge(Exception):
    """A load is too large for where it was begun; nothing of it remains."""


@implementer(ILoads)
@attrs.frozen
class NearAndFar:
    """Provides ``ILoads`` by two others: ``near`` as long as the load is small, else ``far`` (Note [Near and far])."""

    near: Loads
    far: ILoads

    async def load(self, load: Load) -> LoadAnswer:
        """See ``ILoads``."""
        # A rehearsal reads much beside the document, and an alias is the only way to say at length what is short.
        if len(load.document) <= NEAR_BYTES and b"*" not in load.document and not load.rehearsed:
            try:
                return await self.near.load(load)
            except TooLarge:
                pass
        return await self.far.load(load)


@implementer(ILoads)
@attrs.frozen
class Loads:
    """Provides ``ILoads``, by doing the work. ``most`` bounds the rows of each sort that are dealt with, if anything does.

    :raises TooLarge: there are more, or what the load deletes may reach far.
    """

    store: IPolicies
    vault: Vault
    dialect: Dialect
    bounds: Bounds
    most: int | None = None

    async def load(self, load: Load) -> LoadAnswer:
        """See ``ILoads``."""
        try:
            return await self._load(load)
        except Rehearsed as rehearsed:
            end = rehearsed
        except PolicyInvalid as fault:
            if not load.rehearsed:
                raise
            end = refused(load.policy, [fault])
        return _answer(end.answer, end.status)

    async def _load(self, load: Load) -> LoadAnswer:
        """Load a document; when it is rehearsed, by raising ``Rehearsed`` at the end."""
        policy, mode, caller = load.policy, load.mode, load.caller.role
        resolved = resolve(parse(load.document, self.bounds, self.dialect.lenient_public_keys), policy, self.dialect.prefix)
        refuse_deletions(mode, resolved)
        self._bound(resolved.related > (self.most or 0))

        async def work(
            transaction: IPolicyTransaction,
        ) -> tuple[dict[str, str], int, tuple[str, ...], tuple[int, int]]:
            await transaction.lock(policy)
            await _admit(transaction, load.caller, policy, mode)
            if refusals := list(missing(resolved, await transaction.existing(tuple(resolved.references)))):
                raise refused(policy, refusals) if load.rehearsed else refusals[0]
            refuse_burdens(resolved.rows, self.bounds.records)
            if self.most is not None:
                self._bound(await transaction.holds_more(policy, self.most))
            present = await transaction.present(policy, resolved.rows, resolved.removals.resources)
            if refusals := list(dropped(mode, resolved, present)):
                raise refused(policy, refusals) if load.rehearsed else refusals[0]
            changes = plan(mode, resolved.rows, present, resolved.removals)
            self._bound(bool(changes.delete.resources))
            await _authorize(transaction, caller, disposed(resolved, present, changes))
            warnings = (*resolved.warnings, *left_alone(resolved, present))
            rehearsal = Rehearsal(transaction, caller, policy, self.dialect.dry_run_tells_owners)
            if load.rehearsed:
                await rehearsal.begin(changes)
            api_keys = await self._apply(transaction, load, resolved, present, changes)
            await _weigh(transaction, changes, self.bounds.records)
            if not (await transaction.standing(caller, policy)).exists:
                raise PolicyInvalid("the policy would be deleted with its owner, whom the document does not keep")
            if load.rehearsed:
                await rehearsal.end(warnings)
            text = load.document.decode("utf-8-sig")
            digest = hashlib.sha256(load.document).hexdigest()
            version = await transaction.record(PolicyVersion(policy, text, digest, caller, load.client_ip))
            audited = (0, 0)
            if load.origin is not None:
                audited = await _audit(transaction, load.origin, recount(policy, version, changes))
            return api_keys, version, warnings, audited

        api_keys, version, warnings, audited = await self.store.transact(work)
        made = {actor: {"id": actor, "api_key": key} for actor, key in api_keys.items()}
        result: dict[str, object] = {"created_roles": made, "version": version}
        return _answer(result | ({"warnings": warnings} if warnings else {}), 201, audited)

    def _bound(self, exceeds: bool) -> None:
        if exceeds and self.most is not None:
            raise TooLarge

    async def _apply(
        self, transaction: IPolicyTransaction, load: Load, resolved: Resolved, present: Present, changes: Changes
    ) -> dict[str, str]:
        """Make the changes, and return the API keys of the users and hosts that came to be."""
        api_keys = {actor: new_api_key() for actor in new_actors(changes)}
        await transaction.apply(load.policy, changes, {actor: self._sealed(actor, key) for actor, key in api_keys.items()})
        await self._set_public_keys(transaction, load.mode, keys_due(resolved.public_keys, present, changes))
        if not changes.delete.resources:
            return api_keys
        # One of the new may belong to what is gone.
        surviving = await transaction.existing(tuple(api_keys))
        return {actor: key for actor, key in api_keys.items() if actor in surviving}

    async def _set_public_keys(self, transaction: IPolicyTransaction, mode: LoadMode, keys: Mapping[str, str]) -> None:
        """Give new public keys their texts, and others that differ, but when the mode only adds."""
        if not keys:
            return
        stored = await transaction.values(tuple(keys))
        due = {
            name: line.encode("utf-8")
            for name, line in keys.items()
            if name not in stored
            or (mode is not LoadMode.APPEND and self.vault.open(name, stored[name]) != line.encode("utf-8"))
        }
        await transaction.set_values({name: self.vault.seal(name, line) for name, line in due.items()})

    def _sealed(self, actor: str, api_key: str) -> Sealed:
        return self.vault.seal(api_key_name(RoleName.parse(actor)), api_key.encode("ascii"))


async def _audit(transaction: IPolicyTransaction, origin: Origin, events: Iterator[Event]) -> tuple[int, int]:
    """Write the events of a load, some at a time, and return their numbers as ``IPolicyTransaction.audit`` does."""
    ranges = []
    while some := tuple(islice(events, EVENTS)):
        ranges.append(await transaction.audit(Trail(origin, some)))
    return (ranges[0][0], ranges[-1][1]) if ranges else (0, 0)


def _answer(document: Mapping[str, object], status: int, audited: tuple[int, int] = (0, 0)) -> LoadAnswer:
    return LoadAnswer(status, Response.json(document).body, audited)


async def _admit(transaction: IPolicyTransaction, caller: Caller, policy: RoleName, mode: LoadMode) -> None:
    """Return when the caller may load the policy in this mode.

    :raises NotFound: the policy doesn't exist, or as good as.
    :raises Forbidden: the caller lacks the privilege, or, to replace, has it not on everything in the policy.
    """
    demand(await transaction.standing(caller, policy), PRIVILEGES[mode], policy.resource)
    if mode is LoadMode.REPLACE and await transaction.lacks_update_below(caller.role, policy):
        raise Forbidden(f"lacks update on something in {policy}")


async def _weigh(transaction: IPolicyTransaction, changes: Changes, limits: RecordLimits) -> None:
    """Return when no record carries more than it may, with what other loads gave it.

    :raises PolicyInvalid: one would.
    """
    for burden, records in grown(changes).items():
        most = most_of(burden, limits)
        for record, number in await transaction.heavier(burden, records, most):
            raise too_heavy(burden, record, number, most)


async def _authorize(transaction: IPolicyTransaction, caller: RoleName, load: Disposed) -> None:
    """Return when the caller may dispose of all that the load disposes of (rulings 2.13, 9.2 and 9.4).

    :raises Forbidden: a delegated owner would help himself, or the document declares a host that somebody else made.
    """
    if not (load.placed or load.granted or load.changed):
        return
    claimed = claims(load, await transaction.ownership(load.standing, load.placed))
    denied = []
    if claimed.roles:
        lacking = await transaction.not_grantable(caller, tuple(claimed.roles))
        denied += [("grant", role, claimed.roles[role]) for role in lacking]
    if claimed.resources:
        lacking = await transaction.not_permittable(caller, tuple(claimed.resources))
        denied += [("permit", resource, claimed.resources[resource]) for resource in lacking]
    policies = frozenset[str]().union(*(vouching for _, _, vouching in denied))
    lacking = await transaction.not_updatable(caller, tuple(policies)) if policies else []
    for verb, full, vouching in denied:
        if not vouching.difference(lacking):
            raise Forbidden(f"may not {verb} {full}")

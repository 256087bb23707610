"""Policies: loading documents in their three modes, and rehearsing it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import attrs

from svc.access import demand
from svc.credentials import new_api_key
from svc.dialect import Dialect
from svc.errors import Forbidden, PolicyInvalid
from svc.interfaces import IPolicies, IPolicyTransaction, IRoles
from svc.names import RoleName
from svc.policy.document import Bounds
from svc.policy.grammar import parse
from svc.policy.meaning import Resolved
from svc.policy.plan import keys_due, new_actors, plan
from svc.policy.references import claims, dropped, missing, refuse_deletions
from svc.policy.resolve import resolve
from svc.records import Sealed
from svc.rows import LoadMode, PolicyVersion, Present
from svc.vault import Vault, api_key_name
from svc.web.rehearsal import Rehearsal, Rehearsed, refused, rehearsing
from svc.web.response import Response
from svc.web.routing import REQUIRED, BodySize, Call, Routes

#: The privilege on the policy that each mode takes (wire facts, core 1.8).
_PRIVILEGES: Final = {LoadMode.APPEND: "create", LoadMode.UPDATE: "update", LoadMode.REPLACE: "update"}

_PATH: Final = "/policies/<flat:account>/policy/<tail:identifier>"


@attrs.frozen
class _Loaded:
    """What a load came to: the API keys of the users and hosts that it made, and the policy's new version."""

    api_keys: dict[str, str] = attrs.field(repr=False)
    version: int


@attrs.frozen
class Policies:
    """The routes of policies (wire facts, core 1)."""

    routes = Routes()

    store: IPolicies
    roles: IRoles
    vault: Vault
    dialect: Dialect
    bounds: Bounds

    @routes.add("POST", _PATH, caller=REQUIRED, body=BodySize.POLICY)
    async def append(self, call: Call, account: str, identifier: str) -> Response:
        """Add what the document declares; change and delete nothing."""
        return await self._load(call, RoleName.of(account, "policy", identifier), LoadMode.APPEND)

    @routes.add("PATCH", _PATH, caller=REQUIRED, body=BodySize.POLICY)
    async def update(self, call: Call, account: str, identifier: str) -> Response:
        """Add what the document declares, and change what is there to match; delete nothing."""
        return await self._load(call, RoleName.of(account, "policy", identifier), LoadMode.UPDATE)

    @routes.add("PUT", _PATH, caller=REQUIRED, body=BodySize.POLICY)
    async def replace(self, call: Call, account: str, identifier: str) -> Response:
        """Make the policy what the document declares: add, change and delete."""
        return await self._load(call, RoleName.of(account, "policy", identifier), LoadMode.REPLACE)

    async def _load(self, call: Call, policy: RoleName, mode: LoadMode) -> Response:
        if not rehearsing(call.query):
            return await self._loaded(call, policy, mode, rehearsed=False)
        try:
            return await self._loaded(call, policy, mode, rehearsed=True)
        except Rehearsed as rehearsed:
            end = rehearsed
        except PolicyInvalid as fault:
            end = refused(policy, [fault])
        return Response.json(end.answer, end.status)

    async def _loaded(self, call: Call, policy: RoleName, mode: LoadMode, *, rehearsed: bool) -> Response:
        """Load a document; when it is ``rehearsed``, by raising ``Rehearsed`` at the end.

        :raises PolicyInvalid: the document can't be loaded.
        """
        caller = call.caller.role
        # What a document costs to read is not spent on those who may not load it, nor inside of the transaction.
        demand(await self.roles.standing(caller, policy.resource), _PRIVILEGES[mode], policy.resource)
        resolved = resolve(parse(call.body, self.bounds), policy, self.dialect.prefix)
        refuse_deletions(mode, resolved)

        async def work(transaction: IPolicyTransaction) -> _Loaded:
            await transaction.lock(policy)
            await _admit(transaction, caller, policy, mode)
            if refusals := list(missing(resolved, await transaction.existing(tuple(resolved.references)))):
                raise refused(policy, refusals) if rehearsed else refusals[0]
            present = await transaction.present(policy, resolved.rows, resolved.removals.resources)
            if refusals := list(dropped(mode, resolved, present)):
                raise refused(policy, refusals) if rehearsed else refusals[0]
            await _authorize(transaction, caller, resolved, present)
            changes = plan(mode, resolved.rows, present, resolved.removals)
            rehearsal = Rehearsal(transaction, caller, policy)
            if rehearsed:
                await rehearsal.begin(changes)
            api_keys = {actor: new_api_key() for actor in new_actors(changes)}
            await transaction.apply(policy, changes, {actor: self._sealed(actor, key) for actor, key in api_keys.items()})
            await self._set_public_keys(transaction, mode, keys_due(resolved.public_keys, present, changes))
            if changes.delete.resources:
                # One of the new may belong to what is gone.
                surviving = await transaction.existing(tuple(api_keys))
                api_keys = {actor: key for actor, key in api_keys.items() if actor in surviving}
            if not (await transaction.standing(caller, policy)).exists:
                raise PolicyInvalid("the policy would be deleted with its owner, whom the document does not keep")
            if rehearsed:
                await rehearsal.end(resolved.warnings)
            text = call.body.decode("utf-8-sig")
            digest = hashlib.sha256(call.body).hexdigest()
            version = await transaction.record(PolicyVersion(policy, text, digest, caller, call.client_ip))
            return _Loaded(api_keys, version)

        loaded = await self.store.transact(work)
        made = {actor: {"id": actor, "api_key": key} for actor, key in loaded.api_keys.items()}
        result: dict[str, object] = {"created_roles": made, "version": loaded.version}
        return Response.json(result | ({"warnings": resolved.warnings} if resolved.warnings else {}), 201)

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


async def _admit(transaction: IPolicyTransaction, caller: RoleName, policy: RoleName, mode: LoadMode) -> None:
    """Return when the caller may load the policy in this mode.

    :raises NotFound: the policy doesn't exist, or as good as.
    :raises Forbidden: the caller lacks the privilege, or, to replace, has it not on everything in the policy.
    """
    demand(await transaction.standing(caller, policy), _PRIVILEGES[mode], policy.resource)
    if mode is LoadMode.REPLACE and await transaction.lacks_update_below(caller, policy):
        raise Forbidden(f"lacks update on something in {policy}")


async def _authorize(transaction: IPolicyTransaction, caller: RoleName, resolved: Resolved, present: Present) -> None:
    """Return when the caller may dispose of what the document names outside of its policy (rulings 2.13).

    :raises Forbidden: a delegated owner would help himself.
    """
    claimed = claims(resolved, present)
    if claimed.roles and (denied := await transaction.not_grantable(caller, claimed.roles)):
        raise Forbidden(f"may not grant {denied[0]}")
    if claimed.resources and (denied := await transaction.not_permittable(caller, claimed.resources)):
        raise Forbidden(f"may not permit {denied[0]}")

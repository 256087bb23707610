"""The effective policy: reading back what was loaded, and whatever else stands there now."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from svc.crypto.vault import Vault
from svc.model.authorization import demand_ownership
from svc.model.errors import InvalidParameter, NotFound
from svc.model.names import RoleName, root_policy
from svc.model.policy_rows import Effective, Excess
from svc.model.ports import IEffectivePolicies, IRoles
from svc.policy.effective import asked, statements
from svc.policy.writing import as_json, as_yaml
from svc.web.http.query import Query
from svc.web.http.response import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.routes import auditing

#: The greatest values of the parameters (wire facts, core 1.10). The greatest limit is also the usual one; the depth is
#: not limited unless it is asked for, or something would be missing.
DEPTH_MOST: Final = 64
LIMIT_MOST: Final = 100_000

#: How many pieces of text are written before others get their turn.
PIECES: Final = 1000

_INTEGER: Final = re.compile("[0-9]{1,19}", re.ASCII)


@attrs.frozen
class EffectivePolicies:
    """The route that reads policies (wire facts, core 1.10)."""

    routes = Routes()

    store: IEffectivePolicies
    roles: IRoles
    vault: Vault
    clock: IReactorTime

    @routes.add("GET", "/policies/<flat:account>/policy/<tail:identifier>", caller=REQUIRED, audit=auditing.policy_read)
    async def show(self, call: Call, account: str, identifier: str) -> Response:
        """Print the effective policy: in JSON where the request says that this is its content type, else in YAML."""
        policy = RoleName.of(account, "policy", identifier)
        try:
            depth = _bounded(call.query, "depth", DEPTH_MOST)
            limit = _bounded(call.query, "limit", LIMIT_MOST)
        except ValueError:
            return Response.empty(400)
        demand_ownership(await self.roles.standing(call.caller, policy.resource), policy.resource)
        root = root_policy(account).resource
        sees_all = policy.resource == root or (await self.roles.standing(call.caller, root)).owns
        query = asked(policy, depth, LIMIT_MOST if limit is None else limit, None if sees_all else call.caller.role)
        effective = await self.store.effective(query)
        if effective is None:
            raise NotFound.of(policy)
        if isinstance(effective, Excess):
            raise _excess(effective)
        told = statements(policy, effective, await self._public_keys(effective))
        if _says_json(call.header("Content-Type")):
            return Response.json_text(await self._text(as_json(told)))
        return Response.content((await self._text(as_yaml(told))).encode("utf-8"), "application/x-yaml")

    async def _public_keys(self, effective: Effective) -> dict[str, str]:
        """Open the public keys, and let others work meanwhile."""
        opened = {}
        for step, (full, sealed) in enumerate(effective.public_keys.items(), 1):
            opened[full] = self.vault.open(full, sealed).decode("utf-8", "replace")
            if not step % PIECES:
                await deferLater(self.clock, 0)
        return opened

    async def _text(self, pieces: Iterable[str]) -> str:
        """Put a text together, and let others work meanwhile."""
        text = []
        for step, piece in enumerate(pieces, 1):
            text.append(piece)
            if not piece or not step % PIECES:
                await deferLater(self.clock, 0)
        return "".join(text)


def _bounded(query: Query, name: str, most: int) -> int | None:
    """An integer from 0 to ``most``; ``None`` when it is absent.

    :raises InvalidParameter: it is repeated.
    :raises ValueError: it is anything else.
    """
    if not query.flag(name):
        return None
    text = query.text(name)
    if text is None or not _INTEGER.fullmatch(text) or int(text) > most:
        raise ValueError(name)
    return int(text)


def _says_json(content_type: str | None) -> bool:
    return content_type is not None and content_type.partition(";")[0].strip().lower() == "application/json"


def _excess(excess: Excess) -> InvalidParameter:
    if excess.unit == "objects":
        message = f"CONJ00164E Policy max allowed 'limit' = {excess.limit} exceeded. Value for policy is: {excess.value}"
    else:
        message = f"the policy is too large: its 'limit' is {excess.limit} {excess.unit}, and it has {excess.value}"
    return InvalidParameter("limit", message, "unprocessable_entity")

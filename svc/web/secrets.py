"""Secrets: the values of variables, set and read."""

from __future__ import annotations

from typing import Final

import attrs

from svc.access import demand, demand_value
from svc.credentials import same_key
from svc.errors import InvalidParameter, NoValue, WrongDataKey
from svc.interfaces import ISecrets
from svc.names import ResourceName
from svc.records import Sealed, SecretReading
from svc.vault import Vault
from svc.web.response import Response
from svc.web.routing import REQUIRED, Call, Routes

#: The content type of a secret whose variable doesn't say another.
_ANY: Final = "application/octet-stream"


@attrs.frozen
class Secrets:
    """The routes of secrets (wire facts, core 4)."""

    routes = Routes()

    store: ISecrets
    vault: Vault

    @routes.add("GET", "/secrets/<flat:account>/variable/<tail:identifier>", caller=REQUIRED)
    async def read(self, call: Call, account: str, identifier: str) -> Response:
        """Read a value: the newest, or the one of ``version``; the caller needs ``execute``."""
        variable = ResourceName.of(account, "variable", identifier)
        version = call.query.integer("version")
        reading = await self.store.read(call.caller.role, variable, version)
        demand_value(reading.standing, "execute", variable)
        if reading.sealed is None:
            raise NoValue(str(variable))
        value = self.vault.open(str(variable), reading.sealed)
        return Response.content(value, reading.mime_type or _ANY, headers=(("Content-Disposition", "attachment"),))

    @routes.add("POST", "/secrets/<flat:account>/variable/<tail:identifier>", caller=REQUIRED)
    async def write(self, call: Call, account: str, identifier: str) -> Response:
        """Set the value, which is the raw body; the caller needs ``update``. An unchanged value makes no new version."""
        variable = ResourceName.of(account, "variable", identifier)
        value = call.body

        def decide(reading: SecretReading) -> Sealed | None:
            demand(reading.standing, "update", variable)
            if not value.strip():
                raise InvalidParameter("value", "'value' may not be empty")
            if reading.sealed is not None and self._is(value, variable, reading.sealed):
                return None
            return self.vault.seal(str(variable), value)

        await self.store.write(call.caller.role, variable, decide)
        return Response.empty(201)

    def _is(self, value: bytes, variable: ResourceName, sealed: Sealed) -> bool:
        try:
            return same_key(self.vault.open(str(variable), sealed), value)
        except WrongDataKey:
            # A value that can't be read any more can still be replaced.
            return False

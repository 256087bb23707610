"""Public keys of users: told to anybody who wants to let them in, and replaced by whom policy permits."""

from __future__ import annotations

import attrs

from svc.crypto.vault import Vault
from svc.model.authorization import demand
from svc.model.errors import InvalidParameter, WrongDataKey
from svc.model.names import ResourceName, RoleName
from svc.model.ports import ISecrets
from svc.model.public_keys import IPublicKeys, public_key
from svc.model.query_results import Sealed, SecretReading
from svc.web.http.response import Response
from svc.web.http.routing import OPTIONAL, REQUIRED, Call, Routes
from svc.web.routes import auditing


@attrs.frozen
class PublicKeys:
    """The routes of public keys (wire facts, core 4 and 5). Policy declares them, with the first value of each."""

    routes = Routes()

    store: IPublicKeys
    values: ISecrets
    vault: Vault

    @routes.add("GET", "/public_keys/<flat:account>/user/<tail:identifier>", caller=OPTIONAL)
    async def tell(self, call: Call, account: str, identifier: str) -> Response:  # noqa: ARG002 (every route takes its call)
        """Tell a user's keys, one a line, in the order of their names, as an ``authorized_keys`` file has them.

        A user who has none, and one who doesn't exist, look alike: an empty line.
        """
        user = RoleName.of(account, "user", identifier)
        keys = [self.vault.open(name, sealed).strip() for name, sealed in await self.store.newest(user)]
        return Response.content(b"\n".join(keys) + b"\n", "text/plain; charset=utf-8")

    @routes.add(
        "POST", "/secrets/<flat:account>/public_key/<tail:identifier>", caller=REQUIRED, audit=auditing.public_key_updated
    )
    async def write(self, call: Call, account: str, identifier: str) -> Response:
        """Replace a key, which is the raw body; takes ``update``. An unchanged one makes no new version."""
        if call.query.flag("expirations"):
            raise InvalidParameter("kind", "Invalid secret kind: public_key")
        name = ResourceName.of(account, "public_key", identifier)

        def decide(reading: SecretReading) -> Sealed | None:
            demand(reading.standing, "update", name)
            try:
                line = public_key(call.body.decode("utf-8")).encode("utf-8")
            except ValueError:
                raise InvalidParameter("value", "Invalid public key format") from None
            return None if self._is(line, name, reading.sealed) else self.vault.seal(str(name), line)

        await self.values.write(call.caller, name, decide, call.trail)
        return Response.empty(201)

    def _is(self, line: bytes, name: ResourceName, sealed: Sealed | None) -> bool:
        try:
            return sealed is not None and self.vault.open(str(name), sealed) == line
        except WrongDataKey:
            # A key that can't be read any more can still be replaced.
            return False

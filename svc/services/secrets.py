"""The use cases of secrets: the values of variables, set and read (SEC-25)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import attrs

from svc.crypto.vault import Vault
from svc.model.authorization import Allowed, decide_privilege, require_privilege, require_value
from svc.model.credentials import is_same_key
from svc.model.errors import InvalidParameter, NoValue, WrongDataKey
from svc.model.expiration import ROTATOR
from svc.model.names import ResourceName
from svc.model.query_results import Sealed, SecretReading
from svc.services.invocation import Invocation
from svc.services.reading_counts import ReadingCounter
from svc.storage.expirations import ExpirationStore
from svc.storage.secrets import SecretStore


@attrs.frozen
class Secret:
    """One version of a variable's value.

    ``tag`` is its strong entity tag (RFC 9110 8.8.3), the same on every server: the number of the version, and a fingerprint
    that a version of the same number, of a variable that was deleted, hasn't. ``value`` is ``None`` where the reader has it
    already. ``mime_type`` is policy's text, which may be anything.
    """

    tag: str
    value: bytes | None = attrs.field(repr=False)
    mime_type: str | None


@attrs.frozen
class SecretService:
    """The use cases of secrets.

    :raises NotFound: by those that write: the variable doesn't exist, or the caller may not see it.
    :raises Forbidden: by all methods: the caller sees a variable and lacks the privilege.
    :raises WrongDataKey: by those that read: a value doesn't open.
    """

    store: SecretStore
    expirations: ExpirationStore
    vault: Vault
    counter: ReadingCounter
    #: Returns why a variable with these annotations can't be rotated; ``None`` when it can.
    find_rotation_fault: Callable[[Mapping[str, str]], str | None]

    async def read_value(
        self,
        invocation: Invocation,
        variable: ResourceName,
        version: int | None = None,
        is_known: Callable[[str], bool] | None = None,
    ) -> Secret:
        """Return a value: the newest, or the one of ``version``; the caller needs ``execute``.

        ``is_known`` returns whether the caller has the value of a tag already, which isn't opened then; it may raise, since
        conditions come last (RFC 9110 13.2.1).

        :raises NoValue: there is no value for this caller, nor perhaps a variable.
        """
        reading = await self.store.read_value(invocation.caller, variable, version)
        require_value(reading.access_facts, "execute", variable)
        if reading.sealed is None:
            raise NoValue(str(variable), reading.expired_at, readable=True)
        tag = self._entity_tag(reading.version, reading.sealed)
        value = None if is_known is not None and is_known(tag) else self.vault.open(variable.full_id, reading.sealed)
        self.counter.count_read(invocation.caller, variable.full_id)
        return Secret(tag, value, reading.mime_type)

    async def write_value(
        self,
        invocation: Invocation,
        variable: ResourceName,
        value: bytes,
        precondition: Callable[[str | None], None] = lambda _: None,
    ) -> str:
        """Set the value, and return its tag; the caller needs ``update``.

        An unchanged value makes no new version, but only for callers who may read it: to others that would reveal the value.
        ``precondition`` is called, while other writers wait, with the tag of the value that would be replaced, ``None`` when
        there is none. An exception from it ends the write.

        :raises InvalidParameter: the value is empty, or blank.
        """
        kept: int | None = None
        sealed = Sealed(b"")

        def check_and_seal(reading: SecretReading) -> Sealed | None:
            nonlocal kept, sealed
            require_privilege(reading.access_facts, "update", variable)
            if not value.strip():
                raise InvalidParameter("value", "'value' may not be empty")
            precondition(None if reading.sealed is None else self._entity_tag(reading.version, reading.sealed))
            readable = decide_privilege(reading.access_facts, "execute") == Allowed()
            if readable and reading.sealed is not None and holds_value(self.vault, variable, reading.sealed, value):
                kept, sealed = reading.version, reading.sealed
                return None
            sealed = self.vault.seal(str(variable), value)
            return sealed

        version = await self.store.write_value(invocation.caller, variable, check_and_seal, invocation.recorder.event_batch)
        return self._entity_tag(kept if version is None else version, sealed)

    async def clear_expirations(self, invocation: Invocation, variable: ResourceName) -> None:
        """Clear expirations: no value expires, and a rotated variable is rotated soon; the caller needs ``update``."""
        await self._clear_expirations(invocation, variable, lambda _: None)

    async def request_rotation(self, invocation: Invocation, variable: ResourceName) -> None:
        """Have a variable be rotated soon, whenever it is due (SEC-25); the caller needs ``update``.

        :raises InvalidParameter: it has no rotator that can be used.
        """

        def demand_rotator(annotations: Mapping[str, str]) -> None:
            if (fault := self.find_rotation_fault(annotations)) is not None:
                raise InvalidParameter("variable", f"{variable} can't be rotated: {fault}")

        await self._clear_expirations(invocation, variable, demand_rotator)

    async def remove_expirations(self, invocation: Invocation, variable: ResourceName) -> None:
        """Let no value expire that a variable has, and rotate nothing (SEC-25); the caller needs ``update``.

        :raises InvalidParameter: the variable is rotated.
        """

        def refuse_rotator(annotations: Mapping[str, str]) -> None:
            if self.find_rotation_fault(annotations) is None:
                why = "its values are replaced, and never expire: take that annotation out of its policy to end this"
                raise InvalidParameter("variable", f"{variable} has {ROTATOR} {annotations[ROTATOR]}: {why}")

        await self._clear_expirations(invocation, variable, refuse_rotator)

    async def _clear_expirations(
        self, invocation: Invocation, variable: ResourceName, check: Callable[[Mapping[str, str]], None]
    ) -> None:
        decide = functools.partial(require_privilege, privilege="update", name=variable)
        trail = invocation.recorder.event_batch
        await self.expirations.clear_expirations(invocation.caller, variable, decide, trail, check)

    def _entity_tag(self, version: int | None, sealed: Sealed) -> str:
        return f'"{version}-{self.vault.fingerprint(sealed)}"'


def holds_value(vault: Vault, name: ResourceName, sealed: Sealed, value: bytes) -> bool:
    """Return whether a sealed value is this one; one that doesn't open isn't, and can still be replaced."""
    try:
        return is_same_key(vault.open(str(name), sealed), value)
    except WrongDataKey:
        return False

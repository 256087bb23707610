"""The use cases of secrets: the values of variables, set and read (SEC-25)."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from svc.crypto.vault import Vault
from svc.model.authorization import Allowed, require, require_value, use
from svc.model.credentials import same_key
from svc.model.errors import InvalidName, InvalidParameter, NoValue, RecordNotFound, TooLarge, WrongDataKey
from svc.model.expiration import IExpirations
from svc.model.names import ResourceName
from svc.model.ports import ISecrets
from svc.model.query_results import Sealed, SecretReading
from svc.services.invocation import Invocation

#: How many secrets are read at once, and of how many bytes, sealed. All of them are opened and written while others wait.
BATCH_MOST: Final = 1000
BATCH_BYTES: Final = 1024 * 1024


@attrs.frozen
class Secret:
    """One version of a variable's value.

    ``tag`` is its strong entity tag (RFC 9110 8.8.3), the same on every server: the number of the version, and a fingerprint
    that a version of the same number, of a variable that was deleted, hasn't. ``value`` is ``None`` where the reader has it
    already. ``mime_type`` is what policy says, which may be anything.
    """

    tag: str
    value: bytes | None = attrs.field(repr=False)
    mime_type: str | None


@attrs.frozen
class SecretService:
    """The use cases of secrets.

    :raises NotFound: by those that write: the variable doesn't exist, or as good as.
    :raises Forbidden: by all methods: the caller sees a variable and lacks the privilege.
    :raises WrongDataKey: by those that read: a value doesn't open.
    """

    store: ISecrets
    expirations: IExpirations
    vault: Vault

    async def read(
        self,
        invocation: Invocation,
        variable: ResourceName,
        version: int | None = None,
        is_known: Callable[[str], bool] = lambda _: False,
    ) -> Secret:
        """Return a value: the newest, or the one of ``version``; the caller needs ``execute``.

        ``is_known`` returns whether the caller has the value of a tag already, which isn't opened then; it may raise, since
        conditions come last (RFC 9110 13.2.1).

        :raises NoValue: there is no value for this caller, nor perhaps a variable.
        """
        reading = await self.store.read(invocation.caller, variable, version)
        require_value(reading.access_facts, "execute", variable)
        if reading.sealed is None:
            raise NoValue(str(variable), reading.ended_at)
        tag = self._tag(reading.version, reading.sealed)
        value = None if is_known(tag) else self.vault.open(str(variable), reading.sealed)
        return Secret(tag, value, reading.mime_type)

    async def read_several(self, invocation: Invocation, ids: Sequence[str]) -> dict[str, bytes]:
        """Return the newest values of several resources by their full ids, each once; the caller needs ``execute`` on each.

        Refused is first one that is visible without ``execute``, then one that isn't visible, then one without a value; last
        come values that are too long together (SEC-13, SEC-14).

        :raises InvalidParameter: they are more than ``BATCH_MOST``.
        :raises NoValue: there is no value of one for this caller.
        :raises TooLarge: all have more than ``BATCH_BYTES``, sealed.
        """
        if len(ids) > BATCH_MOST:
            raise InvalidParameter("variable_ids", f"'variable_ids' may name at most {BATCH_MOST} secrets at once")
        invocation.recorder.tell(resources=ids)
        names = {text: name for text in ids if (name := _name(text)) is not None}
        readings = await self.store.read_all(invocation.caller, tuple(names.values()), BATCH_BYTES)
        seen: dict[str, SecretReading] = {}
        for (text, name), reading in zip(names.items(), readings, strict=True):
            with contextlib.suppress(RecordNotFound):
                require(reading.access_facts, "execute", name)
                seen[text] = reading
        for text in ids:
            if text not in seen:
                raise NoValue(text)
        for text, reading in seen.items():
            if reading.version is None or reading.ended_at is not None:
                raise NoValue(str(names[text]), reading.ended_at)
        values: dict[str, bytes] = {}
        for text, reading in seen.items():
            if reading.sealed is None:
                raise TooLarge("all secrets that are read at once, sealed and together,", BATCH_BYTES)
            values[text] = self.vault.open(str(names[text]), reading.sealed)
        return values

    async def write(
        self,
        invocation: Invocation,
        variable: ResourceName,
        value: bytes,
        precondition: Callable[[str | None], None] = lambda _: None,
    ) -> str:
        """Set the value, and return its tag; the caller needs ``update``.

        An unchanged value makes no new version, but only for callers who may read it: to others that would tell the value.
        ``precondition`` is called, while other writers wait, with the tag of the value that would be replaced, ``None`` when
        there is none. What it raises ends the write.

        :raises InvalidParameter: the value is empty, or blank.
        """
        kept: int | None = None
        sealed = Sealed(b"")

        def decide(reading: SecretReading) -> Sealed | None:
            nonlocal kept, sealed
            require(reading.access_facts, "update", variable)
            if not value.strip():
                raise InvalidParameter("value", "'value' may not be empty")
            precondition(None if reading.sealed is None else self._tag(reading.version, reading.sealed))
            readable = use(reading.access_facts, "execute") == Allowed()
            if readable and reading.sealed is not None and holds(self.vault, variable, reading.sealed, value):
                kept, sealed = reading.version, reading.sealed
                return None
            sealed = self.vault.seal(str(variable), value)
            return sealed

        version = await self.store.write(invocation.caller, variable, decide, invocation.recorder.trail)
        return self._tag(kept if version is None else version, sealed)

    async def clear_expirations(self, invocation: Invocation, variable: ResourceName) -> None:
        """Clear expirations: no value ends, and what is rotated is rotated soon; the caller needs ``update``."""
        decide = functools.partial(require, privilege="update", name=variable)
        await self.expirations.clear(invocation.caller, variable, decide, invocation.recorder.trail)

    def _tag(self, version: int | None, sealed: Sealed) -> str:
        return f'"{version}-{self.vault.fingerprint(sealed)}"'


def holds(vault: Vault, name: ResourceName, sealed: Sealed, value: bytes) -> bool:
    """Return whether a sealed value is this one; one that doesn't open isn't, and can still be replaced."""
    try:
        return same_key(vault.open(str(name), sealed), value)
    except WrongDataKey:
        return False


@functools.lru_cache(1024)
def _name(text: str) -> ResourceName | None:
    """Return the resource of a full id; ``None`` when none can have that id. The same are asked for again and again."""
    try:
        return ResourceName.parse(text)
    except InvalidName:
        return None

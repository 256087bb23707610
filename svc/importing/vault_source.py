"""A server of Vault or OpenBao as a source: everything that a token sees in a namespace and below it.

The methods are those of sources (``svc.importing.inventory``). Passwords, secret-ids and tokens can't be read there, and
other engines hold nothing that is kept here: each is a note.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import attrs

from svc.importing.hcl import HclInvalid
from svc.importing.inventory import Inventory, NoteKind, Progress, Record, RecordId, SourceStopped, Values, Version
from svc.importing.vault_access import Access, PolicyKey, policy_key
from svc.importing.vault_http import Found, Locked, Refused, VaultConnection
from svc.importing.vault_identity import IdentityReader
from svc.importing.vault_json import Json
from svc.importing.vault_kv import Mount, read_mount, read_mounts
from svc.importing.vault_logins import LoginReader
from svc.importing.vault_names import Records
from svc.importing.vault_rules import Rule, read_rules
from svc.importing.vault_secrets import SecretReader
from svc.model.clocks import MachineClock, WallClock

#: How deep namespaces are walked, and how many: a source that answers without end is no Vault.
_DEPTH = 32
NAMESPACES_MOST = 100_000


@attrs.define
class VaultSource:
    """Reads one server. ``engines`` are the only ones to read, by their paths, if any; ``into`` is the branch for all."""

    connection: VaultConnection
    namespace: str = ""
    into: str = ""
    as_json: bool = False
    engines: tuple[str, ...] = ()
    wall: WallClock = attrs.field(factory=MachineClock)
    _records: Records = attrs.field(factory=Records, init=False, repr=False)
    _secrets: SecretReader | None = attrs.field(default=None, init=False, repr=False)
    _settings: dict[RecordId, bytes] = attrs.field(factory=dict, init=False, repr=False)
    _policies: dict[PolicyKey, tuple[Rule, ...]] = attrs.field(factory=dict, init=False, repr=False)
    _unreadable: set[PolicyKey] = attrs.field(factory=set, init=False, repr=False)

    @property
    def place(self) -> str:
        """Return the address and the namespace."""
        return f"{self.connection.place} {self.namespace}".strip()

    async def read_inventory(self, progress: Progress) -> Inventory:
        """Return everything that the token sees; see ``svc.importing.inventory``."""
        self._records = Records(self.into)
        self._policies, self._unreadable, self._settings = {}, set(), {}
        for sentence in await self.connection.check_token(self.namespace):
            self._records.note(NoteKind.TO_KNOW, "the token", sentence)
        secrets = self._secrets = SecretReader(self.connection, self.wall, self._records, self.as_json)
        logins = LoginReader(self.connection, self._records)
        identities = IdentityReader(self.connection, self._records)
        namespaces = [each async for each in self._walk_namespaces()]
        for place, namespace in enumerate(namespaces, 1):
            progress("namespaces", place, len(namespaces))
            if namespace:
                self._records.add_branch(namespace)
            for mount in await self._find_engines(namespace):
                await self._read_engine(mount, secrets, progress)
        for namespace in namespaces if not self.engines else ():
            await self._read_policies(namespace, progress)
            for mount in await self._find_methods(namespace):
                progress(f"logins at {mount.namespace}auth/{mount.path}", 0, None)
                await logins.read_method(mount)
            await identities.read_namespace(namespace)
        access = Access(self._records, secrets.secrets, self._policies, frozenset(self._unreadable))
        access.add_holders(identities.build_holders(logins.roles), identities.group_policies)
        access.note_policies()
        self._settings = dict(logins.settings)
        return Inventory(
            source="vault or openbao",
            records=self._records.sorted(),
            grants=tuple(sorted({*logins.grants, *identities.grants, *access.grants})),
            permissions=tuple(sorted({*logins.permissions, *access.permissions})),
            authenticators=tuple(sorted(logins.authenticators)),
            notes=tuple(sorted(set(self._records.notes))),
        )

    async def read_values(self, variables: Iterable[Record]) -> AsyncIterator[Values]:
        """Yield the versions of variables; see ``svc.importing.inventory``."""
        if self._secrets is None:
            raise SourceStopped("values are read after the inventory", "read the inventory first")
        for record in variables:
            if (setting := self._settings.get(record.id)) is not None:
                yield Values(record.id, (Version(1, setting),))
                continue
            async for values in self._secrets.read_values((record,)):
                yield values

    # Namespaces, engines, methods

    async def _walk_namespaces(self) -> AsyncIterator[str]:
        """Yield this namespace and those below it, each before its own; a locked one isn't seen."""
        waiting, count = [self.namespace], 0
        while waiting:
            namespace = waiting.pop(0)
            if (count := count + 1) > NAMESPACES_MOST:
                what, why = f"namespaces from {namespace} on", f"{NAMESPACES_MOST:,} namespaces are read, and there are more"
                self._records.note(NoteKind.UNSEEN, what, why, "move a namespace at a time by --namespace")
                return
            names = await self.connection.list_names("sys/namespaces", namespace)
            if isinstance(names, Locked):
                self._records.note(NoteKind.UNSEEN, f"namespace {namespace}", "it is locked", "unlock it there")
                continue
            yield namespace
            if isinstance(names, Refused):
                what = f"namespaces below {namespace or 'the root'}"
                self._records.note(NoteKind.UNSEEN, what, "they may not be listed", "give the token list on sys/namespaces")
                continue
            if namespace.count("/") < _DEPTH:
                waiting = [f"{namespace}{name.rstrip('/')}/" for name in names] + waiting

    async def _find_engines(self, namespace: str) -> list[Mount]:
        """Return the engines of a namespace: all, or those that were asked for."""
        if self.engines:
            return [mount for name in self.engines if (mount := await self._find_engine(namespace, name)) is not None]
        found = await self.connection.read("sys/mounts", namespace)
        data: dict[str, Json] | None = found.data if isinstance(found, Found) else None
        if data is None:
            seen = await self.connection.read("sys/internal/ui/mounts", namespace)
            secret = seen.data.get("secret") if isinstance(seen, Found) else None
            data = secret if isinstance(secret, dict) else {}
            self._records.note(
                NoteKind.UNSEEN,
                f"engines of {namespace or 'the root namespace'}",
                "sys/mounts may not be read, and only those with some right are read",
                "give the token read on sys/mounts, or name engines by --mount",
            )
        try:
            return list(read_mounts(data, namespace))
        except ValueError as fault:
            raise self.connection.strange(f"{namespace}sys/mounts", str(fault)) from None

    async def _find_engine(self, namespace: str, name: str) -> Mount | None:
        path = f"{name.strip('/')}/"
        found = await self.connection.read(f"sys/internal/ui/mounts/{path.rstrip('/')}", namespace)
        if not isinstance(found, Found):
            if namespace == self.namespace:
                self._records.note(NoteKind.UNSEEN, f"engine {path}", "there is none, or no right to it", "see --mount")
            return None
        try:
            real = found.data.get("path")
            return read_mount(found.data, namespace, real if isinstance(real, str) and real else path)
        except ValueError as fault:
            raise self.connection.strange(f"{namespace}sys/internal/ui/mounts/{path}", str(fault)) from None

    async def _read_engine(self, mount: Mount, secrets: SecretReader, progress: Progress) -> None:
        if mount.is_kv:
            await secrets.read_mount(mount, progress)
        elif not mount.is_every_servers:
            what = f"engine {mount.name} of type {mount.type}"
            self._records.note(NoteKind.LEFT_OUT, what, "only keys and values are moved", "keep it there, or replace it")

    async def _find_methods(self, namespace: str) -> list[Mount]:
        found = await self.connection.read("sys/auth", namespace)
        if not isinstance(found, Found):
            what = f"logins of {namespace or 'the root namespace'}"
            self._records.note(NoteKind.UNSEEN, what, "sys/auth may not be read", "give the token read there")
            return []
        try:
            return list(read_mounts(found.data, namespace))
        except ValueError as fault:
            raise self.connection.strange(f"{namespace}sys/auth", str(fault)) from None

    # Policies

    async def _read_policies(self, namespace: str, progress: Progress) -> None:
        names = await self.connection.list_names("sys/policies/acl", namespace)
        if not isinstance(names, tuple):
            what = f"policies of {namespace or 'the root namespace'}"
            self._records.note(NoteKind.UNSEEN, what, "they may not be listed", "give the token list on sys/policies/acl")
            return
        for place, name in enumerate(names, 1):
            progress("policies", place, len(names))
            await self._read_policy(namespace, name)

    async def _read_policy(self, namespace: str, name: str) -> None:
        key, what = policy_key(namespace, name), f"policy {namespace}{name}"
        found = await self.connection.read(f"sys/policies/acl/{name}", namespace)
        text = found.data.get("policy") if isinstance(found, Found) else None
        if not isinstance(text, str):
            self._unreadable.add(key)
            self._records.note(NoteKind.UNSEEN, what, "it may not be read", "give the token read on sys/policies/acl")
            return
        try:
            self._policies[key] = read_rules(text)
        except HclInvalid as fault:
            self._unreadable.add(key)
            self._records.note(NoteKind.LEFT_OUT, what, f"its text isn't understood: {fault}", "permit here what it means")

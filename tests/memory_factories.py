"""Host factories and public keys in memory: the fakes of ``HostFactoryStore`` and ``PublicKeyStore`` (see ``memory``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from svc.model.credentials import KEYS_LIMIT
from svc.model.errors import Conflict, RecordNotFound
from svc.model.events import EventBatch
from svc.model.host_factories import CreatedHost, ExpiredToken, FactoryToken, RemovalEvents, name_token
from svc.model.idempotency import Once
from svc.model.names import RoleName
from svc.model.policy_loads import AnnotationRow, MembershipRow, ResourceRow, Rows
from svc.model.query_results import OutstandingToken, Sealed
from svc.storage.host_factories import HostFactoryStore
from svc.storage.public_keys import PublicKeyStore
from tests.memory import MemoryStore, kind_of


class MemoryHostFactories(MemoryStore, HostFactoryStore):
    """A fake of ``HostFactoryStore``."""

    async def add_tokens(
        self,
        digests: Sequence[bytes],
        token: FactoryToken,
        trail: EventBatch | None = None,
        once: Once[None] | None = None,
    ) -> None:
        """See ``HostFactoryStore``."""
        self.memory.write()
        self.memory.begin_once(once)
        if str(token.factory) not in self.memory.resources:
            raise RecordNotFound.for_name(token.factory)
        self.memory.factory_tokens.update(dict.fromkeys(digests, token))
        self.memory.record(trail)
        self.memory.end_once(once, None)

    async def read_token(self, digest: bytes) -> FactoryToken | None:
        """See ``HostFactoryStore``."""
        self.memory.ask()
        return self.memory.factory_tokens.get(digest)

    async def find_digest(self, account: str, name: str) -> bytes | None:
        """See ``HostFactoryStore``."""
        self.memory.ask()
        tokens = sorted(self.memory.factory_tokens.items(), key=lambda item: item[0])
        return next((d for d, token in tokens if name_token(d) == name and token.factory.account == account), None)

    async def list_tokens(self, factory: RoleName, limit: int, offset: int) -> list[OutstandingToken]:
        """See ``HostFactoryStore``."""
        self.memory.ask()
        found = [(token.expires_at, d, token) for d, token in self.memory.factory_tokens.items() if token.factory == factory]
        found.sort(key=lambda item: item[:2])
        listed = [OutstandingToken(name_token(digest), ends, token.networks) for ends, digest, token in found]
        return listed[offset : offset + limit]

    async def remove_token(self, digest: bytes, trail: EventBatch | None = None) -> bool:
        """See ``HostFactoryStore``."""
        self.memory.write()
        removed = self.memory.factory_tokens.pop(digest, None) is not None
        self.memory.record(trail if removed else None)
        return removed

    async def create_host(
        self,
        digest: bytes,
        host: RoleName,
        annotations: Mapping[str, str],
        api_key: Sealed,
        trail: EventBatch | None = None,
        once: Once[CreatedHost] | None = None,
    ) -> CreatedHost:
        """See ``HostFactoryStore``."""
        memory, name = self.memory, str(host)
        memory.write()
        memory.begin_once(once)
        token = memory.factory_tokens.get(digest)
        if token is None:
            raise RecordNotFound(host.account, "host_factory_token", "given")
        factory = str(token.factory)
        made = name not in memory.roles and name not in memory.resources
        if not made and (name not in memory.roles or memory.resources.get(name, ("",))[0] != factory):
            raise Conflict("host", host.identifier, f"{name} was not made by this host factory")
        if made and not memory.ownership([name, factory]).may_make(factory, name):
            raise Conflict("host", host.identifier, f"{name} lies beneath a policy that isn't the one of {factory}")
        if made:
            granted = [
                role
                for role, member, ownership in memory.memberships
                if member == factory and not ownership and kind_of(role) == "layer"
            ]
            memory.add(
                Rows(
                    (ResourceRow(name, factory),),
                    (
                        MembershipRow(name, factory, True, True),
                        *(MembershipRow(role, name, False, False) for role in granted),
                    ),
                    annotations=tuple(AnnotationRow(name, *annotation) for annotation in annotations.items()),
                )
            )
        if has_key := not memory.api_key_off(name):
            if not made:
                memory.rotations[name] = memory.made_at
            memory.credentials[name] = api_key
        memory.record(trail)
        return memory.end_once(once, CreatedHost(made, has_key, memory.creations.get(name, 0)))

    async def require_host(self, factory: RoleName, host: RoleName, creation: int) -> None:
        """See ``HostFactoryStore``."""
        memory, name = self.memory, str(host)
        memory.ask()
        if name not in memory.resources or name not in memory.roles:
            raise RecordNotFound.for_name(host)
        if memory.resources[name][0] != str(factory):
            raise Conflict("host", host.identifier, f"{name} was not made by this host factory")
        if memory.creations.get(name, 0) != creation:
            raise RecordNotFound.for_name(host)

    async def remove_expired(self, now: float, recount: RemovalEvents) -> list[ExpiredToken]:
        """See ``HostFactoryStore``; many are more than a thousand."""
        self.memory.write()
        expired = [(digest, token) for digest, token in self.memory.factory_tokens.items() if token.expires_at <= now]
        for digest, _ in expired[:1000]:
            del self.memory.factory_tokens[digest]
        removed = [ExpiredToken(name_token(digest), token.factory) for digest, token in expired[:1000]]
        self.memory.record(recount(removed) if removed else None)
        return removed

    async def can_find_known_token(self) -> bool:
        """See ``HostFactoryStore``."""
        self.memory.ask()
        return True


class MemoryPublicKeys(MemoryStore, PublicKeyStore):
    """A fake of ``PublicKeyStore``."""

    async def list_keys(self, user: RoleName) -> list[tuple[str, Sealed]]:
        """See ``PublicKeyStore``."""
        self.memory.ask()
        beneath = f"{user.account}:public_key:user/{user.identifier}/"
        names = sorted((name for name in self.memory.resources if name.startswith(beneath)), key=str.encode)
        stored = {name: self.memory.secrets.get(name) for name in names[:KEYS_LIMIT]}
        return [(name, versions[max(versions)][1]) for name, versions in stored.items() if versions]

    async def can_find_known_key(self) -> bool:
        """See ``PublicKeyStore``."""
        self.memory.ask()
        return True

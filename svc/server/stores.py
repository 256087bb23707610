"""The sources of reads of a serving process, and its stores, on the read cache or beside it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import TypeVar

import attrs

from svc.model.names import RoleName
from svc.model.versions import StateVersion
from svc.server.foundation import Foundation
from svc.server.singletons import SharedParts, Singletons
from svc.storage.access import AccessStore
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.cache.read_cache import ReadCache
from svc.storage.cache.version_barrier import VersionBarrier
from svc.storage.credentials import CredentialStore
from svc.storage.deleted_records import DeletedStore
from svc.storage.directory_users import DirectoryUserStore
from svc.storage.driver.progress import Progress
from svc.storage.driver.statements import Statements
from svc.storage.effective_policy import EffectivePolicyStore
from svc.storage.events import EventStore
from svc.storage.expirations import ExpirationStore
from svc.storage.host_factories import HostFactoryStore
from svc.storage.idempotency import IdempotencyStore
from svc.storage.last_logins import LastLoginStore
from svc.storage.ldap_mappings import LdapMappingStore
from svc.storage.policy_edits import PolicyEditStore
from svc.storage.public_keys import PublicKeyStore
from svc.storage.read_routing import ReadRouter
from svc.storage.resources import ResourceStore
from svc.storage.roles import RoleStore
from svc.storage.secrets import SecretStore
from svc.storage.sessions import SessionStore
from svc.storage.upcoming_expirations import UpcomingExpirationStore

S = TypeVar("S")


def _part(make: Callable[[Stores], S]) -> cached_property[S]:
    """Return a part of the server, which ``make`` makes of other parts when it is first used."""
    return cached_property(make)


@attrs.frozen(slots=False, eq=False, kw_only=True)
class Stores(Foundation):
    """The stores of a serving process."""

    @cached_property
    def singletons(self) -> Singletons:
        """The parts that exist once per server, where this is its only process."""
        return Singletons(self)

    @property
    def shared(self) -> SharedParts:
        """The parts that exist once per server, as this process reaches them."""
        return self.singletons

    @cached_property
    def cache(self) -> ReadCache | None:
        """The read cache; ``None`` where every read goes to the database."""
        settings = self.settings
        if not settings.memory_lag:
            return None
        lag, limit, stale = settings.memory_lag, settings.memory_limit, settings.serve_stale
        return ReadCache(self.reactor, self.read_source, self.commit_counters, lag=lag, limit=limit, serve_stale=stale)

    @property
    def cached_read_source(self) -> Statements:
        """The source of reads that may be cached."""
        return self.read_source if self.cache is None else self.cache

    @cached_property
    def wait_for_versions(self) -> Callable[[Sequence[StateVersion], RoleName], Awaitable[None]]:
        """The barrier that delays a request until reads are as new as its version tokens."""
        if isinstance(self.read_source, ReadRouter):
            return self.read_source.wait_until_reached
        progress = Progress(self.read_source, self.reactor)
        return progress.wait_until_reached if self.cache is None else VersionBarrier(progress, self.cache).wait_until_reached

    async def demand_primary(self) -> None:
        """Check that the database is a primary and that no other primary forbids writes."""
        await self.replication.require_primary()
        await self.shared.write_gate.wait_until_writable()

    role_store = _part(lambda parts: RoleStore(parts.cached_read_source))
    resource_store = _part(lambda parts: ResourceStore(parts.cached_read_source))
    secret_store = _part(
        lambda parts: SecretStore(parts.cached_read_source, parts.settings.dialect, parts.settings.retention)
    )
    credential_store = _part(lambda parts: CredentialStore(parts.cached_read_source))
    authenticator_store = _part(lambda parts: AuthenticatorStore(parts.cached_read_source))
    # Logins by a directory read three times, which decide together, and take longer: none of it is cached.
    directory_authenticator_store = _part(lambda parts: AuthenticatorStore(parts.read_source))
    directory_credentials = _part(lambda parts: CredentialStore(parts.read_source))
    access_store = _part(lambda parts: AccessStore(parts.read_source))
    event_store = _part(lambda parts: EventStore(parts.read_source))
    last_login_store = _part(lambda parts: LastLoginStore(parts.read_source))
    host_factory_store = _part(lambda parts: HostFactoryStore(parts.read_source))
    idempotency_store = _part(lambda parts: IdempotencyStore(parts.installation.database))
    expiration_store = _part(lambda parts: ExpirationStore(parts.read_source, parts.settings.retention))
    upcoming_expiration_store = _part(lambda parts: UpcomingExpirationStore(parts.read_source))
    public_key_store = _part(lambda parts: PublicKeyStore(parts.read_source))
    deleted_store = _part(lambda parts: DeletedStore(parts.read_source, parts.settings.retention))
    effective_policy_store = _part(lambda parts: EffectivePolicyStore(parts.read_source))
    ldap_mapping_store = _part(lambda parts: LdapMappingStore(parts.read_source))
    directory_user_store = _part(lambda parts: DirectoryUserStore(parts.read_source))
    session_store = _part(lambda parts: SessionStore(parts.read_source))
    policy_edit_store = _part(lambda parts: PolicyEditStore(parts.cached_read_source, parts.settings.retention))

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
from svc.storage.readings import ReadingStore
from svc.storage.resources import ResourceStore
from svc.storage.roles import RoleStore
from svc.storage.secrets import SecretStore
from svc.storage.sessions import SessionStore
from svc.storage.upcoming_expirations import UpcomingExpirationStore

S = TypeVar("S")


def _part(make: Callable[[Stores], S]) -> cached_property[S]:
    """Return a part of a server, which ``make`` makes of the server's other parts when it is first used."""
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
        lag, limit, stale = self.settings.memory_lag, self.settings.memory_limit, self.settings.serve_stale
        if not lag:
            return None
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

    async def ensure_writable(self) -> None:
        """Check that the database is a primary and that no other primary forbids writes."""
        await self.replication.require_primary()
        await self.shared.write_gate.wait_until_writable()

    role_store = _part(lambda s: RoleStore(s.cached_read_source))
    resource_store = _part(lambda s: ResourceStore(s.cached_read_source))
    secret_store = _part(lambda s: SecretStore(s.cached_read_source, s.settings.dialect, s.settings.retention))
    credential_store = _part(lambda s: CredentialStore(s.cached_read_source))
    authenticator_store = _part(lambda s: AuthenticatorStore(s.cached_read_source))
    # Logins by a directory read three times, which decide together, and take longer: none of it is cached.
    directory_authenticator_store = _part(lambda s: AuthenticatorStore(s.read_source))
    directory_credentials = _part(lambda s: CredentialStore(s.read_source))
    access_store = _part(lambda s: AccessStore(s.read_source))
    event_store = _part(lambda s: EventStore(s.read_source))
    last_login_store = _part(lambda s: LastLoginStore(s.read_source))
    reading_store = _part(lambda s: ReadingStore(s.read_source))
    host_factory_store = _part(lambda s: HostFactoryStore(s.read_source))
    idempotency_store = _part(lambda s: IdempotencyStore(s.installation.database))
    expiration_store = _part(lambda s: ExpirationStore(s.read_source, s.settings.retention))
    upcoming_expiration_store = _part(lambda s: UpcomingExpirationStore(s.read_source))
    public_key_store = _part(lambda s: PublicKeyStore(s.read_source))
    deleted_store = _part(lambda s: DeletedStore(s.read_source, s.settings.retention))
    effective_policy_store = _part(lambda s: EffectivePolicyStore(s.read_source))
    ldap_mapping_store = _part(lambda s: LdapMappingStore(s.read_source))
    directory_user_store = _part(lambda s: DirectoryUserStore(s.read_source))
    session_store = _part(lambda s: SessionStore(s.read_source))
    policy_edit_store = _part(lambda s: PolicyEditStore(s.cached_read_source, s.settings.retention))

"""The sources of reads of a serving process, and its stores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property

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


@attrs.frozen(slots=False, eq=False, kw_only=True)
class Stores(Foundation):
    """The stores of a serving process, on the read cache or beside it."""

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

    @cached_property
    def role_store(self) -> RoleStore:
        """Roles and memberships."""
        return RoleStore(self.cached_read_source)

    @cached_property
    def resource_store(self) -> ResourceStore:
        """Resources."""
        return ResourceStore(self.cached_read_source)

    @cached_property
    def secret_store(self) -> SecretStore:
        """Versions of secrets."""
        return SecretStore(self.cached_read_source, self.settings.dialect, self.settings.retention)

    @cached_property
    def credential_store(self) -> CredentialStore:
        """API keys and passwords."""
        return CredentialStore(self.cached_read_source)

    @cached_property
    def authenticator_store(self) -> AuthenticatorStore:
        """Authenticators that policy defines, their settings, and the hosts that log in there."""
        return AuthenticatorStore(self.cached_read_source)

    @cached_property
    def directory_authenticator_store(self) -> AuthenticatorStore:
        """The same for directories: three reads decide together, and a directory takes longer: none is cached."""
        return AuthenticatorStore(self.read_source)

    @cached_property
    def directory_credentials(self) -> CredentialStore:
        """API keys of users of directories, not cached for the same reason."""
        return CredentialStore(self.read_source)

    @cached_property
    def access_store(self) -> AccessStore:
        """Facts of who may do what."""
        return AccessStore(self.read_source)

    @cached_property
    def event_store(self) -> EventStore:
        """Changes that are kept in the database."""
        return EventStore(self.read_source)

    @cached_property
    def last_login_store(self) -> LastLoginStore:
        """Days of last logins."""
        return LastLoginStore(self.read_source)

    @cached_property
    def host_factory_store(self) -> HostFactoryStore:
        """Tokens of host factories."""
        return HostFactoryStore(self.read_source)

    @cached_property
    def idempotency_store(self) -> IdempotencyStore:
        """Answers to requests that may be repeated."""
        return IdempotencyStore(self.installation.database)

    @cached_property
    def expiration_store(self) -> ExpirationStore:
        """Expirations of secrets."""
        return ExpirationStore(self.read_source, self.settings.retention)

    @cached_property
    def upcoming_expiration_store(self) -> UpcomingExpirationStore:
        """Credentials that expire."""
        return UpcomingExpirationStore(self.read_source)

    @cached_property
    def public_key_store(self) -> PublicKeyStore:
        """Public keys of users."""
        return PublicKeyStore(self.read_source)

    @cached_property
    def deleted_store(self) -> DeletedStore:
        """Deleted records that can be restored."""
        return DeletedStore(self.read_source, self.settings.retention)

    @cached_property
    def effective_policy_store(self) -> EffectivePolicyStore:
        """The policy in effect."""
        return EffectivePolicyStore(self.read_source)

    @cached_property
    def ldap_mapping_store(self) -> LdapMappingStore:
        """Mappings of a directory's names."""
        return LdapMappingStore(self.read_source)

    @cached_property
    def directory_user_store(self) -> DirectoryUserStore:
        """Users that a directory knew at their last login."""
        return DirectoryUserStore(self.read_source)

    @cached_property
    def session_store(self) -> SessionStore:
        """Sessions of people who log in from a terminal."""
        return SessionStore(self.read_source)

    @cached_property
    def policy_edit_store(self) -> PolicyEditStore:
        """Single changes of policy."""
        return PolicyEditStore(self.cached_read_source, self.settings.retention)

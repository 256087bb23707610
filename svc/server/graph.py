"""The object graph of a process that serves requests.

Every part is made when it is first used, of the parts that it names: in a line by ``_part``, or as a cached property where
there is more to say (``svc/server/foundation.py``). :meth:`Server.open` starts what runs, in the order written there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final, TypeVar

import attrs

from svc.audit.record_searcher import RecordSearcher
from svc.authn.apikey import ApiKeyAuthenticator
from svc.authn.cloud import make_cloud_kind
from svc.authn.evaluation import AuthenticatorKind, FederatedAuthenticator
from svc.authn.gcp import make_gcp_kind
from svc.authn.iam import NAME as IAM
from svc.authn.iam import make_iam_kind
from svc.authn.jwt import JWT
from svc.authn.ldap.authenticator import LdapAuthenticator
from svc.authn.ldap.directory_rounds import MissingEntries
from svc.authn.ldap.directory_settings import NAME as LDAP
from svc.authn.ldap.mapped_roles import MappedRoles
from svc.authn.oidc import make_oidc_kinds
from svc.authn.oidc_settings import NAME as OIDC
from svc.authn.oidc_settings import OidcSettingsReader
from svc.authn.providers.oidc_endpoints import OidcEndpoints, OidcOffers
from svc.authn.sessions import SessionAuthenticator
from svc.authn.throttling import LDAP_STEP, MAX_DELAYED, RefusalPace, Throttle
from svc.cluster.overview import ClusterOverview
from svc.crypto.passwords import MAX_WAITING, LowPriorityPool, Passwords, count_hashing_threads
from svc.crypto.refresh_tokens import RefreshTokens
from svc.model.authentication import Authenticate, Explain, ReadApiKey
from svc.model.dialect import SIGNED_TYPES
from svc.model.policy_loads import ILoads
from svc.policy.document import Bounds
from svc.rotation.plans import find_rotation_fault
from svc.server.fine_timer import FineTimer
from svc.server.lifecycle import add_child, do_nothing
from svc.server.listening import Endpoint, ListeningPorts
from svc.server.stores import Stores
from svc.services.access import AccessService
from svc.services.accounts import AccountService
from svc.services.audit_events import AuditService
from svc.services.audit_search import AuditSearchService
from svc.services.authenticators import DEFAULT, AuthenticatorService, FederatedService, LdapStatusService
from svc.services.branches import branch_entries, group_entries
from svc.services.configured_authenticators import ConfiguredAuthenticatorService
from svc.services.credentials import CredentialService
from svc.services.deleted_records import DeletedService
from svc.services.effective_policy import EffectivePolicyService
from svc.services.group_members import GroupMemberService
from svc.services.host_factories import HostFactoryService
from svc.services.inactive_roles import InactiveRoleService
from svc.services.ldap_mappings import LdapMappingService
from svc.services.login import AccessTokenService, ApiKeyService, LastLoginRecorder, LoginService, log_refusals
from svc.services.login_explanations import KeyExplanations
from svc.services.offboarding import OffboardingService
from svc.services.oidc import OidcService
from svc.services.policy_edits import PolicyEdits
from svc.services.policy_loads import LOCAL_ROWS, LoadRouter, LocalLoads, PolicyLoadService
from svc.services.public_keys import PublicKeyService
from svc.services.readers import ReaderService
from svc.services.reading_counts import ReadingCounter
from svc.services.refusals import RefusalService
from svc.services.resources import ResourceService
from svc.services.revocation import RevocationService
from svc.services.roles import RoleService
from svc.services.secret_batches import BatchService
from svc.services.secrets import SecretService
from svc.services.sessions import SessionService
from svc.services.upcoming_expirations import KeyExpirations, UpcomingExpirationService
from svc.services.watches import Watches
from svc.storage.policies import PolicyStore
from svc.web.http.client_address import TrustedProxies
from svc.web.http.console import IConsole
from svc.web.http.messages import HttpConfig, generate_ids
from svc.web.http.refusal_recorder import RefusalRecorder
from svc.web.http.router import Router
from svc.web.http.site import Site
from svc.web.openapi.routes import Documentation
from svc.web.routes.accounts import Accounts
from svc.web.routes.audit import Audit
from svc.web.routes.audit_records import AuditRecords, PeerRecords
from svc.web.routes.authenticators import Authenticators, DirectoryAuthenticators, FederatedAuthenticators
from svc.web.routes.authn import Authn, FederatedAuthn, LdapAuthn, SignedAuthn
from svc.web.routes.batches import SecretBatches
from svc.web.routes.branches import Branches
from svc.web.routes.cluster import Cluster, ClusterReadings
from svc.web.routes.configured_authenticators import ConfiguredAuthenticators
from svc.web.routes.credentials import Credentials
from svc.web.routes.deleted import DeletedRecords
from svc.web.routes.effective_policy import EffectivePolicies
from svc.web.routes.expirations import Endings
from svc.web.routes.groups import GroupMembers, Groups
from svc.web.routes.health import Health
from svc.web.routes.host_factories import HostFactories
from svc.web.routes.ldap_mappings import LdapMappings
from svc.web.routes.login_explanations import KeyLogins
from svc.web.routes.offboarding import Offboardings
from svc.web.routes.oidc import OidcAuthn
from svc.web.routes.policies import Policies
from svc.web.routes.public_keys import PublicKeys
from svc.web.routes.refusals import Refusals
from svc.web.routes.resources import Resources
from svc.web.routes.revocation import Revocation
from svc.web.routes.roles import Roles
from svc.web.routes.secrets import Secrets
from svc.web.routes.sessions import Sessions
from svc.web.routes.status import Status
from svc.web.routes.watches import SecretWatches
from svc.worker.messages import LoadWorkerSettings
from svc.worker.pool import IDLE_SECONDS, LimitedLoads, Workers

S = TypeVar("S")

#: Names that can be looked up at the same time, each in a thread that is made when it is needed.
_LOOK_UPS: Final = 64


def _part(make: Callable[[Server], S]) -> cached_property[S]:
    """Return a part of a server, which ``make`` makes of the server's other parts when it is first used."""
    return cached_property(make)


@attrs.frozen(slots=False, eq=False, kw_only=True)
class Server(Stores):
    """A process that answers requests; ``make_console`` makes its console and the pages."""

    make_console: Callable[[Server], tuple[IConsole, Sequence[Any]]] | None = None

    async def open(self, endpoints: Sequence[Endpoint]) -> Sequence[str]:
        """Start what answers requests, in this order, and return the URLs of the ports.

        :raises StartRefused: an endpoint can't be listened at.
        """
        # A lookup may hang until its name service times out: a few must not keep others from being resolved.
        self.reactor.suggestThreadPoolSize(_LOOK_UPS)
        # Last logins and reads are written after the ports have closed.
        noted = self.last_login_recorder, self.reading_counter
        for service in (self.passwords, self.fine_timer, self.cache, self.load_workers, *noted):
            if service is not None:
                add_child(self.services, service)
        urls = await add_child(self.services, ListeningPorts(endpoints, self.site, self.site.drain)).open()
        # After the ports, so that these end first: the ports would wait for the answers that they hold back.
        add_child(self.services, self.watches)
        if self.throttle is not None:
            add_child(self.services, self.throttle)
        if self.metrics is not None:
            self.metrics.watch_passwords(lambda: self.passwords.pending_count, self.passwords.capacity)
            self.metrics.watch_connections(self.site.connection_counts)
            if self.cache is not None:
                self.metrics.watch_cache(self.cache.cache_counts)
        return urls

    async def list_followers(self) -> list[str]:
        """Return the names of the other servers that are followers now."""
        return [member.name for member in await self.shared.members.list_health() if member.role == "follower"]

    # Logins: throttled for guessers, logged, counted, and refused at a pace.

    @cached_property
    def passwords(self) -> Passwords:
        """The threads that hash passwords."""
        pool, shared = LowPriorityPool(0, count_hashing_threads(), "passwords"), self.shared
        return Passwords(self.reactor, pool, waiting=-(-MAX_WAITING // shared.processes), permits=shared.hashing)

    @cached_property
    def throttle(self) -> Throttle | None:
        failures = self.shared.failures
        return None if failures is None else Throttle(self.reactor, failures, -(-MAX_DELAYED // self.shared.processes))

    @cached_property
    def pace(self) -> RefusalPace:
        """The pace of refusals; without the read cache each has queried the database, whose time needs no imitation."""
        await_read = do_nothing if self.cache is None else self.cache.equalize_timing
        return RefusalPace(self.reactor, await_read, self.fine_timer.wait_seconds)

    fine_timer = _part(lambda s: FineTimer(s.reactor))
    directory_pace = _part(lambda s: attrs.evolve(s.pace, step=LDAP_STEP))
    reading_counter = _part(lambda s: ReadingCounter(s.reactor, s.wall, s.shared.add_readings, s.shared.processes))
    last_login_recorder = _part(lambda s: LastLoginRecorder(s.reactor, s.wall, s.last_login_store, s.ensure_writable))

    def log_in_by(
        self, authenticate: Authenticate, name: str, pace: RefusalPace, *, throttled: bool = True, by_token: bool = False
    ) -> LoginService:
        """Return logins by an authenticator of this name; ``by_token`` is as in ``LoginService``."""
        if throttled and self.throttle is not None:
            authenticate = self.throttle.throttle_failures(authenticate)
        if self.metrics is not None:
            authenticate = self.metrics.count_decisions(authenticate, name)
        decide = pace.pace_refusals(log_refusals(authenticate, name))
        return LoginService(decide, self.tokens, self.last_login_recorder.note_login, by_token)

    def _read_keys_by(self, read_key: ReadApiKey, name: str, pace: RefusalPace) -> ApiKeyService:
        if self.throttle is not None:
            read_key = self.throttle.throttle_failures(read_key)
        return ApiKeyService(pace.pace_refusals(log_refusals(read_key, name)))

    def _explain_by(self, explain: Explain, name: str, pace: RefusalPace) -> KeyExplanations:
        if self.throttle is not None:
            explain = self.throttle.throttle_explanations(explain)
        guarded = pace.pace_refusals(log_refusals(explain, name))
        return KeyExplanations(name, guarded, self.role_store, self.settings.dialect)

    api_key_authenticator = _part(
        lambda s: ApiKeyAuthenticator(s.credential_store, s.installation.vault, s.passwords, s.wall)
    )
    login_service = _part(lambda s: s.log_in_by(s.api_key_authenticator.authenticate, DEFAULT, s.pace))
    api_key_service = _part(lambda s: s._read_keys_by(s.api_key_authenticator.api_key, DEFAULT, s.pace))
    explanations = _part(lambda s: s._explain_by(s.api_key_authenticator.explain, DEFAULT, s.pace))

    @cached_property
    def session_service(self) -> SessionService:
        """Sessions of people, whose renewals are logins too."""
        store, wall, longest = self.session_store, self.wall, self.settings.user_session_max
        refresh_tokens = RefreshTokens(self.installation.vault)
        renewals = SessionAuthenticator(store, refresh_tokens, wall, longest)
        renewed = self.log_in_by(renewals.authenticate, "session", self.pace)
        return SessionService(self.login_service, renewed, store, self.role_store, refresh_tokens, wall, longest)

    def make_federated(self, kind: AuthenticatorKind) -> FederatedAuthenticator:
        """Return an authenticator of a kind that trusts third parties; all share the sets of keys."""
        settings = self.settings
        return FederatedAuthenticator(
            kind,
            self.authenticator_store,
            self.shared.provider_keys,
            self.installation.vault,
            self.wall,
            settings.dialect,
            self.listed,
            clock_skew=settings.clock_skew,
            token_limit=settings.jwt_limit,
            ignore_missing_issuer=settings.ignore_missing_issuer,
        )

    @cached_property
    def federated(self) -> Mapping[str, FederatedAuthenticator]:
        """The authenticators that trust third parties' tokens, by name."""
        settings = self.settings
        aws = make_iam_kind(self.security_tokens, self.shared.signatures, settings.aws_sts_regions)
        kinds = JWT, make_cloud_kind(settings.dialect), make_gcp_kind(settings.google_issuer), aws
        return {kind.name: self.make_federated(kind) for kind in kinds}

    @cached_property
    def oidc_providers(self) -> OidcEndpoints:
        return OidcEndpoints(self.provider_client, self.reactor, self.wall, self.settings.jwks_refetch_interval)

    oidc_kinds = _part(lambda s: make_oidc_kinds(s.oidc_providers, s.settings.dialect))
    explained = _part(lambda s: {**s.federated, OIDC: s.make_federated(s.oidc_kinds.explanation)})

    @cached_property
    def ldap_authenticator(self) -> LdapAuthenticator:
        return LdapAuthenticator(
            reader=self.directory_authenticator_store,
            credentials=self.directory_credentials,
            servers=self.ldap_servers,
            directories=lambda: self.directories,
            vault=self.installation.vault,
            dialect=self.settings.dialect,
            enabled=self.listed,
            wall=self.wall,
            mapped_roles=MappedRoles(self.ldap_mapping_store, self.journal, self.ensure_writable),
            missing_entries=MissingEntries(self.directory_user_store, self.journal, self.ensure_writable),
            note_directory=self.last_login_recorder.note_directory,
        )

    # Services.

    access_token_service = _part(lambda s: AccessTokenService(s.role_store, s.keys))
    access_service = _part(lambda s: AccessService(s.access_store, s.role_store, s.resource_store, s.settings.dialect))
    resource_service = _part(lambda s: ResourceService(s.resource_store, s.role_store, s.settings.dialect))
    role_service = _part(lambda s: RoleService(s.role_store, s.settings.dialect, s.last_login_store))

    @cached_property
    def secret_service(self) -> SecretService:
        def find_fault(annotations: Mapping[str, str]) -> str | None:
            """See ``find_rotation_fault``."""
            return find_rotation_fault(annotations, self.rotators)

        return SecretService(
            self.secret_store, self.expiration_store, self.installation.vault, self.reading_counter, find_fault
        )

    batch_service = _part(lambda s: BatchService(s.secret_store, s.installation.vault, s.reactor, s.reading_counter))
    audit_service = _part(lambda s: AuditService(s.event_store, s.role_store))
    record_searcher = _part(lambda s: RecordSearcher(s.reactor, s.audit_output.path, s.shared.searching))

    @cached_property
    def audit_search_service(self) -> AuditSearchService:
        """Searches of the audit files of all servers of the cluster."""
        clients = self.member_clients.items()
        members = {name: partial(client.fetch_records, self.record_questions) for name, client in clients}
        own_name, search_own = self.journal.server.hostname, self.record_searcher.search_records
        return AuditSearchService(own_name, search_own, members, self.event_store, self.role_store)

    refusal_service = _part(lambda s: RefusalService(s.shared.refusals, s.role_store))
    revocation_service = _part(lambda s: RevocationService(s.role_store, s.credential_store, s.installation.accounts))
    inactive_role_service = _part(lambda s: InactiveRoleService(s.last_login_store, s.role_store, s.list_followers, s.wall))
    reader_service = _part(
        lambda s: ReaderService(s.reading_store, s.role_store, s.wall, s.settings.dialect, s.settings.readings_retention)
    )
    policy_load_service = _part(
        lambda s: PolicyLoadService(s.loads, s.role_store, s.event_store, s.journal, s.reader_service)
    )
    policy_edits = _part(lambda s: PolicyEdits(s.policy_edit_store, s.settings.record_limits))

    @cached_property
    def watches(self) -> Watches:
        """Watches of secrets, which take half of all connections at most."""
        follow = None if self.cache is None else self.cache.follow_changes
        most = self.settings.http_limits.connections // 2
        return Watches(self.reactor, self.wall, follow, self.secret_store, most, self.reading_counter)

    @property
    def _bounds(self) -> Bounds:
        settings = self.settings
        return Bounds(nesting=settings.nesting_limit, aliases=settings.alias_limit, records=settings.record_limits)

    @cached_property
    def load_workers(self) -> Workers:
        """The processes for large policy loads."""
        settings, vault = self.settings, self.installation.vault
        dsn, timeout = self.installation.dsn, settings.statement_timeout
        task = LoadWorkerSettings(dsn, timeout, vault.given_keys, settings.dialect, self._bounds, settings.retention)
        # A process without work would take the place of another one's.
        idle = IDLE_SECONDS if self.shared.loading is None else 0.0
        return Workers(self.reactor, task, idle=idle, written=self.count_commit, data_keys=lambda: vault.given_keys)

    @cached_property
    def loads(self) -> ILoads:
        """The loader of policies: small ones in this process, large ones in processes of their own."""
        settings, permits, workers = self.settings, self.shared.loading, self.load_workers
        store = PolicyStore(self.installation.database, settings.retention)
        near = LocalLoads(store, self.installation.vault, settings.dialect, self._bounds, LOCAL_ROWS)
        return LoadRouter(near, workers if permits is None else LimitedLoads(workers, permits))

    @cached_property
    def authenticator_service(self) -> AuthenticatorService:
        types = *self.explained, LDAP
        return AuthenticatorService(self.authenticator_store, self.role_store, types, self.listed, self.settings.dialect)

    @cached_property
    def federated_services(self) -> Mapping[str, FederatedService]:
        """The authenticators that trust third parties' tokens, as operators use them, by name."""
        store, roles, dialect, limit = (
            self.authenticator_store,
            self.role_store,
            self.settings.dialect,
            self.settings.jwt_limit,
        )
        return {
            name: FederatedService(name, each, store, roles, self.listed, dialect, limit, clock=self.reactor, wall=self.wall)
            for name, each in self.explained.items()
        }

    @cached_property
    def upcoming_expiration_service(self) -> UpcomingExpirationService:
        accounts, resources, dialect = self.account_store, self.resource_store, self.settings.dialect
        age, stale = self.settings.jwks_max_age, self.settings.jwks_stale_if_error
        longest = None if age is None else age + stale
        keys = KeyExpirations(accounts, resources, self.explained, dialect, self.reactor, self.wall, longest)
        store, list_certificates = self.upcoming_expiration_store, self.shared.list_certificates
        return UpcomingExpirationService(store, self.role_store, keys, list_certificates, self.wall)

    @cached_property
    def overview(self) -> ClusterOverview:
        """The health of the server and of its cluster."""
        shared, gate = self.shared, self.shared.write_gate
        return ClusterOverview(shared.health, self.settings.dialect, shared.members, lambda: gate.conflicting_members)

    # Routes.

    def _federated_logins(self) -> Iterator[FederatedAuthn | SignedAuthn]:
        """Yield the login routes of authenticators that trust third parties."""
        for name, each in self.federated.items():
            # A login there has AWS queried, so guesses are throttled.
            service = self.log_in_by(each.authenticate, name, self.pace, throttled=name == IAM, by_token=True)
            yield (SignedAuthn if name in SIGNED_TYPES else FederatedAuthn)(name, service, self.batch_service)

    @cached_property
    def oidc_routes(self) -> OidcAuthn:
        """Logins by OpenID Connect: by a code and by an id token."""
        dialect, kinds = self.settings.dialect, self.oidc_kinds
        by_code, by_token = (
            self.log_in_by(self.make_federated(kind).authenticate, OIDC, self.pace, by_token=True)
            for kind in (kinds.code, kinds.token)
        )
        reader = OidcSettingsReader(self.authenticator_store, self.installation.vault, dialect, self.listed)
        service = OidcService(OidcOffers(reader.list_settings, self.oidc_providers, self.reactor))
        return OidcAuthn(service, by_code, by_token, dialect.lists_device_endpoints, self.batch_service)

    def _directory_routes(self) -> Iterator[Any]:
        ldap, pace, roles, dialect = self.ldap_authenticator, self.directory_pace, self.role_store, self.settings.dialect
        login, read_key = self.log_in_by(ldap.authenticate, LDAP, pace), self._read_keys_by(ldap.api_key, LDAP, pace)
        yield LdapAuthn(login, read_key, self.batch_service)
        yield LdapMappings(LdapMappingService(self.ldap_mapping_store, roles, self.directory_authenticator_store, dialect))
        yield DirectoryAuthenticators(LdapStatusService(ldap, roles, self.shared.refusals, dialect))

    def _v2_routes(self) -> Iterator[Any]:
        """Yield the routes of the newer interface."""
        edits, roles, resources, tokens = self.policy_edits, self.role_store, self.resource_store, self.access_token_service
        dialect, vault, installed = self.settings.dialect, self.installation.vault, self.authenticator_service.installed
        groups = group_entries(edits, roles, resources)
        yield Branches(branch_entries(edits, roles, resources, dialect), tokens)
        yield Groups(groups, tokens)
        yield GroupMembers(GroupMemberService(edits, groups, roles), tokens)
        yield ConfiguredAuthenticators(
            ConfiguredAuthenticatorService(
                edits, roles, resources, self.secret_store, vault, dialect, installed, self.reading_counter
            ),
            tokens,
        )

    @cached_property
    def routes(self) -> Sequence[Any]:
        """The routes for programs, but for health and the OpenAPI document."""
        settings, dialect, vault, roles = self.settings, self.settings.dialect, self.installation.vault, self.role_store
        tokens, batches, access, limits = (
            self.access_token_service,
            self.batch_service,
            self.access_service,
            settings.record_limits,
        )
        by_key, credentials, answers = self.api_key_service, self.credential_store, self.idempotency_store
        factories, resources = self.host_factory_store, self.resource_store
        return [
            Authn(self.login_service, by_key, tokens, batches),
            Sessions(self.session_service),
            Credentials(CredentialService(by_key, credentials, roles, vault, self.passwords, answers)),
            Revocation(self.revocation_service),
            Offboardings(
                OffboardingService(
                    self.policy_edits, roles, self.session_store, access, self.reader_service, vault, self.wall
                )
            ),
            *self._federated_logins(),
            self.oidc_routes,
            *self._directory_routes(),
            Authenticators(self.authenticator_service),
            KeyLogins(self.explanations, self._explain_by(self.ldap_authenticator.explain, LDAP, self.directory_pace)),
            *(FederatedAuthenticators(each) for each in self.federated_services.values()),
            Resources(self.resource_service, access, self.reader_service),
            Roles(self.role_service, access),
            Policies(self.policy_load_service),
            Audit(self.audit_service),
            AuditRecords(self.audit_search_service),
            Refusals(self.refusal_service),
            Endings(self.upcoming_expiration_service, self.inactive_role_service, self.reader_service),
            EffectivePolicies(
                EffectivePolicyService(self.effective_policy_store, roles, vault, dialect, self.reactor), self.reactor
            ),
            Secrets(self.secret_service),
            SecretBatches(batches, self.reactor),
            SecretWatches(self.watches),
            DeletedRecords(DeletedService(self.deleted_store, limits)),
            HostFactories(HostFactoryService(factories, roles, resources, vault, dialect, self.wall, limits)),
            PublicKeys(PublicKeyService(self.public_key_store, self.secret_store, vault)),
            *self._v2_routes(),
            Accounts(AccountService(self.account_store, roles, self.keys, self.installation.create_account, vault)),
            Status(self.state, tokens, self.authenticator_service, dialect, has_console=settings.console),
        ]

    @cached_property
    def console(self) -> tuple[IConsole | None, Sequence[Any]]:
        """The console and its pages, where this server has it."""
        return (None, []) if self.make_console is None else self.make_console(self)

    @cached_property
    def health_routes(self) -> Sequence[Any]:
        """The routes of the health of this server, and of its cluster."""
        shared, cache = self.shared, self.cache
        stale = (lambda: False) if cache is None else cache.can_serve_stale
        return [
            Health(shared.health, self.settings.dialect, self._is_responsive, self._is_writable, stale),
            Cluster(self.overview, self.claims, shared.identify_database),
            PeerRecords(self.record_questions, self.record_searcher.search_records),
            ClusterReadings(self.claims, shared.hand_out_readings),
        ]

    def _is_responsive(self) -> bool:
        """Return whether this process can serve now, apart from the health of the server."""
        refuses = self.shared.processes > 1 and self.settings.audit_failure == "refuse"
        return self.shared.liveness.reads.is_alive and not (refuses and self.journal.failure is not None)

    def _is_writable(self) -> bool:
        return self.replication.is_writable and self.shared.liveness.writes.is_alive and self.shared.write_gate.is_writable

    new_request_id = _part(lambda _: generate_ids().__next__)

    @cached_property
    def router(self) -> Router:
        """The way from a request to its route, and to an answer."""
        console, pages = self.console
        resources = [*pages, *self.routes, *self.health_routes]
        return Router(
            [*resources, Documentation(resources, self.settings.dialect)],
            caller=self.tokens.find_caller,
            ensure_writable=self.ensure_writable,
            reached=self.wait_for_versions,
            limits=self.settings.http_limits,
            new_id=self.new_request_id,
            journal=self.journal,
            dialect=self.settings.dialect,
            clock=self.reactor,
            count=(lambda *_: None) if self.metrics is None else self.metrics.count_request,
            console=console,
            refused=RefusalRecorder(self.shared.refusals, self.wall),
        )

    @cached_property
    def site(self) -> Site:
        """The connections of clients."""
        config = HttpConfig(
            respond=self.router.respond,
            limits=self.settings.http_limits,
            clock=self.reactor,
            wall=self.wall,
            new_id=self.new_request_id,
            proxies=TrustedProxies(self.settings.trusted_proxies),
        )
        return Site(config)

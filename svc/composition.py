"""How the parts of the server are made and put together, on a foundation that is laid."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
from twisted.application.service import MultiService
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import Logger

from svc.audit import LoggedAuthenticator, LoggedExpirations, LoggedLogin
from svc.authentication import IAuthenticator, ILogin
from svc.authenticators.apikey import ApiKeyAuthenticator
from svc.authenticators.cloud import cloud
from svc.authenticators.federated import FederatedAuthenticator
from svc.authenticators.jwt import JWT
from svc.authenticators.ldap import LdapAuthenticator
from svc.authenticators.ldapserver import NAME as LDAP
from svc.authenticators.ldapserver import LdapServers
from svc.cluster.inquiry import Inquiry, trust_of
from svc.cluster.members import Members
from svc.config import Settings
from svc.directories import IDirectories
from svc.errors import StartRefused
from svc.events import Server as EventServer
from svc.expiration.postgresql import PostgresPassword
from svc.expiration.rotation import Rotations
from svc.expiration.rounds import Expirations
from svc.foundation import Foundation
from svc.health.probes import (
    AuditProbe,
    AuthnProbe,
    AuthzProbe,
    CoreProbe,
    DatabaseProbe,
    ExpirationProbe,
    HostFactoryProbe,
    LdapProbe,
    PublicKeysProbe,
)
from svc.health.rounds import Rounds
from svc.interfaces import ILoads, IProbe
from svc.journal.backlog import ISink
from svc.journal.expirations import RecordedExpirations
from svc.journal.files import FileSink, StandardOutputSink
from svc.journal.journal import Journal
from svc.journal.retention import Retention
from svc.journal.syslog import SyslogSink
from svc.keyring import AccessTokens, AccountKeys
from svc.listening import Endpoint, Listening
from svc.metrics import CountedAuthenticator, Metrics, ReactorLag
from svc.passwords import ModestPool, Passwords
from svc.policy.document import Bounds
from svc.providers.discovery import Publications
from svc.providers.fetch import GuardedClient
from svc.providers.keys import ProviderKeys
from svc.providers.lookup import LookUps
from svc.providers.trust import client_tls
from svc.records import Sealed
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.credentials import CredentialStore
from svc.storage.effective import EffectiveStore
from svc.storage.events import RETENTION, EventStore
from svc.storage.expirations import ExpirationStore
from svc.storage.hostfactories import HostFactoryStore
from svc.storage.policies import PolicyStore
from svc.storage.publickeys import PublicKeyStore
from svc.storage.replication import Replication
from svc.storage.resources import ResourceStore
from svc.storage.roles import RoleStore
from svc.storage.secrets import SecretStore
from svc.throttling import Throttle, ThrottledAuthenticator, ThrottledLogin
from svc.vault import CANARY
from svc.web.accounts import Accounts
from svc.web.audit import Audit
from svc.web.authenticators import Authenticators, FederatedAuthenticators
from svc.web.authn import Authn, FederatedAuthn, LdapAuthn
from svc.web.cluster import Cluster
from svc.web.credentials import Credentials
from svc.web.effective import EffectivePolicies
from svc.web.health import Health
from svc.web.hostfactories import HostFactories
from svc.web.loading import NEAR_ROWS, Loads, NearAndFar
from svc.web.measured import Measured
from svc.web.origin import TrustedProxies
from svc.web.policies import Policies
from svc.web.publickeys import PublicKeys
from svc.web.request import Edge
from svc.web.resources import Resources
from svc.web.roles import Roles
from svc.web.routing import Router
from svc.web.secrets import Secrets
from svc.web.site import Site
from svc.web.status import Status
from svc.worker.messages import Task
from svc.worker.pool import Workers

#: Bytes of the random ids under which requests and bugs are logged.
_ID_BYTES: Final = 8

#: Names that can be looked up at the same time; a thread is made when it is needed.
_LOOK_UPS: Final = 64

#: Threads that hash passwords: half of the machine, and no more than these, whose memory counts too.
_HASHING_THREADS: Final = 4

log = Logger()


@attrs.frozen
class Composition:
    """The making of one server."""

    reactor: Any
    settings: Settings
    endpoints: Sequence[Endpoint]
    metrics_endpoint: Endpoint | None
    tell_admin_key: Callable[[str], bool] | None
    audit_syslog: IStreamClientEndpoint | None = None

    async def compose(self, server: MultiService, foundation: Foundation) -> Sequence[str]:
        """Make every part, each when those below it stand, and return the URLs of the ports that were opened last."""
        reactor, settings = self.reactor, self.settings
        # Names are looked up in threads, each busy until a name service answers or is given up: a few that hang may not
        # keep the names of other providers from being found.
        reactor.suggestThreadPoolSize(_LOOK_UPS)
        replication = Replication(foundation.database, reactor)
        replication.setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
        await self._make_account(foundation, replication)
        keys = AccountKeys(foundation.accounts, foundation.vault, reactor)
        tokens = AccessTokens(keys, reactor, settings.user_token_ttl, settings.host_token_ttl)
        metrics = None if self.metrics_endpoint is None else Metrics()
        events = EventStore(foundation.database)
        Retention(reactor, events, RETENTION).setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
        journal = await self._journal(server, metrics)
        expirations = self._expirations(foundation, journal)
        expirations.setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
        servers, directories = self._ldap_servers(foundation), functools.cache(self._directories)
        rounds = self._rounds(
            foundation,
            # Each round tries the keys as the store has them now, which is also how this server learns that one retires.
            AuthnProbe(keys.refresh, tokens, reactor),
            AuditProbe(journal),
            LdapProbe(servers.all, directories),
            ExpirationProbe(expirations.first_round, expirations.last_round, expirations.patience, reactor),
        )
        rounds.setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
        ldap = self._ldap(foundation, servers, directories)
        passwords = Passwords(reactor, ModestPool(0, min(_HASHING_THREADS, max(1, (os.cpu_count() or 1) // 2)), "passwords"))
        passwords.setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
        throttle = Throttle(reactor, settings.trusted_proxies) if settings.login_throttle else None
        loads = self._loads(foundation, server)
        router = Router(
            self._nouns(foundation, keys, tokens, loads, rounds, metrics, events, journal, passwords, throttle, ldap),
            caller=tokens.caller,
            demand_primary=replication.demand_primary,
            limits=settings.limits,
            new_id=_new_id,
            journal=journal,
        )
        respond = router.respond if metrics is None else Measured(router.respond, reactor, metrics.count_request)
        site = Site(
            Edge(
                respond=respond,
                limits=settings.limits,
                clock=reactor,
                new_id=_new_id,
                proxies=TrustedProxies(settings.trusted_proxies),
            )
        )
        listening = Listening(self.endpoints, site, site.drain)
        listening.setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
        urls = await listening.open()
        if throttle is not None:
            # After the ports, so that it stops before they do: what it holds back they would wait for.
            throttle.setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
        if self.metrics_endpoint is not None and metrics is not None:
            metrics.watch_checks(rounds.findings)
            metrics.watch_sessions(foundation.database.census)
            ReactorLag(reactor, metrics.observe_lag).setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
            await self._serve(metrics, self.metrics_endpoint, server)
        await rounds.first_round()
        return urls

    def _nouns(
        self,
        foundation: Foundation,
        keys: AccountKeys,
        tokens: AccessTokens,
        loads: ILoads,
        rounds: Rounds,
        metrics: Metrics | None,
        events: EventStore,
        journal: Journal,
        passwords: Passwords,
        throttle: Throttle | None,
        ldap: LdapAuthenticator,
    ) -> list[Any]:
        settings, database, vault = self.settings, foundation.database, foundation.vault
        roles, resources, secrets = RoleStore(database), ResourceStore(database), SecretStore(database, settings.dialect)
        credentials = CredentialStore(database)
        by_api_key, logging_in = _slowed(ApiKeyAuthenticator(credentials, vault, passwords, self.reactor), throttle)
        login = LoggedLogin(logging_in, "authn")
        federated = self._federated(foundation, metrics)
        by_ldap, logging_in_by_ldap = _slowed(ldap, throttle)
        listed = frozenset(settings.authenticators)
        authenticators = Authenticators(
            store=AuthenticatorStore(database),
            roles=roles,
            installed=(*federated, LDAP),
            listed=listed,
            dialect=settings.dialect,
        )
        return [
            Authn(
                by_api_key=_watched(by_api_key, "authn", metrics),
                login=login,
                tokens=tokens,
                keys=keys,
                roles=roles,
            ),
            Credentials(login, credentials, roles, vault, passwords),
            *(FederatedAuthn(name, _watched(each, name, metrics), tokens) for name, each in federated.items()),
            LdapAuthn(_watched(by_ldap, LDAP, metrics), LoggedLogin(logging_in_by_ldap, LDAP), tokens),
            authenticators,
            *(
                FederatedAuthenticators(
                    name=name,
                    explainer=each,
                    store=AuthenticatorStore(database),
                    roles=roles,
                    listed=listed,
                    dialect=settings.dialect,
                    token_limit=settings.jwt_limit,
                    clock=self.reactor,
                )
                for name, each in federated.items()
            ),
            Resources(resources, roles, settings.dialect),
            Roles(roles, settings.dialect),
            Policies(loads, roles, events, journal),
            Audit(events, roles),
            EffectivePolicies(EffectiveStore(database), roles, vault, self.reactor),
            Secrets(secrets, ExpirationStore(database), vault),
            HostFactories(HostFactoryStore(database), roles, resources, vault, settings.dialect, self.reactor),
            PublicKeys(PublicKeyStore(database), secrets, vault),
            Accounts(foundation.accounts, roles, keys, foundation.create_account),
            Status(foundation.state, roles, authenticators.tell_all, settings.dialect),
            Health(rounds, settings.dialect),
            Cluster(rounds, settings.dialect, self._members()),
        ]

    async def _journal(self, server: MultiService, metrics: Metrics | None) -> Journal:
        """The journal, open; it stops after all that may record something."""
        reactor, settings = self.reactor, self.settings
        path, standard = settings.audit_file, sys.__stdout__
        if path is not None:
            sinks: list[ISink] = [FileSink(reactor, path)]
        elif standard is not None:
            sinks = [StandardOutputSink(reactor, standard.fileno())]
        else:
            raise StartRefused("there is no standard output for audit records: set --audit-file")
        if self.audit_syslog is not None and settings.audit_syslog is not None:
            sinks.append(SyslogSink(reactor, self.audit_syslog, settings.audit_syslog))
        journal = Journal(
            EventServer(os.uname().nodename, settings.dialect.prefix),
            reactor,
            sinks,
            refuses=settings.audit_failure == "refuse",
            count_lost=None if metrics is None else metrics.count_lost_records,
        )
        journal.setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
        await journal.open()
        if path is not None:
            # The reactor is woken up by what is called from elsewhere.
            signal.signal(signal.SIGHUP, lambda *_: reactor.callFromThread(journal.reopen))
        elif self.tell_admin_key is None and self.audit_syslog is None:
            log.warn("A daemon's standard output goes nowhere, and so do audit records: set audit_file or audit_syslog")
        return journal

    async def _serve(self, metrics: Metrics, endpoint: Endpoint, server: MultiService) -> None:
        async def let_go(_: float) -> None:
            """Wait for nobody: whoever reads counters asks again."""

        listening = Listening([endpoint], metrics.site(), let_go)
        listening.setName("metrics")  # type: ignore[no-untyped-call] # Twisted's
        listening.setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
        (url,) = await listening.open()
        log.info("Metrics are served at {url}", url=url)

    def _members(self) -> Members:
        """The other servers of the cluster, each asked under the authorities that the settings name for it."""
        settings = self.settings
        common = None if settings.cluster_ca is None else trust_of(settings.cluster_ca, settings.key("cluster_ca"))
        return Members(
            self.reactor,
            {
                member.name: Inquiry(
                    self.reactor,
                    member,
                    common if member.ca is None else trust_of(member.ca, settings.key("cluster")),
                ).ask
                for member in settings.cluster
            },
        )

    def _loads(self, foundation: Foundation, server: MultiService) -> ILoads:
        settings = self.settings
        bounds = Bounds(nesting=settings.nesting_limit, aliases=settings.alias_limit)
        task = Task(foundation.dsn, settings.statement_timeout, foundation.data_key, settings.dialect, bounds)
        workers = Workers(self.reactor, task)
        workers.setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
        near = Loads(PolicyStore(foundation.database), foundation.vault, settings.dialect, bounds, NEAR_ROWS)
        return NearAndFar(near, workers)

    def _expirations(self, foundation: Foundation, journal: Journal) -> Expirations:
        reactor, settings, events = self.reactor, self.settings, RecordedExpirations(LoggedExpirations(), journal)
        store = ExpirationStore(foundation.database)
        return Expirations(
            reactor,
            store,
            HostFactoryStore(foundation.database),
            Rotations(store, foundation.vault, reactor, events),
            [PostgresPassword(reactor, self._look_ups(), client_tls)],
            events,
            settings.expiration_interval,
        )

    def _federated(self, foundation: Foundation, metrics: Metrics | None) -> dict[str, FederatedAuthenticator]:
        """The authenticators that trust third parties, by name; they share what is known of these."""
        reactor, settings = self.reactor, self.settings
        client = GuardedClient(
            reactor,
            reactor.nameResolver,
            client_tls,
            allow_http=settings.allow_http_providers,
            private_networks=settings.allow_private_providers,
        )
        keys = ProviderKeys(
            Publications(client).key_set,
            reactor,
            settings.jwks_refetch_interval,
            max_age=settings.jwks_max_age,
            stale_if_error=settings.jwks_stale_if_error,
        )
        if metrics is not None:
            metrics.watch_key_sets(keys.ages)
        return {
            kind.name: FederatedAuthenticator(
                kind,
                AuthenticatorStore(foundation.database),
                keys,
                foundation.vault,
                reactor,
                settings.dialect,
                frozenset(settings.authenticators),
                clock_skew=settings.clock_skew,
                token_limit=settings.jwt_limit,
                ignore_missing_issuer=settings.ignore_missing_issuer,
            )
            for kind in (JWT, cloud(settings.dialect))
        }

    def _ldap_servers(self, foundation: Foundation) -> LdapServers:
        store, settings = AuthenticatorStore(foundation.database), self.settings
        return LdapServers(store, store, foundation.vault, settings.dialect, frozenset(settings.authenticators))

    def _ldap(
        self, foundation: Foundation, servers: LdapServers, directories: Callable[[], IDirectories]
    ) -> LdapAuthenticator:
        return LdapAuthenticator(
            AuthenticatorStore(foundation.database),
            CredentialStore(foundation.database),
            servers,
            directories,
            foundation.vault,
            self.settings.dialect,
            frozenset(self.settings.authenticators),
            self.reactor,
        )

    def _directories(self) -> IDirectories:
        """The client of LDAP directories."""
        from svc.ldap.client import Directories  # noqa: PLC0415 - few servers ask a directory, and its library takes time

        return Directories(self.reactor, self._look_ups(), client_tls, allow_plain=self.settings.allow_plain_ldap)

    def _look_ups(self) -> LookUps:
        return LookUps(self.reactor, self.reactor.nameResolver, self.settings.allow_private_providers)

    def _rounds(self, foundation: Foundation, *others: IProbe) -> Rounds:
        """The rounds of health: the checks of what stands on the foundation alone, and others."""
        database, state, vault = foundation.database, foundation.state, foundation.vault

        def open_canary(sealed: Sealed) -> object:
            return vault.open(CANARY, sealed)

        probes = [
            CoreProbe(state, open_canary),
            AuthzProbe(state),
            HostFactoryProbe(HostFactoryStore(database)),
            PublicKeysProbe(PublicKeyStore(database)),
            *others,
        ]
        return Rounds(self.reactor, probes, DatabaseProbe(state), self.settings.health_interval)

    async def _make_account(self, foundation: Foundation, replication: Replication) -> None:
        """Make the account that the settings name, unless it is there; a follower waits for its primary's."""
        account = self.settings.account
        if account is None:
            return
        if not await replication.standby():
            await foundation.ensure_account(account, self.settings.data_dir, self.tell_admin_key)
        elif account not in await foundation.accounts.names():
            log.warn(
                "There is no account {account} yet: this server is a follower, so make it on the primary", account=account
            )


def _slowed(inner: ApiKeyAuthenticator | LdapAuthenticator, throttle: Throttle | None) -> tuple[IAuthenticator, ILogin]:
    """The two ways to try a key or a password, slowed down alike for who guesses, if anybody is to be."""
    if throttle is None:
        return inner, inner
    return ThrottledAuthenticator(inner, throttle), ThrottledLogin(inner, throttle)


def _watched(authenticator: IAuthenticator, name: str, metrics: Metrics | None) -> IAuthenticator:
    """An authenticator whose decisions are logged and, where metrics are served, counted."""
    counted = authenticator if metrics is None else CountedAuthenticator(authenticator, name, metrics)
    return LoggedAuthenticator(counted, name)


def _new_id() -> str:
    return os.urandom(_ID_BYTES).hex()

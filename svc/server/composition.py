"""The composition root: make the services of the server on an open installation, in their order."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
from twisted.application.service import MultiService
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import Logger

from svc.audit.journal import Journal
from svc.audit.refusals import LoggedAuthenticator, LoggedLogin
from svc.audit.retention import Retention
from svc.authn.apikey import ApiKeyAuthenticator
from svc.authn.ldap.authenticator import LdapAuthenticator
from svc.authn.ldap.directory_settings import NAME as LDAP
from svc.authn.throttling import Throttle, ThrottledAuthenticator, ThrottledLogin
from svc.cluster.peer_claims import PeerClaims
from svc.crypto.keyring import AccessTokens, AccountKeys
from svc.crypto.passwords import ModestPool, Passwords
from svc.health.ldap import LdapProbe
from svc.health.probes import AuditProbe, ExpirationProbe
from svc.health.pulse import Pulse
from svc.health.signing import AuthnProbe
from svc.model.authentication import IAuthenticator, ILogin
from svc.model.ports import ILoads
from svc.server.bootstrap import Installation
from svc.server.lifecycle import child
from svc.server.listening import Endpoint, Listening
from svc.server.parts import Parts
from svc.server.reloading import Renewals
from svc.services.accounts import AccountService
from svc.services.audit_reading import AuditService
from svc.services.authenticators import AuthenticatorService, FederatedService
from svc.services.credentials import CredentialService
from svc.services.effective_policy import EffectivePolicyService
from svc.services.host_factories import HostFactoryService
from svc.services.login import AccessTokenService, ApiKeyService, LoginService
from svc.services.policy_loads import PolicyLoadService
from svc.services.public_keys import PublicKeyService
from svc.services.resources import ResourceService
from svc.services.roles import RoleService
from svc.services.secrets import SecretService
from svc.settings.config import Settings
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.credentials import CredentialStore
from svc.storage.driver.replication import Replication
from svc.storage.effective_policy import EffectiveStore
from svc.storage.events import RETENTION, EventStore
from svc.storage.expirations import ExpirationStore
from svc.storage.host_factories import HostFactoryStore
from svc.storage.public_keys import PublicKeyStore
from svc.storage.resources import ResourceStore
from svc.storage.roles import RoleStore
from svc.storage.secrets import SecretStore
from svc.telemetry.metrics import CountedAuthenticator, Metrics, ReactorLag
from svc.web.http.measured import Measured
from svc.web.http.origin import TrustedProxies
from svc.web.http.request import HttpConfig
from svc.web.http.router import Router
from svc.web.http.site import Site
from svc.web.routes.accounts import Accounts
from svc.web.routes.audit import Audit
from svc.web.routes.authenticators import Authenticators, FederatedAuthenticators
from svc.web.routes.authn import Authn, FederatedAuthn, LdapAuthn
from svc.web.routes.cluster import Cluster
from svc.web.routes.credentials import Credentials
from svc.web.routes.effective_policy import EffectivePolicies
from svc.web.routes.health import Health
from svc.web.routes.host_factories import HostFactories
from svc.web.routes.policies import Policies
from svc.web.routes.public_keys import PublicKeys
from svc.web.routes.resources import Resources
from svc.web.routes.roles import Roles
from svc.web.routes.secrets import Secrets
from svc.web.routes.status import Status

#: Names that can be looked up at the same time, each in a thread that is made when it is needed.
_LOOK_UPS: Final = 64

#: Threads that hash passwords: half of the machine, and no more than these, whose memory counts too.
_HASHING_THREADS: Final = 4

log = Logger()


@attrs.frozen
class Composition:
    """Make one server."""

    reactor: Any
    settings: Settings
    endpoints: Sequence[Endpoint]
    metrics_endpoint: Endpoint | None
    tell_admin_key: Callable[[str], bool] | None
    audit_syslog: IStreamClientEndpoint | None = None

    async def compose(self, server: MultiService, installation: Installation) -> Sequence[str]:
        """Make every part, each when those below it stand, and return the URLs of the ports that were opened last."""
        reactor, wall, settings = self.reactor, installation.wall, self.settings
        # A look-up may hang until its name service is given up: a few may not keep the names of others from being found.
        reactor.suggestThreadPoolSize(_LOOK_UPS)
        replication = child(server, Replication(installation.database, reactor))
        await self._make_account(installation, replication)
        keys = AccountKeys(installation.accounts, installation.vault, wall)
        tokens = AccessTokens(keys, wall, settings.user_token_ttl, settings.host_token_ttl)
        metrics = None if self.metrics_endpoint is None else Metrics()
        events = EventStore(installation.database)
        renewals = child(server, Renewals(reactor))
        for endpoint in filter(None, [*self.endpoints, self.metrics_endpoint]):
            if endpoint.certificate is not None:
                renewals.watch(endpoint.certificate)
        parts, claims = Parts(reactor, settings, installation, renewals), PeerClaims(installation.data_key)
        inquiries = parts.inquiries()
        rivals = child(server, parts.rivals(inquiries, claims, replication))

        async def demand_primary() -> None:
            """Check that the database is a primary and that no rival forbids writes."""
            await replication.demand_primary()
            await rivals.demand()

        child(server, Retention(reactor, wall, events, RETENTION, demand_primary))
        journal = await parts.journal(server, metrics, self.audit_syslog, daemon=self.tell_admin_key is None)
        expirations = child(server, parts.expirations(journal, demand_primary))
        servers, directories = parts.ldap_servers(), functools.cache(parts.directories)
        probes = (
            AuthnProbe(keys, tokens, reactor),  # whose rounds are also how this server learns that a key retires
            AuditProbe(journal),
            LdapProbe(servers, directories),
            ExpirationProbe(expirations, reactor),
        )
        checks_loop = child(server, parts.checks_loop(rivals, *probes))

        def changed() -> None:
            """The database has gone, or come back, perhaps as another."""
            rivals.doubt()
            checks_loop.hasten()

        pulse = child(server, Pulse(reactor, installation.state.connected, installation.database.readings, changed))
        threads = min(_HASHING_THREADS, max(1, (os.cpu_count() or 1) // 2))
        passwords = child(server, Passwords(reactor, ModestPool(0, threads, "passwords")))
        throttle = Throttle(reactor, settings.trusted_proxies) if settings.login_throttle else None
        loads, ldap = parts.loads(server), parts.ldap(servers, directories)
        dialect, limits, proxies = settings.dialect, settings.limits, TrustedProxies(settings.trusted_proxies)
        members, identity = parts.members(inquiries), replication.identity
        router = Router(
            [
                *self._nouns(parts, keys, tokens, loads, metrics, events, journal, passwords, throttle, ldap),
                Health(checks_loop, dialect, lambda: pulse.beats, lambda: replication.writable and rivals.writable),
                Cluster(checks_loop, dialect, members, lambda: rivals.contenders, claims, identity),
            ],
            caller=tokens.caller,
            demand_primary=demand_primary,
            limits=limits,
            new_id=_new_id,
            journal=journal,
            dialect=dialect,
        )
        respond = router.respond if metrics is None else Measured(router.respond, reactor, metrics.count_request)
        site = Site(HttpConfig(respond=respond, limits=limits, clock=reactor, wall=wall, new_id=_new_id, proxies=proxies))
        urls = await child(server, Listening(self.endpoints, site, site.drain)).open()
        if throttle is not None:
            # After the ports, so that it stops before they do: what it holds back they would wait for.
            child(server, throttle)
        if self.metrics_endpoint is not None and metrics is not None:
            metrics.watch_checks(checks_loop.findings)
            metrics.watch_backlogs(journal.backlogs)
            metrics.watch_sessions(installation.database.census)
            metrics.watch_rivals(rivals.counted)
            metrics.watch_connections(site.counts)
            child(server, ReactorLag(reactor, metrics.observe_lag))
            await self._serve(metrics, self.metrics_endpoint, server)
        await checks_loop.first_round()
        return urls

    def _nouns(
        self,
        parts: Parts,
        keys: AccountKeys,
        tokens: AccessTokens,
        loads: ILoads,
        metrics: Metrics | None,
        events: EventStore,
        journal: Journal,
        passwords: Passwords,
        throttle: Throttle | None,
        ldap: LdapAuthenticator,
    ) -> list[Any]:
        settings, installation = self.settings, parts.installation
        database, vault, wall = installation.database, installation.vault, installation.wall
        roles, resources, secrets = RoleStore(database), ResourceStore(database), SecretStore(database, settings.dialect)
        credentials, factories = CredentialStore(database), HostFactoryStore(database)
        by_api_key, logging_in = _slowed(ApiKeyAuthenticator(credentials, vault, passwords, wall), throttle)
        api_keys = ApiKeyService(LoggedLogin(logging_in, "authn"))
        federated = parts.federated(metrics)
        by_ldap, logging_in_by_ldap = _slowed(ldap, throttle)
        dialect, listed, authenticator_store = (
            settings.dialect,
            frozenset(settings.authenticators),
            AuthenticatorStore(database),
        )
        authenticators = AuthenticatorService(
            store=authenticator_store, roles=roles, installed=(*federated, LDAP), listed=listed, dialect=settings.dialect
        )
        access_tokens = AccessTokenService(roles, keys)
        return [
            Authn(LoginService(_watched(by_api_key, "authn", metrics), tokens), api_keys, access_tokens),
            Credentials(CredentialService(api_keys, credentials, roles, vault, passwords)),
            *(FederatedAuthn(name, LoginService(_watched(each, name, metrics), tokens)) for name, each in federated.items()),
            LdapAuthn(
                LoginService(_watched(by_ldap, LDAP, metrics), tokens), ApiKeyService(LoggedLogin(logging_in_by_ldap, LDAP))
            ),
            Authenticators(authenticators),
            *(
                FederatedAuthenticators(
                    FederatedService(
                        name=name,
                        explainer=each,
                        store=authenticator_store,
                        roles=roles,
                        listed=listed,
                        dialect=dialect,
                        token_limit=settings.jwt_limit,
                        clock=self.reactor,
                        wall=wall,
                    )
                )
                for name, each in federated.items()
            ),
            Resources(ResourceService(resources, roles)),
            Roles(RoleService(roles, dialect)),
            Policies(PolicyLoadService(loads, roles, events, journal)),
            Audit(AuditService(events, roles)),
            EffectivePolicies(EffectivePolicyService(EffectiveStore(database), roles, vault, self.reactor), self.reactor),
            Secrets(SecretService(secrets, ExpirationStore(database), vault)),
            HostFactories(HostFactoryService(factories, roles, resources, vault, dialect, wall, settings.record_limits)),
            PublicKeys(PublicKeyService(PublicKeyStore(database), secrets, vault)),
            Accounts(AccountService(installation.accounts, roles, keys, installation.create_account)),
            Status(installation.state, access_tokens, authenticators, dialect),
        ]

    async def _serve(self, metrics: Metrics, endpoint: Endpoint, server: MultiService) -> None:
        async def let_go(_: float) -> None:
            """Close connections at once: a reader of counters asks again."""

        listening = Listening([endpoint], metrics.site(), let_go)
        listening.setName("metrics")  # type: ignore[no-untyped-call] # Twisted's
        (url,) = await child(server, listening).open()
        log.info("Metrics are served at {url}", url=url)

    async def _make_account(self, installation: Installation, replication: Replication) -> None:
        """Make the account that the settings name, unless it is there; a follower waits for its primary's."""
        account = self.settings.account
        if account is None:
            return
        if not await replication.standby():
            await installation.ensure_account(account, self.settings.data_dir, self.tell_admin_key)
        elif account not in await installation.accounts.names():
            warning = "There is no account {account} yet: this server is a follower, so make it on the primary"
            log.warn(warning, account=account)


def _slowed(inner: ApiKeyAuthenticator | LdapAuthenticator, throttle: Throttle | None) -> tuple[IAuthenticator, ILogin]:
    """Return the two ways to try a key or a password, slowed down alike for guessers if there is a throttle."""
    if throttle is None:
        return inner, inner
    return ThrottledAuthenticator(inner, throttle), ThrottledLogin(inner, throttle)


def _watched(authenticator: IAuthenticator, name: str, metrics: Metrics | None) -> IAuthenticator:
    """Return an authenticator whose decisions are logged and, where metrics are served, counted."""
    counted = authenticator if metrics is None else CountedAuthenticator(authenticator, name, metrics)
    return LoggedAuthenticator(counted, name)


def _new_id() -> str:
    """Return a random id under which a request or a bug is logged."""
    return os.urandom(8).hex()

"""How the parts of the server are made and put together, on a foundation that is laid."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
from twisted.application.service import MultiService
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
from svc.config import Settings
from svc.credentials import new_api_key
from svc.directories import IDirectories
from svc.errors import Conflict
from svc.expiration.postgresql import PostgresPassword
from svc.expiration.rotation import Rotations
from svc.expiration.rounds import Expirations
from svc.foundation import Foundation
from svc.health.probes import AuthnProbe, AuthzProbe, CoreProbe, DatabaseProbe
from svc.health.rounds import Rounds
from svc.interfaces import ILoads
from svc.keyfiles import admin_key_file, write_admin_key
from svc.keyring import AccessTokens, AccountKeys
from svc.listening import Endpoint, Listening
from svc.metrics import CountedAuthenticator, Metrics
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
from svc.web.authenticators import Authenticators, FederatedAuthenticators
from svc.web.authn import Authn, FederatedAuthn, LdapAuthn
from svc.web.credentials import Credentials
from svc.web.effective import EffectivePolicies
from svc.web.health import Health
from svc.web.hostfactories import HostFactories
from svc.web.loading import NEAR_ROWS, Loads, NearAndFar
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
        rounds = self._rounds(foundation, keys, tokens)
        rounds.setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
        self._expirations(foundation).setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
        metrics = None if self.metrics_endpoint is None else Metrics()
        passwords = Passwords(reactor, ModestPool(0, min(_HASHING_THREADS, max(1, (os.cpu_count() or 1) // 2)), "passwords"))
        passwords.setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
        throttle = Throttle(reactor, settings.trusted_proxies) if settings.login_throttle else None
        router = Router(
            self._nouns(foundation, keys, tokens, self._loads(foundation, server), rounds, metrics, passwords, throttle),
            caller=tokens.caller,
            demand_primary=replication.demand_primary,
            limits=settings.limits,
            new_id=_new_id,
        )
        site = Site(
            Edge(
                respond=router.respond,
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
        passwords: Passwords,
        throttle: Throttle | None,
    ) -> list[Any]:
        settings, database, vault = self.settings, foundation.database, foundation.vault
        roles, resources, secrets = RoleStore(database), ResourceStore(database), SecretStore(database, settings.dialect)
        credentials = CredentialStore(database)
        by_api_key, logging_in = _slowed(ApiKeyAuthenticator(credentials, vault, passwords, self.reactor), throttle)
        login = LoggedLogin(logging_in, "authn")
        federated = self._federated(foundation)
        by_ldap, logging_in_by_ldap = _slowed(self._ldap(foundation, credentials), throttle)
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
            Policies(loads, roles),
            EffectivePolicies(EffectiveStore(database), roles, vault, self.reactor),
            Secrets(secrets, ExpirationStore(database), vault),
            HostFactories(HostFactoryStore(database), roles, resources, vault, settings.dialect, self.reactor),
            PublicKeys(PublicKeyStore(database), secrets, vault),
            Accounts(foundation.accounts, roles, keys, foundation.create_account),
            Status(foundation.state, roles, authenticators.tell_all, settings.dialect),
            Health(rounds, settings.dialect),
        ]

    async def _serve(self, metrics: Metrics, endpoint: Endpoint, server: MultiService) -> None:
        async def let_go(_: float) -> None:
            """Wait for nobody: whoever reads counters asks again."""

        listening = Listening([endpoint], metrics.site(), let_go)
        listening.setName("metrics")  # type: ignore[no-untyped-call] # Twisted's
        listening.setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
        (url,) = await listening.open()
        log.info("Metrics are served at {url}", url=url)

    def _loads(self, foundation: Foundation, server: MultiService) -> ILoads:
        settings = self.settings
        bounds = Bounds(nesting=settings.nesting_limit, aliases=settings.alias_limit)
        task = Task(foundation.dsn, settings.statement_timeout, foundation.data_key, settings.dialect, bounds)
        workers = Workers(self.reactor, task)
        workers.setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
        near = Loads(PolicyStore(foundation.database), foundation.vault, settings.dialect, bounds, NEAR_ROWS)
        return NearAndFar(near, workers)

    def _expirations(self, foundation: Foundation) -> Expirations:
        reactor, settings, events = self.reactor, self.settings, LoggedExpirations()
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

    def _federated(self, foundation: Foundation) -> dict[str, FederatedAuthenticator]:
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

    def _ldap(self, foundation: Foundation, credentials: CredentialStore) -> LdapAuthenticator:
        store, vault, dialect = AuthenticatorStore(foundation.database), foundation.vault, self.settings.dialect
        listed = frozenset(self.settings.authenticators)
        servers = LdapServers(store, store, vault, dialect, listed)
        directories = functools.cache(self._directories)
        return LdapAuthenticator(store, credentials, servers, directories, vault, dialect, listed, self.reactor)

    def _directories(self) -> IDirectories:
        """The client of LDAP directories."""
        from svc.ldap.client import Directories  # noqa: PLC0415 - few servers ask a directory, and its library takes time

        return Directories(self.reactor, self._look_ups(), client_tls, allow_plain=self.settings.allow_plain_ldap)

    def _look_ups(self) -> LookUps:
        return LookUps(self.reactor, self.reactor.nameResolver, self.settings.allow_private_providers)

    def _rounds(self, foundation: Foundation, keys: AccountKeys, tokens: AccessTokens) -> Rounds:
        settings, state, vault = self.settings, foundation.state, foundation.vault

        def open_canary(sealed: Sealed) -> object:
            return vault.open(CANARY, sealed)

        # Each round tries the keys as the store has them now, which is also how this server learns that one retires.
        return Rounds(
            self.reactor,
            [CoreProbe(state, open_canary), AuthnProbe(keys.refresh, tokens, self.reactor), AuthzProbe(state)],
            DatabaseProbe(state),
            settings.health_interval,
        )

    async def _make_account(self, foundation: Foundation, replication: Replication) -> None:
        """Make the account that the settings name, unless it is there; a follower waits for its primary's."""
        account = self.settings.account
        if account is None or account in await foundation.accounts.names():
            return
        if await replication.standby():
            log.warn(
                "There is no account {account} yet: this server is a follower, so make it on the primary", account=account
            )
            return
        api_key, path, tell = new_api_key(), admin_key_file(self.settings.data_dir, account), self.tell_admin_key
        # Before the account is made: nobody could ever use an account whose key is lost.
        if tell is None:
            write_admin_key(path, api_key)
        try:
            await foundation.create_account(account, api_key)
        except Conflict:
            # Another server has just made it, and knows the key.
            if tell is None:
                path.unlink()
            return
        if tell is not None and tell(api_key):
            return
        if tell is not None:
            write_admin_key(path, api_key)
        log.warn("The account {account} was made. The API key of its admin is in {path}", account=account, path=str(path))


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

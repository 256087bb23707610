"""The composition root: make the services of the server on an open installation, in their order.

A server of one process is put together here. Of a server of several ``supervisor`` has what there is one of, and ``process``
what each of the others is: they serve by the same :class:`Serving`.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import attrs
from twisted.application.service import MultiService
from twisted.internet.interfaces import IStreamClientEndpoint

from svc.audit.journal import Journal
from svc.audit.recent_refusals import RecentRefusals
from svc.audit.refusals import LoggedLogin
from svc.authn.apikey import ApiKeyAuthenticator
from svc.authn.ldap.authenticator import LdapAuthenticator
from svc.authn.ldap.directory_settings import NAME as LDAP
from svc.authn.login_notes import LoginNotes
from svc.authn.oidc_settings import NAME as OIDC
from svc.authn.pacing import Pace, PacedLogin
from svc.authn.throttling import HELD, Failures, IFailures, Throttle
from svc.authn.used_signatures import UsedSignatures
from svc.cluster.members import IMembers
from svc.cluster.overview import Overview
from svc.cluster.told_verdict import IVerdict
from svc.crypto.console_cookies import ConsoleCookies
from svc.crypto.passwords import WAITING, ModestPool, Passwords
from svc.health.checks_loop import IHealth
from svc.model.authentication import IProviderKeys
from svc.model.aws import IUsedSignatures
from svc.model.databases import DatabaseIdentity
from svc.model.ports import ILoads
from svc.model.refusals import IRefusals
from svc.model.turns import ITurns
from svc.server.bootstrap import Installation
from svc.server.duties import Certificate, Duties, Ground, Pulses, prepare, serve_metrics
from svc.server.endings import make_endings
from svc.server.fine_timer import FineTimer
from svc.server.lifecycle import ServerService, child
from svc.server.listening import Endpoint, Listening
from svc.server.oidc import Oidc
from svc.server.remembering import memory_of, reached_by, watches_of
from svc.server.v2_nouns import make_v2
from svc.server.wrapped_logins import (
    at_once,
    by_tokens,
    hashing_threads,
    make_explanations,
    make_ldap,
    make_sessions,
    slowed,
    watched,
)
from svc.services.access import AccessService
from svc.services.accounts import AccountService
from svc.services.audit_reading import AuditService
from svc.services.authenticators import AuthenticatorService, FederatedService
from svc.services.batches import BatchService
from svc.services.console_sessions import ConsoleSessionService
from svc.services.credentials import CredentialService
from svc.services.deleted import DeletedService
from svc.services.effective_policy import EffectivePolicyService
from svc.services.host_factories import HostFactoryService
from svc.services.login import AccessTokenService, ApiKeyService, LoginService
from svc.services.policy_loads import PolicyLoadService
from svc.services.public_keys import PublicKeyService
from svc.services.refusals import RefusalService
from svc.services.resources import ResourceService
from svc.services.revocation import RevocationService
from svc.services.roles import RoleService
from svc.services.secrets import SecretService
from svc.services.watches import Watches
from svc.settings.config import Settings
from svc.storage.access import AccessStore
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.credentials import CredentialStore
from svc.storage.deleted import DeletedStore
from svc.storage.driver.statements import Statements
from svc.storage.effective_policy import EffectiveStore
from svc.storage.events import EventStore
from svc.storage.expirations import ExpirationStore
from svc.storage.host_factories import HostFactoryStore
from svc.storage.kept_answers import KeptAnswerStore
from svc.storage.last_logins import LastLoginStore
from svc.storage.memory.memory import Memory
from svc.storage.memory.slots import Slots
from svc.storage.public_keys import PublicKeyStore
from svc.storage.resources import ResourceStore
from svc.storage.roles import RoleStore
from svc.storage.secrets import SecretStore
from svc.telemetry.exposition import metrics_site
from svc.telemetry.metrics import Metrics
from svc.web.http.console import IConsole
from svc.web.http.measured import Measured
from svc.web.http.origin import TrustedProxies
from svc.web.http.refused import RefusalWatch
from svc.web.http.request import HttpConfig
from svc.web.http.request_ids import RequestIds
from svc.web.http.router import Router
from svc.web.http.site import Site
from svc.web.openapi.routes import Documentation
from svc.web.routes.accounts import Accounts
from svc.web.routes.audit import Audit
from svc.web.routes.authenticators import Authenticators, FederatedAuthenticators
from svc.web.routes.authn import Authn
from svc.web.routes.batches import SecretBatches
from svc.web.routes.cluster import Cluster
from svc.web.routes.credentials import Credentials
from svc.web.routes.deleted import DeletedRecords
from svc.web.routes.effective_policy import EffectivePolicies
from svc.web.routes.health import Health
from svc.web.routes.host_factories import HostFactories
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

#: Names that can be looked up at the same time, each in a thread that is made when it is needed.
_LOOK_UPS: Final = 64


@attrs.frozen
class Composition:
    """Make a server that is one process."""

    reactor: Any
    settings: Settings
    endpoints: Sequence[Endpoint]
    metrics_endpoint: Endpoint | None
    tell_admin_key: Callable[[str], bool] | None
    audit_syslog: IStreamClientEndpoint | None = None

    async def compose(self, server: ServerService, installation: Installation) -> Sequence[str]:
        """Make every part, each when those below it stand, and return the URLs of the ports that were opened last."""
        reactor, settings = self.reactor, self.settings
        metrics = None if self.metrics_endpoint is None else Metrics()
        ground = Ground.lay(server, reactor, settings, installation, metrics, Slots.private())
        ground.watch_certificates(*filter(None, (*self.endpoints, self.metrics_endpoint)))
        await prepare(server, ground, self.tell_admin_key)
        journal = functools.partial(ground.journal, server, self.audit_syslog, daemon=self.tell_admin_key is None)
        duties = await Duties.assume(server, ground, journal)
        keys = ground.parts.provider_keys()

        async def certificates() -> list[Certificate]:
            """Return the certificates of the server."""
            return ground.certificates()

        seams = Seams(
            duties.checks_loop,
            duties.rivals,
            duties.members,
            duties.database_asked,
            certificates,
            Failures(reactor, settings.trusted_proxies or ()) if settings.login_throttle else None,
            keys,
            RecentRefusals(installation.wall),
            UsedSignatures(reactor),
        )
        urls = await Serving(server, ground, seams, duties.journal, duties.pulses).open(self.endpoints)
        if self.metrics_endpoint is not None and metrics is not None:
            metrics.watch_key_sets(keys.ages)
            duties.watch(metrics)
            await serve_metrics(server, self.metrics_endpoint, metrics_site(metrics.registry))
        await duties.checks_loop.first_round()
        return urls


@attrs.frozen
class Seams:
    """The parts that exist once per server, as a serving process reaches them; they may be in another process.

    ``identity`` asks the database for its identity, as ``Cluster`` needs it. Turns are ``None`` where there is no other
    process to share with, and ``failures`` where logins aren't throttled.
    """

    health: IHealth
    verdict: IVerdict
    members: IMembers
    identity: Callable[[str], Awaitable[DatabaseIdentity | None]]
    certificates: Callable[[], Awaitable[Sequence[Certificate]]]
    failures: IFailures | None
    keys: IProviderKeys
    refusals: IRefusals
    signatures: IUsedSignatures
    hashing: ITurns | None = None
    loading: ITurns | None = None
    #: How many processes share what may wait, in each, for an answer or a thread.
    processes: int = 1


@attrs.frozen
class Serving:
    """Make what answers requests."""

    server: MultiService
    ground: Ground
    seams: Seams
    journal: Journal
    pulses: Pulses

    async def open(self, endpoints: Sequence[Endpoint]) -> Sequence[str]:
        """Make every part, and return the URLs of the ports."""
        ground, seams, server, processes = self.ground, self.seams, self.server, self.seams.processes
        reactor, settings, metrics, replication = ground.reactor, ground.settings, ground.metrics, ground.replication
        # A lookup may hang until its name service times out: a few must not keep others from being resolved.
        reactor.suggestThreadPoolSize(_LOOK_UPS)

        async def demand_primary() -> None:
            """Check that the database is a primary and that no other primary forbids writes."""
            await replication.demand_primary()
            await seams.verdict.demand()

        waiting = -(-WAITING // processes)
        pool = ModestPool(0, hashing_threads(), "passwords")
        passwords = child(server, Passwords(reactor, pool, waiting=waiting, turns=seams.hashing))
        if metrics is not None:
            metrics.watch_passwords(lambda: passwords.pending, passwords.places)
        throttle = None if seams.failures is None else Throttle(reactor, seams.failures, -(-HELD // processes))
        timer = child(server, FineTimer(reactor))
        memory, readings = memory_of(server, ground), ground.readings
        loads = ground.parts.loads(server, seams.loading)
        dialect, limits, proxies = settings.dialect, settings.limits, TrustedProxies(settings.trusted_proxies)
        overview = Overview(seams.health, dialect, seams.members, lambda: seams.verdict.contenders)
        new_id, wall = RequestIds(), ground.installation.wall
        # Before the ports, so that it stops after them: the last logins are written, too.
        notes = child(server, LoginNotes(reactor, wall, LastLoginStore(readings), demand_primary))
        noted = notes.note_directory
        ldap = ground.parts.ldap(ground.servers, ground.directories, self.journal, demand_primary, noted)
        watches = watches_of(ground, memory)
        console, nouns = self._nouns(
            readings if memory is None else memory, watches, loads, passwords, throttle, ldap, timer.after, overview, notes
        )
        nouns += [
            Health(
                seams.health,
                dialect,
                self._answers,
                lambda: replication.writable and self.pulses.writes.beats and seams.verdict.writable,
                lambda: memory is not None and memory.stands_in(),
            ),
            Cluster(overview, ground.claims, seams.identity),
        ]
        router = Router(
            [*nouns, Documentation(nouns, dialect)],
            caller=ground.tokens.caller,
            demand_primary=demand_primary,
            reached=reached_by(ground, memory),
            limits=limits,
            new_id=new_id,
            journal=self.journal,
            dialect=dialect,
            console=console,
            refused=RefusalWatch(seams.refusals, ground.installation.wall),
        )
        respond = router.respond if metrics is None else Measured(router.respond, reactor, metrics.count_request)
        site = Site(HttpConfig(respond=respond, limits=limits, clock=reactor, wall=wall, new_id=new_id, proxies=proxies))
        urls = await child(server, Listening(endpoints, site, site.drain)).open()
        # After the ports, so that they end before these do.
        child(server, watches)
        if throttle is not None:
            # After the ports, so that it stops before they do: they would wait for the answers that it holds back.
            child(server, throttle)
        if metrics is not None:
            metrics.watch_connections(site.counts)
            if memory is not None:
                metrics.watch_memory(memory.counts)
        return urls

    def _answers(self) -> bool:
        """Return whether this process can serve now, apart from the health of the server."""
        refuses = self.seams.processes > 1 and self.ground.settings.audit_failure == "refuse"
        return self.pulses.readings.beats and not (refuses and self.journal.trouble is not None)

    def _nouns(
        self,
        statements: Statements,
        watches: Watches,
        loads: ILoads,
        passwords: Passwords,
        throttle: Throttle | None,
        ldap: LdapAuthenticator,
        after: Callable[[float], Awaitable[None]],
        overview: Overview,
        notes: LoginNotes,
    ) -> tuple[IConsole | None, list[Any]]:
        """Return the console, where there is one, and all nouns, its own included."""
        ground, journal = self.ground, self.journal
        settings, installation, keys, metrics = ground.settings, ground.installation, ground.keys, ground.metrics
        tokens, reactor = ground.tokens, ground.reactor
        database, vault, wall = ground.readings, installation.vault, installation.wall
        roles, resources, keeping = RoleStore(statements), ResourceStore(statements), settings.keeping
        secrets = SecretStore(statements, settings.dialect, keeping)
        access = AccessService(AccessStore(database), roles, resources, settings.dialect)
        events, last_logins = EventStore(database), LastLoginStore(database)
        credentials, factories = CredentialStore(statements), HostFactoryStore(database)
        answers = KeptAnswerStore(installation.database)
        pace = Pace(reactor, statements.take_turn if isinstance(statements, Memory) else at_once, after)
        comparing = ApiKeyAuthenticator(credentials, vault, passwords, wall)
        by_api_key, logging_in = slowed(comparing, throttle)
        api_keys = ApiKeyService(PacedLogin(LoggedLogin(logging_in, "authn"), pace))
        login = LoginService(watched(by_api_key, "authn", metrics, pace), tokens, notes.note)
        federated = ground.parts.federated(self.seams.keys, self.seams.signatures, statements)
        batches = BatchService(secrets, vault, reactor)
        oidc = Oidc.make(ground, self.seams.keys, statements, login, throttle, pace, batches)
        explained = {**federated, OIDC: oidc.operated}
        dialect, listed = settings.dialect, frozenset(settings.authenticators)
        authenticator_store = AuthenticatorStore(statements)
        authenticators = AuthenticatorService(authenticator_store, roles, (*explained, LDAP), listed, dialect)
        operated = {
            name: FederatedService(
                name=name,
                explainer=each,
                store=authenticator_store,
                roles=roles,
                listed=listed,
                dialect=dialect,
                token_limit=settings.jwt_limit,
                clock=reactor,
                wall=wall,
            )
            for name, each in explained.items()
        }
        access_tokens = AccessTokenService(roles, keys)
        resource_service, role_service = ResourceService(resources, roles, dialect), RoleService(roles, dialect, last_logins)
        secret_service = SecretService(secrets, ExpirationStore(database, keeping), vault)
        audit, policy_loads = AuditService(events, roles), PolicyLoadService(loads, roles, events, journal)
        revocation = RevocationService(roles, credentials, installation.accounts)
        seams, refusals = self.seams, RefusalService(self.seams.refusals, roles)
        endings = make_endings(ground, seams.members, seams.certificates, roles, resources, last_logins, explained)
        key_logins = make_explanations(comparing, ldap, throttle, pace, roles, dialect)
        console, pages = None, list[Any]()
        if settings.console:
            # Few servers have it, and its library takes time.
            from svc.server.console import make_console  # noqa: PLC0415

            cookies = ConsoleCookies(vault)
            console, pages = make_console(
                ConsoleSessionService(login, oidc.by_code, api_keys, credentials, cookies, wall, settings.console_session),
                cookies,
                revocation,
                overview,
                audit,
                roles,
                access_tokens,
                resource_service,
                secret_service,
                role_service,
                access,
                authenticators,
                operated,
                policy_loads,
                endings.endings,
                endings.idle,
                key_logins.by_key,
                refusals,
                oidc.service,
                wall,
                settings.public_url,
                ground.state,
            )
        return console, [
            *pages,
            Authn(login, api_keys, access_tokens, batches),
            Sessions(make_sessions(ground, login, roles, throttle, pace)),
            Credentials(CredentialService(api_keys, credentials, roles, vault, passwords, answers)),
            Revocation(revocation),
            *by_tokens(
                federated,
                throttle,
                lambda each, name: LoginService(watched(each, name, metrics, pace), tokens, notes.note, by_token=True),
                batches,
            ),
            oidc.routes,
            *make_ldap(ground, ldap, throttle, pace, notes, batches, roles, self.seams.refusals),
            Authenticators(authenticators),
            key_logins,
            *(FederatedAuthenticators(each) for each in operated.values()),
            Resources(resource_service, access),
            Roles(role_service, access),
            Policies(policy_loads),
            Audit(audit),
            Refusals(refusals),
            endings,
            EffectivePolicies(EffectivePolicyService(EffectiveStore(database), roles, vault, dialect, reactor), reactor),
            Secrets(secret_service),
            SecretBatches(batches, reactor),
            SecretWatches(watches),
            DeletedRecords(DeletedService(DeletedStore(database, keeping), settings.record_limits)),
            HostFactories(HostFactoryService(factories, roles, resources, vault, dialect, wall, settings.record_limits)),
            PublicKeys(PublicKeyService(PublicKeyStore(database), secrets, vault)),
            *make_v2(statements, settings, access_tokens, vault, authenticators.installed),
            Accounts(AccountService(ground.accounts, roles, keys, installation.create_account, vault)),
            Status(ground.state, access_tokens, authenticators, dialect, has_console=settings.console),
        ]

"""The parts that every process of a server has, and those that exist once per server, however many processes it has."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Awaitable, Callable
from typing import Any, Self

import attrs
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.logger import Logger

from svc._version import VERSION
from svc.audit.journal import Journal
from svc.audit.recoveries import Recoveries
from svc.audit.retention import Retention
from svc.audit.shared_turn import SharedTurn
from svc.authn.ldap.bind_guard import BindGuard
from svc.authn.ldap.directory_settings import LdapServers
from svc.authn.ldap.refused_binds import RefusedBinds
from svc.cluster.members import Members
from svc.cluster.peer_claims import PeerClaims
from svc.cluster.rival_primaries import Rivals
from svc.crypto.keyring import AccessTokens, AccountKeys
from svc.health.ages import AgesLoop
from svc.health.checks_loop import ChecksLoop, longest_check
from svc.health.ldap import OF_A_CHECK, LdapProbe
from svc.health.probes import AuditProbe, ExpirationProbe
from svc.health.pulse import Pulse
from svc.health.signing import AuthnProbe
from svc.model.authentication import IAuthenticators
from svc.model.clocks import WallClock
from svc.model.databases import DatabaseIdentity
from svc.model.dialect import CONJUR, NATIVE, Dialect
from svc.model.errors import StoreUnavailable
from svc.model.ldap_directories import IDirectories
from svc.model.ports import IProbe
from svc.model.text import printable
from svc.model.versions import StateVersion
from svc.server import certificates
from svc.server.bootstrap import Installation
from svc.server.data_keys import KeyWatch, Resealing
from svc.server.lifecycle import ServerService, child
from svc.server.listening import Endpoint, Listening
from svc.server.parts import Parts
from svc.server.reloading import Renewals
from svc.settings.config import Settings
from svc.storage.accounts import AccountStore
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.database_state import DatabaseState
from svc.storage.deleted import DeletedStore
from svc.storage.driver.database import Database
from svc.storage.driver.replication import Replication
from svc.storage.driver.standbys import Standbys
from svc.storage.events import RETENTION, EventStore
from svc.storage.kept_answers import KeptAnswerStore
from svc.storage.memory.slots import Slots
from svc.storage.memory.trimming import Trimming
from svc.storage.places import Places
from svc.storage.purging import Purging
from svc.storage.readings import Readings
from svc.telemetry.metrics import Metrics, ReactorLag

log = Logger()

#: The setting that names a certificate, what it is for, and when it ends, in epoch seconds.
Certificate = tuple[str, str, float]


@attrs.frozen
class Pulses:
    """Whether the database answers reads, and whether there is one to write to."""

    readings: Pulse
    writes: Pulse


@attrs.frozen
class Ground:
    """The common parts of every process: the installation, signing keys, counters, and the factory of larger parts."""

    reactor: Any
    settings: Settings
    installation: Installation
    metrics: Metrics | None
    readings: Database | Readings
    state: DatabaseState
    accounts: AccountStore
    replication: Replication
    keys: AccountKeys
    tokens: AccessTokens
    renewals: Renewals
    parts: Parts
    claims: PeerClaims
    data_keys: KeyWatch
    slots: Slots
    servers: LdapServers
    #: Counts the binds that directories refuse; another process does where that supervises this one.
    binds: RefusedBinds | None
    #: Makes the client of LDAP directories when it is first needed.
    directories: Callable[[], IDirectories]
    #: The ports whose certificates are read again when they change.
    _watched: list[Endpoint] = attrs.field(factory=list, init=False)

    @classmethod
    def lay(
        cls,
        server: MultiService,
        reactor: Any,
        settings: Settings,
        installation: Installation,
        metrics: Metrics | None,
        slots: Slots,
        *,
        worker: int | None = None,
        guard: BindGuard | None = None,
    ) -> Self:
        """Make it; ``slots`` has this process's slot for its commits. ``worker`` is its number, if another one supervises
        it: that one beats, gets the data keys, and counts the binds of which ``guard`` asks it.
        """
        database = installation.database

        def written(confirmed: bool, version: StateVersion | None) -> None:
            """Count a commit of this process."""
            slots.advance(confirmed=confirmed, version=version)

        database.tell_commits(written, lambda: slots.written(slots.read()).timeline)
        readings: Database | Readings = database
        if settings.splits:
            standbys = Standbys(reactor, installation.dsn, database)
            readings = Readings(reactor, child(server, Places(reactor, database, standbys, slots)))
        state, accounts = DatabaseState(database, readings), AccountStore(readings)
        replication = child(server, Replication(database, reactor, beats=worker is None))
        keys = AccountKeys(accounts, installation.vault, installation.wall)
        tokens = AccessTokens(keys, installation.wall, settings.user_token_ttl, settings.host_token_ttl)
        renewals = child(server, Renewals(reactor))
        parts = Parts(reactor, settings, installation, renewals, readings, state, written)
        claims = PeerClaims(installation.vault)
        data_keys = child(server, _key_watch(reactor, installation, replication, worker))
        if worker is None:
            renewals.at_hangup(lambda: Deferred.fromCoroutine(data_keys.read_again()))
        if metrics is not None:
            metrics.watch_process(VERSION, platform.python_version(), installation.wall.seconds())
            metrics.watch_sessions(readings.census)
            child(server, ReactorLag(reactor, metrics.observe_lag))
        binds = None if guard is not None else parts.refused_binds()
        guard = guard if binds is None else binds.guard(installation.audit_key)
        assert guard is not None
        return cls(
            *(reactor, settings, installation, metrics, readings, state, accounts, replication, keys, tokens, renewals),
            *(parts, claims, data_keys, slots, parts.ldap_servers(), binds),
            functools.cache(functools.partial(parts.directories, guard)),
        )

    def pulses(self, server: MultiService, written: Callable[[], object], read: Callable[[], object]) -> Pulses:
        """Return the pulses of the database: of writes and of readings, which are one unless those may go to standbys.

        ``written`` and ``read`` are called when it has gone or come back; ``read`` also when there is a primary again, since
        a round of checks is what makes this server ready to write.
        """
        database, state = self.installation.database, self.installation.state

        def changed() -> None:
            """Both have."""
            written()
            read()

        if not self.settings.splits:
            both = child(server, Pulse(self.reactor, state.connected, database.readings, changed))
            return Pulses(both, both)
        writes = Pulse(self.reactor, state.connected, database.writing, changed, serves="changes")
        writes.setName("pulse of the primary")  # type: ignore[no-untyped-call] # Twisted's
        return Pulses(
            child(server, Pulse(self.reactor, self.state.connected, self.readings.readings, read)), child(server, writes)
        )

    def watch_certificates(self, *endpoints: Endpoint) -> None:
        """Read the certificates of endpoints again when they change, and report when they and those of clients expire."""
        self._watched.extend(endpoints)
        for endpoint in endpoints:
            if endpoint.certificate is not None:
                self.renewals.watch(endpoint.certificate)
        if self.metrics is not None:
            files = certificates.client_files(self.settings)
            self.metrics.watch_certificates(
                lambda: [
                    attrs.astuple(shown) for shown in (*certificates.of_ports(endpoints), *certificates.of_files(files))
                ]
            )

    def port_certificates(self) -> list[Certificate]:
        """Return the certificates of the ports that this process has."""
        return list(certificates.named(certificates.of_ports(self._watched), self.settings))

    def certificates(self) -> list[Certificate]:
        """Return those, and the certificates that are shown to other servers."""
        files = certificates.of_files(certificates.client_files(self.settings))
        return [*self.port_certificates(), *certificates.named(files, self.settings)]

    async def journal(
        self, server: MultiService, syslog: IStreamClientEndpoint | None, turn: SharedTurn | None = None, *, daemon: bool
    ) -> Journal:
        """Return the journal of this process, as ``Parts.journal``."""
        journal = await self.parts.journal(server, self.metrics, syslog, turn, daemon=daemon)
        if self.metrics is not None:
            self.metrics.watch_backlogs(journal.backlogs)
        return journal


@attrs.frozen
class Duties:
    """The duties done once per server: expiring and rotating values, detecting a split brain, health checks."""

    rivals: Rivals
    members: Members
    journal: Journal
    checks_loop: ChecksLoop
    resealing: Resealing
    pulses: Pulses
    purging: Purging
    ages: AgesLoop
    wall: WallClock
    database_asked: Callable[[str], Awaitable[DatabaseIdentity | None]]

    @classmethod
    async def assume(
        cls, server: MultiService, ground: Ground, journal_of: Callable[[], Awaitable[Journal]], *others: IProbe
    ) -> Self:
        """Begin; ``others`` are probes of parts that are made elsewhere."""
        reactor, installation, parts, replication = ground.reactor, ground.installation, ground.parts, ground.replication
        inquiries = parts.inquiries()
        rivals = child(server, parts.rivals(inquiries, ground.claims, replication))

        async def demand_primary() -> None:
            """Check that the database is a primary and that no other primary forbids writes."""
            await replication.demand_primary()
            await rivals.demand()

        async def database_asked(_: str) -> DatabaseIdentity:
            """Return the identity of the database, for the answer to a challenge that isn't our own."""
            return await replication.identity()

        child(server, Retention(reactor, installation.wall, EventStore(installation.database), RETENTION, demand_primary))
        child(server, Trimming(reactor, installation.database, demand_primary))
        deleted = DeletedStore(installation.database, ground.settings.keeping)
        purging = child(server, Purging(reactor, deleted, KeptAnswerStore(installation.database), demand_primary))
        journal = await journal_of()
        child(server, Recoveries(reactor, installation.accounts.recovered, journal))
        expirations = child(server, parts.expirations(journal, demand_primary))
        rounds = child(server, parts.directory_rounds(ground.servers, ground.directories, journal, demand_primary))
        within = OF_A_CHECK * longest_check(ground.settings.health_interval)
        probes = (
            AuthnProbe(ground.keys, ground.tokens, reactor),  # its rounds are also how retired keys are noticed
            AuditProbe(journal),
            LdapProbe(ground.servers, ground.directories, within, lambda: rounds.trouble),
            ExpirationProbe(expirations, reactor),
            *others,
        )
        checks_loop = child(server, parts.checks_loop(rivals, ground.data_keys.open_canary, *probes))
        store, vault, pace = installation.data_keys, installation.vault, ground.settings.data_key_pace
        resealing = child(server, Resealing(reactor, store, vault, pace, demand_primary))

        # A database that was away may have come back as a different one.
        pulses = ground.pulses(server, rivals.doubt, checks_loop.hasten)
        inquiring = child(server, parts.members(inquiries))
        ages = child(server, AgesLoop(reactor, ground.state))
        wall = installation.wall
        return cls(rivals, inquiring, journal, checks_loop, resealing, pulses, purging, ages, wall, database_asked)

    def watch(self, metrics: Metrics) -> None:
        """Export these as metrics."""
        metrics.watch_checks(self.checks_loop.findings)
        metrics.watch_rivals(self.rivals.counted)
        metrics.watch_deleted(self.purging.counts)
        metrics.watch_data_key(self.resealing.age, self.resealing.counted)
        metrics.watch_replication(lambda: self.checks_loop.report(NATIVE).position)
        metrics.watch_ages(lambda: self.ages.current, self.wall.seconds)


def _key_watch(reactor: Any, installation: Installation, replication: Replication, worker: int | None) -> KeyWatch:
    host, pid = os.uname().nodename, os.getpid()
    place = f"{host} (process {pid})" if worker is None else f"{host} (process {pid}, worker {worker})"
    source = installation.source if worker is None else None

    def writable() -> bool:
        return replication.writable

    return KeyWatch(reactor, installation.data_keys, installation.vault, os.urandom(8).hex(), place, writable, source)


async def prepare(server: ServerService, ground: Ground, tell_admin_key: Callable[[str], bool] | None) -> None:
    """Have the account that the settings name, and see whether policy fits the dialect."""
    if await make_account(ground, tell_admin_key) and (account := ground.settings.account) is not None:
        server.announced = functools.partial(ground.installation.accounts.announce, account)
    await compare_dialect(AuthenticatorStore(ground.readings), ground.settings.dialect)


async def make_account(ground: Ground, tell_admin_key: Callable[[str], bool] | None) -> bool:
    """Make the account that the settings name, unless it is there; a follower waits for its primary's.

    Return whether the API key of its admin was shown, or written.
    """
    account, installation = ground.settings.account, ground.installation
    if account is None:
        return False
    try:
        standby = await ground.replication.standby()
    except StoreUnavailable:
        if not ground.settings.splits:
            raise
        return False  # It began without a primary, which has the account.
    if not standby:
        return await installation.ensure_account(account, ground.settings.data_dir, tell_admin_key)
    if account not in await installation.accounts.names():
        warning = "There is no account {account} yet: this server is a follower, so make it on the primary"
        log.warn(warning, account=account)
    return False


async def compare_dialect(authenticators: IAuthenticators, dialect: Dialect) -> None:
    """Warn where policy has authenticators in the other dialect's names, and none in this one's (CFG-27)."""
    other = CONJUR if dialect.prefix == NATIVE.prefix else NATIVE
    try:
        found = [name for name, _ in await authenticators.webservices(other.prefix)]
        first = next((name for name in found if name.identifier.startswith(f"{other.prefix}/authn-")), None)
        if first is None or await authenticators.webservices(dialect.prefix):
            return
    except StoreUnavailable:
        return  # It began without a primary.
    warning = "Policy has {what}, in the dialect {other}: this server has {here}, and takes no logins there"
    log.warn(warning, what=printable(str(first)), other=other.name, here=dialect.name)


async def serve_metrics(server: MultiService, endpoint: Endpoint, site: IProtocolFactory) -> None:
    """Serve counters."""

    async def let_go(_: float) -> None:
        """Close connections at once: a reader of counters asks again."""

    listening = Listening([endpoint], site, let_go)
    listening.setName("metrics")  # type: ignore[no-untyped-call] # Twisted's
    (url,) = await child(server, listening).open()
    log.info("Metrics are served at {url}", url=url)
